//! How the ranks of a run find each other: mpirun, torchrun-style variables, or `--local`.
//!
//! What it does not do: start processes (`local`), handle signals (`signals`).

use std::env;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context as _, bail};
use probe_sync::collective::{Collective, Deadline, JobKey, Tcp, bind};
use probe_sync::config;

/// This process's place among the ranks, connected.
pub enum Ranks {
    /// Over MPI.
    #[cfg(feature = "mpi")]
    Mpi(Box<probe_sync::mpi::MpiCollective>),
    /// Over TCP.
    Tcp(Box<Tcp>),
}

/// Said when nothing tells this process its rank.
pub const HOW_TO_START: &str = "nothing says which rank this is: start it with `mpirun -n N probe_sync`, with RANK, \
     WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, or as `probe_sync run --local N`";

impl Ranks {
    /// Initialises MPI where mpirun started this process; `None` elsewhere.
    ///
    /// # Errors
    /// How to rebuild a binary without MPI that was started by mpirun.
    pub fn from_mpirun() -> anyhow::Result<Option<Self>> {
        if !under_mpirun() || local_child() {
            return Ok(None);
        }
        #[cfg(feature = "mpi")]
        {
            Ok(Some(Self::Mpi(Box::new(probe_sync::mpi::MpiCollective::init()?))))
        }
        #[cfg(not(feature = "mpi"))]
        without_mpi(env::var_os("RANK").is_some()).map(|()| None)
    }

    /// Connects over TCP as torchrun-style variables say; `None` when there are none.
    ///
    /// # Errors
    /// Names the variable that is missing or wrong, or the ranks that did not come.
    pub fn from_variables() -> anyhow::Result<Option<Self>> {
        if env::var_os("RANK").is_none() {
            return Ok(None);
        }
        if let Some(parent) = env::var("PROBE_SYNC_PARENT").ok().and_then(|pid| pid.parse().ok()) {
            probe_sync_sys::process::end_with_parent(parent)?;
        }
        let rank: usize = variable("RANK")?;
        let size: usize = variable("WORLD_SIZE")?;
        if rank >= size || size > MAX_RANKS {
            bail!("RANK={rank} must be below WORLD_SIZE={size}, and that at most {MAX_RANKS}");
        }
        let host = env::var("MASTER_ADDR").context("RANK is set but MASTER_ADDR is not: it names rank 0's host")?;
        let port = master_port()?;
        let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let deadline = Deadline::new(rendezvous_limit()?, None);
        let job = JobKey(env::var("PROBE_SYNC_JOB").ok().and_then(|key| key.parse().ok()).unwrap_or(0));
        if rank == 0 {
            Self::host(bind(resolve(&address)?)?, size, job, &deadline).map(Some)
        } else {
            Ok(Some(Self::Tcp(Box::new(Tcp::join(&address, rank, size, job, &deadline)?))))
        }
    }

    /// Rank 0 of a run whose listener exists already.
    ///
    /// # Errors
    /// Names the ranks that did not connect.
    pub fn host(
        listener: std::net::TcpListener,
        size: usize,
        job: JobKey,
        deadline: &Deadline,
    ) -> anyhow::Result<Self> {
        Ok(Self::Tcp(Box::new(Tcp::host(listener, size, job, deadline)?)))
    }

    /// The backend.
    pub fn collective(&mut self) -> &mut dyn Collective {
        match self {
            #[cfg(feature = "mpi")]
            Self::Mpi(mpi) => mpi.as_mut(),
            Self::Tcp(tcp) => tcp.as_mut(),
        }
    }

    /// The local address that leads to rank 0, where the backend knows it.
    pub fn towards_root(&self) -> Option<IpAddr> {
        match self {
            #[cfg(feature = "mpi")]
            Self::Mpi(_) => None,
            Self::Tcp(tcp) => Some(tcp.local_ip()),
        }
    }
}

/// What a binary without MPI does under mpirun: with a rank in the environment mpirun is a mere launcher of processes that find
/// each other over TCP.
#[cfg(any(not(feature = "mpi"), test))]
fn without_mpi(has_rank: bool) -> anyhow::Result<()> {
    if has_rank {
        return Ok(());
    }
    bail!(
        "started by mpirun, but this binary was built without MPI: rebuild it with \
         `cargo build --release -p probe-sync-cli --features mpi`, or start it with torchrun-style variables"
    )
}

/// True for the one process that talks to people: rank 0, or a process without ranks.
pub fn speaks() -> bool {
    rank_text().is_none_or(|rank| rank == "0")
}

/// `rank N: ` where there are ranks.
pub fn rank_prefix() -> String {
    rank_text().map_or_else(String::new, |rank| format!("rank {rank}: "))
}

fn rank_text() -> Option<String> {
    let names = if local_child() { &["RANK"][..] } else { &["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK"] };
    names.iter().find_map(|name| env::var(name).ok())
}

fn under_mpirun() -> bool {
    ["OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE"].iter().any(|name| env::var_os(name).is_some())
}

/// `--local` gives its children a job key; that outranks an mpirun further up.
pub fn local_child() -> bool {
    env::var_os("PROBE_SYNC_JOB").is_some()
}

/// torchrun's own store listens on MASTER_PORT, so beside it we take the next one.
fn master_port() -> anyhow::Result<u16> {
    if env::var_os("PROBE_SYNC_MASTER_PORT").is_some() {
        return variable("PROBE_SYNC_MASTER_PORT");
    }
    let port: u16 = variable("MASTER_PORT")?;
    Ok(if env::var_os("TORCHELASTIC_RUN_ID").is_some() { port.saturating_add(1) } else { port })
}

fn variable<T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(name: &str) -> anyhow::Result<T> {
    let text = env::var(name).with_context(|| format!("RANK is set but {name} is not"))?;
    text.trim().parse().with_context(|| format!("{name}=\"{text}\""))
}

/// Where rank 0 listens: the first address that its own name has.
fn resolve(address: &str) -> anyhow::Result<SocketAddr> {
    let found = address.to_socket_addrs().with_context(|| format!("MASTER_ADDR and MASTER_PORT give {address}"))?;
    found.into_iter().next().with_context(|| format!("{address} has no address"))
}

/// How long ranks look for each other; `PROBE_SYNC_RENDEZVOUS_TIMEOUT` overrides.
fn rendezvous_limit() -> anyhow::Result<Duration> {
    let Ok(text) = env::var("PROBE_SYNC_RENDEZVOUS_TIMEOUT") else { return Ok(RENDEZVOUS_LIMIT) };
    let limit = config::duration(&text).map_err(|reason| anyhow::anyhow!("PROBE_SYNC_RENDEZVOUS_TIMEOUT: {reason}"))?;
    Ok(Duration::from_nanos(limit.as_ns().max(0).unsigned_abs()))
}

/// More ranks than anybody has; a wrong WORLD_SIZE must not make us allocate for it.
const MAX_RANKS: usize = 1 << 16;
const RENDEZVOUS_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_without_mpi_says_how_to_rebuild() {
        let error = without_mpi(false).expect_err("mpirun alone").to_string();
        assert!(error.contains("--features mpi") && error.contains("torchrun"), "{error}");
        without_mpi(true).expect("a launcher of processes over TCP");
    }
}
