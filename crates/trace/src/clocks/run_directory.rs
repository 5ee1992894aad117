//! The directory of a run of `probe_sync`, as alignment reads it.
//!
//! Place in the flow: `--run-dir` → offsets with host names, snapshot files by node, and the moments at which the run saw
//! a system clock step (`global_windows.jsonl`). What it does not do: need anything but `offsets.jsonl`.

use std::path::{Path, PathBuf};

use probe_sync_estimate::faults::Break;
use probe_sync_estimate::record::SMOOTHED_OFFSETS;
use probe_sync_estimate::series::Step;
use probe_sync_estimate::window::ClockEvent;
use probe_sync_time::NodeId;
use serde::Deserialize;

use super::lines::{Line, Lines};
use super::offsets::Offsets;
use super::snapshots::read_snapshots;
use crate::Error;
use crate::model::ClockPair;

/// A run's directory.
#[derive(Clone, Debug, PartialEq)]
pub struct RunDirectory {
    path: PathBuf,
    /// What the run measured, with steps that it saw.
    pub offsets: Offsets,
}

impl RunDirectory {
    /// Reads `offsets.smoothed.jsonl`; where that does not exist `offsets.jsonl` and, if there is one, what `global_windows.jsonl` says of clocks.
    ///
    /// # Errors
    /// [`Error::Io`] when `offsets.jsonl` cannot be read, [`Error::Line`] naming file and line.
    pub fn open(path: &Path) -> Result<Self, Error> {
        // The run as a whole, where it ended in order or `solve` has looked at it since: its lines know of its steps.
        let smoothed = path.join(SMOOTHED_OFFSETS);
        if smoothed.exists() {
            return Ok(Self { path: path.to_path_buf(), offsets: Offsets::read(&smoothed)? });
        }
        let mut offsets = Offsets::read(&path.join("offsets.jsonl"))?;
        let windows = path.join("global_windows.jsonl");
        if windows.exists() {
            read_steps(&windows, &mut offsets)?;
        }
        Ok(Self { path: path.to_path_buf(), offsets })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A node's snapshot file: the whole document, else the lines of a run that did not end.
    fn snapshot_file(&self, node: u32) -> Option<PathBuf> {
        ["pb", "jsonl"]
            .map(|ending| self.path.join(format!("snapshots/node{node}.snapshot_pairs.{ending}")))
            .into_iter()
            .find(|path| path.is_file())
    }

    /// A node's snapshot pairs; None where there is no file.
    ///
    /// # Errors
    /// Those of [`read_snapshots`].
    pub fn snapshots(&self, node: u32) -> Result<Option<Vec<ClockPair>>, Error> {
        self.snapshot_file(node).map(|path| read_snapshots(&path)).transpose()
    }
}

/// The part of a line of `global_windows.jsonl` that matters here, in the writer's own types. The whole round is not asked
/// for: a run of an earlier version says the same of its clocks.
#[derive(Deserialize)]
struct WindowLine {
    #[serde(default)]
    clock_events: Vec<(NodeId, ClockEvent)>,
    #[serde(default)]
    watch: WatchPart,
}

#[derive(Default, Deserialize)]
struct WatchPart {
    #[serde(default)]
    breaks: Vec<Break>,
}

fn read_steps(path: &Path, offsets: &mut Offsets) -> Result<(), Error> {
    let mut lines = Lines::open(path)?;
    let mut kept = 0;
    while let Some(Line { number, text, may_be_cut }) = lines.next()? {
        match serde_json::from_slice::<WindowLine>(text) {
            Ok(window) => {
                for (node, event) in window.clock_events.iter().filter(|(_, event)| event.step_ns != 0) {
                    kept += 1;
                    if kept <= MOST_STEPS {
                        let step = Step::seen(event.at.as_ns(), event.step_ns);
                        offsets.steps.entry(node.0).or_default().push(step);
                    }
                }
                for broken in &window.watch.breaks {
                    offsets.broken.entry(broken.node.0).or_default().insert(broken.round.0);
                }
            }
            Err(_) if may_be_cut => break,
            Err(error) => return Err(lines.problem(number, error.to_string())),
        }
    }
    if kept > MOST_STEPS {
        offsets.notes.push(format!("of {kept} steps of system clocks only the first {MOST_STEPS} are used"));
    }
    Ok(())
}

const MOST_STEPS: usize = 10_000;

#[cfg(test)]
mod tests {
    //! A run's directory: hosts, steps that the run saw, snapshot files.

    use super::*;

    #[test]
    fn a_run_gives_hosts_offsets_steps_and_pairs() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path();
        let write = |name: &str, content: &str| std::fs::write(path.join(name), content).expect("writable");
        assert!(matches!(RunDirectory::open(path), Err(Error::Io { .. })));
        write(
            "offsets.jsonl",
            "{\"meta\":true,\"nodes\":[{\"node_id\":0,\"hostname\":\"a\"},{\"node_id\":1,\"hostname\":\"b\"},\
             {\"node_id\":2,\"hostname\":\"b\"}]}\n\
             {\"node_id\":1,\"window_start_ns\":0,\"window_end_ns\":8,\"offset_ns\":5,\"reachable\":true}\n",
        );
        let bare = RunDirectory::open(path).expect("offsets are enough");
        assert_eq!((bare.offsets.hostnames[&1].as_str(), bare.offsets.hostnames.get(&7)), ("b", None));
        assert_eq!(bare.snapshots(1).expect("no file is no error"), None);

        write(
            "global_windows.jsonl",
            "{\"round_id\":3,\"clock_events\":[[1,{\"step_ns\":-900,\"slew_ppm\":0.0,\"at_ns\":77}],\
             [2,{\"step_ns\":0,\"slew_ppm\":30.0,\"at_ns\":78}]],\"watch\":{\"breaks\":[{\"node\":2,\"round\":3}]},\"decision\":{}}\n{\"round_id\":4}\n{\"clock_ev",
        );
        std::fs::create_dir(path.join("snapshots")).expect("writable");
        write("snapshots/node1.snapshot_pairs.jsonl", "{\"sys_clock_ns\":2,\"tracer_clock_ns\":1}\n");
        let run = RunDirectory::open(path).expect("a run");
        assert_eq!(run.offsets.steps.get(&1), Some(&vec![Step::seen(77, -900)]));
        assert_eq!(run.offsets.steps.get(&2), None, "a change of rate is no step");
        assert_eq!(run.offsets.broken.get(&2), Some(&[3].into()), "but its clock does not go on");
        assert_eq!(run.snapshots(1).expect("a file").expect("pairs").len(), 1);
        write("snapshots/node1.snapshot_pairs.pb", "");
        assert!(run.snapshots(1).is_err(), "the document counts, and says nothing");

        write("global_windows.jsonl", "{\"clock_events\":7}\n");
        assert!(RunDirectory::open(path).expect_err("not a list").to_string().contains("line 1"));
    }
}
