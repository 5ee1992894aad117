//! Traces cut at any byte: never a panic, no output, and a message that says which file and where.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use probe_sync_alignment::{AlignSettings, ClockSource, MergeSettings, Request, align, calibrate, check, merge};
use serde_json::Value;

fn examples(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/traces").join(of)
}

/// A real trace with its first 150 events, so that cuts are everywhere in it.
fn kineto(node: u32) -> Vec<u8> {
    let packed = std::fs::File::open(examples(&format!("torch/node{node}.pt.trace.json.gz"))).expect("an example");
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).expect("gzip");
    let mut trace: Value = serde_json::from_str(&text).expect("JSON");
    trace["traceEvents"].as_array_mut().expect("events").truncate(150);
    serde_json::to_vec_pretty(&trace).expect("JSON")
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// Aligns, merges and checks a trace of node 0 next to a whole one of node 1.
fn commands(folder: &Path, cut: &Path, whole: &Path, outputs: &[PathBuf]) -> Result<(), String> {
    let offsets = folder.join("offsets.csv");
    let request = |traces: &[&Path], outputs: &[PathBuf]| Request {
        traces: traces.iter().map(|path| path.to_path_buf()).collect(),
        nodes: (0..).take(traces.len()).collect(),
        clocks: ClockSource::Offsets(offsets.clone()),
        extrapolate: probe_sync_time::Duration::from_ns(i64::MAX / 4),
        outputs: outputs.to_vec(),
        ..Request::default()
    };
    let said = |error: probe_sync_alignment::Error| {
        let mut said = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(next) = cause {
            said = format!("{said}: {next}");
            cause = next.source();
        }
        said
    };
    let [aligned, merged @ ..] = outputs else { return Ok(()) };
    let alone = calibrate(&request(&[cut], std::slice::from_ref(aligned))).map_err(said)?;
    for one in align(&alone, aligned, AlignSettings::default()).map_err(said)? {
        one.map_err(said)?;
    }
    for output in merged {
        let both = calibrate(&request(&[cut, whole], std::slice::from_ref(output))).map_err(said)?;
        merge(&both, output, MergeSettings::default()).map_err(said)?;
        drop(check(&both));
    }
    Ok(())
}

/// Cuts node 0's trace at `count` places; up to `whole_at_most` of the cuts may leave a whole file.
fn check_cuts(name: &str, [bytes, other]: &[Vec<u8>; 2], outputs: [&str; 3], count: usize, whole_at_most: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let (path, whole) = (folder.join(format!("cut.{name}")), folder.join(format!("whole.{name}")));
    std::fs::write(&path, bytes).expect("written");
    std::fs::write(&whole, other).expect("written");
    std::fs::write(folder.join("offsets.csv"), OFFSETS).expect("written");
    let outputs = outputs.map(|name| folder.join(name));
    commands(folder, &path, &whole, &outputs).expect("nothing is wrong with the whole file");
    outputs.iter().for_each(|output| std::fs::remove_file(output).expect("an output"));
    let mut accepted = Vec::new();
    for place in 0..count {
        let length = bytes.len() * place / count;
        std::fs::write(&path, &bytes[..length]).expect("written");
        match commands(folder, &path, &whole, &outputs) {
            Ok(()) => accepted.push(length),
            Err(said) => {
                assert!(said.contains("cut.") && said.contains("byte"), "{name} cut at {length}: {said}");
            }
        }
        let written = outputs.iter().filter(|output| output.exists()).count();
        let finished = accepted.last() == Some(&length);
        assert!(written == if finished { outputs.len() } else { 0 }, "{name} cut at {length}: {written} outputs");
        outputs.iter().for_each(|output| drop(std::fs::remove_file(output)));
    }
    assert!(accepted.len() <= whole_at_most, "{name}: whole if cut at {accepted:?}");
}

fn of_all_formats(count: usize) {
    let kineto = [0, 1].map(kineto);
    let zipped = [0, 1].map(|node: usize| packed(&kineto[node]));
    let xspace = [0, 1].map(|node| std::fs::read(examples(&format!("jax/node{node}.xplane.pb"))).expect("an example"));
    let merged = ["aligned.json", "merged.json", "merged.pftrace"];
    check_cuts("pt.trace.json", &kineto, merged, count, 0);
    check_cuts("pt.trace.json.gz", &zipped, merged, count, 0);
    // Nothing in an XSpace says how many planes and other fields its root has.
    check_cuts("xplane.pb", &xspace, ["aligned.xplane.pb", "merged.xplane.pb", "merged.pftrace"], count, 12);
}

#[test]
fn a_trace_cut_anywhere_is_refused_with_its_place() {
    of_all_formats(60);
}

#[test]
#[ignore = "long: 2000 cuts of each format"]
fn a_trace_cut_at_each_of_2000_places_is_refused_with_its_place() {
    of_all_formats(2000);
}

/// Both nodes have the same clock.
const OFFSETS: &str = "node,node_realtime_ns,offset_vs_node0_ns\n\
    0,0,0\n0,2000000000000000000,0\n1,0,0\n1,2000000000000000000,0\n";
