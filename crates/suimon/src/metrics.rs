//! Statistics for the facade of the crate [`metrics`](https://docs.rs/metrics).
//!
//! Decisions count by themselves, so that nothing of this is in their way: a task
//! of yours publishes what has been counted, every few seconds or when it is asked.
//! Nothing is labelled by key, so a series is as long as the list of your limiters.
//!
//! | name | kind | labels |
//! |---|---|---|
//! | `suimon_decisions_total` | counter | `limiter`, `outcome`: `allowed`, `denied` |
//! | `suimon_overflows_total` | counter | `limiter` |
//! | `suimon_evictions_total` | counter | `limiter` |
//! | `suimon_live_keys`, `suimon_busy_keys`, `suimon_capacity_keys` | gauge | `limiter` |
//! | `suimon_remote_decisions_total` | counter | `limiter`, `outcome`: `allowed`, `denied`, `replayed`, `cached`, `degraded` |
//! | `suimon_store_asked_total`, `suimon_store_failures_total`, `suimon_store_not_asked_total` | counter | `limiter` |
//! | `suimon_store_out` | gauge, 1 in an outage | `limiter` |
//! | `suimon_store_seconds` | histogram, recorded with each question | `outcome`: `answered`, `failed` |

use metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::KeyedStats;

impl KeyedStats {
    /// Publishes the numbers under the name of the limiter, to the recorder that the
    /// program has installed; without one nothing happens.
    ///
    /// ```
    /// use suimon::Keyed;
    ///
    /// let limits = Keyed::new("bucket 10/s", 100_000)?;
    /// // ... every few seconds:
    /// limits.stats().publish("api");
    /// # Ok::<(), suimon::Error>(())
    /// ```
    pub fn publish(&self, limiter: &'static str) {
        counter!("suimon_decisions_total", "limiter" => limiter, "outcome" => "allowed").absolute(self.allowed());
        counter!("suimon_decisions_total", "limiter" => limiter, "outcome" => "denied").absolute(self.denied());
        counter!("suimon_overflows_total", "limiter" => limiter).absolute(self.overflows());
        counter!("suimon_evictions_total", "limiter" => limiter).absolute(self.evictions());
        gauge!("suimon_live_keys", "limiter" => limiter).set(self.live_keys() as f64);
        gauge!("suimon_busy_keys", "limiter" => limiter).set(self.busy_keys() as f64);
        gauge!("suimon_capacity_keys", "limiter" => limiter).set(self.capacity() as f64);
    }
}

#[cfg(feature = "remote")]
impl crate::RemoteStats {
    /// Publishes the numbers under the name of the limiter, to the recorder that the
    /// program has installed; without one nothing happens.
    pub fn publish(&self, limiter: &'static str) {
        let decisions = [
            ("allowed", self.allowed()),
            ("denied", self.denied()),
            ("replayed", self.replayed()),
            ("cached", self.cached()),
            ("degraded", self.degraded()),
        ];
        for (outcome, number) in decisions {
            counter!("suimon_remote_decisions_total", "limiter" => limiter, "outcome" => outcome).absolute(number);
        }
        counter!("suimon_store_asked_total", "limiter" => limiter).absolute(self.asked());
        counter!("suimon_store_failures_total", "limiter" => limiter).absolute(self.failures());
        counter!("suimon_store_not_asked_total", "limiter" => limiter).absolute(self.not_asked());
        gauge!("suimon_store_out", "limiter" => limiter).set(if self.is_out() { 1.0 } else { 0.0 });
    }
}

/// Tells the recorder what the numbers mean; once, after it has been installed.
pub fn describe() {
    describe_counter!(
        "suimon_decisions_total",
        "Requests that were allowed, or denied by a limit or for want of room."
    );
    describe_counter!("suimon_overflows_total", "Requests of keys for which there was no room.");
    describe_counter!("suimon_evictions_total", "Keys that were forgotten before all had come back to them.");
    describe_gauge!("suimon_live_keys", "Keys that have used something which has not come back.");
    describe_gauge!("suimon_busy_keys", "Keys that are waited for, reserved of, paused, or have limits of their own.");
    describe_gauge!("suimon_capacity_keys", "The most keys for which there could be room.");
    describe_counter!("suimon_remote_decisions_total", "Answers of limits that are shared through a store.");
    describe_counter!("suimon_store_asked_total", "Questions to the store.");
    describe_counter!("suimon_store_failures_total", "Questions to which the store gave no answer in time.");
    describe_counter!("suimon_store_not_asked_total", "Requests for which a store that had just failed was not asked.");
    describe_gauge!("suimon_store_out", "1 while the store is taken to be out.");
    metrics::describe_histogram!(
        "suimon_store_seconds",
        metrics::Unit::Seconds,
        "The time for an answer of the store."
    );
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use crate::Keyed;

    #[cfg(feature = "remote")]
    #[test]
    fn stores_are_told_of() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let store = crate::store::MemoryStore::new();
        let limiter = crate::Remote::builder(store, "key", "bucket 1/h").unwrap().deny_cache().build().unwrap();
        (0..4).for_each(|_| drop(limiter.allow(1)));
        let page = metrics::with_local_recorder(&recorder, || {
            super::describe();
            limiter.stats().publish("api");
            recorder.handle().render()
        });
        for line in [
            "suimon_remote_decisions_total{limiter=\"api\",outcome=\"allowed\"} 1",
            "suimon_remote_decisions_total{limiter=\"api\",outcome=\"denied\"} 1",
            "suimon_remote_decisions_total{limiter=\"api\",outcome=\"cached\"} 2",
            "suimon_store_asked_total{limiter=\"api\"} 2",
            "suimon_store_out{limiter=\"api\"} 0",
        ] {
            assert!(page.lines().any(|given| given == line), "{line} is not in\n{page}");
        }
    }

    #[test]
    fn prometheus_reads_the_numbers() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let keyed = Keyed::new("bucket 1/h", 1000).unwrap();
        let page = metrics::with_local_recorder(&recorder, || {
            super::describe();
            let allowed = (0..5).filter(|_| keyed.allow("a", 1).unwrap().is_allowed()).count();
            assert_eq!(allowed, 1);
            keyed.stats().publish("api");
            keyed.allow("b", 1).unwrap();
            keyed.stats().publish("api");
            recorder.handle().render()
        });
        for line in [
            "# TYPE suimon_decisions_total counter",
            "suimon_decisions_total{limiter=\"api\",outcome=\"allowed\"} 2",
            "suimon_decisions_total{limiter=\"api\",outcome=\"denied\"} 4",
            "suimon_overflows_total{limiter=\"api\"} 0",
            "suimon_evictions_total{limiter=\"api\"} 0",
            "suimon_live_keys{limiter=\"api\"} 2",
            "suimon_busy_keys{limiter=\"api\"} 0",
        ] {
            assert!(page.lines().any(|given| given == line), "{line} is not in\n{page}");
        }
    }
}
