//! Events as chunks: every row that has a place, at its time.

use super::*;
use crate::WantedArgs;
use crate::chunk::{Chunk, FlowEnd, TrackKind, Value};

/// All chunks in one.
struct Read {
    chunks: Vec<Chunk>,
    stats: ChunkStats,
}

fn read(path: &Path) -> Read {
    let options =
        ChunkOptions { args: WantedArgs::All, host: "gpu-00".to_owned(), rank: Some(0), ..ChunkOptions::default() };
    let (mut chunks, mut tracks) = (Vec::new(), 0);
    let stats = Nsys.read_chunks(path, &options, &mut |time| time, &mut |chunk| {
        chunk.check(tracks)?;
        tracks += chunk.tracks.len();
        chunks.push(chunk.clone());
        Ok(())
    });
    Read { stats: stats.expect("events"), chunks }
}

/// The path of a track's names.
fn place(read: &Read, track: usize) -> String {
    let tracks: Vec<_> = read.chunks.iter().flat_map(|chunk| &chunk.tracks).collect();
    let mut names = Vec::new();
    let mut at = Some(track);
    while let Some(track) = at {
        names.push(tracks[track].label());
        at = tracks[track].parent.map(|parent| parent.0 as usize);
    }
    names.reverse();
    names.join(" / ")
}

#[test]
fn rows_are_events_at_their_place_and_time() {
    let found = read(&made(0));
    let [chunk] = found.chunks.as_slice() else { panic!("one chunk") };
    let slices = &chunk.slices;
    let of = |name: &str| {
        let row =
            slices.name.iter().position(|id| chunk.strings.text(*id) == name).unwrap_or_else(|| panic!("no {name}"));
        let category = chunk.strings.text(slices.category[row]).to_owned();
        (
            place(&found, slices.track[row].0 as usize),
            category,
            slices.end_ns[row] - slices.start_ns[row],
            slices.flow[row],
        )
    };
    let process = "rank 0 · gpu-00 · python3 4000";
    let gpu = format!("{process} / GPU 0 (NVIDIA H100)");
    for (name, expected, category, length) in [
        ("cudaLaunchKernelExC_v11060", format!("{process} / python3"), "cuda_runtime", 7_000),
        ("Memcpy HtoD", format!("{gpu} / stream 7"), "gpu_memcpy", 40_000),
        ("Memset", format!("{gpu} / stream 7"), "gpu_memset", 2_000),
        ("ncclAllReduce", format!("{process} / python3"), "nvtx", 15_000),
        ("poll", format!("{process} / python3"), "osrt", 3_000),
        ("MPI_Barrier", format!("{process} / python3"), "mpi", 30_000),
    ] {
        let (found, found_category, found_length, _) = of(name);
        assert_eq!((found, found_category.as_str(), found_length), (expected, category, length), "{name}");
    }
    let kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(float *, int)";
    assert_eq!(of(kernel).0, format!("{gpu} / stream 20"));
    assert_eq!(of("Stream sync").0, format!("{gpu} / waits for stream 20"));
    let (launch, run) = (of("cudaLaunchKernelExC_v11060").3, of(kernel).3);
    assert_eq!((launch.end, run.end), (FlowEnd::Out, FlowEnd::In));
    assert!(launch.id == run.id && run.id != 0);
    // Start of the session, and a row of the file.
    let first = slices.start_ns.iter().min().copied();
    assert_eq!(first, Some(1_749_999_999_500_000_000 + 470_000_000));
    let counter =
        |track: usize| matches!(&chunk.tracks[track].kind, TrackKind::Counter { unit } if unit == "Throughput %");
    assert_eq!(chunk.counters.value.len(), 24);
    assert!(counter(chunk.counters.track[0].0 as usize));
    assert_eq!(
        place(&found, chunk.counters.track[0].0 as usize),
        "rank 0 · gpu-00 · GPU metrics / GPU 0 (NVIDIA H100) / SM Issue"
    );
}

#[test]
fn payloads_are_arguments() {
    let found = read(&made(0));
    let chunk = &found.chunks[0];
    let row = chunk.slices.name.iter().position(|id| chunk.strings.text(*id) == "ncclAllReduce").expect("a call");
    let args = chunk.slices.args[row];
    let rows = args.first as usize..(args.first + args.count) as usize;
    let pairs: Vec<(&str, Value)> =
        rows.map(|at| (chunk.strings.text(chunk.args.key[at]), chunk.args.value[at])).collect();
    assert_eq!(
        pairs,
        [
            ("domainId", Value::Integer(1)),
            ("NCCL communicator ID", Value::Unsigned(0xf00d_face_1234_5678)),
            ("Message size [bytes]", Value::Integer(4_194_304))
        ]
    );
}

#[test]
fn what_is_not_shown_is_said() {
    let found = read(&made(0));
    assert_eq!(found.stats.notes, ["events of these tables are not shown: SCHED_EVENTS, DIAGNOSTIC_EVENT"]);
    // The range that was open when the report ended.
    assert_eq!((found.stats.untimed, found.stats.left_out), (1, 0));
    // All rows of the shown tables, without the creation of a domain and the open range.
    let content = content(&made(0));
    let rows = |table: &str| content[table].2.len() as u64;
    let shown = [
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "GPU_METRICS",
        "MPI_COLLECTIVES_EVENTS",
        "NVTX_EVENTS",
        "OSRT_API",
    ];
    assert_eq!(found.stats.events, shown.into_iter().map(rows).sum::<u64>() - 2);
}

#[test]
fn tables_of_2021_are_enough() {
    let found = read(&made_2021());
    assert_eq!(found.stats.notes, Vec::<String>::new());
    // Three steps of two kernels, a copy and three calls, and two ranges each; and the making of the
    // communicator.
    assert_eq!(found.stats.events, 3 * 8 + 1);
}
