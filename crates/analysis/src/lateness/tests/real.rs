//! The real sets of `../shared/data`, whose clocks are known exactly.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use probe_sync_alignment::{Calibrated, ClockSource, Request, StepNames, calibrate};
use probe_sync_formats::model::{CollectiveEvent, CollectiveKind, Instance, Picoseconds};
use probe_sync_formats::testing::{Exact, folder};

use crate::{Lateness, lateness};

fn traces(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| [".xplane.pb", ".json.gz"].iter().any(|ending| path.to_string_lossy().ends_with(ending)));
    paths.sort();
    paths
}

/// True arrivals, by name and place in the order of the file: neither the maps nor the pairing of
/// the program is in it.
fn truth(folder: &Path, calibrated: &Calibrated) -> BTreeMap<(String, i64, usize), Vec<(u32, i64)>> {
    let mut found: BTreeMap<_, Vec<(u32, i64)>> = BTreeMap::new();
    for (node, of) in calibrated.traces.iter().enumerate() {
        let exact = Exact::new(folder, node);
        let true_ns = |time_ps| ((time_ps - exact.at(time_ps)) / 1000) as i64;
        let mut places: BTreeMap<(String, i64), usize> = BTreeMap::new();
        let mut events: Vec<CollectiveEvent> = of.trace.facts.collectives.events();
        events.sort_by_key(|event| event.start_ps);
        for event in events.iter().filter(|event| event.label.kind == CollectiveKind::AllToAll) {
            let number = if matches!(event.label.instance, Instance::Hlo { .. }) { event.number } else { 0 };
            let place = places.entry((event.label.name.clone(), number)).or_default();
            let arrival = (of.trace.part, true_ns(event.start_ps));
            found.entry((event.label.name.clone(), number, *place)).or_default().push(arrival);
            *place += 1;
        }
    }
    found
}

fn found(folder: &Path, realtime_only: bool) -> (Calibrated, Lateness) {
    let clocks = ClockSource::Offsets(folder.join("offsets.csv"));
    let request = Request { traces: traces(folder), assume_order: true, clocks, realtime_only, ..Request::default() };
    let calibrated = calibrate(&request).expect("clocks");
    let settings = StepNames { pattern: regex::Regex::new(r"^train_step#(\d+)$").expect("a pattern") };
    let found = lateness(&calibrated, &settings).expect("lateness");
    (calibrated, found)
}

/// Operations whose true lead is above 50 µs, and in how many of these the right rank is named; the
/// others, and in how many of these the right one or nobody is.
fn agreement(folder: &Path, realtime_only: bool) -> (Lateness, [usize; 4]) {
    let (calibrated, found) = found(folder, realtime_only);
    let truth = truth(folder, &calibrated);
    let (mut places, mut counts) = (BTreeMap::<(String, i64), usize>::new(), [0; 4]);
    for instance in found.instances.iter().filter(|instance| instance.waits == "all") {
        let run = |(_, rest): (&str, &str)| rest.split(',').next()?.parse().ok();
        let number = instance.instance.split_once(", run ").and_then(run).unwrap_or(0);
        let place = places.entry((instance.name.clone(), number)).or_default();
        let mut arrivals = truth[&(instance.name.clone(), number, *place)].clone();
        *place += 1;
        assert_eq!(arrivals.len(), instance.arrivals.len(), "{instance:?}");
        arrivals.sort_by_key(|(_, at)| *at);
        let [(_, second), (last, at)] = arrivals[arrivals.len() - 2..] else { panic!("two ranks at least") };
        let (sure, right) = (at - second > 50_000, instance.last_rank == Some(last));
        counts[if sure { 0 } else { 2 }] += 1;
        counts[if sure { 1 } else { 3 }] += usize::from(right || (!sure && instance.last_rank.is_none()));
        // What is named is right, whatever the lead.
        assert!(instance.last_rank.is_none_or(|named| named == last), "{instance:?}: {arrivals:?}");
    }
    (found, counts)
}

#[test]
fn the_last_ranks_of_torch_b_are_those_of_the_exact_clocks() {
    let Some(folder) = folder("torch/b_4node_offset_drift") else { return };
    for realtime_only in [false, true] {
        let (found, counts) = agreement(&folder, realtime_only);
        print!("{}", found.text());
        assert_eq!(counts, [21, 21, 2, 2]);
        let recorded = &found.as_recorded;
        assert_eq!((recorded.rank, recorded.times), (Some(1), 19));
        assert_eq!((recorded.spread_median_ns + 50_000) / 100_000, 201, "20.1 ms: {recorded:?}");
        assert_eq!((recorded.aligned_spread_median_ns + 5000) / 10_000, 92, "0.92 ms: {recorded:?}");
        if realtime_only {
            assert_eq!((recorded.of, recorded.wrong), (23, 20));
        }
        assert_eq!((found.steps.len(), found.steps.iter().map(|line| line.instances).sum::<usize>()), (10, 23));
        assert_eq!(found.unpaired.ambiguous_instances, 40);
        assert!(found.stragglers.is_empty(), "nobody was slowed: {:?}", found.stragglers);
    }
}

#[test]
fn what_is_named_on_all_sets_is_right() {
    for (name, least) in [
        ("torch/a_2node_noskew", 3),
        ("torch/c_2node_stack", 3),
        ("jax/a_2node_noskew", 12),
        ("jax/b_4node_offset_drift", 30),
        ("jax/c_2node_pytracer", 12),
    ] {
        let Some(folder) = folder(name) else { continue };
        let (found, counts) = agreement(&folder, false);
        println!("{name}: {counts:?}");
        assert!(counts[0] + counts[2] >= least && counts[1] >= counts[0] - counts[0] / 10, "{name}: {counts:?}");
        assert_eq!(counts[2], counts[3], "{name}");
        assert!(found.instances.iter().all(|instance| instance.class.is_some() || instance.waits == "some"));
    }
}

#[test]
fn runs_of_compiled_programs_are_numbered_from_0_in_order_of_time() {
    let Some(folder) = folder("jax/b_4node_offset_drift") else { return };
    let request = Request {
        traces: traces(&folder),
        assume_order: true,
        clocks: ClockSource::Offsets(folder.join("offsets.csv")),
        ..Request::default()
    };
    let found = lateness(&calibrate(&request).expect("clocks"), &StepNames::default()).expect("lateness");
    // XLA numbers them from -1135352274.
    let mut steps: Vec<i64> = found.instances.iter().filter_map(|instance| instance.step).collect();
    assert!(steps.is_sorted(), "{steps:?}");
    steps.dedup();
    assert!(steps.len() >= 5 && steps == (0..steps.len() as i64).collect::<Vec<_>>(), "{steps:?}");
}

#[test]
fn clocks_that_are_hardly_known_name_nobody_wrongly() {
    let Some(folder) = folder("torch/b_4node_offset_drift") else { return };
    let request = Request { traces: traces(&folder), clocks: ClockSource::Collectives, ..Request::default() };
    let calibrated = calibrate(&request).expect("clocks");
    let found = lateness(&calibrated, &StepNames::default()).expect("lateness");
    let truth = truth(&folder, &calibrated);
    let mut places = BTreeMap::<String, usize>::new();
    for instance in &found.instances {
        let place = places.entry(instance.name.clone()).or_default();
        let last = truth[&(instance.name.clone(), 0, *place)].iter().max_by_key(|(_, at)| *at).expect("parts").0;
        *place += 1;
        assert!(instance.last_rank.is_none_or(|named| named == last), "{instance:?}");
        assert!(
            instance.last_rank == Some(last)
                || instance.latest_rank == Some(last)
                || instance.tied_ranks.contains(&last)
        );
    }
    let refused = Request { traces: traces(&folder), ..Request::default() };
    let refused = lateness(&calibrate(&refused).expect("facts"), &StepNames::default()).expect_err("no clocks");
    assert!(refused.to_string().contains("give --run-dir"), "{refused}");
}

#[test]
fn kernels_of_real_traces_know_their_launches() {
    use super::super::context::Context;
    let names = StepNames::default();
    // Five kernels of the last were launched before the recording began.
    for (set, expected) in [
        ("torch/x_real_2of128_abs_us", (10, 10)),
        ("torch/x_real_nccl_2gpu_rank0", (21, 21)),
        ("torch/x_real_mi300_8gpu_rank0", (12, 17)),
    ] {
        let Some(folder) = folder(set) else { continue };
        for path in traces(&folder) {
            let calibrated = calibrate(&Request { traces: vec![path], ..Request::default() }).expect("facts");
            let of = &calibrated.traces[0];
            let context = Context::read(of, &names).expect("a trace");
            let events = of.trace.facts.collectives.events();
            let launched = events.iter().filter_map(|event| Some(event.start_ps - context.launch(event.start_ps)?));
            let lags: Vec<Picoseconds> = launched.collect();
            assert_eq!((lags.len(), events.len()), expected, "{set}");
            assert!(lags.iter().all(|lag| *lag >= 0) && context.steps.len() >= 2, "{set}");
        }
    }
}

/// Who was last to each sum, and by how much, as the made job of Nsight Systems says.
#[cfg(feature = "rocpd")]
#[test]
fn the_last_ranks_of_exports_of_nsight_systems_are_those_that_were_made_late() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/traces/nsys");
    let traces = (0..3).map(|rank| folder.join(format!("rank{rank}.sqlite"))).collect();
    let clocks = ClockSource::Offsets(folder.join("offsets.csv"));
    let calibrated = calibrate(&Request { traces, clocks, ..Request::default() }).expect("clocks");
    let found = lateness(&calibrated, &StepNames::default()).expect("lateness");
    let truth = std::fs::read_to_string(folder.join("truth.json")).expect("the truth");
    let truth: serde_json::Value = serde_json::from_str(&truth).expect("JSON");
    let steps = truth["steps"].as_array().expect("steps");
    assert_eq!(found.instances.len(), steps.len());
    for (step, instance) in steps.iter().zip(&found.instances) {
        let ready = step["ready_ns"].as_array().expect("ranks").iter().map(|time| time.as_i64().expect("a time"));
        let mut ready: Vec<(i64, u32)> = ready.zip(0..).collect();
        ready.sort_unstable();
        let [(before, _), (last, rank)] = ready[1..] else { panic!("three ranks") };
        assert_eq!(instance.last_rank, Some(rank), "{instance:?}");
        assert!((instance.lead_ns - (last - before)).abs() <= 2, "{instance:?}, {}", last - before);
    }
    let named: Vec<u32> = found.stragglers.iter().filter_map(|straggler| straggler.rank).collect();
    assert_eq!(named, [2], "{}", found.text());
}
