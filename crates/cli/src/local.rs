//! `--local N`: this process is the master, rank 0 unless `--master` names another, and starts the
//! other ranks as processes of the same binary, over TCP on loopback.
//!
//! It listens before it starts anyone, on a port that the system chooses, so no port can be taken
//! or raced for; the others get its id in their environment. The others end with this process, or
//! when their connection to rank 0 breaks; those that have not ended after [`FAREWELL`] are killed
//! by pid.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use probe_sync::collective::{Deadline, Led, Meeting};

use crate::launch::{self, Ranks};
use crate::output::Usage;
use crate::started::Started;

/// The processes of the other ranks.
pub struct Children {
    processes: Vec<Child>,
}

/// The connection of a process to its ranks.
pub struct Connected {
    /// Its connection.
    pub ranks: Ranks,
    /// The ranks that it started itself.
    pub children: Option<Children>,
    /// The configuration as received: a rank with an invalid one still tells the others.
    pub config: Result<probe_sync::Config, probe_sync::Error>,
}

/// Connects the ranks of this process, however they were started: by mpirun, by this process
/// (`--local`, except in its children), or by a launcher that sets variables.
///
/// # Errors
/// States what is wrong with the configuration, if no other rank needs to know it; how to start
/// ranks; which ranks did not connect.
pub fn connect(
    number: Option<u32>,
    config: Result<probe_sync::Config, probe_sync::Error>,
    mpi: Option<Ranks>,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Connected> {
    let master = config.as_ref().map_or(0, |config| config.master as usize);
    match (mpi, number.filter(|_| !launch::local_child())) {
        (Some(_), Some(_)) => {
            Err(anyhow::anyhow!("--local starts its own ranks; run it without mpirun").context(Usage))
        }
        (Some(mut ranks), None) => {
            if ranks.collective().size() == 1
                && let Some(started) = Started::find(true)
            {
                // Each of them is alone in MPI: that job ends here, and what the user has said of
                // the ranks counts.
                drop(ranks);
                let named = Ranks::from_variables(stop, config.as_ref().ok())?;
                ranks = named.ok_or_else(|| anyhow::Error::new(started).context(Usage))?;
            }
            Ok(Connected { ranks, children: None, config })
        }
        (None, Some(number)) => {
            let config = Ok(config?);
            let (ranks, children) = start(number, master, stop)?;
            Ok(Connected { ranks, children: Some(children), config })
        }
        (None, None) => {
            let ranks = Ranks::from_variables(stop, config.as_ref().ok())?;
            let alone = || match Started::find(false) {
                Some(started) => anyhow::Error::new(started).context(Usage),
                None => anyhow::anyhow!(launch::HOW_TO_START).context(Usage),
            };
            let ranks = ranks.ok_or_else(alone)?;
            Ok(Connected { ranks, children: None, config })
        }
    }
}

/// Starts all ranks but the master's with the arguments of this process, and connects them.
///
/// # Errors
/// Returns an error if a process cannot be started or does not connect in time.
fn start(size: u32, master: usize, stop: &Arc<AtomicBool>) -> anyhow::Result<(Ranks, Children)> {
    launch::allow_connections(size as usize);
    let meeting = Meeting::open(&[IpAddr::V4(Ipv4Addr::LOCALHOST)])?;
    let binary = std::env::current_exe().context("cannot find this program's executable")?;
    let mut children = Children { processes: Vec::new() };
    for rank in (0..size).filter(|rank| Led::place(master, *rank as usize, size as usize) != 0) {
        let child = Command::new(&binary)
            .args(std::env::args_os().skip(1))
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", size.to_string())
            .env(launch::ID, format!("{:x}", meeting.id()))
            .env("PROBE_SYNC_PARENT", std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start rank {rank}"))?;
        children.processes.push(child);
    }
    let deadline = Deadline::new(CONNECT_LIMIT, Some(Arc::clone(stop)));
    let ranks = Ranks::over_tcp(
        meeting.host(size as usize, &deadline).map_err(|error| Led::named(master, size as usize, error))?,
        master,
    );
    Ok((ranks, children))
}

impl Children {
    /// Waits for the processes to end.
    pub fn finish(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let deadline = Instant::now() + FAREWELL;
        for child in &mut self.processes {
            while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(POLL);
            }
            if matches!(child.try_wait(), Ok(None)) {
                // It may end by itself between the question and the kill; both are an end.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        self.processes.clear();
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.end();
    }
}

const CONNECT_LIMIT: Duration = Duration::from_secs(30);
const FAREWELL: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(10);
