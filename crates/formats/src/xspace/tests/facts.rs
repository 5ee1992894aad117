//! What files say of themselves: pairs, collectives, identities.

use super::*;

#[test]
fn facts_of_the_data_sets() {
    let Some(folder) = data() else { return };
    let check = |set: &str, node: u32, collectives: usize, pairs: usize| {
        let facts = facts_of(&folder.join(set).join(format!("node{node}.xplane.pb")));
        assert_eq!(facts.identity.hostname, Some(format!("node{node}")));
        let events = facts.collectives.events();
        let judged = events.iter().filter(|event| event.label.kind == CollectiveKind::AllToAll).count();
        assert_eq!((judged, facts.pairs.len()), (collectives, pairs), "{set} node {node}");
        assert_eq!(facts.notes, Vec::<String>::new());
        for collective in &events {
            let Instance::Hlo { module, op } = &collective.label.instance else { panic!("{collective:?}") };
            assert!(!module.is_empty() && collective.number != 0 && op == &collective.label.name, "{collective:?}");
            assert_eq!(i64::from(collective.number as i32), collective.number, "{collective:?}");
            // The file holds the program: one group of all devices, each process with one, numbered
            // in steps of 2048.
            let judged = collective.label.kind == CollectiveKind::AllToAll;
            assert!(
                !judged || matches!(&collective.label.replicas, Replicas::Groups(groups) if groups.len() == 1),
                "{collective:?}"
            );
            assert_eq!(collective.label.device, Some(Device::Stated(u64::from(node) * 2048)), "{collective:?}");
        }
        for pair in &facts.pairs {
            let late_ns = pair.tracer_ps / 1000 - i128::from(pair.system_ns);
            assert!((0..2_000_000).contains(&late_ns), "{set} node {node}: {late_ns}");
        }
        let (first, last) = facts.span.expect("events");
        assert!(last > first && facts.events > 100);
    };
    for node in 0..4 {
        check("b_4node_offset_drift", node, 36, 16);
    }
    for node in 0..2 {
        check("a_2node_noskew", node, 12, 10);
        check("c_2node_pytracer", node, 19, 6);
    }
}

#[test]
fn pairs_come_from_markers_and_snapshot_planes_wherever_their_names_stand() {
    let number = |stat: i64, value: i64| Message::default().number(1, stat).number(4, value);
    let line = Message::default()
        .number(3, 1_000)
        .message(4, event(1, 2_000_000, 0).message(4, number(9, START_NS + 2_500)))
        .message(4, event(2, 4_000_000, 0))
        .message(4, event(3, 6_000_000, 0));
    let threads = Message::default()
        .message(3, line)
        .text(2, "/host:CPU")
        .entry(4, 1, "probe_sync.clock")
        .entry(4, 2, "sync at 1700000000000004000 ns")
        .entry(4, 3, "probe_sync.clock#1700000000000006500")
        .entry(5, 9, "system_ns");
    let shots =
        Message::default().number(3, 5_000).message(4, event(1, 7_000_000, 0).message(4, number(3, START_NS + 5)));
    let snapshots =
        Message::default().text(2, "/host:snapshots").message(3, shots).entry(4, 1, "snapshot").entry(5, 3, "rocm_ns");
    let files = Files::new();
    let path = files.put("in", &space(&[threads, snapshots]));
    let markers = regex::Regex::new(r"^sync at (?<system_ns>\d+) ns$").expect("an expression");
    let options = FactOptions { markers: Some(markers), ..FactOptions::default() };
    let facts = read_facts(&path, &options).expect("facts");
    let marker = |late_ps: i128, late_ns: i64| ClockPair {
        tracer_ps: START_PS + late_ps,
        system_ns: START_NS + late_ns,
        kind: PairKind::Marker,
    };
    let snapshot =
        ClockPair { tracer_ps: START_PS + 5_000, system_ns: START_NS + 12_000, kind: PairKind::Bracketed(5000.0) };
    assert_eq!(facts.pairs, [marker(3_000_000, 2_500), marker(5_000_000, 4_000), marker(7_000_000, 6_500), snapshot]);
    assert_eq!(facts.identity.hostname.as_deref(), Some("host7"));
}

#[test]
fn collectives_of_devices_are_found_by_library_and_by_operation() {
    let reference = |stat: i64, value: i64| Message::default().number(1, stat).number(7, value);
    let hlo = |event: Message, op: i64| {
        event
            .message(4, reference(1, op))
            .message(4, reference(2, 12))
            .message(4, Message::default().number(1, 3).number(3, 42 << 20))
    };
    let line = Message::default()
        .message(4, hlo(event(1, 0, 10), 10))
        .message(4, hlo(event(2, 20, 10), 11))
        .message(4, hlo(event(3, 40, 10), 10))
        .message(4, event(1, 60, 10));
    let plane = Message::default()
        .text(2, "/device:GPU:0")
        .message(3, line)
        .entry(4, 1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
        .entry(4, 2, "loop_reduce_fusion")
        .entry(4, 3, "RaggedAllToAllKernel")
        .entry(5, 1, "hlo_op")
        .entry(5, 2, "hlo_module")
        .entry(5, 3, "run_id")
        .entry(5, 10, "all-reduce-start.1")
        .entry(5, 11, "loop_reduce_fusion")
        .entry(5, 12, "jit_step");
    let facts = facts_of(&Files::new().keep("in", &space(&[plane])));
    let events = facts.collectives.events();
    assert!(
        events
            .iter()
            .all(|event| (event.label.device, &event.label.replicas) == (Some(Device::OfPlane(0)), &Replicas::Unknown))
    );
    let found = events.iter().map(|event| {
        (event.label.name.as_str(), event.label.kind.clone(), (event.label.instance.clone(), event.number))
    });
    let instance = (Instance::Hlo { module: "jit_step".to_owned(), op: "all-reduce-start.1".to_owned() }, 42 << 20);
    let loose = (Instance::Order { group: None, signature: "ncclDevKernel_AllReduce_Sum_f32_RING_LL".to_owned() }, 0);
    let expected = [
        ("all-reduce-start.1", CollectiveKind::AllToAll, instance.clone()),
        ("all-reduce-start.1", CollectiveKind::AllToAll, instance),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", CollectiveKind::AllToAll, loose),
    ];
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn a_rank_is_read_from_its_marker() {
    for (name, expected) in [
        ("probe_sync.rank#3/8", Some((3, 8))),
        ("probe_sync.rank#8/8", None),
        ("probe_sync.rank#3", None),
        ("probe_sync.rank#x/8", None),
        ("a probe_sync.rank#3/8", None),
    ] {
        let files = Files::new();
        let line = Message::default().number(1, 1).message(4, event(1, 0, 10));
        let plane = Message::default().text(2, "/host:CPU").message(3, line).entry(4, 1, name);
        let path = files.put("a.xplane.pb", &space(&[plane]));
        let identity = read_facts(&path, &FactOptions::default()).expect("facts").identity;
        assert_eq!((identity.rank.zip(identity.world_size), identity.marked_rank), (expected, expected), "{name}");
    }
}

#[test]
fn marks_are_stamps_of_events_on_host_planes() {
    let plane = |name: &str, number: u64| {
        let line =
            Message::default().number(3, 1_000).message(4, event(1, 2_000_500, 10)).message(4, event(2, 9_000_000, 5));
        let mark = format!("probe_sync.mark#00000000000000ff.{number}");
        Message::default().text(2, name).message(3, line).entry(4, 1, &mark).entry(4, 2, "work")
    };
    let files = Files::new();
    // The second derives its annotations from the host's.
    let path = files.put("a.xplane.pb", &space(&[plane("/host:CPU", 7), plane("/device:GPU:0", 8)]));
    let facts = read_facts(&path, &FactOptions::default()).expect("facts");
    let marks = facts.marks.iter().map(|mark| (mark.token.0, mark.number, mark.tracer_ps - START_PS, mark.unit_ps));
    assert_eq!(marks.collect::<Vec<_>>(), [(255, 7, 3_000_500, 1_000)]);
    assert_eq!((facts.events, facts.pairs, facts.notes), (4, vec![], vec![]));
    assert_eq!(facts.span, Some((START_PS + 3_000_500, START_PS + 10_000_005)));
}

/// Planes with the same events, in lines of `per_line` each: ordinary ones, a marker with a time
/// that its stat states, a mark, kernels of both sorts, an aggregated event, and a name that is not
/// known.
fn planes_of_lines(events: i64, per_line: i64) -> Vec<Message> {
    let text = |stat: i64, reference: i64| Message::default().number(1, stat).number(7, reference);
    let stats = [
        Message::default().number(1, 9).number(4, START_NS + 5),
        text(1, 10),
        text(2, 11),
        Message::default().number(1, 8).text(5, &"x".repeat(150)),
    ];
    let of = |index: i64| {
        let bare = |name: i64| event(name, 1_000 * index, 900 + index % 7);
        match index {
            _ if index % 1000 == 3 => bare(1).message(4, stats[0].clone()),
            _ if index % 1000 == 5 => bare(2),
            _ if index % 100 == 7 => bare(4).message(4, stats[1].clone()).message(4, stats[2].clone()),
            _ if index % 10 == 1 => bare(5).message(4, stats[2].clone()).message(4, stats[3].clone()),
            _ if index % 500 == 8 => Message::default().number(1, 3).number(5, 12),
            _ if index % 50 == 9 => bare(77),
            _ => bare(3),
        }
    };
    let plane = |name: &str, from: i64| {
        let mut plane = Message::default().text(2, name);
        for begin in (from..from + events).step_by(per_line as usize) {
            let line = Message::default().number(3, 2_000);
            let until = (begin + per_line).min(from + events);
            plane = plane.message(3, (begin..until).fold(line, |line, index| line.message(4, of(index))));
        }
        plane
            .entry(4, 1, "probe_sync.clock")
            .entry(4, 2, "probe_sync.mark#00000000000000ff.4")
            .entry(4, 3, "work")
            .entry(4, 4, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
            .entry(4, 5, "all-reduce.1")
            .entry(5, 1, "hlo_op")
            .entry(5, 2, "hlo_module")
            .entry(5, 9, "system_ns")
            .entry(5, 10, "all-reduce-start.1")
            .entry(5, 11, "jit_step")
    };
    vec![plane("/host:CPU", 0), plane("/device:GPU:0", 5)]
}

#[test]
fn a_long_line_read_by_several_threads_says_what_short_ones_say() {
    let (long, short) = (planes_of_lines(60_000, 60_000), planes_of_lines(60_000, 100));
    let facts = |planes: &[Message]| {
        let facts = facts_of(&Files::new().keep("in", &space(planes)));
        let collectives = facts.collectives.events();
        let found = (facts.events, facts.span, facts.pairs, facts.marks, facts.notes);
        (found, collectives)
    };
    let (long, short) = (facts(&long), facts(&short));
    let counted = (short.0.2.len(), short.0.3.len(), short.1.len());
    assert!(counted.0 >= 120 && counted.1 == 60 && counted.2 >= 600, "{counted:?}");
    assert!(long == short, "{:?} and {:?}", long.0.1, short.0.1);
}

#[test]
fn a_fault_in_a_long_line_is_told_with_its_place_and_the_first_of_two() {
    let check = |bad: &[(usize, Message)], problem: &str| {
        let mut line = Message::default().number(3, 2_000);
        let mut places = Vec::new();
        for index in 0..200_000 {
            if let Some((_, wrong)) = bad.iter().find(|(at, _)| *at == index) {
                places.push(line.0.len());
                line = line.message(4, wrong.clone());
            }
            line = line.message(4, event(3, 1_000 * index as i64, 900));
        }
        let plane = Message::default().text(2, "/host:CPU").message(3, line.clone()).entry(4, 1, "probe_sync.clock");
        let bytes = space(&[plane]);
        let line_at = bytes.windows(32).position(|bytes| bytes == &line.0[..32]).expect("the line");
        let files = Files::new();
        let error = read_facts(&files.put("a.xplane.pb", &bytes), &FactOptions::default()).expect_err("a fault");
        let Error::Malformed { offset, problem: told, .. } = &error else { panic!("{error}") };
        // The tag of an event's message is one byte, its length another; the fault is at the
        // message's begin or in it.
        let place = (line_at + places[0] + 2) as u64;
        assert!((place..place + 20).contains(offset) && told.contains(problem), "{error}, wanted {place}");
    };
    let mistyped = || Message::default().text(2, "x");
    let bad_stat = || event(1, 5, 5).text(4, "\u{3}\u{3}");
    check(&[(150_000, mistyped())], "wrong type");
    check(&[(150_000, bad_stat()), (150_001, mistyped())], "wire type 3");
    check(&[(100, mistyped()), (150_000, bad_stat())], "wrong type");
}
