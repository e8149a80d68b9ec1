//! Tokens that are out on lease.
//!
//! They were charged when they were taken, and still count as saved: while `L` tokens
//! are out, the balance of a bucket of size `S` refills to `S - L` at most. So the tokens
//! that there are, in the store and on lease together, are never more than `S`, and they
//! grow by the rate alone: over an interval all who spend them together stay within
//! `S + rate * interval`, also after idling. Without that, a bucket that refills while
//! its tokens are out would give them twice at one instant.

use suimon_core::{Cost, Gate, State, Timestamp};

use super::wire::number;

/// The leases of a key, the first to end first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Leases {
    out: Vec<Lease>,
    next: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    expires: Timestamp,
    id: u64,
    tokens: Cost,
}

/// What the borrower keeps of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) id: u64,
    pub(super) expires: Timestamp,
    pub(super) granted: Cost,
}

/// The first byte of a record with leases, or of the place of one. A state begins with
/// another.
const MARK: u8 = 0xA1;

impl Leases {
    /// Moves the state on to `now`: what has refilled while tokens were out is capped,
    /// lease by lease in the order in which they end.
    pub(super) fn settle(&mut self, gate: &Gate, state: &mut State, now: Timestamp) {
        let (Some(gcra), Some(mut word)) = (gate.gcra(), state.word()) else { return };
        let ticks = |cost: Cost| gcra.ticks().of_cost(cost).unwrap_or(u64::MAX);
        let mut total = self.out.iter().fold(0_u64, |sum, lease| sum.saturating_add(ticks(lease.tokens)));
        if total == 0 {
            return;
        }
        let ended = self.out.iter().take_while(|lease| lease.expires <= now).count();
        for lease in self.out.drain(..ended) {
            word = word.max(gcra.ticks().at(lease.expires).saturating_add(total));
            total = total.saturating_sub(ticks(lease.tokens));
        }
        if total > 0 {
            word = word.max(gcra.ticks().at(now).saturating_add(total));
        }
        state.set_word(word);
    }

    pub(super) fn add(&mut self, expires: Timestamp, tokens: Cost) -> u64 {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let at = self.out.partition_point(|lease| lease.expires <= expires);
        self.out.insert(at, Lease { expires, id, tokens });
        id
    }

    /// Ends a lease and puts back what of it was not spent; false where it has ended
    /// already. The state has been settled to `now`.
    pub(super) fn give_back(
        &mut self,
        gate: &Gate,
        state: &mut State,
        now: Timestamp,
        place: Place,
        back: Cost,
    ) -> bool {
        // A record that was removed meanwhile counts its leases anew.
        let same = |lease: &Lease| lease.id == place.id && lease.expires == place.expires;
        let Some(at) = self.out.iter().position(same) else { return false };
        let lease = self.out.remove(at);
        if let (Some(gcra), Some(word)) = (gate.gcra(), state.word()) {
            // Rounded up when it was charged: what goes back is rounded down.
            let whole = gcra.ticks().of_cost(lease.tokens).unwrap_or(u64::MAX);
            let spent = gcra.ticks().of_cost(lease.tokens.saturating_sub(back)).unwrap_or(u64::MAX);
            state.set_word(word.saturating_sub(whole.saturating_sub(spent)));
            self.settle(gate, state, now);
        }
        true
    }

    /// The instant at which all of them have ended.
    pub(super) fn end(&self) -> Timestamp {
        self.out.last().map_or(Timestamp::ZERO, |lease| lease.expires)
    }

    /// The leases, if there are any, and the state as bytes.
    pub(super) fn with_state(&self, state: &State) -> Vec<u8> {
        if self.out.is_empty() && self.next == 0 {
            return state.to_bytes();
        }
        let mut bytes = vec![MARK];
        bytes.extend_from_slice(&self.next.to_le_bytes());
        bytes.extend_from_slice(&(self.out.len() as u64).to_le_bytes());
        for Lease { expires, id, tokens } in &self.out {
            for number in [expires.as_nanos(), *id, tokens.as_whole()] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.extend_from_slice(&tokens.subsec_nanos().to_le_bytes());
        }
        bytes.extend_from_slice(&state.to_bytes());
        bytes
    }

    /// The inverse: the leases, and the bytes of the state.
    pub(super) fn split_state(bytes: &[u8]) -> Option<(Leases, &[u8])> {
        let (&mark, mut rest) = bytes.split_first()?;
        if mark != MARK {
            return Some((Leases::default(), bytes));
        }
        let rest = &mut rest;
        let mut leases = Leases { next: number(rest)?, out: Vec::new() };
        for _ in 0..number(rest)? {
            let (expires, id) = (Timestamp::from_nanos(number(rest)?), number(rest)?);
            leases.out.push(Lease { expires, id, tokens: tokens(rest)? });
        }
        Some((leases, rest))
    }
}

impl Place {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![MARK];
        for number in [self.id, self.expires.as_nanos(), self.granted.as_whole()] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.granted.subsec_nanos().to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Place> {
        let (&mark, mut rest) = bytes.split_first()?;
        let rest = &mut rest;
        if mark != MARK {
            return None;
        }
        let (id, expires) = (number(rest)?, Timestamp::from_nanos(number(rest)?));
        Some(Place { id, expires, granted: tokens(rest)? })
    }
}

fn tokens(bytes: &mut &[u8]) -> Option<Cost> {
    let whole = number(bytes)?;
    let (nanos, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Cost::new(whole, u32::from_le_bytes(*nanos)).ok()
}
