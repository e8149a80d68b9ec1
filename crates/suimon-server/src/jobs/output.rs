//! Standard error of a worker: one thread writes, so that whole lines stay whole and a reader
//! that is slow holds up the commands and not the worker.

use std::io::{self, Write};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc::{self, Receiver, Sender};

/// So many pieces wait to be written at most, each up to `CHUNK` and a piece of a line.
const WAITING: usize = 64;
/// What is read of a command's output at once, in bytes, and the longest piece of a line that is
/// held back so that those of two commands do not mix.
const CHUNK: usize = 16 * 1024;
/// The end of the output that is kept.
const TAIL: usize = 4096;
/// How long the end waits for what is still to be written.
const PATIENCE: Duration = Duration::from_secs(2);

enum Piece {
    Text(Vec<u8>),
    End,
}

/// Where everything that is told goes.
#[derive(Clone)]
pub(super) struct Output(Sender<Piece>);

impl Output {
    /// Starts the thread that writes.
    pub(super) fn start() -> io::Result<(Output, Writer)> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let thread = thread::Builder::new().name("output".to_string()).spawn(move || write(receiver))?;
        let output = Output(sender);
        Ok((output.clone(), Writer { output, thread }))
    }

    /// Tells something if there is room for it; nobody waits for a message.
    pub(super) fn tell(&self, line: &str) {
        // A line that is lost is better than a worker that gives no sign of life.
        let _ = self.0.try_send(Piece::Text(format!("{line}\n").into_bytes()));
    }

    /// Passes on what a command writes, whole lines at a time; answers the end of it.
    pub(super) async fn pass_on(&self, from: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
        let mut tail = Vec::new();
        let Some(mut from) = from else { return tail };
        let mut chunk = vec![0; CHUNK];
        let mut held = Vec::new();
        // What cannot be read any more has ended.
        while let Ok(read @ 1..) = from.read(&mut chunk).await {
            let read = &chunk[..read];
            tail.extend_from_slice(&read[read.len().saturating_sub(TAIL)..]);
            tail.drain(..tail.len().saturating_sub(TAIL));
            held.extend_from_slice(read);
            let ready = match memchr::memrchr(b'\n', &held) {
                Some(end) => end + 1,
                None if held.len() <= CHUNK => 0,
                None => held.len(),
            };
            if ready > 0 {
                self.text(held.drain(..ready).collect()).await;
            }
        }
        // The last line ends before somebody else's begins.
        if tail.last().is_some_and(|last| *last != b'\n') {
            held.push(b'\n');
            self.text(held).await;
        }
        tail
    }

    async fn text(&self, text: Vec<u8>) {
        // The thread is there until the end.
        let _ = self.0.send(Piece::Text(text)).await;
    }
}

/// The thread that writes.
pub(super) struct Writer {
    output: Output,
    thread: JoinHandle<()>,
}

impl Writer {
    /// Waits until all has been written, but not for ever.
    pub(super) fn finish(self) {
        let end = Instant::now() + PATIENCE;
        let mut is_told = false;
        while !self.thread.is_finished() && Instant::now() < end {
            is_told = is_told || self.output.0.try_send(Piece::End).is_ok();
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn write(mut pieces: Receiver<Piece>) {
    while let Some(Piece::Text(text)) = pieces.blocking_recv() {
        // Where nobody reads, commands go on all the same.
        let _ = io::stderr().lock().write_all(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed_on(input: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (sender, mut receiver) = mpsc::channel(1000);
        let tail = runtime.block_on(Output(sender).pass_on(Some(input)));
        let mut pieces = Vec::new();
        while let Ok(Piece::Text(text)) = receiver.try_recv() {
            pieces.push(text);
        }
        (tail, pieces)
    }

    #[test]
    fn output_goes_by_whole_lines_and_its_end_is_kept() {
        let input: Vec<u8> = (0..20_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let (tail, pieces) = passed_on(&input);
        assert!(pieces.len() > 1 && pieces.iter().all(|piece| piece.ends_with(b"\n") && piece.len() <= 2 * CHUNK));
        assert_eq!(pieces.concat(), input);
        assert_eq!(tail, &input[input.len() - TAIL..]);
        // A line without an end gets one; one that is too long is cut.
        let (tail, pieces) = passed_on(b"a\nb");
        assert_eq!((&tail[..], &pieces.concat()[..]), (&b"a\nb"[..], &b"a\nb\n"[..]));
        let (_, pieces) = passed_on(&vec![b'x'; 10 * CHUNK]);
        assert!(pieces.iter().all(|piece| piece.len() <= 2 * CHUNK + 1));
        assert_eq!(pieces.concat().len(), 10 * CHUNK + 1);
        assert_eq!(passed_on(b""), (Vec::new(), Vec::new()));
    }
}
