//! Every spelling of offsets that is read, and bad lines named by file and line.

use super::*;

fn read(content: &[u8]) -> Result<Offsets, String> {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("offsets");
    std::fs::write(&path, content).expect("writable");
    Offsets::read(&path, None).map_err(|error| error.to_string())
}

const META: &str =
    r#"{"meta":true,"nodes":[{"node_id":0,"hostname":"a","start_walltime_ns":1},{"node_id":1,"hostname":"b"}]}"#;
const ROUND: &str = r#"{"round_id":0,"window_id":0,"window_start_ns":1000,"window_end_ns":3000,"node_id":1,"offset_ns":500.5,"drift_ppm":2.5,"residual":1,"reachable":true,"converged":true,"sigma_ns":7,"bound_lo_ns":null,"extra":[{}]}"#;

#[test]
fn own_lines_older_keys_and_tables() {
    let found = read(format!("{META}\n{ROUND}\n").as_bytes()).expect("offsets");
    assert_eq!(found.hostnames[&1], "b");
    let sample = OffsetSample {
        at_ns: 2000,
        offset_ns: 500.5,
        drift_ppm: Some(2.5),
        sigma_ns: Some(7.0),
        drift_sigma_ppm: None,
    };
    assert_eq!((found.axis, &found.nodes[&1]), (Axis::Reference, &vec![sample]));

    let older = br#"{"node_id":1,"midpoint_sys_ns":2000,"offset_ns":500.5,"slope_ppm":2.5}"#;
    let found = read(older).expect("offsets");
    assert_eq!(found.nodes[&1], [OffsetSample { sigma_ns: None, ..sample }]);

    let table = b"offset_vs_node0_ns,node,node_realtime_ns\r\n-3,2,77\r\n";
    let found = read(table).expect("offsets");
    assert_eq!((found.axis, found.nodes[&2][0].at_ns, found.nodes[&2][0].offset_ns), (Axis::Own, 77, -3.0));
}

#[test]
fn unreachable_rounds_are_left_out_and_counted() {
    let unreachable = ROUND.replace("\"reachable\":true", "\"reachable\":false").replace("500.5", "0");
    let found = read(format!("{ROUND}\n{unreachable}\n").as_bytes()).expect("offsets");
    assert_eq!(found.nodes[&1].len(), 1);
    assert!(found.notes[0].contains("1 rounds left out"), "{:?}", found.notes);
}

#[test]
fn a_last_line_cut_short_is_left_out_and_noted() {
    for end in [20, ROUND.len() - 1] {
        let found = read(format!("{ROUND}\n{}", &ROUND[..end]).as_bytes()).expect("offsets");
        assert_eq!((found.nodes[&1].len(), found.notes.len()), (1, 1));
    }
    // In a table a number cut short would look whole.
    let found = read(b"node,node_realtime_ns,offset_vs_node0_ns\n1,1000,5\n1,2000,50").expect("offsets");
    assert_eq!((found.nodes[&1].len(), found.notes.len()), (1, 1));
}

#[test]
fn errors_name_the_line() {
    let spaces = vec![b' '; super::super::lines::LONGEST_LINE + 10];
    let cases: [(&[u8], &str); 8] = [
        (b"{\"node_id\":1}\n{}\n", "line 1: no window_start_ns"),
        (b"{\"meta\":true}\n{\"node_id\":1,\n", "line 2: "),
        (b"{\"node_id\":1,\"midpoint_sys_ns\":5,\"offset_ns\":null}\n", "no offset_ns"),
        (b"{\"node_id\":-1,\"midpoint_sys_ns\":5,\"offset_ns\":1}\n", "line 1"),
        (b"time,offset\n1,2\n", "line 1: neither JSON lines nor a table"),
        (b"node,node_realtime_ns,offset_vs_node0_ns\n1,1000\n", "line 2: not a node"),
        (b"node,node_realtime_ns,offset_vs_node0_ns\n1,1000,inf\n", "line 2: not a node"),
        (&spaces, "line 1: longer than"),
    ];
    for (content, expected) in cases {
        let error = read(content).expect_err(expected);
        assert!(error.contains(expected), "{error}");
    }
    let missing = Offsets::read(Path::new("/nonexistent/offsets.jsonl"), None).expect_err("no file");
    assert!(missing.to_string().contains("/nonexistent/offsets.jsonl"), "{missing}");
}

#[test]
fn only_wanted_nodes_and_known_ones_have_maps() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("offsets.jsonl");
    std::fs::write(&path, format!("{ROUND}\n{}\n", ROUND.replace("\"node_id\":1", "\"node_id\":2"))).expect("writable");
    let found = Offsets::read(&path, Some(&[2])).expect("offsets");
    assert_eq!(found.nodes.keys().collect::<Vec<_>>(), [&2]);
    assert!(found.map(0).expect("the reference needs none").is_none());
    assert!(matches!(found.map(1), Err(Error::NoOffsets { node: 1, .. })));
    // Node 2 reads M + offset = 2500.5; half a nanosecond is kept.
    let map = found.map(2).expect("offsets").expect("not the reference").map;
    assert_eq!(map.map(2_500_500).time_ps, 2_000_000);
}
