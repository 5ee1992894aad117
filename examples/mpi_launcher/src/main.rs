//! A launcher with its own MPI, and a session beside it: rounds between the launcher's allreduces.
//!
//! ```text
//! cargo build -p probe-sync-mpi-launcher && mpirun -n 8 target/debug/mpi_launcher funneled /tmp/out
//! ```
//!
//! The first argument is the thread level that MPI is initialised with: single, funneled,
//! serialized or multiple. At multiple the session's own thread sends its messages; else the
//! launcher gives it [`BUDGET`] after every allreduce. All ranks of this machine share one clock in
//! truth, so virtual clocks are laid over what is measured. `examples/c/mpi_launcher.c` is the same
//! in C.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mpi::collective::SystemOperation;
use mpi::environment::Threading;
use mpi::traits::{Communicator as _, CommunicatorCollectives as _};
use probe_sync::mpi::MpiMessages;
use probe_sync::report::SIGMAS_95;
use probe_sync::{Config, Progress, Session};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let level = match arguments.first().map(String::as_str) {
        Some("single") => Threading::Single,
        Some("serialized") => Threading::Serialized,
        Some("multiple") => Threading::Multiple,
        _ => Threading::Funneled,
    };
    let Some((universe, level)) = mpi::initialize_with_threading(level) else { return ExitCode::FAILURE };
    let out = PathBuf::from(arguments.get(1).map_or("probe_sync_out", String::as_str));
    match train(&universe.world(), level, out) {
        Ok(()) => ExitCode::SUCCESS,
        // A session that fails is no reason to end training; here there is nothing else to do.
        Err(error) => {
            eprintln!("{error}");
            universe.world().abort(1)
        }
    }
}

fn train(
    world: &mpi::topology::SimpleCommunicator,
    level: Threading,
    out: PathBuf,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut config = Config { out, ..Config::default() };
    config.set("window", "500ms", "mpi_launcher")?;
    config.set("inject_skew", "7", "mpi_launcher")?;
    // 1 % of a core of each host is the budget; here every rank stands for a host.
    config.set("budget_cpu", &format!("{}%", world.size()), "mpi_launcher")?;
    // A communicator of another binding: `unsafe { MpiMessages::beside(raw) }`. All ranks come
    // here.
    let session = Session::builder(config).over(MpiMessages::of(world)?).start()?;

    let (started, mut longest, mut busiest) = (Instant::now(), Duration::ZERO, Duration::ZERO);
    let mut gradients = vec![1.0_f64; 4096];
    loop {
        let mut sums = vec![0.0_f64; gradients.len()];
        world.all_reduce_into(&gradients[..], &mut sums[..], SystemOperation::sum());
        assert!(sums.iter().all(|sum| (sum - f64::from(world.size())).abs() < 1e-9), "the launcher's own messages");
        gradients.fill(1.0);
        std::thread::sleep(COMPUTING);
        if session.needs_step() {
            let before = (Instant::now(), processor_time());
            session.step(BUDGET)?;
            longest = longest.max(before.0.elapsed());
            busiest = busiest.max(processor_time().saturating_sub(before.1));
        }
        // All ranks leave the loop together, and each knows its clock by then: the first that stops
        // ends the run.
        let known = session.wait_until_bound(WANTED_BOUND_NS, Duration::ZERO).is_ok() || started.elapsed() > LONGEST;
        let (own, mut all) = (u8::from(started.elapsed() > TRAINING && known), 0);
        world.all_reduce_into(&own, &mut all, SystemOperation::min());
        if all == 1 {
            break;
        }
    }
    session.wait_until_bound(WANTED_BOUND_NS, Duration::ZERO)?;
    let stepped = session.needs_step();
    let bound_ns = bound_ns(&session);
    let report = session.stop()?;

    let own = [bound_ns, longest.as_secs_f64() * 1e3, busiest.as_secs_f64() * 1e3];
    let mut worst = [0.0; 3];
    world.all_reduce_into(&own[..], &mut worst[..], SystemOperation::max());
    if let Some(report) = report {
        let outside = report.truth.map_or(0, |truth| truth.outside_hard_interval);
        let [bound_ns, wall_ms, processor_ms] = worst;
        let longest =
            format!("longest step of at most {BUDGET:?}: {wall_ms:.3} ms, of which it ran {processor_ms:.3} ms");
        let steps = if stepped { longest } else { "no steps".to_owned() };
        println!(
            "{} ranks, {level:?}: {} rounds, worst bound {bound_ns:.0} ns, {outside} outside of the hard interval, {steps}",
            world.size(),
            report.rounds
        );
    }
    Ok(())
}

/// Processor time of this thread: if more ranks run than there are cores, a step is interrupted for
/// longer than it takes.
fn processor_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(used).unwrap_or_default()
}

/// How well this node's offset is known, 95 %.
fn bound_ns(session: &Session) -> f64 {
    let Progress::Measuring(state) = session.progress() else { return f64::INFINITY };
    let round = session.round();
    let node = round.as_ref().and_then(|round| round.all_nodes.get(state.node.index()));
    node.map_or(f64::INFINITY, |node| SIGMAS_95 * node.sigma_ns)
}

/// What the launcher gives the session after every step of training.
const BUDGET: Duration = Duration::from_micros(500);

const COMPUTING: Duration = Duration::from_millis(5);

const TRAINING: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(30);

const WANTED_BOUND_NS: u32 = 10_000;
