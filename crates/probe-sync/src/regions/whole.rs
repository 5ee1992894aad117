//! All regions on one timeline, once their runs are over.
//!
//! The regions' smoothed offsets, from where they were written or delivered, and those of the
//! masters' run become `offsets.smoothed.jsonl` of the job's directory through [`compose_runs`], as
//! with `probe_sync compose`. Snapshot pairs are placed next to it under the new node numbers, and
//! so is `truth.json` if there is truth, so that readers can treat the directory as that of a
//! single run.
//!
//! A region without a file (its master was lost, its run failed), or whose file cannot be put on
//! that timeline (its master's clock was stepped), is left out and named. It does not solve the
//! windows of such regions.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration as StdDuration, Instant};

use probe_sync_files::open_regular;
use probe_sync_lines::SMOOTHED_OFFSETS;
use probe_sync_time::NodeId;

use super::ends::RegionEnd;
use super::groups::{REGIONS, SNAPSHOTS};
use super::masters;
use crate::join::Grouping;
use crate::measure::virtual_clocks::{self, Truth};
use crate::report::RunReport;
use crate::solve::{Composed, Region, check_region, compose_runs};
use crate::store::{RunDirectory, received};
use crate::{Config, Error};

/// Results of a job of regions.
#[derive(Clone, Debug)]
pub struct RegionsReport {
    /// Directory of the job.
    pub out: PathBuf,
    /// All regions on one timeline.
    pub composed: Composed,
    /// Regions that are not on it, with reasons and advice.
    pub missing: Vec<String>,
    /// The report of rank 0's region.
    pub region: Option<RunReport>,
    /// The report of the run among the masters.
    pub masters: Option<RunReport>,
}

/// How the regions ended, as far as rank 0 was told.
pub(super) struct Ends<'a> {
    pub regions: &'a [Option<RegionEnd>],
    /// True if the masters' run may have ended before rank 0 was told.
    pub killed_soon: bool,
}

impl Ends<'_> {
    /// Returns how a region ended whose files would be in `folder`.
    fn of(&self, place: usize, folder: &Path) -> Option<RegionEnd> {
        let until = Instant::now() + UNTIL_KILLED;
        let there = || folder.join(SMOOTHED_OFFSETS).is_file();
        while self.killed_soon && self.regions[place].is_none() && !there() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        let seen = RegionEnd { orderly: true, brought: false };
        self.regions[place].or_else(|| (self.killed_soon && there()).then_some(seen))
    }
}

/// Location of a region's files at rank 0.
struct Found {
    /// Index of the region.
    place: usize,
    folder: PathBuf,
}

/// Composes the available files.
///
/// # Errors
/// Errors of [`compose_runs`]; [`Error::Regions`] if no region has a file, or this rank is no
/// longer the masters' master.
pub(super) fn compose(
    config: &Config,
    grouping: &Grouping,
    directory: &RunDirectory,
    ends: &Ends<'_>,
    [region, masters_report]: [Option<RunReport>; 2],
) -> Result<RegionsReport, Error> {
    let out = directory.path();
    let masters = masters::directory(out);
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for (place, one) in grouping.regions.iter().enumerate() {
        let own = out.join(REGIONS).join(&one.name);
        let brought = received(&masters, place, &format!("{REGIONS}/{}", one.name));
        let end = ends.of(place, &own);
        let folder = if end.is_some_and(|end| end.brought) { brought } else { own };
        match why_missing(&folder, end, one.ranks[0]) {
            Some(reason) => missing.push(format!("region {}: {reason}", one.name)),
            None => found.push(Found { place, folder }),
        }
    }
    let of = |found: &Found| Region {
        name: grouping.regions[found.place].name.clone(),
        run: found.folder.clone(),
        master: Some(NodeId(found.place as u32)),
    };
    // One that cannot be used costs the others nothing.
    found.retain(|one| {
        let region = of(one);
        let unusable = check_region(&masters, &region).err();
        missing.extend(unusable.iter().map(|error| format!("region {}: {error}", region.name)));
        unusable.is_none()
    });
    let regions: Vec<Region> = found.iter().map(of).collect();
    if regions.is_empty() {
        return Err(Error::Regions { path: out.into(), reason: missing.join("; ") });
    }
    let composed = compose_runs(&masters, &regions, &out.join(SMOOTHED_OFFSETS))?;
    for (found, one) in found.iter().zip(&composed.regions) {
        take_pairs(&found.folder, directory, one.nodes)?;
    }
    write_truth(config, grouping, directory, &found, &composed)?;
    Ok(RegionsReport { out: out.into(), composed, missing, region, masters: masters_report })
}

/// Returns why a region has no file of its whole run.
fn why_missing(folder: &Path, end: Option<RegionEnd>, master: u32) -> Option<String> {
    let solve = "run `probe_sync solve --windows` on the windows that it wrote, then `probe_sync compose` to put it on one timeline \
        with the others";
    match end {
        None => Some(format!("its master, rank {master}, was lost or did not report how its run ended; {solve}")),
        Some(RegionEnd { orderly: false, .. }) => {
            Some(format!("its run ended with an error, see rank {master}; {solve}"))
        }
        Some(_) if !folder.join(SMOOTHED_OFFSETS).is_file() => Some(format!(
            "{} does not exist: the run was too short or too long for it, or its files are on the host of rank {master}; {solve}",
            folder.join(SMOOTHED_OFFSETS).display()
        )),
        Some(_) => None,
    }
}

/// Returns the names of a region's files that belong to the whole, relative to its run's directory.
pub(super) fn files_of_region(folder: &Path) -> Vec<String> {
    let pairs = std::fs::read_dir(folder.join(SNAPSHOTS)).into_iter().flatten().flatten();
    let pairs = pairs.filter_map(|file| Some(format!("{SNAPSHOTS}/{}", file.file_name().to_str()?)));
    let mut names: Vec<String> = pairs.filter(|name| pairs_of(name).is_some()).collect();
    names.sort();
    names.insert(0, SMOOTHED_OFFSETS.to_owned());
    names.retain(|name| folder.join(name).is_file());
    names
}

/// Parses the node from the name of a file of snapshot pairs, and returns the rest of the name.
fn pairs_of(name: &str) -> Option<(u32, &str)> {
    let rest = name.strip_prefix(SNAPSHOTS)?.strip_prefix("/node")?;
    let (node, ending) = rest.split_once('.')?;
    ["snapshot_pairs.jsonl", "snapshot_pairs.pb"].contains(&ending).then_some((node.parse().ok()?, ending))
}

/// Copies a region's snapshot pairs, renumbering its nodes as in the combined file.
fn take_pairs(folder: &Path, directory: &RunDirectory, (NodeId(first), nodes): (NodeId, usize)) -> Result<(), Error> {
    for name in files_of_region(folder) {
        let Some((node, ending)) = pairs_of(&name).filter(|(node, _)| (*node as usize) < nodes) else { continue };
        let to = format!("{SNAPSHOTS}/node{}.{ending}", first + node);
        let copy = || {
            let mut copy = directory.atomic(&to)?;
            io::copy(&mut open_regular(&folder.join(&name))?, &mut copy)?;
            copy.commit()
        };
        copy().map_err(Error::file(&directory.path().join(&to), "write"))?;
    }
    Ok(())
}

/// Writes the virtual clocks of all nodes of the file. Ranks then share one real clock, so every
/// rank is a node of its region.
fn write_truth(
    config: &Config,
    grouping: &Grouping,
    directory: &RunDirectory,
    found: &[Found],
    composed: &Composed,
) -> Result<(), Error> {
    let of_region = |found: &Found| grouping.regions[found.place].ranks.clone();
    let mut numbers: Vec<u32> = found.iter().flat_map(of_region).collect();
    // Masters whose regions are left out stand behind them.
    let others = composed.regions.iter().skip(found.len());
    numbers.extend(others.filter_map(|one| grouping.regions.get(one.master.index())).map(|region| region.ranks[0]));
    let start = grouping.part(0).start;
    let truth = Truth::of(config, &numbers, composed.reference, start);
    if !truth.is_known() {
        return Ok(());
    }
    let document = virtual_clocks::document(config, truth.clocks(), composed.reference, start);
    directory.write_document("truth.json", &format!("{document:#}\n"))
}

/// How long rank 0 waits for a region's file if the launcher may kill it soon.
const UNTIL_KILLED: StdDuration = StdDuration::from_millis(500);
const LOOK: StdDuration = StdDuration::from_millis(10);
