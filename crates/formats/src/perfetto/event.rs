//! One TrackEvent: what it is, on which track, and where its texts and arguments are.
//!
//! Reference: `track_event.proto`, and `TrackEventParser` of trace processor. Events of Chrome state
//! their kind as a letter, as its JSON does, and may belong to another thread than their sequence.

use super::fields as field;
use super::packet::inside;
use super::sequences::{Sequence, numbers};
use super::tracks::Place;
use crate::protobuf::{Fault, Field, Fields, Value};

/// A TrackEvent.
#[derive(Debug, Default)]
pub(super) struct Event<'a> {
    pub(super) kind: Kind,
    track: Option<u64>,
    name_id: Option<u64>,
    name: Option<&'a [u8]>,
    pub(super) category: Option<&'a [u8]>,
    pub(super) category_id: Option<u64>,
    /// Ids of flows, and whether each ends here.
    pub(super) flows: Vec<(u64, bool)>,
    /// Ids of the stages of GPUs that it starts.
    pub(super) launched: Vec<u64>,
    pub(super) value: Option<f64>,
    /// Values of further counters: integers, and other numbers.
    extra_values: [Vec<f64>; 2],
    extra_tracks: [Vec<u64>; 2],
    /// Process and thread that it belongs to instead of its sequence's.
    thread: (Option<i64>, Option<i64>),
    pub(super) has_arguments: bool,
    message: &'a [u8],
}

/// What an event is.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// It has values of further counters at most.
    #[default]
    Nothing,
    Begin,
    End,
    /// A slice that states its duration, ns.
    Whole(i64),
    Instant,
    Counter,
    /// A kind of Chrome that is not shown.
    Other(char),
}

impl<'a> Event<'a> {
    pub(super) fn parse(message: &'a [u8]) -> Result<Self, Fault> {
        let mut event = Event { message, ..Event::default() };
        let (mut letter, mut duration_us) = (None, 0);
        for found in Fields::of(message) {
            let found = found?;
            match (found.number, found.value) {
                (field::EVENT_TYPE, _) => event.kind = Kind::of(found.number("type")?),
                (field::EVENT_TRACK, _) => event.track = Some(found.number("track_uuid")?),
                (field::EVENT_NAME_ID, _) => event.name_id = Some(found.number("name_iid")?),
                (field::EVENT_NAME, Value::Bytes(name)) => event.name = Some(name),
                (field::EVENT_CATEGORY, Value::Bytes(name)) => event.category = event.category.or(Some(name)),
                (field::EVENT_CATEGORY_ID, value) if event.category_id.is_none() => {
                    event.category_id = list(value)?.first().copied();
                }
                (field::EVENT_FLOW | field::EVENT_OLD_FLOW, value) => event.add_flows(value, false)?,
                (field::EVENT_LAST_FLOW | field::EVENT_OLD_LAST_FLOW, value) => event.add_flows(value, true)?,
                (field::EVENT_VALUE, _) => event.value = Some(found.number("counter_value")? as i64 as f64),
                (field::EVENT_FLOAT_VALUE, Value::Fixed(bytes)) => event.value = float(bytes),
                (field::EVENT_EXTRA_VALUES, value) => {
                    event.extra_values[0].extend(list(value)?.into_iter().map(|value| value as i64 as f64));
                }
                (field::EVENT_EXTRA_FLOAT_VALUES, value) => event.extra_values[1].extend(floats(value)),
                (field::EVENT_EXTRA_TRACKS, value) => numbers(value, &mut event.extra_tracks[0])?,
                (field::EVENT_EXTRA_FLOAT_TRACKS, value) => numbers(value, &mut event.extra_tracks[1])?,
                (field::EVENT_ARGUMENT, _) => event.has_arguments = true,
                (field::EVENT_OF_GPU, _) => {
                    for found in inside(&found).filter_map(Result::ok) {
                        if found.number == field::GPU_LAUNCHED {
                            numbers(found.value, &mut event.launched)?;
                        }
                    }
                }
                (field::EVENT_OF_CHROME, _) => event.of_chrome(&found, &mut letter, &mut duration_us)?,
                _ => {}
            }
        }
        if let (Kind::Nothing, Some(letter)) = (event.kind, letter) {
            event.kind = Kind::of_letter(letter, duration_us);
        }
        Ok(event)
    }

    fn of_chrome(&mut self, message: &Field<'a>, letter: &mut Option<char>, duration: &mut i64) -> Result<(), Fault> {
        for found in inside(message) {
            let found = found?;
            match found.number {
                field::CHROME_PHASE => *letter = char::from_u32(found.number("phase")? as u32),
                field::CHROME_DURATION_US => *duration = found.number("duration_us")? as i64,
                field::CHROME_PID => self.thread.0 = Some(found.number("pid_override")? as i64),
                field::CHROME_TID => self.thread.1 = Some(found.number("tid_override")? as i64),
                field::CHROME_NAME_ID => self.name_id = self.name_id.or(Some(found.number("name_iid")?)),
                _ => {}
            }
        }
        Ok(())
    }

    /// The track that it is on.
    pub(super) fn place(&self, sequence: &Sequence) -> Place {
        match (self.thread, sequence.thread) {
            ((pid, Some(tid)), own) => Place::Thread(pid.or(own.map(|own| own.0)).unwrap_or_default(), tid),
            (_, own) => match (self.track.or(sequence.track), own) {
                (None, Some((pid, tid))) => Place::Thread(pid, tid),
                (track, _) => Place::Described(track.unwrap_or_default()),
            },
        }
    }

    /// The number of its name in the sequence, or the name.
    pub(super) fn name(&self) -> (Option<u64>, Option<&'a [u8]>) {
        (self.name_id, self.name)
    }

    /// The values of further counters, and their tracks.
    pub(super) fn further<'b>(&'b self, sequence: &'b Sequence) -> impl Iterator<Item = (u64, f64)> + 'b {
        [0, 1].into_iter().flat_map(move |kind| {
            let own = &self.extra_tracks[kind];
            let tracks = if own.is_empty() { &sequence.counter_tracks[kind] } else { own };
            tracks.iter().copied().zip(self.extra_values[kind].iter().copied())
        })
    }

    /// Its arguments, each a DebugAnnotation.
    pub(super) fn arguments(&self) -> impl Iterator<Item = Field<'a>> {
        let all = Fields::of(self.message).filter_map(Result::ok);
        all.filter(|found| found.number == field::EVENT_ARGUMENT)
    }

    fn add_flows(&mut self, value: Value<'_>, is_last: bool) -> Result<(), Fault> {
        // Ids are of fixed width, and those of old writers are not.
        let ids = match value {
            Value::Bytes(packed) if packed.len() % 8 == 0 => fixed(packed),
            other => list(other)?,
        };
        self.flows.extend(ids.into_iter().filter(|id| *id != 0).map(|id| (id, is_last)));
        Ok(())
    }
}

impl Kind {
    fn of(number: u64) -> Kind {
        match number {
            field::SLICE_BEGIN => Kind::Begin,
            field::SLICE_END => Kind::End,
            field::INSTANT => Kind::Instant,
            field::COUNTER => Kind::Counter,
            _ => Kind::Nothing,
        }
    }

    fn of_letter(letter: char, duration_us: i64) -> Kind {
        match letter {
            'B' => Kind::Begin,
            'E' => Kind::End,
            'X' if duration_us >= 0 => Kind::Whole(duration_us.saturating_mul(1000)),
            'I' | 'i' | 'R' => Kind::Instant,
            other => Kind::Other(other),
        }
    }
}

fn list(value: Value<'_>) -> Result<Vec<u64>, Fault> {
    let mut all = Vec::new();
    numbers(value, &mut all)?;
    Ok(all)
}

fn fixed(packed: &[u8]) -> Vec<u64> {
    packed.chunks_exact(8).filter_map(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes).collect()
}

fn float(bytes: &[u8]) -> Option<f64> {
    bytes.try_into().ok().map(f64::from_le_bytes)
}

fn floats(value: Value<'_>) -> Vec<f64> {
    match value {
        Value::Number(_) => Vec::new(),
        Value::Bytes(bytes) | Value::Fixed(bytes) => fixed(bytes).into_iter().map(f64::from_bits).collect(),
    }
}
