//! Benchmark of the cost of recording an event, compared with a floor and with other recorders:
//! `cargo run --release --manifest-path bench/record/Cargo.toml`.
//!
//! Run it by hand for bench/LOG.md. It is a separate workspace so that the other recorders do not
//! become our dependencies. The floor is two readings of the time-stamp counter and a 32-byte store
//! into a ring. Everything is measured in turn, in many short passes, by the CPU time of the
//! thread, and reported as a median with its ratio, because machines differ and their load changes
//! from second to second.
//!
//! | module | holds |
//! |---|---|
//! | [`measure`] | passes in turn, medians, quantiles |
//! | [`ours`] | this recorder: on, off, on fresh memory, single events |
//! | [`library`] | the same by the C functions of the shared library |
//! | `peers` | other recorders (feature `peers`) |
//! | [`work`] | a loop that computes, with and without scopes recorded |
//! | [`details`] | memory events, shapes, stacks and a device, each in addition to scopes |
//! | [`memory`] | what is resident, and whether all is recorded or counted |
//!
//! Options: `--short` (a few passes, to see that it works), `--library FILE` (libprobe_sync.so,
//! after `cargo xtask install --prefix DIR`), `--work` (only the loop that computes), `--details`
//! (only what is recorded besides scopes), `--memory` (only memory, under each policy; streaming
//! writes some GB into the temporary folder), `--stream SECONDS` (only a steady stream). It does not
//! fail when a target is missed; the table reports it.

mod details;
mod gpu;
mod library;
mod measure;
mod memory;
mod ours;
#[cfg(feature = "peers")]
mod peers;
mod table;
mod work;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};

use measure::Effort;
use table::Table;

/// The options.
#[derive(Debug, Default)]
struct Options {
    short: bool,
    only_work: bool,
    only_details: bool,
    library: Option<PathBuf>,
    memory: bool,
    memory_of: Option<String>,
    stream_seconds: Option<u64>,
}

fn main() -> Result<()> {
    let options = options()?;
    if let Some(policy) = &options.memory_of {
        return memory::one_policy(policy);
    }
    if options.memory || options.stream_seconds.is_some() {
        println!("{}", measure::machine());
        if options.memory {
            memory::every_policy()?;
        }
        return options.stream_seconds.map_or(Ok(()), |seconds| memory::steady_stream(Duration::from_secs(seconds)));
    }
    let effort = if options.short { Effort::SHORT } else { Effort::LONG };
    println!("{}", measure::machine());
    let mut table = Table::default();
    if options.only_details {
        details::measure(&mut table, effort)?;
        print!("{}", table.text());
        return Ok(());
    }
    if !options.only_work {
        details::measure(&mut table, effort)?;
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
            "--memory" => options.memory = true,
            "--memory-of" => options.memory_of = arguments.next(),
            "--stream" => options.stream_seconds = Some(arguments.next().unwrap_or_default().parse()?),
            "--work" => options.only_work = true,
            "--details" => options.only_details = true,
            "--library" => options.library = arguments.next().map(PathBuf::from),
            _ => {
                bail!(
                    "{argument} is no option; there are --short, --work, --details, --library FILE, --memory, --stream SECONDS"
                )
            }
        }
    }
    Ok(options)
}
