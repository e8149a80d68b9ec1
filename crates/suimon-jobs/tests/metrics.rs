//! What a recorder of the `metrics` facade is told.

#![cfg(all(feature = "metrics", feature = "sqlite", unix))]

use metrics_exporter_prometheus::PrometheusBuilder;
use suimon_jobs::{Config, JobError, Permanent, Queue, Worker};
use suimon_testkit::servers::Folder;

#[test]
fn prometheus_reads_the_numbers() {
    let folder = Folder::new("metrics", &[]);
    let url = format!("sqlite://{}/jobs.db", folder.path().display());
    let recorder = PrometheusBuilder::new().build_recorder();
    // On one thread, on which the recorder is.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let page = metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let queue = Queue::open(&url).await.unwrap();
            let acts = |works: bool, _| async move {
                if works { Ok(()) } else { Err(JobError::from(Permanent("no".to_owned()))) }
            };
            let worker = Worker::builder(&queue).function("a", Config::new().rate_limit(3, 600), acts);
            let worker = worker.build().await.unwrap();
            for works in [true, true, false, true] {
                queue.dispatch("a", works).key("customer").await.unwrap();
            }
            assert_eq!(worker.drain().await.unwrap().len(), 3);
            queue.status().await.unwrap().iter().for_each(suimon_jobs::HandlerStatus::publish);
        });
        recorder.handle().render()
    });
    for line in [
        "suimon_jobs_dispatched_total{handler=\"a\"} 4",
        "suimon_jobs_ended_total{handler=\"a\",outcome=\"done\"} 2",
        "suimon_jobs_ended_total{handler=\"a\",outcome=\"failed\"} 1",
        "suimon_jobs_waiting{handler=\"a\"} 1",
        "suimon_jobs_failed{handler=\"a\"} 1",
        "suimon_jobs_run_seconds_count{handler=\"a\"} 3",
    ] {
        assert!(page.lines().any(|given| given == line), "{line} is not in\n{page}");
    }
    assert!(page.contains("suimon_jobs_step_seconds_count{step=\"claim\"}"), "{page}");
    assert!(page.lines().any(|line| line.starts_with("suimon_jobs_limited_seconds{handler=\"a\"} 59")), "{page}");
    assert!(!page.contains("customer"), "{page}");
}
