//! Waits for a [`TimestampedUdp`] and a timer in one tokio task.
//!
//! The node's probe task is a loop: [`wait`], empty the queues that are ready, send the packets
//! that are due.
//!
//! # Edges
//! tokio watches descriptors with edge-triggered epoll. A transmit stamp raises `EPOLLERR`, which
//! tokio reports only to those who ask for [`Interest::ERROR`]. An edge comes once, when something
//! is added to an empty queue; who clears it and leaves the queue half full waits for ever. So an
//! edge sets a flag here, tokio's readiness is cleared at once (before the queues are read, so that
//! an edge during reading is seen again), and the flag is cleared only when the queue itself said
//! that it is empty. While a flag is set, waiting returns at once.
//!
//! `Interest::WRITABLE` is left out on purpose: every packet that leaves would be an edge, and with
//! an error pending tokio would take the write side for closed for good.
//!
//! # Polling
//! Kernel and interface stamps do not care when user code looks. [`AsyncUdp::polled`] leaves the
//! socket out of epoll: packets and stamps wake nobody, the task looks when its timer says so
//! ([`AsyncUdp::look`]), and takes all that came by a few system calls.
//!
//! It does not ensure fairness; the caller bounds how much it takes from each queue per turn.

use std::future::{Future, pending, poll_fn};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::pin;
use std::task::Poll;

use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

use probe_sync_time::Stamp;

use super::{NetworkError, Outgoing, Received, SendError, SendToken, TimestampedUdp, UdpOptions};
use crate::Error;
use crate::timer::Timer;

/// A [`TimestampedUdp`] that can be waited for.
pub struct AsyncUdp {
    udp: TimestampedUdp,
    /// `None` while polled.
    watch: Option<AsyncFd<RawFd>>,
    readable: bool,
    stamped: bool,
}

/// What ended a wait; several may apply.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// Datagrams may have arrived: call [`AsyncUdp::try_recv`] until it returns `None`.
    pub readable: bool,
    /// Transmit timestamps or network errors may have arrived: call
    /// [`AsyncUdp::try_transmit_stamp`] until it returns `None`.
    pub stamped: bool,
    /// The timer's deadline has passed.
    pub expired: bool,
}

impl AsyncUdp {
    /// Opens the socket and registers it with the runtime.
    ///
    /// # Errors
    /// As [`TimestampedUdp::bind`].
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with I/O enabled.
    pub fn bind(options: &UdpOptions) -> Result<Self, Error> {
        Self::new(TimestampedUdp::bind(options)?)
    }

    /// Registers a socket with the runtime.
    ///
    /// # Errors
    /// Returns an error if the system is out of epoll watches.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with I/O enabled.
    pub fn new(udp: TimestampedUdp) -> Result<Self, Error> {
        let mut polled = Self::polled(udp);
        polled.watch()?;
        Ok(polled)
    }

    /// Wraps a socket that does not wake tasks: call [`AsyncUdp::look`] when it should be checked.
    pub fn polled(udp: TimestampedUdp) -> Self {
        // What came before has no edge of its own.
        Self { watch: None, udp, readable: true, stamped: true }
    }

    /// From now on datagrams and timestamps wake the task. Does nothing if they do so already.
    ///
    /// # Errors
    /// Returns an error if the system is out of epoll watches.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with I/O enabled.
    pub fn watch(&mut self) -> Result<(), Error> {
        if self.watch.is_none() {
            // SAFETY: the descriptor belongs to the socket in `udp`, which is never replaced and
            // which outlives `watch`: `Drop` takes the watch first.
            let watch =
                unsafe { AsyncFd::register_with_interest(self.udp.as_raw_fd(), Interest::READABLE | Interest::ERROR) };
            self.watch = Some(watch.map_err(Error::system("watch the probe socket"))?);
            (self.readable, self.stamped) = (true, true);
        }
        Ok(())
    }

    /// True while datagrams and timestamps do not wake tasks.
    pub fn is_polled(&self) -> bool {
        self.watch.is_none()
    }

    /// Datagrams, and timestamps if some are awaited, may have arrived unannounced: the next calls
    /// check the socket.
    pub fn look(&mut self) {
        self.readable = true;
        self.stamped |= self.udp.stamps_awaited() > 0;
    }

    /// Network errors may have arrived unannounced: the next call for a timestamp checks the
    /// socket. An occasional call is enough.
    pub fn look_for_errors(&mut self) {
        self.stamped = true;
    }

    /// The socket, for its addresses and counters.
    pub fn udp(&self) -> &TimestampedUdp {
        &self.udp
    }

    /// As [`TimestampedUdp::try_lost_stamp`].
    pub fn try_lost_stamp(&mut self) -> Option<SendToken> {
        self.udp.try_lost_stamp()
    }

    /// As [`TimestampedUdp::take_network_error`].
    pub fn take_network_error(&mut self) -> Option<NetworkError> {
        self.udp.take_network_error()
    }

    /// As [`TimestampedUdp::try_send`].
    ///
    /// # Errors
    /// As there.
    pub fn try_send(&mut self, bytes: &[u8], to: SocketAddr) -> Result<SendToken, SendError> {
        // The stamp may be there before the send returns, on loopback it always is: look, do not
        // wait for the edge.
        self.stamped = true;
        self.udp.try_send(bytes, to)
    }

    /// As [`TimestampedUdp::send_batch`].
    pub fn send_batch(
        &mut self,
        packets: &[Outgoing<'_>],
        sent: impl FnMut(usize, Result<Option<SendToken>, SendError>),
    ) {
        self.stamped |= packets.iter().any(|packet| packet.stamped);
        self.udp.send_batch(packets, sent);
    }

    /// As [`TimestampedUdp::try_recv`].
    ///
    /// # Errors
    /// As there.
    pub fn try_recv(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, Error> {
        if !self.readable {
            return Ok(None);
        }
        let received = self.udp.try_recv(buffer)?;
        self.readable = received.is_some() || !self.udp.inbox_exhausted();
        Ok(received)
    }

    /// As [`TimestampedUdp::try_transmit_stamp`].
    ///
    /// # Errors
    /// As there.
    pub fn try_transmit_stamp(&mut self) -> Result<Option<(SendToken, Stamp)>, Error> {
        if !self.stamped {
            return Ok(None);
        }
        let stamped = self.udp.try_transmit_stamp()?;
        self.stamped = stamped.is_some() || !self.udp.errors_exhausted();
        Ok(stamped)
    }

    /// Waits until datagrams or timestamps may be there; for ever while polled and nothing was
    /// left. Can be dropped and called again without loss.
    ///
    /// # Errors
    /// Returns an error if the runtime is shutting down.
    pub async fn ready(&mut self) -> Result<Wake, Error> {
        if !self.readable && !self.stamped {
            let Some(watch) = &self.watch else { return pending().await };
            let mut guard = watch
                .ready(Interest::READABLE | Interest::ERROR)
                .await
                .map_err(Error::system("wait for the probe socket"))?;
            let ready = guard.ready();
            guard.clear_ready();
            self.readable |= ready.is_readable();
            // A pending socket error hides behind EPOLLERR too; looking at the error queue costs
            // one call.
            self.stamped |= ready & Ready::ERROR != Ready::EMPTY;
        }
        Ok(Wake { readable: self.readable, stamped: self.stamped, expired: false })
    }
}

impl Drop for AsyncUdp {
    /// The watch ends before the descriptor is closed.
    fn drop(&mut self) {
        self.watch = None;
    }
}

/// Waits until datagrams or timestamps may be there or the timer's deadline has passed. Can be
/// dropped and called again without loss.
///
/// # Errors
/// Returns an error if the runtime is shutting down.
pub async fn wait(udp: &mut AsyncUdp, timer: &Timer) -> Result<Wake, Error> {
    let mut ready = pin!(udp.ready());
    let mut expired = pin!(timer.expired());
    poll_fn(|context| {
        // The timer first: a flood of datagrams must not keep the schedule from being looked at.
        let expired = match expired.as_mut().poll(context) {
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => false,
        };
        match ready.as_mut().poll(context) {
            Poll::Ready(Ok(wake)) => Poll::Ready(Ok(Wake { expired, ..wake })),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending if expired => Poll::Ready(Ok(Wake { expired, ..Wake::default() })),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
