use std::time::Duration;

use suimon_core::Cost;

use crate::Error;

/// What a caller asks for: a cost, and how long it may wait for it.
///
/// ```
/// use std::time::Duration;
/// use suimon::{Cost, Request};
///
/// let request = Request::new(Cost::whole(3)).within(Duration::from_secs(2));
/// assert_eq!(request.max_wait(), Some(Duration::from_secs(2)));
/// assert_eq!(Request::default().cost(), Cost::ONE);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Request {
    cost: Cost,
    max_wait: Option<Duration>,
}

impl Request {
    /// A request for `cost` tokens that waits as long as it takes.
    pub const fn new(cost: Cost) -> Request {
        Request { cost, max_wait: None }
    }

    /// Waits at most this long. What cannot pass in time fails at once and takes
    /// nothing.
    pub const fn within(self, max_wait: Duration) -> Request {
        Request { max_wait: Some(max_wait), ..self }
    }

    /// The tokens asked for.
    #[must_use]
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    /// The longest wait, if there is one.
    #[must_use]
    pub const fn max_wait(&self) -> Option<Duration> {
        self.max_wait
    }
}

impl Default for Request {
    /// One token, however long it takes.
    fn default() -> Request {
        Request::new(Cost::ONE)
    }
}

/// Everything that can be asked for: numbers of all kinds, a [`Cost`], a
/// [`Request`].
///
/// A negative number, NaN and the infinities are errors. A float is taken as the
/// decimal that prints it, so `0.1` is one tenth; digits beyond the ninth after the
/// point are rounded up.
pub trait IntoRequest {
    /// The request.
    ///
    /// # Errors
    /// [`Error::is_invalid_cost`] where the number is no cost.
    fn into_request(self) -> Result<Request, Error>;
}

impl IntoRequest for Request {
    #[inline]
    fn into_request(self) -> Result<Request, Error> {
        Ok(self)
    }
}

impl IntoRequest for Cost {
    #[inline]
    fn into_request(self) -> Result<Request, Error> {
        Ok(Request::new(self))
    }
}

macro_rules! whole_numbers {
    ($($int:ty),*) => {$(
        impl IntoRequest for $int {
            #[inline]
            fn into_request(self) -> Result<Request, Error> {
                match u64::try_from(self) {
                    Ok(tokens) => Ok(Request::new(Cost::whole(tokens))),
                    // The core has the words for what is wrong.
                    Err(_) => Ok(Request::new(self.to_string().parse()?)),
                }
            }
        }
    )*};
}

whole_numbers!(u8, u16, u32, u64, usize, u128, i8, i16, i32, i64, isize, i128);

macro_rules! floats {
    ($($float:ty),*) => {$(
        impl IntoRequest for $float {
            fn into_request(self) -> Result<Request, Error> {
                // Printed as the shortest decimal that reads back as this number;
                // adding zero takes the sign from a negative zero.
                decimal(&(self + 0.0).to_string())
            }
        }
    )*};
}

floats!(f32, f64);

/// Reads a decimal of any length, rounded up to nine digits after the point.
fn decimal(text: &str) -> Result<Request, Error> {
    let Some((whole, fraction)) = text.split_once('.').filter(|(_, fraction)| fraction.len() > 9) else {
        return Ok(Request::new(text.parse()?));
    };
    let (kept, rest) = fraction.split_at(9);
    let cost: Cost = format!("{whole}.{kept}").parse()?;
    let up = if rest.bytes().any(|digit| digit != b'0') { Cost::new(0, 1)? } else { Cost::ZERO };
    Ok(Request::new(cost.saturating_add(up)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(number: impl IntoRequest) -> Result<String, Error> {
        number.into_request().map(|request| request.cost().to_string())
    }

    #[test]
    fn numbers_of_all_kinds() {
        assert_eq!(cost(3).unwrap(), "3");
        assert_eq!(cost(7_usize).unwrap(), "7");
        assert_eq!(cost(u64::MAX).unwrap(), "18446744073709551615");
        assert_eq!(cost(0.1).unwrap(), "0.1");
        assert_eq!(cost(0.1_f32).unwrap(), "0.1");
        assert_eq!(cost(-0.0).unwrap(), "0");
        assert_eq!(cost(1e-300).unwrap(), "0.000000001");
        assert_eq!(cost(0.123_456_789_1).unwrap(), "0.12345679");
        assert_eq!(cost(1e19).unwrap(), "10000000000000000000");
    }

    #[test]
    fn what_is_no_cost() {
        assert!(cost(-1).unwrap_err().is_invalid_cost());
        assert!(cost(i128::MIN).unwrap_err().is_invalid_cost());
        assert!(cost(u128::MAX).unwrap_err().is_invalid_cost());
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-9, 1.9e19, f64::MAX] {
            assert!(cost(bad).unwrap_err().is_invalid_cost(), "{bad}");
        }
        assert!(cost(f32::NAN).is_err() && cost(f32::MAX).is_err());
    }
}
