//! The logs in `made`, which `make.py` writes, and lines that are made of them here.

use std::path::PathBuf;

use probe_sync_alignment::{
    AlignSettings, Calibrated, ClockSource, MergeSettings, Outcome, Request, align, calibrate, check, merge,
};

use super::*;
use crate::chunk::Chunk;
use crate::model::{CollectiveKind, Instance, Picoseconds};
use crate::{Perfetto, WantedArgs, detect};

/// The logs of ranks 0 to 3.
const LOGS: [&str; 4] = [
    include_str!("made/gpu-00-pid1000.log"),
    include_str!("made/gpu-01-pid1001.log"),
    include_str!("made/gpu-02-pid1002.log"),
    include_str!("made/gpu-03-pid1003.log"),
];
/// Time of the reference clock in `make.py`, µs, and what the hosts' clocks show more than it.
const NOW: i64 = 1_767_225_600_000_000;
const OFFSETS_US: [i64; 4] = [0, 5_000, -2_000, 700];

/// Files of a test.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("writable");
        path
    }

    fn logs(&self) -> Vec<PathBuf> {
        (0..).zip(LOGS).map(|(rank, log): (u32, _)| self.write(&format!("gpu-0{rank}-pid100{rank}.log"), log)).collect()
    }

    /// Known clocks of four nodes, each with a constant offset, µs.
    fn calibrated(&self, traces: Vec<PathBuf>, offsets_us: [i64; 4]) -> Calibrated {
        let mut text = "node,node_realtime_ns,offset_vs_node0_ns\n".to_owned();
        for (node, offset) in offsets_us.iter().enumerate() {
            for at in [NOW - 60_000_000, NOW + 60_000_000] {
                text.push_str(&format!("{node},{},{}\n", at * 1000, offset * 1000));
            }
        }
        let clocks = ClockSource::Offsets(self.write("offsets.csv", text));
        let nodes = (0..traces.len() as u32).collect();
        calibrate(&Request { traces, clocks, nodes, ..Request::default() }).expect("known clocks")
    }
}

fn facts(path: &Path) -> TraceFacts {
    NcclInspector.read_facts(path, &FactOptions::default()).expect("a log")
}

fn us(time_ps: Picoseconds) -> i64 {
    (time_ps / 1_000_000) as i64 - NOW
}

/// Line `number` of a rank's log with texts replaced.
fn line(rank: usize, number: usize, replaced: &[(&str, &str)]) -> String {
    let line = LOGS[rank].lines().nth(number - 1).expect("a line").to_owned();
    replaced.iter().fold(line, |line, (old, new)| {
        assert!(line.contains(old), "{old}: {line}");
        line.replace(old, new)
    })
}

/// Reads all of a file's events.
fn chunk(path: &Path, map: &mut MapFunction<'_>) -> (Chunk, ChunkStats) {
    let mut read = None;
    let options = ChunkOptions { args: WantedArgs::All, ..ChunkOptions::default() };
    let stats = NcclInspector
        .read_chunks(path, &options, map, &mut |chunk| {
            chunk.check(0).expect("a sound chunk");
            assert!(read.replace(chunk.clone()).is_none(), "few operations are one chunk");
            Ok(())
        })
        .expect("readable");
    (read.expect("a chunk"), stats)
}

#[test]
fn facts_are_those_of_the_host_and_of_each_function() {
    let folder = Folder::new();
    for (rank, path) in folder.logs().into_iter().enumerate() {
        assert_eq!(detect(&path).map(TraceFormat::name).ok(), Some("nccl_inspector"));
        let facts = facts(&path);
        assert_eq!(facts.identity.hostname, Some(format!("gpu-0{rank}")));
        assert_eq!((facts.identity.rank, facts.is_read_from_clock), (Some(rank as u32), true));
        assert_eq!((facts.events, facts.warnings.len(), facts.notes.len()), (26, 0, 1), "{:?}", facts.notes);
        let parts = facts.collectives.events();
        let found: Vec<_> = parts.iter().map(|part| (part.label.name.as_str(), part.number)).collect();
        assert_eq!(found.len(), 8);
        for expected in [("AllReduce", 0), ("AllReduce", 1), ("AllReduce", 6), ("AllGather", 0)] {
            assert!(found.contains(&expected), "{found:?}");
        }
        let Instance::Sequence { group } = &parts[0].label.instance else { panic!("{:?}", parts[0]) };
        assert_eq!((group.ranks.as_ref(), group.size), (None, Some(4)));
        assert!(parts.iter().all(|part| part.label.kind == CollectiveKind::AllToAll));
        let first = parts.iter().map(|part| part.start_ps).min().expect("parts");
        assert_eq!(us(first), OFFSETS_US[rank] + 10 * rank as i64 + if rank == 2 { 3_000 } else { 0 });
    }
}

/// Rank 2 launches 3 ms late. By raw stamps rank 1, whose clock is ahead, would be last.
#[test]
fn the_late_rank_is_known_only_on_one_clock() {
    let folder = Folder::new();
    let parts: Vec<_> = folder.logs().iter().map(|path| facts(path).collectives.events()).collect();
    for operation in [("AllReduce", 0), ("AllReduce", 2), ("AllGather", 0)] {
        let of = |rank: usize| {
            let part = parts[rank].iter().find(|part| (part.label.name.as_str(), part.number) == operation);
            part.map(|part| (us(part.start_ps), us(part.end_ps))).expect("a part")
        };
        let last =
            |corrected: bool| (0..4).max_by_key(|rank| of(*rank).0 - if corrected { OFFSETS_US[*rank] } else { 0 });
        assert_eq!((last(false), last(true)), (Some(1), Some(2)), "{operation:?}");
        let arrival = |rank: usize| of(rank).0 - OFFSETS_US[rank];
        assert_eq!((arrival(2) - arrival(3), of(0).1 - arrival(2)), (2_990, 420));
    }
}

#[test]
fn offsets_are_subtracted_and_decide_the_verdict() {
    let folder = Folder::new();
    let raw = folder.calibrated(folder.logs(), [0; 4]);
    assert!(check(&raw).result.violations() > 0);
    let calibrated = folder.calibrated(folder.logs(), OFFSETS_US);
    let verdict = check(&calibrated);
    assert_eq!((verdict.outcome(), verdict.result.edges), (Outcome::Holds, 8 * 4), "{}", verdict.text());
    let reversed = folder.calibrated(folder.logs(), OFFSETS_US.map(|offset| -offset));
    assert!(check(&reversed).result.violations() > 0, "the sign counts");

    let output = folder.0.path().join("all.pftrace");
    merge(&calibrated, &output, MergeSettings::default()).expect("merged");
    let span = Perfetto.read_facts(&output, &FactOptions::default()).expect("a trace").span;
    assert_eq!(span.map(|(first, last)| (us(first), us(last))), Some((0, 400_099)));
    let refused = align(&calibrated, &folder.0.path().join("aligned"), AlignSettings::default())
        .and_then(|mut aligning| aligning.try_for_each(|aligned| aligned.map(drop)));
    let said = refused.expect_err("refused").to_string();
    assert!(said.contains("not rewritten; merge it into a .pftrace"), "{said}");
}

#[test]
fn operations_and_channels_have_tracks() {
    let folder = Folder::new();
    let path = folder.write("log", LOGS[1]);
    let (read, stats) = chunk(&path, &mut |time| time - 5_000_000_000);
    assert_eq!((stats.events, stats.untimed, stats.left_out), (26, 0, 0));
    let tracks: Vec<_> = read.tracks.iter().map(|track| (track.name.as_str(), track.parent.map(|of| of.0))).collect();
    let communicator = "0x7f8c496ae9f661, rank 1 of 4";
    let expected = [("NCCL Inspector", None), (communicator, Some(0)), ("channel 0", Some(1)), ("channel 1", Some(1))];
    assert_eq!(tracks, expected);
    let times: Vec<_> = read
        .slices
        .start_ns
        .iter()
        .zip(&read.slices.end_ns)
        .map(|(start, end)| (start - NOW * 1000, end - NOW * 1000))
        .collect();
    assert_eq!(times[..3], [(10_000, 3_441_000), (30_000, 3_441_000), (31_000, 3_439_000)]);
    let text = |at: usize| read.strings.text(read.args.key[at]).to_owned();
    let keys: Vec<String> = (0..8).map(text).collect();
    let expected = [
        "coll_sn",
        "coll_msg_size_bytes",
        "coll_exec_time_us",
        "coll_timing_source",
        "coll_algobw_gbs",
        "coll_busbw_gbs",
        "id",
        "queued_ns",
    ];
    assert_eq!(keys, expected);
    assert!((0..read.args.key.len()).any(|at| text(at) == "p2p_peer"));
}

/// Rank 0's first operation is launched at 0 µs, begins at 20 µs and ends at 3440 µs.
#[test]
fn lines_whose_stamps_contradict_each_other_are_left_out_with_their_number() {
    let folder = Folder::new();
    let good = line(0, 2, &[]);
    let check = |bad: &[u8], expected: &str| {
        let path = folder.write("log", [good.as_bytes(), b"\n", bad].concat());
        let facts = facts(&path);
        assert_eq!((facts.events, facts.collectives.len()), (3, 1), "{expected}");
        let said = facts.warnings.join("; ");
        assert!(said.contains("ignored 1 line ") && said.contains("line 2") && said.contains(expected), "{said}");
        let (_, stats) = chunk(&path, &mut |time| time);
        assert_eq!((stats.events, stats.untimed + stats.left_out), (3, 1), "{expected}");
    };
    let changed = |replaced: &[(&str, &str)]| format!("{}\n", line(0, 1, replaced)).into_bytes();
    let start = "1767225600000020";
    let end = "1767225600003440";
    check(
        &changed(&[("\"coll_start_ts\":1767225600000000", "\"coll_start_ts\":1767225600000021")]),
        "start after its stop",
    );
    check(&changed(&[(start, "1767225600003441")]), "start after its stop");
    check(&changed(&[(end, "1767225600000019")]), "start after its stop");
    check(&changed(&[("1767225600003940", "1767225600003439")]), "after the dump");
    check(&changed(&[(start, "0")]), "stamps of all channels");
    check(&changed(&[("\"coll_exec_time_us\":3420", "\"coll_exec_time_us\":3541")]), "contradicts the stamps");
    check(&changed(&[("\"coll_exec_time_us\":3420", "\"coll_exec_time_us\":3003420")]), "nccl#2369");
    check(&changed(&[("\"rank\":0", "\"rank\":4")]), "rank 4 of a communicator of 4");
    check(&changed(&[("\"coll_sn\":0", "\"coll_sn\":\"0\"")]), "not as the plugin writes them");
    check(&changed(&[("\"coll_sn\":0", "\"coll_sn\":-1")]), "not as the plugin writes them");
    check(&changed(&[("coll_perf", "proxy_perf")]), "neither coll_perf nor p2p_perf");
    check(&changed(&[("event_trace_ts", "trace")]), "NCCL_INSPECTOR_DUMP_VERBOSE=1");
    check(b"{\"header\": \"\xff\"}\n", "not as the plugin writes them");
    check(&[&[b'['; 500_000][..], b"\n"].concat(), "not as the plugin writes them");
    check(b"{}\n", "missing field");
    let name = format!("\"coll\":\"{}\"", "a".repeat(1000));
    check(&changed(&[("\"coll\":\"AllReduce\"", &name)]), "a text of more than 256 bytes");
    let whole = changed(&[]);
    check(&whole[..whole.len() / 2], "cut off");
    let long = [&b"{\"header\":\""[..], &vec![b'a'; 3 << 20], b"\"}\n"].concat();
    check(&long, "longer than 1 MiB");
}

#[test]
fn a_line_of_another_year_is_left_out() {
    let folder = Folder::new();
    let away = line(0, 1, &[("17672256", "17352256")]);
    let path = folder.write("log", [LOGS[0], &away, "\n"].concat());
    let facts = facts(&path);
    assert_eq!((facts.events, facts.collectives.len()), (26, 8));
    assert_eq!(facts.warnings, ["ignored 1 line (1 days or decades away from all others, line 10)"]);
    let options = ChunkOptions { reach: facts.reach, ..ChunkOptions::default() };
    let stats = NcclInspector.read_chunks(&path, &options, &mut |time| time, &mut |_| Ok(())).expect("readable");
    assert_eq!((stats.events, stats.left_out), (26, 1));
}

/// When the host noticed the start does not matter: it launched the operation at 0 µs.
#[test]
fn collectives_begin_at_the_launch() {
    let folder = Folder::new();
    let check = |replaced: &[(&str, &str)]| {
        let facts = facts(&folder.write("log", format!("{}\n", line(0, 1, replaced))));
        let part = facts.collectives.events().remove(0);
        assert_eq!((us(part.start_ps), us(part.end_ps)), (0, 3_440), "{replaced:?}");
    };
    check(&[]);
    check(&[("_start_ts\":1767225600000020", "_start_ts\":1767225600001020"), ("00021,", "01021,")]);
    check(&[("kernel_gpu", "kernel_cpu")]);
}

/// Members of a communicator are not listed, so that an operation seen on some of its ranks only
/// may be another one's.
#[test]
fn what_proves_nothing_is_not_compared() {
    let folder = Folder::new();
    let some = folder.calibrated(folder.logs()[..3].to_vec(), OFFSETS_US);
    assert_eq!(check(&some).result.edges, 0);
    // Two GPUs of one process.
    let two = format!("{}\n{}\n", line(0, 1, &[]), line(0, 2, &[("\"rank\":0", "\"rank\":1")]));
    let facts = facts(&folder.write("log", two));
    assert_eq!((facts.events, facts.collectives.len()), (6, 0));
    assert!(facts.notes[0].contains("1 communicator of several ranks of this process"), "{:?}", facts.notes);
    let other = line(0, 2, &[("7f8c", "8f8c")]);
    let two = self::facts(&folder.write("log", format!("{}\n{other}\n", line(0, 1, &[]))));
    assert_eq!((two.collectives.len(), two.identity.rank), (2, None));
    assert!(two.notes[0].contains("not in the job"), "{:?}", two.notes);
}

#[test]
fn files_without_usable_times_are_refused_with_their_name() {
    let folder = Folder::new();
    let check = |name: &str, content: &str, expected: &str| {
        let path = folder.write(name, content);
        let error = detect(&path).and_then(|format| format.read_facts(&path, &FactOptions::default()).map(drop));
        let said = error.expect_err("refused").to_string();
        assert!(said.contains(name) && said.contains(expected), "{said}");
        assert!(NcclInspector.read_chunks(&path, &ChunkOptions::default(), &mut |time| time, &mut |_| Ok(())).is_err());
    };
    let quiet = line(0, 1, &[("event_trace_ts", "trace")]);
    check("quiet.log", &format!("{quiet}\n"), "set NCCL_INSPECTOR_DUMP_VERBOSE=1");
    check("other.log", &line(0, 1, &[("v4.0", "v6.1")]), "line 1: format v6.1 of the NCCL Inspector is not supported");
    let hosts = format!("{}\n{}\n", line(0, 1, &[]), line(1, 1, &[]));
    check("both.log", &hosts, "process 1001 on gpu-01 in a log of process 1000 on gpu-00");
    // RCCL's ACCL profiler writes similar lines on no stated clock.
    let accl = r#"{"header": {"rank": 0, "n_ranks": 8}, "coll_perf": {"coll": "AllReduce"}}"#;
    check("accl.jsonl", accl, "no line of this log of the NCCL Inspector has usable times");
    check("empty.log", "", "nothing but white space");
}

#[test]
fn a_log_is_recognised_by_its_first_bytes() {
    let folder = Folder::new();
    let format = |name: &str, content: &[u8]| detect(&folder.write(name, content)).map(TraceFormat::name).ok();
    assert_eq!(format("a.json", LOGS[0].as_bytes()), Some("nccl_inspector"));
    assert_eq!(format("a", br#"{"header": {}, "traceEvents": []}"#), Some("chrome"));
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, LOGS[0].as_bytes()).expect("packed");
    let packed = packer.finish().expect("packed");
    assert_eq!(format("a.log.gz", &packed), Some("nccl_inspector"));
    assert_eq!(facts(&folder.write("a.log.gz", &packed)).events, 26);
}
