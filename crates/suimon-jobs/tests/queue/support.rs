//! Databases to test on, workers in short, a diary of what ran when.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use suimon_jobs::{Config, HandlerStatus, JobId, JobInfo, Queue, Worker, WorkerBuilder};
use suimon_sql::access::{Cell, Target};
use suimon_testkit::servers::{Folder, MariaDb, Postgres};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A kind of database, of which there is one for all tests that leave it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    MariaDb,
    Sqlite,
}

/// Makes tests, on each kind of database, of async functions that take one.
macro_rules! on_all {
    ($($test:ident),+ $(,)?) => { $crate::support::on_all!(@ [Postgres MariaDb Sqlite] ($($test),+)); };
    (@ [$($kind:ident)+] $tests:tt) => { $( $crate::support::on_all!(@@ $kind $tests); )+ };
    (@@ $kind:ident ($($test:ident),+)) => {
        #[allow(non_snake_case)]
        mod $kind {
            $(
                #[test]
                fn $test() {
                    $crate::support::block_on(super::$test($crate::support::Kind::$kind));
                }
            )+
        }
    };
}
pub(crate) use on_all;

/// The runtime of all tests.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(future)
}

impl Kind {
    fn url(self) -> String {
        static POSTGRES: OnceLock<Postgres> = OnceLock::new();
        static MARIADB: OnceLock<MariaDb> = OnceLock::new();
        static SQLITE: OnceLock<Folder> = OnceLock::new();
        match self {
            Kind::Postgres => POSTGRES.get_or_init(Postgres::start).url(),
            Kind::MariaDb => MARIADB.get_or_init(MariaDb::start).url(),
            Kind::Sqlite => {
                let folder = SQLITE.get_or_init(|| Folder::new("jobs", &[]));
                format!("sqlite://{}", folder.path().join(format!("{}.db", number())).display())
            }
        }
    }

    /// A database in which nobody else has tables of this name.
    pub(crate) fn place(self) -> Place {
        Place { url: self.url(), prefix: format!("t{}", number()) }
    }

    /// A queue of its own.
    pub(crate) async fn queue(self) -> Queue {
        self.place().queue().await
    }
}

fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Where a queue is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) prefix: String,
}

impl Place {
    /// A queue as another process would open it, with connections of its own. A patient one: what it
    /// does is to be seen, not how fast a busy machine is.
    pub(crate) async fn queue(&self) -> Queue {
        Queue::builder(&self.url).prefix(&self.prefix).timeout(Duration::from_secs(30)).open().await.unwrap()
    }

    /// Runs statements, in which `{p}` stands for the prefix of the tables.
    pub(crate) async fn sql(&self, sql: &str) -> Vec<Vec<Cell>> {
        let target = Target::parse(&self.url, Duration::from_secs(30)).unwrap();
        for _ in 0..1000 {
            let answer = match target.connect().await {
                Ok(mut connection) => connection.cells(sql.replace("{p}", &self.prefix)).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(rows) => return rows,
                Err(error) if error.to_string().contains("locked") => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(error) => panic!("{error}: {sql}"),
            }
        }
        panic!("it stays locked");
    }

    /// The first column of the answer, of numbers.
    pub(crate) async fn numbers(&self, sql: &str) -> Vec<i64> {
        let number = |row: Vec<Cell>| match row[0] {
            Cell::Number(number) => number,
            ref other => panic!("{other:?}"),
        };
        self.sql(sql).await.into_iter().map(number).collect()
    }

    /// When the runs of a handler began, as the database noted it.
    pub(crate) async fn starts(&self, handler: &str) -> Vec<i64> {
        let sql = format!("SELECT started_at FROM {{p}}_jobs WHERE handler = '{handler}' AND started_at IS NOT NULL");
        self.numbers(&sql).await
    }

    /// The first number of the answer.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        match self.sql(sql).await[0][0] {
            Cell::Number(number) => number,
            ref other => panic!("{other:?}"),
        }
    }
}

/// Which job of which handler began and ended when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Diary(Arc<Mutex<Vec<Entry>>>);

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) handler: String,
    pub(crate) key: Option<String>,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

impl Diary {
    /// A builder of a worker with handlers that write down their runs, which take so long.
    pub(crate) fn serve(&self, worker: WorkerBuilder, name: &str, config: Config, time: Duration) -> WorkerBuilder {
        let diary = self.clone();
        worker.json(name, config, move |_, job| {
            let diary = diary.clone();
            async move {
                let began = Instant::now();
                tokio::time::sleep(time).await;
                let (handler, key) = (job.handler().to_owned(), job.key().map(str::to_owned));
                diary.0.lock().unwrap().push(Entry { handler, key, began, ended: Instant::now() });
                Ok(())
            }
        })
    }

    /// A worker of one handler that does nothing but write down its runs.
    pub(crate) async fn worker(&self, queue: &Queue, name: &str, config: Config) -> Worker {
        self.serve(Worker::builder(queue), name, config, Duration::ZERO).build().await.unwrap()
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut all = self.0.lock().unwrap().clone();
        all.sort_by_key(|entry| entry.began);
        all
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Runs workers until something has come about; then they end in good order.
pub(crate) async fn working(workers: Vec<Worker>, done: impl Future<Output = ()>) {
    let stop = watch::Sender::new(false);
    let mut all = JoinSet::new();
    for worker in workers {
        let mut stops = stop.subscribe();
        all.spawn(async move { worker.run_until(async move { drop(stops.wait_for(|stops| *stops).await) }).await });
    }
    done.await;
    stop.send_replace(true);
    while let Some(ended) = all.join_next().await {
        ended.unwrap().unwrap();
    }
}

/// Waits until so many jobs of a handler have been done.
pub(crate) async fn done(queue: &Queue, handler: &str, jobs: u64) {
    eventually("jobs that are done", || async { status(queue, handler).await.done >= jobs }).await;
}

/// No more than so many of these times, in microseconds, lie in any period.
pub(crate) fn assert_at_most(most: usize, period: Duration, times: &[i64]) {
    let mut times = times.to_vec();
    times.sort_unstable();
    for (nth, apart) in times.windows(most + 1).enumerate() {
        let span = apart[most] - apart[0];
        assert!(span >= i64::try_from(period.as_micros()).unwrap(), "{} in {span} us, from the {nth}th", most + 1);
    }
}

/// The microseconds since 1970, by the clock that servers on this machine have too.
pub(crate) fn micros() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_micros()).unwrap()
}

pub(crate) async fn status(queue: &Queue, handler: &str) -> HandlerStatus {
    let all = queue.status().await.unwrap();
    all.into_iter().find(|status| status.handler == handler).unwrap_or_else(|| panic!("no handler `{handler}`"))
}

pub(crate) async fn job(queue: &Queue, id: JobId) -> JobInfo {
    queue.job(id).await.unwrap().unwrap_or_else(|| panic!("no job {id}"))
}

/// Waits until something holds, for as long as a busy machine may need.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < end, "{what}: not within a minute");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
