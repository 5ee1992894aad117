//! Ranks that are late while a job runs: four processes that wait for each other in every step,
//! with clocks that are wrong by tens of milliseconds.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use probe_sync::collective::{Meeting, UniqueId};
use probe_sync::late::{Late, LateEvent, LateLine, LateRecord, WaitLine};
use probe_sync::{Config, Session, Truth};
use probe_sync_record::collective;
use probe_sync_time::{NodeId, Timestamp};

const RANKS: usize = 4;
const LONG: Duration = Duration::from_secs(60);
/// Kind of the next step, as sent by the parent.
const USUAL: u8 = 0;
const LATE: u8 = 1;
const END: u8 = 2;

/// The processes of a job, and the barrier at which they meet.
struct Job {
    out: PathBuf,
    ranks: Vec<Child>,
    barrier: Vec<TcpStream>,
    /// Of each step: the last rank, and its lead, ns, by the clock that all processes share.
    last: Vec<(u32, u64)>,
    _folder: tempfile::TempDir,
}

impl Job {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (id, out) = (folder.path().join("id"), folder.path().join("out"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        let start = |rank: usize| {
            let mut command = Command::new(std::env::current_exe().expect("this test"));
            command.args(["--exact", "late::rank", "--ignored", "--nocapture"]).stdout(Stdio::null());
            command.env("LATE_TEST", format!("{rank} {port}")).env("LATE_ID", &id).env("LATE_OUT", &out);
            command.spawn().expect("a process")
        };
        let ranks = (0..RANKS).map(start).collect();
        let barrier = (0..RANKS).map(|_| listener.accept().expect("a rank").0).collect();
        Self { out, ranks, barrier, last: Vec::new(), _folder: folder }
    }

    /// Runs one step, as soon as all ranks have arrived.
    fn step(&mut self, kind: u8) {
        let mut arrivals: Vec<(u64, u32)> = Vec::new();
        for rank in &mut self.barrier {
            let (mut arrival, mut number) = ([0; 8], [0]);
            rank.read_exact(&mut arrival).and_then(|()| rank.read_exact(&mut number)).expect("a rank comes");
            arrivals.push((u64::from_le_bytes(arrival), u32::from(number[0])));
        }
        arrivals.sort_unstable();
        let [.., (second, _), (latest, rank)] = arrivals[..] else { panic!("{RANKS} ranks") };
        self.last.push((rank, latest - second));
        self.barrier.iter_mut().for_each(|rank| rank.write_all(&[kind]).expect("a rank hears"));
    }

    fn steps(&mut self, kind: u8, limit: Duration, until: impl Fn(&[LateRecord]) -> bool) -> Duration {
        let begun = Instant::now();
        while !until(&self.lines()) {
            assert!(begun.elapsed() < limit, "{:?}", self.lines());
            self.step(kind);
        }
        begun.elapsed()
    }

    /// Checks that a named rank was late: a busy machine delays ranks, too. Of the operations at
    /// which it is said to have been late, half have its median lead.
    fn check_named(&self, named: &LateLine) {
        let lead_ns = named.lead_ns as u64 * 9 / 10;
        let late = self.last.iter().filter(|(rank, lead)| Some(*rank) == named.rank && *lead >= lead_ns).count();
        assert!(late as f64 >= 0.45 * named.times as f64, "{late} times in truth: {named:?}");
    }

    fn lines(&self) -> Vec<LateRecord> {
        let text = std::fs::read_to_string(self.out.join("late.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect()
    }

    fn end(mut self) -> tempfile::TempDir {
        self.step(END);
        let ended = self.ranks.iter_mut().map(|rank| rank.wait().expect("our own").success());
        assert!(ended.collect::<Vec<_>>().iter().all(|ended| *ended));
        self._folder
    }
}

/// Runs one rank, configured by the environment.
#[test]
#[ignore = "a process of the tests below"]
fn rank() {
    let Ok(own) = std::env::var("LATE_TEST") else { return };
    let (rank, port) = own.split_once(' ').expect("two numbers");
    let (rank, port): (usize, u16) = (rank.parse().expect("a number"), port.parse().expect("a number"));
    let session = session(rank, Path::new(&std::env::var("LATE_OUT").expect("a path")));
    session.wait_until_bound(1_000_000, LONG).expect("a millisecond is soon known");
    // The rank that will be late, and the one that will be stopped, use the recorder's scopes.
    if rank >= 2 {
        session.observe_collectives().expect("the first observer");
    }
    let mut barrier = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the parent");
    barrier.set_nodelay(true).expect("loopback");
    // One program answers what it is asked while it hangs, one seems to and does not.
    let session = Arc::new(session);
    if rank < 2 {
        assert_eq!(session.hang_requested(), None);
    }
    let (asked, done) = (Arc::clone(&session), Arc::new(AtomicBool::new(false)));
    let ended = Arc::clone(&done);
    let answering = std::thread::spawn(move || {
        while rank == 1 && !ended.load(Ordering::Relaxed) {
            if let Some(number) = asked.hang_requested() {
                asked.answer_hang(number, &[("rank_1.stack", b"where it is")], LONG).expect("rank 0 takes it");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let mut kind = [USUAL];
    for step in 0.. {
        std::thread::sleep(Duration::from_millis(20));
        if kind[0] == LATE && rank == 2 && step % 3 == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let arrival = SystemTime::now().duration_since(UNIX_EPOCH).expect("a present").as_nanos() as u64;
        if rank < 2 {
            session.arrive("grads", step);
        } else {
            drop(collective!(AllReduce, group = "grads", sequence = step));
        }
        let said = [&arrival.to_le_bytes()[..], &[rank as u8]].concat();
        barrier.write_all(&said).expect("the parent");
        barrier.read_exact(&mut kind).expect("the parent");
        if kind[0] == END {
            break;
        }
    }
    done.store(true, Ordering::Relaxed);
    answering.join().expect("no panic");
    Arc::into_inner(session).expect("the thread has ended").stop().expect("in order");
}

fn session(rank: usize, out: &Path) -> Session {
    let mut config = Config { out: out.to_owned(), ..Config::default() };
    for (key, text) in [("window", "1s"), ("inject_skew", "7"), ("skew_offset", "50ms")] {
        config.set(key, text, "test").expect("a key");
    }
    let id = PathBuf::from(std::env::var("LATE_ID").expect("a path"));
    let builder = Session::builder(config);
    if rank == 0 {
        let meeting = Meeting::open(&[Ipv4Addr::LOCALHOST.into()]).expect("loopback");
        let unnamed = id.with_extension("new");
        std::fs::write(&unnamed, meeting.id().as_bytes()).and_then(|()| std::fs::rename(unnamed, id)).expect("ours");
        return builder.host(meeting, RANKS).start().expect("a session");
    }
    let begun = Instant::now();
    let bytes = loop {
        match std::fs::read(&id) {
            Ok(bytes) => break bytes,
            Err(error) => assert!(begun.elapsed() < LONG, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    builder.join(UniqueId::from_bytes(&bytes).expect("an id"), rank, RANKS).start().expect("a session")
}

fn late(lines: &[LateRecord], event: LateEvent) -> Vec<LateLine> {
    let of = |line: &LateRecord| match &line.about {
        Late::Late(late) if line.event == event => Some(late.clone()),
        _ => None,
    };
    lines.iter().filter_map(of).collect()
}

fn waits(lines: &[LateRecord], event: LateEvent) -> Vec<WaitLine> {
    let of = |line: &LateRecord| match &line.about {
        Late::Waiting(wait) if line.event == event => Some(wait.clone()),
        _ => None,
    };
    lines.iter().filter_map(of).collect()
}

/// Asks all ranks while rank 3 is stopped, and rank 0's program does not answer.
///
/// Two clients ask, one after the other.
fn check_evidence(out: &Path) {
    let other = std::thread::spawn({
        let out = out.to_owned();
        move || probe_sync::collect_hang_evidence(&out).expect("it listens")
    });
    let evidence = probe_sync::collect_hang_evidence(out).expect("it listens");
    let folder = evidence.folder;
    assert_eq!(folder.parent(), Some(out.join("hang").as_path()));
    assert_eq!(evidence.files, [folder.join("arrivals.json"), folder.join("rank_1.stack")]);
    assert_eq!(std::fs::read(folder.join("rank_1.stack")).expect("it is there"), b"where it is");
    let arrivals = std::fs::read_to_string(folder.join("arrivals.json")).expect("it is there");
    let answers = ["session_only", "complete", "complete", "none"];
    for (rank, answer) in answers.iter().enumerate() {
        let (own, told) = (format!("\"rank\":{rank},"), format!("\"answer\":\"{answer}\",\"lost\":false"));
        assert!(arrivals.split('{').any(|part| part.contains(&own) && part.contains(&told)), "{arrivals}");
    }
    let mut job = probe_sync_hang::Job::new();
    job.add_counts(&probe_sync_hang::Counts::read(arrivals.as_bytes()).expect("well-formed"));
    let verdict = job.judge(&probe_sync_hang::Clocks::default());
    println!("{}", verdict.text());
    assert_eq!(verdict.causes.iter().flat_map(|cause| cause.ranks.clone()).collect::<Vec<_>>(), [3], "{verdict:?}");
    assert!(verdict.is_decided());
    let other = other.join().expect("no panic");
    assert_ne!(other.folder, folder);
    let also = std::fs::read_to_string(other.folder.join("arrivals.json")).expect("it is there");
    assert_eq!(also, arrivals, "nothing has moved");
}

/// Some 20 s: members are known after 3 s, a rank must be late long enough to be certain, and a
/// wait is reported after 2 s.
#[test]
fn one_that_is_late_in_every_third_step_is_named_and_one_that_is_stopped_is_waited_for() {
    let mut job = Job::start();
    let settled = Instant::now();
    job.steps(USUAL, LONG, |_| settled.elapsed() > Duration::from_secs(5));
    late(&job.lines(), LateEvent::Begun).iter().for_each(|named| job.check_named(named));

    let of = |lines: &[LateRecord], event| late(lines, event).into_iter().find(|late| late.rank == Some(2));
    let named = job.steps(LATE, Duration::from_secs(10), |lines| of(lines, LateEvent::Begun).is_some());
    late(&job.lines(), LateEvent::Begun).iter().for_each(|named| job.check_named(named));
    let begun = of(&job.lines(), LateEvent::Begun).expect("it is named");
    let cleared = job.steps(USUAL, Duration::from_secs(15), |lines| of(lines, LateEvent::Ended).is_some());
    println!("named after {named:.1?}, cleared after {cleared:.1?}: {begun}");
    assert!((9_000_000..12_000_000).contains(&begun.lead_ns), "{begun:?}");

    // The clocks as they are: the rank whose clock is ahead of all others would have come last in
    // every step.
    let truth = Truth::read(&job.out).expect("readable").expect("virtual clocks");
    let at = Timestamp::from_ns(begun.since_ns);
    let raw = |rank: &usize| {
        truth.offset_ns(NodeId(*rank as u32), at).unwrap_or(0.0) as i64 + if *rank == 2 { 10_000_000 } else { 0 }
    };
    let blamed = (0..RANKS).max_by_key(raw).expect("ranks");
    assert_ne!(blamed, 2, "raw times would have named it as well");

    let stopped = rustix::process::Pid::from_child(&job.ranks[3]);
    rustix::process::kill_process(stopped, rustix::process::Signal::STOP).expect("our own");
    let since = Instant::now();
    while waits(&job.lines(), LateEvent::Begun).is_empty() {
        assert!(since.elapsed() < Duration::from_secs(5), "{:?}", job.lines());
        std::thread::sleep(Duration::from_millis(50));
    }
    let wait = &waits(&job.lines(), LateEvent::Begun)[0];
    println!("waited for after {:.1?}: {wait}", since.elapsed());
    assert_eq!(wait.missing.iter().map(|missing| missing.rank).collect::<Vec<_>>(), [3]);
    check_evidence(&job.out);
    rustix::process::kill_process(stopped, rustix::process::Signal::CONT).expect("our own");
    job.steps(USUAL, LONG, |lines| !waits(lines, LateEvent::Ended).is_empty());
    let lines = job.lines();
    let begun = late(&lines, LateEvent::Begun);
    // The rank that was stopped was last once, and once is not again and again.
    begun.iter().for_each(|named| job.check_named(named));
    assert_eq!(begun.iter().filter(|late| late.rank == Some(2)).count(), 1, "{lines:?}");
    job.end();
}
