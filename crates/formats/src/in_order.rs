//! Processes the parts of one file on all processors and returns the results in file order.
//!
//! One thread cuts the file into parts and consumes the results; workers do everything that needs
//! no other part. Parts go to the workers in turn and return in the same turn, so no sorting is
//! needed, and at most [`AHEAD`] parts per worker are in memory. It does not interrupt a worker.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

use crate::workers::workers;

/// Source of parts and destination of results, both on the calling thread.
pub trait Stages {
    /// A part.
    type Given: Send;
    /// Result for a part.
    type Made: Send;
    /// Error of a stage.
    type Error;

    /// The next part, `None` behind the last.
    fn next(&mut self) -> Result<Option<Self::Given>, Self::Error>;

    /// Takes a result, in the order of the parts.
    fn take(&mut self, made: Self::Made) -> Result<(), Self::Error>;
}

/// Lets workers do `work` on all parts. If there are several errors, that of the earliest part is
/// returned, as without workers.
pub fn in_order<S: Stages>(mut stages: S, work: impl Fn(S::Given) -> S::Made + Sync) -> Result<(), S::Error> {
    std::thread::scope(|scope| {
        // Dropped before the scope ends, whatever happens: then the workers end, too.
        let workers: Vec<Worker<S>> = (0..workers().min(WORKERS_MAX)).map(|_| Worker::start(scope, &work)).collect();
        let (mut given, mut taken) = (0, 0);
        let ended = loop {
            if given - taken == workers.len() * AHEAD {
                stages.take(workers[taken % workers.len()].made())?;
                taken += 1;
            }
            match stages.next() {
                Ok(Some(part)) => workers[given % workers.len()].give(part),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
            given += 1;
        };
        while taken < given {
            stages.take(workers[taken % workers.len()].made())?;
            taken += 1;
        }
        ended
    })
}

/// A thread with its queues.
struct Worker<S: Stages> {
    parts: SyncSender<S::Given>,
    results: Receiver<S::Made>,
}

impl<S: Stages> Worker<S> {
    fn start<'scope>(scope: &'scope Scope<'scope, '_>, work: &'scope (impl Fn(S::Given) -> S::Made + Sync)) -> Worker<S>
    where
        S::Given: 'scope,
        S::Made: 'scope,
    {
        let (parts, to_do) = sync_channel(AHEAD);
        let (done, results) = sync_channel(AHEAD);
        // A result that nobody takes any more ends the thread as the end of the parts does.
        scope.spawn(move || to_do.into_iter().map(work).try_for_each(|made| done.send(made)));
        Worker { parts, results }
    }

    fn give(&self, part: S::Given) {
        self.parts.send(part).expect("a worker ends early only by a panic, which goes on in this thread");
    }

    fn made(&self) -> S::Made {
        self.results.recv().expect("a worker ends early only by a panic, which goes on in this thread")
    }
}

/// Workers at most: one thread cuts and takes their parts, and memory stays limited.
const WORKERS_MAX: usize = 16;
/// Parts per worker that are read and whose results are not taken yet.
const AHEAD: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers up to an end, of which one may be an error; keeps what it takes.
    struct Numbers<'t> {
        next: u32,
        end: Result<u32, u32>,
        refused: Option<u32>,
        taken: &'t mut Vec<u32>,
    }

    impl Stages for Numbers<'_> {
        type Given = u32;
        type Made = u32;
        type Error = String;

        fn next(&mut self) -> Result<Option<u32>, String> {
            let (Ok(end) | Err(end)) = self.end;
            if self.next == end {
                return self.end.map(|_| None).map_err(|at| format!("read {at}"));
            }
            self.next += 1;
            Ok(Some(self.next - 1))
        }

        fn take(&mut self, made: u32) -> Result<(), String> {
            if self.refused == Some(made) {
                return Err(format!("taken {made}"));
            }
            self.taken.push(made);
            Ok(())
        }
    }

    #[test]
    fn results_come_in_order_and_the_earliest_error_counts() {
        let check = |end, refused, expected: Result<(), &str>, count: u32| {
            let mut taken = Vec::new();
            let ended = in_order(Numbers { next: 0, end, refused, taken: &mut taken }, |number| {
                // Early parts take longest.
                (0..(50 - number.min(50)) * 1000).fold(number, |sum, step| std::hint::black_box(sum ^ step ^ step))
            });
            assert_eq!(ended, expected.map_err(str::to_owned));
            assert_eq!(taken, (0..count).collect::<Vec<_>>());
        };
        check(Ok(0), None, Ok(()), 0);
        check(Ok(1), None, Ok(()), 1);
        check(Ok(200), None, Ok(()), 200);
        check(Err(200), None, Err("read 200"), 200);
        check(Err(200), Some(199), Err("taken 199"), 199);
        check(Ok(1000), Some(3), Err("taken 3"), 3);
    }
}
