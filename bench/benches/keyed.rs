//! A limiter per key: what a decision, a key and the slowest call cost.
//!
//! All admitted: a token a minute and a burst that never runs out, so that a key is
//! remembered for a minute at least and no limiter forgets it on the way.
//!
//! Sections run alone, and contenders too, by a part of their name:
//! `cargo bench --bench keyed -- uniform zipf suimon governor`.

use std::hash::BuildHasher;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use foldhash::fast::RandomState as FoldHash;
use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use suimon::clock::{Clock, MachineClock};
use suimon_bench::floors::Lines;
use suimon_bench::growth::{Question, answer, ask};
use suimon_bench::keyed::{Contender, Decide, Key, Kind, Order};
use suimon_bench::process::process_preemptions;
use suimon_bench::{Candidate, cpu_medians, medians};
use trypema::RateLimiterBuilder;

const ROUNDS: usize = 9;
/// Decisions of one round.
const N: u64 = 1_000_000;
const MILLION: u64 = 1_000_000;
const BURST: u32 = 50_000_000;
const POLICY: &str = "bucket 1/min burst 50000000";

/// Those whose keys are anything. A new one is one more closure: it is told how many
/// keys there will be, and returns the limiter's answer to a key.
fn contenders<K: Key>() -> Vec<Contender<K>> {
    vec![
        Contender::new("suimon: Keyed", Kind::Ours, |keys| {
            let limiter = suimon::Keyed::new(POLICY, keys).unwrap();
            move |key: &K| limiter.allow(key, 1).is_ok_and(|decision| decision.is_allowed())
        }),
        Contender::new("suimon: Keyed, foldhash", Kind::Ours, |keys| {
            let limiter = suimon_with_foldhash(keys).build().unwrap();
            move |key: &K| limiter.allow(key, 1).is_ok_and(|decision| decision.is_allowed())
        }),
        Contender::new("suimon: Keyed, foldhash, huge pages", Kind::Ours, |keys| {
            let limiter = suimon_with_foldhash(keys).huge_pages().build().unwrap();
            move |key: &K| limiter.allow(key, 1).is_ok_and(|decision| decision.is_allowed())
        }),
        Contender::new("suimon: KeyedMap, foldhash", Kind::Ours, |keys| {
            let limiter = suimon_with_foldhash(keys).build_map::<K>().unwrap();
            move |key: &K| limiter.allow(key, 1).is_ok_and(|decision| decision.is_allowed())
        }),
        Contender::new("governor: DashMap, default hash", Kind::Exact, |_| {
            let limiter = RateLimiter::dashmap(quota());
            move |key: &K| limiter.check_key(key).is_ok()
        }),
        Contender::new("governor: DashMap, foldhash", Kind::Exact, |_| {
            let limiter = RateLimiter::dashmap_with_hasher(quota(), FoldHash::default());
            move |key: &K| limiter.check_key(key).is_ok()
        }),
        Contender::new("governor: HashMap, foldhash", Kind::Exact, |_| {
            let limiter = RateLimiter::hashmap_with_hasher(quota(), FoldHash::default());
            move |key: &K| limiter.check_key(key).is_ok()
        }),
        Contender::new("aerorate", Kind::Exact, |_| {
            let quota = aerorate::Quota::per_minute(1).allow_burst(BURST);
            let limiter = aerorate::KeyedRateLimiter::new(quota);
            move |key: &K| limiter.check(key).is_allowed()
        }),
        Contender::new("gcra", Kind::Exact, |keys| {
            let limit = gcra::RateLimit::new(BURST, Duration::from_secs(60) * BURST);
            let limiter = gcra::RateLimiter::new(keys);
            move |key: &K| {
                // Asynchronous by name only: it never waits.
                let check = pin!(limiter.check(key.clone(), &limit, 1));
                matches!(check.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(_)))
            }
        }),
        // Fixed memory, shared counters: as many as it has by default (a thousand keys
        // count as one here), and as many as there are keys.
        Contender::new("pingora-limits: Rate, 4 x 1024", Kind::Rough, |_| {
            let limiter = pingora_limits::rate::Rate::new(Duration::from_secs(1));
            move |key: &K| limiter.observe(key, 1) <= BURST as isize
        }),
        Contender::new("pingora-limits: Rate, 4 x keys", Kind::Rough, |keys| {
            let limiter = pingora_limits::rate::Rate::new_with_estimator_config(Duration::from_secs(1), 4, keys);
            move |key: &K| limiter.observe(key, 1) <= BURST as isize
        }),
    ]
}

/// Those whose keys are strings.
fn contenders_for_text() -> Vec<Contender<String>> {
    vec![
        // For one thread; others lock it. The store that its authors advise for load.
        Contender::new("throttlecrab: PeriodicStore, in a Mutex", Kind::Exact, |keys| {
            let limiter = Mutex::new(throttlecrab::RateLimiter::new(throttlecrab::PeriodicStore::with_capacity(keys)));
            move |key: &String| {
                let now = SystemTime::now();
                let answer = limiter.lock().unwrap().rate_limit(key, BURST.into(), 1, 60, 1, now);
                answer.is_ok_and(|(admitted, _)| admitted)
            }
        }),
        Contender::new("trypema: absolute", Kind::Rough, |_| {
            let provider = trypema::local::LocalRateLimiterProvider::builder().disable_cleanup().build().unwrap();
            let limit = trypema::RateLimit::per_second(BURST.into()).unwrap();
            move |key: &String| matches!(provider.absolute().inc(key, &limit, 1), trypema::RateLimitDecision::Allowed)
        }),
    ]
}

/// For growth only: the best rival with its table made in advance, and what the memory of
/// a flat table costs whoever decides: as many slots, each touched when its key comes.
fn contenders_of_a_size<K: Key>() -> Vec<Contender<K>> {
    let touch = Contender::new("floor: a slot is touched", Kind::Rough, |keys| {
        let lines = Lines::untouched(keys as u64 * 23);
        let hasher = FoldHash::default();
        move |key: &K| lines.touch(hasher.hash_one(key))
    });
    vec![
        touch,
        Contender::new("governor: DashMap, foldhash, sized", Kind::Exact, |keys| {
            let store = DashMapStateStore::with_capacity_and_hasher(keys, FoldHash::default());
            let limiter: RateLimiter<_, _, _> = RateLimiter::new(quota(), store, DefaultClock::default());
            move |key: &K| limiter.check_key(key).is_ok()
        }),
    ]
}

/// The kinds of keys, and who takes them.
trait Keys: Key {
    fn all() -> Vec<Contender<Self>>;

    fn growing() -> Vec<Contender<Self>> {
        let mut all = Self::all();
        all.extend(contenders_of_a_size());
        all
    }
}

impl Keys for u64 {
    fn all() -> Vec<Contender<u64>> {
        contenders()
    }
}

impl Keys for String {
    fn all() -> Vec<Contender<String>> {
        let mut all = contenders();
        all.extend(contenders_for_text());
        all
    }
}

fn suimon_with_foldhash(keys: usize) -> suimon::KeyedBuilder<FoldHash> {
    suimon::Keyed::builder(POLICY).unwrap().max_keys(keys).hasher(FoldHash::default())
}

fn quota() -> Quota {
    Quota::per_minute(1.try_into().unwrap()).allow_burst(BURST.try_into().unwrap())
}

/// What was asked for on the command line.
struct Wanted(Vec<String>);

const SECTIONS: [&str; 7] = ["hot", "uniform", "zipf", "bytes", "worst", "floors", "batch"];

impl Wanted {
    fn section(&self, name: &str) -> bool {
        !self.0.iter().any(|word| SECTIONS.contains(&word.as_str())) || self.0.iter().any(|word| word == name)
    }

    fn contender<K>(&self, contender: &Contender<K>) -> bool {
        let mut names = self.0.iter().filter(|word| !SECTIONS.contains(&word.as_str())).peekable();
        names.peek().is_none() || names.any(|name| contender.name.contains(name.as_str()))
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if let ["child", kind, name, question, keys] = words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        let keys = keys.parse().unwrap();
        return if kind == u64::NAME {
            child::<u64>(name, question, keys)
        } else {
            child::<String>(name, question, keys)
        };
    }
    let wanted = Wanted(words);
    for (name, order) in [("hot", Order::Hot), ("uniform", Order::Uniform(MILLION)), ("zipf", Order::Zipf(MILLION))] {
        if wanted.section(name) {
            decisions::<u64>(&wanted, order);
            decisions::<String>(&wanted, order);
        }
    }
    if wanted.section("bytes") {
        bytes::<u64>(&wanted);
        bytes::<String>(&wanted);
    }
    if wanted.section("worst") {
        worst(&wanted, &u64::growing());
        worst(&wanted, &contenders_for_text());
    }
    if wanted.section("floors") {
        floors::<u64>();
        floors::<String>();
    }
    if wanted.section("batch") {
        batch::<u64>();
        batch::<String>();
    }
}

fn child<K: Keys>(name: &str, question: &str, keys: u64) {
    answer(K::growing().iter().find(|contender| contender.name == name).unwrap(), question, keys);
}

/// How the keys are given to a limiter.
type Run<'a, K> = dyn Fn(&dyn Decide<K>, &[K]) + 'a;
/// By which time they are measured.
type Medians = fn(&[Candidate<'_>], usize, u64) -> Vec<f64>;

/// Nanoseconds of a decision, on one thread and on two.
fn decisions<K: Keys>(wanted: &Wanted, order: Order) {
    let contenders: Vec<_> = K::all().into_iter().filter(|contender| wanted.contender(contender)).collect();
    let keys: Vec<K> = order.sequence(N as usize);
    let limiters: Vec<_> = contenders
        .iter()
        .map(|contender| {
            let limiter = contender.make(order.keys() as usize);
            let mut key = K::of(0);
            for number in 0..order.keys() {
                key.set(number);
                assert!(limiter.admits(&key), "{}", contender.name);
            }
            limiter
        })
        .collect();
    let all = |limiter: &dyn Decide<K>, keys: &[K]| assert_eq!(limiter.admitted(keys), keys.len());
    let measure = |medians: Medians, run: &Run<'_, K>| {
        let candidates: Vec<_> = contenders
            .iter()
            .zip(&limiters)
            .map(|(contender, limiter)| Candidate::new(contender.name, |n| run(&**limiter, &keys[..n as usize])))
            .collect();
        let before = process_preemptions();
        let nanos = medians(&candidates, ROUNDS, N);
        (nanos, process_preemptions() - before)
    };
    let measured = measure(cpu_medians, &all);
    print(&format!("{order:?}, {}, one thread, CPU time", K::NAME), &contenders, &measured);
    let measured = measure(medians, &|limiter, keys| {
        let (ours, theirs) = keys.split_at(keys.len() / 2);
        std::thread::scope(|scope| {
            scope.spawn(|| all(limiter, theirs));
            all(limiter, ours);
        });
    });
    let how = "two threads with half of the decisions each: time until both are done / all decisions";
    print(&format!("{order:?}, {}, {how}", K::NAME), &contenders, &measured);
}

/// The table of a workload; the best exact rival is what counts. Many preemptions: others
/// used the machine, and two threads may have taken turns on one core.
fn print<K>(title: &str, contenders: &[Contender<K>], (nanos, preemptions): &(Vec<f64>, i64)) {
    let rivals = contenders.iter().zip(nanos).filter(|(contender, _)| contender.kind == Kind::Exact);
    let best = rivals.map(|(_, nanos)| *nanos).fold(f64::INFINITY, f64::min);
    println!("\n{title}; {preemptions} preemptions");
    for (contender, nanos) in contenders.iter().zip(nanos) {
        let note = match contender.kind {
            Kind::Exact if *nanos == best => "  <- the best exact rival",
            Kind::Rough => "  (rough)",
            _ => "",
        };
        println!("  {:<44} {nanos:>8.1} ns   {:>5.2} x{note}", contender.name, nanos / best);
    }
}

/// Memory of so many keys, each seen once.
fn bytes<K: Keys>(wanted: &Wanted) {
    println!("\nbytes a live key, resident (most on the way), {}: 1M keys, 10M keys", K::NAME);
    for contender in K::growing().iter().filter(|contender| wanted.contender(contender)) {
        let [small, large] = [MILLION, 10 * MILLION].map(|keys| ask::<K>(Question::Bytes, contender.name, keys));
        println!(
            "  {:<44} {:>7.1} ({:>5.1})   {:>7.1} ({:>5.1})",
            contender.name, small[0], small[1], large[0], large[1]
        );
    }
}

/// The slowest first call for a key, and whether it was its own: two runs, of which each
/// is printed, since others, and the machine below, take their time from any call.
fn worst<K: Keys>(wanted: &Wanted, contenders: &[Contender<K>]) {
    println!("\n10M new keys, {}: made in ms; mean by the clock; CPU time of a call, all in us;", K::NAME);
    println!("of 100 us and more: so many, with a page fault, preempted without; most with neither");
    let heads = ["made", "mean", "p99.99", "p99.999", "most", ">=100us", "faults", "others", "alone"];
    println!("  {:<44} {}", "", heads.map(|head| format!("{head:>8}")).join(" "));
    for contender in contenders.iter().filter(|contender| wanted.contender(contender)) {
        for _ in 0..2 {
            let numbers = ask::<K>(Question::Calls, contender.name, 10 * MILLION);
            let numbers: Vec<String> = numbers.iter().map(|number| format!("{number:>8.1}")).collect();
            println!("  {:<44} {}", contender.name, numbers.join(" "));
        }
    }
}

/// What no exact limiter can do without, each alone, in nanoseconds.
fn floors<K: Key>() {
    /// Bytes of suimon's flat table.
    const A_KEY: u64 = 23;
    fn hash<K: Key>(keys: &[K], hasher: &impl BuildHasher) {
        for key in keys {
            black_box(hasher.hash_one(key));
        }
    }
    let keys: Vec<K> = Order::Uniform(MILLION).sequence(N as usize);
    let (fold, sip) = (FoldHash::default(), std::hash::RandomState::new());
    let (small, large) = (Lines::new(MILLION * A_KEY), Lines::new(10 * MILLION * A_KEY));
    let candidates = [
        Candidate::new("clock", |n| {
            for _ in 0..n {
                black_box(MachineClock.now());
            }
        }),
        Candidate::new("hash: foldhash", |n| hash(&keys[..n as usize], &fold)),
        Candidate::new("hash: the standard library's", |n| hash(&keys[..n as usize], &sip)),
        Candidate::new("load, after the one before: 1M keys", |n| small.chase(n)),
        Candidate::new("load, any time: 1M keys", |n| small.load(n)),
        Candidate::new("compare-and-swap, any time: 1M keys", |n| small.swap(n)),
        Candidate::new("load, after the one before: 10M keys", |n| large.chase(n)),
        Candidate::new("load, any time: 10M keys", |n| large.load(n)),
        Candidate::new("compare-and-swap, any time: 10M keys", |n| large.swap(n)),
    ];
    let nanos = medians(&candidates, ROUNDS, N);
    println!("\nfloors, {}", K::NAME);
    for (candidate, nanos) in candidates.iter().zip(&nanos) {
        println!("  {:<44} {nanos:>8.1} ns", candidate.name);
    }
    println!("  {:<44} {:>8.1} ns", "clock + foldhash + load after load: 1M keys", nanos[0] + nanos[1] + nanos[3]);
    println!("  {:<44} {:>8.1} ns", "clock + foldhash + load after load: 10M keys", nanos[0] + nanos[1] + nanos[6]);
}

/// Many at once beside one after the other, 10M keys.
fn batch<K: Keys>() {
    const KEYS: u64 = 10 * MILLION;
    let keys: Vec<K> = Order::Uniform(KEYS).sequence(N as usize);
    let limiter = suimon_with_foldhash(KEYS as usize).build().unwrap();
    let rivals = K::all();
    let rival = rivals.iter().find(|contender| contender.name == "governor: DashMap, foldhash").unwrap();
    let rival = rival.make(KEYS as usize);
    let mut key = K::of(0);
    for number in 0..KEYS {
        key.set(number);
        assert!(limiter.allow(&key, 1).unwrap().is_allowed() && rival.admits(&key));
    }
    let many = |n: u64, length: usize| {
        let (mut calls, mut answers) = (Vec::with_capacity(length), Vec::with_capacity(length));
        for keys in keys[..n as usize].chunks(length) {
            calls.clear();
            calls.extend(keys.iter().map(|key| (key, 1)));
            answers.clear();
            limiter.allow_many(&calls, &mut answers);
            assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|decision| decision.is_allowed())));
        }
    };
    let candidates = [
        Candidate::new("governor: DashMap, foldhash", |n| {
            assert_eq!(rival.admitted(&keys[..n as usize]), n as usize);
        }),
        Candidate::new("suimon: allow", |n| {
            for key in &keys[..n as usize] {
                black_box(limiter.allow(key, 1).is_ok_and(|decision| decision.is_allowed()));
            }
        }),
        Candidate::new("suimon: allow_many, 16 calls", |n| many(n, 16)),
        Candidate::new("suimon: allow_many, 256 calls", |n| many(n, 256)),
    ];
    suimon_bench::print(&format!("10M keys, uniform, {}", K::NAME), &candidates, &medians(&candidates, ROUNDS, N));
}
