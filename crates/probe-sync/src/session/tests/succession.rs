//! Runs whose master is lost: who takes its place, and what is kept. Threads with real packets on
//! loopback and virtual clocks.

use std::path::{Path, PathBuf};

use probe_sync_collective::{
    Call, Collective, Deadline, Error, FaultTolerance, Frames, InProcess, Led, Rank, Succession,
};
use probe_sync_lines::Round;
use probe_sync_time::RoundId;

use super::modes::{LONG, Running, end, start_over, start_some_that_die};
use crate::round::request::Request;

const SETTINGS: [(&str, &str); 3] = [("window", "400ms"), ("fixed", "true"), ("round_timeout", "2s")];

/// The folders of masters after the first, in order of their first rounds.
fn folders(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.join("out")).expect("the run's directory");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let mut folders: Vec<PathBuf> = paths.filter(|path| path.to_string_lossy().contains("-from-round")).collect();
    folders.sort();
    folders
}

fn recorded(folder: &Path) -> Vec<Round> {
    let text = std::fs::read_to_string(folder.join("global_windows.jsonl")).expect("rounds");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Waits for a round on this rank.
fn wait_for(running: &Running, round: u64) {
    running.rounds.iter().find(|data| data.round_id == RoundId(round)).expect("the run goes on");
}

fn stop(running: &Running) {
    running.requests.ask(Request::Stop).expect("it is open").wait(LONG).expect("the master heard");
}

#[test]
fn the_next_rank_takes_a_lost_masters_place_and_no_round_is_lost() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let running = start_some_that_die(5, directory.path(), &SETTINGS, |rank| (rank == 0).then_some(5));
    wait_for(&running[4], 12);
    stop(&running[3]);
    let (rounds, report) = end(running);
    // Rank 4's first thirteen were taken above.
    for (rank, rounds) in rounds.iter().enumerate().take(4).skip(1) {
        let numbers: Vec<u64> = rounds.iter().map(|round| round.round_id.0).collect();
        assert!(numbers.iter().copied().eq(0..numbers.len() as u64) && numbers.len() >= 13, "rank {rank}: {numbers:?}");
    }
    let taken_over = report.taken_over.expect("by rank 1");
    assert_eq!((taken_over.from_rank, taken_over.first_round), (0, RoundId(5)));
    // Node 0 was the reference too; its timeline is carried, and nothing is further off than is
    // said.
    let truth = report.truth.as_ref().expect("virtual clocks");
    assert!(truth.outside_hard_interval == 0 && truth.coverage_95 >= 0.8, "{truth:?}");
    assert!(report.carriers.len() == 1 && report.absences.iter().any(|absence| absence.rank == 0), "{report:?}");
    let [folder] = &folders(directory.path())[..] else { panic!("{:?}", folders(directory.path())) };
    assert!(folder.ends_with("rank1-from-round5") && folder.join("report.json").exists());
    let (before, after) = (recorded(&directory.path().join("out")), recorded(folder));
    let all: Vec<u64> = before.iter().chain(&after).map(|round| round.round_id.0).collect();
    assert!(all.iter().copied().eq(0..all.len() as u64), "{all:?}");
    // Offsets go on where they were: the new master knows all rounds of the old one.
    let of = |round: &Round| round.all_nodes[3].offset_ns;
    let [earlier, last, first] = [&before[3], &before[4], &after[0]];
    let expected = of(last) + (of(last) - of(earlier));
    assert!((of(first) - expected).abs() < 20_000.0, "{} after {expected} was expected", of(first));
}

#[test]
fn another_rank_leads_from_the_start_and_the_ranks_after_it_take_its_place() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = [&SETTINGS[..], &[("master", "3")]].concat();
    let lives = |rank| match rank {
        3 => Some(4),
        4 => Some(8),
        _ => None,
    };
    let running = start_some_that_die(6, directory.path(), &settings, lives);
    wait_for(&running[0], 12);
    stop(&running[1]);
    let (rounds, report) = end(running);
    let numbers: Vec<u64> = rounds[2].iter().map(|round| round.round_id.0).collect();
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64) && numbers.len() >= 13, "{numbers:?}");
    assert_eq!(report.taken_over.map(|taken_over| taken_over.from_rank), Some(4));
    let names: Vec<PathBuf> = folders(directory.path());
    let of = |rank: &str| names.iter().any(|folder| folder.to_string_lossy().contains(rank));
    assert!(names.len() == 2 && of("rank4-from-round") && of("rank5-from-round"), "{names:?}");
    assert_eq!(report.truth.as_ref().map(|truth| truth.outside_hard_interval), Some(0), "{report:?}");
    assert!(report.carriers.is_empty(), "node 0 is the reference all the time: {report:?}");
}

#[test]
fn a_group_that_has_met_around_another_rank_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = crate::Config { master: 1, out: directory.path().join("out"), ..crate::Config::default() };
    let refused = super::sessions(2, &config, None, super::to_the_end);
    for rank in refused {
        let error = rank.expect_err("rank 0 leads").to_string();
        assert!(error.contains("--master 1: this group is led by rank 0"), "{error}");
    }
    assert!(!config.out.exists());
}

#[test]
fn masters_may_be_lost_one_after_the_other() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let lives = |rank| match rank {
        0 => Some(4),
        1 => Some(8),
        _ => None,
    };
    let running = start_some_that_die(6, directory.path(), &SETTINGS, lives);
    wait_for(&running[5], 12);
    stop(&running[4]);
    let (rounds, report) = end(running);
    let numbers: Vec<u64> = rounds[3].iter().map(|round| round.round_id.0).collect();
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "{numbers:?}");
    assert_eq!(report.taken_over.map(|taken_over| taken_over.from_rank), Some(1));
    assert_eq!(folders(directory.path()).len(), 2);
    assert_eq!(report.truth.as_ref().map(|truth| truth.outside_hard_interval), Some(0), "{report:?}");
}

#[test]
fn a_minority_without_its_master_knows_that_it_is_one() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let running = start_some_that_die(4, directory.path(), &SETTINGS, |rank| (rank < 2).then_some(3));
    for (rank, running) in running.into_iter().enumerate() {
        let ended = running.thread.join().expect("no rank panics");
        match (rank, ended) {
            (0 | 1, ended) => assert!(ended.is_ok_and(|report| report.is_none())),
            (_, Ok(_)) => panic!("rank {rank} went on"),
            (_, Err(error)) => assert!(error.to_string().contains("2 of 4 ranks; a minority"), "{error}"),
        }
    }
    assert!(folders(directory.path()).is_empty());
}

/// A rank that does not receive what the last allgather of rank 0 delivered to the others.
struct Misses {
    end: Led<InProcess>,
    /// Number of allgathers that it still receives.
    left: Option<u64>,
}

impl Collective for Misses {
    fn allgather(&mut self, payload: &[u8], frames: &mut Frames, deadline: &Deadline) -> Result<(), Error> {
        self.end.allgather(payload, frames, deadline)?;
        match &mut self.left {
            Some(0) => {
                self.left = None;
                Err(Error::Lost { operation: "allgather", rank: self.end.root(), reason: "for this test".to_owned() })
            }
            left => {
                *left = left.map(|left| left - 1);
                Ok(())
            }
        }
    }

    fn rank(&self) -> Rank {
        self.end.rank()
    }

    fn size(&self) -> usize {
        self.end.size()
    }

    fn root(&self) -> Rank {
        self.end.root()
    }

    fn backend(&self) -> &'static str {
        self.end.backend()
    }

    fn gather(&mut self, who: &[bool], payload: &[u8], all: &mut Frames, limit: &Deadline) -> Result<(), Error> {
        self.end.gather(who, payload, all, limit)
    }

    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        self.end.broadcast(buffer, deadline)
    }

    fn call(&mut self, word: &[u8]) -> Result<(), Error> {
        self.end.call(word)
    }

    fn calls(&mut self) -> Result<Vec<Call>, Error> {
        self.end.calls()
    }

    fn fault_tolerance(&mut self) -> Option<&mut dyn FaultTolerance> {
        self.end.fault_tolerance()
    }

    fn succession(&mut self) -> Option<&mut dyn Succession> {
        self.end.succession()
    }

    fn abort(&mut self, reason: &str) {
        self.end.abort(reason);
    }
}

/// Rank 0 is lost after its sixth round, which some have not received: those that know it send them
/// its windows, and all arrive at the same bytes as before.
fn check_missed_round(way: fn(Led<InProcess>) -> Misses) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = [&SETTINGS[..], &[("rounds", "timed"), ("duration", "5s")]].concat();
    let running = start_over(5, directory.path(), &settings, |rank| (rank == 0).then_some(6), way);
    let (rounds, report) = end(running);
    let bytes = |rank: usize, from: usize| serde_json::to_vec(&rounds[rank][from..]).expect("JSON");
    let numbers: Vec<u64> = rounds[4].iter().map(|round| round.round_id.0).collect();
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64) && numbers.len() >= 9, "{numbers:?}");
    // A rank that missed the round is told of it in the middle of the next.
    assert_eq!(rounds[0].len(), 6);
    for rank in 1..4 {
        assert!(bytes(rank, 0) == bytes(4, 0), "rank {rank} differs");
    }
    let taken_over = report.taken_over.expect("by rank 1");
    assert_eq!((taken_over.from_rank, taken_over.first_round), (0, RoundId(5)), "the last of rank 0 is kept twice");
    assert_eq!(report.truth.as_ref().map(|truth| truth.outside_hard_interval), Some(0), "{report:?}");
    let [folder] = &folders(directory.path())[..] else { panic!("{:?}", folders(directory.path())) };
    let kept = |folder: &Path| recorded(folder).iter().map(|round| round.round_id.0).collect::<Vec<_>>();
    assert_eq!(kept(&directory.path().join("out")), [0, 1, 2, 3, 4, 5]);
    assert_eq!(kept(folder), numbers[5..]);
    let line = |folder: &Path, place: usize| {
        let text = std::fs::read_to_string(folder.join("global_windows.jsonl")).expect("rounds");
        text.lines().nth(place).map(str::to_owned)
    };
    assert_eq!(line(folder, 0), line(&directory.path().join("out"), 5), "as rank 0 had it");
}

#[test]
fn in_time_based_rounds_every_rank_has_what_it_needs_to_take_over() {
    check_missed_round(|end| Misses { end, left: None });
}

#[test]
fn in_time_based_rounds_who_has_missed_the_last_round_solves_it_of_the_same_windows() {
    check_missed_round(|end| {
        let left = [2, 3].contains(&end.rank()).then_some(5);
        Misses { end, left }
    });
}

#[test]
fn in_time_based_rounds_the_rank_that_takes_over_may_have_missed_the_last_round() {
    check_missed_round(|end| {
        let left = (end.rank() == 1).then_some(5);
        Misses { end, left }
    });
}
