//! Changes of limits: those of all keys, and those of a key's own.

use suimon_core::{Carry, Gate, Policy};

use super::{Held, Keys, When};
use crate::Error;
use crate::keyed::shard::{Find, one_word, wanted_policy};
use crate::sync::{Arc, lock};

impl<I: Send + 'static> Keys<I> {
    /// Gives a key limits of its own, or takes them from it.
    pub(in crate::keyed) fn set_policy(
        self: &Arc<Self>,
        hash: u64,
        key: &impl Find<I>,
        policy: Option<Policy>,
        carry: Carry,
    ) -> Result<(), Error> {
        // Nothing is changed by a policy that names an unknown zone.
        if let Some(policy) = &policy {
            Gate::with_calendar(policy.clone(), &*self.setup.calendar)?;
        }
        let held = match &policy {
            Some(_) => self.busy(hash, key, true)?,
            None => {
                let mut shard = self.shard(hash);
                let found = shard.find_key(hash, key);
                let own = found.and_then(|at| shard.entry(at).busy()).filter(|busy| busy.own.is_some());
                match own {
                    Some(busy) => self.hold(hash, busy),
                    None => return Ok(()),
                }
            }
        };
        let mut shard = self.shard(hash);
        if let Some(at) = shard.find_busy(hash, held.shared())
            && let Some(busy) = shard.entry(at).busy()
        {
            busy.own = policy;
            busy.wanted += 1;
        }
        drop(shard);
        self.carry_out(&held, carry)
    }

    /// Changes the limits of a busy key to what is wanted, without the lock of the
    /// shard: it may wake others.
    fn carry_out(&self, held: &Held<I>, carry: Carry) -> Result<(), Error> {
        let mut carry = carry;
        let mut done = None;
        loop {
            let mut shard = self.shard(held.hash());
            let Some(at) = shard.find_busy(held.hash(), held.shared()) else { return Ok(()) };
            let rules = shard.rules.clone();
            let Some(busy) = shard.entry(at).busy() else { return Ok(()) };
            if done == Some(busy.wanted) {
                return Ok(());
            }
            done = Some(busy.wanted);
            let policy = wanted_policy(busy, &rules);
            drop(shard);
            held.shared().change(policy, carry)?;
            // What others wanted meanwhile is carried over as usual.
            carry = Carry::Keep;
        }
    }

    /// Changes the limits of all keys that have none of their own.
    pub(in crate::keyed) fn change(self: &Arc<Self>, policy: Policy, carry: Carry) -> Result<(), Error> {
        let gate = Gate::with_calendar(policy, &*self.setup.calendar)?;
        let gcra = match &self.flat {
            Some(_) => Some(*one_word(&gate)?),
            None => None,
        };
        let mut busy = Vec::new();
        let changes = lock(&self.changes);
        {
            // All at once: a key is under the rules of its shard, and the table under
            // those of all.
            let mut shards: Vec<_> = self.shards.iter().map(lock).collect();
            let now = || self.now(When::Now);
            let rules = Arc::new(match (&self.flat, gcra) {
                (Some(flat), Some(gcra)) => {
                    let at = flat.limits.change(gcra, carry, now);
                    shards[0].rules.changed(gate, at, carry).without_past()
                }
                _ => shards[0].rules.changed(gate, now(), carry),
            });
            for shard in &mut shards {
                shard.rules = rules.clone();
                for (hash, entry) in shard.busy_entries().filter(|(_, busy)| busy.own.is_none()) {
                    entry.wanted += 1;
                    busy.push(self.hold(hash, entry));
                }
            }
            if rules.is_long() {
                shards.iter_mut().for_each(|shard| shard.bring_all());
                let rules = Arc::new(rules.without_past());
                shards.iter_mut().for_each(|shard| shard.rules = rules.clone());
            }
        }
        if let Some(flat) = &self.flat {
            flat.sweep_if_due();
        }
        drop(changes);
        for held in busy {
            self.carry_out(&held, carry)?;
        }
        self.change_common(carry)
    }

    /// Changes the limiter of all keys without room to what is in force, as
    /// [`carry_out`](Keys::carry_out) does for that of a busy key.
    fn change_common(&self, carry: Carry) -> Result<(), Error> {
        let rules = || lock(&self.shards[0]).rules.clone();
        let mut carry = carry;
        let mut wanted = rules();
        loop {
            self.common.change(wanted.gate.policy().clone(), carry)?;
            let done = std::mem::replace(&mut wanted, rules()).version;
            if done == wanted.version {
                return Ok(());
            }
            carry = Carry::Keep;
        }
    }
}
