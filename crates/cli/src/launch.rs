//! How the ranks of a run find each other: mpirun, torchrun-style variables or `--local`.

use std::env;
#[cfg(feature = "mpi")]
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use probe_sync::collective::{
    Collective, Deadline, EarlierRun, JobKey, Led, MAX_RANKS, Meeting, Tcp, TcpOptions, UniqueId, bind,
    bind_everywhere, join_by, publish, store,
};
use probe_sync::{Config, KeyFile, config};
use probe_sync_formats::words::counted;
use probe_sync_sys::interfaces::own_addresses;
use probe_sync_sys::process::allow_open_files;

use crate::output::Usage;
use crate::status::Status;

/// The connection of this process to the other ranks.
pub enum Ranks {
    /// Over MPI.
    #[cfg(feature = "mpi")]
    Mpi(Box<Led<probe_sync::mpi::MpiCollective>>),
    /// Over TCP.
    Tcp(Box<Led<Tcp>>),
}

/// Printed if nothing tells this process its rank.
pub const HOW_TO_START: &str = "the rank of this process is unknown: start it with `mpirun -n N probe_sync`, with RANK, WORLD_SIZE, \
    MASTER_ADDR and MASTER_PORT set, or as `probe_sync run --local N`";

impl Ranks {
    /// Initialises MPI if mpirun started this process, for a run led by `master`; otherwise returns
    /// `None`.
    ///
    /// # Errors
    /// Returns an error that tells how to rebuild a binary without MPI that was started by mpirun.
    pub fn from_mpirun(master: usize) -> anyhow::Result<Option<Self>> {
        if !under_mpirun() || local_child() {
            return Ok(None);
        }
        #[cfg(feature = "mpi")]
        {
            // Each process goes by what it was told itself. Where they were not told the same there
            // is one order all the same, and the hand-shake refuses the difference.
            match probe_sync::mpi::MpiCollective::init_placed(|rank, size| Led::place(master, rank, size)) {
                Ok(joined) => Ok(Some(Self::Mpi(Box::new(Led::new(joined, master))))),
                // Whoever misses somebody says so, whatever its rank; the others wait for it and
                // know nothing.
                Err(late @ probe_sync::collective::Error::Late { .. }) => {
                    let told =
                        format!("probe_sync: {}{late}; {}\n", rank_prefix(), probe_sync_sys::neighbours::advice());
                    let _nobody_to_tell = std::io::stderr().write_all(told.as_bytes());
                    probe_sync::mpi::abort_job();
                    Err(late.into())
                }
                Err(other) => Err(other.into()),
            }
        }
        #[cfg(not(feature = "mpi"))]
        {
            let _over_tcp_it_is_told_again = master;
            without_mpi(env::var_os("RANK").is_some()).map(|()| None)
        }
    }

    /// Connects over TCP as described by torchrun-style variables, for a run with this
    /// configuration if it is valid, until `stop` is set; `None` if there are no such variables. A
    /// restarted rank finds in the run directory who took over rank 0.
    ///
    /// # Errors
    /// Names the missing or invalid variable, what is wrong with the key file, or the ranks that
    /// did not connect.
    pub fn from_variables(stop: &Arc<AtomicBool>, config: Option<&Config>) -> anyhow::Result<Option<Self>> {
        if env::var_os("RANK").is_none() {
            return Ok(None);
        }
        if let Some(parent) = env::var("PROBE_SYNC_PARENT").ok().and_then(|pid| pid.parse().ok()) {
            probe_sync_sys::process::end_with_parent(parent)?;
        }
        let rank: usize = variable("RANK")?;
        let size: usize = variable("WORLD_SIZE")?;
        if rank >= size || size > MAX_RANKS {
            let reason = format!("RANK={rank} must be less than WORLD_SIZE={size}, which must be at most {MAX_RANKS}");
            return Err(anyhow::anyhow!(reason).context(Usage));
        }
        let master = config.map_or(0, |config| config.master as usize);
        let mut earlier = config.map(|config| probe_sync::kept_successors(&config.out, rank)).unwrap_or_default();
        // They are kept by rank, and a group with another master knows its ranks by their places.
        earlier.successors.iter_mut().for_each(|(rank, _)| *rank = Led::place(master, *rank, size));
        let place = (Led::place(master, rank, size), size);
        let met = meet(place, &earlier, stop, config, master).map_err(|error| {
            match error.downcast::<probe_sync::collective::Error>() {
                Ok(error) if master == 0 || master >= size => error.into(),
                Ok(error) => anyhow::Error::new(Led::named(master, size, error))
                    .context(format!("with --master {master}, where rank {master} listens in place of rank 0")),
                Err(other) => other,
            }
        })?;
        Ok(Some(Self::over_tcp(met, master)))
    }

    /// A group over TCP led by `master`.
    pub fn over_tcp(tcp: Tcp, master: usize) -> Self {
        Self::Tcp(Box::new(Led::new(tcp, master)))
    }

    /// The backend.
    pub fn collective(&mut self) -> &mut dyn Collective {
        match self {
            #[cfg(feature = "mpi")]
            Self::Mpi(mpi) => mpi.as_mut(),
            Self::Tcp(tcp) => tcp.as_mut(),
        }
    }

    /// Called after all ranks have met and have split into other groups: over TCP the connections
    /// of the meeting are closed. MPI stays initialised until the process ends.
    pub fn met(self) -> Option<Self> {
        match self {
            #[cfg(feature = "mpi")]
            Self::Mpi(_) => Some(self),
            Self::Tcp(_) => None,
        }
    }

    /// Leaves the group. Returns the numbers of ranks whose processes hang and keep the launcher
    /// from ending the job.
    pub fn leave(self) -> Vec<usize> {
        match self {
            #[cfg(feature = "mpi")]
            Self::Mpi(mpi) => {
                let (group, master) = mpi.into_parts();
                group.leave().into_iter().map(|place| Led::place(master, place, usize::MAX)).collect()
            }
            Self::Tcp(_) => Vec::new(),
        }
    }

    /// The local address of the route to the master, if the backend knows it.
    pub fn towards_root(&self) -> Option<IpAddr> {
        match self {
            #[cfg(feature = "mpi")]
            Self::Mpi(_) => None,
            Self::Tcp(tcp) => Some(tcp.inner().local_ip()),
        }
    }
}

/// Ends the job with this status if hung processes would keep it from ending. Everything must have
/// been printed before.
pub fn end_job_of_hung(hung: &[usize], status: Status) {
    if hung.is_empty() {
        return;
    }
    let numbers = hung.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    tracing::warn!("the run is complete, but the process of rank(s) {numbers} still hangs; ending the job");
    #[cfg(feature = "mpi")]
    probe_sync::mpi::end_job(status as i32);
    #[cfg(not(feature = "mpi"))]
    let _ = status;
}

/// Raises the limit of this process to one file descriptor per rank: any rank may become the
/// master, which needs them.
pub fn allow_connections(size: usize) {
    // Where that is not enough the master says so when they run out.
    if let Err(error) = allow_open_files((size + OTHER_DESCRIPTORS) as u64) {
        tracing::warn!("{error}");
    }
}

/// Descriptors for files, probes, ranks that send files, new ranks and foreign connections.
const OTHER_DESCRIPTORS: usize = 512;

/// Connects to the others over TCP, in this `place` of a group of `size`: place 0, the master's,
/// listens.
fn meet(
    (place, size): (usize, usize),
    earlier: &EarlierRun,
    stop: &Arc<AtomicBool>,
    config: Option<&Config>,
    master: usize,
) -> anyhow::Result<Tcp> {
    allow_connections(size);
    let key_file = config.and_then(|config| config.key_file.as_deref());
    let limit = config.and_then(Config::begin_after).unwrap_or_default().max(rendezvous_limit()?);
    let deadline = Deadline::new(limit, Some(Arc::clone(stop)));
    if let Ok(id) = env::var(ID) {
        if place == 0 {
            let reason = format!("{ID} tells other ranks how to find rank {master}; unset it for RANK={master}");
            return Err(anyhow::anyhow!(reason).context(Usage));
        }
        let id: Result<UniqueId, _> = id.parse();
        let id = id.map_err(|error| anyhow::anyhow!("{ID}: {error}").context(Usage))?;
        return Ok(id.join_or_return(place, size, earlier, &deadline)?);
    }
    if let Ok(rendezvous) = env::var(RENDEZVOUS) {
        let store = store(&rendezvous);
        let mut store = store.map_err(|error| anyhow::anyhow!("{RENDEZVOUS}: {error}").context(Usage))?;
        let _notice = WaitNotice::begin(awaited(place, size, master, &format!("by {RENDEZVOUS}={rendezvous}")));
        let (name, key) = (job_name(|name| env::var(name).ok()), job_key(key_file, |name| env::var(name).ok())?.key);
        if place > 0 {
            return Ok(join_by(store.as_mut(), &name, key, place, size, earlier, &deadline)?);
        }
        let meeting = Meeting::open(&own_addresses()?)?;
        if let Some(returned) = meeting.return_as_rank_0(earlier, size, &deadline)? {
            return Ok(returned);
        }
        publish(store.as_mut(), &name, &meeting, &deadline)?;
        return Ok(meeting.keyed_by(key).host_after(config.and_then(Config::begin_after), size, &deadline)?);
    }
    let host = env::var("MASTER_ADDR")
        .with_context(|| format!("RANK is set but MASTER_ADDR is not: set it to the host of rank {master}"))
        .context(Usage)?;
    let host = without_brackets(&host);
    check_torchruns_host(master, size, |name| env::var(name).ok())?;
    let port = master_port()?;
    let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let job = job_key(key_file, |name| env::var(name).ok())?;
    // Within a host the system says who is at the other end.
    let options = TcpOptions { same_user: job.guessable.is_some(), ..options(config)? };
    let _notice = WaitNotice::begin(awaited(place, size, master, &format!("at {address}")));
    if place > 0 {
        return Ok(Tcp::join_or_return(&[address], earlier, place, size, job.key, options, &deadline)?);
    }
    // Before it listens: whoever is started again meanwhile is to look for the others.
    if let Some(returned) = Tcp::return_as_rank_0(earlier, size, job.key, options, &deadline)? {
        return Ok(returned);
    }
    let listener = listen(host, port)?;
    if let (Some(guessable), false) = (&job.guessable, is_loopback(host)) {
        tracing::info!(
            "ranks identify themselves by {guessable}, which is guessable: anyone who can reach port {port} can impersonate a rank; \
            use --key-file to prevent this"
        );
    }
    Ok(Tcp::host_with(listener, size, job.key, options, &deadline)?)
}

/// Describes what a rank waits for.
fn awaited(place: usize, size: usize, master: usize, meeting_point: &str) -> String {
    match place {
        0 => format!("waiting for {} {meeting_point}", counted(size - 1, "other rank")),
        _ => format!("waiting for rank {master} {meeting_point}"),
    }
}

/// Prints what this process waits for, if it takes longer than [`SILENCE`].
struct WaitNotice {
    _ended: mpsc::Sender<()>,
}

impl WaitNotice {
    /// Starts a wait that lasts until the notice is dropped.
    fn begin(text: String) -> Self {
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || {
            if end.recv_timeout(SILENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                tracing::info!("{text}");
            }
        });
        Self { _ended: ended }
    }
}

/// How long a rank waits for others before it prints a notice.
const SILENCE: Duration = Duration::from_secs(2);

/// Connection options from the environment and the configuration.
fn options(config: Option<&Config>) -> anyhow::Result<TcpOptions> {
    let mut options = TcpOptions::from_environment()?;
    options.begin_after = config.and_then(Config::begin_after);
    Ok(options)
}

/// torchrun sets MASTER_ADDR itself, to the host of the lowest ranks: a master on another host
/// would not be found there. All ranks detect that alike.
fn check_torchruns_host(master: usize, size: usize, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<()> {
    let on_first = variable("LOCAL_WORLD_SIZE").and_then(|text| text.parse::<usize>().ok());
    match (variable("TORCHELASTIC_RUN_ID"), on_first) {
        (Some(_), Some(on_first)) if (on_first..size).contains(&master) => Err(anyhow::anyhow!(
            "--master {master}: torchrun's MASTER_ADDR is the host of ranks 0 to {}, and the other ranks would look for rank {master} \
            there. Name one of these ranks, or let the ranks meet through a store: {RENDEZVOUS}",
            on_first - 1
        )
        .context(Usage)),
        _ => Ok(()),
    }
}

/// Decides what a binary without MPI does under mpirun: with a rank in the environment, mpirun
/// merely launches processes that find each other over TCP.
#[cfg(any(not(feature = "mpi"), test))]
fn without_mpi(has_rank: bool) -> anyhow::Result<()> {
    if has_rank {
        return Ok(());
    }
    let reason = "started under MPI, but this binary was built without it: rebuild it with \
         `cargo build --release -p probe-sync-cli --features mpi`, or start it with torchrun-style variables";
    Err(anyhow::anyhow!(reason).context(Usage))
}

/// True for the one process that prints messages: rank 0, or a process without ranks; with
/// `--local` the one that starts the others.
pub fn speaks() -> bool {
    rank_text().is_none_or(|rank| rank == "0" && !local_child())
}

/// `rank N: ` if there are ranks.
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

/// Whether this process was started by `--local`, which its children are told; this takes
/// precedence over an mpirun further up.
pub fn local_child() -> bool {
    env::var_os("PROBE_SYNC_PARENT").is_some()
}

/// The secret by which the ranks of a run recognise each other.
struct RankKey {
    /// The key.
    key: JobKey,
    /// The value it was derived from, if others can find that out.
    guessable: Option<String>,
}

/// The key file, otherwise `PROBE_SYNC_JOB`, otherwise the launcher's name of the job.
///
/// # Errors
/// States what is wrong with the key file.
fn job_key(key_file: Option<&Path>, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<RankKey> {
    if let Some(path) = key_file {
        return Ok(RankKey { key: KeyFile::read(path)?.job_key(), guessable: None });
    }
    if let Some(job) = variable("PROBE_SYNC_JOB") {
        return Ok(RankKey { key: JobKey::of(job.as_bytes()), guessable: None });
    }
    let named = JOB_NAMES.iter().find_map(|name| variable(name).map(|value| (*name, value)));
    let (origin, value) = named.unwrap_or(("nothing but the port", String::new()));
    Ok(RankKey { key: JobKey::of(format!("{origin}={value}").as_bytes()), guessable: Some(origin.to_owned()) })
}

/// What distinguishes the entry of this job in a rendezvous from that of an earlier job: the
/// launcher's name of the job, if any.
fn job_name(variable: impl Fn(&str) -> Option<String>) -> String {
    JOB_NAMES.iter().find_map(|name| Some(format!("{name}={}", variable(name)?))).unwrap_or_default()
}

/// torchrun's own store listens on MASTER_PORT, so the next port is used.
fn master_port() -> anyhow::Result<u16> {
    // Kubernetes tells of a service probe-sync-master by the same name.
    if env::var("PROBE_SYNC_MASTER_PORT").is_ok_and(|text| !config::is_service_link("MASTER_PORT", &text)) {
        return port("PROBE_SYNC_MASTER_PORT");
    }
    let port = port("MASTER_PORT")?;
    Ok(if env::var_os("TORCHELASTIC_RUN_ID").is_some() { port.saturating_add(1) } else { port })
}

/// A port at which several ranks can meet.
fn port(name: &str) -> anyhow::Result<u16> {
    match variable(name)? {
        0 if variable::<usize>("WORLD_SIZE")? > 1 => Err(anyhow::anyhow!(
            "{name}=0: the other ranks would not know rank 0's port; name a port that is free on rank 0's host"
        )
        .context(Usage)),
        port => Ok(port),
    }
}

fn variable<T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(name: &str) -> anyhow::Result<T> {
    let text = env::var(name).with_context(|| format!("RANK is set but {name} is not")).context(Usage)?;
    text.trim().parse().with_context(|| format!("{name}=\"{text}\"")).context(Usage)
}

/// Removes the brackets of an address such as [fd77::10].
fn without_brackets(host: &str) -> &str {
    let host = host.trim();
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Where rank 0 listens: on loopback if MASTER_ADDR is a loopback address, otherwise on all
/// addresses. Its own name may resolve to 127.0.1.1, and its address may be translated by a router.
fn listen(host: &str, port: u16) -> anyhow::Result<TcpListener> {
    match host.parse::<IpAddr>() {
        Ok(address) if address.is_loopback() => Ok(bind(SocketAddr::new(address, port))?),
        _ => Ok(bind_everywhere(port)?),
    }
}

fn is_loopback(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// How long ranks look for each other; `PROBE_SYNC_RENDEZVOUS_TIMEOUT` overrides it.
fn rendezvous_limit() -> anyhow::Result<Duration> {
    let Ok(text) = env::var("PROBE_SYNC_RENDEZVOUS_TIMEOUT") else { return Ok(RENDEZVOUS_LIMIT) };
    let limit = config::duration(&text).map_err(|reason| anyhow::anyhow!("PROBE_SYNC_RENDEZVOUS_TIMEOUT: {reason}"))?;
    Ok(limit.to_std())
}

/// The variable in which rank 0 passes its id to the others, if it starts them itself.
pub const ID: &str = "PROBE_SYNC_ID";

/// The variable that names a store through which ranks meet, in place of `MASTER_ADDR` and
/// `MASTER_PORT`.
const RENDEZVOUS: &str = "PROBE_SYNC_RENDEZVOUS";
const RENDEZVOUS_LIMIT: Duration = Duration::from_secs(60);

/// Variables in which launchers name a job, equal on all its ranks. Anyone who may list jobs can
/// see them.
const JOB_NAMES: [&str; 6] =
    ["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE", "FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_recognised_by_what_their_launcher_knows() {
        let key = |set: &[(&str, &str)]| {
            let variable =
                |asked: &str| set.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned());
            job_key(None, variable).expect("no file to read")
        };
        let slurm = key(&[("SLURM_JOB_ID", "77")]);
        assert_eq!(slurm.guessable.as_deref(), Some("SLURM_JOB_ID"));
        assert_eq!(slurm.key, key(&[("SLURM_JOB_ID", "77"), ("PBS_JOBID", "9")]).key);
        assert_ne!(slurm.key, key(&[("SLURM_JOB_ID", "78")]).key);
        assert_ne!(slurm.key, key(&[("PBS_JOBID", "77")]).key);
        let given = key(&[("PROBE_SYNC_JOB", "s"), ("TORCHELASTIC_RUN_ID", "none")]);
        assert!(given.guessable.is_none() && given.key == JobKey::of(b"s"));
        assert!(key(&[]).guessable.is_some_and(|origin| origin.contains("port")));
        let missing = job_key(Some(Path::new("/no/such/key")), |_| None).map(|_| ()).expect_err("no file");
        assert!(missing.to_string().contains("/no/such/key"), "{missing}");
    }

    #[test]
    fn a_master_that_torchruns_address_does_not_lead_to_is_refused() {
        let check = |master: usize, run: Option<&str>| {
            let set = [("TORCHELASTIC_RUN_ID", run), ("LOCAL_WORLD_SIZE", Some("2"))];
            let variable = |asked: &str| set.iter().find(|(name, _)| *name == asked)?.1.map(str::to_owned);
            check_torchruns_host(master, 4, variable).map_err(|error| format!("{error:?}"))
        };
        assert!(check(1, Some("job")).is_ok() && check(2, None).is_ok());
        let error = check(2, Some("job")).expect_err("rank 2 is on the second host");
        assert!(
            error.contains("--master 2") && error.contains("ranks 0 to 1") && error.contains(RENDEZVOUS),
            "{error}"
        );
    }

    #[test]
    fn a_binary_without_mpi_says_how_to_rebuild() {
        let error = format!("{:?}", without_mpi(false).expect_err("mpirun alone"));
        assert!(error.contains("--features mpi") && error.contains("torchrun"), "{error}");
        without_mpi(true).expect("a launcher of processes over TCP");
    }
}
