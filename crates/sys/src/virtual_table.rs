//! SQLite virtual tables whose rows come from the program, without unsafe code in the program
//! itself.
//!
//! SQLite asks a [`Source`] how it would find rows under the given conditions, and then takes them
//! one by one from [`Rows`]. This module provides the structures that SQLite's C interface
//! requires, whose first field is SQLite's own (<https://sqlite.org/vtab.html>, by
//! `rusqlite::vtab`).
//!
//! Only equalities are passed on, and only where the comparison is byte by byte: under another
//! collation equal values may differ in bytes. SQLite evaluates a condition again unless the plan
//! says that it need not, so a source may hand out more rows than were asked for, and never fewer.
//! The tables are read-only.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
use std::sync::Arc;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::vtab::{
    Context, CreateVTab, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConnection, VTabCursor, VTabKind,
    sqlite3_vtab, sqlite3_vtab_cursor,
};
use rusqlite::{Connection, Error, Result};

/// Provides the rows of a table.
pub trait Source: Send + Sync + 'static {
    /// `CREATE TABLE x(…)`: names and types of the columns.
    fn definition(&self) -> String;

    /// Plans how to find rows. `equal` are columns, by number, whose value will be given; a column
    /// may occur twice. `used` has a bit for each requested column, and the highest bit stands for
    /// all from the 64th on.
    fn plan(&self, equal: &[usize], used: u64) -> Plan;

    /// Returns an iterator over the rows, not begun.
    fn rows(self: Arc<Self>) -> Box<dyn Rows>;
}

/// A plan for finding rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The equalities that are used, by index, in the order in which their values are wanted.
    pub equal: Vec<usize>,
    /// Those that SQLite need not evaluate again, by index in `equal`: the rows satisfy them,
    /// whatever type the value has.
    pub exact: Vec<usize>,
    /// The text passed to [`Rows::begin`].
    pub text: String,
    /// Approximate number of rows.
    pub rows: i64,
    /// Approximate cost, in steps of a search.
    pub cost: f64,
}

/// An iterator over rows.
pub trait Rows {
    /// Starts again according to the text of the plan, with the values of its equalities.
    ///
    /// # Errors
    /// Returns an error if the source of the rows cannot be read; the text of
    /// [`Error::ModuleError`] ends the statement.
    fn begin(&mut self, plan: &str, values: &[ValueRef<'_>]) -> Result<()>;

    /// Goes to the next row.
    ///
    /// # Errors
    /// As [`Self::begin`].
    fn advance(&mut self) -> Result<()>;

    /// Whether there are no more rows.
    fn ended(&self) -> bool;

    /// A cell of the current row.
    fn cell(&self, column: usize) -> ValueRef<'_>;

    /// The number of the current row, unique in the table and the same however the row was found.
    /// If conditions are joined by OR, SQLite finds the rows of each condition, and treats rows
    /// with the same number as one.
    ///
    /// # Errors
    /// Returns an error if it has none.
    fn number(&self) -> Result<i64>;
}

/// Creates a table of a connection from a source.
///
/// # Errors
/// Returns an error if the name is taken, or if the definition is invalid.
pub fn create(connection: &Connection, name: &str, source: Arc<dyn Source>) -> Result<()> {
    const MODULE: Module<'static, Table> = Module::read_only_module();
    connection.create_module(name, &MODULE, Some(source))?;
    let quoted = format!("\"{}\"", name.replace('"', "\"\""));
    connection.execute_batch(&format!("CREATE VIRTUAL TABLE {quoted} USING {quoted}"))
}

/// A table in the form that SQLite expects.
#[repr(C)]
struct Table {
    /// SQLite's own part; must be first.
    base: sqlite3_vtab,
    source: Arc<dyn Source>,
}

// SAFETY: the struct is `repr(C)` and begins with SQLite's own, which is what the trait asks for.
unsafe impl VTab<'_> for Table {
    type Aux = Arc<dyn Source>;
    type Cursor = Cursor;

    fn connect(
        _: &mut VTabConnection,
        source: Option<&Arc<dyn Source>>,
        _: &[u8],
        _: &[u8],
        _: &[u8],
        _: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let source = source.ok_or_else(|| Error::ModuleError("a table without a source".to_owned()))?;
        let definition = CString::new(source.definition()).map_err(|error| Error::ModuleError(error.to_string()))?;
        Ok((Cow::Owned(definition), Self { base: sqlite3_vtab::default(), source: Arc::clone(source) }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let mut offered = Vec::new();
        for (place, condition) in info.constraints().enumerate() {
            let equality = condition.operator() == IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ;
            // The row's number has a negative one.
            if let (true, true, Ok(column)) = (condition.is_usable(), equality, usize::try_from(condition.column())) {
                offered.push((place, column));
            }
        }
        offered.retain(|(place, _)| info.collation(*place).is_ok_and(|collation| collation == "BINARY"));
        let equal: Vec<usize> = offered.iter().map(|(_, column)| *column).collect();
        let plan = self.source.plan(&equal, info.col_used());
        for (argument, place) in (1..).zip(&plan.equal) {
            let mut condition = info.constraint_usage(offered[*place].0);
            condition.set_argv_index(argument);
            condition.set_omit(plan.exact.contains(&(argument.unsigned_abs() as usize - 1)));
        }
        info.set_idx_str(&plan.text);
        info.set_estimated_rows(plan.rows);
        info.set_estimated_cost(plan.cost);
        Ok(true)
    }

    fn open(&mut self) -> Result<Cursor> {
        Ok(Cursor { base: sqlite3_vtab_cursor::default(), rows: Arc::clone(&self.source).rows() })
    }
}

impl CreateVTab<'_> for Table {
    const KIND: VTabKind = VTabKind::Default;
}

/// A cursor in the form that SQLite expects.
#[repr(C)]
struct Cursor {
    /// SQLite's own part; must be first.
    base: sqlite3_vtab_cursor,
    rows: Box<dyn Rows>,
}

// SAFETY: the struct is `repr(C)` and begins with SQLite's own, which is what the trait asks for.
unsafe impl VTabCursor for Cursor {
    fn filter(&mut self, _: c_int, plan: Option<&str>, values: &Filters<'_>) -> Result<()> {
        let values: Vec<ValueRef<'_>> = values.iter().collect();
        self.rows.begin(plan.unwrap_or_default(), &values)
    }

    fn next(&mut self) -> Result<()> {
        self.rows.advance()
    }

    fn eof(&self) -> bool {
        self.rows.ended()
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        context.set_result(ToSqlOutput::Borrowed(self.rows.cell(column.unsigned_abs() as usize)))
    }

    fn rowid(&self) -> Result<i64> {
        self.rows.number()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The squares below a hundred; both `n` and `square` can be looked up.
    struct Squares;

    struct Counting {
        at: i64,
        end: i64,
        texts: Vec<String>,
    }

    impl Source for Squares {
        fn definition(&self) -> String {
            "CREATE TABLE x(n INTEGER, square INTEGER, text TEXT)".to_owned()
        }

        fn plan(&self, equal: &[usize], _: u64) -> Plan {
            let found = [(0, "one"), (1, "root")].into_iter().find_map(|(number, text)| {
                equal.iter().position(|column| *column == number).map(|place| (place, text.to_owned()))
            });
            match found {
                Some((place, text)) => Plan { equal: vec![place], exact: Vec::new(), text, rows: 1, cost: 1.0 },
                None => Plan { equal: Vec::new(), exact: Vec::new(), text: "all".to_owned(), rows: 100, cost: 100.0 },
            }
        }

        fn rows(self: Arc<Self>) -> Box<dyn Rows> {
            Box::new(Counting { at: 0, end: 0, texts: (0..100).map(|n| format!("n{n}")).collect() })
        }
    }

    impl Rows for Counting {
        fn begin(&mut self, plan: &str, values: &[ValueRef<'_>]) -> Result<()> {
            (self.at, self.end) = match (plan, values) {
                ("one", [ValueRef::Integer(n)]) if (0..100).contains(n) => (*n, n + 1),
                ("one", [ValueRef::Integer(13_000)]) => return Err(Error::ModuleError("an unlucky number".into())),
                ("root", [ValueRef::Integer(square)]) if *square >= 0 => (square.isqrt(), square.isqrt() + 1),
                ("all", []) => (0, 100),
                _ => (0, 0),
            };
            Ok(())
        }

        fn advance(&mut self) -> Result<()> {
            self.at += 1;
            Ok(())
        }

        fn ended(&self) -> bool {
            self.at >= self.end
        }

        fn cell(&self, column: usize) -> ValueRef<'_> {
            match column {
                0 => ValueRef::Integer(self.at),
                1 => ValueRef::Integer(self.at * self.at),
                _ => ValueRef::Text(self.texts[self.at as usize].as_bytes()),
            }
        }

        fn number(&self) -> Result<i64> {
            Ok(self.at)
        }
    }

    #[test]
    fn rows_are_found_by_plan_and_checked_by_sqlite() {
        let connection = Connection::open_in_memory().expect("memory");
        create(&connection, "a \"table\"", Arc::new(Squares)).expect("a table");
        let check = |query: &str, expected: i64| {
            let query = format!("SELECT {query}");
            assert_eq!(
                connection.query_row(&query, [], |row| row.get::<_, i64>(0)).expect("a row"),
                expected,
                "{query}"
            );
        };
        check("sum(square) FROM \"a \"\"table\"\"\"", 328_350);
        check("square FROM \"a \"\"table\"\"\" WHERE n = 7", 49);
        check("count(*) FROM \"a \"\"table\"\"\" WHERE n IN (1, 3, 300)", 2);
        check("count(*) FROM \"a \"\"table\"\"\" WHERE n = 3 AND square = 8", 0);
        check("n FROM \"a \"\"table\"\"\" WHERE text = 'N42' COLLATE NOCASE", 42);
        // Each condition is looked up by itself; a row that meets both is one.
        check("count(*) FROM \"a \"\"table\"\"\" WHERE n = 3 OR square = 16", 2);
        check("count(*) FROM \"a \"\"table\"\"\" WHERE n = 3 OR square = 9", 1);
        let refused = connection.query_row("SELECT * FROM \"a \"\"table\"\"\" WHERE n = 13000", [], |_| Ok(()));
        assert!(refused.expect_err("an error").to_string().contains("an unlucky number"));
        assert!(connection.execute("DELETE FROM \"a \"\"table\"\"\"", []).is_err());
    }
}
