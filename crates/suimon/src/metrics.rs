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
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use crate::Keyed;

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
