//! Everything that can be a limiter.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Mutex, RwLock};

use suimon::clock::ManualClock;
use suimon::{Cost, DynLimiter, Error, Limiter, LocalLimiter, NoLimit, Recorder, Request, Seen, Spot};

use crate::{manual, secs};

static CLOCK: LazyLock<ManualClock> = LazyLock::new(ManualClock::new);
static LIMITER: LazyLock<LocalLimiter> = LazyLock::new(|| {
    LocalLimiter::builder("pace 60/min")
        .and_then(|builder| builder.clock(CLOCK.clone()).build())
        .expect("a right limit")
});

#[suimon::consume(limiter = LIMITER, wait = false)]
fn one() -> Result<(), Error> {
    Ok(())
}

#[suimon::consume(limiter = LIMITER, within = secs(0))]
fn another() -> Result<(), Error> {
    Ok(())
}

#[test]
fn functions_share_a_static() {
    one().unwrap();
    assert!(another().unwrap_err().is_rate_limited());
    CLOCK.advance(secs(1));
    another().unwrap();
    assert!(one().unwrap_err().is_rate_limited());
}

#[suimon::consume("bucket 2/100year", wait = false)]
fn inline<T>(value: T) -> Result<T, Error> {
    Ok(value)
}

#[suimon::consume("bucket 1/100year", wait = false)]
fn other_inline() -> Result<(), Error> {
    Ok(())
}

/// One limiter for the function, whatever its types; another function has its own.
#[test]
fn a_text_is_one_limiter_for_its_function() {
    assert_eq!(inline(1).unwrap(), 1);
    assert_eq!(inline("text").unwrap(), "text");
    assert!(inline(1.5).unwrap_err().is_rate_limited());
    other_inline().unwrap();
    assert!(other_inline().unwrap_err().is_rate_limited());
}

struct Client {
    limiter: Arc<dyn DynLimiter>,
}

impl Client {
    #[suimon::consume(limiter = self.limiter, cost = tokens)]
    fn blocking(&self, tokens: u64) -> Result<u64, Error> {
        Ok(tokens)
    }

    #[suimon::consume(limiter = self.limiter, cost = tokens)]
    async fn waiting(&self, tokens: u64) -> Result<u64, Error> {
        Ok(tokens)
    }

    #[suimon::consume(limiter = self.limiter, cost = tokens, wait = false)]
    async fn at_once(&self, tokens: u64) -> Result<u64, Error> {
        Ok(tokens)
    }
}

#[test]
fn a_double_sees_every_call() {
    let recorder = Recorder::default();
    let client = Client { limiter: Arc::new(recorder.clone()) };
    client.blocking(1).unwrap();
    futures_executor::block_on(client.waiting(2)).unwrap();
    futures_executor::block_on(client.at_once(3)).unwrap();
    let request = |tokens| Request::new(Cost::whole(tokens));
    let expected = [Seen::Consume(request(1)), Seen::ConsumeAsync(request(2)), Seen::Allow(Cost::whole(3))];
    assert_eq!(recorder.seen(), expected);
}

#[test]
fn chosen_at_run_time() {
    let client = Client { limiter: Arc::new(NoLimit) };
    assert_eq!(client.blocking(u64::MAX).unwrap(), u64::MAX);
    let client = Client { limiter: Arc::new(manual("bucket 5/s").0) };
    assert!(client.blocking(6).unwrap_err().is_cost_too_large());
}

/// Each takes a limiter in another wrapping, once with `consume` and once with `allow`.
macro_rules! wrapped {
    ($($name:ident: $ty:ty = $limiter:ident => $expression:expr;)*) => {$(
        mod $name {
            use super::*;

            #[suimon::consume(limiter = $expression, cost = 2)]
            pub(super) fn consume($limiter: $ty) -> Result<(), Error> {
                Ok(())
            }

            #[suimon::consume(limiter = $expression, cost = 2, wait = false)]
            pub(super) fn allow($limiter: $ty) -> Result<(), Error> {
                Ok(())
            }
        }
    )*};
}

wrapped! {
    by_value: LocalLimiter = l => l;
    by_reference: &LocalLimiter = l => l;
    by_mutable_reference: &mut LocalLimiter = l => l;
    any: &impl Limiter = l => l;
    any_by_value: impl Limiter = l => l;
    dynamic: &(dyn DynLimiter + 'static) = l => l;
    dynamic_mutable: &mut (dyn DynLimiter + 'static) = l => *l;
    in_a_box: Box<dyn DynLimiter> = l => l;
    in_an_arc: &Arc<LocalLimiter> = l => l;
    in_an_rc: Rc<LocalLimiter> = l => l;
    in_a_cell: &RefCell<LocalLimiter> = l => l.borrow();
    behind_a_lock: &Mutex<LocalLimiter> = l => l.lock().unwrap().clone();
    behind_a_guard: &RwLock<LocalLimiter> = l => l.read().unwrap();
    of_a_spot: &Spot = l => l.limiter();
    chosen: (&LocalLimiter, &LocalLimiter) = l => if true { l.0 } else { l.1 };
    of_a_slice: &[LocalLimiter] = l => l[l.len() - 1];
    of_a_closure: impl Fn() -> LocalLimiter = l => l();
}

#[test]
fn however_it_is_wrapped() {
    let (l, clock) = manual("pace 60/min");
    let mut calls = 0;
    let mut both = |consume: &mut dyn FnMut() -> Result<(), Error>, allow: &mut dyn FnMut() -> Result<(), Error>| {
        consume().unwrap();
        assert_eq!(allow().unwrap_err().retry_after(), Some(secs(2)));
        clock.advance(secs(2));
        allow().unwrap();
        clock.advance(secs(2));
        calls += 1;
    };
    macro_rules! check {
        ($($name:ident($argument:expr);)*) => {
            $(both(&mut || $name::consume($argument), &mut || $name::allow($argument));)*
        };
    }
    let spot = Spot::new(l.clone());
    let (arc, cell, mutex, lock) =
        (Arc::new(l.clone()), RefCell::new(l.clone()), Mutex::new(l.clone()), RwLock::new(l.clone()));
    check! {
        by_value(l.clone());
        by_reference(&l);
        by_mutable_reference(&mut l.clone());
        any(&l);
        any_by_value(&l);
        dynamic(&l);
        dynamic_mutable(&mut l.clone());
        in_a_box(Box::new(l.clone()));
        in_an_arc(&arc);
        in_an_rc(Rc::new(l.clone()));
        in_a_cell(&cell);
        behind_a_lock(&mutex);
        behind_a_guard(&lock);
        of_a_spot(&spot);
        chosen((&l, &l));
        of_a_slice(std::slice::from_ref(&l));
        of_a_closure(|| l.clone());
    }
    assert_eq!(calls, 17);
}

#[suimon::consume(limiter = first, wait = false)]
#[suimon::consume(limiter = second, wait = false)]
fn twice(first: &impl Limiter, second: &impl Limiter) -> Result<(), Error> {
    Ok(())
}

#[test]
fn two_attributes_are_two_limits_and_the_lower_one_is_asked_first() {
    let (first, second) = (Recorder::new(manual("pace 1/min").0), Recorder::new(manual("pace 1/min").0));
    twice(&first, &second).unwrap();
    assert!(twice(&first, &second).unwrap_err().is_rate_limited());
    assert_eq!(first.seen(), [Seen::Allow(Cost::ONE)], "not asked when the lower one has refused");
    assert_eq!(second.seen(), [Seen::Allow(Cost::ONE); 2]);
}
