//! Tokens that are out on lease, as they stand in a value: `leases.lua` decides about them. Here
//! are they carried over to other limits.

use suimon::Cost;

use crate::plan::Gcra;
use crate::record::{Doubles, put};
use crate::units::{Units, billionths, cost_pair, from_billionths, from_cost_pair, from_nanos_pair, nanos_pair};

/// The leases of a value, the first to end first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leases {
    /// The arrival, in units, down to which bookings are given back because of leases that have
    /// ended.
    pub(crate) floor: u128,
    pub(crate) out: Vec<Lease>,
}

/// Tokens on lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) expires: u64,
    pub(crate) number: u64,
    pub(crate) tokens: Cost,
}

impl Leases {
    pub(crate) fn is_empty(&self) -> bool {
        self.floor == 0 && self.out.is_empty()
    }

    /// Moves an arrival on to `now`: what has refilled while tokens were out is capped.
    pub(crate) fn settle(&mut self, gcra: &Gcra, arrival: &mut u128, now: u64) {
        let units = gcra.units;
        let mut total: u128 = self.out.iter().map(|lease| units.of_cost(lease.tokens)).sum();
        let ended = self.out.iter().take_while(|lease| lease.expires <= now).count();
        for lease in self.out.drain(..ended) {
            let least = units.at(lease.expires) + total;
            (*arrival, self.floor) = ((*arrival).max(least), self.floor.max(least));
            total -= units.of_cost(lease.tokens);
        }
        if total > 0 {
            *arrival = (*arrival).max(units.at(now) + total);
        }
    }

    /// Takes them from the front. What they are in units is known under one pace or bucket.
    pub(crate) fn read(doubles: &mut Doubles<'_>, units: Option<Units>) -> Option<Leases> {
        let (count, floor) = (doubles.next()?, doubles.pair()?);
        let mut leases = Leases { floor: units.map_or(0, |units| units.of_pair(floor)), out: Vec::new() };
        for _ in 0..count as u64 {
            let (expires, number) = (from_nanos_pair(doubles.pair()?), doubles.next()? as u64);
            let _units = doubles.pair()?;
            let tokens = from_billionths(from_cost_pair(doubles.pair()?));
            leases.out.push(Lease { expires, number, tokens });
        }
        Some(leases)
    }

    pub(crate) fn write(&self, bytes: &mut Vec<u8>, units: Option<Units>) {
        let pair = |number: u128| units.map_or([0.0, 0.0], |units| units.pair(number));
        put(bytes, &[self.out.len() as f64]);
        put(bytes, &pair(self.floor));
        for Lease { expires, number, tokens } in &self.out {
            put(bytes, &nanos_pair(*expires));
            put(bytes, &[*number as f64]);
            put(bytes, &pair(units.map_or(0, |units| units.of_cost(*tokens))));
            put(bytes, &cost_pair(billionths(*tokens)));
        }
    }
}
