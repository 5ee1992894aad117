//! Texts that a database stores once, by number, of which some may be clock markers or steps.

use std::collections::HashMap;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::query::each;
use super::table::{Table, quoted};
use crate::Error;
use crate::marker::{MARKERS_MAX, Marker};
use crate::model::{Picoseconds, Steps};

/// The stored texts that may be markers or steps, by number.
pub(crate) struct Names<'a> {
    known: HashMap<i64, Vec<u8>>,
    /// Others, beyond the memory for them, and their table.
    left_out: u64,
    table: &'a str,
    pattern: Option<&'a regex::Regex>,
}

impl<'a> Names<'a> {
    /// Reads a table with the columns `id` and `column`; without a table there are no texts.
    ///
    /// # Errors
    /// The table cannot be read.
    pub(crate) fn read(
        source: (&Connection, &Path),
        table: Option<&'a Table>,
        column: &str,
        pattern: Option<&'a regex::Regex>,
    ) -> Result<Names<'a>, Error> {
        let mut names = Names { known: HashMap::new(), left_out: 0, table: "", pattern };
        let Some(table) = table else { return Ok(names) };
        names.table = &table.name;
        let sql = format!(
            "SELECT {}, {} FROM {} t NOT INDEXED",
            table.column("t", "id"),
            table.column("t", column),
            quoted(&table.name)
        );
        let mut held = 0;
        each(source, &table.name, &sql, &mut |row| {
            let (ValueRef::Integer(id), ValueRef::Text(text)) = (row.get_ref(0)?, row.get_ref(1)?) else {
                return Ok(());
            };
            let is_candidate = text.len() <= NAME_MAX
                && (text.last().is_some_and(u8::is_ascii_digit) || Marker::of(text, pattern).is_some());
            if is_candidate && names.known.len() < MARKERS_MAX && held + text.len() <= NAMES_BYTES_MAX {
                held += text.len();
                names.known.insert(id, text.to_owned());
            } else {
                names.left_out += u64::from(is_candidate);
            }
            Ok(())
        })?;
        Ok(names)
    }

    /// The marker that an event's own or stored text is; otherwise the text may be that of a step.
    pub(crate) fn look(
        &self,
        own: ValueRef<'_>,
        id: ValueRef<'_>,
        (start_ps, end_ps): (Picoseconds, Picoseconds),
        steps: &mut Steps,
    ) -> Option<Marker> {
        let name: &[u8] = match (own, id) {
            (ValueRef::Text(text), _) => text,
            (_, ValueRef::Integer(id)) => self.known.get(&id)?,
            _ => return None,
        };
        let marker = Marker::of(name, self.pattern);
        if marker.is_none() {
            steps.look(name, start_ps, end_ps);
        }
        marker
    }

    /// Returns a note on texts that were not searched.
    pub(crate) fn note(&self) -> Option<String> {
        let Self { left_out, table, .. } = self;
        (*left_out > 0)
            .then(|| format!("{left_out} texts of {table} were not searched for markers and steps: too many"))
    }
}

/// A longer text is neither a marker nor a step.
const NAME_MAX: usize = 4096;
/// Texts that are searched for markers and steps, bytes.
const NAMES_BYTES_MAX: usize = 64 << 20;
