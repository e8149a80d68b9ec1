//! What happened over time, in bars of equal length.
//!
//! How long the log is, is known only at its end: the bars begin at a
//! millisecond, and whenever there are too many they are put together to the
//! next length that people use. Each length is a multiple of the one before, and
//! bars begin at multiples of their length, so an hour's bar is an hour of UTC.

use super::time::SECOND;

/// The lengths of a bar, in nanoseconds.
const LENGTHS: [u64; 20] = [
    SECOND / 1000,
    SECOND / 100,
    SECOND / 10,
    SECOND,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    60 * SECOND,
    300 * SECOND,
    600 * SECOND,
    1_800 * SECOND,
    3_600 * SECOND,
    7_200 * SECOND,
    21_600 * SECOND,
    43_200 * SECOND,
    86_400 * SECOND,
    7 * 86_400 * SECOND,
    28 * 86_400 * SECOND,
    364 * 86_400 * SECOND,
    3_640 * 86_400 * SECOND,
];
/// How many bars are kept while reading.
const MOST: usize = 4096;

/// Counts over time: all requests, and those that each policy refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    length: usize,
    /// The number of the first bar since the Unix epoch.
    first: u64,
    /// `columns` counts for each bar.
    counts: Vec<u64>,
    columns: usize,
}

impl Timeline {
    /// For `policies` policies.
    #[must_use]
    pub fn new(policies: usize) -> Timeline {
        Timeline { length: 0, first: 0, counts: Vec::new(), columns: policies + 1 }
    }

    /// The counts of the bar at `time`, which is not before the first time asked
    /// for: the requests, then the refusals of each policy.
    pub fn at(&mut self, time: u64) -> &mut [u64] {
        if self.counts.is_empty() {
            self.first = time / LENGTHS[self.length];
        }
        let bar = loop {
            let bar = (time / LENGTHS[self.length]).saturating_sub(self.first) as usize;
            if bar < MOST || !self.coarsen() {
                break bar;
            }
        };
        let end = (bar + 1) * self.columns;
        if self.counts.len() < end {
            self.counts.resize(end, 0);
        }
        &mut self.counts[end - self.columns..end]
    }

    /// Puts bars together to the next length, if there is one.
    fn coarsen(&mut self) -> bool {
        let Some(next) = LENGTHS.get(self.length + 1) else { return false };
        let ratio = next / LENGTHS[self.length];
        let first = self.first / ratio;
        let mut counts = Vec::new();
        for (bar, old) in self.counts.chunks(self.columns).enumerate() {
            let bar = ((self.first + bar as u64) / ratio - first) as usize;
            counts.resize(((bar + 1) * self.columns).max(counts.len()), 0);
            for (sum, count) in counts[bar * self.columns..].iter_mut().zip(old) {
                *sum += count;
            }
        }
        (self.length, self.first, self.counts) = (self.length + 1, first, counts);
        true
    }

    /// The same in at most `most` bars (or as few as there can be).
    #[must_use]
    pub fn within(&self, most: usize) -> Timeline {
        let mut fewer = self.clone();
        while fewer.len() > most && fewer.coarsen() {}
        fewer
    }

    /// How many bars there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.counts.len() / self.columns
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The length of a bar, in nanoseconds.
    #[must_use]
    pub fn bar(&self) -> u64 {
        LENGTHS[self.length]
    }

    /// For each bar its beginning, the requests in it, and how many of them the
    /// policy refused.
    pub fn bars(&self, policy: usize) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let start = move |bar: usize| (self.first + bar as u64) * self.bar();
        self.counts
            .chunks(self.columns)
            .enumerate()
            .map(move |(bar, counts)| (start(bar), counts[0], counts[policy + 1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_length_is_a_multiple_of_the_one_before() {
        assert!(LENGTHS.windows(2).all(|pair| pair[1] > pair[0] && pair[1].is_multiple_of(pair[0])));
    }

    proptest! {
        #[test]
        fn every_request_is_in_its_bar(
            steps in prop::collection::vec((prop_oneof![0..2 * SECOND, 0..900_000 * SECOND], any::<bool>()), 1..200),
            most in 1_usize..200,
        ) {
            let mut timeline = Timeline::new(1);
            let mut time = 1_431_857_103 * SECOND;
            let mut times = Vec::new();
            for (step, refused) in steps {
                time += step;
                let counts = timeline.at(time);
                counts[0] += 1;
                counts[1] += u64::from(refused);
                times.push((time, refused));
            }
            let shown = timeline.within(most);
            prop_assert!(shown.len() <= most || shown.length == LENGTHS.len() - 1);
            for (start, requests, refused) in shown.bars(0) {
                let inside = |time: u64| time >= start && time < start + shown.bar();
                prop_assert_eq!(requests, times.iter().filter(|(time, _)| inside(*time)).count() as u64);
                prop_assert_eq!(refused, times.iter().filter(|(time, refused)| inside(*time) && *refused).count() as u64);
            }
            prop_assert_eq!(shown.bars(0).map(|bar| bar.1).sum::<u64>(), times.len() as u64);
        }
    }
}
