//! The real data sets of `../shared/data`, whose clocks are known exactly, for tests of this and of
//! later crates.

use std::path::{Path, PathBuf};

use crate::model::Picoseconds;

/// A set, or `None` with a message if it is absent.
pub fn folder(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: {} is absent", path.display());
    None
}

/// offsets.csv of one node: its own time and its offset, ns, interpolated; exact to a few ns
/// between rows 20 ms apart.
pub struct Exact(Vec<(i128, i128)>);

impl Exact {
    /// Reads the offsets of a node.
    pub fn new(folder: &Path, node: usize) -> Self {
        let text = std::fs::read_to_string(folder.join("offsets.csv")).expect("offsets.csv");
        let row = |line: &str| {
            let cells: Vec<&str> = line.split(',').collect();
            let number = |cell: &str| cell.parse::<i128>().expect("a number");
            (cells[0] == node.to_string()).then(|| (number(cells[1]), number(cells[2])))
        };
        Self(text.lines().skip(1).filter_map(row).collect())
    }

    /// The offset at a time of the node's clock, ps.
    pub fn at(&self, time_ps: Picoseconds) -> Picoseconds {
        let place = self.0.partition_point(|row| row.0 * 1000 <= time_ps).clamp(1, self.0.len() - 1);
        let [(from, low), (to, high)] = [self.0[place - 1], self.0[place]];
        low * 1000 + (high - low) * (time_ps - from * 1000) / (to - from)
    }
}
