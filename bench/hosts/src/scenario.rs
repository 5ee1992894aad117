//! A whole run on several hosts, with namespaces, a link, one `probe_sync` in each namespace and
//! the final comparison.
//!
//! The ranks find each other by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, so the TCP control
//! traffic also crosses the emulated link and suffers its losses. The scenario compares the offsets
//! with their truth ([`verify`]). Packet by packet and for each direction, it also compares what
//! the run reports as sent, received and lost with what the link saw, delivered and dropped. If a
//! direction was configured to lose packets, the run must name exactly that direction; otherwise it
//! must name none. It does not judge the width of the intervals: no packet can rule out a path
//! asymmetry of milliseconds, and the intervals must reflect that.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::emulator::{Punctuality, relay};
use crate::link::{Counts, LinkOptions, Links, OneWayLoss};
use crate::namespace::{Host, Namespaces};
use crate::packet::Protocol;
use crate::verify::{Limits, verify};

/// What to run and under which conditions.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The program probe_sync
    #[arg(long, default_value = "target/debug/probe_sync")]
    program: PathBuf,
    /// A directory for the run's files and logs
    #[arg(long, default_value = "target/netns")]
    out: PathBuf,
    /// Hosts
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=64))]
    hosts: u8,
    /// Length of the run
    #[arg(long, default_value = "12s", value_parser = humantime::parse_duration)]
    duration: Duration,
    /// Length of a window
    #[arg(long, default_value = "2s")]
    window: String,
    /// Seed of the injected skew
    #[arg(long, default_value_t = 7)]
    inject_skew: u64,
    /// Largest |error| from the second round on, µs
    #[arg(long, default_value_t = 300.0)]
    worst_us: f64,
    #[command(flatten)]
    link: LinkOptions,
    /// Further arguments of probe_sync
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs the scenario and compares.
///
/// # Errors
/// `NotPermitted` where namespaces cannot be had; otherwise what failed or does not agree.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.program.is_file(), "no program {}; build it first", options.program.display());
    let program = options.program.canonicalize().context("finding the program")?;
    fs::create_dir_all(&options.out).with_context(|| format!("creating {}", options.out.display()))?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("catching signals")?;
    }
    let spaces = Namespaces::new(options.hosts)?;
    let hosts = spaces.hosts();
    let links = Links::new(&options.link, hosts.len());
    let relay_stop = AtomicBool::new(false);
    let (ended, relayed) = std::thread::scope(|scope| {
        let relay = scope.spawn(|| relay(hosts, links, &relay_stop));
        let ended = ranks(options, hosts, &program, &stop);
        relay_stop.store(true, Ordering::Relaxed);
        (ended, relay.join())
    });
    let (links, punctuality) = relayed.map_err(|_| anyhow::anyhow!("the emulator panicked"))??;
    let report = LinkReport::new(&links, hosts);
    fs::write(options.out.join("links.json"), serde_json::to_string_pretty(&report)?).context("writing links.json")?;
    report.print(punctuality);
    ended?;
    let accuracy = verify(&run_directory(options), &limits(options));
    let summary = RunSummary::read(&options.out.join("rank0.stdout"))?;
    let packets = compare_packets(&summary, &report);
    let named = compare_one_way(&summary, options.link.one_way_loss);
    let complaints: Vec<String> =
        [accuracy, packets, named].into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(complaints.is_empty(), "{}", complaints.join("; "));
    Ok(())
}

/// Starts a rank on every host and waits for all.
fn ranks(options: &Options, hosts: &[Host], program: &Path, stop: &AtomicBool) -> Result<()> {
    let mut children = Vec::new();
    for rank in 0..hosts.len() {
        match start(options, hosts, program, rank) {
            Ok(child) => children.push(child),
            Err(error) => {
                end(&mut children);
                return Err(error);
            }
        }
    }
    let deadline = Instant::now() + options.duration + SLACK;
    let statuses = wait(&mut children, deadline, stop);
    let failed: Vec<String> = statuses
        .iter()
        .enumerate()
        .filter(|(_, status)| !status.is_some_and(|status| status.success()))
        .map(|(rank, status)| {
            let how = status.map_or("did not end in time".to_owned(), |status| format!("ended with {status}"));
            format!("rank {rank} {how}: {}", last_lines(&options.out.join(format!("rank{rank}.stderr"))))
        })
        .collect();
    ensure!(!stop.load(Ordering::Relaxed), "stopped by a signal");
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

fn start(options: &Options, hosts: &[Host], program: &Path, rank: usize) -> Result<Child> {
    let log = |kind: &str| {
        let path = options.out.join(format!("rank{rank}.{kind}"));
        File::create(&path).with_context(|| format!("creating {}", path.display()))
    };
    let mut command = hosts[rank].command(program);
    command
        .args(["run", "--json", "--window", &options.window])
        .args(["--duration", &humantime::format_duration(options.duration).to_string()])
        .args(["--inject-skew", &options.inject_skew.to_string()])
        .args(["--bind", &hosts[rank].address.to_string()])
        .arg("--out")
        .arg(run_directory(options))
        .args(&options.arguments)
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", hosts.len().to_string())
        .env("MASTER_ADDR", hosts[0].address.to_string())
        .env("MASTER_PORT", MASTER_PORT.to_string())
        .stdin(Stdio::null())
        .stdout(log("stdout")?)
        .stderr(log("stderr")?);
    command.spawn().with_context(|| format!("starting rank {rank}"))
}

/// The exit statuses; ranks that are still there at the deadline, or when this program is told to
/// stop, are ended.
fn wait(children: &mut [Child], deadline: Instant, stop: &AtomicBool) -> Vec<Option<ExitStatus>> {
    let mut statuses = vec![None; children.len()];
    while statuses.contains(&None) && Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
        for (child, status) in children.iter_mut().zip(&mut statuses) {
            *status = status.or_else(|| child.try_wait().ok().flatten());
        }
        std::thread::sleep(POLL);
    }
    end(children);
    statuses
}

fn end(children: &mut [Child]) {
    for child in children {
        // `ip netns exec` became the program itself, so this reaches it; one that has ended already
        // is no error.
        let _already_gone = child.kill();
        let _reaped = child.wait();
    }
}

/// What one direction of the link saw, and what the host around it lost besides.
#[derive(Clone, Debug, Serialize)]
struct DirectionReport {
    src: usize,
    dst: usize,
    asymmetry_ns: f64,
    udp: Counts,
    tcp: Counts,
    other: Counts,
}

/// Everything the testbed knows about packets.
#[derive(Clone, Debug, Serialize)]
struct LinkReport {
    directions: Vec<DirectionReport>,
    /// Per host: packets lost in the sending device's queue. Expected to be 0.
    device_drops: Vec<Option<u64>>,
    /// Per host: UDP packets lost in a full socket, and packets for which there was no socket.
    /// Expected to be 0.
    socket_drops: Vec<Option<(u64, u64)>>,
}

impl LinkReport {
    fn new(links: &Links, hosts: &[Host]) -> Self {
        let count = hosts.len();
        let pairs = (0..count).flat_map(|src| (0..count).map(move |dst| (src, dst))).filter(|(src, dst)| src != dst);
        let directions = pairs.map(|(src, dst)| DirectionReport {
            src,
            dst,
            asymmetry_ns: links.asymmetry_ns(src, dst),
            udp: links.counts(src, dst, Protocol::Udp),
            tcp: links.counts(src, dst, Protocol::Tcp),
            other: links.counts(src, dst, Protocol::Other),
        });
        Self {
            directions: directions.collect(),
            device_drops: hosts.iter().map(|host| host.device_drops().ok()).collect(),
            socket_drops: hosts.iter().map(|host| host.socket_drops().ok()).collect(),
        }
    }

    fn print(&self, punctuality: Punctuality) {
        let (mean, worst) = punctuality.mean_and_worst();
        let sum = |of: fn(&DirectionReport) -> u64| self.directions.iter().map(of).sum::<u64>();
        println!(
            "link: {} UDP packets, {} dropped; {} TCP packets, {} dropped; delivered {mean:.1?} late on average, worst {worst:.1?}",
            sum(|direction| direction.udp.seen),
            sum(|direction| direction.udp.dropped),
            sum(|direction| direction.tcp.seen),
            sum(|direction| direction.tcp.dropped),
        );
    }
}

/// What the run says about one direction; the part of its JSON summary that is compared here.
#[derive(Copy, Clone, Debug, Deserialize)]
struct RunPackets {
    src: usize,
    dst: usize,
    sent: u64,
    received: u64,
    lost: u64,
}

#[derive(Debug, Deserialize)]
struct RunSummary {
    packets: Vec<RunPackets>,
    faults: Vec<RunFault>,
}

/// A fault that the run named.
#[derive(Clone, Debug, Deserialize)]
struct RunFault {
    kind: String,
    culprit: Culprit,
    began: u64,
    round: u64,
}

/// The culprit of the fault, as far as it is compared here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Culprit {
    Edge {
        src: usize,
        dst: usize,
    },
    #[serde(untagged)]
    Other(serde::de::IgnoredAny),
}

impl RunSummary {
    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("parsing {}", path.display()))
    }
}

/// Sent = seen, received = delivered and lost = dropped in every direction, to the packet.
fn compare_packets(summary: &RunSummary, report: &LinkReport) -> Result<()> {
    let complaints = packet_complaints(&summary.packets, &report.directions);
    if complaints.is_empty() {
        let lost: u64 = summary.packets.iter().map(|packets| packets.lost).sum();
        println!("packets: all {} directions agree; {lost} lost, each counted on both sides", summary.packets.len());
        return Ok(());
    }
    bail!(
        "packet counts disagree: {} (lost in full device queues: {:?}; in full sockets, without socket: {:?})",
        complaints.join("; "),
        report.device_drops,
        report.socket_drops
    )
}

/// The one direction that lost packets, and no other, is named as such by the third round: two
/// rounds must show it, and each is judged a round later, when what was read late has been counted.
fn compare_one_way(summary: &RunSummary, lossy: Option<OneWayLoss>) -> Result<()> {
    let named: Vec<&RunFault> = summary.faults.iter().filter(|fault| fault.kind == "one_way_loss").collect();
    let Some(OneWayLoss { from, to, .. }) = lossy else {
        ensure!(named.is_empty(), "loss one way is named where there is none: {named:?}");
        return Ok(());
    };
    let right = |fault: &RunFault| matches!(fault.culprit, Culprit::Edge { src, dst } if (src, dst) == (from, to));
    match named[..] {
        [fault] if right(fault) && fault.round <= 2 => {
            println!(
                "faults: loss from {from} to {to} alone, begun in round {}, named in round {}",
                fault.began, fault.round
            );
            Ok(())
        }
        _ => bail!("loss from {from} to {to} alone should be named once, by round 2: {:?}", summary.faults),
    }
}

fn packet_complaints(run: &[RunPackets], link: &[DirectionReport]) -> Vec<String> {
    let mut complaints = Vec::new();
    for direction in link {
        let (src, dst, seen) = (direction.src, direction.dst, direction.udp);
        let Some(said) = run.iter().find(|said| (said.src, said.dst) == (src, dst)) else {
            if seen.seen > 0 {
                complaints.push(format!("{src}→{dst}: the run says nothing, the link saw {} packets", seen.seen));
            }
            continue;
        };
        let pairs = [
            ("sent", said.sent, "seen", seen.seen),
            ("received", said.received, "delivered", seen.delivered),
            ("lost", said.lost, "dropped", seen.dropped),
        ];
        for (said, number, saw, count) in pairs.into_iter().filter(|(_, number, _, count)| number != count) {
            complaints.push(format!("{src}→{dst}: run {said} {number}, link {saw} {count}"));
        }
    }
    if run.is_empty() {
        complaints.push("the run lists no direction".to_owned());
    }
    complaints
}

fn limits(options: &Options) -> Limits {
    // A node's errors are one draw, not many: the emulator delivers packets late by tens of µs, not
    // equally in both directions, and no estimator can see that. So it is nodes that are outside
    // (see `least_coverage`). With asymmetry on purpose a node of three may be.
    let asymmetric = !options.link.asymmetry.is_zero() || options.link.asymmetric_link.is_some();
    let coverage = asymmetric.then_some(2.0 / 3.0);
    Limits {
        nodes: u32::from(options.hosts),
        worst_ns: Some(options.worst_us * 1e3),
        median_ns: None,
        width_ratio: None,
        coverage,
        cpu_share: None,
        rounds: 2,
    }
}

fn run_directory(options: &Options) -> PathBuf {
    options.out.join("run")
}

fn last_lines(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}

const MASTER_PORT: u16 = 29_500;

/// Start, rendezvous over a lossy link, and the end of the last round.
const SLACK: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    /// One direction 0→1 as both sides count it; `expected` are parts of the complaints.
    fn check(run: &[RunPackets], link: Counts, expected: &[&str]) {
        let nothing = Counts::default();
        let direction = DirectionReport { src: 0, dst: 1, asymmetry_ns: 0.0, udp: link, tcp: nothing, other: nothing };
        let complaints = packet_complaints(run, &[direction]);
        assert_eq!(complaints.len(), expected.len(), "{complaints:?}");
        for (complaint, part) in complaints.iter().zip(expected) {
            assert!(complaint.contains(part), "{complaint} lacks {part}");
        }
    }

    #[test]
    fn the_lossy_direction_alone_must_be_named() {
        let summary = |faults: &str| -> RunSummary {
            serde_json::from_str(&format!(r#"{{"packets":[],"faults":[{faults}]}}"#)).expect("a summary")
        };
        let named = |culprit: &str, round: u64| {
            format!(r#"{{"kind":"one_way_loss","culprit":{culprit},"size":0.3,"began":0,"round":{round}}}"#)
        };
        let right = named(r#"{"edge":{"src":2,"dst":1}}"#, 1);
        let others = r#"{"kind":"loss","culprit":"everyone","size":0.1,"began":0,"round":1}"#;
        let lossy = Some(OneWayLoss { from: 2, to: 1, percent: 30.0 });
        for (faults, lossy, fine) in [
            (right.clone(), lossy, true),
            (format!("{right},{others}"), lossy, true),
            (String::new(), None, true),
            (others.to_owned(), lossy, false),
            (right.clone(), None, false),
            (format!("{right},{right}"), lossy, false),
            (named(r#"{"edge":{"src":1,"dst":2}}"#, 1), lossy, false),
            (named(r#"{"node":2}"#, 1), lossy, false),
            (named(r#"{"edge":{"src":2,"dst":1}}"#, 3), lossy, false),
        ] {
            let outcome = compare_one_way(&summary(&faults), lossy);
            assert_eq!(outcome.is_ok(), fine, "{faults}: {outcome:?}");
        }
    }

    #[test]
    fn every_packet_must_be_accounted_for() {
        let link = Counts { seen: 100, dropped: 3, delivered: 97, refused: 0 };
        let right = RunPackets { src: 0, dst: 1, sent: 100, received: 97, lost: 3 };
        check(&[right], link, &[]);
        check(&[RunPackets { lost: 4, received: 96, ..right }], link, &["run received 96", "run lost 4"]);
        check(&[RunPackets { sent: 101, ..right }], link, &["run sent 101, link seen 100"]);
        check(&[RunPackets { dst: 2, ..right }], link, &["the run says nothing"]);
        check(&[], Counts::default(), &["lists no direction"]);
    }
}
