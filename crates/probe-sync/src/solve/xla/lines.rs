//! `probe_windows_nodeN.jsonl`: a line per window of one node, optionally preceded by a line about
//! the profiler's session.
//!
//! ```text
//! {"meta":true,"node_id":0,"start_walltime_ns":…,"start_gpu_ns":…}
//! {"window_start_ns":…,"window_end_ns":…,"window_id":7,"round_id":7,"node_id":0,"edges":[{"dst":1,"alpha":…,"beta":…,"pairs":487,"lost":5}]}
//! ```
//!
//! alpha has ten digits after the point, beta is a whole number of ns. Older files have no round_id
//! and no window_id, and a node that a line does not name is that of the file's name. Times are on
//! the node's own system clock, so the first line is not needed.

use std::path::Path;

use probe_sync_time::NodeId;
use serde::{Deserialize, Serialize, Serializer};

use super::super::recording::Recording;
use super::fit::{Fit, Quanta, Window, node_of_name};
use crate::Error;

#[derive(Deserialize, Serialize)]
struct Line {
    window_start_ns: i64,
    window_end_ns: i64,
    #[serde(skip_deserializing)]
    window_id: Option<u64>,
    round_id: Option<u64>,
    node_id: Option<NodeId>,
    edges: Vec<LineEdge>,
}

#[derive(Deserialize, Serialize)]
struct LineEdge {
    dst: NodeId,
    #[serde(serialize_with = "ten_digits")]
    alpha: f64,
    #[serde(serialize_with = "whole")]
    beta: f64,
    pairs: u32,
    lost: u32,
}

#[derive(Deserialize, Serialize)]
struct Meta {
    meta: bool,
    node_id: Option<NodeId>,
}

/// Returns true if a line is from the XLA profiler: it describes a session, or a window without the
/// fields of probe_sync; `None` for a line that is not a JSON object.
pub(super) fn is_theirs(line: &[u8]) -> Option<bool> {
    let Ok(serde_json::Value::Object(keys)) = serde_json::from_slice(line) else { return None };
    let own = keys.contains_key("stop_requested") || keys.contains_key("clock_event");
    let window = keys.contains_key("window_start_ns") && keys.contains_key("edges");
    Some(!own && (window || keys.get("meta") == Some(&serde_json::Value::Bool(true))))
}

/// Reads a file.
///
/// # Errors
/// Returns an error if it cannot be read.
pub(super) fn read(
    path: &Path,
    recording: &mut Recording,
    mut take: impl FnMut(Window) -> Result<(), String>,
) -> Result<(), Error> {
    let mut of_file = node_of_name(path);
    recording.read(path, |recording, path, number, line| {
        if let Ok(Meta { meta: true, node_id }) = serde_json::from_slice(line) {
            of_file = node_id.or(of_file);
            return;
        }
        let window = serde_json::from_slice::<Line>(line).map_err(|error| error.to_string());
        let window = window.and_then(|line| {
            let node = line.node_id.or(of_file).ok_or("neither the line nor the file name gives its node")?;
            let Line { window_start_ns: start_ns, window_end_ns: end_ns, round_id: round, edges, .. } = line;
            Ok(Window { node, round, start_ns, end_ns, fits: edges.iter().map(fit).collect() })
        });
        if let Err(reason) = window.and_then(&mut take) {
            recording.skip(path, number, &reason);
        }
    })
}

/// Writes the windows of a node.
pub(super) fn text<'a>(node: NodeId, windows: impl Iterator<Item = &'a Window>) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string(&Meta { meta: true, node_id: Some(node) })? + "\n";
    for window in windows {
        let edge = |fit: &Fit| {
            let Fit { dst, alpha, beta, pairs, lost, quanta: _ } = *fit;
            LineEdge { dst, alpha, beta, pairs, lost }
        };
        let line = Line {
            window_start_ns: window.start_ns,
            window_end_ns: window.end_ns,
            window_id: window.round,
            round_id: window.round,
            node_id: Some(node),
            edges: window.fits.iter().map(edge).collect(),
        };
        text += &(serde_json::to_string(&line)? + "\n");
    }
    Ok(text)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn ten_digits<S: Serializer>(alpha: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((alpha * 1e10).round() / 1e10)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn whole<S: Serializer>(beta: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(beta.round() as i64)
}

fn fit(edge: &LineEdge) -> Fit {
    let LineEdge { dst, alpha, beta, pairs, lost } = *edge;
    Fit { dst, alpha, beta, pairs, lost, quanta: Quanta { alpha: 1e-10, beta_ns: 1.0 } }
}
