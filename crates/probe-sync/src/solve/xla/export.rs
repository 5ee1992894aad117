//! Writes a run in the files of the XLA distributed profiler, for its own tools.
//!
//! `probe_windows_nodeN.jsonl` has the windows of a node, `global_window_R.pb` a message per round
//! with the windows of all nodes. beta is moved from a fit's own midpoint to the window's start.
//! What the files cannot state is lost: covariances, bounds, stamp sources, clock events.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use probe_sync_files::no_more_open_than;
use probe_sync_lines::{NodeWindow, Round};
use probe_sync_time::NodeId;

use super::fit::{Fit, Quanta, Window};
use super::{lines, messages};
use crate::Error;
use crate::store::export::{ROUNDS, lacking, rounds, windows};
use crate::store::write_whole;

/// Writes the run in `directory` to the folder `out`, which is created; returns the nodes that took
/// part in rounds but whose windows are missing, because nodes keep them on their own hosts.
///
/// # Errors
/// Names the file, and the line if one other than the last is invalid.
pub fn export(directory: &Path, out: &Path) -> Result<Vec<NodeId>, Error> {
    let (rounds, own) = (rounds(directory)?, windows(directory)?);
    let lacking = lacking(&rounds, &own);
    std::fs::create_dir_all(out).map_err(Error::file(out, "create"))?;
    if std::fs::read_dir(out).map_err(Error::file(out, "read"))?.next().is_some() {
        // Rounds of another run between these would be read with them.
        let source = std::io::Error::new(std::io::ErrorKind::AlreadyExists, "the folder is not empty; give a new one");
        return Err(Error::File { path: out.into(), action: "export to", source });
    }
    let windows: Vec<Window> = own.iter().map(window).collect();
    let mut by_node: Vec<&Window> = windows.iter().collect();
    by_node.sort_by_key(|window| window.node);
    let mut files: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for of_node in by_node.chunk_by(|a, b| a.node == b.node) {
        let node = of_node[0].node;
        let path = out.join(format!("probe_windows_node{node}.jsonl"));
        let text = lines::text(node, of_node.iter().copied());
        let text = text.map_err(|error| Error::file(&path, "write")(error.into()))?;
        files.push((path, text.into_bytes()));
    }
    let solved: BTreeMap<u64, &Round> = rounds.iter().map(|round| (round.round_id.0, round)).collect();
    // Windows are in the order of rounds.
    for of_round in windows.chunk_by(|a, b| a.round == b.round) {
        let Some(round) = of_round[0].round.and_then(|round| solved.get(&round)) else { continue };
        let path = out.join(format!("global_window_{}.pb", round.round_id));
        files.push((path, messages::bytes(round, of_round.iter())));
    }
    let names: Vec<&PathBuf> = files.iter().map(|(path, _)| path).collect();
    no_more_open_than(&[directory.join("run.json"), directory.join(ROUNDS)], &names);
    files.iter().try_for_each(|(path, bytes)| write_whole(path, bytes))?;
    Ok(lacking)
}

fn window(own: &NodeWindow) -> Window {
    let fitted = own.edges.iter().map(|edge| Fit {
        dst: edge.dst_node_id,
        alpha: edge.alpha,
        beta: edge.beta + edge.alpha * (own.window_start - edge.midpoint).as_ns() as f64,
        pairs: edge.pairs_count,
        lost: edge.lost_count,
        quanta: Quanta::default(),
    });
    // So the profiler writes an edge without a fit.
    let unfitted = own.unfitted.iter().map(|(dst, lost)| Fit {
        dst: *dst,
        alpha: 0.0,
        beta: 0.0,
        pairs: 0,
        lost: *lost,
        quanta: Quanta::default(),
    });
    Window {
        node: own.node_id,
        round: Some(own.round_id.0),
        start_ns: own.window_start.as_ns(),
        end_ns: own.window_end.as_ns(),
        fits: fitted.chain(unfitted).collect(),
    }
}
