use super::{LocalLimiter, Reservation};
use crate::{Error, Request};

/// Takes a place in each of several limiters, each with a cost of its own, or in
/// none: where one of them fails, the places before it are given up and leave no
/// trace.
///
/// For an API that counts requests and tokens at once:
///
/// ```
/// use suimon::{Cost, LocalLimiter, Request, reserve_all};
///
/// let requests = LocalLimiter::new("pace 60/min")?;
/// let tokens = LocalLimiter::new("bucket 90000/min")?;
///
/// let estimate = Request::new(Cost::whole(4000));
/// let [mut one, mut many] = reserve_all([(&requests, Request::default()), (&tokens, estimate)])?;
/// one.wait_until_ready()?; // or `one.ready().await?`
/// many.wait_until_ready()?;
/// // ... the call, which tells what it really cost:
/// many.settle(1234)?;
/// # Ok::<(), suimon::Error>(())
/// ```
///
/// Each place comes to its turn by itself; what is ready first is charged from then
/// on while the others are waited for. Limits that count the same cost belong
/// into one policy instead (`bucket 10/s and fixed 1000/day`), which decides about
/// all of them in one step.
///
/// # Errors
/// Those of [`LocalLimiter::reserve`], of the first limiter that refuses.
pub fn reserve_all<const N: usize>(wanted: [(&LocalLimiter, Request); N]) -> Result<[Reservation; N], Error> {
    let mut places = Vec::with_capacity(N);
    for (limiter, request) in wanted {
        match limiter.reserve(request) {
            Ok(place) => places.push(place),
            Err(error) => {
                places.into_iter().for_each(Reservation::cancel);
                return Err(error);
            }
        }
    }
    // As many places as were wanted.
    places.try_into().map_err(|_| unreachable!("a place for each of the wanted"))
}

#[cfg(test)]
mod tests {
    use suimon_core::Cost;

    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_refusal_of_one_leaves_no_trace_in_the_others() -> Result<(), Error> {
        let clock = ManualClock::new();
        let limiter = |policy: &str| LocalLimiter::builder(policy)?.clock(clock.clone()).build();
        let (requests, tokens) = (limiter("bucket 1/s burst 2")?, limiter("bucket 100/s")?);

        let too_much = Request::new(Cost::whole(101));
        assert!(reserve_all([(&requests, Request::default()), (&tokens, too_much)]).unwrap_err().is_cost_too_large());
        assert_eq!(requests.status().remaining(), 2);

        let [_one, many] = reserve_all([(&requests, Request::default()), (&tokens, Request::new(Cost::whole(80)))])?;
        assert_eq!((requests.status().remaining(), tokens.status().remaining()), (1, 20));
        many.settle(30)?;
        assert_eq!(tokens.status().remaining(), 70);
        Ok(())
    }
}
