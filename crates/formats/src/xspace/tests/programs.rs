//! Replica groups, from the program in the file to the verdict.

use probe_sync_alignment::{Calibrated, ClockSource, Outcome, Request, calibrate, check};

use super::*;

/// A mesh of 2 × 2: one device per process, numbered in steps of 2048.
const DEVICES: [i64; 4] = [0, 2048, 4096, 6144];

/// The first run's number, which processes share.
const RUN: i64 = 953_279_600;

pub(super) fn packed(numbers: &[i64]) -> Message {
    let mut bytes = Vec::new();
    numbers.iter().for_each(|&number| crate::protobuf::put_varint(&mut bytes, number as u64));
    let mut message = Message::default();
    put_bytes(&mut message.0, 1, &bytes);
    message
}

/// The plane of a program whose `psum.7` runs in these groups of
/// `replica · partitions + partition`, where they are stated.
fn program_plane(device_list: Option<Message>) -> Message {
    program_on(&DEVICES, device_list)
}

/// The same, of a program that runs on these devices; none: it does not say.
fn program_on(devices: &[i64], device_list: Option<Message>) -> Message {
    program_called("jit_f", devices, device_list)
}

pub(super) fn program_called(name: &str, devices: &[i64], device_list: Option<Message>) -> Message {
    let mut psum = Message::default().text(1, "psum.7").text(2, "all-reduce").number(26, 1).number(71, 1);
    if let Some(list) = device_list {
        psum = psum.message(87, list);
    }
    let constant = Message::default().text(1, "constant.1").text(2, "constant").raw(&[0x22, 3, 1, 2, 3]);
    let computation = Message::default().text(1, "main").message(2, constant).message(2, psum);
    let count = Message::default().number(1, 1).number(2, devices.len() as i64);
    let assignment = devices.iter().fold(count, |assignment, device| assignment.message(3, packed(&[*device])));
    let mut module = Message::default().text(1, name).message(3, computation).number(5, 9);
    if !devices.is_empty() {
        module = module.message(15, assignment);
    }
    let stat = Message::default().number(1, 4).message(6, Message::default().message(1, module));
    let metadata = Message::default().number(1, 1).text(2, &format!("{name}(9)")).message(5, stat);
    let entry = Message::default().number(1, 1).message(2, metadata);
    Message::default().text(2, "/host:metadata").message(4, entry).entry(5, 4, "Hlo Proto")
}

fn rows() -> Message {
    Message::default().message(1, packed(&[0, 1])).message(1, packed(&[2, 3]))
}

/// `count` sums of a device, the first at `begins_ns`, each 50 µs long and a millisecond after the
/// one before.
fn threads(device: i64, begins_ns: i64, count: i64) -> Message {
    sums_on("/host:CPU", device, begins_ns, count)
}

fn sums_on(plane: &str, device: i64, begins_ns: i64, count: i64) -> Message {
    let number = |stat: i64, value: i64| Message::default().number(1, stat).number(4, value);
    let reference = |stat: i64, name: i64| Message::default().number(1, stat).number(7, name);
    let sums = (0..count).fold(Message::default().number(3, begins_ns), |line, k| {
        let sum = event(1, k * 1_000_000_000, 50_000_000)
            .message(4, reference(1, 10))
            .message(4, reference(2, 11))
            .message(4, number(3, RUN + k))
            .message(4, number(4, 9))
            .message(4, number(5, device));
        line.message(4, sum)
    });
    Message::default()
        .text(2, plane)
        .message(3, sums)
        .entry(4, 1, "psum.7")
        .entry(5, 1, "hlo_op")
        .entry(5, 2, "hlo_module")
        .entry(5, 3, "run_id")
        .entry(5, 4, "program_id")
        .entry(5, 5, "device_ordinal")
        .entry(5, 10, "psum.7")
        .entry(5, 11, "jit_f")
}

/// Four processes on one perfect clock; the second row begins 200 µs after the first.
fn mesh(
    files: &Files,
    program: Option<&Message>,
    clocks: ClockSource,
) -> Result<Calibrated, Box<dyn std::error::Error>> {
    meshes(files, [program, program], clocks)
}

/// The same with a program for the first two and another for the last two.
fn meshes(
    files: &Files,
    programs: [Option<&Message>; 2],
    clocks: ClockSource,
) -> Result<Calibrated, Box<dyn std::error::Error>> {
    let trace = |(node, device): (usize, &i64)| {
        let plane = threads(*device, if node < 2 { 0 } else { 200_000 }, 10);
        let planes: Vec<Message> = programs[node / 2].cloned().into_iter().chain([plane]).collect();
        files.put(&format!("node{node}.xplane.pb"), &space(&planes))
    };
    let traces = DEVICES.iter().enumerate().map(trace).collect();
    Ok(calibrate(&Request { traces, nodes: vec![0, 1, 2, 3], clocks, ..Request::default() })?)
}

#[test]
fn xla_sub_mesh_collectives_are_not_accused() {
    let iota = Message::default().number(1, 2).number(2, 2).number(3, 4);
    for groups in [rows(), Message::default().message(2, iota)] {
        let files = Files::new();
        let calibrated = mesh(&files, Some(&program_plane(Some(groups))), ClockSource::Nothing).expect("facts");
        let verdict = check(&calibrated);
        assert_eq!((verdict.result.edges, verdict.result.broken), (40, 0), "{}", verdict.text());
        assert_eq!((verdict.result.instances, verdict.outcome()), (20, Outcome::Holds));
    }
    // Over the columns, or all together, every sum of the first row would end before the second
    // began.
    let columns = Message::default().message(1, packed(&[0, 2])).message(1, packed(&[1, 3]));
    for groups in [Some(columns), None] {
        let files = Files::new();
        let calibrated = mesh(&files, Some(&program_plane(groups)), ClockSource::Nothing).expect("facts");
        let verdict = check(&calibrated);
        assert_eq!((verdict.result.edges, verdict.result.broken), (40, 20), "{}", verdict.text());
    }
}

#[test]
fn without_the_program_nothing_is_judged_and_no_bound_is_called_certain() {
    let files = Files::new();
    let odd = program_plane(Some(Message::default().number(9, 1)));
    for program in [None, Some(&odd)] {
        let calibrated = mesh(&files, program, ClockSource::Nothing).expect("facts");
        let verdict = check(&calibrated);
        assert_eq!((verdict.result.edges, verdict.result.ambiguous_instances), (0, 10), "{}", verdict.text());
        assert_eq!(verdict.outcome(), Outcome::Nothing);
        assert!(verdict.text().contains("lacks its program"), "{}", verdict.text());
        let refused = mesh(&files, program, ClockSource::Collectives).expect_err("no bounds").to_string();
        assert!(refused.contains("offsets from collectives"), "{refused}");
    }
}

#[test]
fn one_program_on_two_disjoint_meshes_is_not_accused() {
    // Both meshes run jit_f on two devices of their own, with equal labels and equal runs.
    let pair = || Some(Message::default().message(1, packed(&[0, 1])));
    let files = Files::new();
    let programs = [program_on(&DEVICES[..2], pair()), program_on(&DEVICES[2..], pair())];
    let calibrated = meshes(&files, [Some(&programs[0]), Some(&programs[1])], ClockSource::Nothing).expect("facts");
    let verdict = check(&calibrated);
    assert_eq!((verdict.result.edges, verdict.result.broken), (40, 0), "{}", verdict.text());
    assert_eq!((verdict.result.instances, verdict.outcome()), (20, Outcome::Holds));
    // Their programs do not say on which devices they run: nothing is judged.
    let silent = program_on(&[], pair());
    let calibrated = mesh(&files, Some(&silent), ClockSource::Nothing).expect("facts");
    let verdict = check(&calibrated);
    assert_eq!((verdict.result.edges, verdict.result.ambiguous_instances), (0, 10), "{}", verdict.text());
    assert_eq!(verdict.outcome(), Outcome::Nothing);
    let refused = mesh(&files, Some(&silent), ClockSource::Collectives).expect_err("no bounds").to_string();
    assert!(refused.contains("offsets from collectives"), "{refused}");
    // Four processes that know nothing of each other: each calls its only device 0.
    let alone = program_on(&[0], Some(Message::default().message(1, packed(&[0]))));
    let verdict_of = mesh(&files, Some(&alone), ClockSource::Nothing).expect("facts");
    let verdict = check(&verdict_of);
    assert_eq!((verdict.result.edges, verdict.outcome()), (0, Outcome::Nothing), "{}", verdict.text());
    assert!(verdict.text().contains("it appears on more devices than its program has"), "{}", verdict.text());
}

#[test]
fn planes_on_raw_clocks_without_pairs_are_not_judged() {
    // Seconds since the start of two machines: nothing ties them to one clock, so nothing holds, is
    // broken or explained.
    let files = Files::new();
    let program = program_on(&DEVICES[..2], Some(Message::default().message(1, packed(&[0, 1]))));
    let trace = |node: usize| {
        let begins_ns = [6_686_000_000_000, 90_000_000_000_000][node];
        let plane = sums_on("/device:GPU:0", DEVICES[node], begins_ns, 10);
        files.put(&format!("node{node}.xplane.pb"), &space(&[program.clone(), plane]))
    };
    let request = Request { traces: vec![trace(0), trace(1)], nodes: vec![0, 1], ..Request::default() };
    let calibrated = calibrate(&request).expect("facts");
    assert!(calibrated.traces.iter().all(|trace| trace.trace.facts.since_boot.len() == 1));
    let verdict = check(&calibrated);
    let found = (verdict.result.edges, verdict.result.broken, verdict.result.unjudged_edges);
    assert_eq!((found, verdict.outcome()), ((0, 0, 20), Outcome::Incomplete), "{}", verdict.text());
    let json = files.path("verdict.json");
    verdict.write(&json).expect("written");
    let text = std::fs::read_to_string(&json).expect("JSON");
    assert!(text.contains("\"unjudged_edges\": 20") || text.contains("\"unjudged_edges\":20"), "{text}");
}

#[test]
fn a_program_that_is_cut_short_is_refused_with_the_place() {
    let plane = program_plane(Some(rows()));
    let files = Files::new();
    let whole = space(&[plane]);
    // Every prefix either reads or says where it ends; none panics.
    for end in 1..whole.len() {
        let _ = read_facts(&files.put("in", &whole[..end]), &FactOptions::default());
    }
    for at in 0..whole.len() {
        for with in [0x00, 0x7f, 0xff] {
            let mut bent = whole.clone();
            bent[at] = with;
            let _ = read_facts(&files.put("in", &bent), &FactOptions::default());
        }
    }
}

#[test]
#[ignore = "long: judges 640 000 collectives"]
fn more_collectives_than_fit_into_memory_are_all_judged() {
    // Two ranks, 320 000 sums each; the last 100 of rank 1 come a second late.
    let files = Files::new();
    let (count, late) = (320_000, 100);
    let groups = Message::default().message(1, packed(&[0, 1, 2, 3]));
    let trace = |node: usize| {
        let mut plane = threads(DEVICES[node], 0, if node == 1 { count - late } else { count });
        if node == 1 {
            let moved = threads(DEVICES[1], 0, count);
            let line = children(&moved.0, 3)[0].to_vec();
            let events: Vec<Vec<u8>> = children(&line, 4).into_iter().map(<[u8]>::to_vec).collect();
            let mut second = Message::default().number(3, 1_000_000_000);
            for event in &events[(count - late) as usize..] {
                put_bytes(&mut second.0, 4, event);
            }
            plane = plane.message(3, second);
        }
        files.put(&format!("node{node}.xplane.pb"), &space(&[program_plane(Some(groups.clone())), plane]))
    };
    let request = Request { traces: vec![trace(0), trace(1)], nodes: vec![0, 1], ..Request::default() };
    let calibrated = calibrate(&request).expect("facts");
    let verdict = check(&calibrated);
    let found = (verdict.result.edges, verdict.result.violations(), verdict.result.unjudged_parts);
    assert_eq!(found, (2 * count as usize, late as usize, 0), "{}", verdict.text());
    assert_eq!(verdict.outcome(), Outcome::Violated);
}
