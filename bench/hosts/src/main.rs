//! `probe-sync-testbed`, which performs whole runs under known conditions and judges them from the
//! outside.
//!
//! `netns` makes network namespaces that act as hosts with addresses of their own, joins them by
//! TUN devices through [`emulator`] (delay, jitter, loss and asymmetry per direction, exact
//! counts), runs `probe_sync` in them and compares. `verify` compares the files of any run that had
//! skew injected with the truth that the run wrote down.
//!
//! The testbed knows the program only by its command line and its files, as a user does, and
//! imports none of its code. It never touches an address or interface outside the namespaces it has
//! created. It does not emulate bandwidth or change a clock.
#![forbid(unsafe_code)]

mod emulator;
mod link;
mod namespace;
mod packet;
mod scenario;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs of probe_sync under known conditions.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run probe_sync on hosts in network namespaces, joined by an emulated link
    Netns(scenario::Options),
    /// Compare the files of a run with its truth
    Verify {
        #[command(flatten)]
        limits: verify::Limits,
        /// The run's directory, which holds offsets.jsonl and truth.json
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Netns(options) => scenario::run(&options),
        Command::Verify { limits, directory } => verify::verify(&directory, &limits),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<namespace::NotPermitted>() {
            Some(reason) => {
                println!("{reason}");
                ExitCode::from(EXIT_SKIPPED)
            }
            None => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

/// The exit code that says "cannot run here", as in automake's tests.
const EXIT_SKIPPED: u8 = 77;
