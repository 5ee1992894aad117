//! The values of a span's fields, kept from where they are set to where they are recorded.
//!
//! Clearing a set of values keeps its memory for reuse.

use std::fmt::Write as _;
use std::ops::Range;

use tracing_core::field::{Field, Visit};

use crate::event::OF_SITE;
use crate::value::{Arguments, Listed, Value};

/// Values, with the places of their keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    values: Vec<(u32, Kept)>,
    texts: String,
}

#[derive(Clone, Debug)]
enum Kept {
    Integer(i64),
    Unsigned(u64),
    Float(f64),
    Boolean(bool),
    Text(Range<usize>),
}

impl Fields {
    pub const fn new() -> Self {
        Self { values: Vec::new(), texts: String::new() }
    }

    pub fn clear(&mut self) {
        self.values.clear();
        self.texts.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Adds a text.
    pub fn push_text(&mut self, place: usize, text: &str) {
        let from = self.texts.len();
        self.texts.push_str(text);
        self.push(place, Kept::Text(from..self.texts.len()));
    }

    /// Adds others.
    pub fn append(&mut self, others: &Self) {
        let from = self.texts.len();
        self.texts.push_str(&others.texts);
        self.values.extend(others.values.iter().map(|(key, kept)| match kept {
            Kept::Text(range) => (*key, Kept::Text(range.start + from..range.end + from)),
            other => (*key, other.clone()),
        }));
    }

    /// Adds others, which replace values of the same fields.
    pub fn replace(&mut self, others: &Self) {
        let mut kept = Self::new();
        for (key, value) in self.values.iter().filter(|(key, _)| !others.values.iter().any(|(other, _)| other == key)) {
            let value = match value {
                Kept::Text(range) => {
                    let from = kept.texts.len();
                    kept.texts.push_str(self.texts.get(range.clone()).unwrap_or(""));
                    Kept::Text(from..kept.texts.len())
                }
                other => other.clone(),
            };
            kept.values.push((*key, value));
        }
        kept.append(others);
        *self = kept;
    }

    /// As arguments.
    pub fn arguments(&self) -> impl Arguments + '_ {
        Listed(self.values.len(), |at: usize| {
            let (key, kept) = &self.values[at];
            let value = match kept {
                Kept::Integer(number) => Value::Integer(*number),
                Kept::Unsigned(number) => Value::Unsigned(*number),
                Kept::Float(number) => Value::Float(*number),
                Kept::Boolean(yes) => Value::Boolean(*yes),
                Kept::Text(range) => Value::Text(self.texts.get(range.clone()).unwrap_or("")),
            };
            (*key, value)
        })
    }

    fn push(&mut self, place: usize, kept: Kept) {
        self.values.push((place as u32 | OF_SITE, kept));
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push(field.index(), Kept::Float(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field.index(), Kept::Integer(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field.index(), Kept::Unsigned(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field.index(), Kept::Boolean(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push_text(field.index(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let from = self.texts.len();
        // What a value does not say of itself is missing.
        let _ = write!(self.texts, "{value:?}");
        self.push(field.index(), Kept::Text(from..self.texts.len()));
    }
}
