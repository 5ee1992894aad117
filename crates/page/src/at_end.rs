//! The page that a run leaves at its end, next to its report.
//!
//! It is produced after the run, at rank 0, for every front end. A page that cannot be made is only
//! reported in a sentence and fails nothing.

use std::path::Path;

use probe_sync_files::OwnFolder;

use crate::{Limit, page_of_run};

/// Writes the page of the run in `out`, completely or not at all.
///
/// # Errors
/// Says why there is no page, and how to get one, in a sentence.
pub fn write_at_end(out: &Path) -> Result<(), String> {
    let advice = |error: String| {
        format!("cannot write the report page: {error}; to write it later, run: probe_sync report {}", out.display())
    };
    let html = page_of_run(out, Limit::Bytes(AT_END_MAX)).and_then(|page| page.html());
    let html = html.map_err(|error| advice(error.to_string()))?;
    OwnFolder::open(out)
        .and_then(|folder| folder.write_whole(REPORT_PAGE, html.as_bytes()))
        .map_err(|error| advice(format!("cannot write {}: {error}", out.join(REPORT_PAGE).display())))
}

/// File name in the directory of a run.
pub const REPORT_PAGE: &str = "report.html";

/// Largest offsets files read at the end of a run, bytes: some seconds.
const AT_END_MAX: u64 = 256 << 20;
