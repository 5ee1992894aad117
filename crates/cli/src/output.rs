//! How every command speaks: standard output, files, and what marks an error of the command line.
//!
//! Place in the flow: under all commands. What it does not do: decide what is said, or the exit status (`main`).

use std::io::Write;
use std::path::Path;

use anyhow::Context as _;

/// Writes to standard output; a closed pipe (as under `| head`) is no failure.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    // On a terminal both outputs are one screen.
    match crate::progress::suspended(|| std::io::stdout().lock().write_all(text.as_bytes())) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes a whole file: it appears when it is complete.
///
/// # Errors
/// Names the file.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    probe_sync_files::write_whole(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// Marks errors of the command line.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Usage;

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("see probe_sync --help")
    }
}
