//! What files say of themselves: dialects, identities, collectives, markers.

use super::*;

/// The facts of all nodes of a set.
fn facts(folder: &Path) -> Vec<TraceFacts> {
    traces(folder).iter().map(|path| read_facts(path, &FactOptions::default()).unwrap()).collect()
}

#[test]
fn bases_and_identities_of_real_traces_are_told() {
    let Some(folder) = data() else { return };
    let base_of = |set: &str| base::find(&traces(&folder.join(set))[0]).unwrap();
    for (set, based, rank, world, host) in [
        ("x_real_2of128_abs_us", false, Some(0), Some(128), None),
        ("x_real_abs_ns", false, Some(0), None, None),
        ("x_real_mi300_8gpu_rank0", true, Some(0), Some(8), None),
        ("x_real_gloo_300ranks", true, Some(34), Some(300), None),
        ("x_real_mtia", true, None, None, Some("twshared38393.01.cco6.facebook.com")),
        ("b_4node_offset_drift", true, Some(0), Some(4), Some("node0")),
    ] {
        let found = &facts(&folder.join(set))[0];
        let identity = &found.identity;
        assert_eq!((base_of(set).is_some(), identity.rank), (based, rank), "{set}");
        assert!(world.is_none_or(|world| identity.world_size == Some(world)), "{set}: {identity:?}");
        assert!(host.is_none_or(|host| identity.hostname.as_deref() == Some(host)), "{set}: {identity:?}");
    }
    assert_eq!(base_of("x_real_mi250"), Some(1_735_632_360_000_000_000));
    assert_eq!(base_of("x_real_2of128_abs_us"), None);
}

#[test]
fn collectives_are_taken_from_one_level() {
    let Some(folder) = data() else { return };
    let counts = |facts: &TraceFacts| {
        let mut counts = BTreeMap::new();
        for (_, label, count) in facts.collectives.labels() {
            *counts.entry(label.name.clone()).or_insert(0) += count;
        }
        counts
    };
    let gloo = facts(&folder.join("b_4node_offset_drift"));
    for (rank, found) in gloo.iter().enumerate() {
        let found = counts(found);
        // Ranks 0 and 2 have a group of their own beside the world's.
        let all_reduce = if rank % 2 == 0 { 20 } else { 10 };
        let all: Vec<_> = found.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        let rest = [("barrier", 3), ("broadcast", 10), ("recv", 10), ("reduce", 10), ("send", 10)];
        assert_eq!(all, [&[("all_gather", 10), ("all_reduce", all_reduce), ("all_to_all", 10)][..], &rest].concat());
    }
    let nccl = &facts(&folder.join("x_real_nccl_2gpu_rank0"))[0];
    assert_eq!(nccl.collectives.len(), 21, "one per kernel");
    let named = nccl.collectives.labels();
    let named = named.filter(|(_, label, _)| label.name == "allreduce" && label.kind == CollectiveKind::AllToAll);
    assert_eq!(named.map(|(_, _, count)| count).sum::<u64>(), 15);
    let enqueued = &facts(&folder.join("x_real_abs_ns"))[0];
    assert!(
        enqueued.collectives.is_empty() && enqueued.notes.iter().any(|note| note.contains("only enqueue")),
        "{:?}",
        enqueued.notes
    );
}

#[test]
fn gloo_peers_are_told_where_the_groups_agree() {
    let Some(folder) = data() else { return };
    let all = facts(&folder.join("b_4node_offset_drift"));
    let ends = |rank: usize, name: &str| {
        let labels = all[rank].collectives.events().into_iter().map(|event| event.label);
        labels.filter(|label| label.name == name).map(|label| (label.kind, label.instance)).collect::<Vec<_>>()
    };
    let edge = |source, destination| CollectiveKind::PointToPoint { source, destination };
    for (index, ((kind, sent), (_, received))) in ends(3, "send").into_iter().zip(ends(0, "recv")).enumerate() {
        assert_eq!(kind, edge(Some(3), Some(0)));
        assert_eq!(sent, received, "a send and its receive recognise each other");
        let Instance::Order { signature, .. } = sent else { panic!("{sent:?}") };
        assert!(signature.ends_with(&format!(" tag {index}")), "{signature}");
    }
    assert!(
        ends(0, "send").iter().all(|(kind, _)| *kind == edge(Some(0), None)),
        "1 is rank 1 of one group and rank 2 of the other"
    );
}

#[test]
fn kernels_tell_group_and_sequence() {
    let kernel = |seq: &str, ranks: &str| {
        format!(
            "{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"ncclDevKernel_AllReduce(x)\",\"pid\":0,\"tid\":7,\"ts\":1,\"dur\":2,\"args\":{{\"Collective name\":\"allreduce\",\"dtype\":\"Float\",\"In msg nelems\":8,\"Out msg nelems\":8,\"Group size\":2,\"Process Group Name\":\"5\",\"Process Group Ranks\":\"{ranks}\"{seq}}}}}"
        )
    };
    let text = format!(
        "{{\"traceEvents\":[{},{},{}],\"baseTimeNanoseconds\":5000}}",
        kernel(",\"Seq\":9", "[0, 1]"),
        kernel("", "[0, 1]"),
        "{\"ph\":\"X\",\"cat\":\"gpu_user_annotation\",\"name\":\"nccl:all_reduce\",\"ts\":1,\"dur\":2}"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    std::fs::write(&path, text).unwrap();
    let found = read_facts(&path, &FactOptions::default()).unwrap();
    let group =
        crate::model::GroupKey { name: "5".into(), ranks: Some(vec![0, 1]), size: Some(2), is_from_making: false };
    let events = found.collectives.events();
    let instances: Vec<_> = events.iter().map(|event| (event.label.instance.clone(), event.number)).collect();
    let ordered = Instance::Order { group: Some(group.clone()), signature: "allreduce Float 8".into() };
    assert_eq!(instances, [(Instance::Sequence { group: group.clone() }, 9), (ordered, 0)]);
    assert_eq!((events[0].start_ps, events[0].end_ps), (6_000_000, 8_000_000));
    assert_eq!((found.groups, found.events), (vec![group], 3));
}

#[test]
fn markers_are_read_by_name_and_by_pattern() {
    let event = |category: &str, name: &str| {
        format!("{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":\"{name}\",\"ts\":1,\"dur\":2}}")
    };
    let names = ["probe_sync.clock#41", "clkmark#7#42", "tick at 43 ns", "probe_sync.clock#x", "other"];
    let mut events: Vec<_> = names.iter().map(|name| event("user_annotation", name)).collect();
    events.push(event("gpu_user_annotation", "probe_sync.clock#44"));
    // A span in two events states its time once.
    let half = |phase: &str| event("user_annotation", "probe_sync.clock#45").replace("\"X\"", &format!("\"{phase}\""));
    events.extend([half("B"), half("E")]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    std::fs::write(&path, format!("{{\"traceEvents\":[{}]}}", events.join(","))).unwrap();
    let found = |pattern: Option<&str>| {
        let markers = pattern.map(|pattern| regex::Regex::new(pattern).unwrap());
        let options = FactOptions { markers, ..FactOptions::default() };
        let facts = read_facts(&path, &options).unwrap();
        assert!(
            facts.notes.iter().any(|note| note.contains("1 clock markers have no readable time")),
            "{:?}",
            facts.notes
        );
        facts.pairs.iter().map(|pair| pair.system_ns).collect::<Vec<_>>()
    };
    assert_eq!(found(None), [41, 42, 45]);
    assert_eq!(found(Some(r"tick at (?<system_ns>\d+) ns")), [41, 42, 43, 45]);
}

#[test]
fn a_rank_is_what_the_profiler_says_else_what_a_marker_says() {
    let check = |head: &str, names: &[&str], expected: Option<(u32, u32)>| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.json");
        let event = |name: &&str| format!("{{\"ph\":\"i\",\"ts\":7,\"name\":\"{name}\"}}");
        let events: Vec<String> = names.iter().map(event).collect();
        std::fs::write(&path, format!("{{{head}\"traceEvents\":[{}]}}", events.join(","))).unwrap();
        let found = read_facts(&path, &FactOptions::default()).unwrap();
        assert_eq!(found.identity.rank.zip(found.identity.world_size), expected, "{head} {names:?}");
        let marked = names.iter().find_map(|name| crate::rank_marker(name.as_bytes()));
        assert_eq!(found.identity.marked_rank, marked, "beside what the profiler says: {head} {names:?}");
        assert_eq!(found.span, names.contains(&"work").then_some((7_000_000, 7_000_000)), "a marker is no event");
    };
    let profiler = "\"distributedInfo\":{\"rank\":1,\"world_size\":2},";
    check("", &["work", "probe_sync.rank#3/8", "probe_sync.rank#4/8"], Some((3, 8)));
    check("", &["probe_sync.rank#0/1"], Some((0, 1)));
    check(profiler, &["probe_sync.rank#3/8"], Some((1, 2)));
    check(profiler, &["work"], Some((1, 2)));
    check("", &["work"], None);
}

#[test]
fn marks_are_stamps_of_events_that_begin_on_the_host() {
    let event = |ph: &str, category: &str, number: u32, ts: &str| {
        format!(
            "{{\"ph\":\"{ph}\",\"cat\":\"{category}\",\"name\":\"probe_sync.mark#00000000000000ff.{number}\",\"ts\":{ts},\"dur\":2}}"
        )
    };
    let events = [
        event("X", "cpu_op", 1, "7.125"),
        event("X", "user_annotation", 2, "8"),
        event("X", "cpu_op", 3, "9.1234567"),
        // The same annotation on the GPU's timeline, and the end of one.
        event("X", "gpu_user_annotation", 2, "90"),
        event("E", "cpu_op", 4, "91"),
        "{\"ph\":\"X\",\"name\":\"probe_sync.mark#00ff.1\",\"ts\":95,\"dur\":1}".to_owned(),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let text = format!("{{\"traceEvents\":[{}],\"baseTimeNanoseconds\":5000}}", events.join(","));
    std::fs::write(&path, text).unwrap();
    let found = read_facts(&path, &FactOptions::default()).unwrap();
    let marks = found.marks.iter().map(|mark| (mark.token.0, mark.number, mark.tracer_ps, mark.unit_ps));
    let expected = [(255, 1, 12_125_000, 1_000), (255, 2, 13_000_000, 1_000_000), (255, 3, 14_123_456, 1)];
    assert_eq!(marks.collect::<Vec<_>>(), expected);
    assert_eq!((found.events, found.pairs.len(), found.notes), (6, 0, vec![]));
    // What is no mark is an ordinary event.
    assert_eq!(found.span, Some((95_000_000, 101_000_000)));
}
