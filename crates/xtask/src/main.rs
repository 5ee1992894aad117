//! `cargo xtask`, which sets up, demonstrates and tests this project and keeps it tidy.
//!
//! No other package imports this one. Each command is a module of its own; `test` is [`suite`].
//! [`steps`] runs child processes for them and tallies the results; [`tools`] installs what they
//! call below `target`. It does not measure clocks itself; it calls the programs that do, as a user
//! would.
#![forbid(unsafe_code)]

mod bench;
mod demo;
mod flow;
mod package;
mod setup;
mod steps;
mod suite;
mod tidy;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use setup::Wanted;
use suite::{Tier, jobs};

/// The project's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what the optional features need: MPI, libclang, hwloc, OTF2
    Setup,
    /// Set up, build, and measure 8 ranks with injected skew on this machine
    Demo,
    /// Trace a real JAX job while its nodes' clocks are measured, align its traces, and compare
    /// every time with the true one
    Flow(flow::Settings),
    /// Build the Python package, install it into a virtual environment, and test it there
    Python,
    /// Set up, build, and run the quick tests, in at most a quarter of an hour on two cores
    Test {
        /// Run everything else as well: lints, long tests, readers, torch, JAX, browsers,
        /// sanitizers
        #[arg(long)]
        all: bool,
        /// Run only the steps, of both tiers, whose name contains this
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
    },
    /// Regenerate the protobuf code from proto/probe_sync.proto, and the C header
    Codegen {
        /// Compare instead of writing
        #[arg(long)]
        check: bool,
    },
    /// Feed every parser arbitrary bytes
    Fuzz {
        /// Time for all targets together
        #[arg(long, value_name = "N", default_value_t = 60)]
        seconds: u32,
        /// Only the steps whose name contains this, as "packet"
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
    },
    /// Count which lines of the recorder its tests run, where cargo-llvm-cov and LLVM's tools are
    /// there
    Coverage,
    /// Run the recorder under ThreadSanitizer, and again with an order taken away, which must be
    /// seen
    Races,
    /// Make the documentation's site, and check its links, shell blocks and manifests
    Book,
    /// Make packages: a tarball, Debian packages, a Python wheel
    Package {
        /// Which; without it all
        #[arg(value_enum)]
        kind: Option<package::Kind>,
        /// Then install tarball and wheel into bare Debian roots, and run the demo there
        #[arg(long)]
        check: bool,
    },
    /// Check what the compiler cannot: purity, order of imports, circles of files, headers,
    /// lengths, layout, words
    Tidy,
    /// Build the C libraries and install them with headers, pkg-config and CMake files
    Install {
        /// Where to, as /usr/local
        #[arg(long, value_name = "DIR")]
        prefix: PathBuf,
    },
    /// Run the benches in release mode and print their figures
    Bench(bench::Settings),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let root = root();
    let outcome = match arguments.command {
        Command::Setup => setup::setup(&root, Wanted::Everything).map(|_| ()),
        Command::Demo => demo::demo(&root),
        Command::Flow(settings) => flow::flow(&root, &settings),
        Command::Python => python(&root),
        Command::Test { all, only } => suite::test(&root, if all { Tier::All } else { Tier::Quick }, only.as_deref()),
        Command::Codegen { check } => {
            let codegen = ["run", "--quiet", "--locked", "--package", "codegen", "--"];
            steps::call(&root, "cargo", &[&codegen[..], if check { &["--check"] } else { &[] }].concat())
        }
        Command::Fuzz { seconds, only } => {
            steps::call(&root, "fuzz/run.sh", &[&seconds.to_string(), only.as_deref().unwrap_or("")])
        }
        Command::Install { prefix } => std::path::absolute(prefix)
            .map_err(Into::into)
            .and_then(|prefix| steps::call(&root, "crates/capi/install/install.sh", &[&prefix.to_string_lossy()])),
        Command::Coverage => jobs::run(&root, &["coverage"]),
        Command::Races => jobs::run(&root, &["races"]),
        Command::Book => jobs::run(&root, &["book"]),
        Command::Package { kind, check } => package::package(&root, kind, check),
        Command::Tidy => tidy::tidy(&root),
        Command::Bench(settings) => bench::bench(&root, settings),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Builds, installs and tests the Python package as users get it, next to the command that tests
/// compare with.
fn python(root: &Path) -> Result<()> {
    steps::build(root, "dev", &["--package", "probe-sync-cli"])?;
    jobs::run(root, &["python", "released", "jax", "torch"])
}

/// The workspace that `cargo xtask` was called in; asked at run time, so that no path is compiled
/// in.
fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    // crates/xtask is two levels below the root.
    manifest.and_then(|directory| directory.ancestors().nth(2).map(PathBuf::from)).unwrap_or_else(|| PathBuf::from("."))
}
