//! Replies, tickets and settlements as bytes, for stores that record them.

use std::sync::Arc;
use std::time::Duration;

use suimon_core::{Cost, Retry, Settlement, Status, Timestamp};

use super::{Outcome, Reply, Ticket};
use crate::Error;

const FORMAT: u8 = 1;
const ALLOWED: u8 = 0;
const DENIED: u8 = 1;
const BOOKED: u8 = 2;
const NEVER: u64 = u64::MAX;
const EVEN: u8 = 3;
const CHARGED: u8 = 4;
const REFUNDED: u8 = 5;

impl Reply {
    /// The reply as bytes, to be recorded under the id of its request.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let (kind, status) = match &self.outcome {
            Outcome::Allowed(status) => (ALLOWED, status),
            Outcome::Denied(status, _) => (DENIED, status),
            Outcome::Booked(status, _) => (BOOKED, status),
        };
        let mut bytes = vec![FORMAT, kind];
        let mut put = |number: u64| bytes.extend_from_slice(&number.to_le_bytes());
        put(self.now.as_nanos());
        put(status.limit());
        put(status.remaining());
        put(status.burst_left());
        put(nanos(status.reset_after()));
        match &self.outcome {
            Outcome::Allowed(_) => {}
            Outcome::Denied(_, retry) => {
                put(retry.after().map_or(NEVER, nanos));
                put(retry.limit() as u64);
            }
            Outcome::Booked(_, ticket) => {
                put(nanos(ticket.wait));
                for (key, place) in &ticket.parts {
                    for part in [key.as_bytes(), place] {
                        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
                        bytes.extend_from_slice(part);
                    }
                }
            }
        }
        bytes
    }

    /// The inverse; the reply says that it is a recorded one.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] when the bytes are none of a reply.
    pub fn from_bytes(bytes: &[u8]) -> Result<Reply, Error> {
        read(bytes).ok_or_else(|| Error::unavailable("the recorded answer of a request cannot be read"))
    }
}

fn read(bytes: &[u8]) -> Option<Reply> {
    let (&[format, kind], mut rest) = bytes.split_first_chunk()?;
    if format != FORMAT {
        return None;
    }
    let rest = &mut rest;
    let now = Timestamp::from_nanos(number(rest)?);
    let (limit, remaining, burst_left) = (number(rest)?, number(rest)?, number(rest)?);
    let status = Status::of(limit, remaining, burst_left, Duration::from_nanos(number(rest)?));
    let outcome = match kind {
        ALLOWED => Outcome::Allowed(status),
        DENIED => {
            let wait = number(rest)?;
            let limit = usize::try_from(number(rest)?).ok()?;
            let wait = (wait != NEVER).then(|| Duration::from_nanos(wait));
            let retry = wait.map_or(Retry::Never { limit }, |wait| Retry::After { wait, limit });
            Outcome::Denied(status, retry)
        }
        BOOKED => {
            let wait = Duration::from_nanos(number(rest)?);
            let mut parts = Vec::new();
            while !rest.is_empty() {
                let key: Arc<str> = std::str::from_utf8(slice(rest)?).ok()?.into();
                parts.push((key, slice(rest)?.to_vec()));
            }
            Outcome::Booked(status, Ticket { wait, parts })
        }
        _ => return None,
    };
    rest.is_empty().then_some(Reply { outcome, now, replayed: true })
}

/// A settlement as bytes, to be recorded under the id of its request.
#[must_use]
pub fn settlement_to_bytes(settlement: Settlement) -> Vec<u8> {
    let (kind, cost) = match settlement {
        Settlement::Even => (EVEN, Cost::ZERO),
        Settlement::Charged(cost) => (CHARGED, cost),
        Settlement::Refunded(cost) => (REFUNDED, cost),
    };
    let mut bytes = vec![FORMAT, kind];
    put_tokens(&mut bytes, cost);
    bytes
}

/// The inverse.
///
/// # Errors
/// [`Error::is_unavailable`] when the bytes are none of a settlement.
pub fn settlement_from_bytes(bytes: &[u8]) -> Result<Settlement, Error> {
    let read = || {
        let (&[format, kind], mut rest) = bytes.split_first_chunk()?;
        let cost = tokens(&mut rest)?;
        let settlement = match kind {
            EVEN => Settlement::Even,
            CHARGED => Settlement::Charged(cost),
            REFUNDED => Settlement::Refunded(cost),
            _ => return None,
        };
        (format == FORMAT && rest.is_empty()).then_some(settlement)
    };
    read().ok_or_else(|| Error::unavailable("the recorded settlement of a booking cannot be read"))
}

/// Appends a cost.
pub(super) fn put_tokens(bytes: &mut Vec<u8>, cost: Cost) {
    bytes.extend_from_slice(&cost.as_whole().to_le_bytes());
    bytes.extend_from_slice(&cost.subsec_nanos().to_le_bytes());
}

/// Takes a cost from the front.
pub(super) fn tokens(bytes: &mut &[u8]) -> Option<Cost> {
    let whole = number(bytes)?;
    let (nanos, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Cost::new(whole, u32::from_le_bytes(*nanos)).ok()
}

/// Takes a number from the front.
pub(super) fn number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

fn slice<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(number(bytes)?).ok()?;
    let (slice, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(slice)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_as_it_was_written() {
        let status = Status::of(10, 3, 3, Duration::from_millis(1500));
        let pace = Status::of(60, 60, 1, Duration::ZERO);
        let wait = Duration::from_nanos(7);
        let ticket = Ticket { wait, parts: vec![("key".into(), vec![1, 2, 3]), ("".into(), vec![])] };
        for outcome in [
            Outcome::Allowed(pace),
            Outcome::Denied(status, Retry::After { wait, limit: 1 }),
            Outcome::Denied(status, Retry::Never { limit: 0 }),
            Outcome::Booked(status, ticket),
        ] {
            let reply = Reply { outcome, now: Timestamp::from_secs(9), replayed: false };
            let bytes = reply.to_bytes();
            assert_eq!(Reply::from_bytes(&bytes).unwrap(), Reply { replayed: true, ..reply });
            for cut in 0..bytes.len() {
                // Never a panic; between two parts of a ticket it is a shorter one.
                let _ = Reply::from_bytes(&bytes[..cut]);
            }
        }
        assert!(Reply::from_bytes(b"").unwrap_err().is_unavailable());
    }

    #[test]
    fn a_settlement_is_read_as_it_was_written() {
        let cost = Cost::new(7, 5).unwrap();
        for settlement in [Settlement::Even, Settlement::Charged(cost), Settlement::Refunded(cost)] {
            let bytes = settlement_to_bytes(settlement);
            assert_eq!(settlement_from_bytes(&bytes).unwrap(), settlement);
            for cut in 0..bytes.len() {
                assert!(settlement_from_bytes(&bytes[..cut]).unwrap_err().is_unavailable());
            }
            assert!(Reply::from_bytes(&bytes).unwrap_err().is_unavailable());
        }
    }
}
