//! Limits per key: keys, who is asked about them, and in which order.

use std::fmt::{Display, Write};
use std::hash::Hash;

/// A key that is made of its number.
pub trait Key: Clone + Display + Eq + Hash + Send + Sync + 'static {
    const NAME: &'static str;

    /// Other numbers have other keys, and the keys of neighbours are far apart.
    fn of(number: u64) -> Self;

    /// Makes this the key of `number`, in the same memory.
    fn set(&mut self, number: u64);
}

impl Key for u64 {
    const NAME: &'static str = "u64";

    fn of(number: u64) -> u64 {
        mixed(number)
    }

    fn set(&mut self, number: u64) {
        *self = mixed(number);
    }
}

impl Key for String {
    const NAME: &'static str = "16-byte string";

    fn of(number: u64) -> String {
        let mut key = String::with_capacity(16);
        key.set(number);
        key
    }

    fn set(&mut self, number: u64) {
        self.clear();
        write!(self, "{:016x}", mixed(number)).unwrap();
    }
}

/// Who decides about keys, and how exactly.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Ours,
    /// No key is ever admitted more than its limit.
    Exact,
    /// Best effort, or keys share counters.
    Rough,
}

/// A name, and a limiter for as many keys as one asks for.
pub struct Contender<K> {
    pub name: &'static str,
    pub kind: Kind,
    make: Box<dyn Fn(usize) -> Box<dyn Decide<K>>>,
}

impl<K: 'static> Contender<K> {
    /// `make` is told how many keys there will be, and returns what tells of one
    /// key whether it is admitted.
    pub fn new<D>(name: &'static str, kind: Kind, make: impl Fn(usize) -> D + 'static) -> Contender<K>
    where
        D: Fn(&K) -> bool + Send + Sync + 'static,
    {
        Contender { name, kind, make: Box::new(move |keys| Box::new(make(keys))) }
    }

    pub fn make(&self, keys: usize) -> Box<dyn Decide<K>> {
        (self.make)(keys)
    }
}

/// A limiter that is ready. Dynamic only once for many keys.
pub trait Decide<K>: Send + Sync {
    /// How many of these were admitted.
    fn admitted(&self, keys: &[K]) -> usize;

    fn admits(&self, key: &K) -> bool;
}

impl<K, D: Fn(&K) -> bool + Send + Sync> Decide<K> for D {
    #[inline(never)]
    fn admitted(&self, keys: &[K]) -> usize {
        keys.iter().filter(|key| self(key)).count()
    }

    #[inline(never)]
    fn admits(&self, key: &K) -> bool {
        self(key)
    }
}

/// Which keys are asked about, one after the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Order {
    /// The same again and again.
    Hot,
    /// Any of so many.
    Uniform(u64),
    /// The n-th of so many as often as 1/n.
    Zipf(u64),
}

impl Order {
    /// How many keys there are.
    pub fn keys(self) -> u64 {
        match self {
            Order::Hot => 1,
            Order::Uniform(keys) | Order::Zipf(keys) => keys,
        }
    }

    /// The keys themselves, in the order in which they are asked about, so that reading
    /// them costs the same whoever decides.
    pub fn sequence<K: Key>(self, length: usize) -> Vec<K> {
        let mut random = Random::default();
        match self {
            Order::Hot => vec![K::of(0); length],
            Order::Uniform(keys) => (0..length).map(|_| K::of(random.below(keys))).collect(),
            Order::Zipf(keys) => {
                let mut sum = 0.0;
                let sums: Vec<f64> = (1..=keys)
                    .map(|rank| {
                        sum += 1.0 / rank as f64;
                        sum
                    })
                    .collect();
                (0..length)
                    .map(|_| {
                        let at = random.word() as f64 / u64::MAX as f64 * sum;
                        K::of((sums.partition_point(|sum| *sum < at) as u64).min(keys - 1))
                    })
                    .collect()
            }
        }
    }
}

/// Splitmix64, the same numbers each time.
#[derive(Default)]
pub struct Random(u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mixed(self.0)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(end)) >> 64) as u64
    }
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finalizer of splitmix64: a permutation of all words.
fn mixed(number: u64) -> u64 {
    let mut word = number.wrapping_add(GOLDEN);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}
