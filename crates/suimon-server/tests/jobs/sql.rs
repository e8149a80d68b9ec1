//! Jobs written by other programs with a plain INSERT, and servers.

use std::process::Command;
use std::time::Duration;

use suimon_jobs::JobState;
use suimon_sql::access::Target;
use suimon_testkit::servers::{MariaDb, Postgres};

use crate::support::{Place, eventually, script};

/// What the table of the README says, by hand.
const INSERTS: &str = "\
INSERT INTO suimon_jobs (handler, payload) VALUES ('call', '{\"n\": 1}');
INSERT INTO suimon_jobs (handler, payload, job_key, cost, rate_limit, key_limit, count_on, priority, run_at, unique_id, max_attempts)
    VALUES ('call', '{\"n\": 2}', 'customer:42', '2.5', 'window 5/600s', 'pace 100/s', 'completed', 3, 0, 'invoice:7', 1);
INSERT INTO suimon_jobs (handler, payload, run_at) VALUES ('call', '{\"n\": 3}', 4102444800000000);
INSERT INTO suimon_jobs (handler, payload, cost) VALUES ('call', '{\"n\": 4}', 'much')";

/// Works off what was inserted and looks at what came of it.
fn check(place: &Place) {
    let exec = script("call", &format!("cat >> {}", place.path("log").display()));
    let ran = place.jobs(&["work", "--drain", "--slots", "1", "--exec", &exec]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(place.lines("log"), ["{\"n\": 2}", "{\"n\": 1}"]);
    assert_eq!(place.counts("call"), [1, 0, 2, 1]);
    let status = place.status("call");
    assert_eq!((&status["limit"], &status["key_limit"]), (&"window 5/10min".into(), &"pace 100/s".into()));
    assert_eq!(status["count"], "completed");
    let wrong = place.job(4);
    assert_eq!(wrong.state, JobState::Failed);
    assert!(wrong.error.unwrap().contains("cost: `much`"));
    assert_eq!(place.job(2).key.as_deref(), Some("customer:42"));
}

#[test]
fn python_writes_jobs_into_a_file() {
    let place = Place::new();
    place.done(&["status"]);
    let code = "\
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
with db:
    db.executescript(sys.argv[2])
try:
    with db:
        db.execute(\"INSERT INTO suimon_jobs (handler, unique_id) VALUES ('call', 'invoice:7')\")
    sys.exit('a second job with the same unique id')
except sqlite3.IntegrityError:
    pass
";
    let mut python = Command::new("python3");
    let output = python.args(["-c", code]).arg(place.path("q.db")).arg(INSERTS).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check(&place);
}

#[test]
fn psql_writes_jobs_into_a_server() {
    let server = Postgres::start();
    let place = Place::of(server.url());
    place.done(&["status"]);
    // It comes with the server.
    let mut psql = Command::new("psql");
    let output = psql.args(["-v", "ON_ERROR_STOP=1", "-q", &server.url(), "-c", INSERTS]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check(&place);
}

#[test]
fn sql_writes_jobs_into_mariadb() {
    let server = MariaDb::start();
    let place = Place::of(server.url());
    place.done(&["status"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let target = Target::parse(&server.url(), Duration::from_secs(30)).unwrap();
        target.connect().await.unwrap().cells(INSERTS.to_string()).await.unwrap();
    });
    check(&place);
}

#[test]
fn a_queue_in_postgresql() {
    let mut server = Postgres::start();
    let place = Place::of(server.url());
    place.dispatch(&[r#"{"handler":"a","limit":"window 2/600s"}"#; 3]);
    let ran = place.jobs(&["work", "--drain", "--exec", "a=true"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(place.counts("a"), [1, 0, 2, 0]);
    // A worker that waits hears of what others do.
    let mut worker = place.worker(&["--exec", "b=true"]);
    place.dispatch(&[r#"{"handler":"b"}"#]);
    eventually("it is done", || place.counts("b") == [0, 0, 1, 0]);
    // It outlives an outage.
    server.stop();
    assert_eq!(place.jobs(&["status"]).code, 1);
    worker.until("warning: the queue cannot be reached: the database of the queue: ");
    server.restart();
    place.dispatch(&[r#"{"handler":"b"}"#]);
    eventually("it is done", || place.counts("b") == [0, 0, 2, 0]);
    worker.signal("TERM");
    assert_eq!(worker.0.wait().unwrap().code(), Some(0));
    assert_eq!(place.done(&["purge"]), "4 jobs removed\n");
}
