//! The facts of a Perfetto trace: its clock, the times of its events, the relation of that clock to
//! the system clock, and markers.
//!
//! One pass over the packets fills `model::TraceFacts`; `packet` decodes them, and `clocks`
//! converts their times. A trace is refused if it already covers several machines or cannot be
//! inspected. Everything with a time counts as an event unless it belongs to the recording itself.
//! Only a marker (`probe_sync.rank#3/8`) states whose trace it is; without one the caller must.
//! `operations` reads collectives in a second pass, if any name or argument suggests that there are
//! some.

use std::path::Path;
use std::sync::LazyLock;

use regex::bytes::Regex;

use super::clocks::{self, Clocks};
use super::kernel::Kernel;
use super::operations;
use super::packet::{self, Packet, bytes, inside};
use crate::Error;
use crate::marker::{Marker, Stamps};
use crate::model::{PS_PER_NS, Picoseconds, Spread, TraceClock, TraceFacts, UNIX_TIME_MIN_PS};
use crate::perfetto::fields as field;
use crate::protobuf::{Fault, Fields};
use crate::{ALIGNED_TO, FactOptions};

/// Reads the facts of a trace in one pass.
///
/// # Errors
/// The file cannot be read, is packed or no Perfetto trace, is of several machines, or on a clock
/// that cannot be used; with the byte's offset.
pub(super) fn read_facts(path: &Path, options: &FactOptions) -> Result<TraceFacts, Error> {
    let mut reader = Reader::new(options);
    let source = packet::each(path, &mut |packet| reader.packet(packet))?;
    if reader.unplaced > 0 && reader.span.is_none() {
        return Err(source.malformed(0, UNPLACED));
    }
    let may_state_operations = reader.may_state_operations;
    let mut facts = reader.finish();
    if may_state_operations {
        operations::add(path, options, &mut facts)?;
    }
    Ok(facts)
}

/// State of one pass.
struct Reader<'a> {
    options: &'a FactOptions,
    clocks: Clocks,
    stamps: Stamps,
    facts: TraceFacts,
    /// First and last time of an event, ns.
    span: Option<(i64, i64)>,
    spread: Spread,
    untimed: u64,
    unplaced: u64,
    lost: u64,
    kernel: Kernel,
    /// A packet contains a word of PyTorch's operations and steps.
    may_state_operations: bool,
}

impl<'a> Reader<'a> {
    fn new(options: &'a FactOptions) -> Self {
        Self {
            options,
            clocks: Clocks::default(),
            stamps: Stamps::default(),
            facts: TraceFacts::default(),
            span: None,
            spread: Spread::default(),
            untimed: 0,
            unplaced: 0,
            lost: 0,
            kernel: Kernel::default(),
            may_state_operations: false,
        }
    }

    /// Takes in a packet; places in a fault are those of the packet.
    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), Fault> {
        let texts = [packet.interned, packet.event, packet.gpu_stage].into_iter().flatten();
        self.may_state_operations = self.may_state_operations || texts.into_iter().any(|text| WORDS.is_match(text));
        self.clocks.tell(packet).map_err(Fault::new)?;
        if let Some(message) = packet.attributes {
            self.attributes(message)?;
        }
        if let Some(message) = packet.interned {
            self.names(packet.sequence, message)?;
        }
        if let Some(bundle) = packet.kernel_events {
            self.kernel_events(bundle)?;
        }
        self.event(packet)
    }

    /// Counts the kernel's events.
    fn kernel_events(&mut self, bundle: &[u8]) -> Result<(), Fault> {
        let Self { clocks, kernel, facts, unplaced, spread, span, .. } = self;
        let mut take = |time_ns: Option<i64>, is_event: bool| {
            if is_event {
                facts.events += 1;
                match time_ns {
                    Some(time_ns) => include(spread, span, time_ns),
                    None => *unplaced += 1,
                }
            }
            time_ns
        };
        kernel.restate(bundle, clocks, &mut take).map(drop)
    }

    fn event(&mut self, packet: &Packet<'_>) -> Result<(), Fault> {
        // Of every event, so that damage is found whether or not its time is known.
        let marker = packet.event.map(|event| self.marker(packet.sequence, event)).transpose()?.flatten();
        if packet.time.is_none() {
            self.untimed += u64::from(packet.event.is_some());
            return Ok(());
        }
        if self.clocks.is_lost(packet) {
            self.lost += 1;
            return Ok(());
        }
        // Incremental clocks count on with every packet that has a time.
        let time_ns = self.clocks.locate(packet).and_then(|located| located.time_ns());
        if packet.snapshot.is_some()
            || packet.of_service
            || packet.attributes.is_some()
            || packet.kernel_events.is_some()
        {
            return Ok(());
        }
        self.facts.events += 1;
        let Some(time_ns) = time_ns else {
            self.unplaced += 1;
            return Ok(());
        };
        if let Some(marker) = marker {
            self.stamps.add(marker, Picoseconds::from(time_ns) * PS_PER_NS, PS_PER_NS);
            return Ok(());
        }
        include(&mut self.spread, &mut self.span, time_ns);
        Ok(())
    }

    /// Parses the name of an event that begins, if it is a marker.
    fn marker(&self, sequence: u32, event: &[u8]) -> Result<Option<Marker>, Fault> {
        let (mut marker, mut kind) = (None, 0);
        for found in Fields::of(event) {
            let found = found?;
            match found.number {
                field::EVENT_TYPE => kind = found.number("type")?,
                field::EVENT_NAME_ID => marker = self.clocks.named(sequence, found.number("name_iid")?),
                field::EVENT_NAME => {
                    marker = bytes(&found).and_then(|name| Marker::of(name, self.options.markers.as_ref()));
                }
                _ => {}
            }
        }
        Ok(marker.filter(|_| matches!(kind, field::SLICE_BEGIN | field::INSTANT)))
    }

    /// Keeps the names that are markers.
    fn names(&mut self, sequence: u32, message: &[u8]) -> Result<(), Fault> {
        for entry in Fields::of(message) {
            let entry = entry?;
            if entry.number != field::INTERNED_NAME {
                continue;
            }
            let (mut number, mut marker) = (0, None);
            for found in inside(&entry) {
                let found = found?;
                match found.number {
                    field::INTERNED_ID => number = found.number("iid")?,
                    field::INTERNED_TEXT => {
                        marker = bytes(&found).and_then(|name| Marker::of(name, self.options.markers.as_ref()));
                    }
                    _ => {}
                }
            }
            if let Some(marker) = marker {
                self.clocks.name(sequence, number, marker);
            }
        }
        Ok(())
    }

    /// Finds the clock that this program put the times on.
    fn attributes(&mut self, message: &[u8]) -> Result<(), Fault> {
        for entry in Fields::of(message) {
            let (mut key, mut text): (&[u8], &[u8]) = (b"", b"");
            for found in inside(&entry?) {
                let found = found?;
                match found.number {
                    field::ATTRIBUTE_KEY => key = bytes(&found).unwrap_or_default(),
                    field::ATTRIBUTE_TEXT => text = bytes(&found).unwrap_or_default(),
                    _ => {}
                }
            }
            if key == ALIGNED_TO.as_bytes() {
                self.facts.aligned_to = Some(String::from_utf8_lossy(text).into_owned());
            }
        }
        Ok(())
    }

    fn finish(self) -> TraceFacts {
        let Self { clocks, stamps, mut facts, span, .. } = self;
        let all = span.map(|(first, last)| (Picoseconds::from(first) * PS_PER_NS, Picoseconds::from(last) * PS_PER_NS));
        facts.reach = self.spread.reach();
        let believed = facts.reach.map(|reach| (reach.first_ps, reach.last_ps));
        if believed.is_some() {
            facts.warnings.push(
                "some events lie days or decades away from all others; they were not analysed and are kept \
                unchanged"
                    .to_owned(),
            );
        }
        facts.span = believed.or(all);
        // A trace that was made of others may call any clock BOOTTIME; its size shows which it is.
        let counts_from_boot =
            clocks.wanted == clocks::BOOTTIME && facts.span.is_some_and(|(first, _)| first < UNIX_TIME_MIN_PS);
        facts.clock = if counts_from_boot { TraceClock::Boot } else { TraceClock::System };
        facts.stated_clock =
            clocks.is_stated.then_some(if clocks.wanted == clocks::REALTIME { "REALTIME" } else { "BOOTTIME" });
        facts.pairs = clocks.pairs().collect();
        let named = facts.stated_clock.unwrap_or("BOOTTIME");
        let mut note = |count: u64, text: &str| {
            if count > 0 {
                facts.notes.push(format!("{count} {text}"));
            }
        };
        note(clocks.pairs_left_out, "snapshots of the system clock beyond the first million were ignored");
        note(self.untimed, "events have no timestamp in their packet and were not analysed");
        note(self.lost, "packets refer to others that were lost and were not analysed");
        note(
            self.unplaced,
            &format!("times are on clocks that no ClockSnapshot relates to {named}, and were not analysed"),
        );
        facts.notes.extend(stamps.notes());
        facts.take_stamps(stamps);
        facts
    }
}

/// Adds an event's time.
fn include(spread: &mut Spread, span: &mut Option<(i64, i64)>, time_ns: i64) {
    let time_ps = Picoseconds::from(time_ns) * PS_PER_NS;
    spread.add(time_ps, time_ps);
    let (first, last) = span.unwrap_or((time_ns, time_ns));
    *span = Some((first.min(time_ns), last.max(time_ns)));
}

/// Words that operations have, and numbered steps.
static WORDS: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = "Collective name|[nr]ccl|gloo:|(?:[Ss]tep|STEP|[Ii]ter|ITER)[ -~]{0,64}[0-9]";
    Regex::new(pattern).expect("a sound pattern")
});
const UNPLACED: &str = "the times of the trace cannot be converted: its events are on clocks that no ClockSnapshot relates to \
    BOOTTIME; record it with snapshots of all clocks";
