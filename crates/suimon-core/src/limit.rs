use core::time::Duration;

use crate::calendar::Every;
use crate::cost::Cost;
use crate::error::OutOfRange;
use crate::gcra::Gcra;
use crate::int;
use crate::quota::{Quota, checked_period};
use crate::ticks::{LONGEST_SPAN, Ticks};

/// One limit: what may pass, and when.
///
/// Every kind has a text form, the same on all fronts:
///
/// | text | what it does |
/// |---|---|
/// | `pace 60/min` | one token a second, nothing saved while idle; a call goes at once when the one before is paid |
/// | `pace 60/min savings 5` | the same, but idling saves up to 5 tokens |
/// | `pace 60/min max_cost 1000` | the same, but one call may cost up to 1000 (otherwise 60, the tokens of the period) |
/// | `bucket 10/s burst 20` | a token bucket that holds 20 and refills with 10 a second (`burst` may be left out: 10) |
/// | `window 10/60s` | at most 10 in any 60 seconds, exactly |
/// | `fixed 1000/day` | at most 1000 in each UTC day; `fixed 1000/day at 02:30 in Europe/Paris` |
/// | `unlimited`, `block` | everything, nothing |
///
/// A bucket lets `burst + rate * time` through in some stretches of time, a
/// window never more than its limit in any one period: where a provider counts
/// a hard window, take `window`.
///
/// ```
/// use suimon_core::Limit;
///
/// let limit: Limit = "bucket 10/s burst 20".parse()?;
/// assert_eq!(limit.to_string(), "bucket 10/s burst 20");
///
/// let error = "60/min".parse::<Limit>().unwrap_err();
/// assert_eq!(error.suggestion(), Some("`pace 60/min` or `bucket 60/min`"));
/// # Ok::<(), suimon_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// Strict pacing, paid afterwards.
    Pace(Pace),
    /// A token bucket, paid first.
    Bucket(Bucket),
    /// An exact sliding window.
    Window(Window),
    /// Aligned windows.
    Fixed(Fixed),
    /// Everything passes.
    Unlimited,
    /// Nothing passes, whatever it costs.
    Block,
}

impl Limit {
    /// The largest cost that can ever pass. `None` for `unlimited` and `block`,
    /// whose answers do not depend on the cost.
    #[must_use]
    pub fn max_cost(&self) -> Option<Cost> {
        match self {
            Limit::Pace(pace) => Some(pace.max_cost()),
            Limit::Bucket(bucket) => Some(bucket.burst()),
            Limit::Window(window) => Some(window.limit()),
            Limit::Fixed(fixed) => Some(fixed.limit()),
            Limit::Unlimited | Limit::Block => None,
        }
    }
}

/// Calls keep a distance; what a call costs is paid by those after it.
///
/// Any cost up to the largest runs as soon as the limit is idle, so a large one
/// can never starve.
///
/// ```
/// use suimon_core::{Cost, Pace, Quota};
///
/// let pace = Pace::new(Quota::per_minute(60)?).with_savings(Cost::whole(5))?;
/// assert_eq!(pace.max_cost(), Cost::whole(60));
/// # Ok::<(), suimon_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pace {
    quota: Quota,
    savings: Cost,
    max_cost: Cost,
}

impl Pace {
    /// A strict pace: nothing is saved up, and one call costs at most the tokens
    /// of a period.
    #[must_use]
    pub const fn new(quota: Quota) -> Pace {
        Pace { quota, savings: Cost::ZERO, max_cost: Cost::whole(quota.tokens()) }
    }

    /// Lets idling save up so many tokens, to be spent in a burst.
    ///
    /// # Errors
    /// When that is more than a century brings, less the largest cost.
    pub fn with_savings(self, savings: Cost) -> Result<Pace, OutOfRange> {
        Pace { savings, ..self }.checked("savings", savings)
    }

    /// Lets one call cost up to this.
    ///
    /// # Errors
    /// When it is zero, or more than a century brings, less the savings.
    pub fn with_max_cost(self, max_cost: Cost) -> Result<Pace, OutOfRange> {
        if max_cost.is_zero() {
            return Err(OutOfRange::zero_size("max_cost"));
        }
        Pace { max_cost, ..self }.checked("max_cost", max_cost)
    }

    /// Savings and largest cost together must fit the longest span.
    fn checked(self, what: &'static str, asked: Cost) -> Result<Pace, OutOfRange> {
        let ticks = Ticks::of(self.quota);
        let span = ticks
            .of_cost(self.savings)
            .zip(ticks.of_cost(self.max_cost))
            .and_then(|(savings, cost)| savings.checked_add(cost));
        match span {
            Some(span) if span <= LONGEST_SPAN && within_century(&ticks, span) => Ok(self),
            _ => {
                let other = if what == "savings" { self.max_cost } else { self.savings };
                Err(OutOfRange::too_long(what, asked, Cost::whole(self.quota.per_century()).saturating_sub(other)))
            }
        }
    }

    /// The rate.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// The most that idling saves up; zero unless asked for.
    #[must_use]
    pub const fn savings(&self) -> Cost {
        self.savings
    }

    /// The largest cost of one call.
    #[must_use]
    pub const fn max_cost(&self) -> Cost {
        self.max_cost
    }

    /// The algorithm behind it.
    #[must_use]
    pub fn gcra(&self) -> Gcra {
        Gcra::from(self)
    }
}

/// A token bucket: full at first, refilled at the rate, a call takes its cost
/// out or is refused.
///
/// ```
/// use suimon_core::{Bucket, Cost, Quota};
///
/// let bucket = Bucket::new(Quota::per_second(10)?).with_burst(Cost::whole(20))?;
/// assert_eq!(bucket.burst(), Cost::whole(20));
/// # Ok::<(), suimon_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    quota: Quota,
    burst: Cost,
}

impl Bucket {
    /// A bucket that holds the tokens of one period.
    #[must_use]
    pub const fn new(quota: Quota) -> Bucket {
        Bucket { quota, burst: Cost::whole(quota.tokens()) }
    }

    /// Lets it hold so many tokens, which is also the largest cost.
    ///
    /// # Errors
    /// When that is zero or more than a century brings.
    pub fn with_burst(self, burst: Cost) -> Result<Bucket, OutOfRange> {
        if burst.is_zero() {
            return Err(OutOfRange::zero_size("burst"));
        }
        let ticks = Ticks::of(self.quota);
        match ticks.of_cost(burst) {
            Some(span) if span <= LONGEST_SPAN && within_century(&ticks, span) => Ok(Bucket { burst, ..self }),
            _ => Err(OutOfRange::too_long("burst", burst, Cost::whole(self.quota.per_century()))),
        }
    }

    /// The rate at which it refills.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// What it holds when it is full.
    #[must_use]
    pub const fn burst(&self) -> Cost {
        self.burst
    }

    /// The algorithm behind it.
    #[must_use]
    pub fn gcra(&self) -> Gcra {
        Gcra::from(self)
    }
}

/// Do so many ticks last a century at most?
fn within_century(ticks: &Ticks, span: u64) -> bool {
    ticks.instant(span).as_nanos() <= int::nanos(crate::CENTURY)
}

/// At most `limit` in any stretch of time as long as `period`.
///
/// Exact: it keeps a log of what passed, one entry of 24 bytes for each instant
/// at which something did, so its memory is bounded by the calls that a period
/// lets through. What passed at `t` counts until just before `t + period`.
///
/// ```
/// use core::time::Duration;
/// use suimon_core::{Cost, Window};
///
/// let window = Window::new(Cost::whole(10), Duration::from_secs(60))?;
/// assert_eq!(window.period(), Duration::from_secs(60));
/// # Ok::<(), suimon_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    limit: Cost,
    period: Duration,
}

impl Window {
    /// At most `limit` in any `period`.
    ///
    /// # Errors
    /// When the limit is zero, or the period is zero or above a century.
    pub fn new(limit: Cost, period: Duration) -> Result<Window, OutOfRange> {
        if limit.is_zero() {
            return Err(OutOfRange::zero_size("the limit of a window"));
        }
        match checked_period(int::nanos(period)) {
            Some(_) => Ok(Window { limit, period }),
            None => Err(OutOfRange::period(period)),
        }
    }

    /// The most that passes in a period.
    #[must_use]
    pub const fn limit(&self) -> Cost {
        self.limit
    }

    /// The period.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }
}

/// At most `limit` in each aligned window.
///
/// Twice the limit can pass around a boundary: that is the nature of aligned
/// windows. They are for quotas that are counted so, such as 1000 a day.
///
/// ```
/// use suimon_core::{Cost, Every, Fixed, Unit};
///
/// let daily = Fixed::new(Cost::whole(1000), Every::calendar(Unit::Day, 0, "America/Los_Angeles")?)?;
/// assert_eq!(suimon_core::Limit::Fixed(daily).to_string(), "fixed 1000/day in America/Los_Angeles");
/// # Ok::<(), suimon_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fixed {
    limit: Cost,
    every: Every,
}

impl Fixed {
    /// At most `limit` in each window.
    ///
    /// # Errors
    /// When the limit is zero.
    pub fn new(limit: Cost, every: Every) -> Result<Fixed, OutOfRange> {
        if limit.is_zero() {
            return Err(OutOfRange::zero_size("the limit of a fixed window"));
        }
        Ok(Fixed { limit, every })
    }

    /// The most that passes in a window.
    #[must_use]
    pub const fn limit(&self) -> Cost {
        self.limit
    }

    /// What the windows are aligned to.
    #[must_use]
    pub const fn every(&self) -> &Every {
        &self.every
    }
}
