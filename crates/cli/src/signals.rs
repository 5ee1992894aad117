//! Handling of SIGINT, SIGTERM and SIGHUP: a run ends in order, and a command exits at once without
//! leaving partial files.
//!
//! A command that can stop early uses the flag of [`stop_on_signals`]; any other calls
//! [`remove_partials_on_signals`] before it writes. It cannot clean up after SIGKILL.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender};
use std::time::Duration;

use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

/// Sets the returned flag on SIGTERM, SIGINT and SIGHUP. The current round ends early and
/// everything is flushed.
///
/// # Errors
/// Returns an error if the system rejects a handler.
pub fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in ending_signals() {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context(REFUSED)?;
    }
    Ok(stop)
}

/// Ends this process if a signal has set `stop` and the start is not over [`START_GRACE`] later:
/// until then a process stuck in a library or a file system does not check the flag. The caller
/// drops the returned guard when the start is over.
///
/// # Errors
/// Returns an error if a thread cannot be started.
pub fn end_hung_start(stop: &Arc<AtomicBool>) -> anyhow::Result<Starting> {
    let (over, waiting) = std::sync::mpsc::sync_channel::<()>(0);
    let stop = Arc::clone(stop);
    let watch = move || {
        let mut left = START_GRACE;
        while waiting.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            if stop.load(Ordering::Relaxed) {
                left = left.saturating_sub(LOOK);
            }
            if left.is_zero() {
                probe_sync_files::remove_partials();
                eprintln!("probe_sync: stopped by a signal during startup; nothing was measured");
                std::process::exit(SIGNALLED + SIGTERM);
            }
        }
    };
    std::thread::Builder::new().name("start".into()).spawn(watch).context(REFUSED)?;
    Ok(Starting { _over: over })
}

/// A start that is not over.
#[derive(Debug)]
pub struct Starting {
    _over: SyncSender<()>,
}

/// The signals that request an end. A terminal that disappears sends SIGHUP, which `nohup` makes
/// this process ignore.
fn ending_signals() -> impl Iterator<Item = i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or_default();
    let hangs_up = (ignored >> (SIGHUP - 1) & 1 == 0).then_some(SIGHUP);
    [SIGTERM, SIGINT].into_iter().chain(hangs_up)
}

/// Turns exceeding the file size limit (`ulimit -f`) into a write error, as for a full disk,
/// instead of the end of this process.
pub fn survive_size_limit() {
    // What a refused handler leaves is the system's own way: the end.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// On the same signals removes incomplete files, then ends the process as the signal would have.
///
/// # Errors
/// Returns an error if the system rejects a handler or a thread.
pub fn remove_partials_on_signals() -> anyhow::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new(ending_signals()).context(REFUSED)?;
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

const REFUSED: &str = "cannot handle SIGTERM, SIGINT and SIGHUP";
/// Added by shells to the number of a signal.
const SIGNALLED: i32 = 128;
/// How long an interrupted start may take: waits for other ranks end by themselves within some
/// seconds.
const START_GRACE: Duration = Duration::from_secs(15);
/// Interval at which a start is checked.
const LOOK: Duration = Duration::from_millis(100);
