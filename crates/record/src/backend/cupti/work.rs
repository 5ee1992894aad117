//! Work on devices, from CUPTI's buffers to the sink.
//!
//! CUPTI returns buffers in any order, and the id that the program gave to a launch in another
//! buffer than the kernel. Work is therefore held until it ended before the previous flush, then
//! linked and sorted.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_char;
use std::sync::Arc;

use super::api::Api;
use super::buffers::{BYTES, Place};
use super::records::{self, Record, What, Work};
use crate::backend::{DeviceEvent, Sink, TrackId};
use crate::event::FlowPlace;
use crate::kind::Kind;
use crate::value::Value;

/// Work of one session that has not been passed on, and what its description needs.
#[derive(Debug, Default)]
pub(super) struct Held {
    work: Vec<(Work, Arc<str>)>,
    links: Links,
    names: HashMap<Vec<u8>, Arc<str>>,
    /// By device, context and stream.
    tracks: HashMap<[u32; 3], TrackId>,
    /// Work whose times CUPTI could not measure.
    pub unmeasured: u64,
    /// Buffers with a record that is incomplete or out of place, behind which nothing is read.
    pub unreadable: u64,
}

impl Held {
    /// Reads the records in the first `valid` bytes of a buffer.
    ///
    /// # Safety
    /// CUPTI has filled this many bytes, and does not access them any more.
    pub unsafe fn read(&mut self, api: &Api, Place(buffer): Place, valid: usize) {
        let mut record = std::ptr::null_mut();
        loop {
            // SAFETY: the caller's promise; `record` is null or the previous result.
            let next = match unsafe { api.next_record(buffer, valid, record) } {
                Ok(Some(next)) => next,
                Ok(None) => return,
                Err(_) => break,
            };
            let at = next.addr().wrapping_sub(buffer.addr());
            let is_within = at < valid && valid <= BYTES && (record.is_null() || next.addr() > record.addr());
            // SAFETY: `next` is within the buffer, of which this many bytes are filled.
            let bytes = is_within.then(|| unsafe { std::slice::from_raw_parts(next, valid - at) });
            match bytes.and_then(records::decode) {
                Some(Record::Work(work)) if work.start == 0 || work.end == 0 => self.unmeasured += 1,
                Some(Record::Work(work)) => self.hold(work),
                Some(Record::Link { correlation, id }) => self.links.add(correlation, id),
                Some(Record::Other) => {}
                None => break,
            }
            record = next;
        }
        self.unreadable += 1;
    }

    /// Passes on work that ended before a time of CUPTI's; all of it if too much is held.
    pub fn pass_on(&mut self, sink: &mut Sink, before: u64) {
        let before = if self.work.len() > HELD_MAX { u64::MAX } else { before };
        let mut settled: Vec<_> = self.work.extract_if(.., |(work, _)| work.end < before).collect();
        settled.sort_by_key(|(work, _)| (work.start, Reverse(work.end)));
        for (work, name) in &settled {
            self.pass(sink, work, name);
        }
    }

    fn hold(&mut self, work: Work) {
        let name = match work.what {
            // SAFETY: the address comes from a complete record of a kernel, and CUPTI keeps the
            // names of kernels.
            What::Kernel { name, .. } => self.name(unsafe { c_bytes(name) }),
            What::Copy { direction, .. } => self.name(records::copy_name(direction).as_bytes()),
            What::Set { .. } => self.name(b"Memset"),
        };
        self.work.push((work, name));
    }

    fn name(&mut self, bytes: &[u8]) -> Arc<str> {
        if let Some(name) = self.names.get(bytes) {
            return Arc::clone(name);
        }
        let name: Arc<str> = readable(String::from_utf8_lossy(bytes).into_owned()).into();
        if self.names.len() < NAMES_MAX {
            self.names.insert(bytes.to_vec(), Arc::clone(&name));
        }
        name
    }

    fn pass(&mut self, sink: &mut Sink, work: &Work, name: &str) {
        let track = self.track(sink, work);
        let correlation = self.links.id(work.correlation);
        let flow = (correlation != 0).then_some((FlowPlace::In, correlation));
        let (shape, launch, bytes);
        let arguments: &[(&str, Value<'_>)] = match work.what {
            What::Kernel { grid, block, .. } => {
                shape = [grid, block].map(|[x, y, z]| format!("[{x},{y},{z}]"));
                launch = [("grid", Value::Json(&shape[0])), ("block", Value::Json(&shape[1]))];
                &launch
            }
            What::Copy { bytes: count, .. } | What::Set { bytes: count } => {
                bytes = [("bytes", Value::Unsigned(count))];
                &bytes
            }
        };
        let kind = Kind::Custom;
        sink.event(track, &DeviceEvent { name, kind, start: work.start, end: work.end, correlation, flow, arguments });
    }

    /// Streams are numbered by context; most programs have one context per device.
    fn track(&mut self, sink: &mut Sink, work: &Work) -> TrackId {
        let key @ [device, context, stream] = [work.device, work.context, work.stream];
        if let Some(track) = self.tracks.get(&key) {
            return *track;
        }
        let is_taken = self.tracks.keys().any(|other| (other[0], other[2]) == (device, stream));
        let queue = if is_taken { format!("stream {stream} of context {context}") } else { format!("stream {stream}") };
        let track = sink.track(&format!("GPU {device}"), &queue);
        self.tracks.insert(key, track);
        track
    }
}

/// The program's ids of the latest calls, by CUPTI's number of the call.
#[derive(Debug, Default)]
struct Links {
    ids: HashMap<u32, u64>,
    order: VecDeque<u32>,
}

impl Links {
    fn add(&mut self, correlation: u32, id: u64) {
        if self.ids.insert(correlation, id).is_none() {
            self.order.push_back(correlation);
        }
        if self.order.len() > LINKS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }

    /// Returns the id of a call; 0 if it has none.
    fn id(&self, correlation: u32) -> u64 {
        self.ids.get(&correlation).copied().unwrap_or(0)
    }
}

/// Returns the bytes of a C string, at most [`NAME_MAX`].
///
/// # Safety
/// The address is 0 or that of a C string that stays while the result is used.
unsafe fn c_bytes<'a>(address: u64) -> &'a [u8] {
    let text: *const c_char = std::ptr::with_exposed_provenance(address as usize);
    if text.is_null() {
        return b"(kernel without a name)";
    }
    // SAFETY: the caller's promise; no byte behind the terminating zero is read.
    unsafe { std::slice::from_raw_parts(text.cast(), libc::strnlen(text, NAME_MAX)) }
}

/// Returns the name as in the source, if a demangler is built in.
fn readable(name: String) -> String {
    #[cfg(feature = "symbols")]
    let name = addr2line::demangle_auto(name.into(), None).into_owned();
    name
}

/// Longest name; templates have names of kilobytes.
const NAME_MAX: usize = 4096;
/// Names that are kept from one record to the next.
const NAMES_MAX: usize = 1 << 16;
/// Work that is held; more is passed on at once.
const HELD_MAX: usize = 1 << 20;
/// Calls whose id is kept. A stream holds some thousand launches.
const LINKS_MAX: usize = 1 << 18;
