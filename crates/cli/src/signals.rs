//! What SIGINT and SIGTERM do: end a run well, or end a command at once without half-written files.
//!
//! Place in the flow: a command that can be cut short takes the flag of [`stop_on_signals`]; one that cannot calls
//! [`remove_partials_on_signals`] before it writes. What it does not do: catch what cannot be caught (kill -9).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Raises the returned flag on SIGTERM and SIGINT. The round under way ends early and everything is flushed.
///
/// # Errors
/// When the system refuses a handler.
pub fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context(REFUSED)?;
    }
    Ok(stop)
}

/// On SIGTERM and SIGINT removes the files that are not whole, then ends the process as the signal would have.
///
/// # Errors
/// When the system refuses a handler or a thread.
pub fn remove_partials_on_signals() -> anyhow::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT]).context(REFUSED)?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            probe_sync_files::remove_partials();
            // It ends the process; if it cannot, the status of a signal's end does.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
            std::process::exit(SIGNALLED + signal);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).context(REFUSED)?;
    Ok(())
}

const REFUSED: &str = "cannot handle SIGTERM and SIGINT";
/// What shells add to a signal's number.
const SIGNALLED: i32 = 128;
