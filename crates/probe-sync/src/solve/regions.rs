//! Composition of the runs of regions and the run among their masters into one file of offsets on
//! one timeline.
//!
//! Each region has measured its own nodes against its master, which is the first node of its run or
//! the one that `--reference` named, and the masters have measured each other in a separate run;
//! `estimate::regions` combines the two levels. Nodes are renumbered, region by region in the given
//! order, because every run numbers its own from 0. A node of the masters' run that belongs to no
//! region forms its own region.
//!
//! Which node of the masters' run is a region's master is settled by its host's name, where one
//! node alone has it, or by the caller. It does not accept live offsets, which do not state their
//! uncertainty between lines, or interpolate across a master's step.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use probe_sync_estimate::regions::{NodeLines, compose};
use probe_sync_estimate::statistics::upper_median;
use probe_sync_files::open_regular;
use probe_sync_lines::{NodeRecord, OffsetRecord, OffsetsHeader, RankRecord, SMOOTHED_OFFSETS};
use probe_sync_time::{NodeId, Reference, Timestamp};

use crate::Error;
use crate::store::write_offsets;

/// A region's run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Name in messages.
    pub name: String,
    /// Its directory, or a file of its smoothed offsets.
    pub run: PathBuf,
    /// Node of its master in the masters' run; `None`: the one with its host's name.
    pub master: Option<NodeId>,
}

/// Results of putting regions on one timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Composed {
    /// Lines written, without the header line.
    pub lines: usize,
    /// Reference node of the file, whose offset is zero.
    pub reference: NodeId,
    /// The regions in the order given, followed by nodes of the masters' run that are in none.
    pub regions: Vec<ComposedRegion>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// One region of [`Composed`].
#[derive(Clone, Debug, PartialEq)]
pub struct ComposedRegion {
    /// Name of the region.
    pub name: String,
    /// Its nodes in the file: the first, and their number.
    pub nodes: (NodeId, usize),
    /// Node of its master in the masters' run.
    pub master: NodeId,
    /// Median standard deviation within the region and on the common timeline, ns; `None` without
    /// lines of nodes other than the master.
    pub sigma_ns: Option<[f64; 2]>,
    /// Its lines at times when the masters' run has no offset for its master, or after its master
    /// was lost.
    pub left_out: usize,
}

/// Composes the runs of `regions` with the run among their masters, and writes `out` in the form of
/// `offsets.jsonl`.
///
/// # Errors
/// [`Error::Configuration`] for regions that cannot be distinguished or have no master in
/// `masters`; [`Error::Regions`] for runs that cannot be composed; [`Error::File`].
pub fn compose_runs(masters: &Path, regions: &[Region], out: &Path) -> Result<Composed, Error> {
    refuse_doubles(masters, regions, out)?;
    let top = Run::read(masters)?;
    top.refuse_breaks(top.header.reference, "the reference of the masters' run", END_OF_TIME)?;
    let read: Vec<(&Region, Run)> =
        regions.iter().map(|region| Ok((region, Run::read(&region.run)?))).collect::<Result<_, Error>>()?;
    let joined = joined(&top, &read)?;
    let mut whole = Whole::of(&top);
    for ((region, run), master) in read.iter().zip(joined.iter().copied()) {
        whole.add(region, run, master)?;
    }
    whole.add_others(&joined);
    whole.note_out_of_order("the masters' run", &top);
    let Whole { header, reference, mut lines, regions, mut notes, .. } = whole;
    let reference = reference.ok_or_else(|| wrong(&top.path, "has no line for its reference"))?;
    let ranks = common_ranks(&read, &regions, &mut notes);
    lines.sort_by_key(|line| (line.window_start.midpoint(line.window_end), line.estimate.node_id));
    let header = OffsetsHeader { meta: true, nodes: header, reference, ranks };
    let lines = write_offsets(out, &header, lines.into_iter())?;
    Ok(Composed { lines, reference, regions, notes })
}

/// Checks that a region can be put on the timeline of the run among the masters, independently of
/// the others.
///
/// # Errors
/// Errors of [`compose_runs`].
pub(crate) fn check_region(masters: &Path, region: &Region) -> Result<(), Error> {
    let top = Run::read(masters)?;
    let read = [(region, Run::read(&region.run)?)];
    let joined = joined(&top, &read)?;
    Whole::of(&top).add(region, &read[0].1, joined[0])
}

/// A run's smoothed offsets.
struct Run {
    path: PathBuf,
    header: OffsetsHeader,
    nodes: BTreeMap<NodeId, NodeLines>,
}

impl Run {
    fn read(run: &Path) -> Result<Self, Error> {
        let path = if run.is_dir() { run.join(SMOOTHED_OFFSETS) } else { run.to_owned() };
        let mut reader = BufReader::new(open_regular(&path).map_err(|source| not_opened(run, &path, source))?);
        let mut header: Option<OffsetsHeader> = None;
        let mut nodes: BTreeMap<NodeId, Vec<OffsetRecord>> = BTreeMap::new();
        // Where its first line names nobody, nodes are those that have lines.
        let mut numbered = BTreeSet::new();
        let (mut reachable, mut sure) = (0, 0);
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            let read = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
            if read.map_err(Error::file(&path, "read"))? == 0 {
                break;
            }
            let at_line = |problem: serde_json::Error| wrong(&path, &format!("line {number}: {problem}"));
            if header.is_none() {
                let first: OffsetsHeader = serde_json::from_slice(&line).map_err(at_line)?;
                numbered = numbers(&path, &first)?;
                nodes.extend(numbered.iter().map(|node| (*node, Vec::new())));
                header = Some(first);
                continue;
            }
            let line: OffsetRecord = serde_json::from_slice(&line).map_err(at_line)?;
            // Rounds after a reference was lost are not smoothed: of a whole file that says a live
            // one was given.
            reachable += usize::from(line.estimate.reachable);
            sure += usize::from(line.offset_drift_covariance.is_some());
            let node = line.estimate.node_id;
            if !numbered.is_empty() && !numbered.contains(&node) {
                let problem = format!("line {number}: the first line does not name node {node}");
                return Err(wrong(&path, &problem));
            }
            nodes.entry(node).or_default().push(line);
        }
        let header = header.ok_or_else(|| wrong(&path, NO_HEADER))?;
        if reachable > 0 && sure == 0 {
            let reason = format!(
                "its lines do not state their uncertainty between each other; give the run's {SMOOTHED_OFFSETS} or the output of \
                `probe_sync solve`"
            );
            return Err(wrong(&path, &reason));
        }
        let nodes = nodes.into_iter().map(|(node, lines)| (node, NodeLines::new(lines))).collect();
        Ok(Self { path, header, nodes })
    }

    /// Returns true if the node was measured.
    fn has_lines(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|lines| !lines.lines().is_empty())
    }

    /// Returns true if the run has a single node, which is not measured.
    fn is_alone(&self) -> bool {
        let reaches = |lines: &NodeLines| lines.lines().iter().any(|line| line.estimate.reachable);
        self.nodes.len() == 1 && !self.nodes.values().any(reaches)
    }

    fn host(&self, node: NodeId) -> Option<&str> {
        self.header.nodes.iter().find(|record| record.node_id == node)?.hostname.as_deref()
    }

    /// Returns the time until which its reference is that of the region.
    fn until(&self) -> Result<Timestamp<Reference>, Error> {
        let reference = self.header.reference;
        let until = self.nodes.get(&reference).and_then(NodeLines::reference_until);
        until.ok_or_else(|| wrong(&self.path, &format!("has no line for its reference, node {reference}")))
    }

    /// Refuses steps of a master's clock, because it is unknown on which side of a step a reading
    /// is.
    fn refuse_breaks(&self, node: NodeId, what: &str, until: Timestamp<Reference>) -> Result<(), Error> {
        let Some(broken) = self.nodes.get(&node).and_then(|lines| lines.first_break(until)) else { return Ok(()) };
        let at = broken.window_start.as_ns();
        let reason = format!(
            "the clock of node {node}, {what}, was stepped at about {at} ns, and a timeline cannot be composed across a step; omit \
            this region and align its traces with its own run"
        );
        Err(wrong(&self.path, &reason))
    }
}

/// Content of the combined file.
struct Whole<'a> {
    top: &'a Run,
    header: Vec<NodeRecord>,
    reference: Option<NodeId>,
    lines: Vec<OffsetRecord>,
    regions: Vec<ComposedRegion>,
    notes: Vec<String>,
}

impl<'a> Whole<'a> {
    fn of(top: &'a Run) -> Self {
        let (header, lines, regions, notes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { top, header, reference: None, lines, regions, notes }
    }

    fn add(&mut self, region: &Region, run: &Run, master: NodeId) -> Result<(), Error> {
        let reference = run.header.reference;
        if run.is_alone() {
            self.add_alone(region, run, master);
            return Ok(());
        }
        let until = run.until()?;
        let what = format!("the master of region {}", region.name);
        // What happens to its clock once the region has lost it is no matter of the region's.
        run.refuse_breaks(reference, &what, until)?;
        self.top.refuse_breaks(master, &what, END_OF_TIME)?;
        let above = &self.top.nodes[&master];
        let first = NodeId(self.header.len() as u32);
        let mut one =
            ComposedRegion { name: region.name.clone(), master, nodes: (first, 0), sigma_ns: None, left_out: 0 };
        let (mut within, mut overall) = (Vec::new(), Vec::new());
        let before = self.lines.len();
        for (node, lines) in &run.nodes {
            let number = NodeId(self.header.len() as u32);
            if (*node, master) == (reference, self.top.header.reference) {
                self.reference = Some(number);
            }
            let (composed, left_out) = compose(lines, above, until);
            one.left_out += left_out;
            if *node != reference {
                within.extend(
                    lines.lines().iter().filter(|line| line.estimate.reachable).map(|line| line.estimate.sigma_ns),
                );
                overall
                    .extend(composed.iter().filter(|line| line.estimate.reachable).map(|line| line.estimate.sigma_ns));
            }
            self.take(number, run.host(*node), composed);
            one.nodes.1 += 1;
        }
        if self.lines.len() == before {
            return Err(never_together(region, run, self.top, above, reference));
        }
        one.sigma_ns =
            upper_median(&mut within).zip(upper_median(&mut overall)).map(|(within, overall)| [within, overall]);
        self.note_left_out(&one);
        self.note_out_of_order(&format!("region {}", region.name), run);
        self.regions.push(one);
        Ok(())
    }

    /// Adds a region of a single node, which its own run does not measure: the node is as the
    /// masters' run measured it.
    fn add_alone(&mut self, region: &Region, run: &Run, master: NodeId) {
        let number = NodeId(self.header.len() as u32);
        if master == self.top.header.reference {
            self.reference = Some(number);
        }
        self.take(number, run.host(run.header.reference), self.top.nodes[&master].lines().to_vec());
        let name = region.name.clone();
        self.regions.push(ComposedRegion { name, master, nodes: (number, 1), sigma_ns: None, left_out: 0 });
    }

    fn note_left_out(&mut self, one: &ComposedRegion) {
        let ComposedRegion { name, master, left_out, .. } = one;
        if *left_out > 0 {
            self.notes.push(format!(
                "region {name}: ignored {left_out} lines from times when the masters' run has no offset of its master (node {master} \
                there), or after its own run lost the master"
            ));
        }
    }

    fn note_out_of_order(&mut self, whose: &str, run: &Run) {
        let lines: usize = run.nodes.values().map(NodeLines::out_of_order).sum();
        if lines > 0 {
            self.notes.push(format!("{whose}: ignored {lines} lines that are out of order in time"));
        }
    }

    /// Adds nodes of the masters' run that are in no region, each as a region of its own.
    fn add_others(&mut self, joined: &[NodeId]) {
        for (node, lines) in self.top.nodes.iter().filter(|(node, _)| !joined.contains(node)) {
            let number = NodeId(self.header.len() as u32);
            if *node == self.top.header.reference {
                self.reference = Some(number);
            }
            let host = self.top.host(*node);
            self.notes.push(format!(
                "node {node} of the masters' run (host {}) is in no region; it is node {number} of the file, as measured by that run",
                host.unwrap_or("unknown")
            ));
            self.take(number, host, lines.lines().to_vec());
            let name = host.unwrap_or("(none)").to_owned();
            self.regions.push(ComposedRegion { name, master: *node, nodes: (number, 1), sigma_ns: None, left_out: 0 });
        }
    }

    fn take(&mut self, number: NodeId, host: Option<&str>, lines: Vec<OffsetRecord>) {
        self.header.push(NodeRecord { hostname: host.map(str::to_owned), node_id: number, host: None });
        self.lines.extend(lines.into_iter().zip(0..).map(|(mut line, place)| {
            line.estimate.node_id = number;
            line.window_id = place;
            line
        }));
    }
}

/// Returns the node of the masters' run that is the master of each region.
fn joined(top: &Run, regions: &[(&Region, Run)]) -> Result<Vec<NodeId>, Error> {
    let mut taken: BTreeMap<NodeId, &str> = BTreeMap::new();
    let mut masters = Vec::new();
    for (region, run) in regions {
        let name = &region.name;
        let master = region.master.map_or_else(|| by_host(top, name, run), Ok)?;
        if !top.has_lines(master) {
            let none = if top.nodes.contains_key(&master) { "has no line in" } else { "is not a node of" };
            let reason = format!("region {name}: node {master} {none} the masters' run in {}", top.path.display());
            return Err(misused("--master", reason));
        }
        if let Some(other) = taken.insert(master, name) {
            let reason = format!("regions {other} and {name} have the same master, node {master} of the masters' run");
            return Err(misused("--master", reason));
        }
        masters.push(master);
    }
    Ok(masters)
}

/// Returns the only node of the masters' run that is on the host of a region's reference.
fn by_host(top: &Run, region: &str, run: &Run) -> Result<NodeId, Error> {
    let reference = run.header.reference;
    let host = run.host(reference);
    let named = |record: &&NodeRecord| host.is_some() && record.hostname.as_deref() == host;
    let found: Vec<NodeId> = top.header.nodes.iter().filter(named).map(|record| record.node_id).collect();
    if let [only] = found[..] {
        return Ok(only);
    }
    let reason = format!(
        "region {region}: its reference is node {reference} of its run, on host {}, but {} nodes of the masters' run have that host; \
        name its master with --master {region}=NODE",
        host.unwrap_or("unknown"),
        found.len()
    );
    Err(misused("--master", reason))
}

/// Returns the launcher's ranks, if one launcher numbered all regions as one job.
fn common_ranks(regions: &[(&Region, Run)], composed: &[ComposedRegion], notes: &mut Vec<String>) -> Vec<RankRecord> {
    let mut ranks = Vec::new();
    let mut lacking = None;
    for ((region, run), one) in regions.iter().zip(composed) {
        let places: BTreeMap<NodeId, u32> = run.nodes.keys().copied().zip(one.nodes.0.0..).collect();
        for rank in &run.header.ranks {
            match places.get(&rank.node_id) {
                Some(place) => ranks.push(RankRecord { node_id: NodeId(*place), ..rank.clone() }),
                None => {
                    lacking = Some(format!("rank {} of region {} is not on any of its nodes", rank.rank, region.name));
                }
            }
        }
        if run.header.ranks.is_empty() {
            lacking = Some(format!("region {} has none", region.name));
        }
    }
    if regions.iter().all(|(_, run)| run.header.ranks.is_empty()) {
        return Vec::new();
    }
    // A region that says nothing may have a job of its own, whose traces would be taken for those
    // of another region's ranks.
    let reason =
        lacking.or_else(|| several_jobs(&ranks).then(|| "each region's launcher numbered its own ranks".into()));
    let Some(reason) = reason else { return ranks };
    notes.push(format!("omitted ranks: {reason}; traces are matched to nodes by host, or with --nodes"));
    Vec::new()
}

/// Returns true if ranks cannot be those of one job.
fn several_jobs(ranks: &[RankRecord]) -> bool {
    let numbers: BTreeSet<u32> = ranks.iter().map(|rank| rank.rank).collect();
    let jobs: BTreeSet<_> =
        ranks.iter().map(|rank| (rank.world_size, rank.launcher.map(|launcher| launcher.to_string()))).collect();
    jobs.len() > 1 || numbers.len() < ranks.len() || ranks.iter().any(|rank| rank.rank >= rank.world_size)
}

fn never_together(region: &Region, run: &Run, top: &Run, above: &NodeLines, reference: NodeId) -> Error {
    let span = |times: Vec<Timestamp<Reference>>| match (times.iter().min(), times.iter().max()) {
        (Some(first), Some(last)) => format!("{} to {}", first.as_ns(), last.as_ns()),
        _ => "never".into(),
    };
    let reached = |lines: &NodeLines| {
        let reached = lines.lines().iter().filter(|line| line.estimate.reachable);
        reached.map(|line| line.window_start.midpoint(line.window_end)).collect()
    };
    let own = run.nodes.get(&reference).map(reached).unwrap_or_default();
    let reason = format!(
        "region {}: its run measured from {} ns on its master's clock, but the masters' run in {} measured its master from {} ns on \
        its reference: they must run at the same time",
        region.name,
        span(own),
        top.path.display(),
        span(reached(above))
    );
    wrong(&run.path, &reason)
}

fn refuse_doubles(masters: &Path, regions: &[Region], out: &Path) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    let mut runs: BTreeMap<PathBuf, &str> = BTreeMap::new();
    // A directory and its file are one run.
    let place = |run: &Path| {
        let file = if run.is_dir() { run.join(SMOOTHED_OFFSETS) } else { run.to_owned() };
        std::fs::canonicalize(&file).unwrap_or(file)
    };
    runs.insert(place(masters), "--masters");
    if regions.is_empty() {
        return Err(misused("--region", "is missing: give --region NAME=DIR for each region's run".into()));
    }
    for region in regions {
        if region.name.trim().is_empty() || !names.insert(&region.name) {
            return Err(misused("--region", format!("the name {:?} is empty or given twice", region.name)));
        }
        if let Some(other) = runs.insert(place(&region.run), &region.name) {
            let reason = format!("{} is given as the run of both {other} and {}", region.run.display(), region.name);
            return Err(misused("--region", reason));
        }
    }
    if out.exists() && runs.contains_key(&place(out)) {
        return Err(Error::OutputIsInput { path: out.into() });
    }
    Ok(())
}

fn not_opened(run: &Path, path: &Path, source: std::io::Error) -> Error {
    if source.kind() == std::io::ErrorKind::NotFound && run.join("offsets.jsonl").exists() {
        return wrong(
            path,
            "does not exist, because the run is still in progress or did not end normally; create it with `probe_sync solve \
            --windows` from its windows/",
        );
    }
    Error::File { path: path.into(), action: "read", source }
}

/// Returns the nodes named in a header line.
fn numbers(path: &Path, header: &OffsetsHeader) -> Result<BTreeSet<NodeId>, Error> {
    if !header.meta {
        return Err(wrong(path, NO_HEADER));
    }
    let mut named = BTreeSet::new();
    match header.nodes.iter().find(|record| !named.insert(record.node_id)) {
        Some(twice) => Err(wrong(path, &format!("line 1 names node {} twice", twice.node_id))),
        None => Ok(named),
    }
}

fn wrong(path: &Path, reason: &str) -> Error {
    Error::Regions { path: path.into(), reason: reason.into() }
}

fn misused(key: &str, reason: String) -> Error {
    Error::Configuration { origin: "command line".into(), key: key.into(), reason }
}

const NO_HEADER: &str = "does not start with a line that names its nodes";
const END_OF_TIME: Timestamp<Reference> = Timestamp::from_ns(i64::MAX);
/// Longest header line, bytes; enough for tens of thousands of nodes.
const MAX_LINE_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    //! Files made by hand: two regions of three nodes and the run of their masters, on hosts a0 and
    //! b0.

    use probe_sync_lines::{Launcher, NodeEstimate};
    use probe_sync_time::{Duration, RoundId};

    use super::*;

    /// Nodes in the header line, nodes with lines, and ranks: number, number of ranks, node.
    struct Made<'a> {
        named: &'a [u32],
        seen: &'a [u32],
        ranks: &'a [(u32, u32, u32)],
    }

    const THREE: Made<'static> = Made { named: &[0, 1, 2], seen: &[0, 1, 2], ranks: &[] };

    fn line(node: u32, second: i64) -> OffsetRecord {
        let (at, half) = (Timestamp::from_ns(second * 1_000_000_000), Duration::from_ns(1000));
        OffsetRecord {
            round_id: RoundId(second as u64),
            window_id: second as u64,
            window_start: at - half,
            window_end: at + half,
            estimate: NodeEstimate {
                node_id: NodeId(node),
                offset_ns: 100.0 * f64::from(node),
                drift_ppm: 0.0,
                residual: 0.0,
                reachable: true,
                converged: true,
                sigma_ns: 1.0,
                asymmetry_sigma_ns: 0.0,
                drift_sigma_ppm: 0.01,
                bound_lo_ns: f64::NEG_INFINITY,
                bound_hi_ns: f64::INFINITY,
                edges_used: 1,
                edges_excluded: 0,
            },
            clock_disturbed: false,
            offset_drift_covariance: Some(0.0),
            wander: Some(1.0),
            slew_ppm: 0.0,
            step: None,
            broken_into: None,
        }
    }

    fn write(folder: &Path, name: &str, made: &Made<'_>) -> PathBuf {
        let host =
            |node: u32| if name == "top" { format!("{}0", ["a", "b"][node as usize]) } else { format!("{name}{node}") };
        let node = |node: &u32| NodeRecord { hostname: Some(host(*node)), node_id: NodeId(*node), host: None };
        let nodes = made.named.iter().map(node);
        let rank = |(rank, world_size, node): &(u32, u32, u32)| RankRecord {
            rank: *rank,
            world_size: *world_size,
            local_rank: None,
            hostname: host(*node),
            node_id: NodeId(*node),
            launcher: Some(Launcher::Torchrun),
            time_namespace: None,
        };
        let header = OffsetsHeader {
            meta: true,
            nodes: nodes.collect(),
            reference: NodeId(0),
            ranks: made.ranks.iter().map(rank).collect(),
        };
        let run = folder.join(name);
        std::fs::create_dir_all(&run).expect("a folder");
        // Nothing of the regions lies outside.
        let seconds = if name == "top" { 0..=5 } else { 1..=4 };
        let lines = seconds.flat_map(|second| made.seen.iter().map(move |node| line(*node, second)));
        write_offsets(&run.join(SMOOTHED_OFFSETS), &header, lines).expect("written");
        run
    }

    /// Composes them, and returns the header line of the file too.
    fn composed(a: &Made<'_>, b: &Made<'_>) -> Result<(Composed, OffsetsHeader), Error> {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let top = write(folder.path(), "top", &Made { named: &[0, 1], seen: &[0, 1], ranks: &[] });
        let region =
            |(name, made): (&str, _)| Region { name: name.into(), run: write(folder.path(), name, made), master: None };
        let out = folder.path().join("whole.jsonl");
        let told = compose_runs(&top, &[("a", a), ("b", b)].map(region), &out)?;
        let text = std::fs::read_to_string(out).expect("readable");
        let header = serde_json::from_str(text.lines().next().expect("a first line")).expect("a header");
        Ok((told, header))
    }

    #[test]
    fn ranks_stay_only_where_all_regions_state_those_of_one_job() {
        let check = |a: &[(u32, u32, u32)], b: &[(u32, u32, u32)], expected: &[(u32, u32)], notes: &[&str]| {
            let (told, header) = composed(&Made { ranks: a, ..THREE }, &Made { ranks: b, ..THREE }).expect("composed");
            let found: Vec<_> = header.ranks.iter().map(|rank| (rank.rank, rank.node_id.0)).collect();
            assert_eq!((&found[..], told.notes.len()), (expected, notes.len()), "{:?}", told.notes);
            for (note, part) in told.notes.iter().zip(notes) {
                assert!(note.contains("omitted ranks") && note.contains(part), "{part} is missing in {note}");
            }
        };
        let first = [(0, 4, 0), (1, 4, 2)];
        check(&first, &[(2, 4, 0), (3, 4, 1)], &[(0, 0), (1, 2), (2, 3), (3, 4)], &[]);
        check(&[], &[], &[], &[]);
        check(&first, &[], &[], &["region b has none"]);
        check(&[], &first, &[], &["region a has none"]);
        check(&first, &first, &[], &["numbered its own"]);
        check(&first, &[(2, 8, 0)], &[], &["numbered its own"]);
        check(&first, &[(4, 4, 0)], &[], &["numbered its own"]);
        check(&first, &[(2, 4, 0), (1, 4, 7)], &[], &["rank 1 of region b is not on any of its nodes"]);
    }

    #[test]
    fn a_region_of_one_node_is_as_the_masters_run_measured_it() {
        let alone = Made { named: &[0], seen: &[], ranks: &[(3, 4, 0)] };
        let ranks = Made { ranks: &[(0, 4, 0), (1, 4, 1), (2, 4, 2)], ..THREE };
        for (a, b, expected) in [(&ranks, &alone, [(0, 3), (3, 1)]), (&alone, &ranks, [(0, 1), (1, 3)])] {
            let (told, header) = composed(a, b).expect("composed");
            let nodes = told.regions.iter().map(|region| (region.nodes.0.0, region.nodes.1));
            assert_eq!((nodes.collect::<Vec<_>>(), told.reference), (expected.to_vec(), NodeId(0)));
            assert_eq!(header.ranks.len(), 4, "{:?}", told.notes);
            // 4 seconds of 3 nodes, and those of the bends of the masters' lines; 6 of the other.
            assert!(told.lines >= 18, "{}", told.lines);
        }
    }

    #[test]
    fn nodes_are_numbered_as_first_lines_name_them() {
        let (told, header) = composed(&Made { seen: &[0, 2], ..THREE }, &THREE).expect("composed");
        assert_eq!(
            told.regions.iter().map(|region| (region.nodes.0.0, region.nodes.1)).collect::<Vec<_>>(),
            [(0, 3), (3, 3)]
        );
        let hosts = header.nodes.iter().map(|node| node.hostname.as_deref().unwrap_or_default());
        assert_eq!(hosts.collect::<Vec<_>>(), ["a0", "a1", "a2", "b0", "b1", "b2"]);

        let refused = |made: Made<'_>, part: &str| {
            let error = composed(&THREE, &made).expect_err("refused").to_string();
            assert!(error.contains(part), "{part} is missing in {error}");
        };
        refused(Made { named: &[0, 1], ..THREE }, "line 4: the first line does not name node 2");
        refused(Made { named: &[0, 1, 2, 1], ..THREE }, "line 1 names node 1 twice");
    }

    #[test]
    fn lines_out_of_order_are_counted() {
        let (told, _) = composed(&THREE, &Made { seen: &[0, 1, 1, 2], ..THREE }).expect("composed");
        assert_eq!(told.notes, ["region b: ignored 4 lines that are out of order in time"]);
    }

    #[test]
    fn a_run_is_one_whether_its_directory_or_its_file_is_given() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let [top, a] =
            ["top", "a"].map(|name| write(folder.path(), name, &Made { named: &[0, 1], seen: &[0, 1], ranks: &[] }));
        let region = |name: &str, run: &Path| Region { name: name.into(), run: run.into(), master: None };
        let refused = |regions: &[Region], out: &Path, part: &str| {
            let error = compose_runs(&top, regions, out).expect_err("refused").to_string();
            assert!(error.contains(part), "{part} is missing in {error}");
        };
        let (file, out) = (a.join(SMOOTHED_OFFSETS), folder.path().join("whole.jsonl"));
        refused(&[region("a", &a), region("z", &file)], &out, "is given as the run of both a and z");
        refused(&[region("a", &file), region("z", &a.join("../a"))], &out, "is given as the run of both a and z");
        refused(&[region("a", &top.join(SMOOTHED_OFFSETS))], &out, "is given as the run of both --masters and a");
        refused(&[region("a", &a)], &file, &Error::OutputIsInput { path: file.clone() }.to_string());
    }
}
