//! Standard output, files and the marking of command-line errors, shared by all commands.

use std::fs::{File, Metadata};
use std::io::{Read as _, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use console::Term;
use serde::Serialize;

use crate::screen;

/// Writes to standard output; a closed pipe (as with `| head`) is not an error.
///
/// # Errors
/// Returns an error if standard output cannot be written.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    put(std::io::stdout().lock(), text)
}

fn put(mut to: impl Write, text: &str) -> anyhow::Result<()> {
    // On a terminal both outputs are one screen.
    match crate::progress::suspended(|| to.write_all(text.as_bytes())) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// The same for text that people read: on a terminal, lines wider than the terminal are wrapped at
/// spaces, and control sequences in names of hosts, files or events are neutralised.
///
/// # Errors
/// Returns an error if standard output cannot be written.
pub(crate) fn tell(text: &str) -> anyhow::Result<()> {
    match STANDARD_OUTPUT_IS_TAKEN.load(Ordering::Relaxed) {
        false => print(&screen::shown(text, &Term::stdout())),
        true => put(std::io::stderr().lock(), &screen::shown(text, &Term::stderr())),
    }
}

/// The same for notes, whose lines are wrapped at 100 columns in files, too.
///
/// # Errors
/// Returns an error if standard output cannot be written.
pub(crate) fn tell_note(text: &str) -> anyhow::Result<()> {
    match crate::table::is_wide() {
        true => tell(text),
        false => tell(&screen::broken(text, NOTE_COLUMNS)),
    }
}

/// Must be called before a file is written that the user has named: if it is standard output, text
/// for people goes to standard error from now on.
///
/// # Errors
/// Refuses a document that would go to standard output too.
pub(crate) fn keep_apart(output: &Path, json: bool) -> anyhow::Result<()> {
    if !leads_to_standard_output(output) {
        return Ok(());
    }
    if json {
        let problem =
            format!("--json and {} both write to standard output; name a file for the output", output.display());
        return Err(anyhow::anyhow!(problem).context(Usage));
    }
    STANDARD_OUTPUT_IS_TAKEN.store(true, Ordering::Relaxed);
    Ok(())
}

/// Whether a document's path is `-`, which means standard output everywhere, or leads to it.
pub(crate) fn is_standard_output(path: &Path) -> bool {
    path.as_os_str() == "-" || leads_to_standard_output(path)
}

/// Whether a path leads to standard output, as `/dev/stdout` does.
fn leads_to_standard_output(path: &Path) -> bool {
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let own = || File::from(std::io::stdout().as_fd().try_clone_to_owned().ok()?).metadata().ok().map(identity);
    // What is written to `/dev/null` meets nothing there.
    let may_be = path != Path::new("/dev/null") && probe_sync_files::is_stream(path);
    may_be && std::fs::metadata(path).ok().map(identity).is_some_and(|of_path| own() == Some(of_path))
}

/// An output that the user has named goes there.
static STANDARD_OUTPUT_IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Writes a document.
///
/// # Errors
/// Returns an error if standard output cannot be written.
pub(crate) fn json(document: &impl Serialize) -> anyhow::Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(document)?))
}

/// Writes a document as one line, if several may follow each other.
///
/// # Errors
/// Returns an error if standard output cannot be written.
pub(crate) fn json_line(document: &impl Serialize) -> anyhow::Result<()> {
    print(&format!("{}\n", serde_json::to_string(document)?))
}

/// Writes a complete file: it appears when it is complete.
///
/// # Errors
/// Names the file.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    probe_sync_files::write_whole(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// Refuses to overwrite a trace with a document: a flag with an optional value is easily followed
/// by a trace.
///
/// # Errors
/// Names it, and what to write instead.
pub(crate) fn refuse_trace(path: &Path, flag: &str) -> anyhow::Result<()> {
    // A pipe would wait for its other end.
    if !std::fs::metadata(path).is_ok_and(|found| found.is_file()) || probe_sync_formats::detect(path).is_err() {
        return Ok(());
    }
    let mut head = [0; 64];
    let read = File::open(path).and_then(|mut file| file.read(&mut head)).unwrap_or(0);
    let head = String::from_utf8_lossy(&head[..read]);
    let first = head.trim_start_matches('{').trim_start();
    // Earlier documents of `check` begin otherwise.
    if ["\"schema\"", "\"before\""].iter().any(|key| first.starts_with(key)) {
        return Ok(());
    }
    let path = path.display();
    let problem = format!(
        "{flag} {path} would overwrite {path}, which is a trace; write {flag}=FILE, or name traces before {flag}"
    );
    Err(anyhow::anyhow!(problem).context(Usage))
}

/// Marks errors of the command line.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Usage;

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("see probe_sync --help")
    }
}

/// Width of lines for people if no terminal states it.
const NOTE_COLUMNS: usize = 100;
