//! The clock and rank information in names and messages: the project's own markers, marks, and
//! markers that a pattern finds.
//!
//! A marker is the name of a region, or the message of a region's or sample's event. A name with
//! only ONE number, `clkmark#<true time>`, states no time of its node's clock and is not a marker.

use std::collections::{BTreeSet, HashMap, HashSet};

use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde::Deserialize;

use super::catalog::{Table, Writer, quoted};
use super::reading::{Behind, Database, STRING, brought_up, join_event};
use crate::Error;
use crate::marker::{MARKERS_MAX, Marker, Stamps};
use crate::model::{PS_PER_NS, Picoseconds, Steps};

/// The message in the JSON beside an event.
fn message(json: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Extra {
        message: String,
    }
    if json.len() > MESSAGE_MAX || memchr::memmem::find(json, b"\"message\"").is_none() {
        return None;
    }
    let Extra { message } = serde_json::from_slice(json).ok()?;
    Some(message)
}

/// The strings of a writer that are markers, by number, and other candidates.
pub(super) struct Names<'a> {
    known: HashMap<i64, Marker>,
    pattern: Option<&'a regex::Regex>,
}

/// Reads the strings that are markers; `pattern` as in [`Marker::of`].
///
/// # Errors
/// A table cannot be read.
pub(super) fn names<'a>(
    database: &Database<'_>,
    writer: &Writer,
    pattern: Option<&'a regex::Regex>,
) -> Result<Names<'a>, Error> {
    let mut known = HashMap::new();
    database.rows(writer, STRING, &["id", "string"], &mut |row| {
        if let (ValueRef::Integer(number), ValueRef::Text(name)) = (row.get_ref(1)?, row.get_ref(2)?)
            && known.len() < MARKERS_MAX
            && let Some(marker) = Marker::of(name, pattern)
        {
            known.insert(number, marker);
        }
        Ok(())
    })?;
    Ok(Names { known, pattern })
}

/// Adds the markers among the rows of a table, those in rows that are behind shifted to the clock
/// of the others. Returns the numbers of these rows.
///
/// # Errors
/// The table cannot be read.
pub(super) fn read(
    database: &Database<'_>,
    (writer, table, start): (&Writer, &Table, &str),
    behind: Option<&Behind>,
    names: &Names<'_>,
    markers: &mut Markers,
) -> Result<HashSet<i64>, Error> {
    let event = database.table(writer, "rocpd_event");
    let [join, message, amount] = event
        .map_or_else(|| [String::new(), "NULL".to_owned(), "1".to_owned()], |event| join_event(table, event, EXTRA));
    let (row, extra) = (table.row("t"), table.column("t", EXTRA));
    // Most rows have neither; names are asked for where some name is a marker at all.
    let messages = format!("WHERE length({message}) > 2 OR length({extra}) > 2 OR {amount} > 1");
    let filter = if names.known.is_empty() { messages.as_str() } else { "" };
    let (start, name) = (brought_up(&table.column("t", start), behind), table.column("t", "name_id"));
    let end = brought_up(&table.column("t", "end"), behind);
    let from = quoted(&table.name);
    let statement = format!(
        "SELECT {row}, {start}, {name}, {message}, {extra}, {amount}, {end} FROM {from} t NOT INDEXED {join} {filter}"
    );
    let mut rows = HashSet::new();
    let mut repeated = false;
    database.each(&table.name, &statement, &mut |row| {
        repeated |= row.get::<_, Option<i64>>(5)?.is_some_and(|amount| amount > 1);
        let marker = names.marker(row, &mut markers.steps)?;
        if let (Some(marker), ValueRef::Integer(start)) = (marker, row.get_ref(1)?)
            && start != 0
        {
            markers.stamps.add(marker, Picoseconds::from(start) * PS_PER_NS, PS_PER_NS);
            if rows.len() < MARKERS_MAX {
                rows.insert(row.get(0)?);
            }
        }
        Ok(())
    })?;
    if let Some(event) = event.filter(|_| repeated) {
        markers.repeated.insert(event.name.clone());
    }
    Ok(rows)
}

impl Names<'_> {
    /// The marker in a row's name, or in a message beside it. A message that is not a marker may be
    /// that of a step.
    fn marker(&self, row: &Row<'_>, steps: &mut Steps) -> rusqlite::Result<Option<Marker>> {
        if let ValueRef::Integer(number) = row.get_ref(2)?
            && let Some(marker) = self.known.get(&number)
        {
            return Ok(Some(*marker));
        }
        for at in [3, 4] {
            if let ValueRef::Text(json) | ValueRef::Blob(json) = row.get_ref(at)?
                && let Some(message) = message(json)
            {
                if let Some(marker) = Marker::of(message.as_bytes(), self.pattern) {
                    return Ok(Some(marker));
                }
                if let (ValueRef::Integer(start), ValueRef::Integer(end)) = (row.get_ref(1)?, row.get_ref(6)?) {
                    let [start, end] = [start, end].map(|time| Picoseconds::from(time) * PS_PER_NS);
                    steps.look(message.as_bytes(), start, end);
                }
            }
        }
        Ok(None)
    }
}

/// The markers of a database.
#[derive(Debug, Default)]
pub(super) struct Markers {
    pub(super) stamps: Stamps,
    /// The numbered steps that messages state.
    pub(super) steps: Steps,
    /// Tables in which a number stands for several events.
    repeated: BTreeSet<String>,
}

impl Markers {
    /// What was not kept, in words.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let repeated = self.repeated.iter().map(|table| {
            format!(
                "the table {table} has several rows with the same id; messages of these events were not searched for markers"
            )
        });
        self.stamps.notes().chain(repeated)
    }
}

const EXTRA: &str = "extdata";
/// A longer text beside an event is not a marker.
const MESSAGE_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_are_no_json_are_no_markers() {
        for (json, expected) in [
            (&br#"{"message": "probe_sync.clock#12"}"#[..], Some(Marker::Time(12))),
            (br#"{"message": "clkmark#5", "other": 1}"#, None),
            (br#"{"message": 12}"#, None),
            (br#"{"message": "probe_sync.clock#12""#, None),
            (b"\x04\x22\x4d\x18", None),
            (b"", None),
        ] {
            let found = message(json).and_then(|message| Marker::of(message.as_bytes(), None));
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(json));
        }
    }
}
