//! Tests of the format on hand-made files and, where they are present, on the shared data sets.

mod chunks;
mod facts;
mod launches;
mod merge;
mod planes;
mod programs;
mod refusals;
mod rewrite;
mod runs;

use std::io::Write;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::facts::read_facts;
use super::merge::merge;
use super::rewrite::rewrite;
use super::stat::{Stat, StatValue};
use super::*;
use crate::PlaneLayout;
use crate::model::{ClockPair, CollectiveKind, Device, Instance, PairKind, Picoseconds, Replicas, TraceFacts};
use crate::protobuf::{Fields, Value, put_bytes, put_number};

/// Session start of hand-made files, Unix ns.
const START_NS: i64 = 1_700_000_000_000_000_000;
const START_PS: Picoseconds = START_NS as Picoseconds * 1000;

/// A message built from pieces.
#[derive(Clone, Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(mut self, field: u32, value: i64) -> Message {
        put_number(&mut self.0, field, value as u64);
        self
    }

    fn text(mut self, field: u32, value: &str) -> Message {
        put_bytes(&mut self.0, field, value.as_bytes());
        self
    }

    fn message(mut self, field: u32, value: impl std::borrow::Borrow<Message>) -> Message {
        put_bytes(&mut self.0, field, &value.borrow().0);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Message {
        self.0.extend_from_slice(bytes);
        self
    }

    fn entry(self, field: u32, number: i64, name: &str) -> Message {
        self.message(
            field,
            Message::default().number(1, number).message(2, Message::default().number(1, number).text(2, name)),
        )
    }
}

fn event(metadata: i64, offset_ps: i64, duration_ps: i64) -> Message {
    Message::default().number(1, metadata).number(2, offset_ps).number(3, duration_ps)
}

fn session_plane() -> Message {
    Message::default()
        .text(2, "Task Environment")
        .message(6, Message::default().number(1, 1).number(3, START_NS))
        .message(6, Message::default().number(1, 2).number(3, START_NS + 5_000_000))
        .entry(5, 1, "profile_start_time")
        .entry(5, 2, "profile_stop_time")
}

/// A file of these planes, the session's plane last, as real files have it.
fn space(planes: &[Message]) -> Vec<u8> {
    let mut message = Message::default();
    for plane in planes {
        message = message.message(1, plane.clone());
    }
    message.message(1, session_plane()).text(4, "host7").0
}

struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Files {
        Files { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        std::fs::write(self.path(name), bytes).expect("a file");
        self.path(name)
    }

    fn rewritten(
        &self,
        bytes: &[u8],
        options: &RewriteOptions<'_>,
        map: &mut dyn FnMut(Picoseconds) -> Picoseconds,
    ) -> Vec<u8> {
        let (input, output) = (self.put("in", bytes), self.path("out"));
        rewrite(&input, &output, options, map).expect("rewritten");
        std::fs::read(output).expect("the output")
    }
}

impl Files {
    /// A file that outlives this value; for one-line tests.
    fn keep(self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.put(name, bytes);
        let _ = self.folder.keep();
        path
    }
}

/// An event seen absolutely.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    name: String,
    start_ps: Picoseconds,
    duration_ps: Picoseconds,
    numbers: Vec<(String, i64)>,
}

fn children(bytes: &[u8], number: u32) -> Vec<&[u8]> {
    let fields = Fields::of(bytes).map(|field| field.expect("a field")).filter(|field| field.number == number);
    fields.map(|field| if let Value::Bytes(bytes) = field.value { bytes } else { panic!("not bytes") }).collect()
}

fn last_number(bytes: &[u8], number: u32) -> Option<i64> {
    let fields = Fields::of(bytes).map(|field| field.expect("a field")).filter(|field| field.number == number);
    fields.filter_map(|field| if let Value::Number(value) = field.value { Some(value as i64) } else { None }).last()
}

fn names(plane: &[u8], field: u32) -> std::collections::HashMap<i64, String> {
    let name = |entry: &[u8]| {
        let value = children(entry, 2)[0];
        children(value, 2).first().map_or(String::new(), |name| String::from_utf8_lossy(name).into_owned())
    };
    children(plane, field).into_iter().map(|entry| (last_number(entry, 1).unwrap_or(0), name(entry))).collect()
}

fn plane_name(plane: &[u8]) -> String {
    children(plane, 2).first().map_or(String::new(), |name| String::from_utf8_lossy(name).into_owned())
}

/// All timed events of a file with absolute times, decoded without the code under test above the
/// wire.
fn seen(bytes: &[u8]) -> Vec<Seen> {
    let start_ns =
        children(bytes, 1).into_iter().find(|plane| plane_name(plane) == "Task Environment").map_or(0, |plane| {
            let stats = names(plane, 5);
            let start = children(plane, 6).into_iter().find(|stat| {
                stats.get(&last_number(stat, 1).unwrap_or(0)).is_some_and(|name| name == "profile_start_time")
            });
            start.and_then(|stat| last_number(stat, 3)).expect("a start")
        });
    let mut events = Vec::new();
    for plane in children(bytes, 1) {
        let (event_names, stat_names) = (names(plane, 4), names(plane, 5));
        for line in children(plane, 3) {
            let line_ps = Picoseconds::from(start_ns + last_number(line, 3).unwrap_or(0)) * 1000;
            for event in children(line, 4).into_iter().filter(|event| last_number(event, 5).is_none()) {
                let stats = children(event, 4).into_iter().map(|stat| Stat::parse(stat).expect("a stat"));
                let numbers = stats.filter_map(|stat| match stat.value {
                    StatValue::Number(value) => Some((stat_names[&(stat.number as i64)].clone(), value as i64)),
                    _ => None,
                });
                events.push(Seen {
                    name: event_names.get(&last_number(event, 1).unwrap_or(0)).cloned().unwrap_or_default(),
                    start_ps: line_ps + Picoseconds::from(last_number(event, 2).unwrap_or(0)),
                    duration_ps: Picoseconds::from(last_number(event, 3).unwrap_or(0)),
                    numbers: numbers.collect(),
                });
            }
        }
    }
    events
}

fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/jax");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: the shared data sets are absent");
    None
}

/// All real files of the data sets that are whole.
fn real_files(folder: &Path) -> Vec<PathBuf> {
    let sets = std::fs::read_dir(folder).expect("the sets").map(|set| set.expect("a set").path());
    let files = sets.filter(|set| !set.ends_with("x_corrupt_utf8_mangled")).flat_map(|set| {
        std::fs::read_dir(set).expect("a set").map(|file| file.expect("a file").path()).collect::<Vec<_>>()
    });
    let mut files =
        files.filter(|file| file.extension().is_some_and(|extension| extension == "pb")).collect::<Vec<_>>();
    files.sort();
    files
}

fn facts_of(path: &Path) -> TraceFacts {
    read_facts(path, &FactOptions::default()).expect("facts")
}
