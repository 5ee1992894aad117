//! A trace file of any size as a sequence of items: the keys and values of the root object, if it is
//! one, and the events one by one.
//!
//! The items together are the file, byte for byte, so a writer that changes nothing copies
//! everything. Events, keys and the few values that a caller requests must fit into [`BUFFER_MAX`];
//! values of other keys are passed on in pieces and may be of any size. It does not decode strings
//! or validate values that it only passes on.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::ahead::{Ahead, Block, FoundEvent};
use super::event::{Event, Separator, find_event};
use super::layout::Layouts;
use super::root::Root;
use super::scan::{self, Brackets, ByteScan, Fault, Member};
use super::source::Source;
use super::structure::{Structure, StructureView};
use crate::Error;
use crate::workers::workers;

/// A part of the file.
pub(super) enum Item<'a> {
    /// White space and the opening brace of the root, if it is an object.
    Open(&'a [u8]),
    /// Comma, key, colon and white space.
    Key {
        /// The complete bytes.
        bytes: &'a [u8],
        /// The key as written, without quotes.
        raw: &'a [u8],
        /// The decoded key.
        key: Cow<'a, [u8]>,
    },
    /// A requested value, complete.
    Asked(&'a [u8]),
    /// A piece of another value.
    Piece(&'a [u8]),
    /// The bracket before the events, with what precedes it if the root is an array; nothing before
    /// events of lines.
    EventsOpen(&'a [u8]),
    /// An event.
    Event(Event<'a>),
    /// White space and the bracket after the events, which may be missing where the root is no object.
    EventsClose(&'a [u8]),
    /// The closing brace of the root, or white space after it.
    Close(&'a [u8]),
    /// The end of the file.
    End,
}

/// A file that is being read.
pub(super) struct Document {
    path: PathBuf,
    /// Where the bytes come from, until other threads have it.
    source: Option<Source>,
    ahead: Option<Ahead>,
    is_gzip: bool,
    asked: &'static [&'static [u8]],
    buffer: Vec<u8>,
    /// Start of the current item; everything before it is done.
    start: usize,
    filled: usize,
    /// Events of the buffer that are known already, and how many of them have been returned.
    known: Vec<FoundEvent>,
    returned: usize,
    /// The structure of the filled buffer from a position on, since it was last filled.
    structure: Structure,
    structure_from: Option<usize>,
    layouts: Layouts<Member>,
    /// Whether the structure tells what is valid.
    judges: bool,
    /// Bytes of the file before the first byte of the buffer.
    origin: u64,
    ended: bool,
    state: State,
    root: Root,
    events_seen: bool,
}

#[derive(Copy, Clone)]
enum State {
    Start,
    Member { first: bool },
    Value { kind: Kind },
    Nested(Nested),
    Events { first: bool },
    AfterRoot,
}

#[derive(Copy, Clone)]
enum Kind {
    Asked,
    Events,
    Other,
}

/// Inside a value that is handed on in pieces.
#[derive(Copy, Clone, Default)]
struct Nested {
    brackets: Brackets,
    in_string: bool,
    escaped: bool,
}

impl Document {
    /// Opens a file; `asked` are the root's keys whose complete values are requested.
    pub(super) fn open(path: &Path, asked: &'static [&'static [u8]]) -> Result<Document, Error> {
        let source = Source::open(path)?;
        Ok(Document {
            path: path.to_path_buf(),
            is_gzip: source.is_gzip(),
            source: Some(source),
            ahead: None,
            asked,
            buffer: vec![0; BUFFER_START],
            start: 0,
            filled: 0,
            known: Vec::new(),
            returned: 0,
            structure: Structure::default(),
            structure_from: None,
            layouts: Layouts::default(),
            judges: false,
            origin: 0,
            ended: false,
            state: State::Start,
            root: Root::Object,
            events_seen: false,
        })
    }

    /// Makes [`Event::judged`] fast for all events.
    pub(super) fn judging(mut self) -> Document {
        self.judges = true;
        self
    }

    /// Whether the file is compressed.
    pub(super) fn is_gzip(&self) -> bool {
        self.is_gzip
    }

    /// How much of the file has been returned.
    pub(super) fn position(&self) -> u64 {
        self.origin + self.start as u64
    }

    /// An error at `at` bytes after `offset` in the file.
    pub(super) fn malformed(&self, offset: u64, at: usize, problem: &str) -> Error {
        Error::malformed(&self.path, offset + at as u64, problem)
    }

    /// The next part of the file.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Item<'_>, Error> {
        match self.state {
            State::Events { first } => self.next_event(first),
            State::Start => self.open_root(),
            State::Member { first } => self.next_member(first),
            State::Value { kind } => self.open_value(kind),
            State::Nested(nested) => self.next_piece(nested),
            State::AfterRoot => self.next_tail(),
        }
    }

    fn next_event(&mut self, first: bool) -> Result<Item<'_>, Error> {
        while self.returned == self.known.len() {
            if let Some(length) = self.find_event(first)? {
                self.state = if self.root == Root::Object { State::Member { first: false } } else { State::AfterRoot };
                return Ok(Item::EventsClose(self.take(length)));
            }
        }
        let FoundEvent { lead, spans } = &self.known[self.returned];
        self.returned += 1;
        self.state = State::Events { first: false };
        let (begin, end) = (self.start + lead, self.start + lead + spans.end);
        let offset = self.origin + begin as u64;
        let lead = &self.buffer[self.start..begin];
        self.start = end;
        let from = self.structure_from.expect("events are found in the structure of the buffer");
        let ends = StructureView::new(&self.structure, begin - from);
        Ok(Item::Event(Event { lead, bytes: &self.buffer[begin..end], spans, offset, ends }))
    }

    /// Makes at least one more event known, or more bytes available; returns the length up to the
    /// bracket behind the events, if that comes next.
    fn find_event(&mut self, first: bool) -> Result<Option<usize>, Error> {
        let from = *self.structure_from.get_or_insert_with(|| {
            self.structure.index(&self.buffer[self.start..self.filled], self.judges);
            self.start
        });
        let ends = StructureView::new(&self.structure, self.start - from);
        let separator = if first { Separator::Nothing } else { self.root.separator() };
        match find_event(&self.buffer[self.start..self.filled], separator, ends, &mut self.layouts) {
            Ok(Some((lead, Some(spans)))) => {
                self.known.clear();
                self.returned = 0;
                self.known.push(FoundEvent { lead, spans });
                Ok(None)
            }
            Ok(Some((length, None))) => Ok(Some(length)),
            Err(fault) => Err(self.fault_here(fault.at, fault.problem)),
            Ok(None) if self.refill()? => Ok(None),
            Ok(None) if self.root.may_end_with(&self.buffer[self.start..self.filled]) => {
                Ok(Some(self.filled - self.start))
            }
            Ok(None) => Err(self.cut("inside traceEvents")),
        }
    }

    fn open_root(&mut self) -> Result<Item<'_>, Error> {
        let (end, root) = self.attempt("before any JSON", Root::find)?;
        self.root = root;
        if root == Root::Object {
            self.state = State::Member { first: true };
            return Ok(Item::Open(self.take(end)));
        }
        (self.state, self.events_seen) = (State::Events { first: true }, true);
        Ok(Item::EventsOpen(self.take(end)))
    }

    fn next_member(&mut self, first: bool) -> Result<Item<'_>, Error> {
        let found = self.attempt("inside the root object", |bytes| {
            let mut at = scan::skip_space(bytes, 0);
            match bytes.get(at) {
                None => return Ok(None),
                Some(b'}') => return Ok(Some((at + 1, 0..0))),
                Some(b',') if !first => at = scan::skip_space(bytes, at + 1),
                Some(_) if first => {}
                Some(_) => return Err(Fault { at, problem: "a comma or the end of the root was expected here" }),
            }
            match bytes.get(at) {
                None => return Ok(None),
                Some(b'"') => {}
                Some(_) => return Err(Fault { at, problem: "a key was expected here" }),
            }
            let Some(key_end) = scan::string_end(bytes, at) else { return Ok(None) };
            let key = at + 1..key_end - 1;
            at = scan::skip_space(bytes, key_end);
            match bytes.get(at) {
                None => return Ok(None),
                Some(b':') => {}
                Some(_) => return Err(Fault { at, problem: "a colon was expected here" }),
            }
            at = scan::skip_space(bytes, at + 1);
            // The value's first byte belongs to the value, but must be there for white space to
            // have ended.
            Ok(bytes.get(at).map(|_| (at, key.clone())))
        })?;
        let (end, key) = found;
        if key.is_empty() && self.buffer[self.start + end - 1] == b'}' {
            if !self.events_seen {
                return Err(self.fault_here(end - 1, "not a trace: the root has no traceEvents"));
            }
            self.state = State::AfterRoot;
            return Ok(Item::Close(self.take(end)));
        }
        let wrong = || self.fault_here(key.start, scan::WRONG_ESCAPE);
        let name = scan::key(&self.buffer[self.start + key.start..self.start + key.end]).ok_or_else(wrong)?;
        let kind = match &*name {
            EVENTS => Kind::Events,
            name if self.asked.contains(&name) => Kind::Asked,
            _ => Kind::Other,
        };
        if matches!(kind, Kind::Events) && std::mem::replace(&mut self.events_seen, true) {
            return Err(self.fault_here(key.start, "the root has traceEvents twice"));
        }
        self.state = State::Value { kind };
        let bytes = self.take(end);
        let raw = &bytes[key];
        Ok(Item::Key { bytes, raw, key: scan::key(raw).unwrap_or(Cow::Borrowed(raw)) })
    }

    fn open_value(&mut self, kind: Kind) -> Result<Item<'_>, Error> {
        let first = self.attempt("before a value", |bytes| Ok(bytes.first().copied()))?;
        match (kind, first) {
            (Kind::Events, b'[') => {
                self.state = State::Events { first: true };
                Ok(Item::EventsOpen(self.take(1)))
            }
            (Kind::Events, _) => Err(self.fault_here(0, "traceEvents is not an array")),
            (Kind::Other, b'{' | b'[' | b'"') => self.next_piece(Nested::default()),
            (Kind::Asked | Kind::Other, _) => {
                let end = self.attempt("inside a value", |bytes| scan::value_end(bytes, 0, &ByteScan))?;
                self.state = State::Member { first: false };
                let value = self.take(end);
                Ok(if matches!(kind, Kind::Asked) { Item::Asked(value) } else { Item::Piece(value) })
            }
        }
    }

    fn next_piece(&mut self, mut nested: Nested) -> Result<Item<'_>, Error> {
        self.attempt("inside a value", |bytes| Ok(bytes.first().map(|_| ())))?;
        match nested.advance(&self.buffer[self.start..self.filled]) {
            Ok((length, finished)) => {
                self.state = if finished { State::Member { first: false } } else { State::Nested(nested) };
                Ok(Item::Piece(self.take(length)))
            }
            Err(fault) => Err(self.fault_here(fault.at, fault.problem)),
        }
    }

    fn next_tail(&mut self) -> Result<Item<'_>, Error> {
        if self.start == self.filled && !self.refill()? {
            return Ok(Item::End);
        }
        let rest = &self.buffer[self.start..self.filled];
        let blank = scan::skip_space(rest, 0);
        // A zero byte pads what block devices and some copiers wrote; Python's reader takes it as
        // an error, and so do we.
        if blank < rest.len() {
            return Err(self.fault_here(blank, "unexpected data after the end of the root object"));
        }
        Ok(Item::Close(self.take(blank)))
    }

    /// Runs `step` on the available data, with more and more of the file until it succeeds.
    #[inline]
    fn attempt<T>(
        &mut self,
        place: &'static str,
        step: impl Fn(&[u8]) -> Result<Option<T>, Fault>,
    ) -> Result<T, Error> {
        loop {
            match step(&self.buffer[self.start..self.filled]) {
                Ok(Some(found)) => return Ok(found),
                Err(fault) => return Err(self.fault_here(fault.at, fault.problem)),
                Ok(None) => {
                    if !self.refill()? {
                        return Err(self.cut(place));
                    }
                }
            }
        }
    }

    /// Reads on; `false` at the end of the file.
    #[cold]
    fn refill(&mut self) -> Result<bool, Error> {
        if self.ended {
            return Ok(false);
        }
        self.structure_from = None;
        // Blocks are cut at commas.
        if self.root == Root::Object && self.origin >= ALONE_BYTES && self.ahead.is_none() && workers() > 1 {
            let start = |source| Ahead::start(source, workers().min(SCANNERS_MAX), self.judges);
            let started = self.source.take().map(start).transpose();
            self.ahead = started.map_err(Error::io(&self.path, "start threads for"))?;
        }
        if self.start == self.filled && matches!(self.state, State::Events { first: false }) && self.take_block()? {
            return Ok(true);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.origin += self.start as u64;
            self.filled -= self.start;
            self.start = 0;
        }
        if self.filled < BUFFER_START {
            // Something long may have made it grow, and a block may be short. Reads into a buffer of
            // this size end where a block does, so that the next one is met at its start.
            self.buffer.resize(BUFFER_START, 0);
        }
        if self.filled == self.buffer.len() {
            if self.filled >= BUFFER_MAX {
                let problem = format!("the value that begins here does not end within {BUFFER_MAX} bytes");
                return Err(Error::malformed(&self.path, self.origin, problem));
            }
            self.buffer.resize((self.filled * 2).min(BUFFER_MAX), 0);
        }
        // A buffer that had to grow is filled before it is looked at again, or something long in
        // small pieces would be looked at once per piece.
        let before = self.filled;
        let enough = if self.buffer.len() > BUFFER_START { self.buffer.len() } else { before + 1 };
        while self.filled < enough && !self.ended {
            let count = self.fill()?;
            self.filled += count;
            self.ended = count == 0;
        }
        Ok(self.filled > before)
    }

    /// Continues with a block of which other threads know the events; returns `false` if there is
    /// none, or part of the next one has been read.
    fn take_block(&mut self) -> Result<bool, Error> {
        let Some(ahead) = &mut self.ahead else { return Ok(false) };
        let next = match ahead.block() {
            Ok(Some(next)) => next,
            Ok(None) => return Ok(false),
            Err(error) => return Err(self.cannot_read(error)),
        };
        let Block { bytes, structure, events } = next;
        self.origin += self.filled as u64;
        (self.start, self.filled, self.returned, self.structure_from) = (0, bytes.len(), 0, Some(0));
        ahead.give_back(Block {
            bytes: std::mem::replace(&mut self.buffer, bytes),
            structure: std::mem::replace(&mut self.structure, structure),
            events: std::mem::replace(&mut self.known, events),
        });
        Ok(true)
    }

    /// Reads once; 0 at the end of the file.
    fn fill(&mut self) -> Result<usize, Error> {
        let free = &mut self.buffer[self.filled..];
        let read = match (&mut self.ahead, &mut self.source) {
            (Some(ahead), _) => ahead.read(free),
            (None, Some(source)) => source.read(free),
            (None, None) => Ok(0),
        };
        read.map_err(|error| self.cannot_read(error))
    }

    fn cannot_read(&self, error: std::io::Error) -> Error {
        if !self.is_gzip {
            return Error::io(&self.path, "read")(error);
        }
        let problem = format!("the gzip data ends early or is damaged ({error})");
        Error::malformed(&self.path, self.origin + self.filled as u64, problem)
    }

    /// Takes `length` bytes off the front.
    #[inline]
    fn take(&mut self, length: usize) -> &[u8] {
        let from = self.start;
        self.start += length;
        &self.buffer[from..from + length]
    }

    fn fault_here(&self, at: usize, problem: &str) -> Error {
        self.malformed(self.origin, self.start + at, problem)
    }

    fn cut(&self, place: &str) -> Error {
        self.malformed(self.origin, self.filled, &format!("the file ends {place}"))
    }
}

impl Nested {
    /// Goes through `bytes`; returns how many belong to the value, and whether it ended.
    fn advance(&mut self, bytes: &[u8]) -> Result<(usize, bool), Fault> {
        let mut at = 0;
        while at < bytes.len() {
            if self.in_string {
                if self.escaped {
                    self.escaped = false;
                    at += 1;
                    continue;
                }
                match memchr::memchr2(b'"', b'\\', &bytes[at..]) {
                    None => break,
                    Some(offset) => {
                        self.escaped = bytes[at + offset] == b'\\';
                        self.in_string = self.escaped;
                        at += offset + 1;
                    }
                }
            } else {
                let byte = bytes[at];
                at += 1;
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' if !self.brackets.open(byte == b'{') => {
                        return Err(Fault { at: at - 1, problem: "values nest too deep" });
                    }
                    b'}' | b']' if !self.brackets.close(byte == b'}') => {
                        return Err(Fault { at: at - 1, problem: "mismatched closing bracket" });
                    }
                    _ => {}
                }
            }
            if !self.in_string && self.brackets.is_empty() {
                return Ok((at, true));
            }
        }
        Ok((bytes.len(), false))
    }
}

/// Size of a read; it fits into a core's own cache.
const BUFFER_START: usize = 512 << 10;
/// Threads that find events, at most: one consumer needs no more.
const SCANNERS_MAX: usize = 8;
/// Smaller files are not worth threads.
const ALONE_BYTES: u64 = 1 << 20;
/// Anything without an end within this many bytes is refused, including white space.
pub(super) const BUFFER_MAX: usize = 32 << 20;
/// The key of the events.
const EVENTS: &[u8] = b"traceEvents";

#[cfg(test)]
mod tests {
    use super::*;

    /// Every item of a text, and the text reassembled.
    fn walk(text: &[u8]) -> Result<Vec<u8>, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        std::fs::write(&path, text).unwrap();
        let mut document = Document::open(&path, &[b"baseTimeNanoseconds"])?;
        let mut out = Vec::new();
        loop {
            match document.next()? {
                Item::End => return Ok(out),
                Item::Event(event) => {
                    out.extend_from_slice(event.lead);
                    out.extend_from_slice(event.bytes);
                    let begin = usize::try_from(event.offset).unwrap();
                    assert_eq!(&text[begin..begin + event.bytes.len()], event.bytes, "offsets are those of the file");
                }
                Item::Open(bytes)
                | Item::Key { bytes, .. }
                | Item::Asked(bytes)
                | Item::Piece(bytes)
                | Item::EventsOpen(bytes)
                | Item::EventsClose(bytes)
                | Item::Close(bytes) => out.extend_from_slice(bytes),
            }
        }
    }

    fn check_refused(text: &[u8], offset: u64, problem: &str) {
        match walk(text) {
            Err(Error::Malformed { offset: at, problem: said, .. }) => {
                assert_eq!((at, said.contains(problem)), (offset, true), "{said}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn items_are_the_file() {
        let long = "y".repeat(3 * BUFFER_START);
        for text in [
            r#"{"traceEvents":[]}"#.to_owned(),
            "\u{feff}{\"traceEvents\":[]}".to_owned(),
            " { \"a\" : { \"b\":[1,\"]\\\"\"] } ,\n\"traceEvents\": [\n {\"ts\":1} , {\"ts\":2}\n ] , \"baseTimeNanoseconds\": 5 }\n\n".to_owned(),
            " [ {\"ts\":1} ,\n{\"ts\":2}\n{\"ts\":3},\n".to_owned(),
            "[]".to_owned(),
            "[\n".to_owned(),
            format!("{{\"ph\":4}}\n{}", "{\"ph\":1,\"ts\":1}\n".repeat(BUFFER_START / 8)),
            format!("{{\"a\":\"{long}\",\"b\":[{}1],\"\":2,\"traceEvents\":[{{\"name\":\"{long}\",\"ts\":1}},{{}}]}}", "1,".repeat(BUFFER_START)),
        ] {
            assert!(walk(text.as_bytes()).unwrap() == text.as_bytes());
        }
        let wild = b"{\"traceEvents\":[{\"name\":\"\x01\xff\xfe\n\\\"\",\"ts\":1}],\"x\":\"\xff\x00\"}";
        assert_eq!(walk(wild).unwrap(), wild);
    }

    #[test]
    fn threads_that_read_ahead_change_nothing() {
        let events = |count: usize, event: &str| vec![event; count].join(",\n  ");
        let usual = events(3000, r#"{"ph": "X", "name": "a },{ b", "ts": 1.5, "args": {"dims": [[1], []]}}"#);
        // Places inside of events that look like boundaries between them, an event longer than
        // several blocks, and a block without a boundary.
        let nested = events(3000, r#"{"name": "\\\"", "args": {"of": [{"a": 1}, {"b": [{"c": 2}, {"d": 3}]}]}}"#);
        let long = format!(r#"{{"name": "{}", "ts": 1}}"#, "},{".repeat(BUFFER_START));
        let devices = events(8000, r#"{"id": 0, "name": "}, {"}"#);
        let text = format!(
            r#"{{"deviceProperties": [{devices}], "traceEvents": [{usual}, {nested}, {long}, {usual}, {nested}], "x": [{devices}]}}"#
        );
        let text = text.as_bytes();
        let check = |text: &[u8]| {
            let [alone, ahead] = [1, 3].map(|workers| crate::with_workers(workers, || walk(text)));
            let [alone, ahead] = [alone, ahead]
                .map(|walked| walked.map_err(|error| error.to_string().rsplit('/').next().map(str::to_owned)));
            assert!(alone == ahead, "{} bytes: {:?} {:?}", text.len(), alone.err(), ahead.err());
        };
        assert!(crate::with_workers(3, || walk(text)).is_ok_and(|walked| walked == text));
        // Longer than any event may be, whatever the size of the buffer was before.
        let over = "y".repeat(BUFFER_MAX);
        check(format!(r#"{{"traceEvents": [{usual}, {nested}, {usual}, {{"name": "{over}"}}]}}"#).as_bytes());
        for step in 1..7 {
            check(&text[..text.len() * step / 7 + step]);
            let mut damaged = text.to_vec();
            damaged[text.len() * step / 7 - step] = b"}],\"x\\"[step % 6];
            check(&damaged);
        }
    }

    #[test]
    fn what_is_no_trace_is_refused_at_its_place() {
        check_refused(b"", 0, "before any JSON");
        check_refused(b"   ", 3, "before any JSON");
        check_refused(b"\x0a\x05hello", 1, "neither a JSON object nor an array");
        check_refused(b"[{}, {\"ts", 9, "ends inside traceEvents");
        check_refused(b"[{}] 1", 5, "unexpected data");
        check_refused(b"[{},, {}]", 4, "not an object");
        check_refused(b"{\"a\":1}", 6, "no traceEvents");
        check_refused(b"{\"traceEvents\":{}}", 15, "not an array");
        check_refused(b"{\"traceEvents\":[1]}", 16, "not an object");
        check_refused(b"{\"traceEvents\":[{\"ts\":1} {\"ts\":2}]}", 25, "comma");
        check_refused(b"{\"traceEvents\":[{\"ts\":1},{\"t", 28, "ends inside traceEvents");
        check_refused(b"{\"traceEvents\":[],\"traceEvents\":[]}", 19, "twice");
        check_refused(b"{\"traceEvents\":[]}x", 18, "unexpected data");
        check_refused(b"{\"traceEvents\":[],\"a\":[[1]", 26, "ends inside a value");
        check_refused(
            format!("{{\"a\":{}", "[".repeat(100_000)).as_bytes(),
            5 + u64::from(scan::DEPTH_MAX),
            "too deep",
        );
        let blank = [b"{\"traceEvents\":[".to_vec(), vec![b' '; BUFFER_MAX + 1]].concat();
        check_refused(&blank, 16, "does not end within");
    }
}
