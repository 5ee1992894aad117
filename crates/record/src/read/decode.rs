//! Decodes records into events.
//!
//! `index` supplies pieces of chunks. An invalid record ends its piece.

use super::definitions::{Definitions, SiteFacts};
use crate::event::FlowPlace;
use crate::kind::Kind;
use crate::layout::{argument, record};
use crate::value::ArgumentValue;

/// Something that happened on a thread.
#[derive(Copy, Clone, Debug)]
pub struct Event<'a> {
    /// What, and when.
    pub what: What,
    /// How many scopes were open around it.
    pub depth: u32,
    site: Option<&'a SiteFacts>,
    arguments: &'a [u64],
    definitions: &'a Definitions,
}

/// What happened; times are ticks.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum What {
    /// Something that went on.
    Scope {
        /// When it began.
        start: u64,
        /// When it ended.
        end: u64,
        /// Its id.
        id: u64,
        /// It never ended itself, and was closed with the scope around it.
        unfinished: bool,
    },
    /// A moment.
    Instant {
        /// When.
        time: u64,
        /// Its id.
        id: u64,
    },
    /// A value from then on.
    Counter {
        /// When.
        time: u64,
        /// The value.
        value: f64,
    },
    /// A flow passes.
    Flow {
        /// When.
        time: u64,
        /// Which.
        flow: u64,
        /// Where it stands.
        place: FlowPlace,
    },
    /// A span that ends elsewhere begins.
    SpanBegin {
        /// When.
        time: u64,
        /// Which.
        id: u64,
    },
    /// It ends.
    SpanEnd {
        /// When.
        time: u64,
        /// Which.
        id: u64,
    },
    /// Events were lost here.
    Lost {
        /// When the first was.
        first: u64,
        /// When the last was.
        last: u64,
        /// How many.
        events: u64,
    },
}

impl What {
    /// Puts its times on another clock. Those of losses are on the recorder's always.
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

    /// When it ended, or was.
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
    /// What it is called; its definition may have found no room.
    pub fn name(&self) -> &'a str {
        self.site.map_or("(name lost)", |site| &site.name)
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.site.map_or(Kind::Custom, |site| site.kind)
    }

    /// The place in the program.
    pub fn site(&self) -> Option<&'a SiteFacts> {
        self.site
    }

    /// Its arguments, in their order.
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

/// The first record of some words, and how many it has; None where there is none that can be.
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
