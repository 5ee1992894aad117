//! `cargo run --release --manifest-path bench/record/Cargo.toml`: what recording an event costs, beside a floor and other recorders.
//!
//! Place in the flow: by hand, for docs/RESULTS.md. A workspace of its own, so that other recorders are no dependencies of ours.
//! The floor is two readings of the time-stamp counter and a store of 32 bytes into a ring. Everything is measured in turn, in many short passes, by the
//! CPU time of the thread, and its median told with its ratio: machines differ, and load on them changes from second to second.
//!
//! | module | holds |
//! |---|---|
//! | [`measure`] | passes in turn, medians, quantiles |
//! | [`ours`] | this recorder: on, off, on fresh memory, single events |
//! | [`library`] | the same by the C functions of the shared library |
//! | `peers` | other recorders (feature `peers`) |
//! | [`work`] | a loop that computes, with and without scopes recorded |
//!
//! Options: `--short` (a few passes, to see that it works), `--library FILE` (libprobe_sync.so, after `cargo xtask install --prefix DIR`), `--work` (only
//! the loop that computes).
//! What it does not do: fail where an ask is missed; it says so in the table.

mod library;
mod measure;
mod ours;
#[cfg(feature = "peers")]
mod peers;
mod table;
mod work;

use std::path::PathBuf;

use anyhow::{Result, bail};

use measure::Effort;
use table::Table;

/// What was asked for.
#[derive(Debug, Default)]
struct Options {
    short: bool,
    only_work: bool,
    library: Option<PathBuf>,
}

fn main() -> Result<()> {
    let options = options()?;
    let effort = if options.short { Effort::SHORT } else { Effort::LONG };
    println!("{}", measure::machine());
    let mut table = Table::default();
    if !options.only_work {
        ours::measure(&mut table, effort)?;
        library::measure(&mut table, effort, options.library.as_deref())?;
        #[cfg(feature = "peers")]
        peers::measure(&mut table, effort)?;
    }
    work::measure(&mut table, effort)?;
    print!("{}", table.text());
    Ok(())
}

fn options() -> Result<Options> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--short" => options.short = true,
            "--work" => options.only_work = true,
            "--library" => options.library = arguments.next().map(PathBuf::from),
            _ => bail!("{argument} is no option; there are --short, --work, --library FILE"),
        }
    }
    Ok(options)
}
