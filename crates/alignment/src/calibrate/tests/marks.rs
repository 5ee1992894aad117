//! Marks from the run's folder to the map: by hand with two nodes, and real traces of torch and
//! JAX.
//!
//! `bench/flow/marks.py` made the real ones; their readings are of node 1 of a run, whose offsets
//! are made here.

use super::*;
use crate::SettledBy;

const EPOCH_NS: i64 = 1_795_187_116_000_000_000;
/// Node 1 is ahead by as much.
const AHEAD_NS: i64 = 2_500_000;

/// A run whose offsets cover a minute on either side of a time.
struct Run(tempfile::TempDir);

impl Run {
    fn around(at_ns: i64) -> Self {
        let run = Self(tempfile::tempdir().expect("a folder"));
        let line = |start_ns: i64| {
            format!(
                "{{\"node_id\":1,\"window_start_ns\":{start_ns},\"window_end_ns\":{},\"offset_ns\":{AHEAD_NS},\
                 \"drift_ppm\":0.0,\"sigma_ns\":20.0,\"reachable\":true}}\n",
                start_ns + 1_000_000_000
            )
        };
        let meta =
            "{\"meta\":true,\"nodes\":[{\"node_id\":0,\"hostname\":\"a\"},{\"node_id\":1,\"hostname\":\"b\"}]}\n";
        let lines: String = (-60..60).map(|second| line(at_ns + second * 1_000_000_000)).collect();
        run.put("offsets.smoothed.jsonl", &(meta.to_owned() + &lines));
        std::fs::create_dir(run.0.path().join("marks")).expect("writable");
        run
    }

    fn put(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("writable");
        path
    }

    /// The file of a process, with marks as number, before and after.
    fn process(&self, token: u64, (rank, node): (u32, u32), marks: &[(u64, i64, i64)]) {
        let header = format!(
            "{{\"token\":\"{token:016x}\",\"rank\":{rank},\"world_size\":2,\"node_id\":{node},\"hostname\":\"x\",\
             \"boot_id\":\"b\",\"pid\":4{rank}}}\n"
        );
        let line = |(mark, before, after): &(u64, i64, i64)| {
            format!("{{\"mark\":{mark},\"before_ns\":{},\"after_ns\":{}}}\n", EPOCH_NS + before, EPOCH_NS + after)
        };
        let text = header + &marks.iter().map(line).collect::<String>();
        self.put(&format!("marks/rank{rank}-{token:016x}.jsonl"), &text);
    }

    /// A trace with an event at 50 µs and marks, as number and µs after the epoch.
    fn trace(&self, name: &str, token: u64, marks: &[(u64, &str)], head: &str) -> PathBuf {
        let mark = |(number, ts): &(u64, &str)| {
            format!(",{{\"ph\":\"X\",\"ts\":{ts},\"dur\":1,\"name\":\"probe_sync.mark#{token:016x}.{number}\"}}")
        };
        let marks: String = marks.iter().map(mark).collect();
        let event = "{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":50.000,\"dur\":5,\"name\":\"a\"}";
        self.put(name, &format!("{{{head}\"traceEvents\":[{event}{marks}],\"baseTimeNanoseconds\":{EPOCH_NS}}}"))
    }

    fn calibrate(&self, traces: Vec<PathBuf>, nodes: &[u32]) -> Result<Calibrated, String> {
        let clocks = ClockSource::Run(self.0.path().to_owned());
        let request = Request { traces, nodes: nodes.to_vec(), clocks, ..Request::default() };
        calibrate(&request).map_err(|error| error.to_string())
    }
}

/// Where a trace's time, ns after the epoch, is on the reference clock.
fn mapped(calibrated: &CalibratedTrace, ns: i64) -> f64 {
    let time = i128::from(EPOCH_NS + ns) * 1000;
    let map = calibrated.map.as_ref().expect("a map");
    (map.map(time).time_ps - i128::from(EPOCH_NS) * 1000) as f64 * 1e-3
}

fn note<'a>(calibrated: &'a CalibratedTrace, part: &str) -> &'a str {
    let found = calibrated.notes.iter().find(|note| note.contains(part));
    found.unwrap_or_else(|| panic!("no {part} in {:?}", calibrated.notes))
}

#[test]
fn two_nodes_by_hand() {
    let run = Run::around(EPOCH_NS);
    // Node 0: stamps at 10 and 90 µs, inside of readings 450 and 600 ns apart.
    run.process(7, (0, 0), &[(1, 9_800, 10_250), (9, 89_900, 90_500)]);
    // Node 1: its profiler is 5 µs ahead of the system clock. Of its first mark two attempts are in
    // the trace alone.
    run.process(8, (1, 1), &[(3, 4_900, 5_100), (8, 84_900, 85_100)]);
    let traces = vec![
        run.trace("b.json", 8, &[(1, "8"), (2, "9"), (3, "10.000"), (8, "90.000")], ""),
        run.trace("a.json", 7, &[(1, "10.000"), (9, "90.000")], ""),
    ];
    let calibrated = run.calibrate(traces, &[]).expect("maps");
    let [zero, one] = &calibrated.traces[..] else { panic!("two traces") };
    assert_eq!((zero.trace.node, one.trace.node, one.trace.part), (0, 1, 1));
    assert_eq!(one.trace.settled_by, SettledBy::Marks { rank: 1, world_size: 2 });
    assert_eq!(one.trace.name, "rank 1 (node 1)");
    let [of_zero, of_one] = [zero, one].map(|trace| trace.clock.as_ref().expect("a clock"));
    assert_eq!((of_zero.tie, of_one.tie), (Tie::SameClock, Tie::Trace));
    // R = S keeps every digit. Of 450 and 600 ns the farther readings are 250 and 500 ns away, and
    // a ns for the reading.
    assert_eq!(mapped(zero, 50_000), 50_000.0);
    assert_eq!(
        note(zero, "marks"),
        "its times are system clock times, as all 2 marks confirm; residual at most 501.0 ns for half of them and 501.0 ns for all"
    );
    let bounds = of_zero.marks.expect("two marks");
    assert_eq!((bounds.marks, bounds.half_ns, bounds.all_ns), (2, 501.0, 501.0));
    // Through the middles: 50 µs on R are 45 µs on S, and 2.5 ms less on the reference.
    assert!((mapped(one, 50_000) - (45_000 - AHEAD_NS) as f64).abs() < 0.01, "{}", mapped(one, 50_000));
    assert!(
        note(one, "marks").starts_with(
            "its times are not system clock times: 2 of 2 marks lie outside the readings around them, by up to 4.900 µs; the map passes through the midpoints of the readings, residual at most 101.0 ns for half"
        ),
        "{:?}",
        one.notes
    );
    assert_eq!(calibrated.warnings, Vec::<String>::new());
    // Beyond the marks a map is less sure and says so.
    let place = |ns: i64| zero.map.as_ref().expect("a map").map(i128::from(EPOCH_NS + ns) * 1000).place;
    use probe_sync_estimate::series::Place;
    assert_eq!(
        [place(9_999), place(10_000), place(90_000), place(90_001)],
        [Place::Before, Place::Inside, Place::Inside, Place::After]
    );
}

#[test]
fn whose_marks_they_are_decides_before_names_and_numbers() {
    let run = Run::around(EPOCH_NS);
    run.process(8, (0, 1), &[(1, 9_900, 10_100)]);
    let trace = |head: &str| vec![run.trace("a.json", 8, &[(1, "10.000")], head)];
    let settled = |head: &str| {
        let calibrated = run.calibrate(trace(head), &[]).expect("settled");
        let found = &calibrated.traces[0];
        (
            found.trace.node,
            found.trace.part,
            found.notes.iter().any(|note| note.contains("its marks prove that it is from node 1")),
        )
    };
    assert_eq!(settled(""), (1, 0, false));
    assert_eq!(settled("\"host_name\":\"b\","), (1, 0, false));
    assert_eq!(settled("\"host_name\":\"unknown\","), (1, 0, false));
    // The host of another node, and a rank of torch's.
    assert_eq!(settled("\"host_name\":\"a\","), (1, 0, true));
    assert_eq!(settled("\"distributedInfo\":{\"rank\":3,\"world_size\":4},"), (1, 3, false));
    assert!(run.calibrate(trace(""), &[1]).is_ok());
    let refused = run.calibrate(trace(""), &[0]).expect_err("it is node 1's");
    assert!(
        refused.contains("contains the marks of rank 0 of 2 on node 1 (process 40 of x), not of node 0"),
        "{refused}"
    );
    // A process that had no session in this run.
    let other = vec![run.trace("c.json", 9, &[(1, "10.000")], "")];
    let refused = run.calibrate(other.clone(), &[]).expect_err("nobody knows whose");
    assert!(
        refused.contains("has no host and no rank, and its marks are not from any process of the run"),
        "{refused}"
    );
    let taken = run.calibrate(other, &[1]).expect("the caller says so");
    assert!(
        note(&taken.traces[0], "that has no file in").contains("1 of its marks are from a process (0000000000000009)")
    );
    assert_eq!(taken.traces[0].clock.as_ref().expect("a clock").tie, Tie::Assumed);
}

#[test]
fn markers_beside_marks_count_for_nothing_where_the_clock_is_the_same() {
    let run = Run::around(EPOCH_NS);
    run.process(8, (1, 1), &[(1, 9_900, 10_100), (2, 89_900, 90_100)]);
    let marker = |at_us: i64| {
        let read_ns = EPOCH_NS + at_us * 1000 - 9_000;
        format!("{{\"ph\":\"X\",\"ts\":{at_us},\"dur\":1,\"name\":\"probe_sync.clock#{read_ns}\"}},")
    };
    let markers: String = (2..9).map(|k| marker(k * 10)).collect();
    let trace = run.trace("a.json", 8, &[(1, "10.000"), (2, "90.000")], "");
    let text = std::fs::read_to_string(&trace).expect("text");
    std::fs::write(&trace, text.replace("\"traceEvents\":[", &format!("\"traceEvents\":[{markers}")))
        .expect("writable");
    let calibrated = run.calibrate(vec![trace.clone()], &[]).expect("a map");
    let found = &calibrated.traces[0];
    assert_eq!(mapped(found, 50_000), (50_000 - AHEAD_NS) as f64, "{:?}", found.notes);
    assert!(!found.notes.iter().any(|note| note.contains("may be early")), "{:?}", found.notes);
    // Taken as they stand, whatever is in or beside it.
    let clocks = ClockSource::Run(run.0.path().to_owned());
    let request = Request { traces: vec![trace], clocks, realtime_only: true, ..Request::default() };
    let calibrated = calibrate(&request).expect("a map");
    assert_eq!(calibrated.traces[0].clock.as_ref().expect("a clock").tie, Tie::Assumed);
    assert_eq!(calibrated.traces[0].trace.node, 1);
}

/// A real trace beside its marks, the readings `late_ns` later than they were.
fn real(name: &str, late_ns: i64) -> (Calibrated, i64) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    let listed = |folder: &Path| {
        let entries = std::fs::read_dir(folder).expect("the fixture");
        entries.map(|entry| entry.expect("readable").path()).find(|path| path.is_file()).expect("one file")
    };
    let (trace, marks) = (listed(&folder), listed(&folder.join("marks")));
    let text = std::fs::read_to_string(&marks).expect("lines");
    let mut at_ns = 0;
    let later = |line: &str| {
        let mut line: serde_json::Value = serde_json::from_str(line).expect("an object");
        for key in ["before_ns", "after_ns"] {
            if let Some(reading) = line[key].as_i64() {
                at_ns = reading;
                line[key] = (reading + late_ns).into();
            }
        }
        line.to_string() + "\n"
    };
    let text: String = text.lines().map(later).collect();
    let run = Run::around(at_ns);
    run.put(&format!("marks/{}", marks.file_name().expect("a file").to_string_lossy()), &text);
    (run.calibrate(vec![trace], &[]).expect("a map"), at_ns)
}

#[test]
fn stamps_of_real_profilers_are_between_the_readings() {
    for name in ["marks_torch", "marks_jax"] {
        let (calibrated, at_ns) = real(name, 0);
        let found = &calibrated.traces[0];
        let clock = found.clock.as_ref().expect("a clock");
        assert_eq!((found.trace.node, found.trace.part, clock.tie), (1, 0, Tie::SameClock), "{:?}", found.notes);
        let bounds = clock.marks.expect("marks");
        assert_eq!((bounds.marks, bounds.apart), (24, 0));
        assert!(bounds.half_ns < 2_000.0 && bounds.all_ns < 3_000.0, "{bounds:?}");
        // To the picosecond: the only correction is the offset of the node.
        let time = i128::from(at_ns) * 1000 + 1;
        assert_eq!(clock.chain.map(time).time_ps, time - i128::from(AHEAD_NS) * 1000, "{name}");
        // The same as if the system clock had been 8 µs ahead of what the profiler stamps with.
        let (calibrated, _) = real(name, 8_000);
        let found = &calibrated.traces[0];
        let clock = found.clock.as_ref().expect("a clock");
        assert_eq!(clock.tie, Tie::Trace, "{:?}", found.notes);
        let moved = (clock.chain.map(time).time_ps - time) as f64 * 1e-3 + AHEAD_NS as f64;
        // Half of a bracket may be missing, as nobody knows where in it the stamp was.
        assert!((moved - 8_000.0).abs() < 1_000.0, "{name}: {moved}");
        assert_eq!(clock.marks.expect("marks").apart, 24);
    }
}
