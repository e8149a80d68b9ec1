//! What a record keeps of a key, and what a ticket tells of a booking, as bytes.

use suimon_core::{Gate, Reservation, State, Timestamp};

use super::leases::Leases;
use super::wire::number;
use crate::Error;

/// What a record keeps of a key.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// Which life of the state it is: the nanosecond of its beginning, or a later one.
    ///
    /// What was given back is counted in the state. When that begins anew (the record was
    /// removed, the limits were changed) the count is lost, and a booking from before
    /// would get back what others got already. By its epoch it is known, and gets nothing: a
    /// record is only removed when nothing could be given back any more.
    pub(super) epoch: u64,
    pub(super) leases: Leases,
    pub(super) state: State,
}

/// The first bytes of a record, and of a ticket: another than those of a lease.
const RECORD: u8 = 0xA2;
const TICKET: u8 = 0xB2;

impl Kept {
    pub(super) fn fresh(gate: &Gate, now: Timestamp) -> Kept {
        Kept { epoch: now.as_nanos(), leases: Leases::default(), state: gate.fresh() }
    }

    /// Another life of the state begins.
    pub(super) fn begin_epoch(&mut self, now: Timestamp) {
        self.epoch = now.as_nanos().max(self.epoch.saturating_add(1));
        self.leases.forget_floor();
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![RECORD];
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        self.leases.write(&mut bytes);
        bytes.extend_from_slice(&self.state.to_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Kept, Error> {
        let head = |bytes: &mut &[u8]| Some((number(bytes)?, Leases::read(bytes)?));
        let mut rest = bytes.strip_prefix(&[RECORD]).ok_or_else(corrupt)?;
        let (epoch, leases) = head(&mut rest).ok_or_else(corrupt)?;
        Ok(Kept { epoch, leases, state: State::from_bytes(rest).map_err(Error::unavailable)? })
    }
}

fn corrupt() -> Error {
    Error::unavailable("a corrupt record")
}

/// A booking, with the epoch of the state that it was made in.
pub(super) fn ticket(epoch: u64, place: &Reservation) -> Vec<u8> {
    let mut bytes = vec![TICKET];
    bytes.extend_from_slice(&epoch.to_le_bytes());
    bytes.extend_from_slice(&place.to_bytes());
    bytes
}

/// The inverse.
pub(super) fn read_ticket(bytes: &[u8]) -> Result<(u64, Reservation), Error> {
    let unreadable = || Error::unavailable("the ticket of a booking cannot be read: it is none of this store, or cut");
    let mut rest = bytes.strip_prefix(&[TICKET]).ok_or_else(unreadable)?;
    let epoch = number(&mut rest).ok_or_else(unreadable)?;
    Ok((epoch, Reservation::from_bytes(rest).map_err(Error::unavailable)?))
}
