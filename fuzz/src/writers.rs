//! Fuzz targets for writers: arbitrary chunks through the viewers' formats, arbitrary recorder
//! calls into a database, arbitrary databases into CSV.
//!
//! The input says what a program hands to a writer. Whatever that is, a writer refuses it or gives
//! an output in which a reader finds all of it: every slice with its whole length, every moment and
//! value, every row. They do not check what viewers display.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use probe_sync_alignment::Request;
use probe_sync_analysis::Error;
use probe_sync_analysis::query::{self, CsvSettings, Query, QuerySettings, RowSink};
use probe_sync_formats::chunk::{ArgRange, Chunk, Flow, FlowEnd, Process, StringId, Track, TrackId, TrackKind, Value};
use probe_sync_formats::protobuf::{Fields, Value as Wire};
use probe_sync_rocpd::writer::{
    Argument, Journal, Links, Process as Recorder, Region, Settings, Source, ThreadRecorder, Writer,
};
use probe_sync_writers::{Meta, OutputFormat, WriteReport};

use crate::files::{with_directory, write};

/// Chunks into Perfetto's protobuf.
pub fn perfetto(data: &[u8]) {
    let Some((told, report, trace)) = written(OutputFormat::Perfetto, data) else { return };
    let mut found = Told::default();
    let mut clock = HashMap::new();
    let mut open: HashMap<u64, Vec<i64>> = HashMap::new();
    let mut events = Vec::new();
    for packet in messages(&trace, 1) {
        let sequence = number(packet, 10).expect("every packet is of a sequence");
        if let Some(snapshot) = messages(packet, 6).next() {
            let incremental = messages(snapshot, 1).find(|clock| number(clock, 1) == Some(64)).expect("the clock");
            clock.insert(sequence, number(incremental, 2).expect("its time") as i64);
        }
        let Some(event) = messages(packet, 11).next() else { continue };
        let raw = number(packet, 8).expect("a time") as i64;
        let time = if number(packet, 58) == Some(6) {
            raw
        } else {
            let clock = clock.get_mut(&sequence).expect("a clock before the first event");
            *clock += raw;
            *clock
        };
        events.push((time, event));
    }
    // As the readers of this format do, which keep the order of what happens at one time.
    events.sort_by_key(|event| event.0);
    for (time, event) in events {
        let track = number(event, 11).expect("a track");
        match number(event, 9).expect("a kind") {
            1 => open.entry(track).or_default().push(time),
            2 => {
                let start = open.get_mut(&track).and_then(Vec::pop).expect("what ends is open");
                found.slices += 1;
                found.length_ns += i128::from(time) - i128::from(start);
            }
            3 => found.instants += 1,
            4 => found.counters += 1,
            other => panic!("an event of kind {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "all that began has ended");
    compare(&told, &found, &report, trace.len());
}

/// Chunks into Chrome's JSON.
pub fn chrome(data: &[u8]) {
    json(OutputFormat::ChromeJson, data);
}

/// Chunks into Kineto's JSON.
pub fn kineto(data: &[u8]) {
    json(OutputFormat::Kineto, data);
}

/// Chunks into an XSpace: planes, lines, events; moments and values are events without length, and
/// a value states itself.
pub fn xspace(data: &[u8]) {
    let Some((told, report, trace)) = written(OutputFormat::XSpace, data) else { return };
    let (mut events, mut values, mut length_ps) = (0, 0, 0);
    for plane in messages(&trace, 1) {
        let named = |field: u32| messages(plane, field).filter_map(|entry| number(entry, 1)).collect::<HashSet<u64>>();
        let (names, stats) = (named(4), named(5));
        for event in messages(plane, 3).flat_map(|line| messages(line, 4)) {
            events += 1;
            length_ps += i128::from(number(event, 3).unwrap_or(0));
            assert!(names.contains(&number(event, 1).expect("the number of a name")), "a name that the plane has not");
            for stat in messages(event, 4) {
                assert!(
                    stats.contains(&number(stat, 1).expect("the number of a name")),
                    "a stat that the plane has not"
                );
            }
        }
        for line in messages(plane, 3).filter(|line| messages(line, 2).next() == Some(b"_counters_")) {
            values += messages(line, 4).count() as u64;
        }
    }
    // A row of the input may be called as that of counters is.
    assert!(values >= told.counters, "{values} values, and {} were told", told.counters);
    assert_eq!(events, told.slices + told.instants + told.counters, "events, and those that were told");
    assert_eq!(length_ps, told.length_ns * 1000);
    let reported = (report.slices, report.instants, report.counters, report.bytes);
    assert_eq!(reported, (told.slices, told.instants, told.counters, trace.len() as u64));
}

fn json(format: OutputFormat, data: &[u8]) {
    let Some((told, report, trace)) = written(format, data) else { return };
    let mut found = Told::default();
    let document: Members = serde_json::from_slice(&trace).expect("JSON");
    let events: Vec<Members> = serde_json::from_str(document["traceEvents"].get()).expect("events");
    for event in events {
        match event["ph"].get().trim_matches('"') {
            "X" => {
                found.slices += 1;
                found.length_ns += nanoseconds(event["dur"].get());
            }
            "i" => found.instants += 1,
            "C" => found.counters += 1,
            "M" | "s" | "t" | "f" => {}
            other => panic!("an event of phase {other}"),
        }
    }
    compare(&told, &found, &report, trace.len());
}

/// Calls of a program into a database, which is read again.
pub fn recorder(data: &[u8]) {
    with_directory(|directory| {
        let mut input = Input(data);
        let path = directory.join("recorded.db");
        let _ = std::fs::remove_file(&path);
        let settings = Settings {
            output: path.clone(),
            flush_rows: 1 + usize::from(input.byte() % 8),
            finish_timeout: Duration::from_secs(10),
            journal: (input.flag()).then_some(Journal::Rollback),
            ..Settings::default()
        };
        let process = Recorder { hostname: input.text(), command: input.text(), ..Recorder::current() };
        let Ok(writer) = Writer::open(settings, process) else { return };
        let threads = [writer.thread(1, Some("one")), writer.thread(2, None)];
        let mut accepted = 0;
        while !input.0.is_empty() {
            accepted += u64::from(record(&writer, &threads, &mut input));
        }
        let report = writer.finish().expect("memory is a disk that is not full");
        assert_eq!((report.events, report.dropped), (accepted, 0));
        let request = Request { traces: vec![path], ..Request::default() };
        let own = QuerySettings { own_clocks: true, ..QuerySettings::default() };
        // The writer takes any times; the reader refuses some.
        if let Ok(query) = Query::open(&request, &own) {
            let mut rows = Rows::default();
            query.run("SELECT name_id FROM rocpd_region", &mut rows).expect("a table of every database");
            assert_eq!(rows.0, accepted, "rows, and calls that were accepted");
        }
        for beside in ["recorded.db-wal", "recorded.db-shm", "recorded.db-journal"] {
            assert!(!directory.join(beside).exists(), "{beside} was left");
        }
    });
}

fn record(writer: &Writer, threads: &[ThreadRecorder; 2], input: &mut Input<'_>) -> bool {
    let (name, category) = (writer.intern(&input.text()), writer.intern(&input.text()));
    let thread = &threads[usize::from(input.byte() % 2)];
    let argument =
        |input: &mut Input<'_>| Argument { kind: input.text().into(), name: input.text().into(), value: input.text() };
    let arguments = (0..input.byte() % 3).map(|_| argument(input)).collect();
    thread.region(Region {
        name,
        category,
        start_ns: input.time(),
        end_ns: input.time(),
        links: Links { stack_id: input.time(), ..Links::default() },
        arguments,
        extdata: (input.flag()).then(|| input.text().into()),
        source: input.flag().then(|| {
            let call_stack = (0..input.byte() % 3).map(|_| input.text()).collect();
            Box::new(Source { call_stack, file: input.text(), line: input.byte().into() })
        }),
    })
}

/// How many rows there are.
#[derive(Default)]
struct Rows(u64);

impl RowSink for Rows {
    fn columns(&mut self, _: &[String]) -> Result<(), Error> {
        Ok(())
    }

    fn row(&mut self, _: &[query::Value<'_>]) -> Result<(), Error> {
        self.0 += 1;
        Ok(())
    }
}

/// A database, as the bytes of its file, into CSV.
pub fn csv(data: &[u8]) {
    with_directory(|directory| {
        let input = directory.join("in.db");
        write(&input, data);
        let request = Request { traces: vec![input], ..Request::default() };
        let Ok(query) = Query::open(&request, &QuerySettings { own_clocks: true, ..QuerySettings::default() }) else {
            return;
        };
        let Ok(files) = query.write_csv(&directory.join("csv"), "out", &CsvSettings::default()) else { return };
        for file in files {
            assert_eq!(file.rows + 1, records(&file.path), "{}", file.path.display());
            std::fs::remove_file(&file.path).expect("just written");
        }
    });
}

/// Records of a CSV file: line ends outside of quotes.
fn records(path: &Path) -> u64 {
    let text = std::fs::read(path).expect("just written");
    let (mut quoted, mut records) = (false, 0);
    for byte in text {
        quoted ^= byte == b'"';
        records += u64::from(byte == b'\n' && !quoted);
    }
    assert!(!quoted, "a quote is open at the end");
    records
}

/// What was told to a writer, and what stands in its output.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    slices: u64,
    length_ns: i128,
    instants: u64,
    counters: u64,
}

fn compare(told: &Told, found: &Told, report: &WriteReport, bytes: usize) {
    assert_eq!(found, told, "what is in the output, and what was told");
    let reported = (report.slices, report.instants, report.counters, report.bytes);
    assert_eq!(reported, (told.slices, told.instants, told.counters, bytes as u64));
}

/// The chunks that the input means, written; None where one is refused.
fn written(format: OutputFormat, data: &[u8]) -> Option<(Told, WriteReport, Vec<u8>)> {
    let mut input = Input(data);
    let meta = Meta { base_ns: input.time(), metadata: vec![(input.text(), input.text())], ..Meta::default() };
    let mut writer = probe_sync_writers::open(format, Vec::new(), &meta);
    let mut told = Told::default();
    while !input.0.is_empty() {
        let chunk = chunk(&mut input);
        writer.write(&chunk).ok()?;
        let lengths = chunk.slices.start_ns.iter().zip(&chunk.slices.end_ns);
        told.length_ns += lengths.map(|(start, end)| i128::from(*end) - i128::from(*start)).sum::<i128>();
        told.slices += chunk.slices.track.len() as u64;
        told.instants += chunk.instants.track.len() as u64;
        told.counters += chunk.counters.track.len() as u64;
    }
    let (report, trace) = writer.finish().expect("memory takes everything");
    Some((told, report, trace))
}

/// One chunk; what it says need not hold together.
fn chunk(input: &mut Input<'_>) -> Chunk {
    let mut chunk = Chunk::default();
    for _ in 0..input.byte() % 64 {
        match input.byte() % 8 {
            0 => chunk.tracks.push(track(input)),
            1 => drop(chunk.strings.push(&input.text())),
            2 => drop(chunk.strings.intern(&input.text())),
            3 => {
                let (key, value) = (input.string_id(), value(&mut chunk, input));
                chunk.args.key.push(key);
                chunk.args.value.push(value);
            }
            4 => {
                chunk.instants.track.push(input.track_id());
                chunk.instants.time_ns.push(input.time());
                chunk.instants.name.push(input.string_id());
                chunk.instants.category.push(input.string_id());
                chunk.instants.args.push(input.args());
            }
            5 => {
                chunk.counters.track.push(input.track_id());
                chunk.counters.time_ns.push(input.time());
                chunk.counters.value.push(f64::from_bits(input.time() as u64));
            }
            6 => {
                chunk.flows.track.push(input.track_id());
                chunk.flows.time_ns.push(input.time());
                chunk.flows.flow.push(input.flow());
            }
            _ => slice(&mut chunk, input),
        }
    }
    chunk
}

fn slice(chunk: &mut Chunk, input: &mut Input<'_>) {
    let start = input.time();
    let end =
        if input.byte().is_multiple_of(4) { input.time() } else { start.saturating_add(i64::from(input.byte() % 16)) };
    chunk.slices.track.push(input.track_id());
    chunk.slices.start_ns.push(start);
    chunk.slices.end_ns.push(end);
    chunk.slices.name.push(input.string_id());
    chunk.slices.category.push(input.string_id());
    chunk.slices.flow.push(input.flow());
    chunk.slices.args.push(input.args());
}

fn track(input: &mut Input<'_>) -> Track {
    let parent = (input.flag()).then(|| input.track_id());
    let kind = match input.byte() % 6 {
        0 => {
            let (pid, host, rank) = (input.time(), input.text(), Some(u32::from(input.byte())));
            TrackKind::Process(Process { pid, host, rank, guid: input.text() })
        }
        1 => TrackKind::Thread { tid: input.time() },
        2 => TrackKind::Agent,
        3 => TrackKind::Queue,
        4 => TrackKind::Stream,
        _ => TrackKind::Counter { unit: input.text() },
    };
    Track { parent, kind, name: input.text() }
}

/// A value of an argument. A text of JSON is JSON: whoever fills a chunk promises that.
fn value(chunk: &mut Chunk, input: &mut Input<'_>) -> Value {
    match input.byte() % 5 {
        0 => Value::Integer(input.time()),
        1 => Value::Float(f64::from_bits(input.time() as u64)),
        2 => Value::Boolean(input.flag()),
        3 => Value::Text(input.string_id()),
        _ => {
            let text = serde_json::to_string(&[input.text()]).expect("a text is JSON");
            Value::Json(chunk.strings.push(&text))
        }
    }
}

/// What is left of the input; beyond its end everything is zero.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn flag(&mut self) -> bool {
        self.byte().is_multiple_of(2)
    }

    /// A small number mostly, any number now and then.
    fn time(&mut self) -> i64 {
        match self.byte() {
            byte if byte < 240 => i64::from(byte),
            _ => i64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    fn text(&mut self) -> String {
        let length = usize::from(self.byte() % 12).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }

    fn track_id(&mut self) -> TrackId {
        TrackId(u32::from(self.byte() % 8))
    }

    fn string_id(&mut self) -> StringId {
        StringId(u32::from(self.byte() % 4))
    }

    fn args(&mut self) -> ArgRange {
        ArgRange { first: u32::from(self.byte() % 4), count: u32::from(self.byte() % 3) }
    }

    fn flow(&mut self) -> Flow {
        let end = [FlowEnd::Out, FlowEnd::Step, FlowEnd::In][usize::from(self.byte() % 3)];
        Flow { id: u64::from(self.byte() % 4), end }
    }
}

fn number(message: &[u8], field: u32) -> Option<u64> {
    let fields = Fields::of(message).map(|found| found.expect("sound"));
    fields.filter(|found| found.number == field).find_map(|found| match found.value {
        Wire::Number(value) => Some(value),
        _ => None,
    })
}

fn messages(message: &[u8], field: u32) -> impl Iterator<Item = &[u8]> {
    let fields = Fields::of(message).map(|found| found.expect("sound"));
    fields.filter(move |found| found.number == field).filter_map(|found| match found.value {
        Wire::Bytes(value) => Some(value),
        _ => None,
    })
}

/// Microseconds with three decimals, exactly.
fn nanoseconds(text: &str) -> i128 {
    let (whole, decimals) = text.split_once('.').expect("three decimals");
    assert_eq!(decimals.len(), 3, "{text}");
    format!("{whole}{decimals}").parse().expect("a number of digits")
}

/// An object, with its members as they stand.
type Members = HashMap<String, Box<serde_json::value::RawValue>>;
