//! Sending the jobs of many lines.

use std::io::{BufRead, Read as _, Write};

use suimon_jobs::{Job, Queue};

use super::{Error, job, jobs};
use crate::terminal;

/// So many jobs go in one transaction at most,
const BATCH: usize = 500;
/// or so many bytes of their lines: servers refuse statements that are too long.
const BATCH_BYTES: usize = 1 << 20;
/// The longest line, in bytes.
const LONGEST: usize = 4 << 20;
/// So many bytes of lines are checked before the first job is sent, each counting for
/// `OVERHEAD` more.
const HELD: usize = 128 << 20;
const OVERHEAD: usize = 512;
/// So many bad lines are told one by one.
const TOLD: usize = 20;

/// Jobs of lines that have been checked and not been sent.
#[derive(Default)]
struct Held {
    jobs: Vec<(Job, usize)>,
    bytes: usize,
    /// The number of the first line and of the last.
    lines: Option<(u64, u64)>,
    bad: Vec<(u64, String)>,
    more_bad: u64,
}

/// Sends the jobs of lines of JSON; answers how many.
///
/// All lines are checked before the first job is sent, if they fit into [`HELD`]; otherwise
/// those are checked first, and then each batch before it is sent.
///
/// # Errors
/// When a line is wrong, the input cannot be read, the database cannot be asked; what was sent is told.
pub(crate) async fn lines(
    queue: impl AsyncFnOnce() -> Result<Queue, Error>,
    input: impl BufRead,
    ids: Option<&mut dyn Write>,
) -> Result<u64, Error> {
    lines_holding(HELD, queue, input, ids).await
}

async fn lines_holding(
    held_bytes: usize,
    queue: impl AsyncFnOnce() -> Result<Queue, Error>,
    mut input: impl BufRead,
    ids: Option<&mut dyn Write>,
) -> Result<u64, Error> {
    let mut sender = Sender { queue: None, ids, sent: 0, last_line: 0 };
    let mut open = Some(queue);
    let mut held = Held::default();
    let (mut number, mut most_bytes, mut most_jobs) = (0, held_bytes, usize::MAX);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.by_ref().take(LONGEST as u64 + 1).read_until(b'\n', &mut line);
        let read = read.map_err(|error| sender.stopped(&format!("standard input: {error} (after line {number})")));
        if read? == 0 {
            break;
        }
        number += 1;
        held.add(number, &line);
        if line.len() > LONGEST {
            skip_line(&mut input).map_err(|error| sender.stopped(&format!("standard input: {error}")))?;
        }
        if held.bytes >= most_bytes || held.jobs.len() >= most_jobs {
            sender.send(&mut open, &mut held).await?;
            (most_bytes, most_jobs) = (BATCH_BYTES, BATCH);
        }
    }
    sender.send(&mut open, &mut held).await?;
    if let Some(queue) = &sender.queue {
        queue.close().await;
    }
    Ok(sender.sent)
}

/// Passes over what is left of a line that is too long.
fn skip_line(input: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let end = memchr::memchr(b'\n', buffer);
        let passed = end.map_or(buffer.len(), |end| end + 1);
        input.consume(passed);
        if end.is_some() || passed == 0 {
            return Ok(());
        }
    }
}

impl Held {
    fn add(&mut self, number: u64, line: &[u8]) {
        // What editors of some systems put before the first line.
        let line = if number == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        let first = self.lines.map_or(number, |(first, _)| first);
        self.lines = Some((first, number));
        if line.trim_ascii().is_empty() {
            return;
        }
        let job = match line.len() {
            0..=LONGEST => job::parse_line(line.trim_ascii()),
            _ => Err(format!("it is longer than {LONGEST} bytes")),
        };
        match job {
            Ok(job) => {
                self.bytes += line.len() + OVERHEAD;
                self.jobs.push((job, line.len()));
            }
            Err(why) if self.bad.len() < TOLD => self.bad.push((number, why)),
            Err(_) => self.more_bad += 1,
        }
    }

    /// The next jobs for a transaction.
    fn batches(jobs: Vec<(Job, usize)>) -> Vec<Vec<Job>> {
        let mut batches: Vec<Vec<Job>> = Vec::new();
        let mut room = 0;
        for (job, bytes) in jobs {
            match batches.last_mut() {
                Some(batch) if batch.len() < BATCH && bytes <= room => {
                    room -= bytes;
                    batch.push(job);
                }
                _ => {
                    room = BATCH_BYTES.saturating_sub(bytes);
                    batches.push(vec![job]);
                }
            }
        }
        batches
    }
}

struct Sender<'a> {
    queue: Option<Queue>,
    /// Where the numbers of the jobs go.
    ids: Option<&'a mut dyn Write>,
    sent: u64,
    /// The last line whose job was sent with all before it.
    last_line: u64,
}

impl Sender<'_> {
    async fn send<F>(&mut self, open: &mut Option<F>, held: &mut Held) -> Result<(), Error>
    where
        F: AsyncFnOnce() -> Result<Queue, Error>,
    {
        let Held { jobs, lines, bad, more_bad, .. } = std::mem::take(held);
        if !bad.is_empty() {
            for (number, why) in &bad {
                terminal::error(&format!("line {number}: {why}"));
            }
            let wrong = bad.len() as u64 + more_bad;
            return Err(self.stopped(&format!("{wrong} line{} cannot be a job", if wrong == 1 { "" } else { "s" })));
        }
        if let Some(open) = open.take() {
            self.queue = Some(open().await?);
        }
        let Some(queue) = self.queue.clone() else { return Ok(()) };
        for batch in Held::batches(jobs) {
            let ids = queue.dispatch_all(&batch).await.map_err(|error| self.stopped(&error.to_string()))?;
            self.sent += ids.len() as u64;
            if let Some(out) = &mut self.ids {
                let text: String = ids.iter().map(|id| format!("{id}\n")).collect();
                out.write_all(text.as_bytes())?;
            }
        }
        self.last_line = lines.map_or(self.last_line, |(_, last)| last);
        Ok(())
    }

    /// An error, with what has been sent before it.
    fn stopped(&self, why: &str) -> Error {
        let sent = match (self.sent, self.last_line) {
            (0, _) => "nothing was dispatched".to_string(),
            (sent, 0) => format!("the first {} were dispatched, the others not", jobs(sent)),
            (sent, line) => format!("{} were dispatched, all up to line {line} among them", jobs(sent)),
        };
        Error::Io(format!("{why}; {sent}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_in_number_and_bytes() {
        let job = |bytes: usize| (Job::new("a", &1), bytes);
        let sizes = |jobs: Vec<_>| Held::batches(jobs).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes((0..1001).map(|_| job(10)).collect()), [500, 500, 1]);
        let (half, whole) = (BATCH_BYTES / 2, BATCH_BYTES);
        assert_eq!(sizes([half, half, 1, whole, whole * 3, 1].map(job).into()), [2, 1, 1, 1, 1]);
        assert!(Held::batches(Vec::new()).is_empty());
    }

    #[test]
    fn bad_lines_are_kept_up_to_a_number() {
        let mut held = Held::default();
        held.add(1, b"\xef\xbb\xbf{\"handler\":\"a\"}\n");
        held.add(2, b" \r\n");
        held.add(3, &vec![b'x'; LONGEST + 1]);
        for number in 4..100 {
            held.add(number, b"x");
        }
        assert_eq!((held.jobs.len(), held.bad.len(), held.more_bad, held.lines), (1, TOLD, 77, Some((1, 99))));
        assert!(held.bad[0].0 == 3 && held.bad[0].1.contains("longer than 4194304 bytes"));
    }

    #[test]
    fn of_a_long_input_each_batch_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/q.db", folder.path().display());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let run = |held: usize, input: &str, ids: &mut Vec<u8>| {
            let open = async || Ok(Queue::open(&url).await?);
            runtime.block_on(lines_holding(held, open, input.as_bytes(), Some(ids)))
        };
        let good = "{\"handler\":\"a\"}\n";
        // The first hundred lines do not fit; then come batches of 500.
        let input = good.repeat(1300) + "{\"handler\":\"a\",\"what\":1}\n" + &good.repeat(50);
        let mut ids = Vec::new();
        let Err(Error::Io(told)) = run(100 * (good.len() + OVERHEAD), &input, &mut ids) else { panic!("no error") };
        assert_eq!(told, "1 line cannot be a job; 1100 jobs were dispatched, all up to line 1100 among them");
        assert_eq!(ids.iter().filter(|byte| **byte == b'\n').count(), 1100);
        let mut ids = Vec::new();
        let Err(Error::Io(told)) = run(HELD, &input, &mut ids) else { panic!("no error") };
        assert_eq!((&*told, ids.len()), ("1 line cannot be a job; nothing was dispatched", 0));
        assert_eq!(run(HELD, &good.repeat(3), &mut ids).unwrap(), 3);
        assert_eq!(ids, b"1101\n1102\n1103\n");
    }
}
