//! Merges all nodes' traces into one file with one base and unique numbers.
//!
//! There are two passes over each input: `survey` finds the base, the first instant and the largest
//! id, unless the reader of facts has found them, and the second pass writes. The order of events
//! is kept, as is everything except times and the numbers listed in `tracks`. An input's data other
//! than events goes under `nodes`, the caller's data under `probe_sync`. It does not sort events.

use std::path::Path;

use serde_json::Value;

use super::base::{self, BASE_KEY};
use super::document::{Document, Item};
use super::edits::Edits;
use super::kept::Kept;
use super::rewrite::{Edited, Times};
use super::survey::{Survey, survey};
use super::tracks::{NODES_MAX, Tracks};
use super::valid::Passing;
use super::words;
use crate::Error;
use crate::chunk::BETWEEN_NAMES;
use crate::model::MergeFacts;
use crate::output::Sink;
use crate::workers::side_by_side;
use crate::{MergeInput, MergeOptions, MergeStats, RewriteStats};

/// Merges `inputs` into `output`, gzip if its name ends in `.gz`.
///
/// # Errors
/// Returns an error for anything wrong with an input, with its offset; for more nodes, tracks or
/// larger ids than can be distinguished; for failures of reading and writing. No output appears
/// then.
pub(super) fn merge(inputs: &mut [MergeInput<'_>], output: &Path, options: &MergeOptions) -> Result<MergeStats, Error> {
    if inputs.len() > NODES_MAX {
        return Err(Error::malformed(output, 0, format!("more than {NODES_MAX} nodes are not supported")));
    }
    let (surveys, mut kept) = look_through(inputs, options)?;
    let first = inputs.iter_mut().zip(&surveys).filter_map(|(input, found)| found.first_ps.map(&mut *input.map)).min();
    let base_ns = options.base_ns.unwrap_or_else(|| base::quarter_before(first.unwrap_or(0)));
    let stride = id_stride(inputs, &surveys)?;
    let mut merger = Merger { sink: Sink::create(output)?, headers: Vec::new(), events: 0, options };
    let mut stats = MergeStats { base_ns, stride, ..MergeStats::default() };
    let head = format!(
        "{{\n  \"schemaVersion\": 1,\n  \"displayTimeUnit\": \"ms\",\n  \"baseTimeNanoseconds\": {base_ns},\n  \"traceEvents\": ["
    );
    merger.sink.put(head.as_bytes())?;
    let mut by_part: Vec<usize> = (0..inputs.len()).collect();
    by_part.sort_by_key(|index| inputs[*index].part);
    for (index, (input, found)) in inputs.iter_mut().zip(surveys).enumerate() {
        let place = by_part.iter().position(|other| *other == index).unwrap_or(index);
        let tracks = Tracks::new(index, place, &format!("{}{BETWEEN_NAMES}", input.label()), stride, found.names);
        let times = Times::new(found.base_ns, Some(base_ns), input.reach);
        // What an input needed is let go with it.
        let (node, left_out) = merger.node(input, kept[index].take(), tracks, times)?;
        stats.inputs.push(node);
        stats.headers_left_out += left_out;
    }
    merger.sink.put(b"\n  ],\n  \"nodes\": [")?;
    let headers = std::mem::take(&mut merger.headers);
    merger.sink.put(&headers)?;
    let metadata = options.metadata.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str())));
    let metadata = Value::Object(metadata.collect());
    let key = String::from_utf8_lossy(MERGED_KEY);
    merger.sink.put(format!("\n  ],\n  \"{key}\": {metadata}\n}}\n").as_bytes())?;
    if let Some(filter) = &options.filter {
        filter.accept(merger.sink.written())?;
    }
    stats.bytes_written = merger.sink.finish()?;
    Ok(stats)
}

/// What must be known about all inputs, and what is kept of each.
fn look_through<'a>(
    inputs: &[MergeInput<'_>],
    options: &'a MergeOptions,
) -> Result<(Vec<Survey>, Vec<Option<Kept<'a>>>), Error> {
    let Some(filter) = options.filter.as_deref() else {
        let of_inputs: Vec<_> = inputs
            .iter()
            .map(|it| (it.path.as_path(), it.reach, it.known.as_ref().and_then(MergeFacts::get::<Survey>)))
            .collect();
        let surveys = side_by_side(of_inputs.len(), |place| match of_inputs[place] {
            (path, _, Some(known)) if known.still_holds(path) => Ok(known.clone()),
            (path, reach, _) => survey(path, reach, None),
        });
        return Ok((surveys.into_iter().collect::<Result<_, _>>()?, inputs.iter().map(|_| None).collect()));
    };
    let mut surveys = Vec::with_capacity(inputs.len());
    let mut kept: Vec<Option<Kept<'a>>> = Vec::with_capacity(inputs.len());
    for (index, input) in inputs.iter().enumerate() {
        let mut of_input = Kept::new(filter, index, input.reach);
        let found = survey(&input.path, input.reach, Some(&mut of_input))?;
        of_input.survey(&input.path, found.base_ns)?;
        kept.push(Some(of_input));
        surveys.push(found);
    }
    Ok((surveys, kept))
}

/// The power of ten above every id.
fn id_stride(inputs: &[MergeInput<'_>], surveys: &[Survey]) -> Result<u64, Error> {
    let Some((input, found)) = inputs.iter().zip(surveys).max_by_key(|(_, found)| found.largest_id) else {
        return Ok(1);
    };
    let stride = 10_u64.checked_pow(found.largest_id.checked_ilog10().map_or(0, |digits| digits + 1));
    let fits = |stride: &u64| stride.checked_mul(inputs.len() as u64).is_some_and(|end| end <= ID_LIMIT);
    stride.filter(fits).ok_or_else(|| {
        let problem =
            format!("id {} is too large to keep the ids of {} nodes distinct", found.largest_id, inputs.len());
        Error::malformed(&input.path, found.at, problem)
    })
}

struct Merger<'a> {
    sink: Sink,
    /// The inputs' data other than events, as members of an array.
    headers: Vec<u8>,
    events: u64,
    options: &'a MergeOptions,
}

impl Merger<'_> {
    /// Appends one node; returns its statistics, and how many keys were left out.
    fn node(
        &mut self,
        input: &mut MergeInput<'_>,
        mut kept: Option<Kept<'_>>,
        mut tracks: Tracks,
        mut times: Times,
    ) -> Result<(RewriteStats, u64), Error> {
        let mut document = Document::open(&input.path, &[BASE_KEY])?.judging();
        let (mut edits, mut passing) = (Edits::default(), Passing::new(self.options.repair));
        let mut header = Header::begin(&mut self.headers, input);
        loop {
            let at = document.position();
            match document.next()? {
                Item::End => break,
                Item::Event(event) => {
                    if kept.as_mut().is_some_and(|kept| !kept.takes(&event)) {
                        continue;
                    }
                    edits.clear();
                    let edited = times.edit(&event, &mut *input.map, self.options.annotate, &mut edits);
                    if matches!(edited, Edited::LeftOut) {
                        continue;
                    }
                    let out = self.sink.out();
                    out.extend_from_slice(if self.events == 0 { b"\n  " } else { b",\n  " });
                    words::spell_phase(&event, &mut edits);
                    let passed = tracks.edit(&event, &mut edits).and_then(|()| {
                        let write = |out: &mut Vec<u8>| edits.apply(event.bytes, out);
                        passing.event(event.judged(), out, write).map_err(|problem| (0, problem))
                    });
                    if let Err((at, problem)) = passed {
                        let offset = event.offset;
                        return Err(document.malformed(offset, at, problem));
                    }
                    self.sink.relieve()?;
                    self.events += 1;
                }
                Item::Key { key, raw, .. } => header.key(&key, raw, at, &mut passing),
                Item::Asked(value) | Item::Piece(value) => header.value(value, at, &mut passing),
                _ => {}
            }
        }
        let left_out = header.finish(&mut passing);
        if times.stats.events > 0 {
            passing.made(|out| tracks.name_the_rest(out), self.sink.out());
            self.sink.relieve()?;
        }
        let mut stats = times.stats;
        stats.notes.extend(passing.note());
        Ok((RewriteStats { bytes_read: document.position(), base_ns: times.output_base, ..stats }, left_out))
    }
}

/// One input's root object without its events, under construction.
struct Header<'a> {
    out: &'a mut Vec<u8>,
    /// Start of the present member, to be removed if it is too long.
    member: usize,
    /// Where its value begins in the file.
    value_at: Option<u64>,
    full: bool,
    left_out: u64,
}

impl<'a> Header<'a> {
    fn begin(out: &'a mut Vec<u8>, input: &MergeInput<'_>) -> Header<'a> {
        let separator = if out.is_empty() { "" } else { "," };
        let name = Value::from(input.label());
        out.extend_from_slice(format!("{separator}\n    {{\"part\": {}, \"name\": {name}", input.part).as_bytes());
        Header { member: out.len(), value_at: None, out, full: false, left_out: 0 }
    }

    /// Begins a member at byte `at` of the file: its key, decoded and as written.
    fn key(&mut self, key: &[u8], raw: &[u8], at: u64, passing: &mut Passing) {
        passing.end(self.out);
        (self.member, self.value_at) = (self.out.len(), None);
        // The events have no pieces; their key alone would be no JSON.
        self.full = key == b"traceEvents";
        if self.full {
            return;
        }
        // Under its own name the base could be taken for that of the whole file.
        let renamed = match key {
            BASE_KEY => &b"inputBaseTimeNanoseconds"[..],
            b"part" => b"inputPart",
            b"name" => b"inputName",
            _ => raw,
        };
        [b", \"", renamed, b"\": "].into_iter().for_each(|piece| passing.piece(piece, at, self.out));
    }

    fn value(&mut self, piece: &[u8], at: u64, passing: &mut Passing) {
        if self.full {
            return;
        }
        passing.piece(piece, *self.value_at.get_or_insert(at), self.out);
        if self.out.len() > HEADERS_MAX {
            self.out.truncate(self.member);
            self.full = true;
            self.left_out += 1;
            passing.abandon();
        }
    }

    fn finish(self, passing: &mut Passing) -> u64 {
        passing.end(self.out);
        self.out.push(b'}');
        self.left_out
    }
}

/// Key under which a merged file contains what the caller states about the merge; no other file has
/// it.
pub(super) const MERGED_KEY: &[u8] = b"probe_sync";
/// Memory for what the inputs contain besides their events; further values are left out and
/// counted.
const HEADERS_MAX: usize = 32 << 20;
/// Largest integer that readers in JavaScript represent exactly.
const ID_LIMIT: u64 = 1 << 53;
