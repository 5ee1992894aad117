//! Benchmark of the cost and the error of reading the global clock.
//!
//! `cargo bench -p probe-sync --bench clock [-- --truth MODEL [--counter raw|tsc] [--seconds N] [--ranks N] [--window TEXT]]`
//!
//! Cost: the medians of blocks of readings in turn, beside `CLOCK_MONOTONIC_RAW` and
//! `CLOCK_REALTIME` through the vDSO in the same process and minute; once more with a writer that
//! publishes a new map a thousand times a second. Where the time-stamp counter may be used, a clock
//! that counts by it is read in turn with the others.
//!
//! Truth: `--ranks` processes with virtual clocks (`constant`, `sinusoid`, `steps`); each reads its
//! clock a million times over the given time, between two readings of the system clock, which is
//! the truth because node 0 has no virtual clock. A reading between which more than 1 µs passed
//! says little and is judged by the intervals only.
//!
//! It asserts no timing. Under `cargo test --benches` it runs only briefly, so that it keeps
//! compiling and working.

use std::error::Error;
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration as StdDuration, Instant};

use probe_sync::clock::HostCounter;
use probe_sync::collective::{Meeting, UniqueId};
use probe_sync::{Config, GlobalClock, Session};
use probe_sync_global_clock::{Adjust, Estimate, Identity, Line, Map, Page, Rate, Scale, Source, WORDS};
use probe_sync_sys::{RawClock, SystemClock, clock};
use probe_sync_time::{Clock, Counter, NodeId, Timestamp};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |flag: &str| arguments.iter().position(|given| given == flag).and_then(|at| arguments.get(at + 1));
    // `cargo bench` says so; `cargo test` does not.
    let quick = !arguments.iter().any(|given| given == "--bench" || given == "--rank");
    let seconds: u64 = value("--seconds").map_or(Ok(if quick { 1 } else { 30 }), |text| text.parse())?;
    let ranks: usize = value("--ranks").map_or(Ok(if quick { 2 } else { 8 }), |text| text.parse())?;
    let window = value("--window").map_or("1s", String::as_str);
    let counter = value("--counter").map_or("raw", String::as_str);
    if let Some(rank) = value("--rank") {
        let id: UniqueId = value("--id").ok_or("--id is missing")?.parse()?;
        let model = value("--truth").ok_or("--truth is missing")?;
        let builder = Session::builder(config(model, window, counter, ranks)?).join(id, rank.parse()?, ranks);
        return truth_of_rank(builder, seconds);
    }
    match value("--truth") {
        Some(model) => truth(model, window, counter, ranks, seconds),
        None => {
            cost(if quick { 3 } else { 201 });
            if quick { truth("constant", "250ms", counter, ranks, seconds) } else { Ok(()) }
        }
    }
}

/// The clock that is read, and how.
type Read<'a> = (&'static str, Box<dyn Fn() -> i64 + 'a>);

fn cost(blocks: usize) {
    let words: [[AtomicU64; WORDS]; 2] = std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)));
    let raw = Shown::begin(&words[0], Source::Raw);
    // How long its ticks are does not matter here.
    let tsc = clock::tsc_is_the_clocksource().map(|()| Shown::begin(&words[1], Source::Tsc(Scale::ONE)));
    let mut read: Vec<Read<'_>> = vec![
        ("CLOCK_MONOTONIC_RAW", Box::new(|| RawClock.now().as_ns())),
        ("CLOCK_REALTIME", Box::new(|| SystemClock.now().as_ns())),
        ("clock, the time alone", Box::new(move || raw.page.now_ns(of_host).unwrap_or_default())),
        ("clock with bounds", Box::new(move || raw.page.now(of_host).map_or(0, |now| now.time.as_ns()))),
    ];
    match &tsc {
        Ok(tsc) => {
            let page = tsc.page;
            read.push(("time-stamp counter", Box::new(|| clock::ordered_ticks() as i64)));
            read.push(("tsc, the time alone", Box::new(move || page.now_ns(of_host).unwrap_or_default())));
            read.push(("tsc with bounds", Box::new(move || page.now(of_host).map_or(0, |now| now.time.as_ns()))));
        }
        Err(reason) => println!("no clock by the time-stamp counter: {reason}"),
    }
    for written in [false, true] {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for shown in [Some(raw), tsc.as_ref().ok().copied()].into_iter().flatten().filter(|_| written) {
                let done = &done;
                scope.spawn(move || shown.write_often(done));
            }
            let mut times: Vec<Vec<f64>> = vec![Vec::new(); read.len()];
            for _ in 0..blocks {
                for ((_, read), times) in read.iter().zip(&mut times) {
                    let begun = Instant::now();
                    for _ in 0..READS_PER_BLOCK {
                        black_box(read());
                    }
                    times.push(begun.elapsed().as_nanos() as f64 / f64::from(READS_PER_BLOCK));
                }
            }
            done.store(true, Ordering::Relaxed);
            println!("a writer at 1 kHz: {written}");
            let base = median(&mut times[0].clone());
            for ((name, _), times) in read.iter().zip(&mut times) {
                let time = median(times);
                println!("  {name:<22} {time:>7.1} ns  {:>5.2} x raw", time / base);
            }
        });
    }
}

fn counter(source: Source) -> HostCounter {
    HostCounter { source, namespace_ns: 0 }
}

#[inline]
fn of_host(source: Source) -> Timestamp<Counter> {
    counter(source).now()
}

/// A page that shows what somebody could have measured.
#[derive(Copy, Clone)]
struct Shown<'a> {
    page: Page<'a>,
    counter: HostCounter,
}

impl<'a> Shown<'a> {
    fn begin(words: &'a [AtomicU64; WORDS], source: Source) -> Self {
        let identity = Identity { boot: 1, writer: 1, node: NodeId(1), reference: NodeId(0) };
        let shown = Self { page: Page::begin(words, identity, source), counter: counter(source) };
        let map = Map { source, ..Map::first(Self::estimate(shown.counter.now().as_ns())) };
        shown.page.publish(&map, || true);
        shown
    }

    fn estimate(counter: i64) -> Estimate {
        Estimate {
            line: Line { x: counter, y: counter + (1 << 60), rate: Rate::from_ppm(12.0) },
            half95: 60,
            growth95: Rate::from_ppm(0.03),
            hard: [700; 2],
            hard_growth: Rate::from_ppm(1.2),
        }
    }

    fn write_often(self, done: &AtomicBool) {
        let mut map = self.page.map();
        while !done.load(Ordering::Relaxed) {
            let now = self.counter.now().as_ns();
            if let Some(next) = map.follow(Self::estimate(now), now, now + 200_000, Adjust::Slew) {
                self.page.publish(&next, || true);
                map = next;
            }
            std::thread::sleep(StdDuration::from_millis(1));
        }
    }
}

fn truth(model: &str, window: &str, counter: &str, ranks: usize, seconds: u64) -> Result<()> {
    let meeting = Meeting::open(&["127.0.0.1".parse()?])?;
    let id = format!("{:x}", meeting.id());
    let child = |rank: usize| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([
            "--truth",
            model,
            "--window",
            window,
            "--counter",
            counter,
            "--id",
            &id,
            "--rank",
            &rank.to_string(),
        ]);
        command.args(["--ranks", &ranks.to_string(), "--seconds", &seconds.to_string()]).stdin(Stdio::null()).spawn()
    };
    let children: Vec<_> = (1..ranks).map(child).collect::<std::io::Result<_>>()?;
    println!("{model}, windows of {window}, counter {counter}, {ranks} processes, {seconds} s each");
    println!(
        "{:>4} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10} {:>9}",
        "rank", "reads", "hard %", "95 %", "±95 ns", "±hard ns", "median ns", "worst ns", "back"
    );
    truth_of_rank(Session::builder(config(model, window, counter, ranks)?).host(meeting, ranks), seconds)?;
    for mut child in children {
        let ended = child.wait()?;
        if !ended.success() {
            return Err(format!("a rank ended with {ended}").into());
        }
    }
    Ok(())
}

fn config(model: &str, window: &str, counter: &str, ranks: usize) -> Result<Config> {
    let out = std::env::temp_dir().join(format!("probe_sync_clock_{}", std::process::id()));
    let mut config = Config { out, ..Config::default() };
    let clocks = [("inject_skew", "5"), ("skew_model", model), ("tracer_clock", "none"), ("clock_counter", counter)];
    for (key, text) in [("window", window)].into_iter().chain(clocks) {
        config.set(key, text, "bench")?;
    }
    // A session's budget is 1 % of a core of every host; here all ranks are on one, each in the
    // place of a host.
    config.set("budget_cpu", &format!("{ranks}%"), "bench")?;
    if model == "steps" {
        config.set("duration", "60s", "bench")?;
    }
    Ok(config)
}

fn truth_of_rank(builder: probe_sync::SessionBuilder, seconds: u64) -> Result<()> {
    let begun = Instant::now();
    let session = builder.start()?;
    session.wait_until_bound(1_000, StdDuration::from_secs(60))?;
    let bound_after = begun.elapsed();
    let clock = session.clock();
    clock.wait_until_known(StdDuration::from_secs(60))?;
    let found = Found::of(&clock, StdDuration::from_secs(seconds));
    let progress = session.progress();
    let rank = match progress {
        probe_sync::Progress::Measuring(state) => state.rank,
        other => return Err(format!("{other:?}").into()),
    };
    found.print(rank);
    if rank == 0 {
        println!("first bound of 1 µs after {:.0} ms", bound_after.as_secs_f64() * 1e3);
    }
    session.stop()?;
    Ok(())
}

#[derive(Default)]
struct Found {
    reads: u64,
    within_hard: u64,
    within_95: u64,
    back: u64,
    half95: Vec<f64>,
    half_hard: Vec<f64>,
    errors: Vec<f64>,
}

impl Found {
    fn of(clock: &GlobalClock, span: StdDuration) -> Self {
        let mut found = Self::default();
        let begun = Instant::now();
        let mut last = None;
        let pause = span / (READS_TRUTH / READS_AT_ONCE);
        while begun.elapsed() < span {
            for _ in 0..READS_AT_ONCE {
                let before = SystemClock.now().on_reference();
                let Some(now) = clock.now() else { continue };
                let after = SystemClock.now().on_reference();
                found.reads += 1;
                found.within_hard += u64::from(now.earliest <= after && now.latest >= before);
                found.within_95 += u64::from(now.time - now.bound95 <= after && now.time + now.bound95 >= before);
                found.back += u64::from(last.is_some_and(|last| last > now.time));
                last = Some(now.time);
                if (after - before).as_ns() < 1_000 && found.reads % 16 == 0 {
                    found.errors.push((now.time - before.midpoint(after)).as_ns().abs() as f64);
                    found.half95.push(now.bound95.as_ns() as f64);
                    found.half_hard.push((now.latest - now.earliest).as_ns() as f64 / 2.0);
                }
            }
            std::thread::sleep(pause);
        }
        found
    }

    fn print(mut self, rank: usize) {
        let share = |count: u64| 100.0 * count as f64 / self.reads as f64;
        let (hard, usual) = (share(self.within_hard), share(self.within_95));
        let worst = self.errors.iter().copied().fold(0.0, f64::max);
        let [half95, half_hard, error] =
            [&mut self.half95, &mut self.half_hard, &mut self.errors].map(|values| median(values));
        println!(
            "{rank:>4} {:>9} {hard:>9.4} {usual:>9.2} {half95:>9.0} {half_hard:>9.0} {error:>10.0} {worst:>10.0} {:>9}",
            self.reads, self.back
        );
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

const READS_PER_BLOCK: u32 = 20_000;
const READS_TRUTH: u32 = 1_000_000;
const READS_AT_ONCE: u32 = 200;
