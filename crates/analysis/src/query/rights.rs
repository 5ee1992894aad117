//! The permissions of a caller's statement: reading and computing only.
//!
//! They are set on the connection in memory after all its tables exist; SQLite checks them for
//! every part of a statement before the first row. They do not limit how long a statement runs.

use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

/// Refuses everything but reading: ATTACH, PRAGMA that set something, tables of the caller's own,
/// functions that load code.
pub(super) fn reading_only(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.authorizer(Some(|context: AuthContext<'_>| {
        let allowed = match context.action {
            AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => true,
            AuthAction::Function { function_name } => !function_name.eq_ignore_ascii_case("load_extension"),
            AuthAction::Pragma { pragma_name, .. } => LISTING.contains(&pragma_name),
            _ => false,
        };
        if allowed { Authorization::Allow } else { Authorization::Deny }
    }))
}

/// Pragmas that list tables and columns.
const LISTING: [&str; 3] = ["table_info", "table_list", "table_xinfo"];
