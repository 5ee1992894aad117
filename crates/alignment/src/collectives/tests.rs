//! The real sets of `../shared/data`: counts of broken edges before and after, and truth inside the
//! bounds.

use std::path::{Path, PathBuf};

use probe_sync_formats::model::{MappedTime, Picoseconds, TraceFacts};
use probe_sync_formats::testing::{Exact, folder};
use probe_sync_formats::{FactOptions, Kineto, TraceFormat, XSpace};

use super::matching::{MatchOptions, Pairing};
use super::{CheckOptions, CheckReport, NodeCollectives, OffsetOptions, check, from_collectives};

/// The facts of every node of a set, in order.
fn facts(folder: &Path) -> Vec<TraceFacts> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let ends = |path: &&PathBuf, end: &str| path.to_string_lossy().ends_with(end);
    let options = FactOptions::default();
    let of_jax = paths.iter().filter(|path| ends(path, ".xplane.pb")).map(|path| XSpace.read_facts(path, &options));
    let of_torch = paths.iter().filter(|path| ends(path, ".json.gz")).map(|path| Kineto.read_facts(path, &options));
    of_jax.chain(of_torch).collect::<Result<_, _>>().expect("facts")
}

fn identity(at: Picoseconds) -> MappedTime {
    MappedTime { at, ..MappedTime::default() }
}

fn run(facts: &[TraceFacts], exact: Option<&[Exact]>, options: &CheckOptions) -> CheckReport {
    let names: Vec<String> = (0..facts.len()).map(|node| format!("node{node}")).collect();
    let maps: Vec<_> = (0..facts.len())
        .map(|node| {
            let corrected = move |at: Picoseconds, exact: &[Exact]| identity(at - exact[node].at(at));
            move |at: Picoseconds| match exact {
                Some(exact) => MappedTime { sigma_ns: 10.0, ..corrected(at, exact) },
                None => identity(at),
            }
        })
        .collect();
    let node = |node: usize| NodeCollectives {
        clock: node as u32,
        node: node as u32,
        name: &names[node],
        rank: facts[node].identity.rank,
        world_size: facts[node].identity.world_size,
        groups: &facts[node].groups,
        parts: &facts[node].collectives,
        steps: &facts[node].steps,
        map: &maps[node],
    };
    let nodes: Vec<NodeCollectives<'_>> = (0..facts.len()).map(node).collect();
    check(&nodes, &Pairing::new(&nodes, options.matching, exact.is_some()), options)
}

/// Broken and judged edges of a set on the raw times, as `data/README.md` counts them; none is
/// broken after correction.
fn counts(name: &str, expected: (usize, usize)) {
    let Some(folder) = folder(name) else { return };
    let facts = facts(&folder);
    let raw = run(&facts, None, &CheckOptions::default());
    assert_eq!((raw.broken, raw.edges), expected, "{}", super::table(None, &raw));
    assert_eq!(raw.violations() > 0, expected.0 > 0);
    let exact: Vec<Exact> = (0..facts.len()).map(|node| Exact::new(&folder, node)).collect();
    let corrected = run(&facts, Some(&exact), &CheckOptions::default());
    assert_eq!((corrected.broken, corrected.edges), (0, expected.1), "{}", super::table(Some(&raw), &corrected));
    // Pairing all-reduces by counts adds edges, none of them false.
    let matching = MatchOptions { reductions_by_count: true, ..MatchOptions::default() };
    let more = run(&facts, Some(&exact), &CheckOptions { matching, ..CheckOptions::default() });
    assert_eq!(more.broken, 0, "{}", super::table(None, &more));
}

#[test]
fn counts_of_the_jax_sets() {
    counts("jax/a_2node_noskew", (0, 24));
    counts("jax/b_4node_offset_drift", (46, 144));
    counts("jax/c_2node_pytracer", (5, 38));
}

#[test]
fn counts_of_the_torch_sets() {
    counts("torch/a_2node_noskew", (0, 12));
    counts("torch/b_4node_offset_drift", (46, 92));
    counts("torch/c_2node_stack", (8, 18));
}

#[test]
fn the_sub_group_of_torch_b_is_never_mispaired() {
    let Some(folder) = folder("torch/b_4node_offset_drift") else { return };
    let facts = facts(&folder);
    for reductions_by_count in [false, true] {
        let options = CheckOptions {
            matching: MatchOptions { reductions_by_count, ..MatchOptions::default() },
            ..CheckOptions::default()
        };
        let report = run(&facts, None, &options);
        assert!(report.operations.iter().all(|line| !line.name.contains("all_reduce")), "{report:?}");
        let reductions = report.ambiguous.iter().find(|line| line.operation.contains("all_reduce")).expect("a line");
        assert_eq!((reductions.instances, reductions.parts), (20, 60), "{:?}", report.ambiguous);
    }
}

/// Truth inside the bounds of offset and drift for every node; the error of the estimate stays
/// below `error_ns`.
fn bounds(name: &str, error_ns: f64) {
    let Some(folder) = folder(name) else { return };
    let facts = facts(&folder);
    let names: Vec<String> = (0..facts.len()).map(|node| format!("node{node}")).collect();
    let node = |node: usize| NodeCollectives {
        clock: node as u32,
        node: node as u32,
        name: &names[node],
        rank: facts[node].identity.rank,
        world_size: facts[node].identity.world_size,
        groups: &facts[node].groups,
        parts: &facts[node].collectives,
        steps: &facts[node].steps,
        map: &identity,
    };
    let nodes: Vec<NodeCollectives<'_>> = (0..facts.len()).map(node).collect();
    let found = from_collectives(&nodes, &OffsetOptions::default()).expect("offsets");
    print!("{name}: {}", found.text());
    let truth: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("truth.json")).expect("truth")).expect("JSON");
    let report = with_found(&nodes, &found);
    // Not promised, since the estimate keeps to the bounds at the reference time only; but so it
    // should come out.
    assert_eq!((report.broken, report.edges > 0), (0, true), "{}", super::table(None, &report));
    let [window] = &found.windows[..] else { panic!("{} windows", found.windows.len()) };
    for (place, node) in window.nodes.iter().enumerate().skip(1) {
        // When node 0's clock, which is the true one, reads the reference time.
        let clock = &truth["nodes"][place.to_string()];
        let number = |key: &str| clock[key].as_f64().expect("a number");
        let since = (window.reference_time_ns - clock["t0_ns"].as_i64().expect("t0")) as f64;
        let offset = number("off_ns") + number("ppm") * 1e-6 * since;
        let (low, high) = (node.bound_lo_ns.expect("bound"), node.bound_hi_ns.expect("bound"));
        println!(
            "node {place}: truth {offset:.0}, error {:.0} ns, drift error {:.1} ppm",
            node.offset_ns - offset,
            node.drift_ppm - number("ppm")
        );
        assert!(low <= offset && offset <= high, "{name} node {place}: {offset} outside {low}..{high}");
        assert!((node.offset_ns - offset).abs() < error_ns, "{name} node {place}: {} for {offset}", node.offset_ns);
        let [slowest, fastest] = node.drift_bounds_ppm;
        assert!((slowest..=fastest).contains(&number("ppm")), "{name} node {place}: {slowest}..{fastest}");
    }
}

#[test]
fn truth_is_inside_the_bounds_of_the_real_sets() {
    bounds("jax/b_4node_offset_drift", 120_000.0);
    bounds("torch/b_4node_offset_drift", 120_000.0);
}

/// The check under the offsets found.
fn with_found(nodes: &[NodeCollectives<'_>], found: &super::CollectiveOffsets) -> CheckReport {
    let map = |node: usize| {
        let window = &found.windows[0];
        let node = &window.nodes[node];
        move |at: Picoseconds| {
            let since_ps = (at - Picoseconds::from(window.reference_time_ns) * 1000) as f64 - node.offset_ns * 1e3;
            let offset_ps = node.offset_ns * 1e3 + node.drift_ppm * 1e-6 * since_ps;
            identity(at - offset_ps as Picoseconds)
        }
    };
    let maps: Vec<_> = (0..nodes.len()).map(map).collect();
    let mapped: Vec<NodeCollectives<'_>> =
        nodes.iter().zip(&maps).map(|(node, map)| NodeCollectives { map, ..*node }).collect();
    let options = CheckOptions::default();
    check(&mapped, &Pairing::new(&mapped, options.matching, false), &options)
}
