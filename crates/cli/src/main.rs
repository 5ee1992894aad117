//! The command `probe_sync`: parses, calls the libraries, prints. Nothing is computed here.
//!
//! Under mpirun MPI is initialised before anything can exit, for wrong arguments too: a rank that
//! leaves before `MPI_Init` can hang the job. The exit statuses are in `status`.
#![forbid(unsafe_code)]

mod args;
mod clock;
mod compose;
mod convert;
mod convert_guide;
mod cpu_clock;
mod ctl;
mod demo;
mod doctor;
mod documents;
mod filter_args;
mod guides;
mod hang;
mod help;
mod launch;
mod local;
mod log;
mod node_table;
mod old_flags;
#[cfg(feature = "otlp")]
mod otlp;
mod output;
#[cfg(test)]
mod pages;
mod peers;
mod progress;
#[cfg(feature = "rocpd")]
mod query;
#[cfg(feature = "rocpd")]
mod query_args;
mod record;
mod regions;
mod report;
mod run_status;
mod screen;
mod shell;
mod signals;
mod sim;
mod started;
mod status;
mod stragglers;
mod table;
mod telling;
mod trace_args;
mod trace_notes;
mod trace_table;
mod traces;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use probe_sync::config::ReferenceChoice;
use probe_sync::solve::{Input, Selection, Solved};
use probe_sync_formats::words::counted;

use args::{Cli, Command, RunArgs, SolveArgs, SolveInput};
use launch::Ranks;
use output::Usage;
use status::{Status, Unjudged};
use telling::Telling;

fn main() -> ExitCode {
    signals::survive_size_limit();
    // Reads only, so that MPI knows the master; nothing exits for it before MPI is there: see
    // above.
    let parsed = parse();
    let mpi = match Ranks::from_mpirun(master(&parsed)) {
        Ok(ranks) => ranks,
        // One voice is enough, and Open MPI hangs when many processes fail before `MPI_Init`.
        Err(error) => return if launch::speaks() { failed(&error) } else { ExitCode::SUCCESS },
    };
    // Until the end: spans that wait to be sent are sent when it goes.
    let _log = log::start(parsed.as_ref().map_or_else(|_| Telling::default(), |(cli, _)| cli.telling));
    let parsed = parsed.map(|(cli, line)| {
        if let Some(line) = line {
            tracing::info!("{line}");
        }
        cli
    });
    if let Ok(cli) = &parsed {
        table::set_wide(cli.wide);
    }
    let result = match (parsed, mpi) {
        (Ok(Cli { command: None, run, .. }), mpi) => measure(&run, run.configuration(), mpi),
        (Ok(Cli { command: Some(Command::Run(run)), .. }), mpi) => measure(&run, run.configuration(), mpi),
        (Ok(Cli { command: Some(Command::Doctor(asked)), .. }), mpi) if asked.peers => peers::run(&asked, mpi),
        (Ok(Cli { command: Some(Command::Demo(_)), .. }), Some(_)) => {
            Err(anyhow::anyhow!("demo starts its own ranks; run it without mpirun").context(Usage))
        }
        (Ok(Cli { command: Some(command), .. }), _) => without_ranks(&command),
        // A rank with a wrong command line must not leave the others waiting: it is refused like a
        // wrong configuration.
        (Err(error), Some(mpi)) if error.use_stderr() => {
            let reason = reason(&error);
            let wrong =
                probe_sync::Error::Configuration { origin: "command line".into(), key: "arguments".into(), reason };
            measure(&RunArgs::default(), Err(wrong), Some(mpi))
        }
        (Err(error), _) => return unparsed(&error),
    };
    result.map_or_else(|error| failed(&error), |()| Status::Done.into())
}

/// What is wrong with a command line, with clap's tips, in one line; --help describes the usage.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let said: Vec<&str> = lines.filter(|line| !(line.is_empty() || line.starts_with("For more information"))).collect();
    let said = said.join("; ");
    said.strip_prefix("error: ").unwrap_or(&said).to_owned()
}

/// Parses the command line; flags of the XLA distributed profiler's tools are translated, and one
/// line says so.
fn parse() -> Result<(Cli, Option<String>), clap::Error> {
    let usage = |reason: String| Cli::command().error(clap::error::ErrorKind::UnknownArgument, reason);
    let (arguments, line) = old_flags::translate(std::env::args_os().collect()).map_err(usage)?;
    Ok((Cli::read(&arguments)?, line))
}

/// The rank of the master: 0 if the command line or the configuration is invalid, which all ranks
/// are told later.
fn master(parsed: &Result<(Cli, Option<String>), clap::Error>) -> usize {
    let run = match parsed {
        Ok((Cli { command: None, run, .. }, _)) => run,
        Ok((Cli { command: Some(Command::Run(run)), .. }, _)) => run,
        Ok((Cli { command: Some(Command::Doctor(asked)), .. }, _)) => &asked.run,
        _ => return 0,
    };
    run.configuration().map_or(0, |config| config.master as usize)
}

/// Runs the commands that need a single process.
fn without_ranks(command: &Command) -> anyhow::Result<()> {
    if !matches!(command, Command::Sim(_)) {
        signals::remove_partials_on_signals()?;
    }
    match command {
        Command::Run(_) => anyhow::bail!("a run has ranks"),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Solve(arguments) => recompute(arguments),
        Command::Compose(arguments) => compose::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Align(arguments) => traces::run_align(arguments),
        Command::Convert(arguments) => convert::run(arguments),
        #[cfg(feature = "rocpd")]
        Command::Query(arguments) => query::run(arguments),
        Command::Merge(arguments) => traces::run_merge(arguments),
        Command::Check(arguments) => traces::run_check(arguments),
        Command::Stragglers(arguments) => stragglers::run(arguments),
        Command::Hang(arguments) => hang::run(arguments),
        Command::Sim(arguments) => sim::run(arguments),
        Command::Clock(arguments) => clock::run(arguments),
        // It has one flag, which is required.
        Command::Config(_) => output::print(&probe_sync::config::example()),
        Command::Schemas(arguments) => shell::schemas(arguments),
        Command::Status(arguments) => run_status::run(arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Ctl(arguments) => ctl::run(arguments),
        Command::Record(arguments) => record::run(arguments),
        Command::Completions(arguments) => shell::completions(arguments, Cli::command()),
        Command::Man(arguments) => shell::man(arguments, Cli::command()),
        Command::Export(arguments) => {
            output::keep_apart(&arguments.out, arguments.json)?;
            let lacking = match arguments.dialect {
                args::Dialect::ProbeSync => probe_sync::export::run_directory(&arguments.run_dir, &arguments.out)?,
                args::Dialect::Xla => probe_sync::solve::export_for_xla(&arguments.run_dir, &arguments.out)?,
            };
            if arguments.json {
                output::json(&documents::Export::new(arguments.out.clone()))?;
            }
            expect_all_windows(&arguments.run_dir, &lacking)
        }
    }
}

/// Reports the nodes for which an export lacks windows: status 4.
fn expect_all_windows(directory: &Path, lacking: &[probe_sync_time::NodeId]) -> anyhow::Result<()> {
    if lacking.is_empty() {
        return Ok(());
    }
    let nodes: Vec<String> = lacking.iter().map(ToString::to_string).collect();
    let windows = directory.join("windows");
    Err(Unjudged(format!(
        "the export lacks the windows of node {}: they are not in {}, because nodes write them on their own hosts; copy their \
        windows/nodeN.jsonl there and export again",
        nodes.join(", "),
        windows.display()
    ))
    .into())
}

fn measure(
    run: &RunArgs,
    config: Result<probe_sync::Config, probe_sync::Error>,
    mpi: Option<Ranks>,
) -> anyhow::Result<()> {
    let stop = signals::stop_on_signals()?;
    let starting = signals::end_hung_start(&stop)?;
    let connected = local::connect(run.local, config, mpi, &stop)?;
    if connected.config.as_ref().is_ok_and(probe_sync::Config::has_regions) {
        let (result, hung) = regions::run(connected, (stop, starting), run.json);
        end_for(&hung, &result);
        return result;
    }
    let local::Connected { mut ranks, children, config } = connected;
    let mut progress = progress::RunProgress::new(starting);
    let (towards_root, ends_with_lost_rank) = (ranks.towards_root(), children.is_some());
    let context = probe_sync::Context { stop, towards_root, ends_with_lost_rank, ..Default::default() };
    let out = config.as_ref().map(|config| config.out.clone()).unwrap_or_default();
    let report = match config {
        Ok(config) => probe_sync::run(config, ranks.collective(), &context, &mut progress),
        Err(error) => Err(probe_sync::Driver::refuse(error, ranks.collective(), &context)),
    };
    progress.finish();
    let result = match report {
        // Before the ranks part: mpirun may kill a stopped job while they do.
        Ok(Some(report)) => {
            let told = if run.json { output::json(&report) } else { output::tell(&table::render(&report)) };
            let told = told.and_then(|()| recorded_whole(&report)).and_then(|()| somebody_reached(&report));
            report::at_end(&report);
            told
        }
        Ok(None) => Ok(()),
        Err(error) => {
            // A refusal has reached every rank; anything else the others may not know yet.
            if !matches!(error, probe_sync::Error::Refused { .. }) {
                ranks.collective().abort(&format!("{error}; the rounds completed before are in {}", out.display()));
            }
            Err(error.into())
        }
    };
    let hung = ranks.leave();
    if let Some(children) = children {
        children.finish();
    }
    end_for(&hung, &result);
    result
}

/// If processes hang until the end, prints how this one ends, and ends the job with that status.
fn end_for(hung: &[usize], result: &anyhow::Result<()>) {
    if !hung.is_empty() {
        launch::end_job_of_hung(hung, result.as_ref().err().map_or(Status::Done, said));
    }
}

/// Returns an error if a run measured no node.
fn somebody_reached(report: &probe_sync::RunReport) -> anyhow::Result<()> {
    let others = report.nodes.len().saturating_sub(1);
    if others == 0 || report.never_reached.len() < others {
        return Ok(());
    }
    anyhow::bail!("probes reached no node, so no offset is known; is UDP between the hosts filtered?")
}

/// Returns an error if the files of a run lack measurements. Data removed on request does not count
/// as missing.
fn recorded_whole(report: &probe_sync::RunReport) -> anyhow::Result<()> {
    let lacking = report.files.iter().filter(|file| file.reason.is_some()).map(|file| &file.name);
    let lacking: Vec<&String> = lacking.chain(&report.unwritten).collect();
    let Some(first) = lacking.first() else { return Ok(()) };
    let more = lacking.len() - 1;
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let see = if report.unwritten.is_empty() { "; see report.json" } else { "" };
    anyhow::bail!("the run completed, but {first}{more} in {} could not be written at times{see}", report.out)
}

fn recompute(arguments: &SolveArgs) -> anyhow::Result<()> {
    output::keep_apart(&arguments.out, arguments.json)?;
    let mut config = probe_sync::Config::default();
    config.set("fit", &arguments.fit, "--fit")?;
    (config.min_pairs, config.max_loss_ratio) = (arguments.min_pairs, arguments.max_loss_ratio);
    let SolveInput { probes, windows, packets } = &arguments.input;
    match (&arguments.reference, probe_sync::solve::recorded_reference(&[&probes[..], windows].concat())) {
        (Some(text), _) => config.set("reference", text, "--reference")?,
        (None, recorded) => {
            if let Some(node) = recorded? {
                tracing::info!("the recorded run's reference is node {node}; use --reference for another");
                config.reference = ReferenceChoice::Node(node);
            }
        }
    }
    let selection = Selection {
        min_pairs: arguments.min_pairs,
        max_loss_ratio: arguments.max_loss_ratio,
        at: arguments.at.map(probe_sync_time::Timestamp::from_ns),
        window: arguments.window,
    };
    let (input, what) = match (windows.as_slice(), packets.as_slice()) {
        ([], []) => (Input::Probes(probes), "exchange"),
        ([], files) => (Input::Packets { files, window: arguments.window }, "packet"),
        (files, _) => (Input::Fits { files, selection }, "exchange"),
    };
    let solved = probe_sync::solve::solve_files(input, &arguments.out, arguments.knots, &config)?;
    for note in &solved.notes {
        tracing::warn!("{note}");
    }
    match arguments.json {
        true => output::json(&documents::Solve::new(arguments.out.clone(), &solved)),
        false => output::tell(&summary(&solved, what, &arguments.out)),
    }
}

fn summary(solved: &Solved, what: &str, out: &Path) -> String {
    let Solved { exchanges, nodes, rounds, lines, skipped_lines, skipped_rounds, left_out_exchanges, .. } = solved;
    let mut text = format!(
        "{} of {} in {} → {} in {}; ignored: {}, {}, {} with mixed timestamps\n",
        counted(*exchanges, what),
        counted(*nodes, "node"),
        counted(*rounds, "round"),
        counted(*lines, "line"),
        out.display(),
        counted(*skipped_lines, "line"),
        counted(*skipped_rounds, "round"),
        counted(*left_out_exchanges, "exchange"),
    );
    if solved.carried_rounds > 0 {
        text += &format!(
            "{} without the reference, whose timeline another node maintained\n",
            counted(solved.carried_rounds, "more round")
        );
    }
    let width = solved.half_width_95_ns.map_or("unknown".into(), |ns| format!("±{ns:.1} ns"));
    text += &format!(
        "95 % interval {width} (median); path asymmetry {:.1} ns (SD); clocks stepped or restarted {}; {}\n",
        solved.asymmetry_sd_ns,
        counted(solved.breaks, "time"),
        counted(solved.faults.len(), "fault"),
    );
    text.extend(solved.faults.iter().take(FAULTS_SHOWN).map(|fault| format!("  {fault}\n")));
    let more = solved.faults.len().saturating_sub(FAULTS_SHOWN);
    if more > 0 {
        text += &format!("  and {more} more\n");
    }
    text
}

/// Largest number of faults named individually.
const FAULTS_SHOWN: usize = 20;

/// Prints why a command failed and its status. A refusal reaches every rank alike: only one of them
/// prints it.
fn failed(error: &anyhow::Error) -> ExitCode {
    said(error).into()
}

/// Prints the error and returns its status.
fn said(error: &anyhow::Error) -> Status {
    let status = Status::of(error);
    let everywhere = matches!(error.downcast_ref(), Some(probe_sync::Error::Refused { .. }));
    // The command's output has said it, or its document.
    let is_verdict = matches!(status, Status::Violations | Status::Unjudged);
    let for_others = error.chain().find_map(|cause| cause.downcast_ref::<started::Started>());
    if !is_verdict && for_others.map_or(launch::speaks() || !everywhere, started::Started::speaks) {
        let rank = if error.downcast_ref::<Usage>().is_some() { String::new() } else { launch::rank_prefix() };
        let told = status::told(error);
        let remedy = status::remedy(error, &told).map_or_else(String::new, |remedy| format!("; {remedy}"));
        // A closed standard error leaves nobody to tell.
        let text = format!("probe_sync: {rank}{told}{remedy}\n");
        let _ = std::io::stderr().write_all(screen::shown(&text, &console::Term::stderr()).as_bytes());
    }
    status
}

/// Handles help, version and invalid command lines. Under mpirun all ranks get the same result;
/// rank 0 prints it.
fn unparsed(error: &clap::Error) -> ExitCode {
    if launch::speaks() {
        // Nothing is left to do about a closed output.
        let _ = error.print();
    }
    if error.use_stderr() { Status::Usage } else { Status::Done }.into()
}
