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

/// The error and its causes.
fn told(error: probe_sync_alignment::Error) -> String {
    format!("{:#}", anyhow::Error::from(error))
}

/// Reads node 0's trace, alone to be aligned or to be merged with node 1's; then runs `between`, and
/// writes. Returns whether an output was written, or why not.
fn written(traces: &[&Path], offsets: &Path, output: &Path, between: impl FnOnce()) -> Result<(), String> {
    let request = Request {
        traces: traces.iter().map(|path| path.to_path_buf()).collect(),
        nodes: (0..).take(traces.len()).collect(),
        clocks: ClockSource::Offsets(offsets.to_owned()),
        extrapolate: probe_sync_time::Duration::from_ns(i64::MAX / 4),
        outputs: vec![output.to_owned()],
        merging: traces.len() > 1,
        ..Request::default()
    };
    let calibrated = calibrate(&request).map_err(told);
    between();
    let calibrated = calibrated?;
    if traces.len() > 1 {
        drop(check(&calibrated));
        return merge(&calibrated, output, MergeSettings::default()).map(drop).map_err(told);
    }
    let aligned = align(&calibrated, output, AlignSettings::default());
    aligned.and_then(|mut aligned| aligned.try_for_each(|one| one.map(drop))).map_err(told)
}

/// Cuts node 0's trace at `count` places before it is read, and at a tenth of them after that; up
/// to `whole_at_most` of the cuts may leave a whole file.
fn check_cuts(name: &str, [bytes, other]: &[Vec<u8>; 2], outputs: [&str; 3], count: usize, whole_at_most: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let [path, whole, offsets] =
        [format!("cut.{name}"), format!("whole.{name}"), "offsets.csv".to_owned()].map(|name| folder.join(name));
    std::fs::write(&whole, other).expect("written");
    std::fs::write(&offsets, OFFSETS).expect("written");
    for (index, output) in outputs.map(|name| folder.join(name)).iter().enumerate() {
        let traces = if index == 0 { vec![&*path] } else { vec![&*path, &*whole] };
        let cut = |length: usize| std::fs::write(&path, &bytes[..length]).expect("written");
        cut(bytes.len());
        written(&traces, &offsets, output, || {}).expect("nothing is wrong with the whole file");
        let mut accepted = Vec::new();
        let late_ones = (0..count).step_by(10).map(|place| (place, true));
        for (place, late) in (0..count).map(|place| (place, false)).chain(late_ones) {
            std::fs::remove_file(output).unwrap_or_default();
            let length = bytes.len() * place / count;
            cut(if late { bytes.len() } else { length });
            let result = written(&traces, &offsets, output, || {
                if late {
                    cut(length);
                }
            });
            assert_eq!(output.exists(), result.is_ok(), "{name} cut at {length}: {result:?}");
            match result {
                Ok(()) => accepted.push(length),
                Err(said) => {
                    assert!(said.contains("cut.") && said.contains("byte"), "{name} cut at {length}: {said}");
                }
            }
        }
        assert!(accepted.len() <= whole_at_most, "{name}: whole if cut at {accepted:?}");
    }
}

fn of_all_formats(count: usize) {
    let kineto = [0, 1].map(kineto);
    let zipped = [0, 1].map(|node: usize| packed(&kineto[node]));
    let xspace = [0, 1].map(|node| std::fs::read(examples(&format!("jax/node{node}.xplane.pb"))).expect("an example"));
    let merged = ["aligned.json", "merged.json", "merged.pftrace"];
    check_cuts("pt.trace.json", &kineto, merged, count, 0);
    check_cuts("pt.trace.json.gz", &zipped, merged, count, 0);
    // Nothing in an XSpace says how many planes and other fields its root has.
    check_cuts("xplane.pb", &xspace, ["aligned.xplane.pb", "merged.xplane.pb", "merged.pftrace"], count, 40);
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
