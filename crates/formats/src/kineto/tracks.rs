//! New numbers for the processes, threads and ids of each node, so that no two nodes share any.
//!
//! A `pid` may be a number, `"Spans"`, `"Traces"` or `""`, and GPUs are processes 0, 1, … on every
//! node, but viewers require whole numbers below 2^32. Node k's processes and threads get numbers
//! from (k + 1)·[`STRIDE`] upwards, in order of appearance; a process and its main thread get the
//! same number. The contents of Kineto's separate processes (`Spans`, `Traces`, and moments without
//! a process) become threads of the trace's process. Ids of flows and correlations are shifted by k
//! times a power of ten above every id, so that the old id can still be read from the new one.
//! Names keep the original numbers: `rank 2 · gpu-01 · python 30592`, `rank 2 · gpu-01 · GPU 0`.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;

use foldhash::fast::RandomState;

use super::edits::Edits;
use super::event::Event;
use super::layout::{Key, Layouts};
use super::scan::{self, EventSpans, Fault, Span};
use super::timing::is_metadata;
use super::words::{self, Side};

/// Position of a fault in an event, and the fault.
pub(super) type EventFault = (usize, &'static str);

/// One node's numbers.
pub(super) struct Tracks {
    /// Prefix of names, as the inside of a JSON string.
    prefix: Vec<u8>,
    first: u64,
    used: u64,
    id_shift: u64,
    /// Position of the node among all, for viewers that sort.
    place: u64,
    names: ProcessNames,
    processes: HashMap<Vec<u8>, Process, RandomState>,
    args: Args,
}

/// What a file says about its processes, possibly after their events.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessNames {
    /// By `pid`: the label as written, for example `CPU` or `GPU 0`.
    labels: HashMap<Vec<u8>, Vec<u8>>,
    /// The `pid` of the process that wrote the trace: the one labelled so, otherwise the one with
    /// the first host event.
    main: Option<Vec<u8>>,
    labelled: bool,
    /// Its name, as written.
    main_name: Option<Vec<u8>>,
    /// Names of candidate processes.
    named: HashMap<Vec<u8>, Vec<u8>>,
}

impl ProcessNames {
    /// Processes an event.
    #[inline]
    pub(super) fn look(&mut self, bytes: &[u8], spans: &EventSpans) {
        let pid = words::number(spans.pid.of(bytes));
        let numbered = pid.first().is_some_and(u8::is_ascii_digit);
        if !is_metadata(bytes, spans) {
            if self.main.is_none() && numbered && is_of_process(words::category(spans.cat.of(bytes)), pid) {
                self.main = Some(pid.to_vec());
            }
            return;
        }
        let (into, wanted) = match spans.name.of(bytes) {
            b"\"process_labels\"" => (&mut self.labels, &b"labels"[..]),
            b"\"process_name\"" => (&mut self.named, &b"name"[..]),
            _ => return,
        };
        if into.len() >= NAMED_MAX || !spans.args.of(bytes).starts_with(b"{") {
            return;
        }
        // What is wrong with an event is found when it is written.
        let _ = scan::object(&bytes[..spans.args.end()], spans.args.start(), |key, value| {
            if key == wanted && bytes[value.clone()].starts_with(b"\"") {
                into.insert(pid.to_vec(), bytes[value].to_vec());
            }
            Ok(())
        });
        if numbered && !self.labelled && self.labels.get(pid).is_some_and(|label| label == b"\"CPU\"") {
            (self.main, self.labelled) = (Some(pid.to_vec()), true);
        }
    }

    /// Must be called at the end of the file.
    pub(super) fn close(mut self) -> Self {
        let named = |main: &Vec<u8>| self.named.get(main).cloned().unwrap_or_else(|| b"\"pid\"".to_vec());
        self.main_name = self.main.as_ref().map(named);
        self.named = HashMap::new();
        self
    }

    /// The process that something is put into.
    fn home<'a>(&'a self, pid: &'a [u8]) -> &'a [u8] {
        match &self.main {
            Some(main) if REMNANTS.contains(&pid) => main,
            _ => pid,
        }
    }
}

struct Process {
    number: u64,
    named: bool,
    sorted: bool,
    threads: HashMap<Vec<u8>, Thread, RandomState>,
}

struct Thread {
    number: u64,
    named: bool,
}

/// Content of a metadata event.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Metadata {
    ProcessName,
    ProcessOrder,
    ThreadName,
    Other,
}

impl Tracks {
    /// Numbers for node number `index`, at position `place` in order of ranks; `label` precedes the
    /// names of its processes.
    pub(super) fn new(index: usize, place: usize, label: &str, id_stride: u64, names: ProcessNames) -> Tracks {
        let quoted = serde_json::Value::from(label).to_string().into_bytes();
        let prefix = quoted[1..quoted.len() - 1].to_vec();
        let index = index as u64;
        let first = (index + 1) * STRIDE;
        let place = place as u64;
        Tracks {
            prefix,
            first,
            used: 0,
            id_shift: index * id_stride,
            place,
            names,
            processes: HashMap::default(),
            args: Args::default(),
        }
    }

    /// Adds the changes of an event.
    pub(super) fn edit(&mut self, event: &Event<'_>, edits: &mut Edits) -> Result<(), EventFault> {
        let (bytes, spans) = (event.bytes, event.spans);
        if bytes.get(1..bytes.len().saturating_sub(1)).is_none_or(|body| body.trim_ascii().is_empty()) {
            // An event that says nothing has no member to put others before, and nothing to tell
            // apart.
            return Ok(());
        }
        for (span, problem) in [(spans.pid, "pid is not a name or number"), (spans.tid, "tid is not a name or number")]
        {
            // In a name made of it its quotes would end the name; and no viewer tells tracks apart
            // by such values.
            if matches!(span.of(bytes).first(), Some(b'{' | b'[')) {
                return Err((span.start(), problem));
            }
        }
        let metadata = metadata(bytes, spans);
        let [pid, tid] = [spans.pid, spans.tid].map(|span| words::number(span.of(bytes)));
        let (process, thread) = self.numbers(pid, tid, metadata)?;
        put(edits, spans.pid, "pid", process);
        put(edits, spans.tid, "tid", thread);
        for span in [spans.id, spans.bind_id] {
            self.move_id(bytes, span.into(), edits);
        }
        let mut args = std::mem::take(&mut self.args);
        for (key, value) in args.of(event)?.drain(..) {
            match (metadata, key) {
                (Metadata::Other, ArgKey::Id) => self.move_id(bytes, value, edits),
                (Metadata::ProcessName, ArgKey::Name) => self.prefix_name(bytes, &value, pid, edits),
                (Metadata::ProcessOrder, ArgKey::SortIndex) => {
                    // A remnant of its own place is at home in another process.
                    let stated = parse(&bytes[value.clone()]).filter(|_| !self.is_remnant(pid));
                    let order = self.order(process, stated);
                    edits.replace(value, |out| append(out, order));
                }
                _ => {}
            }
        }
        self.args = args;
        Ok(())
    }

    /// Metadata for what the file has not named, each preceded by a comma and a line feed.
    pub(super) fn name_the_rest(&self, out: &mut Vec<u8>) {
        let mut processes: Vec<_> = self.processes.iter().collect();
        processes.sort_by_key(|(_, process)| process.number);
        for (token, process) in processes {
            let pid = process.number;
            if !process.named {
                let name = [&b"\""[..], &self.prefix, &label(token, b"pid "), b"\""].concat();
                metadata_event(out, b"process_name", pid, pid, b"name", &name);
            }
            if !process.sorted {
                let stated = Some(SPANS_FROM).filter(|_| self.names.main.as_ref() != Some(token));
                let order = self.order(pid, stated).to_string();
                metadata_event(out, b"process_sort_index", pid, pid, b"sort_index", order.as_bytes());
            }
            let mut threads: Vec<_> = process.threads.iter().filter(|(_, thread)| !thread.named).collect();
            threads.sort_by_key(|(_, thread)| thread.number);
            for (token, thread) in threads {
                let name = [b"\"", &label(token, b"thread ")[..], b"\""].concat();
                metadata_event(out, b"thread_name", pid, thread.number, b"name", &name);
            }
        }
    }

    fn numbers(&mut self, pid: &[u8], tid: &[u8], metadata: Metadata) -> Result<(u64, u64), EventFault> {
        let own = pid;
        let home = self.names.home(pid).to_vec();
        let pid = &home[..];
        let tid = if own == pid || !tid.is_empty() { tid } else { own };
        if !self.processes.contains_key(pid) {
            let number = self.next_number()?;
            let process = Process { number, named: false, sorted: false, threads: HashMap::default() };
            self.processes.insert(pid.to_vec(), process);
        }
        let (first, used) = (self.first, &mut self.used);
        let process = self.processes.get_mut(pid).expect("it was inserted above if it was not there");
        process.named |= metadata == Metadata::ProcessName;
        process.sorted |= metadata == Metadata::ProcessOrder && own == pid;
        // What is said of a process is said on thread 0, which need not exist.
        if matches!(metadata, Metadata::ProcessName | Metadata::ProcessOrder) {
            return Ok((process.number, process.number));
        }
        if let Some(thread) = process.threads.get_mut(tid) {
            thread.named |= metadata == Metadata::ThreadName;
            return Ok((process.number, thread.number));
        }
        let number = if tid == pid { process.number } else { next_number(first, used)? };
        process.threads.insert(tid.to_vec(), Thread { number, named: metadata == Metadata::ThreadName });
        Ok((process.number, number))
    }

    fn next_number(&mut self) -> Result<u64, EventFault> {
        next_number(self.first, &mut self.used)
    }

    /// `python` becomes `rank 2 · gpu-01 · python 30591`, and the process of a device
    /// `rank 2 · gpu-01 · GPU 0`.
    fn prefix_name(&self, bytes: &[u8], value: &Range<usize>, pid: &[u8], edits: &mut Edits) {
        if bytes[value.clone()].first() != Some(&b'"') {
            return;
        }
        let home = self.names.home(pid);
        let device = self.names.labels.get(home).filter(|label| label.starts_with(b"\"GPU"));
        // A remnant's name is that of its process.
        let other = device.or(self.names.main_name.as_ref().filter(|_| home != pid));
        let inside = value.start + 1..value.end - 1;
        match other {
            Some(other) => edits.replace(inside, |out| {
                out.extend_from_slice(&self.prefix);
                out.extend_from_slice(&other[1..other.len() - 1]);
            }),
            None => edits.replace(value.start + 1..value.start + 1, |out| out.extend_from_slice(&self.prefix)),
        }
        if device.is_none() && home.first().is_some_and(u8::is_ascii_digit) {
            edits.replace(value.end - 1..value.end - 1, |out| {
                out.push(b' ');
                out.extend_from_slice(home);
            });
        }
    }

    fn is_remnant(&self, pid: &[u8]) -> bool {
        self.names.home(pid) != pid
    }

    /// A process's place among all nodes': by node, then CPUs, GPUs, spans, as Kineto has them.
    fn order(&self, number: u64, stated: Option<u64>) -> u64 {
        let node = self.place * STRIDE;
        let place = number - self.first;
        match stated {
            Some(order) if order >= SPANS_FROM => node + 3 * TRACKS_MAX + place,
            Some(order) if order >= DEVICES_FROM => node + TRACKS_MAX + (order - DEVICES_FROM).min(2 * TRACKS_MAX - 1),
            _ => node + place,
        }
    }

    fn move_id(&self, bytes: &[u8], span: Range<usize>, edits: &mut Edits) {
        let value = &bytes[span.clone()];
        match id(value) {
            Some(number) if value[0] != b'"' => edits.replace(span, |out| append(out, number + self.id_shift)),
            // The same number may stand elsewhere without quotes.
            Some(number) if words::number(value).len() < value.len() => {
                edits.replace(span.start + 1..span.end - 1, |out| append(out, number + self.id_shift));
            }
            // A string of an id is hexadecimal by convention; so is what takes its place.
            Some(number) => edits.replace(span, |out| {
                out.extend_from_slice(format!("\"0x{:x}\"", number + self.id_shift).as_bytes());
            }),
            None if value.first() == Some(&b'"') => {
                let after_quote = span.start + 1;
                edits.replace(after_quote..after_quote, |out| {
                    out.extend_from_slice(format!("{}:", self.first / STRIDE).as_bytes());
                });
            }
            None => {}
        }
    }
}

/// An arg that merging may change.
#[derive(Copy, Clone, PartialEq, Eq)]
enum ArgKey {
    /// An id to which other events refer.
    Id,
    Name,
    SortIndex,
}

impl Key for ArgKey {
    fn of(key: &[u8]) -> Option<ArgKey> {
        match key {
            b"External id" | b"External Id" | b"correlation" => Some(ArgKey::Id),
            b"name" => Some(ArgKey::Name),
            b"sort_index" => Some(ArgKey::SortIndex),
            _ => None,
        }
    }
}

/// Finds such args in one event after the other.
#[derive(Default)]
pub(super) struct Args {
    layouts: Layouts<ArgKey>,
    found: Vec<(ArgKey, Range<usize>)>,
}

impl Args {
    fn of(&mut self, event: &Event<'_>) -> Result<&mut Vec<(ArgKey, Range<usize>)>, EventFault> {
        let (bytes, args) = (event.bytes, event.spans.args);
        self.found.clear();
        if args.of(bytes).first() == Some(&b'{') {
            let walked = self.layouts.object(bytes, args.start(), &event.ends, &mut self.found);
            walked.map_err(|fault: Fault| (fault.at, fault.problem))?;
        }
        Ok(&mut self.found)
    }

    /// The largest id of an event.
    pub(super) fn largest_id(&mut self, event: &Event<'_>) -> Result<Option<u64>, EventFault> {
        let (bytes, spans) = (event.bytes, event.spans);
        let own = id(spans.id.of(bytes)).max(id(spans.bind_id.of(bytes)));
        let ids = self.of(event)?.drain(..).filter(|(key, _)| *key == ArgKey::Id);
        Ok(ids.filter_map(|(_, value)| id(&bytes[value])).max().max(own))
    }
}

/// An id: an integer, with or without quotes, or a hexadecimal one in a string.
fn id(value: &[u8]) -> Option<u64> {
    match words::number(value) {
        [b'"', inner @ .., b'"'] => {
            let digits = inner.strip_prefix(b"0x").or(inner.strip_prefix(b"0X")).unwrap_or(inner);
            let plain = digits.iter().all(u8::is_ascii_hexdigit);
            std::str::from_utf8(digits).ok().filter(|_| plain).and_then(|text| u64::from_str_radix(text, 16).ok())
        }
        other => parse(other),
    }
}

#[inline]
fn parse(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 19 {
        return None;
    }
    value.iter().try_fold(0_u64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0')))
}

fn next_number(first: u64, used: &mut u64) -> Result<u64, EventFault> {
    if *used >= TRACKS_MAX {
        return Err((0, "too many processes and threads"));
    }
    *used += 1;
    Ok(first + *used - 1)
}

fn metadata(bytes: &[u8], spans: &EventSpans) -> Metadata {
    if !is_metadata(bytes, spans) {
        return Metadata::Other;
    }
    match spans.name.of(bytes) {
        b"\"process_name\"" => Metadata::ProcessName,
        b"\"process_sort_index\"" => Metadata::ProcessOrder,
        b"\"thread_name\"" => Metadata::ThreadName,
        _ => Metadata::Other,
    }
}

/// Whether an event of this category and process shows which process wrote the trace: PyTorch puts
/// frames of threads that it does not know on process 0.
fn is_of_process(category: &[u8], pid: &[u8]) -> bool {
    words::side(category) == Some(Side::Host)
        && category != b"Trace"
        && !(category == b"python_function" && pid == b"0")
}

/// Replaces a member's value, or adds the member at the front.
fn put(edits: &mut Edits, span: Span, key: &str, number: u64) {
    if span.is_empty() {
        edits.replace(1..1, |out| out.extend_from_slice(format!("\"{key}\": {number}, ").as_bytes()));
    } else {
        edits.replace(span.into(), |out| append(out, number));
    }
}

fn append(out: &mut Vec<u8>, number: u64) {
    super::decimal::write_integer(out, u128::from(number));
}

/// A name for something with only a `pid` or `tid`: the old number.
fn label(token: &[u8], kind: &[u8]) -> Vec<u8> {
    match token {
        b"" | b"\"\"" => b"instants".to_vec(),
        [b'"', inner @ .., b'"'] => inner.to_vec(),
        other => [kind, other].concat(),
    }
}

fn metadata_event(out: &mut Vec<u8>, name: &[u8], pid: u64, tid: u64, key: &[u8], value: &[u8]) {
    out.extend_from_slice(b",\n  {\"ph\": \"M\", \"name\": \"");
    out.extend_from_slice(name);
    // Writing to memory cannot fail.
    let _ = write!(out, "\", \"ts\": 0, \"pid\": {pid}, \"tid\": {tid}, \"args\": {{\"");
    out.extend_from_slice(key);
    out.extend_from_slice(b"\": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"}}");
}

/// Numbers per node.
pub(super) const STRIDE: u64 = 1_000_000;
/// Nodes whose numbers stay below 2^31.
pub(super) const NODES_MAX: usize = 2000;
/// Processes and threads per node: memory.
const TRACKS_MAX: u64 = 200_000;
/// Kineto sorts GPUs from here on, and its own spans from `SPANS_FROM` on.
const DEVICES_FROM: u64 = 5_000_000;
const SPANS_FROM: u64 = 1 << 29;
/// Kineto's names of pseudo-processes: its own spans, the start of recording, and instants of no
/// process.
const REMNANTS: [&[u8]; 4] = [b"\"Spans\"", b"\"Traces\"", b"\"\"", b""];
/// Names and labels of processes that are kept of a file.
const NAMED_MAX: usize = 4096;
