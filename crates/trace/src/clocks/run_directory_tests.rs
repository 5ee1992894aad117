//! A run's directory: hosts, steps that the run saw, snapshot files.

use super::*;

#[test]
fn a_run_gives_hosts_offsets_steps_and_pairs() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path();
    let write = |name: &str, content: &str| std::fs::write(path.join(name), content).expect("writable");
    assert!(matches!(RunDirectory::open(path), Err(Error::Io { .. })));
    write(
        "offsets.jsonl",
        "{\"meta\":true,\"nodes\":[{\"node_id\":0,\"hostname\":\"a\"},{\"node_id\":1,\"hostname\":\"b\"},\
         {\"node_id\":2,\"hostname\":\"b\"}]}\n\
         {\"node_id\":1,\"window_start_ns\":0,\"window_end_ns\":8,\"offset_ns\":5,\"reachable\":true}\n",
    );
    let bare = RunDirectory::open(path).expect("offsets are enough");
    assert_eq!((bare.hostname(1), bare.hostname(7)), (Some("b"), None));
    assert_eq!((bare.node_of("a"), bare.node_of("b"), bare.node_of("c")), (Some(0), None, None));
    assert_eq!(bare.snapshots(1).expect("no file is no error"), None);

    write(
        "global_windows.jsonl",
        "{\"round_id\":3,\"clock_events\":[[1,{\"step_ns\":-900,\"slew_ppm\":0.0,\"at_ns\":77}],\
         [2,{\"step_ns\":0,\"slew_ppm\":30.0,\"at_ns\":78}]],\"decision\":{}}\n{\"round_id\":4}\n{\"clock_ev",
    );
    std::fs::create_dir(path.join("snapshots")).expect("writable");
    write("snapshots/node1.snapshot_pairs.jsonl", "{\"sys_clock_ns\":2,\"tracer_clock_ns\":1}\n");
    let run = RunDirectory::open(path).expect("a run");
    assert_eq!(run.offsets.steps_ns.get(&1), Some(&vec![77]));
    assert_eq!(run.offsets.steps_ns.get(&2), None, "a change of rate is no step");
    assert_eq!(run.snapshots(1).expect("a file").expect("pairs").len(), 1);
    write("snapshots/node1.snapshot_pairs.pb", "");
    assert!(run.snapshots(1).is_err(), "the document counts, and says nothing");

    write("global_windows.jsonl", "{\"clock_events\":7}\n");
    assert!(RunDirectory::open(path).expect_err("not a list").to_string().contains("line 1"));
}
