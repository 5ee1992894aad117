//! Traces and what belongs to them: XSpace, Kineto JSON, offsets, snapshot pairs, a run's windows.
//!
//! For the formats that are rewritten in place: whatever a reader accepts is rewritten with the identity to the same bytes
//! (XSpace: to the form that its writers give), with another map without a panic, and merged with
//! itself or refused; what was written is read again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use probe_sync_alignment::clocks::{MarkFiles, Offsets, RunDirectory, Snapshots, Timeline, node_clock, read_snapshots};
use probe_sync_formats::model::{MarkStamp, MarkToken, MergeFacts, Picoseconds, TraceFacts};
use probe_sync_formats::{
    ChunkOptions, CpuClock, FactOptions, FlightRecorder, Kineto, MapFunction, MergeInput, MergeOptions, NcclInspector,
    Nsys, Perfetto, RewriteOptions, RewriteStats, Rocpd, Rpd, TraceFormat, WantedArgs, XSpace, detect,
};
use probe_sync_time::Duration;
use regex::Regex;

use crate::files::{with_directory, write};

/// An XSpace, plain or packed.
pub fn xspace(data: &[u8]) {
    with_directory(|directory| {
        let (input, output) = (directory.join("in.xplane.pb"), directory.join("out.xplane.pb"));
        write(&input, data);
        let Some(facts) = accepted(&XSpace, &input) else { return };
        let plain = RewriteOptions::default();
        if XSpace.rewrite(&input, &output, &plain, &mut |time| time).is_ok() {
            // Writers do not spell zeros out, and put a line's fields before its events; what does
            // is brought into that form once, with the same content.
            let once = read(&output);
            let mut again = XSpace.read_facts(&output, &options()).expect("it reads what it wrote");
            if !facts.omitted.is_empty() {
                // The warning about them names the byte of the first, which has moved.
                again.warnings.clone_from(&facts.warnings);
            }
            assert_eq!(told(&again), told(&facts), "the identity changed something");
            let again = directory.join("again.xplane.pb");
            write(&again, &once);
            let rewritten = XSpace.rewrite(&again, &output, &plain, &mut |time| time);
            assert!(rewritten.is_ok(), "refuses what it wrote");
            assert_eq!(read(&output), once, "the identity changed what it wrote");
        }
        move_and_merge(&XSpace, &input, &output);
    });
}

/// Kineto's JSON, plain or packed.
pub fn kineto(data: &[u8]) {
    with_directory(|directory| {
        let ending = if packed(data) { "json.gz" } else { "json" };
        let input = directory.join(format!("in.{ending}"));
        let output = directory.join("out.json");
        write(&input, data);
        if accepted(&Kineto, &input).is_none() {
            return;
        }
        let rewritten = Kineto.rewrite(&input, &output, &RewriteOptions::default(), &mut |time| time);
        // Metadata before the base is put at it, and events with implausible times are left out,
        // which the statistics say.
        let is_same = |stats: RewriteStats| stats.metadata_clamped == 0 && stats.left_out == 0;
        if rewritten.is_ok_and(is_same) && !packed(data) {
            assert_eq!(read(&output), data, "the identity changed something");
        }
        move_and_merge(&Kineto, &input, &output);
    });
}

/// A Perfetto trace, plain or packed.
pub fn perfetto(data: &[u8]) {
    with_directory(|directory| {
        let (input, output) = (directory.join("in.pftrace"), directory.join("out.pftrace"));
        write(&input, data);
        let Some(facts) = accepted(&Perfetto, &input) else { return };
        let again = Perfetto.read_facts(&input, &options()).expect("it was read before");
        assert_eq!(told(&again), told(&facts), "one file, two answers");
        let (mut tracks, options_of_chunks) =
            (0, ChunkOptions { args: WantedArgs::All, reach: facts.reach, ..ChunkOptions::default() });
        // Facts leave damage of an event's arguments unseen.
        let _ = Perfetto.read_chunks(&input, &options_of_chunks, &mut |time| time, &mut |chunk| {
            chunk.check(tracks).expect("a sound chunk");
            tracks += chunk.tracks.len();
            Ok(())
        });
        let plain = RewriteOptions::default();
        if Perfetto.rewrite(&input, &output, &plain, &mut |time| time).is_ok() && !packed(data) {
            assert_eq!(read(&output), data, "the identity changed something");
        }
        if Perfetto.rewrite(&input, &output, &plain, &mut shifted).is_ok() {
            let moved = Perfetto.read_facts(&output, &options()).expect("it reads what it moved");
            assert_eq!(moved.events, facts.events, "events were lost");
        }
        move_and_merge(&Perfetto, &input, &output);
    });
}

/// A database of rocprofv3, as the bytes of its file.
pub fn rocpd(data: &[u8]) {
    with_directory(|directory| {
        let (input, output) = (directory.join("in.db"), directory.join("out.db"));
        write(&input, data);
        let Some(facts) = accepted(&Rocpd, &input) else { return };
        if Rocpd.rewrite(&input, &output, &RewriteOptions::default(), &mut |time| time).is_ok() {
            let again = Rocpd.read_facts(&output, &options()).expect("it reads what it wrote");
            assert_eq!(told(&again), told(&facts), "the identity changed something");
        }
        move_and_merge(&Rocpd, &input, &output);
        let (mut one, path) = (shifted, input.clone());
        if Rocpd.rewrite(&path, &output, &RewriteOptions::default(), &mut one).is_ok() {
            assert!(Rocpd.read_facts(&output, &options()).is_ok(), "refuses what it moved");
        }
        let cpu_clock = Some(CpuClock { elsewhere: Some(Duration::from_ns(7)), ..CpuClock::default() });
        if let Ok(facts) = Rocpd.read_facts(&input, &FactOptions { cpu_clock, ..options() }) {
            let behind = RewriteOptions { cpu_behind_ns: facts.cpu_behind_ns, ..RewriteOptions::default() };
            if Rocpd.rewrite(&input, &output, &behind, &mut |time| time).is_ok() {
                let again = Rocpd.read_facts(&output, &options()).expect("it reads what it brought to one clock");
                assert_eq!(again.span, facts.span, "it writes what it read");
            }
        }
    });
}

/// An export of Nsight Systems, as the bytes of its file.
pub fn nsys(data: &[u8]) {
    database(&Nsys, data);
}

/// A trace of rocmProfileData, as the bytes of its file.
pub fn rpd(data: &[u8]) {
    database(&Rpd, data);
}

/// A database that is read, shown and rewritten.
fn database(format: &dyn TraceFormat, data: &[u8]) {
    with_directory(|directory| {
        let [input, output] = ["in", "out"].map(|name| directory.join(format!("{name}{}", format.output_ending())));
        write(&input, data);
        let Some(facts) = accepted(format, &input) else { return };
        let (mut tracks, options_of_chunks) = (0, ChunkOptions { reach: facts.reach, ..ChunkOptions::default() });
        let read = format.read_chunks(&input, &options_of_chunks, &mut |time| time, &mut |chunk| {
            chunk.check(tracks).expect("a sound chunk");
            tracks += chunk.tracks.len();
            Ok(())
        });
        // Facts leave damage of a table that they do not read unseen.
        drop(read);
        if format.rewrite(&input, &output, &RewriteOptions::default(), &mut |time| time).is_ok() {
            let again = format.read_facts(&output, &options()).expect("it reads what it wrote");
            assert_eq!(told(&again), told(&facts), "the identity changed something");
        }
        move_and_merge(format, &input, &output);
        if format.rewrite(&input, &output, &RewriteOptions::default(), &mut shifted).is_ok() {
            assert!(format.read_facts(&output, &options()).is_ok(), "refuses what it moved");
        }
    });
}

/// All facts but each part of a collective: their number.
fn told(facts: &TraceFacts) -> String {
    let TraceFacts {
        identity,
        base_ns,
        events,
        span,
        reach,
        session,
        since_boot,
        pairs,
        marks,
        brackets,
        collectives,
        groups,
        merged,
        clock,
        is_read_from_clock,
        stated_clock,
        aligned_to,
        aligned_sigma_ns,
        steps,
        cpu_behind_ns,
        has_snapshot_plane,
        communicators,
        launches,
        merging,
        notes,
        warnings,
        omitted,
    } = facts;
    let launches: BTreeMap<_, _> = launches.iter().collect();
    let (planes, clocks) = (
        (
            base_ns,
            merged,
            has_snapshot_plane,
            (clock, is_read_from_clock),
            stated_clock,
            (aligned_to, aligned_sigma_ns),
            cpu_behind_ns,
            (communicators.len(), merging.is_some()),
        ),
        (pairs, marks, brackets, launches),
    );
    format!(
        "{:?}",
        (
            identity,
            events,
            span,
            session,
            since_boot,
            clocks,
            collectives.len(),
            groups,
            planes,
            (notes, warnings, omitted, reach, steps)
        )
    )
}

/// The facts of a file that its format accepts.
fn accepted(format: &dyn TraceFormat, input: &Path) -> Option<TraceFacts> {
    let facts = format.read_facts(input, &options()).ok()?;
    check_facts(&facts);
    Some(facts)
}

/// Through another map, and merged with itself: what is written is read again.
fn move_and_merge(format: &dyn TraceFormat, input: &Path, output: &Path) {
    let annotated = RewriteOptions { annotate: true, ..RewriteOptions::default() };
    if format.rewrite(input, output, &annotated, &mut shifted).is_ok() {
        assert!(format.read_facts(output, &options()).is_ok(), "refuses what it wrote");
    }
    let facts = format.read_facts(input, &FactOptions { merging: true, ..options() }).ok();
    let reach = facts.as_ref().and_then(|facts| facts.reach);
    let merged = |known: Option<&MergeFacts>| {
        let (mut one, mut two) = (shifted, |time| time);
        let maps: [&mut MapFunction<'_>; 2] = [&mut two, &mut one];
        let input = |(part, map)| MergeInput {
            path: input.to_owned(),
            part,
            name: format!("node{part}"),
            map,
            metadata: Vec::new(),
            reach,
            known: known.cloned(),
        };
        let mut inputs: Vec<MergeInput<'_>> = (0..).zip(maps).map(input).collect();
        format.merge(&mut inputs, output, &MergeOptions::default()).ok()?;
        assert!(format.read_facts(output, &options()).is_ok(), "refuses what it merged");
        std::fs::read(output).ok()
    };
    let alone = merged(None);
    if let Some(known) = facts.and_then(|facts| facts.merging) {
        assert!(merged(Some(&known)) == alone, "other facts for a merge than the merge itself finds");
    }
}

/// Any bytes as a trace of unknown format.
pub fn trace_format(data: &[u8]) {
    with_directory(|directory| {
        let input = directory.join("in");
        write(&input, data);
        let Ok(format) = detect(&input) else { return };
        let Ok(facts) = format.read_facts(&input, &options()) else { return };
        check_facts(&facts);
        let records: [&dyn TraceFormat; 2] = [&FlightRecorder, &NcclInspector];
        if records.contains(&format) {
            record(format, &input, &facts);
        }
    });
}

/// A dump of the Flight Recorder or a log of the NCCL Inspector: every event of the facts is shown,
/// and nothing else.
fn record(format: &dyn TraceFormat, input: &Path, facts: &TraceFacts) {
    let options = ChunkOptions { args: WantedArgs::All, reach: facts.reach, ..ChunkOptions::default() };
    let (mut events, mut tracks) = (0, 0);
    let read = format.read_chunks(input, &options, &mut |time| time, &mut |chunk| {
        chunk.check(tracks)?;
        events += chunk.events() as u64;
        tracks += chunk.tracks.len();
        Ok(())
    });
    assert_eq!((read.expect("it was read before").events, events), (facts.events, facts.events));
}

/// Offsets as JSON lines or CSV: the maps made of them keep the order of times.
pub fn offsets(data: &[u8]) {
    with_directory(|directory| {
        let path = directory.join("offsets");
        write(&path, data);
        if let Ok(offsets) = Offsets::read(&path) {
            check_clocks(&offsets, None);
        }
    });
}

/// Snapshot pairs as protobuf or JSON lines, with and without offsets behind them.
pub fn snapshot_files(data: &[u8]) {
    with_directory(|directory| {
        let path = directory.join("pairs");
        write(&path, data);
        let Ok(pairs) = read_snapshots(&path, None) else { return };
        let offsets = directory.join("offsets.csv");
        write(&offsets, OFFSETS);
        let offsets = Offsets::read(&offsets).expect("well-formed");
        check_clocks(&offsets, Some(&pairs));
    });
}

/// What a process of a run read of its clock around its marks: whatever the file holds, a bracket
/// is of a mark of the trace, its readings are in order, and the map that is made keeps the order
/// of times.
pub fn marks(data: &[u8]) {
    with_directory(|directory| {
        let folder = directory.join("marks");
        std::fs::create_dir_all(&folder).expect("writable");
        write(&folder.join("rank0-00000000000000ff.jsonl"), data);
        let stamp = |number: u64| MarkStamp {
            token: MARKED,
            number,
            tracer_ps: 1_000_000_000_000 + Picoseconds::from(number) * 1_000_000,
            unit_ps: 1000,
        };
        let mut facts = TraceFacts { marks: (0..8).map(stamp).collect(), ..TraceFacts::default() };
        let files = MarkFiles::in_run(directory).expect("a folder");
        files.join(directory, &mut facts).expect("one process");
        assert!(facts.brackets.len() <= facts.marks.len() && facts.notes.len() <= 3, "{:?}", facts.notes);
        assert!(facts.brackets.is_empty() || facts.identity.process.is_some(), "readings of nobody");
        assert!(facts.brackets.iter().all(|bracket| bracket.before_ns <= bracket.after_ns));
        let offsets = directory.join("offsets.csv");
        write(&offsets, OFFSETS);
        let offsets = Offsets::read(&offsets).expect("well-formed");
        let brackets = facts.brackets;
        check_facts_clocks(&TraceFacts { brackets, ..spanned() }, &offsets, None);
    });
}

/// What a run says of its clocks' steps.
pub fn global_windows(data: &[u8]) {
    with_directory(|directory| {
        write(&directory.join("offsets.jsonl"), OFFSET_LINES);
        write(&directory.join("global_windows.jsonl"), data);
        let run = RunDirectory::open(directory).expect("well-formed offsets");
        if let Ok(offsets) = run.offsets(run.survey.everything()) {
            check_clocks(&offsets, None);
        }
    });
}

/// Times through a node's map keep their order.
fn check_clocks(offsets: &Offsets, pairs: Option<&Snapshots>) {
    check_facts_clocks(&spanned(), offsets, pairs);
}

fn spanned() -> TraceFacts {
    TraceFacts { span: Some((TIMES[1], TIMES[TIMES.len() - 2])), ..TraceFacts::default() }
}

fn check_facts_clocks(facts: &TraceFacts, offsets: &Offsets, pairs: Option<&Snapshots>) {
    for node in 0..3 {
        let Ok(clock) = node_clock(facts, offsets, node, pairs, Timeline::default()) else { continue };
        let mut cursor = clock.chain.cursor();
        let mut before = Picoseconds::MIN;
        for time in TIMES {
            let mapped = clock.chain.map(time);
            assert!(mapped.time_ps >= before, "node {node}: {time} goes to {}, before {before}", mapped.time_ps);
            assert_eq!(cursor.map(time), mapped, "the quick way differs");
            before = mapped.time_ps;
        }
    }
}

fn check_facts(facts: &TraceFacts) {
    if let Some((first, last)) = facts.span {
        assert!(first <= last);
    }
    assert!(facts.collectives.len() <= facts.events, "more collectives than events");
    assert!(facts.notes.len() <= MAX_NOTES, "{} notes", facts.notes.len());
}

fn options() -> FactOptions {
    static MARKERS: OnceLock<Regex> = OnceLock::new();
    let markers = MARKERS.get_or_init(|| Regex::new("^mark (?P<system_ns>[0-9]+)$").expect("a well-formed pattern"));
    FactOptions { markers: Some(markers.clone()), ..FactOptions::default() }
}

/// A clock that is 1.234567 ms behind and 100 ppm fast.
fn shifted(time: Picoseconds) -> Picoseconds {
    time + 1_234_567_000 + time / 10_000
}

fn packed(data: &[u8]) -> bool {
    data.starts_with(&[0x1f, 0x8b])
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("just written")
}

const MARKED: MarkToken = MarkToken(0xff);

const OFFSETS: &[u8] = b"node,node_realtime_ns,offset_vs_node0_ns\n1,1000000000,5\n1,2000000000,105\n2,1000000000,-7\n";

const OFFSET_LINES: &[u8] = br#"{"meta":true,"nodes":[{"node_id":0,"hostname":"a"},{"node_id":1,"hostname":"b"}]}
{"round_id":0,"window_id":0,"window_start_ns":0,"window_end_ns":2000000000,"node_id":1,"offset_ns":5.0,"drift_ppm":0.1,"residual":1.0,"reachable":true,"converged":true,"sigma_ns":3.0,"bound_lo_ns":null,"bound_hi_ns":null}
{"round_id":1,"window_id":1,"window_start_ns":2000000000,"window_end_ns":4000000000,"node_id":1,"offset_ns":205.0,"drift_ppm":0.1,"residual":1.0,"reachable":true,"converged":true,"sigma_ns":3.0,"bound_lo_ns":null,"bound_hi_ns":null}
"#;

/// From the beginning of time past our own to its end, ps.
const TIMES: [Picoseconds; 12] = [
    i64::MIN as Picoseconds * 1000,
    0,
    1,
    999_999_999_999,
    1_000_000_000_000,
    1_500_000_000_001,
    2_000_000_000_000,
    3_000_000_000_000,
    1_795_187_183_227_565_825_000,
    1_795_187_183_227_565_825_001,
    1_795_187_184_227_565_825_000,
    i64::MAX as Picoseconds * 1000,
];

const MAX_NOTES: usize = 1000;
