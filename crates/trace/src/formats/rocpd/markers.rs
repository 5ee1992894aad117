//! What names and messages say of clocks and ranks: the project's own markers, marks, and those that a pattern finds.
//!
//! Place in the flow: under `facts`. A marker is the name of a region, or the message of a region's or sample's event. One with ONE
//! number, `clkmark#<true time>`, states no time of its node's clock and is none. What it does not do: judge whether they fit a clock.

use std::collections::{BTreeSet, HashMap, HashSet};

use probe_sync_estimate::record::parse_mark_name;
use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde::Deserialize;

use super::catalog::{Table, Writer, quoted};
use super::reading::{Behind, Database, STRING, brought_up, join_event};
use crate::Error;
use crate::formats::rank_marker;
use crate::model::{ClockPair, MarkStamp, MarkToken, PairKind, Picoseconds};

/// What a name says.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) enum Marker {
    /// The system clock showed this many ns just before.
    Time(i64),
    /// It is meant to tell a time, but does not.
    Unreadable,
    /// A mark of a process, and its number.
    Mark(MarkToken, u64),
    /// A rank and the number of ranks.
    Rank(u32, u32),
}

impl Marker {
    /// What a name is, if it is a marker; `pattern` has a group named `system_ns`.
    pub(super) fn of(name: &[u8], pattern: Option<&regex::Regex>) -> Option<Marker> {
        if let Some((token, number)) = parse_mark_name(name) {
            return Some(Marker::Mark(token, number));
        }
        if let Some((rank, world_size)) = rank_marker(name) {
            return Some(Marker::Rank(rank, world_size));
        }
        let stated = if let Some(rest) = name.strip_prefix(MARKER) {
            rest
        } else if let Some(at) = name.strip_prefix(SET_MARKER).and_then(|rest| memchr::memchr(b'#', rest)) {
            &name[SET_MARKER.len() + at + 1..]
        } else {
            let captures = pattern?.captures(std::str::from_utf8(name).ok()?)?;
            captures.name("system_ns")?.as_str().as_bytes()
        };
        let time = std::str::from_utf8(stated).ok().and_then(|text| text.parse().ok());
        Some(time.map_or(Marker::Unreadable, Marker::Time))
    }

    /// What the message in the JSON beside an event is, if it is a marker.
    pub(super) fn of_message(json: &[u8], pattern: Option<&regex::Regex>) -> Option<Marker> {
        #[derive(Deserialize)]
        struct Extra {
            message: String,
        }
        if json.len() > MESSAGE_MAX || memchr::memmem::find(json, b"\"message\"").is_none() {
            return None;
        }
        let Extra { message } = serde_json::from_slice(json).ok()?;
        Marker::of(message.as_bytes(), pattern)
    }
}

/// The strings of a writer that are markers, by number, and what else may be one.
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

/// Takes the markers among a table's rows in, those of rows that are behind brought to the clock of the others; the numbers of these rows.
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
    let from = quoted(&table.name);
    let statement = format!(
        "SELECT {row}, {start}, {name}, {message}, {extra}, {amount} FROM {from} t NOT INDEXED {join} {filter}"
    );
    let mut rows = HashSet::new();
    let mut repeated = false;
    database.each(&table.name, &statement, &mut |row| {
        repeated |= row.get::<_, Option<i64>>(5)?.is_some_and(|amount| amount > 1);
        if let (Some(marker), ValueRef::Integer(start)) = (names.marker(row)?, row.get_ref(1)?)
            && start != 0
        {
            markers.take(marker, start);
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
    /// What a row's name, or else a message beside it, is.
    fn marker(&self, row: &Row<'_>) -> rusqlite::Result<Option<Marker>> {
        if let ValueRef::Integer(number) = row.get_ref(2)?
            && let Some(marker) = self.known.get(&number)
        {
            return Ok(Some(*marker));
        }
        for at in [3, 4] {
            if let ValueRef::Text(json) | ValueRef::Blob(json) = row.get_ref(at)?
                && let Some(marker) = Marker::of_message(json, self.pattern)
            {
                return Ok(Some(marker));
            }
        }
        Ok(None)
    }
}

/// What the markers of a database say.
#[derive(Debug, Default)]
pub(super) struct Markers {
    pub(super) pairs: Vec<ClockPair>,
    pub(super) marks: Vec<MarkStamp>,
    pub(super) rank: Option<(u32, u32)>,
    pub(super) left_out: u64,
    pub(super) unreadable: u64,
    /// Tables in which a number stands for several events.
    repeated: BTreeSet<String>,
}

impl Markers {
    /// Takes in a marker that was stamped at this time, ns on R.
    pub(super) fn take(&mut self, marker: Marker, start_ns: i64) {
        let tracer_ps = Picoseconds::from(start_ns) * 1000;
        match marker {
            Marker::Rank(rank, world_size) => self.rank = self.rank.or(Some((rank, world_size))),
            Marker::Unreadable => self.unreadable += 1,
            _ if self.pairs.len() + self.marks.len() >= MARKERS_MAX => self.left_out += 1,
            Marker::Time(system_ns) => {
                self.pairs.push(ClockPair { tracer_ps, system_ns, kind: PairKind::Marker });
            }
            Marker::Mark(token, number) => self.marks.push(MarkStamp { token, number, tracer_ps, unit_ps: 1000 }),
        }
    }

    /// What was not kept, in words.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let left_out =
            (self.left_out > 0).then(|| format!("{} markers beyond the first million were left out", self.left_out));
        let unreadable =
            (self.unreadable > 0).then(|| format!("{} clock markers carry no readable time", self.unreadable));
        let repeated = self.repeated.iter().map(|table| {
            format!(
                "the table {table} has several rows of one id: messages of these events are not looked at for markers"
            )
        });
        left_out.into_iter().chain(unreadable).chain(repeated)
    }
}

const EXTRA: &str = "extdata";
/// The markers of this project.
const MARKER: &[u8] = b"probe_sync.clock#";
/// The markers of the data sets: true time, then the node's.
const SET_MARKER: &[u8] = b"clkmark#";
/// A longer text beside an event is no marker.
const MESSAGE_MAX: usize = 1 << 16;
/// Markers that are kept; a marker a millisecond for a quarter of an hour.
const MARKERS_MAX: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_state_a_time_or_a_rank_are_markers() {
        let pattern = regex::Regex::new(r"now=(?<system_ns>\S+)").expect("a pattern");
        for (name, expected) in [
            (&b"probe_sync.clock#1700000000000000001"[..], Some(Marker::Time(1_700_000_000_000_000_001))),
            (b"probe_sync.clock#soon", Some(Marker::Unreadable)),
            (b"clkmark#5#7", Some(Marker::Time(7))),
            (b"clkmark#5", None),
            (b"probe_sync.rank#3/8", Some(Marker::Rank(3, 8))),
            (b"it is now=12 ns", Some(Marker::Time(12))),
            (b"it is now=\xff", None),
            (b"step 1", None),
        ] {
            assert_eq!(Marker::of(name, Some(&pattern)), expected, "{}", String::from_utf8_lossy(name));
        }
        assert_eq!(Marker::of(b"now=12", None), None);
    }

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
            assert_eq!(Marker::of_message(json, None), expected, "{}", String::from_utf8_lossy(json));
        }
    }
}
