//! The thread of a session: clock pairs every period, and, under the policy "stream", chunks into blocks.
//!
//! Place in the flow: started and ended by the session. It never holds anything that an event waits for. All signals are blocked in it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::stream::Stream;
use crate::active::core::Core;
use crate::backend::Running;
use crate::clock::{self, ClockPair, Ticks};
use crate::error::Error;
use crate::layout::{MAGIC, PAIR_WORDS, WORD, header};

/// The thread.
#[derive(Debug)]
pub(super) struct Helper {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts it.
    pub fn start(
        core: Arc<Core>,
        ticks: Ticks,
        period: Duration,
        stream: Option<(Stream, Duration)>,
        backends: Arc<Running>,
    ) -> Result<Self, Error> {
        let (stop, stopped) = sync_channel(0);
        let mut work = Work { core, ticks, period, stream, backends };
        let body = move || {
            block_signals();
            work.run(&stopped);
        };
        let spawned = std::thread::Builder::new().name("recorder".into()).spawn(body);
        let thread = spawned.map_err(|error| Error::Thread { reason: error.to_string() })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Takes the last pair, moves what is left, and ends.
    pub fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic is on standard error; what it wrote is there.
            let _ = thread.join();
        }
    }

    /// In a child, which has no such thread.
    pub fn abandon(&mut self) {
        std::mem::forget(self.thread.take());
        std::mem::forget(self.stop.take());
    }
}

struct Work {
    core: Arc<Core>,
    ticks: Ticks,
    period: Duration,
    stream: Option<(Stream, Duration)>,
    backends: Arc<Running>,
}

impl Work {
    fn run(&mut self, stopped: &Receiver<()>) {
        // A process that is killed early leaves pairs all the same: one tells nothing of the length of a tick.
        let mut pair_wait = FIRST_PAIR.min(self.period);
        let mut pair_due = Instant::now() + pair_wait;
        let mut stream_due = self.stream.as_ref().map(|(_, every)| Instant::now() + *every);
        loop {
            let due = stream_due.map_or(pair_due, |stream| stream.min(pair_due));
            let left = due.saturating_duration_since(Instant::now());
            if !matches!(stopped.recv_timeout(left), Err(RecvTimeoutError::Timeout)) {
                break;
            }
            let now = Instant::now();
            if now >= pair_due {
                self.take_pair();
                self.backends.tick();
                pair_wait = (pair_wait * PAIR_GROWTH).min(self.period);
                pair_due = next(pair_due, pair_wait, now);
            }
            if let Some((stream, every)) = &mut self.stream
                && stream_due.is_some_and(|due| now >= due)
            {
                stream.drain(&self.core);
                stream_due = stream_due.map(|due| next(due, *every, now));
            }
        }
        self.take_pair();
        if let Some((stream, _)) = &mut self.stream {
            stream.drain(&self.core);
        }
    }

    fn take_pair(&self) {
        write_pair_now(&self.core, self.ticks);
        if clock::still_steady(self.ticks).is_err() {
            let failed = self.core.header(header::CLOCK_FAILED);
            let _ = failed.compare_exchange(0, self.ticks.now(), Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Reads both clocks now, and writes the pair.
pub(super) fn write_pair_now(core: &Core, ticks: Ticks) {
    write_pair(core, clock::pair(ticks));
}

/// Writes a pair into the recording. When there is no room left, every other pair goes; a kill meanwhile leaves pairs in another order, or twice, all of
/// them true.
fn write_pair(core: &Core, pair: ClockPair) {
    let capacity = core.layout.pairs;
    let written = core.header(header::PAIRS_WRITTEN);
    let mut at = written.load(Ordering::Acquire) as usize;
    if at >= capacity {
        for kept in 1..capacity / 2 {
            for place in 0..PAIR_WORDS {
                let word = pair_word(core, 2 * kept, place).load(Ordering::Relaxed);
                pair_word(core, kept, place).store(word, Ordering::Relaxed);
            }
        }
        at = capacity / 2;
        written.store(at as u64, Ordering::Release);
    }
    let words = [pair.ticks, pair.system_ns as u64, pair.bracket_ticks];
    let check = words.iter().fold(MAGIC, |check, word| check ^ word);
    for (place, word) in words.into_iter().chain([check]).enumerate() {
        pair_word(core, at, place).store(word, Ordering::Relaxed);
    }
    written.store(at as u64 + 1, Ordering::Release);
}

fn pair_word(core: &Core, pair: usize, place: usize) -> &std::sync::atomic::AtomicU64 {
    core.region.word(core.layout.pairs_at() + (pair * PAIR_WORDS + place) * WORD)
}

/// The first deadline after `now`; those that have passed are not made up for.
fn next(due: Instant, period: Duration, now: Instant) -> Instant {
    let due = due + period;
    if due > now { due } else { now + period }
}

/// From the start to the pair after the first; later ones are farther and farther apart until the period is reached.
const FIRST_PAIR: Duration = Duration::from_millis(10);
const PAIR_GROWTH: u32 = 4;

fn block_signals() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset writes the set, which then is one; the second call reads it.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
    }
}
