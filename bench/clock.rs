//! What a reading of the global clock costs, and how far it is from the truth.
//!
//! `cargo bench -p probe-sync --bench clock [-- --truth MODEL [--seconds N] [--ranks N] [--window TEXT]]`
//!
//! Cost: the medians of blocks of readings in turn, beside `CLOCK_MONOTONIC_RAW` and `CLOCK_REALTIME` through the vDSO in the same
//! process and minute; once more with a writer that publishes a new map a thousand times a second.
//!
//! Truth: `--ranks` processes with virtual clocks (`constant`, `sinusoid`, `steps`); each reads its clock a million times over the given
//! time, between two readings of the system clock, which is the truth because node 0 has no virtual clock. A reading between which more than
//! 1 µs passed says little and is judged by the intervals only.
//!
//! What it does not do: assert any time. Run by `cargo test --benches` it does only a little: it must not rot.

use std::error::Error;
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration as StdDuration, Instant};

use probe_sync::collective::{Meeting, UniqueId};
use probe_sync::{Config, GlobalClock, Session};
use probe_sync_global_clock::{Adjust, Estimate, Identity, Line, Map, Page, Rate, WORDS};
use probe_sync_sys::{RawClock, SystemClock};
use probe_sync_time::{Clock, NodeId};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |flag: &str| arguments.iter().position(|given| given == flag).and_then(|at| arguments.get(at + 1));
    // `cargo bench` says so; `cargo test` does not.
    let quick = !arguments.iter().any(|given| given == "--bench" || given == "--rank");
    let seconds: u64 = value("--seconds").map_or(Ok(if quick { 1 } else { 30 }), |text| text.parse())?;
    let ranks: usize = value("--ranks").map_or(Ok(if quick { 2 } else { 8 }), |text| text.parse())?;
    let window = value("--window").map_or("1s", String::as_str);
    if let Some(rank) = value("--rank") {
        let id: UniqueId = value("--id").ok_or("--id is missing")?.parse()?;
        let model = value("--truth").ok_or("--truth is missing")?;
        return truth_of_rank(Session::builder(config(model, window, ranks)?).join(id, rank.parse()?, ranks), seconds);
    }
    match value("--truth") {
        Some(model) => truth(model, window, ranks, seconds),
        None => {
            cost(if quick { 3 } else { 201 });
            if quick { truth("constant", "250ms", ranks, seconds) } else { Ok(()) }
        }
    }
}

fn cost(blocks: usize) {
    let words: [AtomicU64; WORDS] = std::array::from_fn(|_| AtomicU64::new(0));
    let page = Page::begin(&words, Identity { boot: 1, writer: 1, node: NodeId(1), reference: NodeId(0) });
    let estimate = |raw: i64| Estimate {
        line: Line { x: raw, y: raw + (1 << 60), rate: Rate::from_ppm(12.0) },
        half95: 60,
        growth95: Rate::from_ppm(0.03),
        hard: [700; 2],
        hard_growth: Rate::from_ppm(1.2),
    };
    page.publish(&Map::first(estimate(RawClock.now().as_ns())), || true);
    let read = [
        ("CLOCK_MONOTONIC_RAW", (&|| RawClock.now().as_ns()) as &dyn Fn() -> i64),
        ("CLOCK_REALTIME", &|| SystemClock.now().as_ns()),
        ("clock, the time alone", &|| page.now_ns(|| RawClock.now()).unwrap_or_default()),
        ("clock with bounds", &|| page.now(|| RawClock.now()).map_or(0, |now| now.time.as_ns())),
    ];
    for written in [false, true] {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if written {
                scope.spawn(|| write_often(page, &estimate, &done));
            }
            let mut medians: Vec<Vec<f64>> = vec![Vec::new(); read.len()];
            for _ in 0..blocks {
                for ((_, read), times) in read.iter().zip(&mut medians) {
                    let begun = Instant::now();
                    for _ in 0..READS_PER_BLOCK {
                        black_box(read());
                    }
                    times.push(begun.elapsed().as_nanos() as f64 / f64::from(READS_PER_BLOCK));
                }
            }
            done.store(true, Ordering::Relaxed);
            println!("a writer at 1 kHz: {written}");
            let base = median(&mut medians[0].clone());
            for ((name, _), times) in read.iter().zip(&mut medians) {
                let time = median(times);
                println!("  {name:<22} {time:>7.1} ns  {:>5.2} x raw", time / base);
            }
        });
    }
}

fn write_often(page: Page<'_>, estimate: &(dyn Fn(i64) -> Estimate + Sync), done: &AtomicBool) {
    let mut map = page.map();
    while !done.load(Ordering::Relaxed) {
        let now = RawClock.now().as_ns();
        if let Some(next) = map.follow(estimate(now), now, now + 200_000, Adjust::Slew) {
            page.publish(&next, || true);
            map = next;
        }
        std::thread::sleep(StdDuration::from_millis(1));
    }
}

fn truth(model: &str, window: &str, ranks: usize, seconds: u64) -> Result<()> {
    let meeting = Meeting::open(&["127.0.0.1".parse()?])?;
    let id = format!("{:x}", meeting.id());
    let child = |rank: usize| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--truth", model, "--window", window, "--id", &id, "--rank", &rank.to_string()]);
        command.args(["--ranks", &ranks.to_string(), "--seconds", &seconds.to_string()]).stdin(Stdio::null()).spawn()
    };
    let children: Vec<_> = (1..ranks).map(child).collect::<std::io::Result<_>>()?;
    println!("{model}, windows of {window}, {ranks} processes, {seconds} s each");
    println!(
        "{:>4} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10} {:>9}",
        "rank", "reads", "hard %", "95 %", "±95 ns", "±hard ns", "median ns", "worst ns", "back"
    );
    truth_of_rank(Session::builder(config(model, window, ranks)?).host(meeting, ranks), seconds)?;
    for mut child in children {
        let ended = child.wait()?;
        if !ended.success() {
            return Err(format!("a rank ended with {ended}").into());
        }
    }
    Ok(())
}

fn config(model: &str, window: &str, ranks: usize) -> Result<Config> {
    let out = std::env::temp_dir().join(format!("probe_sync_clock_{}", std::process::id()));
    let mut config = Config { out, ..Config::default() };
    for (key, text) in [("window", window), ("inject_skew", "5"), ("skew_model", model), ("tracer_clock", "none")] {
        config.set(key, text, "bench")?;
    }
    // A session's budget is 1 % of a core of every host; here all ranks are on one, each in the place of a host.
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
