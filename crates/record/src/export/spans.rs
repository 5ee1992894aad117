//! Spans that begin on one thread and end on another, with their two ends matched.
//!
//! Threads are read one after the other, so the ends of a span are far apart. They are kept in a
//! separate [`Sorter`], keyed by id instead of time, which bounds memory by spilling to disk and
//! returns the ends adjacent to each other. Spans with the same id are distinguished by name; among
//! those with the same name, the first end belongs to the first beginning.

use probe_sync_formats::chunk::{ArgRange, Chunk, Sorter, Track, TrackId, TrackKind, Value};

use super::error::ExportError;

/// Receives a span: start and end, name, kind, and a note about it.
pub(super) type Each<'a> = dyn FnMut([i64; 2], &str, &str, Option<&str>) -> Result<(), ExportError> + 'a;

/// Ends of spans.
#[derive(Debug, Default)]
pub(super) struct Spans {
    kept: Option<(Sorter, Chunk)>,
}

impl Spans {
    /// Adds one end.
    pub fn put(&mut self, id: u64, begins: bool, time_ns: i64, name: &str, kind: &str) -> Result<(), ExportError> {
        let (sorter, chunk) = self.kept.get_or_insert_with(|| (Sorter::default(), one_track()));
        let (name, kind) = (chunk.strings.intern(name), chunk.strings.intern(kind));
        let key = chunk.strings.intern(if begins { BEGIN } else { END });
        let first = chunk.args.key.len() as u32;
        chunk.args.key.push(key);
        chunk.args.value.push(Value::Integer(time_ns));
        chunk.instants.track.push(TrackId(0));
        chunk.instants.time_ns.push(id as i64);
        chunk.instants.name.push(name);
        chunk.instants.category.push(kind);
        chunk.instants.args.push(ArgRange { first, count: 1 });
        if chunk.is_full() {
            sorter.push(chunk, |_, _| true)?;
            chunk.clear();
        }
        Ok(())
    }

    /// Puts every span on its row; one without a start or an end begins or ends with the recording,
    /// and is marked.
    pub fn finish(self, recording: [i64; 2], each: &mut Each<'_>) -> Result<(), ExportError> {
        let Some((mut sorter, mut chunk)) = self.kept else { return Ok(()) };
        sorter.push(&chunk, |_, _| true)?;
        let mut sorted = sorter.finish(0)?;
        let mut found = OfId::default();
        while sorted.next(&mut chunk)? {
            for row in 0..chunk.instants.track.len() {
                let id = chunk.instants.time_ns[row];
                if found.id != Some(id) || found.held >= ENDS_MAX {
                    found.end(recording, each)?;
                    found.id = Some(id);
                }
                let at = chunk.instants.args[row].first as usize;
                let Value::Integer(time) = chunk.args.value[at] else { continue };
                let name = chunk.strings.text(chunk.instants.name[row]);
                let one = found.named(name, chunk.strings.text(chunk.instants.category[row]));
                let begins = chunk.strings.text(chunk.args.key[at]) == BEGIN;
                if begins { &mut one.begins } else { &mut one.ends }.push(time);
                found.held += 1;
            }
        }
        found.end(recording, each)
    }
}

/// All ends of one id.
#[derive(Debug, Default)]
struct OfId {
    id: Option<i64>,
    named: Vec<One>,
    held: usize,
}

/// All of one name.
#[derive(Debug, Default)]
struct One {
    name: String,
    kind: String,
    begins: Vec<i64>,
    ends: Vec<i64>,
}

impl OfId {
    fn named(&mut self, name: &str, kind: &str) -> &mut One {
        let at = self.named.iter().position(|one| one.name == name).unwrap_or_else(|| {
            self.named.push(One { name: name.to_owned(), kind: kind.to_owned(), ..One::default() });
            self.named.len() - 1
        });
        &mut self.named[at]
    }

    fn end(&mut self, recording: [i64; 2], each: &mut Each<'_>) -> Result<(), ExportError> {
        self.held = 0;
        self.named.drain(..).try_for_each(|one| one.end(recording, each))
    }
}

impl One {
    fn end(mut self, recording: [i64; 2], each: &mut Each<'_>) -> Result<(), ExportError> {
        self.begins.sort_unstable();
        self.ends.sort_unstable();
        for at in 0..self.begins.len().max(self.ends.len()) {
            let (begin, end) = (self.begins.get(at).copied(), self.ends.get(at).copied());
            let mark = match (begin, end) {
                (Some(_), Some(_)) => None,
                (Some(_), None) => Some("still open at the end of the recording"),
                (None, _) => Some("its start was not recorded"),
            };
            let start = begin.unwrap_or(recording[0]).min(end.unwrap_or(i64::MAX));
            let end = end.unwrap_or(recording[1]).max(start);
            each([start, end], &self.name, &self.kind, mark)?;
        }
        Ok(())
    }
}

fn one_track() -> Chunk {
    let mut chunk = Chunk::default();
    chunk.tracks.push(Track { parent: None, kind: TrackKind::Agent, name: String::new() });
    chunk
}

const BEGIN: &str = "begin";
const END: &str = "end";
/// Most ends of one id held at once; if a program gives one id to all its spans, they are handled
/// up to this limit.
const ENDS_MAX: usize = 1 << 16;
