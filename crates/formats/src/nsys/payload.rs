//! Payloads of NVTX ranges: fields in a layout that the program registered, as NCCL does for its
//! calls.
//!
//! An export holds them as bytes (`--include-blobs=true`), with the layout in the tables
//! `NVTX_PAYLOAD_SCHEMA*`, or as JSON (`--include-json=true`). The bytes begin with four numbers of 64
//! bits: domain, layout, length, and where the fields begin or end. Of the fields, single whole
//! numbers are read; the names of NCCL's are those of `nvtx_payload_schemas.h`.

use std::collections::HashMap;

use rusqlite::types::ValueRef;

use super::reading::Database;
use crate::Error;
use crate::sqlite::table::{quoted, text};

/// The layouts in an export, by domain and number.
#[derive(Debug, Default)]
pub(super) struct Layouts(HashMap<(i64, i64), Layout>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Layout {
    fields: Vec<Field>,
    /// Processes of the report registered different layouts under this number.
    is_ambiguous: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    index: i64,
    name: String,
    offset: usize,
    bytes: usize,
    is_signed: bool,
}

/// The fields of an event, by name.
pub(super) type Fields = Vec<(String, i128)>;

impl Layouts {
    /// Reads the layouts of an export.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(super) fn read(database: &Database<'_>) -> Result<Layouts, Error> {
        let mut layouts: HashMap<(i64, i64), Layout> = HashMap::new();
        let Some(table) = database.catalog.table("NVTX_PAYLOAD_SCHEMA_ENTRIES") else { return Ok(Layouts(layouts)) };
        let columns = ["domainId", "schemaId", "idx", "type", "name", "offset"].map(|name| table.column("t", name));
        let sql = format!("SELECT {} FROM {} t NOT INDEXED", columns.join(", "), quoted(&table.name));
        database.each(&table.name, &sql, &mut |row| {
            let whole = |at: usize| row.get_ref(at).map(|value| value.as_i64().ok());
            let (Some(domain), Some(layout), Some(index)) = (whole(0)?, whole(1)?, whole(2)?) else { return Ok(()) };
            // The first field's offset is not stated.
            let offset = whole(5)?.or(Some(0).filter(|_| index == 0)).and_then(|offset| usize::try_from(offset).ok());
            let shape = whole(3)?.and_then(shape);
            let name = text(row.get_ref(4)?).filter(|name| name.len() <= NAME_MAX);
            let (Some(name), Some(offset), Some((bytes, is_signed))) = (name, offset, shape) else {
                return Ok(());
            };
            let field = Field { index, name, offset, bytes, is_signed };
            if layouts.len() >= LAYOUTS_MAX && !layouts.contains_key(&(domain, layout)) {
                return Ok(());
            }
            let layout = layouts.entry((domain, layout)).or_default();
            match layout.fields.iter().find(|known| known.index == index) {
                Some(known) => layout.is_ambiguous |= *known != field,
                None if layout.fields.len() < FIELDS_MAX => layout.fields.push(field),
                None => {}
            }
            Ok(())
        })?;
        Ok(Layouts(layouts))
    }

    /// Returns the fields of an event: from its bytes, otherwise from its JSON.
    pub(super) fn fields(&self, bytes: ValueRef<'_>, json: ValueRef<'_>) -> Fields {
        if let ValueRef::Blob(bytes) | ValueRef::Text(bytes) = bytes
            && let Some(fields) = self.of_bytes(bytes)
        {
            return fields;
        }
        match json {
            ValueRef::Text(json) | ValueRef::Blob(json) => of_json(json),
            _ => Fields::new(),
        }
    }

    fn of_bytes(&self, bytes: &[u8]) -> Option<Fields> {
        let header = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (domain, number, length) = (header(0)? as i64, header(8)? as i64, usize::try_from(header(16)?).ok()?);
        let content = bytes.get(HEADER_BYTES..)?.get(..length)?;
        let layout = self.0.get(&(domain, number)).filter(|layout| !layout.is_ambiguous)?;
        let value = |field: &Field| {
            let cell = content.get(field.offset..field.offset.checked_add(field.bytes)?)?;
            let mut wide = [0; 8];
            wide[..cell.len()].copy_from_slice(cell);
            let unused = 64 - 8 * field.bytes as u32;
            let value = u64::from_le_bytes(wide);
            let value =
                if field.is_signed { i128::from((value << unused) as i64 >> unused) } else { i128::from(value) };
            Some((field.name.clone(), value))
        };
        Some(layout.fields.iter().filter_map(value).collect())
    }
}

/// Returns the whole numbers in a JSON object.
fn of_json(json: &[u8]) -> Fields {
    if json.len() > JSON_MAX {
        return Fields::new();
    }
    let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(json) else { return Fields::new() };
    let value = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.parse().ok(),
        other => other.as_u64().map(i128::from).or_else(|| other.as_i64().map(i128::from)),
    };
    object.iter().filter_map(|(name, field)| Some((name.clone(), value(field)?))).collect()
}

/// Returns the length and signedness of an integer type, by its number in NVTX's header
/// `nvToolsExtPayload.h`; C's types have their sizes on 64-bit Linux.
fn shape(kind: i64) -> Option<(usize, bool)> {
    Some(match kind {
        1 | 11 => (1, true),
        2 | 12 => (1, false),
        3 | 13 => (2, true),
        4 | 14 => (2, false),
        5 | 15 => (4, true),
        6 | 16 => (4, false),
        7 | 9 | 17 => (8, true),
        8 | 10 | 18 | 22 => (8, false),
        _ => return None,
    })
}

const HEADER_BYTES: usize = 32;
/// Layouts and fields of each that are remembered.
const LAYOUTS_MAX: usize = 10_000;
const FIELDS_MAX: usize = 256;
/// A field with a longer name is not read.
const NAME_MAX: usize = 256;
/// A longer text is not read.
const JSON_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts() -> Layouts {
        let field = |index: i64, name: &str, offset: usize, kind: i64| {
            let (bytes, is_signed) = shape(kind).expect("a number");
            Field { index, name: name.to_owned(), offset, bytes, is_signed }
        };
        let fields = vec![field(0, "comm", 0, 18), field(1, "bytes", 8, 22), field(2, "root", 16, 5)];
        let twice = Layout { fields: fields.clone(), is_ambiguous: true };
        Layouts(HashMap::from([((1, 7), Layout { fields, is_ambiguous: false }), ((1, 8), twice)]))
    }

    fn blob(layout: u64, length: u64, content: &[u8]) -> Vec<u8> {
        let header = [1, layout, length, 32].map(u64::to_le_bytes).concat();
        [header.as_slice(), content].concat()
    }

    #[test]
    fn bytes_are_read_by_their_layout() {
        let content = [&u64::MAX.to_le_bytes()[..], &4096_u64.to_le_bytes(), &(-2_i32).to_le_bytes(), &[0; 4]].concat();
        let check = |bytes: &[u8], json: &[u8], expected: &[(&str, i128)]| {
            let found = layouts().fields(ValueRef::Blob(bytes), ValueRef::Text(json));
            let expected: Fields = expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            assert_eq!(found, expected);
        };
        let all = [("comm", i128::from(u64::MAX)), ("bytes", 4096), ("root", -2)];
        check(&blob(7, 24, &content), b"", &all);
        // Not all of it is there.
        check(&blob(7, 16, &content), b"", &all[..2]);
        check(&blob(7, 25, &content), b"", &[]);
        check(&blob(7, u64::MAX, &content), b"", &[]);
        check(&blob(8, 24, &content), b"", &[]);
        check(&blob(9, 24, &content), br#"{"Root": 3, "x": "5", "y": [1], "z": 1.5}"#, &[("Root", 3), ("x", 5)]);
        check(b"", b"[1]", &[]);
        check(&[0; 31], b"{", &[]);
    }
}
