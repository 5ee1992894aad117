//! A rank's way to the root: it connects, proves that it belongs to the run and demands the same
//! proof.
//!
//! `rendezvous` is the other end. The root may start later: a rank retries after a failure until
//! the deadline, but not after a refusal. A rank that had an earlier process states that process's
//! run, and a root that begins a new run rejects it while the earlier one continues. Every wait
//! notices an interrupt within [`Wait::SLICE`], except name resolution.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use blake3::Hash;
use probe_sync_sys::fork;
use probe_sync_sys::tcp_peer::Peer;
use rustix::event::PollFlags;
use socket2::{Domain, Protocol, Socket, Type};

use super::connection::Connection;
use super::earlier_run::EarlierRun;
use super::frame::{Seal, Seals};
use super::greeting::{ANSWER, ANSWER_HEAD, Errand, Hello, Proofs, Verdict};
use super::job_key::JobKey;
use super::newcomers::{Expected, untrusted_peer};
use super::options::TcpOptions;
use super::process::new_process;
use super::rendezvous::{bind, bind_everywhere};
use super::sockets::poll_sockets;
use crate::labels::exchanged;
use crate::{Deadline, Error, ROOT, Rank, Wait, random_bytes};

/// Result of joining a group.
pub(super) struct Joining {
    /// Connection to the root.
    pub root: Connection,
    /// This machine's address on that connection.
    pub local: IpAddr,
    /// True if the group is running, and this rank takes the place of one that has left it.
    pub back: bool,
    /// Rank of the root. If that is not rank 0, the two have exchanged their labels.
    pub root_rank: Rank,
    /// How this rank reaches the root again.
    pub way: Way,
    /// Number of failed attempts.
    pub retries: u64,
}

/// How a rank reaches the root of its group.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub addresses: Vec<String>,
    /// Label of the rank.
    pub rank: Rank,
    pub expected: Expected,
    /// Number of this process, by which the root recognises it.
    pub process: u64,
    /// Rank of the root.
    pub root: Rank,
}

impl Way {
    /// Returns the way to a rank that may have taken over from the root in `expected`, for `rank`,
    /// which has another label there.
    pub fn to_successor(
        (successor, addresses): (Rank, &[SocketAddr]),
        rank: Rank,
        process: u64,
        expected: Expected,
    ) -> Self {
        let addresses = addresses.iter().map(ToString::to_string).collect();
        Self { addresses, rank: exchanged(successor, rank), expected, process, root: successor }
    }

    /// Tries to connect once.
    ///
    /// # Errors
    /// [`Error::Backend`] if the system has no random bytes; the inner error states why the attempt
    /// failed.
    pub fn attempt(&self, errand: Errand, wait: &mut Wait<'_>) -> Result<Result<Greeted, Attempt>, Error> {
        let Expected { size, job, fan_out, options, root } = &self.expected;
        // In a group that was met anew there is no tree.
        let fan_out = if *root == self.root { *fan_out } else { 0 };
        let hello = Hello::new(self.rank, *size, errand, random_bytes()?);
        let hello = hello.in_tree(fan_out, 0).to(self.root).of_process(self.process);
        Ok(attempt(&self.addresses, &hello, *job, options, wait))
    }

    /// Asks for this rank's place in a running group. The inner error states why it is not
    /// available.
    ///
    /// # Errors
    /// Errors of [`Self::attempt`].
    pub fn ask_back(&self, wait: &mut Wait<'_>) -> Result<Result<Greeted, Attempt>, Error> {
        Ok(match self.attempt(Errand::Return, wait)? {
            Ok(greeted) if greeted.verdict == Verdict::Back => Ok(greeted),
            Ok(_) => Err(Attempt::Refused(Verdict::NotUnderWay)),
            Err(other) => Err(other),
        })
    }
}

/// Connects to the root and greets it. If rank 0 does not answer at its `addresses`, or begins
/// another run than the `earlier` one of this rank, it asks each of the ranks that may have taken
/// over.
pub(super) fn join(
    addresses: &[String],
    earlier: &EarlierRun,
    rank: Rank,
    expected: Expected,
    port: u16,
    deadline: &Deadline,
) -> Result<Joining, Error> {
    let Expected { size, job, fan_out, options, .. } = expected;
    if rank == ROOT || rank >= size {
        let what = format!("joining as rank {rank} of {size}");
        return Err(Error::Setup { what, reason: format!("only ranks 1 to {} can join", size.saturating_sub(1)) });
    }
    let mut wait = Wait::begin(OPERATION, deadline);
    let (mut pause, mut retries, mut run, mut last_failure) = (RETRY_FIRST, 0, earlier.run, None);
    let process = new_process()?;
    let address = &addresses.join(" or ");
    let [root, own] = [ROOT, rank].map(|label| exchanged(expected.root, label));
    let refused = |reason| Error::Setup { what: format!("rank {root} at {address} refused rank {own}"), reason };
    loop {
        let hello = Hello::new(rank, size, Errand::Place, random_bytes()?)
            .in_tree(fan_out, port)
            .to(expected.root)
            .of_process(process)
            .of_run(run);
        let (mut failure, hopeless, mut over) = match attempt(addresses, &hello, job, &options, &mut wait) {
            Ok(greeted) => {
                let way = Way { addresses: addresses.to_vec(), rank, expected, process, root: expected.root };
                return Joining::of(greeted, way, retries);
            }
            Err(Attempt::Refused(verdict @ Verdict::OtherRun)) => (verdict.explain().to_owned(), false, true),
            Err(Attempt::Refused(verdict)) => return Err(refused(verdict.explain().to_owned())),
            Err(Attempt::AllForeign(reason)) => (reason, true, false),
            Err(other) => (other.reason(), false, false),
        };
        for (successor, its) in earlier.successors.iter().filter(|(successor, _)| *successor != rank) {
            let way = Way::to_successor((*successor, its), rank, process, expected);
            match way.ask_back(&mut wait)? {
                Ok(greeted) => return Joining::of(greeted, way, retries),
                Err(attempt) => {
                    over &= !attempt.may_be_a_run();
                    let reason = attempt.reason();
                    let _ = write!(failure, "; rank {successor}, its possible successor: {reason}");
                }
            }
        }
        if over {
            // Nobody is left of the run that this rank was in.
            run = 0;
            continue;
        }
        if hopeless {
            return Err(refused(failure));
        }
        let Some(slice) = wait.slice() else {
            // The end of the wait has cut this attempt short: what came of the one before says
            // more.
            return Err(unreachable(root, address, &wait, &last_failure.unwrap_or(failure)));
        };
        last_failure = Some(failure);
        std::thread::sleep(slice.min(jittered(pause, random_bytes()?)));
        retries += 1;
        pause = (pause * 2).min(RETRY_LAST);
    }
}

/// For a restarted rank 0: asks the ranks that may have taken over in its earlier run, as long as
/// one of them is alive. `None` if none is.
pub(super) fn return_as_rank_0(
    earlier: &EarlierRun,
    expected: Expected,
    deadline: &Deadline,
) -> Result<Option<Joining>, Error> {
    let mut wait = Wait::begin(OPERATION, deadline);
    let (process, mut pause, mut retries) = (new_process()?, RETRY_FIRST, 0);
    let mut seen = None;
    loop {
        let mut there = None;
        for (successor, its) in earlier.successors.iter().filter(|(successor, _)| *successor != ROOT) {
            let way = Way::to_successor((*successor, its), ROOT, process, expected);
            match way.ask_back(&mut wait)? {
                Ok(greeted) => return Joining::of(greeted, way, retries).map(Some),
                // Those after the master say nothing.
                Err(attempt) if attempt.may_be_a_run() => there = there.or(Some((*successor, its, attempt))),
                Err(_) => {}
            }
        }
        // An attempt that the end of the wait has cut short does not say that nobody is there any
        // more.
        let there = if wait.slice().is_some() { there } else { there.or(seen.take()) };
        let Some((successor, its, attempt)) = there else { return Ok(None) };
        // Another key stays another one.
        let other_key = matches!(attempt, Attempt::AllForeign(_) | Attempt::Foreign(_));
        let Some(slice) = wait.slice().filter(|_| !other_key) else {
            if wait.interrupted() {
                return Err(wait.late(vec![successor]));
            }
            return Err(not_taken_in(successor, its, &attempt.reason(), earlier.kept_in.as_deref()));
        };
        seen = Some((successor, its, attempt));
        std::thread::sleep(slice.min(jittered(pause, random_bytes()?)));
        retries += 1;
        pause = (pause * 2).min(RETRY_LAST);
    }
}

fn not_taken_in(successor: Rank, addresses: &[SocketAddr], reason: &str, kept_in: Option<&Path>) -> Error {
    let new_run = kept_in.map_or_else(String::new, |file| {
        format!(
            ". This follows from {}: if that run is over, remove the file, and those of the other ranks, to start a new run",
            file.display()
        )
    });
    let at: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    Error::Setup {
        what: format!("rejoining rank {successor} at {} as rank 0", at.join(" or ")),
        reason: format!(
            "an earlier process of rank 0 belonged to a run that may be continuing with rank {successor} as its master, but that rank \
            rejected this process: {reason}. Start this process like the earlier one, end the processes of that run, or give this one \
            another --out{new_run}"
        ),
    }
}

impl Joining {
    /// Creates the result for a rank that was greeted by its root.
    pub fn of(greeted: Greeted, way: Way, retries: u64) -> Result<Self, Error> {
        let root_rank = way.root;
        let (local, verdict) = (greeted.stream.local_addr(), greeted.verdict);
        let local = local.map(|local| local.ip().to_canonical());
        let broken = |error: io::Error| Error::Setup {
            what: format!("joining rank {root_rank}"),
            reason: format!("its connection has no address: {error}"),
        };
        let local = local.map_err(broken)?;
        Ok(Self { root: Self::connection(greeted), local, back: verdict == Verdict::Back, root_rank, way, retries })
    }

    /// Returns the connection to the root.
    pub fn connection(greeted: Greeted) -> Connection {
        Connection::new(greeted.stream, ROOT, greeted.seals)
    }
}

/// A connection on which both sides have proven to belong to the run.
pub(super) struct Greeted {
    pub stream: TcpStream,
    pub verdict: Verdict,
    /// Key of messages about a file.
    pub seal: Hash,
    /// Seals of frames.
    pub seals: Seals,
}

/// Why an attempt to join failed.
pub(super) enum Attempt {
    /// The root refused: trying again will not help.
    Refused(Verdict),
    /// Another program answers at each of its addresses: trying again will not help.
    AllForeign(String),
    /// Another program answers there.
    Foreign(String),
    /// All its addresses refuse connections: it has not started yet, or has ended.
    NobodyListens(String),
    /// No address could be reached.
    Unreachable(String),
    /// A process listens there but does not answer.
    Failed(String),
}

impl Attempt {
    /// Returns true if an earlier run of this rank may be led there: by a process of probe_sync, or
    /// by one that does not answer. A process with another key may belong to a run that used
    /// another.
    pub fn may_be_a_run(&self) -> bool {
        match self {
            Self::Refused(verdict) => matches!(verdict, Verdict::NotUnderWay | Verdict::Duplicate),
            Self::AllForeign(reason) | Self::Foreign(reason) => reason == Verdict::OtherJob.explain(),
            Self::NobodyListens(_) | Self::Unreachable(_) => false,
            Self::Failed(_) => true,
        }
    }

    /// Returns the reason in words.
    pub fn reason(self) -> String {
        match self {
            Self::Refused(verdict) => verdict.explain().to_owned(),
            Self::AllForeign(reason)
            | Self::Foreign(reason)
            | Self::NobodyListens(reason)
            | Self::Unreachable(reason)
            | Self::Failed(reason) => reason,
        }
    }
}

impl From<io::Error> for Attempt {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Tries every address once. Another program or another job may answer at one while the next is the
/// root's; it is final only if they answer at all.
pub(super) fn attempt(
    addresses: &[String],
    hello: &Hello,
    job: JobKey,
    options: &TcpOptions,
    wait: &mut Wait<'_>,
) -> Result<Greeted, Attempt> {
    let (mut failed, mut foreign, mut open, mut closed) = (None, None, false, true);
    for address in addresses {
        for target in resolve(address)? {
            match connect(target, options.connect, wait) {
                // A port of this machine that nobody listens on can be connected to itself by
                // chance.
                Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {
                    failed = Some("not listening yet".to_owned());
                }
                Ok(stream) => match greet(stream, hello, job, options.greeting, wait) {
                    Err(Attempt::Foreign(reason)) => foreign = Some(reason),
                    Err(Attempt::Failed(reason)) => (failed, open) = (Some(reason), true),
                    Ok(greeted) => match untrusted_peer(&greeted.stream).filter(|_| options.same_user) {
                        None => return Ok(greeted),
                        Some(Peer::User(user)) => {
                            foreign = Some(format!(
                                "user {user} of this host listens at {target}; use --key-file to distinguish users"
                            ));
                        }
                        Some(_) => (failed, open) = (Some(format!("{target}: connection closed")), true),
                    },
                    Err(other) => return Err(other),
                },
                Err(error) => {
                    closed &= error.kind() == io::ErrorKind::ConnectionRefused;
                    failed = Some(format!("{target}: {error}"));
                }
            }
        }
    }
    Err(match (failed, foreign) {
        (Some(failed), None) if open => Attempt::Failed(failed),
        (Some(failed), None) if closed => Attempt::NobodyListens(failed),
        (Some(failed), None) => Attempt::Unreachable(failed),
        (Some(failed), Some(foreign)) => Attempt::Failed(format!("{failed}; at another of its addresses: {foreign}")),
        (None, Some(foreign)) => Attempt::AllForeign(foreign),
        (None, None) => Attempt::Failed("the name has no address".to_owned()),
    })
}

/// Listens for a rank's children in the tree: on all addresses, unless the whole group is on this
/// machine.
pub(super) fn listen_for_children(addresses: &[String]) -> Result<TcpListener, Error> {
    let mut all = addresses.iter().filter_map(|address| resolve(address).ok()).flatten().map(|target| target.ip());
    match all.next() {
        Some(first) if first.is_loopback() && all.all(|ip| ip.is_loopback()) => bind(SocketAddr::new(first, 0)),
        _ => bind_everywhere(0),
    }
}

/// Returns a random time between half the pause and all of it, so that ranks refused at the same
/// time do not return at the same time.
pub(super) fn jittered(pause: Duration, [drawn]: [u8; 1]) -> Duration {
    pause.mul_f64(0.5 + 0.5 * f64::from(drawn) / f64::from(u8::MAX))
}

/// Resolves the addresses of `host:port`. A host that is an IPv6 address is in brackets, with its
/// interface if it is link-local.
fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port: u16 = port.parse().map_err(|_| io::Error::other(format!("{address} is not HOST:PORT")))?;
    Ok((host, port).to_socket_addrs()?.take(ADDRESSES_MAX).collect())
}

/// Creates a non-blocking connection. A signal ends the wait for it, which the standard library
/// does not support.
fn connect(target: SocketAddr, limit: Duration, wait: &mut Wait<'_>) -> io::Result<TcpStream> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = fork::opened(|| Socket::new(Domain::for_address(target), kind, Some(Protocol::TCP)))?;
    // The system may give this connection the very port that the root is about to listen at, and
    // would keep it for a minute after its end.
    socket.set_reuse_address(true)?;
    match socket.connect(&target.into()) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        other => return other.map(|()| socket.into()),
    }
    let begun = Instant::now();
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        let slice = wait.slice().filter(|_| !left.is_zero()).ok_or(io::ErrorKind::TimedOut)?;
        let ready = poll_sockets(&[(socket.as_fd(), PollFlags::OUT)], slice.min(left), OPERATION);
        if ready.map_err(io::Error::other)? == [true] {
            return socket.take_error()?.map_or_else(|| Ok(socket.into()), Err);
        }
    }
}

/// Sends the greeting and the proof, and checks the root's proof.
fn greet(
    mut stream: TcpStream,
    hello: &Hello,
    job: JobKey,
    first: Duration,
    wait: &mut Wait<'_>,
) -> Result<Greeted, Attempt> {
    stream.set_nodelay(true)?;
    // What is sent is far shorter than the empty buffer of a new connection.
    stream.write_all(&hello.encode())?;
    let (_, nonce) = answer(&mut stream, wait, Some(first))?;
    let Proofs { ranks, roots, seal, frames } = hello.proofs(job, &nonce);
    stream.write_all(ranks.as_bytes())?;
    // A run that is under way answers when the place is free; who comes for anything else takes
    // none.
    let limit = (!matches!(hello.errand, Errand::Place | Errand::Return)).then_some(first);
    let (verdict, proof) = answer(&mut stream, wait, limit)?;
    if roots != proof {
        let reason =
            "the process there does not have this job's key, so it is not rank 0; check MASTER_ADDR and MASTER_PORT";
        return Err(Attempt::Foreign(reason.to_owned()));
    }
    let [own, peers] = frames.map(Seal::new);
    Ok(Greeted { stream, verdict, seal, seals: Seals { own, peers } })
}

/// Reads the root's next answer and its content, if it is a welcome.
fn answer(
    stream: &mut TcpStream,
    wait: &mut Wait<'_>,
    limit: Option<Duration>,
) -> Result<(Verdict, [u8; ANSWER - ANSWER_HEAD]), Attempt> {
    let begun = Instant::now();
    let (mut answer, mut filled, mut said) = ([0; ANSWER], 0, Verdict::Welcome);
    while filled < ANSWER {
        let Some(slice) = wait.slice().filter(|_| limit.is_none_or(|limit| begun.elapsed() < limit)) else {
            let why = match limit {
                Some(_) => "connected, but got no answer",
                None => {
                    "connected, but rank 0 never answered; a run in progress only answers once this rank's previous process is gone"
                }
            };
            return Err(Attempt::Failed(why.to_owned()));
        };
        let socket = [(stream.as_fd(), PollFlags::IN)];
        poll_sockets(&socket, slice, OPERATION).map_err(|error| Attempt::Failed(error.to_string()))?;
        match stream.read(&mut answer[filled..]) {
            Ok(0) => return Err(Attempt::Failed("the other side closed the connection without answering".to_owned())),
            Ok(count) => filled += count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error.into()),
        }
        if filled < ANSWER_HEAD {
            continue;
        }
        match Verdict::decode(&answer) {
            Some(verdict @ (Verdict::Welcome | Verdict::Back)) => said = verdict,
            Some(verdict @ Verdict::OtherJob) => return Err(Attempt::Foreign(verdict.explain().to_owned())),
            Some(verdict) => return Err(Attempt::Refused(verdict)),
            None => {
                return Err(Attempt::Foreign("another program answers there; choose a different port".to_owned()));
            }
        }
    }
    let mut rest = [0; ANSWER - ANSWER_HEAD];
    rest.copy_from_slice(&answer[ANSWER_HEAD..]);
    Ok((said, rest))
}

fn unreachable(root: Rank, address: &str, wait: &Wait<'_>, failure: &str) -> Error {
    if wait.interrupted() {
        return wait.late(vec![ROOT]);
    }
    let what = format!("cannot reach rank {root} at {address} within {:.1?}", wait.elapsed());
    let advice = "is rank 0 running, are MASTER_ADDR and MASTER_PORT correct, and does the firewall allow that port?";
    Error::Setup { what, reason: format!("{failure}; {advice}") }
}

const OPERATION: &str = "rendezvous";

/// Most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 16;

/// First pause between attempts to connect, doubled each time.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_LAST: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_told_apart() {
        let check = |text: &str, expected: Option<&str>| {
            let found = resolve(text).ok().and_then(|found| found.first().map(ToString::to_string));
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        check("127.0.0.1:7", Some("127.0.0.1:7"));
        check("[fd00::1]:7", Some("[fd00::1]:7"));
        check("[fe80::1%1]:7", Some("[fe80::1%1]:7"));
        check("127.0.0.1", None);
        check("127.0.0.1:70000", None);
    }

    #[test]
    fn a_port_in_use_is_named_with_what_may_hold_it() {
        let held = bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let error = bind(held.local_addr().expect("bound")).expect_err("somebody listens there").to_string();
        assert!(
            error.contains("choose another port") && error.contains("occupied by an outgoing connection"),
            "{error}"
        );
    }

    #[test]
    fn a_connection_does_not_keep_the_root_from_its_port() {
        let deadline = Deadline::new(Duration::from_secs(10), None);
        let other = bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let target = other.local_addr().expect("bound");
        let connected = connect(target, Duration::from_secs(5), &mut Wait::begin(OPERATION, &deadline));
        let held = connected.expect("it listens").local_addr().expect("connected");
        bind(held).expect("its connection has ended on this side first, and lingers");
    }
}
