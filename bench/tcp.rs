//! Benchmark of a round over TCP: a gather of a payload from every rank and a broadcast of 24 bytes
//! per rank.
//!
//! `cargo bench -p probe-sync-collective --bench tcp [-- --ranks N] [--blocks N] [--rounds N] [--payload BYTES] [--apart-us N] [--foreign N]`
//!
//! This process is rank 0, and each other rank is a process of its own on this machine. A round
//! takes from rank 0's gather to the end of its broadcast; printed are the median over all rounds
//! and the medians of the blocks. With `--apart-us` each rank sleeps up to that long before a
//! round. With `--foreign` a process of its own holds that many foreign connections where rank 0
//! listens, from before the ranks start until the end: a third says nothing, a third says a greeting
//! byte by byte, a third says garbage and comes again. The time until all ranks have joined is
//! printed too; the door is open during the rounds.
//!
//! It asserts no timing. Under `cargo test --benches` it runs only briefly, so that it keeps
//! compiling and working.

use std::error::Error;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use probe_sync_collective::{Collective, Deadline, FaultTolerance, Frames, Meeting, UniqueId};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How to measure.
#[derive(Copy, Clone)]
struct Plan {
    ranks: usize,
    blocks: usize,
    rounds: usize,
    payload: usize,
    apart_us: u64,
    foreign: usize,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |flag: &str| arguments.iter().position(|given| given == flag).and_then(|at| arguments.get(at + 1));
    let number = |flag: &str, otherwise: usize| value(flag).map_or(Ok(otherwise), |text| text.parse());
    // `cargo bench` says so; `cargo test` does not.
    let quick = !arguments.iter().any(|given| given == "--bench" || given == "--rank");
    let plan = Plan {
        ranks: number("--ranks", if quick { 3 } else { 64 })?,
        blocks: number("--blocks", if quick { 1 } else { 10 })?,
        rounds: number("--rounds", if quick { 3 } else { 100 })?,
        payload: number("--payload", 1024)?,
        apart_us: number("--apart-us", 0)? as u64,
        foreign: number("--foreign", 0)?,
    };
    if let Some(rank) = value("--rank") {
        let id: UniqueId = value("--id").ok_or("--id is missing")?.parse()?;
        let mut group = id.join(rank.parse()?, plan.ranks, &deadline())?;
        return rounds(&mut group, plan).map(drop);
    }
    if let Some(address) = value("--disturb") {
        return disturb(address.parse()?, plan.foreign);
    }
    let meeting = open_meeting()?;
    let mut disturber = None;
    if plan.foreign > 0 {
        let mut other = Command::new(std::env::current_exe()?);
        other.args(["--disturb", &meeting.1.to_string(), "--foreign", &plan.foreign.to_string()]);
        disturber = Some(Other(other.spawn()?));
        std::thread::sleep(SETTLE);
    }
    let meeting = meeting.0;
    let (begun, mut others) = (Instant::now(), Vec::new());
    for rank in 1..plan.ranks {
        let mut other = Command::new(std::env::current_exe()?);
        other.args(&arguments[1..]).args(["--rank", &rank.to_string(), "--id", &format!("{:x}", meeting.id())]);
        // What a quick run has not been told.
        for (flag, number) in [("--ranks", plan.ranks), ("--blocks", plan.blocks), ("--rounds", plan.rounds)] {
            other.args([flag, &number.to_string()]);
        }
        others.push(Other(other.spawn()?));
    }
    let mut group = meeting.host(plan.ranks, &deadline())?;
    let joined = begun.elapsed();
    group.continue_without_lost(Vec::new())?;
    let blocks = rounds(&mut group, plan)?;
    let mut all: Vec<f64> = blocks.iter().flatten().copied().collect();
    let medians: Vec<String> = blocks.into_iter().map(|mut block| format!("{:.1}", median(&mut block))).collect();
    let (each, joined) = (median(&mut all), joined.as_secs_f64() * 1e3);
    println!("{} ranks: {each:.1} µs per round; blocks {}; joined in {joined:.1} ms", plan.ranks, medians.join(" "));
    drop(disturber);
    for mut other in others {
        let status = other.0.wait()?;
        if !status.success() {
            return Err(format!("a rank ended with {status}").into());
        }
    }
    Ok(())
}

/// A place to meet at a port that is known here too.
fn open_meeting() -> Result<(Meeting, SocketAddr)> {
    let own = IpAddr::from([127, 0, 0, 1]);
    let address = TcpListener::bind((own, 0))?.local_addr()?;
    Ok((Meeting::at(&[own], address.port(), &std::process::id().to_le_bytes())?, address))
}

/// Holds foreign connections until it is ended.
fn disturb(address: SocketAddr, foreign: usize) -> Result<()> {
    let connect = || -> Option<TcpStream> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    };
    let mut held: Vec<Option<TcpStream>> = (0..foreign).map(|_| connect()).collect();
    for tick in (0..GREETING.len()).cycle() {
        for (place, stream) in held.iter_mut().enumerate() {
            let said = match (stream.as_mut(), place % 3) {
                (None, _) => None,
                (Some(_), 0) => Some(true),
                (Some(stream), 1) => Some(stream.write(&GREETING[tick..=tick]).is_ok()),
                (Some(stream), _) => Some(stream.write(b"garbage").is_ok() && tick % 4 != 3),
            };
            if said != Some(true) {
                *stream = connect();
            }
        }
        std::thread::sleep(TICK);
    }
    Ok(())
}

/// All rounds of a rank; how long each took, in µs.
fn rounds(group: &mut dyn Collective, plan: Plan) -> Result<Vec<Vec<f64>>> {
    let (everyone, payload) = (vec![true; plan.ranks], vec![1; plan.payload]);
    let (mut frames, mut decision) = (Frames::default(), vec![2; 24 * plan.ranks]);
    let mut random = group.rank() as u64 + 1;
    let mut blocks = Vec::new();
    for _ in 0..plan.blocks {
        let mut block = Vec::new();
        for round in 0..WARM_UP + plan.rounds {
            if plan.apart_us > 0 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                std::thread::sleep(Duration::from_micros((random >> 33) % plan.apart_us));
            }
            let (begun, deadline) = (Instant::now(), deadline());
            group.gather(&everyone, &payload, &mut frames, &deadline)?;
            group.broadcast(&mut decision, &deadline)?;
            if round >= WARM_UP {
                block.push(begun.elapsed().as_secs_f64() * 1e6);
            }
        }
        blocks.push(block);
    }
    Ok(blocks)
}

/// A rank's process, which does not outlive this one's end in order.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }
}

fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(60), None)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What a slow foreign connection says, byte by byte.
const GREETING: &[u8] = b"prbsync\x01";

/// Between two bytes of it.
const TICK: Duration = Duration::from_millis(250);

/// What foreign connections have before the ranks start.
const SETTLE: Duration = Duration::from_secs(1);

/// Rounds before each block that do not count.
const WARM_UP: usize = 5;
