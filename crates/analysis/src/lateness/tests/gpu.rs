//! Jobs of NCCL on an H100, whose ranks' clocks were bent by what `run/truth.json` states.
//! fixtures/gpu/README.md says how they were made.

use std::path::{Path, PathBuf};

use probe_sync_alignment::{Calibrated, ClockSource, Outcome, Request, StepNames, calibrate, check};

use crate::{Lateness, lateness};

fn read(set: &str) -> (Calibrated, Lateness) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/gpu").join(set);
    let mut traces: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    traces.retain(|path| path.extension().is_some_and(|ending| ending == "gz"));
    traces.sort();
    assert_eq!(traces.len(), 4);
    let request = Request { traces, clocks: ClockSource::Run(folder.join("run")), ..Request::default() };
    let calibrated = calibrate(&request).expect("clocks");
    let found = lateness(&calibrated, &StepNames::default()).expect("lateness");
    print!("{}", found.text());
    (calibrated, found)
}

/// Edges, and how many are broken before and after.
fn edges(calibrated: &Calibrated) -> (usize, usize, usize) {
    let verdict = check(calibrated);
    assert_eq!((verdict.outcome(), verdict.result.ambiguous_instances), (Outcome::Holds, 0));
    (verdict.result.edges, verdict.before.as_ref().expect("it was mapped").broken, verdict.result.broken)
}

/// Rank 2's delays are where its job put them: in every third step, on this side of the launch.
fn late_in(found: &Lateness, name: &str, side: &str) {
    let [late] = &found.stragglers[..] else { panic!("{:?}", found.stragglers) };
    assert_eq!((late.rank, late.times, late.of, late.steps.len()), (Some(2), 10, 30, 10), "{late:?}");
    assert!(late.steps.windows(2).all(|pair| pair[1] - pair[0] == 3), "{late:?}");
    assert!(late.lost_ns > 45_000_000 && late.lost_ns < 55_000_000, "{late:?}");
    let of_it: Vec<_> = found.instances.iter().filter(|instance| instance.lead_ns > 4_000_000).collect();
    assert_eq!(of_it.len(), 10);
    for instance in of_it {
        let in_ = serde_json::to_value(instance.late_in).expect("a word");
        assert_eq!(
            (instance.last_rank, instance.name.as_str(), in_.as_str()),
            (Some(2), name, Some(side)),
            "{instance:?}"
        );
    }
}

#[test]
fn a_device_that_is_busy_is_told_from_a_host_that_is_late() {
    let (calibrated, found) = read("torch_gpu");
    assert_eq!(edges(&calibrated), (360, 270, 0));
    late_in(&found, "allreduce", "gpu");
    let plain = |found: &Lateness| found.text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plain(&found).contains("; launched late 0 times, device busy 10 times;"), "{}", found.text());
    let (calibrated, found) = read("jax_cpu");
    assert_eq!(edges(&calibrated), (120, 90, 0));
    late_in(&found, "psum_invariant.7.2", "cpu");
    assert!(plain(&found).contains("; launched late 10 times, device busy 0 times;"), "{}", found.text());
    // Every kernel's run and launch are known, and no name of a kernel stands for an operation.
    assert!(found.instances.iter().all(|instance| {
        instance.instance.contains(", run ") && instance.arrivals.iter().all(|part| part.launch_ns.is_some())
    }));
}

#[test]
fn operations_of_rows_and_columns_of_a_mesh_are_told_apart() {
    let (calibrated, found) = read("jax_mesh");
    assert_eq!(edges(&calibrated), (240, 119, 0));
    let count = |name: &str, ranks: [u32; 2]| {
        let of = |instance: &&crate::LateInstance| {
            instance.name == name && instance.arrivals.iter().map(|part| part.rank).eq(ranks)
        };
        found.instances.iter().filter(of).count()
    };
    assert_eq!((count("psum_invariant.7.2", [0, 1]), count("psum_invariant.7.2", [2, 3])), (30, 30));
    assert_eq!((count("all_gather.3.2", [0, 2]), count("all_gather.3.2", [1, 3])), (30, 30));
    assert_eq!((found.instances.len(), found.stragglers.len()), (120, 0));
    // Rows lose time side by side.
    assert!(found.steps.iter().all(|step| step.lost_share <= 1.0), "{:?}", found.steps);
}
