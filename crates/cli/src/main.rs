//! The command `probe_sync`: parses, calls the libraries, prints. Nothing is computed here.
//!
//! Under mpirun MPI is initialised before anything can exit, arguments included: a rank that leaves before `MPI_Init`
//! can hang the job. Exit status: 0 done, 1 the run failed, 2 the command line or the configuration is wrong.
#![forbid(unsafe_code)]

mod args;
mod doctor;
mod launch;
mod local;
mod progress;
mod table;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, RunArgs, SolveArgs};
use launch::Ranks;

fn main() -> ExitCode {
    // Before the arguments are looked at: see above.
    let ranks = match Ranks::from_launcher() {
        Ok(ranks) => ranks,
        Err(error) => return failed(&error),
    };
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return unparsed(&error, ranks.as_ref()),
    };
    start_log();
    let result = match cli.command {
        None => measure(&cli.run, ranks),
        Some(Command::Run(run)) => measure(&run, ranks),
        Some(Command::Solve(solve)) => recompute(&solve),
        Some(Command::Doctor(arguments)) => doctor::run(&arguments),
        Some(Command::Export(export)) => {
            probe_sync::export::run_directory(&export.run_dir, &export.out).map_err(Into::into)
        }
    };
    result.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
}

fn measure(run: &RunArgs, ranks: Option<Ranks>) -> anyhow::Result<()> {
    let stop = launch::stop_on_signals()?;
    let config = run.configuration();
    // With --local, this process becomes rank 0 and starts the others.
    let (mut ranks, children) = match (ranks, run.local) {
        (Some(ranks), _) => (ranks, None),
        (None, Some(number)) => {
            config.as_ref().map_err(|error| anyhow::anyhow!("{error}").context(Usage))?;
            let (ranks, children) = local::start(number, &stop)?;
            (ranks, Some(children))
        }
        (None, None) => return Err(anyhow::anyhow!(launch::HOW_TO_START).context(Usage)),
    };
    let mut progress = progress::Progress::new();
    let context = probe_sync::Context { stop, towards_root: ranks.towards_root() };
    let out = config.as_ref().map(|config| config.out.clone()).unwrap_or_default();
    let report = probe_sync::run(config, ranks.collective(), &context, &mut progress);
    progress.finish();
    if let Err(error) = &report {
        // A refusal has reached every rank; anything else the others may not know yet.
        if !matches!(error, probe_sync::Error::Refused { .. }) {
            let reason = format!("{error}; rounds finished before are in {}", out.display());
            ranks.collective().abort(&reason);
        }
    }
    drop(ranks);
    if let Some(children) = children {
        children.finish();
    }
    match report {
        Ok(Some(report)) if run.json => print(&format!("{}\n", serde_json::to_string_pretty(&report)?)),
        Ok(Some(report)) => print(&table::render(&report)),
        Ok(None) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn recompute(arguments: &SolveArgs) -> anyhow::Result<()> {
    let mut config = probe_sync::Config::default();
    config.set("fit", &arguments.fit, "--fit").map_err(|error| anyhow::Error::from(error).context(Usage))?;
    let solved = probe_sync::solve::solve_files(&arguments.probes, &arguments.out, &config)?;
    for note in &solved.notes {
        tracing::warn!("{note}");
    }
    print(&format!(
        "{} exchanges of {} nodes in {} rounds → {}; {} lines left out\n",
        solved.exchanges,
        solved.nodes,
        solved.rounds,
        arguments.out.display(),
        solved.skipped_lines
    ))
}

/// Writes to standard output; a closed pipe (as under `| head`) is no failure.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Marks errors of the command line.
#[derive(Copy, Clone, Debug)]
struct Usage;

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("see probe_sync --help")
    }
}

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
        if usage {
            eprintln!("probe_sync: {} ({Usage})", error.root_cause());
        } else if let Some(ours) = ours {
            // Our errors name their causes themselves.
            eprintln!("probe_sync: {}{ours}", launch::rank_prefix());
        } else {
            eprintln!("probe_sync: {}{error:#}", launch::rank_prefix());
        }
    }
    ExitCode::from(if usage || configuration { 2 } else { 1 })
}

/// Help, version, or a wrong command line. Under a launcher all ranks have the same one; rank 0 speaks.
fn unparsed(error: &clap::Error, ranks: Option<&Ranks>) -> ExitCode {
    if ranks.is_none() || launch::speaks() {
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
        .init();
}
