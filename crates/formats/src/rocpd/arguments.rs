//! The table of arguments of a database, read in the order of events.

use rusqlite::Rows;
use rusqlite::types::ValueRef;

use super::catalog;
use crate::chunk::{Chunk, Value};

/// The table of arguments, walked in the order of events alongside the table that they belong to.
pub(super) struct Arguments<'a> {
    rows: Option<Rows<'a>>,
    /// The next argument, with its event.
    next: Option<(i64, String, String)>,
}

impl<'a> Arguments<'a> {
    pub(super) fn new(rows: Option<Rows<'a>>) -> rusqlite::Result<Self> {
        let mut arguments = Self { rows, next: None };
        arguments.advance()?;
        Ok(arguments)
    }

    /// Adds the arguments of an event; events must be asked for in their order.
    pub(super) fn take(&mut self, event: i64, chunk: &mut Chunk) -> rusqlite::Result<()> {
        while let Some((at, key, value)) = self.next.as_ref().filter(|next| next.0 <= event) {
            if *at == event {
                chunk.args.key.push(chunk.strings.intern(key));
                chunk.args.value.push(Value::Text(chunk.strings.push(value)));
            }
            self.advance()?;
        }
        Ok(())
    }

    fn advance(&mut self) -> rusqlite::Result<()> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        self.next = match rows.next()? {
            Some(row) => Some((row.get(0)?, text(row.get_ref(1)?), text(row.get_ref(2)?))),
            None => None,
        };
        Ok(())
    }
}

/// A cell as text, nothing for NULL.
pub(super) fn text(value: ValueRef<'_>) -> String {
    catalog::text(value).unwrap_or_default()
}
