//! `probe_sync compose`, which puts the runs of several regions on one timeline.

use std::fmt::Write as _;
use std::path::Path;

use probe_sync::solve::{Composed, Region, compose_runs};
use probe_sync_formats::words::counted;
use probe_sync_time::NodeId;

use crate::args::ComposeArgs;
use crate::{documents, output};

/// Composes and prints.
///
/// # Errors
/// Errors of `compose_runs`; an error for a `--master` of an unknown region.
pub fn run(arguments: &ComposeArgs) -> anyhow::Result<()> {
    let mut regions: Vec<Region> = Vec::new();
    for (name, run) in &arguments.regions {
        regions.push(Region { name: name.clone(), run: run.clone(), master: None });
    }
    for (name, node) in &arguments.masters_of {
        let region = regions.iter_mut().find(|region| region.name == *name);
        let wrong = |reason: &str| probe_sync::Error::Configuration {
            origin: "command line".into(),
            key: "--master".into(),
            reason: format!("{name} {reason}"),
        };
        let region = region.ok_or_else(|| wrong("does not name a region given by --region"))?;
        if region.master.replace(NodeId(*node)).is_some() {
            return Err(wrong("has two masters").into());
        }
    }
    output::keep_apart(&arguments.out, arguments.json)?;
    let composed = compose_runs(&arguments.masters, &regions, &arguments.out)?;
    for note in &composed.notes {
        tracing::warn!("{note}");
    }
    match arguments.json {
        true => output::json(&document(&composed)),
        false => output::tell(&summary(&composed, &arguments.out)),
    }
}

/// Summary for display: what was written to `out`.
pub fn summary(composed: &Composed, out: &Path) -> String {
    let Composed { lines, reference, regions, .. } = composed;
    let nodes: usize = regions.iter().map(|region| region.nodes.1).sum();
    let mut text = format!(
        "{} of {} against node {reference} → {} in {}\n",
        counted(nodes, "node"),
        counted(regions.len(), "region"),
        counted(*lines, "line"),
        out.display()
    );
    for region in regions {
        let (NodeId(first), count) = region.nodes;
        let sigma = region.sigma_ns.map_or(String::new(), |[within, overall]| {
            format!("; standard deviation {within:.1} ns within the region, {overall:.1} ns on the timeline of all (medians)")
        });
        let last = u64::from(first) + count as u64 - 1;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "  {}: nodes {first} to {last}, master node {} of the masters' run{sigma}",
            region.name, region.master
        );
    }
    text
}

/// The result as JSON.
pub fn document(composed: &Composed) -> documents::Compose {
    let region = |region: &probe_sync::solve::ComposedRegion| {
        let (NodeId(first_node), nodes) = region.nodes;
        documents::ComposedRegion {
            name: region.name.clone(),
            first_node,
            nodes,
            master: region.master.0,
            sigma_ns_within: region.sigma_ns.map(|sigma| sigma[0]),
            sigma_ns: region.sigma_ns.map(|sigma| sigma[1]),
            left_out_lines: region.left_out,
        }
    };
    documents::Compose {
        schema: 1,
        lines: composed.lines,
        reference: composed.reference.0,
        regions: composed.regions.iter().map(region).collect(),
        notes: composed.notes.clone(),
    }
}
