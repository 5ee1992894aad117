//! Jobs in which a rank misbehaves.
//!
//! `cargo xtask test` runs them and checks exit codes and messages; they can also be run by hand.
//! They check nothing themselves, except the late rank's name.

use std::time::{Duration, Instant};

use clap::Args;
use probe_sync_collective::{Collective, Deadline, Error, Frames};
use probe_sync_mpi::{MpiCollective, MpiOptions};
use rustix::time::{ClockId, clock_gettime};

use crate::group::GroupExt as _;
use crate::suite::messages;

/// How the waiting is done.
#[derive(Args)]
pub(crate) struct WaitOptions {
    /// How long the root lets the others wait, seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// By messages, as beside a launcher.
    #[arg(long)]
    messages: bool,
}

/// The last rank never comes; the root names it and ends the job.
pub(crate) fn late(mut group: MpiCollective) -> Result<(), String> {
    meet(&mut group)?;
    let last = group.size() - 1;
    if group.rank() == last && last > 0 {
        // Longer than the others wait: the root ends the job before this returns.
        std::thread::sleep(TIMEOUT * 10);
    }
    let (everyone, mut frames) = (vec![true; group.size()], Frames::default());
    let deadline = Deadline::new(TIMEOUT, None);
    let result = group
        .gather(&everyone, b"here", &mut frames, &deadline)
        .and_then(|()| group.broadcast(&mut Vec::new(), &Deadline::new(TIMEOUT * 2, None)));
    match result {
        Err(error @ Error::Late { .. }) if group.is_root() => {
            eprintln!("{error}");
            group.abort(&error.to_string());
            Err(error.to_string())
        }
        other => other.map_err(|error| error.to_string()),
    }
}

/// The others wait for the root; the root prints the processor time that all ranks used meanwhile.
pub(crate) fn wait(mut group: MpiCollective, options: &WaitOptions) -> Result<(), String> {
    if options.messages {
        let mut by_messages = messages(&group).map_err(text)?;
        wait_in(&mut by_messages, options)?;
        return by_messages.release().map_err(text);
    }
    wait_in(&mut group, options)
}

/// How the looking is done.
#[derive(Args)]
pub(crate) struct LookOptions {
    /// How long, seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Looks of each rank in a second.
    #[arg(long, default_value_t = 20)]
    per_second: u32,
    /// Let every that many ranks play a host.
    #[arg(long)]
    ranks_per_host: Option<usize>,
    /// By messages, as beside a launcher.
    #[arg(long)]
    messages: bool,
    /// Only sleep: what the waking costs without a look.
    #[arg(long)]
    sleep_only: bool,
}

/// All ranks look for words, as between two rounds; the root prints the processor time of them all.
pub(crate) fn looks(group: &MpiCollective, options: &LookOptions) -> Result<(), String> {
    if options.messages {
        let mut by_messages = messages(group).map_err(text)?;
        looks_in(&mut by_messages, options)?;
        return by_messages.release().map_err(text);
    }
    let layout = MpiOptions { ranks_per_host: options.ranks_per_host };
    looks_in(&mut group.duplicate(layout).map_err(text)?, options)
}

fn looks_in(group: &mut impl Collective, options: &LookOptions) -> Result<(), String> {
    meet(group)?;
    let (cpu, wall) = (cpu_seconds(), Instant::now());
    for _ in 0..options.seconds * u64::from(options.per_second) {
        std::thread::sleep(Duration::from_secs(1) / options.per_second.max(1));
        if !options.sleep_only && !group.calls().map_err(text)?.is_empty() {
            return Err("a word that nobody has said".to_owned());
        }
    }
    report_used(group, "looked for words", cpu_seconds() - cpu, wall.elapsed())
}

fn wait_in(group: &mut impl Collective, options: &WaitOptions) -> Result<(), String> {
    meet(group)?;
    let (cpu, wall) = (cpu_seconds(), Instant::now());
    let pause = Duration::from_secs(options.seconds);
    if group.is_root() {
        std::thread::sleep(pause);
    }
    group.broadcast(&mut Vec::new(), &Deadline::new(pause + TIMEOUT * 5, None)).map_err(text)?;
    report_used(group, "waited", cpu_seconds() - cpu, wall.elapsed())
}

/// The root prints what all ranks used together.
fn report_used(group: &mut impl Collective, did: &str, used: f64, waited: Duration) -> Result<(), String> {
    let mut frames = Frames::default();
    group.allgather(&used.to_le_bytes(), &mut frames, &Deadline::new(TIMEOUT * 5, None)).map_err(text)?;
    let total: f64 = frames.iter().filter_map(|frame| frame.first_chunk()).map(|used| f64::from_le_bytes(*used)).sum();
    if group.is_root() {
        let share = 100.0 * total / waited.as_secs_f64();
        println!(
            "{} ranks {did} for {waited:.2?}: {total:.4} s of processor time in all, {share:.2} % of a core",
            group.size()
        );
    }
    Ok(())
}

/// The last rank panics while the others wait. Panics that all ranks catch before are no reason to
/// end.
pub(crate) fn panic(mut group: MpiCollective) -> Result<(), String> {
    meet(&mut group)?;
    let last = group.size() - 1;
    // What is caught, or happens on another thread, ends nothing.
    let elsewhere = std::thread::spawn(|| panic!("on a thread of its own")).join();
    let caught = std::panic::catch_unwind(|| panic!("caught"));
    if elsewhere.is_ok() || caught.is_ok() {
        return Err("no panic".to_owned());
    }
    meet(&mut group)?;
    assert!(group.rank() != last, "rank {last} panics on purpose");
    group.broadcast(&mut Vec::new(), &Deadline::new(TIMEOUT, None)).map_err(text)?;
    std::thread::sleep(TIMEOUT * 10);
    Err("the job went on after a panic".to_owned())
}

/// The last rank lets go of its end while the others gather; its farewell is no empty part, and
/// whoever reads it ends the job.
pub(crate) fn leaves(group: &MpiCollective, ranks_per_host: Option<usize>) -> Result<(), String> {
    let mut fresh = group.duplicate(MpiOptions { ranks_per_host }).map_err(text)?;
    meet(&mut fresh)?;
    let last = fresh.size() - 1;
    if fresh.rank() == last {
        drop(fresh);
        return Err("the last rank has left in order".to_owned());
    }
    let (everyone, mut frames) = (vec![true; fresh.size()], Frames::default());
    let result = fresh.gather(&everyone, &[], &mut frames, &Deadline::new(TIMEOUT, None));
    match result {
        // The root, or the leader of the last rank's host.
        Err(error @ Error::Protocol { .. }) => {
            eprintln!("{error}");
            fresh.abort(&error.to_string());
            Err(error.to_string())
        }
        Ok(()) if fresh.is_root() => Err("a farewell was taken for an empty part".to_owned()),
        // The job ends before this is over.
        _ => {
            std::thread::sleep(TIMEOUT * 10);
            Err("the job went on".to_owned())
        }
    }
}

/// The last rank ends the job while the others wait.
pub(crate) fn abort(mut group: MpiCollective) -> Result<(), String> {
    meet(&mut group)?;
    if group.rank() == group.size() - 1 {
        eprintln!("rank {} ends the job: the disk is full", group.rank());
        group.abort("the disk is full");
    }
    std::thread::sleep(TIMEOUT * 10);
    Err("the job went on after an abort".to_owned())
}

/// Processor time of this process, seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 * 1e-9
}

/// One round, so that everyone is there.
fn meet(group: &mut impl Collective) -> Result<(), String> {
    group.allgather(b"", &mut Frames::default(), &Deadline::new(Duration::from_secs(60), None)).map_err(text)
}

#[expect(clippy::needless_pass_by_value, reason = "used as a function value for map_err")]
fn text(error: Error) -> String {
    error.to_string()
}

/// How long the others wait for the rank that does not come.
const TIMEOUT: Duration = Duration::from_secs(2);
