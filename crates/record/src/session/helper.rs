//! The helper thread of a session: it takes clock pairs every period, handles windows when they are
//! due and, under the policy "stream", moves chunks into blocks.
//!
//! It never holds a lock or resource that an event waits for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::live::Live;
use super::worker::Worker;
use crate::clock;
use crate::error::Error;
use crate::layout::header;

/// The thread.
#[derive(Debug)]
pub(super) struct Helper {
    live: Arc<Live>,
    thread: Option<Worker>,
}

impl Helper {
    /// Starts it.
    pub fn start(live: Arc<Live>, period: Duration, every: Option<Duration>) -> Result<Self, Error> {
        let work = Work { live: Arc::clone(&live), period, every };
        let started = Worker::start(c"recorder", move || work.run());
        let thread = started.map_err(|error| Error::Thread { reason: error.to_string() })?;
        Ok(Self { live, thread: Some(thread) })
    }

    /// Takes the last pair, moves the remaining data, and ends.
    pub fn end(&mut self) {
        self.live.ended();
        self.live.dismiss();
        if let Some(thread) = self.thread.take() {
            // Where it has panicked, what it wrote is there.
            thread.join();
        }
    }

    /// In a child, which has no such thread.
    pub fn abandon(&mut self) {
        self.thread = None;
    }
}

struct Work {
    live: Arc<Live>,
    period: Duration,
    /// How often chunks are moved into blocks, under the policy "stream".
    every: Option<Duration>,
}

impl Work {
    fn run(&self) {
        // A process that is killed early leaves pairs all the same: one tells nothing of the length
        // of a tick.
        let mut pair_wait = FIRST_PAIR.min(self.period);
        let mut pair_due = Instant::now() + pair_wait;
        let mut stream_due = self.every.map(|every| Instant::now() + every);
        loop {
            let look = self.every.map(|every| Instant::now() + every / LOOKS);
            let due = [stream_due, look].into_iter().flatten().fold(pair_due, Instant::min);
            if !self.live.wait_until(due) {
                break;
            }
            let now = Instant::now();
            if now >= pair_due {
                self.take_pair();
                self.live.backends.tick();
                pair_wait = (pair_wait * PAIR_GROWTH).min(self.period);
                pair_due = next(pair_due, pair_wait, now);
            }
            if let Some(every) = self.every
                && (stream_due.is_some_and(|due| now >= due) || self.live.core.pool.is_filling())
            {
                self.live.core.drain();
                stream_due = stream_due.map(|due| if now < due { now + every } else { next(due, every, now) });
            }
        }
        self.take_pair();
        self.live.core.drain();
    }

    fn take_pair(&self) {
        let Live { core, ticks, .. } = &*self.live;
        self.live.take_pair();
        if clock::still_steady(*ticks).is_err() {
            let failed = core.header(header::CLOCK_FAILED);
            let _ = failed.compare_exchange(0, ticks.now(), Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// The first deadline after `now`; those that have passed are not made up for.
fn next(due: Instant, period: Duration, now: Instant) -> Instant {
    let due = due + period;
    if due > now { due } else { now + period }
}

/// Time from the start to the second pair; intervals then grow until the period is reached.
const FIRST_PAIR: Duration = Duration::from_millis(10);
const PAIR_GROWTH: u32 = 4;
/// How often per period it is checked whether chunks fill up before its end.
const LOOKS: u32 = 4;
