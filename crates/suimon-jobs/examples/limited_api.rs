//! Jobs that call a limited API, on a file of SQLite: `cargo run -p suimon-jobs --example limited_api`.
//!
//! The API takes five calls in any second and answers others with 429. The queue knows that limit, so it
//! calls at the right times; once the API refuses all the same, and all jobs wait as long as it says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use suimon_jobs::{Config, Context, Handler, JobError, Limited, Queue, Worker};

/// Somebody else's service.
#[derive(Default)]
struct Api {
    calls: Mutex<VecDeque<Instant>>,
    refused: Mutex<u32>,
}

impl Api {
    /// An answer, or a 429 with the time to wait.
    fn ask(&self, question: &str) -> Result<String, Duration> {
        let mut calls = self.calls.lock().unwrap();
        calls.retain(|call| call.elapsed() < Duration::from_secs(1));
        let mut refused = self.refused.lock().unwrap();
        // It is overloaded once, whatever its limit says.
        if calls.len() >= 5 || question.contains("no. 7") && *refused == 0 {
            *refused += 1;
            return Err(Duration::from_secs(1));
        }
        calls.push_back(Instant::now());
        Ok(format!("the answer to {question}"))
    }
}

#[derive(Serialize, Deserialize)]
struct Question {
    text: String,
}

struct Call {
    api: Arc<Api>,
    begun: Instant,
}

impl Handler for Call {
    const NAME: &'static str = "call";
    type Payload = Question;

    fn config(&self) -> Config {
        // A little more than the second of the API, which counts from when a call arrives.
        Config::new().limit("window 5/1050ms").attempts(1)
    }

    async fn handle(&self, question: Question, job: Context) -> Result<(), JobError> {
        let at = self.begun.elapsed().as_secs_f64();
        match self.api.ask(&question.text) {
            Ok(answer) => println!("{at:6.3} s  job {:>2}: {answer}", job.id()),
            Err(retry_after) => {
                println!("{at:6.3} s  job {:>2}: 429, retry after {retry_after:?}", job.id());
                return Err(Limited { retry_after }.into());
            }
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join(format!("suimon-example-{}.db", std::process::id()));
    let queue = Queue::open(&format!("sqlite://{}", file.display())).await?;
    for number in 1..=12 {
        queue.dispatch(Call::NAME, Question { text: format!("question no. {number}") }).await?;
    }
    let api = Arc::new(Api::default());
    let worker = Worker::builder(&queue).handler(Call { api: api.clone(), begun: Instant::now() }).build().await?;
    let all_done = async {
        while queue.status().await.is_ok_and(|all| all.iter().any(|handler| handler.done < 12)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    worker.run_until(all_done).await?;
    println!("twelve calls; refused once, and not because of the limit: {}", *api.refused.lock().unwrap() == 1);
    queue.close().await;
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{ending}", file.display()));
    }
    Ok(())
}
