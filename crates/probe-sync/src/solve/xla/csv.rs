//! `alpha_beta_nodeN.csv`: the last fit of each edge of one node, under the header
//! `src,dst,alpha,beta_ns,num_pairs,lost_packets`.
//!
//! It does not say when that was. Somebody must, or the offsets would belong to no time:
//! [`Selection::at`] is the start of that window on the nodes' clocks. Numbers have six digits, so
//! that an offset of 10 ms is known to 100 ns; that goes into the covariance.

use std::collections::BTreeMap;
use std::path::Path;

use probe_sync_time::{Duration, NodeId};

use super::super::recording::Recording;
use super::super::selection::Selection;
use super::fit::{Fit, Quanta, Window};
use crate::Error;

/// Returns true if a first line is the header.
pub(super) fn is_header(line: &str) -> bool {
    line.trim_start_matches('\u{feff}').trim().split(',').map(str::trim).eq(COLUMNS)
}

/// Reads a file.
///
/// # Errors
/// Returns an error if it cannot be read, or it was not given when its fits hold.
pub(super) fn read(
    path: &Path,
    selection: &Selection,
    recording: &mut Recording,
    mut take: impl FnMut(Window) -> Result<(), String>,
) -> Result<(), Error> {
    let Some(start) = selection.at else {
        return Err(Error::Configuration {
            origin: path.display().to_string(),
            key: "--at".into(),
            reason: "the file does not contain the time of its fits; give --at NS, the start of the last window in ns since 1970, or \
                use probe_windows_nodeN.jsonl, which has the same fits with their times"
                .into(),
        });
    };
    let length = selection.window.unwrap_or(DEFAULT_WINDOW);
    let mut of_nodes: BTreeMap<NodeId, Vec<Fit>> = BTreeMap::new();
    recording.read(path, |recording, path, number, line| {
        let text = String::from_utf8_lossy(line);
        if is_header(&text) {
            return;
        }
        match fit(text.trim()) {
            Ok((src, fit)) => of_nodes.entry(src).or_default().push(fit),
            Err(reason) => recording.skip(path, number, &reason),
        }
    })?;
    for (node, fits) in of_nodes {
        let start_ns = start.as_ns();
        let end_ns = start_ns.saturating_add(length.as_ns());
        if let Err(reason) = take(Window { node, round: Some(0), start_ns, end_ns, fits }) {
            recording.leave_out(&format!("{}: node {node}: {reason}", path.display()));
        }
    }
    Ok(())
}

fn fit(line: &str) -> Result<(NodeId, Fit), String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [src, dst, alpha, beta, pairs, lost] = fields[..] else {
        return Err(format!("{} fields instead of {}", fields.len(), COLUMNS.len()));
    };
    let whole =
        |text: &str, column: usize| text.parse::<u32>().map_err(|e| format!("{} \"{text}\": {e}", COLUMNS[column]));
    let real = |text: &str, column: usize| {
        let number: f64 = text.parse().map_err(|e| format!("{} \"{text}\": {e}", COLUMNS[column]))?;
        if number.is_finite() { Ok(number) } else { Err(format!("{} is not finite", COLUMNS[column])) }
    };
    let (alpha, beta) = (real(alpha, 2)?, real(beta, 3)?);
    let quanta = Quanta { alpha: quantum(alpha), beta_ns: quantum(beta) };
    let fit = Fit { dst: NodeId(whole(dst, 1)?), alpha, beta, pairs: whole(pairs, 4)?, lost: whole(lost, 5)?, quanta };
    Ok((NodeId(whole(src, 0)?), fit))
}

/// Returns the value of a number's sixth digit.
fn quantum(number: f64) -> f64 {
    if number == 0.0 { 0.0 } else { 10f64.powf(number.abs().log10().floor() - 5.0) }
}

const COLUMNS: [&str; 6] = ["src", "dst", "alpha", "beta_ns", "num_pairs", "lost_packets"];
/// Window of a summary, which does not state one: the profiler's default.
const DEFAULT_WINDOW: Duration = Duration::from_ms(4_000);
