//! A timer of nanosecond resolution for one tokio task, and the timer slack of the calling thread.
//!
//! The node's probe task waits on it together with its socket (`udp::wait`). tokio's own timers
//! tick in milliseconds, but the probe schedule needs about 10 µs. A `timerfd` on
//! `CLOCK_MONOTONIC`, armed with an absolute time, is an ordinary descriptor to tokio and as
//! precise as the kernel's high-resolution timers.
//!
//! The descriptor is never read: setting a timerfd anew takes its expiry back, and tokio watches
//! edges. That saves one system call per wake-up.
//!
//! It is not periodic: the probe schedule sets the next time at each step.

use std::num::NonZeroU64;
use std::os::fd::{BorrowedFd, OwnedFd};

use probe_sync_time::{Clock, Monotonic, Timestamp};
use rustix::event::{PollFd, PollFlags};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::{Error, MonotonicClock};

/// A one-shot timer on `CLOCK_MONOTONIC`.
#[derive(Debug)]
pub struct Timer {
    descriptor: AsyncFd<OwnedFd>,
    armed: Option<Timestamp<Monotonic>>,
}

impl Timer {
    /// Creates a timer that is not set.
    ///
    /// # Errors
    /// Returns an error if the process is out of descriptors.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with I/O enabled.
    pub fn new() -> Result<Self, Error> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor =
            rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map_err(Error::system("create a timer"))?;
        // SAFETY: the descriptor is owned, so it stays open and the same until the `AsyncFd` is
        // dropped, which `Self` never takes apart.
        let descriptor = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        let descriptor = descriptor.map_err(Error::system("watch a timer"))?;
        Ok(Self { descriptor, armed: None })
    }

    /// Sets the timer to `deadline`, or stops it. Costs nothing if it is already set so.
    ///
    /// # Errors
    /// Returns an error only if the system refuses what it has granted before.
    pub fn set(&mut self, deadline: Option<Timestamp<Monotonic>>) -> Result<(), Error> {
        if self.armed == deadline {
            return Ok(());
        }
        self.program(deadline)?;
        self.armed = deadline;
        // An expiry of the former setting that tokio has seen and nobody has waited for is stale
        // now.
        let _: std::io::Result<()> =
            self.descriptor.try_io(Interest::READABLE, |_| Err(std::io::ErrorKind::WouldBlock.into()));
        Ok(())
    }

    /// Waits until the deadline has passed; for ever if the timer is stopped. Can be dropped and
    /// called again. Returns at once while a passed deadline is still set.
    ///
    /// # Errors
    /// Returns an error if the runtime is shutting down.
    pub async fn expired(&self) -> Result<(), Error> {
        loop {
            if self.armed.is_some_and(|deadline| MonotonicClock.now() >= deadline) {
                return Ok(());
            }
            let mut guard = self.descriptor.readable().await.map_err(Error::system("wait for a timer"))?;
            guard.clear_ready();
            // Too early: an expiry of a former setting. Setting the timer again makes sure that no
            // edge is lost.
            if self.armed.is_some_and(|deadline| MonotonicClock.now() < deadline) {
                self.program(self.armed)?;
            }
        }
    }

    fn program(&self, deadline: Option<Timestamp<Monotonic>>) -> Result<(), Error> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // All zero would stop the timer instead of expiring at once.
        let value = deadline.map_or(zero, |at| {
            let ns = at.as_ns().max(1);
            Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 }
        });
        let time = Itimerspec { it_interval: zero, it_value: value };
        rustix::time::timerfd_settime(self.descriptor.get_ref(), TimerfdTimerFlags::ABSTIME, &time)
            .map(drop)
            .map_err(Error::system("set a timer"))
    }
}

/// Sleeps until something is written into a pipe or its writing end is closed, at most for `limit`;
/// returns true if that happened. A signal that this thread handles ends the sleep early, so that a
/// flag set by a handler need not be polled often.
///
/// # Errors
/// Returns an error if the system refuses.
pub fn sleep_unless_told(pipe: BorrowedFd<'_>, limit: std::time::Duration) -> Result<bool, Error> {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    let mut set = [PollFd::from_borrowed_fd(pipe, PollFlags::IN)];
    match rustix::event::poll(&mut set, Some(&limit)) {
        Ok(_) => Ok(!set[0].revents().is_empty()),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(Error::system("wait for a thread")(error)),
    }
}

/// Lets the kernel delay this thread's sleeps by at most 1 µs (the default is 50 µs). A timerfd is
/// exact without it; sleeps in `poll`, futexes and the like are not.
///
/// # Errors
/// Returns an error if the system refuses.
pub fn reduce_timer_slack() -> Result<(), Error> {
    const ONE_MICROSECOND: Option<NonZeroU64> = NonZeroU64::new(1_000);
    rustix::thread::set_current_timer_slack(ONE_MICROSECOND).map_err(Error::system("set the timer slack"))
}

/// The calling thread's timer slack, ns.
///
/// # Errors
/// Returns an error if the system refuses.
pub(crate) fn timer_slack_ns() -> Result<u64, Error> {
    rustix::thread::current_timer_slack().map_err(Error::system("read the timer slack"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use super::sleep_unless_told;

    #[test]
    fn a_sleep_ends_by_a_word_or_by_the_end_of_all_who_could_say_one() {
        let (moment, long) = (Duration::from_millis(20), Duration::from_secs(60));
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        assert!(!sleep_unless_told(reader.as_fd(), moment).expect("a pipe can be waited for"));
        // As a process that was forked off has it.
        let other = writer.try_clone().expect("a descriptor");
        writer.write_all(&[0]).expect("it fits");
        drop(writer);
        assert!(sleep_unless_told(reader.as_fd(), long).expect("told"));
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(writer);
        assert!(sleep_unless_told(reader.as_fd(), long).expect("closed"));
        drop(other);
    }
}
