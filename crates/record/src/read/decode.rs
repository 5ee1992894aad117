//! Decodes records into events.
//!
//! `index` supplies pieces of chunks. An invalid record ends its piece.

use super::definitions::{Definitions, SiteFacts};
use crate::event::FlowPlace;
use crate::kind::Kind;
use crate::layout::{argument, record};
use crate::value::ArgumentValue;

/// An event on a thread.
#[derive(Copy, Clone, Debug)]
pub struct Event<'a> {
    /// Content and time of the event.
    pub what: What,
    /// Number of enclosing open scopes.
    pub depth: u32,
    site: Option<&'a SiteFacts>,
    arguments: &'a [u64],
    definitions: &'a Definitions,
}

/// Content of an event; times are ticks.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum What {
    /// A scope.
    Scope {
        /// Start.
        start: u64,
        /// End.
        end: u64,
        /// Id of the scope.
        id: u64,
        /// True if it did not end itself and was closed with the enclosing scope.
        unfinished: bool,
    },
    /// An instant.
    Instant {
        /// Time.
        time: u64,
        /// Id of the instant.
        id: u64,
    },
    /// The new value of a counter.
    Counter {
        /// Time.
        time: u64,
        /// The value.
        value: f64,
    },
    /// A point of a flow.
    Flow {
        /// Time.
        time: u64,
        /// Id of the flow.
        flow: u64,
        /// Position in the flow.
        place: FlowPlace,
    },
    /// The start of a span that ends elsewhere.
    SpanBegin {
        /// Time.
        time: u64,
        /// Id of the span.
        id: u64,
    },
    /// The end of a span.
    SpanEnd {
        /// Time.
        time: u64,
        /// Id of the span.
        id: u64,
    },
    /// Lost events.
    Lost {
        /// Time of the first.
        first: u64,
        /// Time of the last.
        last: u64,
        /// Number of events.
        events: u64,
    },
}

impl What {
    /// Maps its times to another clock. Times of losses are always on the recorder's.
    pub(super) fn map_times(&mut self, map: impl Fn(u64) -> u64) {
        match self {
            Self::Scope { start, end, .. } => (*start, *end) = (map(*start), map(*end)),
            Self::Instant { time, .. }
            | Self::Counter { time, .. }
            | Self::Flow { time, .. }
            | Self::SpanBegin { time, .. }
            | Self::SpanEnd { time, .. } => *time = map(*time),
            Self::Lost { .. } => {}
        }
    }

    /// Returns its end, or its time.
    pub fn end(&self) -> u64 {
        match *self {
            Self::Scope { end, .. } => end,
            Self::Instant { time, .. }
            | Self::Counter { time, .. }
            | Self::Flow { time, .. }
            | Self::SpanBegin { time, .. }
            | Self::SpanEnd { time, .. } => time,
            Self::Lost { last, .. } => last,
        }
    }
}

impl<'a> Event<'a> {
    /// Returns its name, which is unknown if its definition was lost.
    pub fn name(&self) -> &'a str {
        self.site.map_or("(name lost)", |site| &site.name)
    }

    /// Returns its kind.
    pub fn kind(&self) -> Kind {
        self.site.map_or(Kind::Custom, |site| site.kind)
    }

    /// Returns its site.
    pub fn site(&self) -> Option<&'a SiteFacts> {
        self.site
    }

    /// Returns its arguments, in order.
    pub fn arguments(&self) -> Arguments<'a> {
        Arguments { words: self.arguments, site: self.site, definitions: self.definitions }
    }
}

/// The arguments of an event.
#[derive(Clone, Debug)]
pub struct Arguments<'a> {
    words: &'a [u64],
    site: Option<&'a SiteFacts>,
    definitions: &'a Definitions,
}

impl<'a> Iterator for Arguments<'a> {
    type Item = (&'a str, ArgumentValue);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, _) = self.words.split_first()?;
        let words = (head >> 40 & 0xff) as usize;
        let Some(body) = self.words.get(1..words).filter(|_| words >= 1) else {
            self.words = &[];
            return None;
        };
        self.words = &self.words[words..];
        let key = *head as u32;
        let of_site = || self.site?.keys.get((key & !argument::OF_SITE) as usize).map(String::as_str);
        let key = if key & argument::OF_SITE != 0 { of_site() } else { self.definitions.name(key) };
        Some((key.unwrap_or("(key lost)"), ArgumentValue::of_words(*head, body)))
    }
}

/// Returns the first record of some words, and its length; `None` if there is no valid one.
pub(super) fn first<'a>(words: &'a [u64], definitions: &'a Definitions) -> Option<(Event<'a>, usize)> {
    let head = *words.first()?;
    let length = record::words(head);
    let body = words.get(..length)?;
    let kind = head >> 32 & 0xff;
    let [first, second] = [*body.get(1)?, *body.get(2)?];
    let flow = |place| (What::Flow { time: first, flow: second, place }, 3);
    let (what, own) = match kind {
        record::SCOPE | record::UNFINISHED => {
            let unfinished = kind == record::UNFINISHED;
            (What::Scope { start: first, end: second, id: *body.get(3)?, unfinished }, record::SCOPE_WORDS)
        }
        record::INSTANT => (What::Instant { time: first, id: second }, 3),
        record::COUNTER => (What::Counter { time: first, value: f64::from_bits(second) }, 3),
        record::FLOW_OUT => flow(FlowPlace::Out),
        record::FLOW_STEP => flow(FlowPlace::Step),
        record::FLOW_IN => flow(FlowPlace::In),
        record::ASYNC_BEGIN => (What::SpanBegin { time: first, id: second }, 3),
        record::ASYNC_END => (What::SpanEnd { time: first, id: second }, 3),
        record::LOSS => (What::Lost { first, last: second, events: *body.get(3)? }, 4),
        _ => return None,
    };
    let event = Event {
        what,
        depth: (head >> 48) as u32,
        site: definitions.site(head as u32),
        arguments: body.get(own..)?,
        definitions,
    };
    Some((event, length))
}
