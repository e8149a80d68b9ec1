//! Tokens that are out on lease.
//!
//! They were charged when they were taken, and still count as saved: while `L` tokens
//! are out, the balance of a bucket of size `S` refills to `S - L` at most. So the tokens
//! that there are, in the store and on lease together, are never more than `S`, and they
//! grow by the rate alone: over an interval all who spend them together stay within
//! `S + rate * interval`, also after idling. Without that, a bucket that refills while
//! its tokens are out would give them twice at one instant.
//!
//! A booking may hide that: while its estimate is charged the balance is lower anyway. So
//! settling one gives back only what lies above the *floor*, which is the arrival that there
//! would be without any booking: that of the tokens that are out, or were when a lease ended.

use suimon_core::gcra::Gcra;
use suimon_core::{Cost, Gate, State, Timestamp};

use super::wire::{number, put_tokens, tokens};

/// The leases of a key, the first to end first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Leases {
    out: Vec<Lease>,
    next: u64,
    /// Of the leases that have ended, in ticks of the limit.
    floor: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    expires: Timestamp,
    id: u64,
    tokens: Cost,
}

/// What the borrower keeps of a lease: the bytes of its [`Ticket`](super::Ticket), for stores that lend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTicket {
    /// A number that no other lease of the key has that ends at the same instant.
    pub id: u64,
    /// When it ends, by the store's time.
    pub expires: Timestamp,
    /// The tokens that were lent.
    pub granted: Cost,
}

/// The first byte of the place of a lease; a booking begins with another.
const MARK: u8 = 0xA1;

impl Leases {
    /// Moves the state on to `now`: what has refilled while tokens were out is capped,
    /// lease by lease in the order in which they end.
    pub(super) fn settle(&mut self, gate: &Gate, state: &mut State, now: Timestamp) {
        let (Some(gcra), Some(mut word)) = (gate.gcra(), state.word()) else { return };
        let mut total = self.total(gcra);
        if total == 0 {
            return;
        }
        let ended = self.out.iter().take_while(|lease| lease.expires <= now).count();
        for lease in self.out.drain(..ended) {
            let least = gcra.ticks().at(lease.expires).saturating_add(total);
            (word, self.floor) = (word.max(least), self.floor.max(least));
            total = total.saturating_sub(ticks(gcra, lease.tokens));
        }
        if total > 0 {
            word = word.max(gcra.ticks().at(now).saturating_add(total));
        }
        state.set_word(word);
    }

    /// The limits have changed: from here on nothing is given back to earlier bookings.
    pub(super) fn forget_floor(&mut self) {
        self.floor = 0;
    }

    /// The instant down to which what is unpaid of a booking may be given back, at `now`.
    pub(super) fn floor(&self, gate: &Gate, now: Timestamp) -> Timestamp {
        let Some(gcra) = gate.gcra() else { return now };
        let out = match self.total(gcra) {
            0 => 0,
            total => gcra.ticks().at(now).saturating_add(total),
        };
        now.saturating_add(gcra.ticks().until(self.floor.max(out), now))
    }

    fn total(&self, gcra: &Gcra) -> u64 {
        self.out.iter().fold(0, |sum, lease| sum.saturating_add(ticks(gcra, lease.tokens)))
    }

    /// Remembers a lease, unless it is of nothing; its number.
    pub(super) fn add(&mut self, expires: Timestamp, tokens: Cost) -> u64 {
        let id = self.next;
        if tokens.is_zero() {
            return id;
        }
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
        place: LeaseTicket,
        back: Cost,
    ) -> bool {
        // A record that was removed meanwhile counts its leases anew.
        let same = |lease: &Lease| lease.id == place.id && lease.expires == place.expires;
        // Under limits that do not lend it is left to end by itself.
        let (Some(at), Some(gcra)) = (self.out.iter().position(same), gate.gcra()) else { return false };
        let out = gcra.ticks().at(now).saturating_add(self.total(gcra));
        let tokens = self.out.remove(at).tokens;
        // Rounded up when it was charged: what goes back is rounded down.
        let back = ticks(gcra, tokens).saturating_sub(ticks(gcra, tokens.saturating_sub(back)));
        state.give_back(back);
        self.floor = self.floor.max(out.saturating_sub(back));
        true
    }

    /// The instant at which all of them have ended.
    pub(super) fn end(&self) -> Timestamp {
        self.out.last().map_or(Timestamp::ZERO, |lease| lease.expires)
    }

    /// Appends them as bytes.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        for number in [self.next, self.floor, self.out.len() as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for Lease { expires, id, tokens } in &self.out {
            for number in [expires.as_nanos(), *id] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            put_tokens(bytes, *tokens);
        }
    }

    /// The inverse: takes them from the front.
    pub(super) fn read(bytes: &mut &[u8]) -> Option<Leases> {
        let mut leases = Leases { next: number(bytes)?, floor: number(bytes)?, out: Vec::new() };
        for _ in 0..number(bytes)? {
            let (expires, id) = (Timestamp::from_nanos(number(bytes)?), number(bytes)?);
            leases.out.push(Lease { expires, id, tokens: tokens(bytes)? });
        }
        Some(leases)
    }
}

fn ticks(gcra: &Gcra, cost: Cost) -> u64 {
    gcra.ticks().of_cost(cost).unwrap_or(u64::MAX)
}

impl LeaseTicket {
    /// As the bytes of a ticket.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![MARK];
        for number in [self.id, self.expires.as_nanos()] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        put_tokens(&mut bytes, self.granted);
        bytes
    }

    /// The inverse; `None` where the bytes are none of a lease.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<LeaseTicket> {
        let (&mark, mut rest) = bytes.split_first()?;
        let rest = &mut rest;
        if mark != MARK {
            return None;
        }
        let (id, expires) = (number(rest)?, Timestamp::from_nanos(number(rest)?));
        let granted = tokens(rest)?;
        rest.is_empty().then_some(LeaseTicket { id, expires, granted })
    }
}
