//! How rounds come about, and what is asked of them while they go on: threads with real packets on
//! loopback and virtual clocks.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration as StdDuration;

use probe_sync_collective::{Collective, InProcess, Led};
use probe_sync_lines::{NodeWindow, Round};
use probe_sync_time::{Duration, NodeId, RoundId, Timestamp};

use super::super::{Context, Driver};
use crate::report::RunReport;
use crate::round::request::{Request, Requests};
use crate::{Config, Error};

/// A rank on a thread of its own.
pub(super) struct Running {
    pub requests: Requests,
    pub rounds: Receiver<Round>,
    pub thread: JoinHandle<Result<Option<RunReport>, Error>>,
}

fn start(size: usize, directory: &Path, settings: &[(&str, &str)]) -> Vec<Running> {
    start_some_that_die(size, directory, settings, |_| None)
}

/// Like [`start`]; a rank disappears without notice after as many rounds as `lives` states.
pub(super) fn start_some_that_die(
    size: usize,
    directory: &Path,
    settings: &[(&str, &str)],
    lives: fn(usize) -> Option<u64>,
) -> Vec<Running> {
    start_over(size, directory, settings, lives, |group| group)
}

/// Like [`start_some_that_die`], with each rank's end of the group wrapped by `way`.
pub(super) fn start_over<C: Collective + Send + 'static>(
    size: usize,
    directory: &Path,
    settings: &[(&str, &str)],
    lives: fn(usize) -> Option<u64>,
    way: fn(Led<InProcess>) -> C,
) -> Vec<Running> {
    let mut config = Config { out: directory.join("out"), ..Config::default() };
    for (key, text) in
        [("inject_skew", "11"), ("skew_offset", "300ms"), ("tracer_clock", "none")].iter().chain(settings)
    {
        config.set(key, text, "test").expect("a setting");
    }
    let spawn = |end: Led<InProcess>| {
        let mut collective = way(end);
        let rank = collective.rank();
        let (config, requests, (sender, rounds)) = (config.clone(), Requests::default(), channel());
        let context = Context { requests: requests.clone(), ..Context::default() };
        let thread = std::thread::spawn(move || {
            let mut session = Driver::start(config, &mut collective, &context)?;
            while let Some(round) = session.next_round()? {
                // Nobody may look any more.
                let _ = sender.send(round.clone());
                if lives(rank) == Some(round.round_id.0 + 1) {
                    return Ok(None);
                }
            }
            session.stop()
        });
        Running { requests, rounds, thread }
    };
    let master = config.master as usize;
    let mut group: Vec<_> = InProcess::group(size).into_iter().map(|end| Led::new(end, master)).collect();
    group.sort_by_key(Led::rank);
    group.into_iter().map(spawn).collect()
}

/// Returns all rounds of each rank, and the root's report.
pub(super) fn end(running: Vec<Running>) -> (Vec<Vec<Round>>, RunReport) {
    let mut report = None;
    let mut rounds = Vec::new();
    for rank in running {
        report = rank.thread.join().expect("no rank panics").expect("a run").or(report);
        rounds.push(rank.rounds.try_iter().collect());
    }
    (rounds, report.expect("the root's report"))
}

fn windows(directory: &Path, node: usize) -> Vec<NodeWindow> {
    let text = std::fs::read_to_string(directory.join(format!("out/windows/node{node}.jsonl"))).expect("windows");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn length_ms(round: &Round) -> i64 {
    (round.window_end - round.window_start).as_ns() / 1_000_000
}

pub(super) const LONG: StdDuration = StdDuration::from_secs(60);

#[test]
fn in_time_based_rounds_all_ranks_come_to_the_same_bytes_without_being_told() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = [("rounds", "timed"), ("window", "400ms"), ("duration", "3s"), ("fixed", "true")];
    let (rounds, report) = end(start(3, directory.path(), &settings));
    assert!((6..=8).contains(&rounds[0].len()), "{} rounds", rounds[0].len());
    let bytes = |rank: usize| serde_json::to_vec(&rounds[rank]).expect("JSON");
    assert!(bytes(0) == bytes(1) && bytes(0) == bytes(2), "the ranks differ");
    assert_eq!(report.rounds, rounds[0].len() as u64);
    assert_eq!(report.truth.as_ref().map(|truth| truth.outside_hard_interval), Some(0), "{report:?}");
    // Once offsets are known every node ends its windows at multiples of 400 ms of the reference
    // clock, by its own clock.
    for round in &rounds[0][2..] {
        let off = (round.window_end.as_ns() + 200_000_000).rem_euclid(400_000_000) - 200_000_000;
        assert!(off.abs() < 150_000_000, "round {} ended {off} ns beside the grid", round.round_id);
    }
}

#[test]
fn in_time_based_rounds_nothing_but_the_end_can_be_asked_for() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let running = start(2, directory.path(), &[("rounds", "timed"), ("window", "200ms"), ("duration", "600ms")]);
    running[1].rounds.recv_timeout(LONG).expect("a round");
    let error = running[1].requests.ask(Request::Pause).expect_err("there is no master").to_string();
    assert!(error.contains("--rounds master"), "{error}");
    end(running);
}

#[test]
fn local_windows_are_files_that_solve_turns_into_offsets() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = [("rounds", "local"), ("window", "300ms"), ("duration", "1500ms"), ("fixed", "true")];
    let (rounds, report) = end(start(3, directory.path(), &settings));
    assert!(rounds.iter().all(Vec::is_empty) && report.rounds == 0 && report.error.is_none(), "{report:?}");
    for node in 0..3 {
        let windows = windows(directory.path(), node);
        assert!((4..=6).contains(&windows.len()), "{} windows of node {node}", windows.len());
        assert!(windows.iter().zip(0..).all(|(window, round)| window.round_id == RoundId(round)));
    }
}

#[test]
fn any_rank_pauses_all_names_a_phase_and_ends_a_window_for_all_together() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let running = start(3, directory.path(), &[("window", "600s"), ("first_window", "250ms"), ("fixed", "true")]);
    // Offsets are known after the short windows. An answer that waited for the end of a window
    // would not arrive within `LONG`.
    running[2].rounds.iter().find(|round| round.round_id == RoundId(3)).expect("the run goes on");
    let phase = Request::phase("warm-up").expect("a name");
    let warm = running[2].requests.ask(phase.clone()).expect("it is open").wait(LONG).expect("the master heard");
    let paused = running[1].requests.ask(Request::Pause).expect("open").wait(LONG).expect("the master heard");
    let resumed = running[0].requests.ask(Request::Resume).expect("open").wait(LONG).expect("the master heard");
    let none = running[1].requests.ask(Request::Phase(None)).expect("open").wait(LONG).expect("the master heard");
    let next = running[2].requests.ask(Request::EndRound).expect("open").wait(LONG).expect("the master heard");
    running[2].requests.ask(Request::Stop).expect("open").wait(LONG).expect("the master heard");
    let (rounds, report) = end(running);
    let of = |round: RoundId| &rounds[0][round.0 as usize];
    // What holds for round k was decided by round k - 1.
    let before = |round: RoundId| &rounds[0][round.0 as usize - 1].decision;
    assert_eq!(before(warm.round).phase.as_deref(), Some("warm-up"));
    assert!(before(paused.round).paused && !before(resumed.round).paused && before(none.round).phase.is_none());
    assert_eq!(of(warm.round).window_start, warm.start);
    // A rank that has yet to hear of the round without a phase is still in the one before, and that
    // is the one it ends.
    assert!(next.round >= none.round && !report.interrupted);
    for node in 0..3 {
        let windows = windows(directory.path(), node);
        let pairs = |round: RoundId| windows[round.0 as usize].edges.iter().map(|edge| edge.pairs_count).sum::<u32>();
        // What was under way when the pause began may still end.
        assert!(pairs(warm.round) > 20 && pairs(paused.round) <= 20, "{} {}", pairs(warm.round), pairs(paused.round));
        assert!(pairs(resumed.round) > 20, "node {node} measures again");
    }
    // The nodes' clocks are up to 300 ms apart, and windows that end early end together all the
    // same.
    let truth = std::fs::read(directory.path().join("out/truth.json")).expect("virtual clocks");
    let truth: serde_json::Value = serde_json::from_slice(&truth).expect("JSON");
    assert!(truth.is_object());
    let ends: Vec<Timestamp<_>> = (0..3)
        .map(|node| {
            let end = windows(directory.path(), node)[warm.round.0 as usize].window_end;
            let offset = of(warm.round).node(NodeId(node as u32)).expect("all are told").offset_ns;
            end - Duration::from_ns_f64(offset)
        })
        .collect();
    let spread = ends.iter().max().expect("three").as_ns() - ends.iter().min().expect("three").as_ns();
    assert!(spread < 200_000_000, "cut {spread} ns apart");
    let phases: Vec<_> = report.phases.iter().map(|phase| (phase.name.as_str(), phase.first, phase.last)).collect();
    assert_eq!(phases, [("warm-up", warm.round, RoundId(none.round.0 - 1))]);
}

#[test]
fn a_clock_that_jumps_ends_the_window_under_way() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = [("window", "10s"), ("first_window", "250ms"), ("inject_step", "1@3s:2ms"), ("fixed", "true")];
    let running = start(2, directory.path(), &settings);
    let jumped = running[0].rounds.iter().find(|round| round.round_id == RoundId(4)).expect("the run goes on");
    running[0].requests.ask(Request::Stop).expect("open").wait(LONG).expect("the master heard");
    end(running);
    assert!(length_ms(&jumped) < 8_000, "{} ms", length_ms(&jumped));
    assert!(jumped.clock_disturbed(NodeId(1)), "{:?}", jumped.clock_events);
}

#[test]
fn a_rank_may_be_told_its_own_part_only() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = [("window", "300ms"), ("duration", "1200ms"), ("share_rounds", "false"), ("successors", "0")];
    let (rounds, _) = end(start(3, directory.path(), &settings));
    let of = |rank: usize| rounds[rank].last().expect("rounds").all_nodes.iter().map(|node| node.node_id.0).collect();
    let all: [Vec<u32>; 3] = [of(0), of(1), of(2)];
    assert_eq!(all, [vec![0, 1, 2], vec![0, 1], vec![0, 2]]);
    let [root, own] = [0, 2].map(|rank: usize| rounds[rank].last().and_then(|round| round.node(NodeId(2))));
    assert!(root.is_some() && root == own);
}
