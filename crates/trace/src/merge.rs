//! Puts the traces of all nodes into one file of their own format, each through its node's map.
//!
//! Place in the flow: after `clocks`; the formats do the joining. Nodes without a known clock are refused unless the caller
//! allows them; then they go in unchanged and the output's metadata names them. What it does not do: mix formats.

use std::path::Path;

use probe_sync_estimate::series::TimeMap;
use serde::Serialize;

use crate::Error;
use crate::align::{AlignmentStats, Counting};
use crate::formats::xspace::PlaneLayout;
use crate::formats::{Format, kineto, xspace};
use crate::model::Picoseconds;
use crate::nodes::NodeTrace;

/// What to do beside mapping and joining.
#[derive(Clone, Debug, Default)]
pub struct MergeOptions {
    /// How XSpace planes are laid out.
    pub layout: PlaneLayout,
    /// Merge nodes without a map too.
    pub allow_uncalibrated: bool,
    /// Keep each event's correction in the output.
    pub annotate: bool,
    /// How the clocks were learnt, for the output's metadata.
    pub method: String,
    /// Which clock the times are on afterwards, for the output's metadata.
    pub timeline: String,
}

/// What merging did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MergeReport {
    /// Per trace, in the order given.
    pub traces: Vec<AlignmentStats>,
    /// The common base, ns.
    pub base_ns: i64,
    /// Traces whose clock is not known.
    pub uncalibrated: Vec<String>,
}

/// Merges `traces`, each through its map, into `output`, which appears when it is whole.
///
/// # Errors
/// Traces of two formats, a node without a map where that is not allowed, and whatever reading and writing meet.
pub fn merge(
    traces: &[NodeTrace],
    maps: &[Option<TimeMap>],
    output: &Path,
    options: &MergeOptions,
) -> Result<MergeReport, Error> {
    let format = one_format(traces)?;
    format.refuse_other_ending(output)?;
    let uncalibrated: Vec<String> =
        traces.iter().zip(maps).filter(|(_, map)| map.is_none()).map(|(trace, _)| label(trace)).collect();
    if !(uncalibrated.is_empty() || options.allow_uncalibrated) {
        let names = uncalibrated.join(", ");
        let problem =
            format!("no clock is known for {names}; give offsets, or --allow-uncalibrated to merge as they are");
        return Err(Error::Nodes { problem });
    }
    let identity = TimeMap::identity();
    let mut counts: Vec<Counting<'_>> =
        maps.iter().map(|map| Counting::new(map.as_ref().unwrap_or(&identity))).collect();
    let metadata = metadata(traces, maps, options, &uncalibrated);
    let (base_ns, events) = match format {
        Format::XSpace => merge_xspace(traces, &mut counts, output, options, metadata)?,
        Format::Kineto => merge_kineto(traces, &mut counts, output, options, metadata)?,
    };
    let stats = counts.into_iter().zip(events).zip(maps);
    let traces = stats
        .map(|((count, events), map)| {
            let mut stats = AlignmentStats { events, base_ns: Some(base_ns), ..count.stats() };
            if map.is_none() {
                // Unchanged times on an unknown clock: zero would be a claim.
                stats.uncertainty_ns = f64::INFINITY;
                stats.notes.push("its clock is not known; its times are as they were".to_owned());
            }
            stats
        })
        .collect();
    Ok(MergeReport { traces, base_ns, uncalibrated })
}

fn one_format(traces: &[NodeTrace]) -> Result<Format, Error> {
    let first = traces.first().ok_or_else(|| Error::Nodes { problem: "there are no traces to merge".into() })?;
    match traces.iter().find(|trace| trace.format != first.format) {
        None => Ok(first.format),
        Some(other) => Err(Error::Nodes {
            problem: format!("{} and {} are of different formats", first.path.display(), other.path.display()),
        }),
    }
}

fn merge_xspace(
    traces: &[NodeTrace],
    counts: &mut [Counting<'_>],
    output: &Path,
    options: &MergeOptions,
    metadata: Vec<(String, String)>,
) -> Result<(i64, Vec<u64>), Error> {
    let mut maps: Vec<_> = counts.iter_mut().map(|count| |time: Picoseconds| count.map(time)).collect();
    let mut inputs: Vec<xspace::MergeInput<'_>> = traces
        .iter()
        .zip(&mut maps)
        .map(|(trace, map)| xspace::MergeInput { path: trace.path.clone(), node: trace.part, name: label(trace), map })
        .collect();
    let options = xspace::MergeOptions { layout: options.layout, base_ns: None, annotate: options.annotate, metadata };
    let stats = xspace::merge(&mut inputs, output, &options)?;
    Ok((stats.base_ns, stats.inputs.iter().map(|input| input.events).collect()))
}

fn merge_kineto(
    traces: &[NodeTrace],
    counts: &mut [Counting<'_>],
    output: &Path,
    options: &MergeOptions,
    metadata: Vec<(String, String)>,
) -> Result<(i64, Vec<u64>), Error> {
    let mut maps: Vec<_> = counts.iter_mut().map(|count| |time: Picoseconds| count.map(time)).collect();
    let mut inputs: Vec<kineto::MergeInput<'_>> = traces
        .iter()
        .zip(&mut maps)
        .map(|(trace, map)| kineto::MergeInput {
            path: trace.path.clone(),
            node: trace.part,
            name: trace.name.clone(),
            map,
        })
        .collect();
    let options = kineto::MergeOptions { base_ns: None, annotate: options.annotate, metadata };
    let stats = kineto::merge(&mut inputs, output, &options)?;
    Ok((stats.base_ns, stats.nodes.iter().map(|node| node.events).collect()))
}

/// `node1` or, where its host is known by another name, `rank1 (gpu-07)`.
fn label(trace: &NodeTrace) -> String {
    let plain = format!("node{}", trace.part);
    if trace.name == plain { plain } else { format!("rank{} ({})", trace.part, trace.name) }
}

fn metadata(
    traces: &[NodeTrace],
    maps: &[Option<TimeMap>],
    options: &MergeOptions,
    uncalibrated: &[String],
) -> Vec<(String, String)> {
    let mut pairs = vec![
        ("probe_sync_version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("probe_sync_method".to_owned(), options.method.clone()),
        ("probe_sync_timeline".to_owned(), options.timeline.clone()),
    ];
    for (trace, map) in traces.iter().zip(maps) {
        let middle = trace.facts.span.map(|(first, last)| first + (last - first) / 2);
        if let (Some(map), Some(middle)) = (map, middle) {
            let sigma = map.map(middle).sigma_ns;
            pairs.push((format!("probe_sync_sigma_ns {}", label(trace)), format!("{sigma:.1}")));
        }
    }
    if !uncalibrated.is_empty() {
        pairs.push(("probe_sync_uncalibrated".to_owned(), uncalibrated.join(", ")));
    }
    pairs
}
