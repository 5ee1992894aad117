//! How far recorded events are from the truth on the reference clock: four processes record on
//! clocks that are wrong in a known way while a run measures them.
//!
//! `RECORD_TIME_EVENTS=1000000 cargo test -p probe-sync-cli --test it record_time -- --nocapture`
//! prints the figures of bench/LOG.md; without the variable it is a short run. Each event is a
//! scope around one reading of the machine's real clock, which is the reference's, so that the
//! truth of its middle is known to half of its length. Clocks are off by up to 10 ms and 50 ppm,
//! swing, and one is set by 5 ms; events within a period of clock pairs of that are counted apart.
//! An event's hard interval is that of the rounds beside it and half of a clock pair's bracket, its
//! 95 % bound that of both maps.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use probe_sync_alignment::clocks::Offsets;
use probe_sync_record::read::{ArgumentValue, Event, What};
use probe_sync_record::{Policy, Recorder, Recording, instant, scope};
use probe_sync_time::{SkewedClock, Step, Wave};
use serde_json::Value;

use crate::support::{complaint, lines, probe_sync, text, wait, wait_for_lines};

/// How much is recorded.
struct Size {
    events: u64,
    run: Duration,
    pair_period: Duration,
}

impl Size {
    fn asked() -> Self {
        match std::env::var(EVENTS).ok().and_then(|text| text.parse().ok()) {
            Some(events) => Self { events, run: Duration::from_secs(40), pair_period: Duration::from_secs(1) },
            None => Self { events: 8000, run: Duration::from_secs(8), pair_period: Duration::from_millis(250) },
        }
    }
}

/// One of the processes; does nothing unless the test below has started it.
#[test]
fn a_process_that_records_the_truth() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let rank: u32 = std::env::var("RANK").ok().and_then(|rank| rank.parse().ok()).expect("the parent gives it");
    let size = Size::asked();
    let own = size.events / u64::from(NODES);
    let policy = Policy::DropNewest { bytes: (own as usize * 160).next_power_of_two() + (1 << 20) };
    let builder = Recorder::builder().policy(policy).rank(rank).ranks(NODES).pair_period(size.pair_period);
    let builder = builder.virtual_clock(clock_of(&folder.join("out/truth.json"), rank));
    let session = builder.spill(folder.join(format!("rank{rank}.rec"))).start().expect("nothing else records");
    let (begun, span) = (Instant::now(), size.run.mul_f64(0.8));
    for at in 0..own {
        // In trains, of which the first few are slow: a thread sleeps no shorter than a train
        // takes.
        if at % TRAIN == 0 {
            let due = begun + span.mul_f64(at as f64 / own as f64);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let within = scope!("event");
        let now = SystemTime::now();
        drop(within);
        let since = now.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        instant!("truth", ns = since.as_nanos() as u64);
    }
    session.finish().expect("whole");
}

fn start_process(folder: &Path, rank: u32) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "record_time::a_process_that_records_the_truth", "--test-threads", "1"]);
    command.env(FOLDER, folder).env("RANK", rank.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// A node's clock, as `truth.json` states it.
fn clock_of(path: &Path, node: u32) -> SkewedClock {
    let truth: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("the run states it")).expect("JSON");
    let clock = &truth["nodes"][node.to_string()];
    let whole = |key: &str| clock[key].as_i64().expect("a whole number");
    let number = |key: &str| clock[key].as_f64().expect("a number");
    assert_eq!(clock["more_steps"].as_array().map(Vec::len), Some(0));
    let step = Step { at_ns: whole("t0_ns") + whole("step_at_ns"), step_ns: whole("step_ns") };
    let wave = Wave { amp_ns: number("amp_ns"), period_ns: whole("period_ns"), phase_rad: number("phase_rad") };
    SkewedClock {
        t0_ns: whole("t0_ns"),
        off_ns: whole("off_ns"),
        ppm: number("ppm"),
        wave: Some(wave),
        steps: if step.step_ns == 0 { Vec::new() } else { vec![step] },
    }
}

/// A recorded event: its middle in ticks, half of its length in ns, and the truth.
struct Known {
    ticks: u64,
    half_ns: f64,
    truth_ns: i64,
}

fn known(recording: &Recording) -> Vec<Known> {
    let clock = recording.on_system().expect("pairs");
    let clock = clock.clock();
    let mut found: Vec<Known> = Vec::new();
    let mut last = None;
    let mut take = |event: &Event<'_>| {
        match (&event.what, event.arguments().next()) {
            (What::Scope { start, end, .. }, _) => last = Some([*start, *end]),
            (What::Instant { .. }, Some((_, ArgumentValue::Unsigned(truth)))) => {
                let [start, end] = last.take().expect("a scope comes first");
                let half_ns = (clock.at(end).0 - clock.at(start).0) as f64 / 2.0;
                found.push(Known { ticks: u64::midpoint(start, end), half_ns, truth_ns: truth as i64 });
            }
            _ => {}
        }
        Ok::<(), probe_sync_record::Error>(())
    };
    for thread in recording.threads() {
        recording.visit(thread.serial, &mut take).expect("sound");
    }
    found
}

/// What came of the events.
#[derive(Default)]
struct Found {
    errors_ns: Vec<f64>,
    of_one_line_ns: Vec<f64>,
    in_hard: usize,
    in_95: usize,
    near_step: usize,
    disturbed: usize,
}

/// The hard interval of a node's errors, by when it holds: middle of the window, least and most,
/// ns.
fn hard(out: &Path, node: u32) -> Vec<(i64, f64, f64)> {
    let of_node = |line: &&Value| line["node_id"] == node && line["bound_lo_ns"].is_number();
    let interval = |line: &Value| {
        let number = |key: &str| line[key].as_f64().expect("a number");
        let at = |key: &str| line[key].as_i64().expect("a time");
        let middle = at("window_start_ns").midpoint(at("window_end_ns"));
        (middle, number("bound_lo_ns") - number("offset_ns"), number("bound_hi_ns") - number("offset_ns"))
    };
    lines(&out.join("offsets.smoothed.jsonl")).iter().filter(of_node).map(interval).collect()
}

fn judge(folder: &Path, rank: u32, size: &Size, found: &mut Found) {
    let out = folder.join("out");
    let recording = Recording::open(&folder.join(format!("rank{rank}.rec"))).expect("sound");
    let offsets = Offsets::read(&out.join("offsets.smoothed.jsonl")).expect("the run's");
    let onto_reference = offsets.map(rank).expect("measured");
    let system = recording.on_system().expect("pairs");
    let onto_reference = |ns: i64| {
        let Some(reference) = &onto_reference else { return ((ns - BASE_NS) as f64, 0.0, ns) };
        let mapped = reference.map.map(i128::from(ns) * 1000);
        let from_base = (mapped.time_ps - i128::from(BASE_NS) * 1000) as f64 * 1e-3;
        (from_base, mapped.sigma_ns, (mapped.time_ps / 1000) as i64)
    };
    let intervals = hard(&out, rank);
    let steps = clock_of(&out.join("truth.json"), rank).steps;
    let pairs = recording.pairs();
    let bracket = pairs.iter().map(|pair| pair.bracket_ticks).max().unwrap_or(0);
    let bracket_ns = (system.clock().at(pairs[0].ticks + bracket).0 - system.clock().at(pairs[0].ticks).0) as f64;
    // As profilers do it: from the events' clock to the system clock by one line through the first
    // and the last pair.
    let (first, last) = (&pairs[0], &pairs[pairs.len() - 1]);
    let rate = (last.system_ns - first.system_ns) as f64 / (last.ticks - first.ticks) as f64;
    let line = |ticks: u64| first.system_ns + ((ticks - first.ticks) as f64 * rate).round() as i64;
    for event in known(&recording) {
        let truth = (event.truth_ns - BASE_NS) as f64;
        if steps.iter().any(|step| (event.truth_ns - step.at_ns).unsigned_abs() < size.pair_period.as_nanos() as u64) {
            found.near_step += 1;
            continue;
        }
        // Interrupted between its two ticks: the truth is not known well enough to judge.
        if event.half_ns > HALF_NS_MAX {
            found.disturbed += 1;
            continue;
        }
        let (own, own_sigma) = system.clock().at(event.ticks);
        let (mapped, sigma, at) = onto_reference(own);
        let (error, sigma) = (mapped - truth, own_sigma.hypot(sigma));
        let after = intervals.partition_point(|(middle, ..)| *middle < at).min(intervals.len() - 1);
        let beside = [&intervals[after.saturating_sub(1)], &intervals[after]];
        let least = beside.iter().map(|(_, least, _)| *least).fold(f64::INFINITY, f64::min);
        let most = beside.iter().map(|(.., most)| *most).fold(f64::NEG_INFINITY, f64::max);
        let more = event.half_ns + bracket_ns / 2.0;
        found.in_hard += usize::from(least - more <= error && error <= most + more);
        found.in_95 += usize::from(error.abs() <= 1.96 * sigma + event.half_ns);
        found.errors_ns.push(error.abs());
        found.of_one_line_ns.push((onto_reference(line(event.ticks)).0 - truth).abs());
    }
}

#[test]
fn events_are_where_they_truly_were_on_the_reference_clock() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (size, out) = (Size::asked(), folder.path().join("out"));
    let step = format!("2@{}ms:5ms", size.run.as_millis() / 2);
    let run = format!("{}ms", size.run.as_millis());
    let arguments = ["run", "--local", "4", "--window", "500ms", "--fixed", "--inject-skew", "7"];
    let mut command = probe_sync(&arguments);
    command.args(["--skew-model", "sinusoid", "--inject-step", &step, "--duration", &run, "--out", text(&out)]);
    let run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command starts");
    wait_for_lines(&out.join("offsets.jsonl"), 5);
    let processes: Vec<Child> = (0..NODES).map(|rank| start_process(folder.path(), rank)).collect();
    for ended in processes.into_iter().chain([run]).map(wait) {
        assert!(ended.status.success(), "{}", complaint(&ended));
    }
    let mut found = Found::default();
    for rank in 0..NODES {
        let before = (found.errors_ns.len(), found.in_hard, found.in_95);
        judge(folder.path(), rank, &size, &mut found);
        let judged = found.errors_ns.len() - before.0;
        println!(
            "node {rank}: {judged} judged, {} in the hard interval, {} in the 95 % bound",
            found.in_hard - before.1,
            found.in_95 - before.2
        );
    }
    let Found { errors_ns, of_one_line_ns, in_hard, in_95, near_step, disturbed } = &mut found;
    let quantiles = |of: &mut Vec<f64>| {
        of.sort_by(f64::total_cmp);
        [of.len() / 2, of.len() * 99 / 100, of.len() - 1].map(|at| of[at])
    };
    let judged = errors_ns.len();
    let share = |count: usize| 100.0 * count as f64 / judged as f64;
    let ([median, p99, worst], line) = (quantiles(errors_ns), quantiles(of_one_line_ns));
    println!(
        "{judged} events judged, {near_step} near the step, {disturbed} interrupted: hard interval {:.3} %, 95 % bound {:.2} %, error median {median:.1}, \
         p99 {p99:.1}, worst {worst:.1} ns; by one line median {:.0}, worst {:.0} ns",
        share(*in_hard),
        share(*in_95),
        line[0],
        line[2]
    );
    // Next to other work most events may be interrupted.
    assert!(judged > size.events as usize / 20 && *near_step > 0);
    // On a busy machine, too; how well it is on a quiet one, bench/LOG.md has.
    assert!(share(*in_hard) >= 99.0 && median <= 1000.0 && line[2] > 10.0 * median);
}

const FOLDER: &str = "RECORD_TIME_FOLDER";
const EVENTS: &str = "RECORD_TIME_EVENTS";
const NODES: u32 = 4;
/// Events without a pause.
const TRAIN: u64 = 50;
/// Times are counted from here, since a floating-point number of the epoch's size is 256 ns wide.
const BASE_NS: i64 = 1_795_564_800_000_000_000;
/// A scope around one reading of the clock, undisturbed, is shorter.
const HALF_NS_MAX: f64 = 100.0;
