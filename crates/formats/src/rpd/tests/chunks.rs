//! Events as chunks: every row that has a place, at its time.

use super::*;
use crate::WantedArgs;
use crate::chunk::{Chunk, FlowEnd, Value};

/// All chunks, and their statistics.
fn read(path: &Path) -> (Vec<Chunk>, ChunkStats) {
    let options =
        ChunkOptions { args: WantedArgs::All, host: "gpu-00".to_owned(), rank: Some(0), ..ChunkOptions::default() };
    let (mut chunks, mut tracks) = (Vec::new(), 0);
    let stats = Rpd.read_chunks(path, &options, &mut |time| time, &mut |chunk| {
        chunk.check(tracks)?;
        tracks += chunk.tracks.len();
        chunks.push(chunk.clone());
        Ok(())
    });
    (chunks, stats.expect("events"))
}

/// The path of a track's names.
fn place(chunk: &Chunk, track: usize) -> String {
    let parent = chunk.tracks[track].parent.map(|parent| format!("{} / ", place(chunk, parent.0 as usize)));
    format!("{}{}", parent.unwrap_or_default(), chunk.tracks[track].label())
}

#[test]
fn rows_are_events_at_their_place_and_time() {
    let (chunks, stats) = read(&made(0));
    let [chunk] = chunks.as_slice() else { panic!("one chunk") };
    let slices = &chunk.slices;
    let row = |name: &str| {
        let found = slices.name.iter().position(|id| chunk.strings.text(*id) == name);
        found.unwrap_or_else(|| panic!("no {name}"))
    };
    let reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
    let process = "rank 0 · gpu-00 · pid 4000";
    let thread = format!("{process} / thread 4000");
    for (name, expected, category, length) in [
        ("hipExtLaunchKernel", thread.clone(), "hip", 7_000),
        ("CopyHostToDevice", format!("{process} / GPU 2 / queue 0"), "gpu_memcpy", 40_000),
        ("hipMalloc", thread, "hip", 8_000_000),
    ] {
        let row = row(name);
        let found = (
            place(chunk, slices.track[row].0 as usize),
            chunk.strings.text(slices.category[row]),
            slices.end_ns[row] - slices.start_ns[row],
        );
        assert_eq!(found, (expected, category, length), "{name}");
    }
    assert_eq!(place(chunk, slices.track[row(reduce)].0 as usize), format!("{process} / GPU 2 / queue 1"));
    assert_eq!(chunk.strings.text(slices.category[row(reduce)]), "kernel");
    let (launch, run) = (slices.flow[row("hipExtLaunchKernel")], slices.flow[row(reduce)]);
    assert_eq!((launch.end, run.end), (FlowEnd::Out, FlowEnd::In));
    assert!(launch.id == run.id && run.id != 0 && slices.flow[row("hipMalloc")].id == 0);
    // Ranges are named by their text, and a mark has no length.
    assert_eq!(chunk.strings.text(slices.category[row("step 3")]), "marker");
    let marks: Vec<&str> = chunk.instants.name.iter().map(|id| chunk.strings.text(*id)).collect();
    assert_eq!(marks, ["probe_sync.rank#0/3"]);
    assert_eq!((chunk.counters.value.len(), chunk.counters.value[1]), (24, 801.0));
    assert_eq!(place(chunk, chunk.counters.track[0].0 as usize), "rank 0 · gpu-00 · monitors / gpu 2 / sclk");
    assert_eq!(stats, ChunkStats { events: 24 * 9 + 2, ..ChunkStats::default() });
}

#[test]
fn what_calls_state_is_in_their_arguments() {
    let (chunks, _) = read(&made(0));
    let chunk = &chunks[0];
    let pairs = |name: &str| -> Vec<(String, Value)> {
        let row = chunk.slices.name.iter().position(|id| chunk.strings.text(*id) == name).expect("a call");
        let args = chunk.slices.args[row];
        let rows = args.first as usize..(args.first + args.count) as usize;
        rows.map(|at| (chunk.strings.text(chunk.args.key[at]).to_owned(), chunk.args.value[at])).collect()
    };
    let launch = pairs("hipLaunchKernel");
    assert!(launch.contains(&("gridX".to_owned(), Value::Integer(256))), "{launch:?}");
    let copy = pairs("hipMemcpyWithStream");
    assert!(copy.contains(&("size".to_owned(), Value::Integer(65_536))), "{copy:?}");
    let malloc = pairs("hipMalloc");
    let [(name, Value::Text(text))] = malloc.as_slice() else { panic!("{malloc:?}") };
    assert_eq!((name.as_str(), chunk.strings.text(*text)), ("args", "ptr=0x7f3ea0600000 | size=0x10000"));
}

#[test]
fn odd_rows_cost_themselves_and_schema_2_is_read() {
    let statements = "UPDATE rocpd_api SET start = 0 WHERE id = 4294967299;
        UPDATE rocpd_op SET end = start - 1 WHERE id = 4294967298;
        UPDATE rocpd_monitor SET value = 'many' WHERE id = 2;
        INSERT INTO rocpd_api_ops (api_id, op_id) SELECT api_id, op_id FROM rocpd_api_ops;";
    let (_folder, path) = changed(&made(0), statements);
    let (_, stats) = read(&path);
    assert_eq!((stats.events, stats.left_out, stats.untimed), (24 * 9 + 2 - 3, 2, 1));
    let (chunks, stats) = read(&made_of_schema_2());
    assert_eq!((stats.events, stats.left_out), (2 * 9 + 2, 0));
    let categories: std::collections::BTreeSet<&str> =
        chunks[0].slices.category.iter().map(|id| chunks[0].strings.text(*id)).collect();
    assert_eq!(categories.into_iter().collect::<Vec<_>>(), ["api", "gpu_memcpy", "kernel", "marker"]);
}
