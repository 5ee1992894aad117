//! Benchmark of how closely two ranks start at an agreed time, compared with two threads that wait
//! for the system clock.
//!
//! `cargo bench -p probe-sync --bench agreed_start [-- [--starts N] [--counter raw|tsc] [--skew 0|1]]`
//!
//! Two processes with a session each wait by `GlobalClock::wait_until` for a time of the
//! reference's clock; then two threads of one process wait in the same way for a time of
//! `CLOCK_REALTIME`; and so on in turn. All say what `CLOCK_REALTIME` showed right after the wait.
//! That is the truth: node 0 is the reference and has no virtual clock, node 1 has one of some ms
//! and ppm (`--skew 0`: none either). The spread of a start is the distance between the two. Each
//! waits on a core of its own, as launchers bind ranks: two that wait on one core begin one after
//! the other. A first wait ends 200 µs before, so that caches hold the way out of a wait and the
//! clock that is the truth, of ranks and of threads alike: otherwise the threads have read that
//! clock just before, and the ranks take 1 to 2 µs to get at it.
//!
//! A rank reads a line with the time, waits, and answers with a line; the process that asks has no
//! session.
//!
//! It asserts no timing. Under `cargo test --benches` it runs only briefly, so that it keeps
//! compiling and working.

use std::error::Error;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration as StdDuration;

use probe_sync::collective::{Meeting, UniqueId};
use probe_sync::{Config, Session, clock};
use probe_sync_sys::SystemClock;
use probe_sync_time::{Clock, Timestamp};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |flag: &str| arguments.iter().position(|given| given == flag).and_then(|at| arguments.get(at + 1));
    let quick = !arguments.iter().any(|given| given == "--bench");
    let counter = value("--counter").map_or("raw", String::as_str);
    let skew = value("--skew").map_or("1", String::as_str);
    if let Some(rank) = value("--rank") {
        return rank_waits(rank.parse()?, value("--id").map(|id| id.parse()).transpose()?, counter, skew);
    }
    let starts: usize = value("--starts").map_or(Ok(if quick { 5 } else { 400 }), |text| text.parse())?;
    let mut zero = Rank::start(0, None, counter, skew)?;
    let id = zero.answer()?;
    let mut ranks = [zero, Rank::start(1, Some(&id), counter, skew)?];
    for rank in &mut ranks {
        let known = rank.answer()?;
        println!("rank {known}");
    }
    if !quick {
        std::thread::sleep(SETTLED);
    }
    let mut threads = [Waiting::start(0), Waiting::start(1)];
    // Of ranks and of threads: by how much the first was late, the second, and how far they were
    // apart.
    let mut found: [[Vec<f64>; 3]; 2] = Default::default();
    for _ in 0..starts {
        let of_ranks = start(&mut ranks, Rank::ask, Rank::answer_ns)?;
        let of_threads = start(&mut threads, Waiting::ask, Waiting::answer_ns)?;
        for (kept, of_start) in found.iter_mut().zip([of_ranks, of_threads]) {
            kept.iter_mut().zip(of_start).for_each(|(kept, ns)| kept.push(ns));
        }
    }
    for rank in ranks {
        rank.end()?;
    }
    println!(
        "{starts} starts each, counter {counter}, virtual clock of node 1: {}",
        if skew == "0" { "no" } else { "yes" }
    );
    println!(
        "{:<28} {:>12} {:>12} {:>16} {:>16}",
        "ns", "spread, p50", "spread, p95", "first late, p50", "second late, p50"
    );
    let [of_ranks, of_threads] = found.map(|[first, second, spread]| {
        [share(&spread, 0.5), share(&spread, 0.95), share(&first, 0.5), share(&second, 0.5)]
    });
    for (name, [median, p95, first, second]) in
        [("two ranks, the global clock", of_ranks), ("two threads, CLOCK_REALTIME", of_threads)]
    {
        println!("{name:<28} {median:>12.0} {p95:>12.0} {first:>16.0} {second:>16.0}");
    }
    println!("{:<28} {:>12.2} {:>12.2}", "ratio", of_ranks[0] / of_threads[0], of_ranks[1] / of_threads[1]);
    Ok(())
}

fn share(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get((values.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN)
}

/// Lets both wait for one time; by how much each was late, and how far apart they were.
fn start<W>(
    both: &mut [W; 2],
    ask: impl Fn(&mut W, i64) -> Result<()>,
    answer: impl Fn(&mut W) -> Result<i64>,
) -> Result<[f64; 3]> {
    let time = SystemClock.now().as_ns() + AHEAD_NS;
    for one in &mut *both {
        ask(one, time)?;
    }
    let [first, second] = both;
    let [first, second] = [answer(first)? - time, answer(second)? - time];
    Ok([first, second, (first - second).abs()].map(|ns| ns as f64))
}

/// A process with a session.
struct Rank {
    child: Child,
    times: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Rank {
    fn start(rank: usize, id: Option<&str>, counter: &str, skew: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--rank", &rank.to_string(), "--counter", counter, "--skew", skew]);
        command.args(id.iter().flat_map(|id| ["--id", id]));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (times, answers) = (child.stdin.take().ok_or("no pipe")?, child.stdout.take().ok_or("no pipe")?);
        Ok(Self { child, times, answers: BufReader::new(answers) })
    }

    fn ask(&mut self, time: i64) -> Result<()> {
        writeln!(self.times, "{time}")?;
        Ok(())
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err("a rank has ended: see what it wrote above".into());
        }
        Ok(line.trim().to_owned())
    }

    fn answer_ns(&mut self) -> Result<i64> {
        Ok(self.answer()?.parse()?)
    }

    /// It ends when no more times come.
    fn end(self) -> Result<()> {
        let Self { mut child, times, answers } = self;
        drop(times);
        let ended = child.wait()?;
        drop(answers);
        if ended.success() { Ok(()) } else { Err(format!("a rank ended with {ended}").into()) }
    }
}

/// What a rank does: says its id if it is the first, then what is known, then waits for every time
/// that it is told.
fn rank_waits(rank: usize, id: Option<UniqueId>, counter: &str, skew: &str) -> Result<()> {
    let out = std::env::temp_dir().join(format!("probe_sync_start_{}", std::process::id()));
    let mut config = Config { out: out.clone(), ..Config::default() };
    let settings = [("tracer_clock", "none"), ("clock_counter", counter), ("budget_cpu", "2%")];
    let skewed = [("inject_skew", "5"), ("skew_model", "constant")].into_iter().filter(|_| skew != "0");
    for (key, text) in settings.into_iter().chain(skewed) {
        config.set(key, text, "bench")?;
    }
    let builder = match id {
        None => {
            let meeting = Meeting::open(&["127.0.0.1".parse()?])?;
            println!("{:x}", meeting.id());
            Session::builder(config).host(meeting, 2)
        }
        Some(id) => Session::builder(config).join(id, rank, 2),
    };
    let session = builder.start()?;
    session.wait_until_bound(1_000, LONG)?;
    let clock = session.clock();
    clock.wait_until_known(LONG)?;
    let now = clock.now().ok_or("it is known")?;
    println!("{rank}: within {} ns in 95 %", now.bound95.as_ns());
    stay_on_core(rank)?;
    for line in std::io::stdin().lock().lines() {
        let time = line?.trim().parse()?;
        println!("{}", begin_at(time, |time| clock.wait_until(Timestamp::from_ns(time), LONG))?);
    }
    session.stop()?;
    // Ranks of one host share the first one's folder; the others have made none.
    if rank == 0 {
        std::fs::remove_dir_all(out)?;
    }
    Ok(())
}

/// A thread that waits for times of the system clock.
struct Waiting {
    times: SyncSender<i64>,
    answers: Receiver<std::result::Result<i64, String>>,
}

impl Waiting {
    fn start(core: usize) -> Self {
        let (times, told) = sync_channel(1);
        let (answer, answers) = sync_channel(1);
        // Ends when no more times come.
        std::thread::spawn(move || {
            let stays = stay_on_core(core).map_err(|error| error.to_string());
            for time in told {
                if let Err(error) = &stays {
                    let _ = answer.send(Err(error.clone()));
                    break;
                }
                let wait = |time| clock::wait_until(|| Some(SystemClock.now().as_ns()), time, LONG);
                if answer.send(begin_at(time, wait).map_err(|error| error.to_string())).is_err() {
                    break;
                }
            }
        });
        Self { times, answers }
    }

    fn ask(&mut self, time: i64) -> Result<()> {
        Ok(self.times.send(time)?)
    }

    fn answer_ns(&mut self) -> Result<i64> {
        Ok(self.answers.recv()??)
    }
}

/// Waits for the time; when that was over by the system clock.
fn begin_at(time: i64, wait: impl Fn(i64) -> std::result::Result<(), probe_sync::Error>) -> Result<i64> {
    let mut begun = 0;
    for time in [time - BEFORE_NS, time] {
        wait(time)?;
        begun = black_box(SystemClock.now().as_ns());
    }
    Ok(begun)
}

/// Binds the calling thread to one of the cores that it may run on.
fn stay_on_core(number: usize) -> Result<()> {
    let may = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| may.is_set(*core)).collect();
    let mut own = CpuSet::new();
    own.set(cores[number % cores.len()]);
    Ok(sched_setaffinity(None, &own)?)
}

/// Between agreement and start: most of it is slept.
const AHEAD_NS: i64 = 15_000_000;
/// A job's first steps: until then windows are short.
const SETTLED: StdDuration = StdDuration::from_secs(5);
const BEFORE_NS: i64 = 200_000;
const LONG: StdDuration = StdDuration::from_secs(60);
