//! Benchmark of how fast chunks become a trace, and how large the trace is:
//! `cargo bench -p probe-sync-writers --bench write`.
//!
//! A job of 8 processes, each with a thread that launches and a stream that runs: nested calls, and
//! a flow from each launch to its kernel. Measured are the writers alone, and with the sorter
//! before them. With `--bench` a million slices are written, five times; without it (as tests are
//! run) a few, once. The peer, Perfetto's own Python builder on the same slices:
//! `bench/perfetto_builder.py`. `benches/kineto.rs` measures reading.

use std::time::Instant;

use probe_sync_formats::chunk::{ArgRange, Chunk, Flow, FlowEnd, Process, Sorter, StringId, Track, TrackId, TrackKind};
use probe_sync_writers::{Meta, OutputFormat};

fn main() {
    let measured = std::env::args().any(|argument| argument == "--bench");
    let (slices, repeats) = if measured { (1_000_000, 5) } else { (1000, 1) };
    let chunks = job(slices);
    let formats = [
        ("pftrace", OutputFormat::Perfetto),
        ("json", OutputFormat::ChromeJson),
        ("kineto", OutputFormat::Kineto),
        ("xspace", OutputFormat::XSpace),
    ];
    for (name, format) in formats {
        for sorted in [false, true] {
            let mut rates = Vec::new();
            let mut bytes = 0;
            for _ in 0..repeats {
                let begun = Instant::now();
                bytes = if sorted { through_sorter(format, &chunks) } else { straight(format, &chunks) };
                rates.push(slices as f64 / begun.elapsed().as_secs_f64());
            }
            rates.sort_by(f64::total_cmp);
            let rate = rates[rates.len() / 2];
            let each = bytes as f64 / slices as f64;
            let how = if sorted { "sorted and written" } else { "written" };
            println!("{name}, {how}: {rate:.0} slices/s, {each:.1} bytes a slice, {:.0} MB/s", rate * each * 1e-6);
        }
    }
}

fn straight(format: OutputFormat, chunks: &[Chunk]) -> u64 {
    let mut writer = probe_sync_writers::open(format, std::io::sink(), &Meta::default());
    chunks.iter().for_each(|chunk| writer.write(chunk).expect("a sound chunk"));
    writer.finish().expect("a sink takes everything").0.bytes
}

fn through_sorter(format: OutputFormat, chunks: &[Chunk]) -> u64 {
    let mut sorter = Sorter::default();
    chunks.iter().for_each(|chunk| sorter.push(chunk, |_, _| true).expect("room for temporary files"));
    let mut sorted = sorter.finish(0).expect("room for temporary files");
    let mut writer = probe_sync_writers::open(format, std::io::sink(), &Meta::default());
    let mut chunk = Chunk::default();
    while sorted.next(&mut chunk).expect("what was written") {
        writer.write(&chunk).expect("a sound chunk");
    }
    writer.finish().expect("a sink takes everything").0.bytes
}

/// This many slices in order of time: of four, an outer call, two inner ones of which the second
/// launches, and the kernel.
fn job(slices: usize) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    let mut chunk = Chunk { tracks: tracks(), ..Chunk::default() };
    for group in 0..slices / 4 {
        let (rank, at) = ((group % RANKS) as u32, START_NS + group as i64 * 1500);
        let names = [("forward", 7), ("aten::mm", 90), ("hipLaunchKernel", 1), ("Cijk_Ailk_Bljk_HHS", 40)];
        let names = names.map(|(name, variants)| chunk.strings.intern(&format!("{name}_{}", group % variants)));
        let categories = ["cpu_op", "cpu_op", "hip_runtime", "kernel"].map(|category| chunk.strings.intern(category));
        let id = group as u64 + 1;
        let flows = [Flow::default(), Flow::default(), Flow { id, end: FlowEnd::Out }, Flow { id, end: FlowEnd::In }];
        let times = [(0, 1400), (100, 400), (500, 300), (1000, 450)];
        for (index, (from, length)) in times.into_iter().enumerate() {
            let track = TrackId(rank * 4 + if index == 3 { 3 } else { 1 });
            slice(&mut chunk, track, (at + from, length), (names[index], categories[index]), flows[index]);
        }
        if chunk.is_full() {
            chunks.push(std::mem::take(&mut chunk));
        }
    }
    chunks.push(chunk);
    chunks
}

fn slice(
    chunk: &mut Chunk,
    track: TrackId,
    (start, length): (i64, i64),
    (name, category): (StringId, StringId),
    flow: Flow,
) {
    let slices = &mut chunk.slices;
    slices.track.push(track);
    slices.start_ns.push(start);
    slices.end_ns.push(start + length);
    slices.name.push(name);
    slices.category.push(category);
    slices.flow.push(flow);
    slices.args.push(ArgRange::default());
}

fn tracks() -> Vec<Track> {
    let mut tracks = Vec::new();
    for rank in 0..RANKS as u32 {
        let first = TrackId(rank * 4);
        let process = Process { pid: 100, host: format!("gpu-{rank}"), rank: Some(rank), guid: String::new() };
        let below = |parent, kind, name: &str| Track { parent: Some(parent), kind, name: name.into() };
        tracks.push(Track { parent: None, kind: TrackKind::Process(process), name: "train".into() });
        tracks.push(below(first, TrackKind::Thread { tid: 100 }, "main"));
        tracks.push(below(first, TrackKind::Agent, "GPU 0"));
        tracks.push(below(TrackId(rank * 4 + 2), TrackKind::Stream, "stream 7"));
    }
    tracks
}

const RANKS: usize = 8;
const START_NS: i64 = 1_795_187_183_203_286_272;
