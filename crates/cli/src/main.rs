//! The command `probe_sync`: parses, calls the libraries, prints. Nothing is computed here.
//!
//! Under mpirun MPI is initialised before anything can exit, arguments included: a rank that leaves before `MPI_Init`
//! can hang the job. Exit status: 0 done, 1 the run failed, 2 the command line or the configuration is wrong.
#![forbid(unsafe_code)]

mod args;
mod doctor;
mod launch;
mod local;
mod output;
mod progress;
mod sim;
mod table;
mod traces;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use probe_sync::solve::{Input, Solved};

use args::{Cli, Command, RunArgs, SolveArgs, SolveInput};
use launch::Ranks;
use output::Usage;

fn main() -> ExitCode {
    // Before the arguments are looked at: see above.
    let mpi = match Ranks::from_mpirun() {
        Ok(ranks) => ranks,
        // One voice is enough, and Open MPI hangs when many processes fail before `MPI_Init`.
        Err(error) => return if launch::speaks() { failed(&error) } else { ExitCode::SUCCESS },
    };
    start_log();
    let result = match (Cli::try_parse(), mpi) {
        (Ok(Cli { command: None, run }), mpi) => measure(&run, run.configuration(), mpi),
        (Ok(Cli { command: Some(Command::Run(run)), .. }), mpi) => measure(&run, run.configuration(), mpi),
        (Ok(Cli { command: Some(Command::Solve(solve)), .. }), _) => recompute(&solve),
        (Ok(Cli { command: Some(Command::Doctor(arguments)), .. }), _) => doctor::run(&arguments),
        (Ok(Cli { command: Some(Command::Align(arguments)), .. }), _) => traces::run_align(&arguments),
        (Ok(Cli { command: Some(Command::Merge(arguments)), .. }), _) => traces::run_merge(&arguments),
        (Ok(Cli { command: Some(Command::Check(arguments)), .. }), _) => traces::run_check(&arguments),
        (Ok(Cli { command: Some(Command::Sim(arguments)), .. }), _) => sim::run(&arguments),
        (Ok(Cli { command: Some(Command::Export(export)), .. }), _) => {
            probe_sync::export::run_directory(&export.run_dir, &export.out).map_err(Into::into)
        }
        // A rank with a wrong command line must not leave the others waiting: it is refused like a wrong configuration.
        (Err(error), Some(mpi)) if error.use_stderr() => {
            let reason = error.to_string().lines().next().unwrap_or("unusable").to_owned();
            let wrong =
                probe_sync::Error::Configuration { origin: "command line".into(), key: "arguments".into(), reason };
            measure(&RunArgs::default(), Err(wrong), Some(mpi))
        }
        (Err(error), _) => return unparsed(&error),
    };
    result.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
}

fn measure(
    run: &RunArgs,
    config: Result<probe_sync::Config, probe_sync::Error>,
    mpi: Option<Ranks>,
) -> anyhow::Result<()> {
    let stop = launch::stop_on_signals()?;
    // With --local, this process becomes rank 0 and starts the others.
    let (mut ranks, children) = match (mpi, run.local.filter(|_| !launch::local_child())) {
        (Some(_), Some(_)) => {
            return Err(anyhow::anyhow!("--local starts its own ranks; leave mpirun out").context(Usage));
        }
        (Some(ranks), None) => (ranks, None),
        (None, Some(number)) => {
            if let Err(error) = config {
                return Err(error.into());
            }
            let (ranks, children) = local::start(number, &stop)?;
            (ranks, Some(children))
        }
        (None, None) => {
            (Ranks::from_variables()?.ok_or_else(|| anyhow::anyhow!(launch::HOW_TO_START).context(Usage))?, None)
        }
    };
    let mut progress = progress::Progress::new();
    let context = probe_sync::Context { stop, towards_root: ranks.towards_root() };
    let out = config.as_ref().map(|config| config.out.clone()).unwrap_or_default();
    let report = probe_sync::run(config, ranks.collective(), &context, &mut progress);
    progress.finish();
    let result = match report {
        // Before the ranks part: mpirun may kill a stopped job while they do.
        Ok(Some(report)) if run.json => output::print(&format!("{}\n", serde_json::to_string_pretty(&report)?)),
        Ok(Some(report)) => output::print(&table::render(&report)),
        Ok(None) => Ok(()),
        Err(error) => {
            // A refusal has reached every rank; anything else the others may not know yet.
            if !matches!(error, probe_sync::Error::Refused { .. }) {
                ranks.collective().abort(&format!("{error}; rounds finished before are in {}", out.display()));
            }
            Err(error.into())
        }
    };
    drop(ranks);
    if let Some(children) = children {
        children.finish();
    }
    result
}

fn recompute(arguments: &SolveArgs) -> anyhow::Result<()> {
    let mut config = probe_sync::Config::default();
    config.set("fit", &arguments.fit, "--fit").map_err(|error| anyhow::Error::from(error).context(Usage))?;
    config.set("reference", &arguments.reference, "--reference").map_err(|e| anyhow::Error::from(e).context(Usage))?;
    let SolveInput { probes, windows, packets } = &arguments.input;
    let (input, what) = match (windows.as_slice(), packets.as_slice()) {
        ([], []) => (Input::Probes(probes), "exchanges"),
        ([], files) => (Input::Packets { files, window: arguments.window }, "packets"),
        (windows, _) => (Input::Windows(windows), "exchanges"),
    };
    let solved = probe_sync::solve::solve_files(input, &arguments.out, arguments.knots, &config)?;
    for note in &solved.notes {
        tracing::warn!("{note}");
    }
    output::print(&summary(&solved, what, &arguments.out))
}

fn summary(solved: &Solved, what: &str, out: &Path) -> String {
    let Solved { exchanges, nodes, rounds, lines, skipped_lines, skipped_rounds, left_out_exchanges, .. } = solved;
    let mut text = format!(
        "{exchanges} {what} of {nodes} nodes in {rounds} rounds → {lines} lines in {}; left out: {skipped_lines} lines, \
         {skipped_rounds} rounds, {left_out_exchanges} exchanges of mixed stamps\n",
        out.display(),
    );
    let width = solved.half_width_95_ns.map_or("unknown".into(), |ns| format!("±{ns:.1} ns"));
    text += &format!(
        "95 % interval {width} (median); paths asymmetric by {:.1} ns (SD); clocks stepped or restarted {} times; {} faults\n",
        solved.asymmetry_sd_ns,
        solved.breaks,
        solved.faults.len(),
    );
    text.extend(solved.faults.iter().take(FAULTS_SHOWN).map(|fault| format!("  {fault}\n")));
    let more = solved.faults.len().saturating_sub(FAULTS_SHOWN);
    if more > 0 {
        text += &format!("  and {more} more\n");
    }
    text
}

/// Faults named one by one.
const FAULTS_SHOWN: usize = 20;

fn failed(error: &anyhow::Error) -> ExitCode {
    let ours = error.downcast_ref::<probe_sync::Error>();
    let configuration = matches!(
        ours,
        Some(
            probe_sync::Error::Configuration { .. }
                | probe_sync::Error::ConfigurationFile { .. }
                | probe_sync::Error::Refused { .. }
        )
    );
    let usage = error.downcast_ref::<Usage>().is_some();
    if launch::speaks() || ours.is_none_or(|error| !matches!(error, probe_sync::Error::Refused { .. })) {
        let text = match ours {
            _ if usage => format!("{} ({Usage})", error.root_cause()),
            // Our errors name their causes themselves.
            Some(ours) => format!("{}{ours}", launch::rank_prefix()),
            None => format!("{}{error:#}", launch::rank_prefix()),
        };
        // A closed standard error leaves nobody to tell.
        let _ = writeln!(std::io::stderr(), "probe_sync: {text}");
    }
    ExitCode::from(if usage || configuration { 2 } else { 1 })
}

/// Help, version, or a wrong command line. Under mpirun all ranks say the same; rank 0 speaks.
fn unparsed(error: &clap::Error) -> ExitCode {
    if launch::speaks() {
        // Nothing is left to do about a closed output.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn start_log() {
    let default = if launch::speaks() { "info" } else { "warn" };
    let filter = tracing_subscriber::EnvFilter::try_from_env("PROBE_SYNC_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        // A closed standard error (`| head`) must not end a run.
        .log_internal_errors(false)
        .init();
}
