//! The contents of a row that SQLite returns.

use rusqlite::Row;
use rusqlite::types::ValueRef;

/// A time that is set; whether it is a number was checked for all tables before.
pub(super) fn time(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<i64>> {
    integer(row, at).map(|time| time.filter(|time| *time != 0))
}

/// An integer, if it is one.
pub(super) fn integer(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<i64>> {
    match row.get_ref(at)? {
        ValueRef::Integer(number) => Ok(Some(number)),
        _ => Ok(None),
    }
}

/// Text or number as text, not longer than needed.
pub(super) fn bytes(row: &Row<'_>, at: usize) -> rusqlite::Result<Vec<u8>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Text(text) | ValueRef::Blob(text) => text[..text.len().min(TEXT_MAX)].to_vec(),
        ValueRef::Integer(number) => number.to_string().into_bytes(),
        _ => Vec::new(),
    })
}

/// Longer names and values are cut.
pub(super) const TEXT_MAX: usize = 1024;
