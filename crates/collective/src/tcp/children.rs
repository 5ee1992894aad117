//! Accepts the connections of a tree rank's children.
//!
//! This has its own thread, so that a child's greeting does not wait until its parent is in an
//! operation; `branch` takes the connections and decides which ranks they belong to. The thread
//! costs nothing while it sleeps.

use std::io::{PipeReader, PipeWriter, Write as _};
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::PollFlags;

use super::connection::Connection;
use super::greeting::{Errand, Verdict};
use super::newcomers::{Expected, Newcomers};
use super::sockets::poll_sockets;
use crate::{Error, Rank};

/// The thread that admits children. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Children {
    came: Receiver<Connection>,
    /// Becomes readable when one has connected; kept open for `peers`, which watches it.
    bell: PipeReader,
    /// Writing to it ends the thread.
    open: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Children {
    /// Admits ranks that connect to `listener`, which belongs to this `rank`.
    ///
    /// # Errors
    /// Returns an error if the system cannot provide a thread or a pipe.
    pub fn open(listener: TcpListener, rank: Rank, expected: Expected) -> Result<Self, Error> {
        let setup = |error: std::io::Error| Error::Setup {
            what: "accepting ranks of the tree".to_owned(),
            reason: error.to_string(),
        };
        let (closed, open) = std::io::pipe().map_err(setup)?;
        let (bell, ring) = std::io::pipe().map_err(setup)?;
        listener.set_nonblocking(true).map_err(setup)?;
        rustix::io::ioctl_fionbio(&ring, true).map_err(|error| setup(error.into()))?;
        let (sender, came) = channel();
        let newcomers = Newcomers::at(rank, expected);
        let body = move || serve(&listener, &closed, ring, &sender, newcomers);
        let thread = std::thread::Builder::new().name("children".into()).spawn(body).map_err(setup)?;
        Ok(Self { came, bell, open: Some(open), thread: Some(thread) })
    }

    /// Returns the pipe that signals a new child.
    pub fn bell(&self) -> &PipeReader {
        &self.bell
    }

    /// Removes and returns the children that have connected since the previous call.
    pub fn came(&self) -> Vec<Connection> {
        self.came.try_iter().collect()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        if let Some(mut open) = self.open.take() {
            let _ = open.write(&[0]);
        }
        if let Some(thread) = self.thread.take() {
            // It does nothing that blocks; if it has panicked, children go to the root.
            let _ = thread.join();
        }
    }
}

fn serve(
    listener: &TcpListener,
    closed: &PipeReader,
    mut ring: PipeWriter,
    came: &Sender<Connection>,
    mut newcomers: Newcomers,
) {
    loop {
        let idle = newcomers.is_empty();
        let mut sockets = vec![(closed.as_fd(), PollFlags::IN), (listener.as_fd(), PollFlags::IN)];
        sockets.extend(newcomers.sockets());
        let ready = match poll_sockets(&sockets, if idle { IDLE } else { TICK }, OPERATION) {
            Ok(ready) if ready[0] => return,
            Ok(ready) => ready,
            Err(error) => {
                tracing::warn!("{error}");
                return;
            }
        };
        let proven = newcomers.advance(&ready[2..], |_| false).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            Vec::new()
        });
        for child in proven {
            if child.errand != Errand::Child {
                child.refuse(Verdict::NoSuchRank);
            } else if let Some(connection) = child.welcome(Verdict::Welcome) {
                let _ = came.send(connection);
                // A full pipe has told it already.
                let _ = ring.write(&[0]);
            }
        }
        let accepted = if ready[1] { newcomers.accept(listener) } else { Ok(()) };
        if let Err(error) = accepted {
            tracing::warn!("{error}");
            // Only the end counts until the cause has passed.
            let _ = poll_sockets(&[(closed.as_fd(), PollFlags::IN)], TICK, OPERATION);
        }
    }
}

const OPERATION: &str = "accepting ranks of the tree";

/// Time between two checks while a connection has a time limit.
const TICK: Duration = Duration::from_millis(50);

/// Longest sleep when there are no connections; ending the thread wakes it.
const IDLE: Duration = Duration::from_secs(3600);
