//! Kernels of GPUs whose run only the host's events tell.

use probe_sync_alignment::{Request, calibrate};

use super::programs::{packed, program_called};
use super::*;

const KERNEL: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)";
/// A run's number that processes share.
const RUN: i64 = 953_279_600;

fn number(stat: i64, value: i64) -> Message {
    Message::default().number(1, stat).number(4, value)
}

fn reference(stat: i64, value: i64) -> Message {
    Message::default().number(1, stat).number(7, value)
}

/// A device's plane with kernels at these times, ns, of these launches.
fn device(ordinal: u64, kernels: &[(i64, i64)]) -> Message {
    let kernel = |line: Message, &(at_ns, correlation): &(i64, i64)| {
        let kernel = event(1, at_ns * 1000, 5_000).message(4, reference(1, 10)).message(4, reference(2, 11));
        line.message(4, kernel.message(4, number(3, correlation)))
    };
    let line = kernels.iter().fold(Message::default(), kernel);
    let plane = Message::default().text(2, &format!("/device:GPU:{ordinal}")).message(3, line).entry(4, 1, KERNEL);
    let plane = plane.entry(5, 1, "hlo_op").entry(5, 2, "hlo_module").entry(5, 3, "correlation_id");
    plane.entry(5, 10, "psum.7").entry(5, 11, "jit_step")
}

/// What executes a run from this time on, ns, for 9 ns.
fn execute(at_ns: i64, run: i64) -> Message {
    event(2, at_ns * 1000, 9_000).message(4, number(4, run))
}

/// What executes thunks of a module: `jit_step`, or another.
fn thunks(at_ns: i64, module: i64) -> Message {
    event(4, at_ns * 1000, 8_000).message(4, reference(8, module))
}

fn rendezvous(at_ns: i64, run: i64) -> Message {
    event(5, at_ns * 1000, 100).message(4, number(4, run))
}

fn launch(at_ns: i64, correlation: i64) -> Message {
    event(1, at_ns * 1000, 1_000).message(4, number(3, correlation))
}

/// Of a device its place in a clique: 12 of 0, 2, 4, 6, or 13 of 0, 2.
fn clique(device: i64, rank: i64, key: i64) -> Message {
    let event = event(3, 0, 1).message(4, number(5, device)).message(4, number(6, rank));
    event.message(4, reference(7, key))
}

fn host(threads: &[&[Message]]) -> Message {
    let line = |events: &&[Message]| events.iter().fold(Message::default(), |line, event| line.message(4, event));
    let plane = Message::default().text(2, "/host:CPU");
    let plane = threads.iter().map(line).fold(plane, |plane, line| plane.message(3, line)).entry(4, 1, KERNEL);
    let plane = plane.entry(4, 2, "CommonPjRtLoadedExecutable::Execute (jit_step)").entry(4, 3, "AcquireGpuClique");
    let plane = plane.entry(4, 4, "[0] GpuExecutable::ExecuteThunks").entry(4, 5, "RendezvousAfterInitialization");
    let plane = plane.entry(5, 3, "correlation_id").entry(5, 4, "run_id").entry(5, 5, "device").entry(5, 6, "rank");
    let plane = plane.entry(5, 7, "clique_key").entry(5, 8, "module_name").entry(5, 11, "jit_step");
    let plane = plane.entry(5, 12, "devices=4:[0,2,4,6]; x").entry(5, 13, "devices=2:[0,2]; x");
    plane.entry(5, 14, "jit_other")
}

/// Start, ns, and run less [`RUN`] of each kernel; those of no known run are told from those that
/// only order tells.
#[derive(Debug, PartialEq)]
enum Of {
    Run(i64),
    Unknown,
    Order,
}

fn facts(planes: &[Message]) -> TraceFacts {
    facts_of(&Files::new().keep("in", &space(planes)))
}

fn runs(facts: &TraceFacts) -> Vec<(i64, Of)> {
    let of = |event: crate::model::CollectiveEvent| {
        assert_eq!((event.label.name.as_str(), &event.label.kind), ("psum.7", &CollectiveKind::AllToAll));
        let of = match (&event.label.instance, &event.label.replicas) {
            (Instance::Hlo { .. }, _) => Of::Run(event.number - RUN),
            (_, Replicas::OfUnknownRun) => Of::Unknown,
            _ => Of::Order,
        };
        (((event.start_ps - START_PS) / 1000) as i64, of)
    };
    facts.collectives.events().into_iter().map(of).collect()
}

#[test]
fn a_launch_is_of_the_run_around_it() {
    // Each thread launches on a device of its own; the second one's events are not in order.
    let first: &[Message] = &[execute(10, RUN), launch(11, 1), launch(12, 2), execute(20, RUN + 1), launch(21, 3)];
    let second: &[Message] = &[launch(31, 5), rendezvous(30, RUN), thunks(29, 11)];
    let planes = [device(0, &[(15, 1), (16, 2), (25, 3)]), device(1, &[(35, 5)]), host(&[first, second])];
    let found = facts(&planes);
    assert_eq!(runs(&found), [(15, Of::Run(0)), (16, Of::Run(0)), (25, Of::Run(1)), (35, Of::Run(0))]);
    assert_eq!(found.notes, Vec::<String>::new());
    let mut launches: Vec<_> =
        found.launches.iter().map(|(start, launch)| (start - START_NS, launch - START_NS)).collect();
    launches.sort_unstable();
    assert_eq!(launches, [(15, 11), (16, 12), (25, 21), (35, 31)]);
    // A kernel that seems to begin before its launch is of its run all the same.
    let found = facts(&[device(0, &[(10, 1)]), host(&[first])]);
    assert_eq!((runs(&found), found.launches.len()), (vec![(10, Of::Run(0))], 1));
}

/// Rank 0 is in the operation from 100 to 105 ns, rank 1 from 300 on: so it would end on rank 0
/// before it begins on rank 1. Where rank 0's launch shows that its device is early, that is told,
/// and excuses nothing.
#[test]
fn a_device_that_is_early_is_told() {
    let check = |launched_ns: [i64; 2], told: &[&str]| {
        let files = Files::new();
        let groups = Message::default().message(1, packed(&[0, 1]));
        let program = program_called("jit_step", &[0, 2], Some(groups));
        let trace = |rank: usize, at_ns: i64| {
            let (rank_number, at_launch) = (rank as i64, launched_ns[rank]);
            let host = host(&[&[clique(0, rank_number, 13), execute(at_launch - 1, RUN), launch(at_launch, 1)]]);
            let planes = [device(0, &[(at_ns, 1)]), host, program.clone()];
            files.put(&format!("node{rank}.xplane.pb"), &space(&planes))
        };
        let traces = vec![trace(0, 100), trace(1, 300)];
        let calibrated = calibrate(&Request { traces, nodes: vec![0, 1], ..Request::default() }).expect("facts");
        let verdict = probe_sync_alignment::check(&calibrated);
        let result = &verdict.result;
        assert_eq!((result.edges, result.broken, result.explained), (2, 1, 0), "{}", verdict.text());
        let remarks = verdict.remarks();
        assert_eq!(remarks.len(), usize::from(!told.is_empty()), "{remarks:?}");
        assert!(told.iter().all(|part| remarks[0].contains(part)), "{remarks:?}");
    };
    check([100, 300], &[]);
    check([101, 300], &["node0.xplane.pb (1, by up to 1 ns); the profiler's"]);
    check([300, 312], &["node0.xplane.pb (1, by up to 200 ns), ", "node1.xplane.pb (1, by up to 12 ns); the"]);
}

#[test]
fn what_is_not_certain_is_of_no_run() {
    let check = |events: &[Message], expected: Of| {
        // One kernel beside it has a run.
        let certain = [execute(50, RUN + 9), launch(51, 9)];
        let planes = [device(0, &[(15, 1), (60, 9)]), host(&[events, &certain])];
        let found = facts(&planes);
        assert_eq!(runs(&found), [(15, expected), (60, Of::Run(9))], "{events:?}");
        found
    };
    check(&[execute(10, RUN), launch(11, 1)], Of::Run(0));
    let found = check(&[execute(10, RUN)], Of::Unknown);
    assert!(found.notes[0].starts_with("1 of 2 collective kernels cannot be assigned to a run"), "{:?}", found.notes);
    // Outside of what executes the run; after another has begun; another module; events that
    // differ; a number of the process's own.
    check(&[execute(1, RUN), launch(11, 1)], Of::Unknown);
    check(&[rendezvous(10, RUN), launch(11, 1)], Of::Unknown);
    check(&[execute(10, RUN), thunks(10, 14), launch(11, 1)], Of::Unknown);
    check(&[execute(10, RUN), rendezvous(11, RUN + 1), launch(12, 1)], Of::Unknown);
    check(&[execute(10, RUN), execute(11, RUN + 1), launch(12, 1)], Of::Unknown);
    check(&[execute(10, 70), launch(11, 1)], Of::Unknown);
    // What was stated before the thunks at hand began is of others.
    check(&[rendezvous(9, RUN + 1), execute(10, RUN), thunks(10, 11), launch(12, 1)], Of::Run(0));
    // Two launches of one number, whichever thread has them, say nothing of a time either.
    let found = check(&[execute(10, RUN), launch(11, 1), launch(12, 1)], Of::Unknown);
    assert_eq!(found.launches.len(), 1);
}

#[test]
fn two_kernels_of_one_launch_are_of_no_run() {
    let events: &[Message] = &[execute(10, RUN), launch(11, 1), launch(12, 2)];
    let found = facts(&[device(0, &[(15, 1), (17, 1), (19, 2)]), host(&[events])]);
    assert_eq!(runs(&found), [(15, Of::Unknown), (17, Of::Unknown), (19, Of::Run(0))]);
}

#[test]
fn without_any_run_only_order_is_left() {
    let events: &[Message] = &[execute(10, RUN), launch(11, 1)];
    // Kernels that come after the host's events, and a trace without any.
    for planes in [vec![host(&[events]), device(0, &[(15, 1)])], vec![device(0, &[(15, 1)])]] {
        let found = facts(&planes);
        assert_eq!(runs(&found), [(15, Of::Order)]);
        assert!(found.notes[0].contains("host_tracer_level"), "{:?}", found.notes);
    }
}

#[test]
fn a_clique_says_which_of_the_jobs_devices_a_device_is() {
    let devices = |events: &[Message]| {
        let planes = [device(0, &[(15, 1)]), device(1, &[(16, 2)]), host(&[events])];
        facts(&planes).collectives.events().iter().map(|event| event.label.device).collect::<Vec<_>>()
    };
    let stated = |device: u64| Some(Device::Stated(device));
    let of_plane = |plane: u64| Some(Device::OfPlane(plane));
    assert_eq!(devices(&[clique(0, 2, 12), clique(1, 3, 12)]), [stated(4), stated(6)]);
    assert_eq!(devices(&[clique(0, 1, 12), clique(0, 1, 13)]), [stated(2), of_plane(1)]);
    // Two cliques say different things, one is asked for a place that it does not have.
    assert_eq!(devices(&[clique(0, 2, 12), clique(0, 1, 13), clique(1, 2, 13)]), [of_plane(0), of_plane(1)]);
}
