//! Records random nested scopes on two threads and writes them as traces, together with the results
//! that a reader must find in them.
//!
//! `cargo run -p probe-sync-record --features export --example nested_scopes -- FOLDER [SCOPES]`
//!
//! `bench/readers/perfetto_recording.py` does the comparison; this is also the shortest program
//! that shows all steps. Scopes are up to 200 deep, and there are instants, flows from thread to
//! thread, counters and spans that end on the other thread. The recording is written twice: on the
//! machine's clock and, as `coarse`, on a clock on which a thousand ns are one, so that most scopes
//! have no length and share their times. `expected.tsv` and `expected_coarse.tsv` list depth, name,
//! number, and sums of lengths and beginnings in ns.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::mpsc;

use probe_sync_record::export::{Format, OnSystem};
use probe_sync_record::read::What;
use probe_sync_record::tree::Tree;
use probe_sync_record::{
    ClockPair, Kind, Policy, Reach, Recorder, Recording, Scope, Session, counter, flow, instant, scope, span,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("name a folder")?;
    let scopes: u64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let bytes = (1 << 20) | (usize::try_from(scopes)? * 96);
    let builder =
        Recorder::builder().reach(Reach::Process).policy(Policy::DropNewest { bytes: bytes.next_power_of_two() });
    let session = builder.spill(folder.join("nested.rec")).start()?;
    let recording = record(session, scopes)?;
    let coarse: Vec<ClockPair> = recording.pairs().iter().map(|pair| coarse(pair, &recording)).collect();
    for (name, system) in [("", recording.on_system()?), ("_coarse", recording.on_system_by(&coarse)?)] {
        expect(&recording, &system, &folder.join(format!("expected{name}.tsv")))?;
        for (format, ending) in
            [(Format::Perfetto, "pftrace"), (Format::ChromeJson, "json"), (Format::Kineto, "pt.trace.json")]
        {
            let exported = system.write(format, &folder.join(format!("nested{name}.{ending}")))?;
            println!("{}: {} events, {} scopes", exported.path.display(), exported.events, exported.scopes);
        }
    }
    Ok(())
}

/// The same moment on a clock that is a thousand times as slow.
fn coarse(pair: &ClockPair, recording: &Recording) -> ClockPair {
    let first = recording.pairs()[0].system_ns;
    ClockPair { system_ns: first + (pair.system_ns - first) / SLOW, ..*pair }
}

fn record(session: Session, scopes: u64) -> Result<Recording, Box<dyn Error>> {
    let (to_other, from_other) = mpsc::sync_channel(1024);
    std::thread::scope(|threads| {
        let other = threads.spawn(move || {
            for (seed, spans) in from_other.iter().enumerate() {
                nest(seed as u64, false, scopes / 2 / ROUNDS, &mut |_| {});
                // They began on the first thread.
                drop::<Vec<probe_sync_record::Span>>(spans);
            }
        });
        for round in 0..ROUNDS {
            let mut spans = Vec::new();
            nest(round, true, scopes / 2 / ROUNDS, &mut |at| {
                if at % 1000 == 0 {
                    spans.push(span!("span over threads"));
                }
            });
            // Its end is the other thread's only error.
            to_other.send(spans).map_err(|_| "the other thread has ended")?;
        }
        drop(to_other);
        other.join().map_err(|_| "the other thread has failed")?;
        Ok::<(), Box<dyn Error>>(())
    })?;
    Ok(session.finish()?)
}

/// Opens and closes this many scopes at random; all are closed at the end.
fn nest(round: u64, is_first: bool, scopes: u64, each: &mut dyn FnMut(u64)) {
    let mut random = (2 * round + u64::from(is_first)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut open: Vec<Scope> = Vec::new();
    let (mut opened, mut flows) = (0, round << 32);
    while opened < scopes {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Deep in parts: what is opened often is closed seldom for a while.
        let often = if (opened / 1000).is_multiple_of(3) { 10 } else { 7 };
        match random % 16 {
            turn if turn < often && open.len() < DEPTH_MAX => {
                each(opened);
                open.push(match random >> 8 & 3 {
                    0 => scope!("a"),
                    1 => scope!(Kind::Function, "b", number = opened),
                    2 => scope!(Kind::Io, "c", bytes = 4096, what = "page"),
                    _ => scope!(Kind::Runtime, "d"),
                });
                opened += 1;
            }
            14 if (random >> 16).is_multiple_of(8) => instant!("moment", at = opened),
            13 if (random >> 16).is_multiple_of(64) => counter!("open", open.len()),
            12 if (random >> 16).is_multiple_of(64) && !open.is_empty() => {
                flows += 1;
                if is_first {
                    flow!(Out, "handed over", flows);
                } else {
                    flow!(In, "taken over", flows);
                }
            }
            _ => drop(open.pop()),
        }
    }
    while let Some(last) = open.pop() {
        drop(last);
    }
}

/// Depth, name, number, total length in ns, total of the starts in ns since the start of the
/// recording.
fn expect(recording: &Recording, system: &OnSystem<'_>, path: &Path) -> Result<(), Box<dyn Error>> {
    let (base, _) = system.clock().at(recording.status().start);
    let mut found: BTreeMap<(usize, String), (u64, i64, i64)> = BTreeMap::new();
    for thread in recording.threads() {
        let tree = Tree::of(recording, thread, |ticks| system.clock().at(ticks).0)?;
        let mut depths = vec![0; tree.nodes.len()];
        // Whoever is around comes later in the list.
        for at in (0..tree.nodes.len()).rev() {
            depths[at] = tree.nodes[at].parent.map_or(0, |around| depths[around] + 1);
        }
        for (node, depth) in tree.nodes.iter().zip(depths) {
            if matches!(node.what, What::Scope { .. } | What::Instant { .. } | What::Flow { .. }) {
                let sums = found.entry((depth, node.name.clone())).or_default();
                sums.0 += 1;
                sums.1 += node.placed.end - node.placed.start;
                sums.2 += node.placed.start - base;
            }
        }
    }
    let lines = found
        .iter()
        .map(|((depth, name), (count, length, start))| format!("{depth}\t{name}\t{count}\t{length}\t{start}\n"));
    std::fs::write(path, format!("{base}\n{}", lines.collect::<String>()))?;
    Ok(())
}

const DEPTH_MAX: usize = 200;
const ROUNDS: u64 = 20;
const SLOW: i64 = 1000;
