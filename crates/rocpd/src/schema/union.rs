//! Views that combine the tables of several processes under one name.
//!
//! SQLite rejects a compound of more than 500 selects (`SQLITE_LIMIT_COMPOUND_SELECT`), so larger
//! unions are nested. All tables must have the same columns: `SELECT *` takes the first table's
//! names, and SQLite rejects unequal counts.

/// An identifier in double quotes.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `CREATE VIEW base AS …` over `base` with each suffix, in their order.
///
/// # Panics
/// No suffix is given.
pub fn union_view(base: &str, suffixes: &[&str]) -> String {
    assert!(!suffixes.is_empty(), "a view over no table");
    let selects =
        suffixes.iter().map(|suffix| format!("SELECT * FROM {}", quoted(&format!("{base}{suffix}")))).collect();
    format!("CREATE VIEW {} AS {}", quoted(base), union(selects))
}

/// All selects in one, in their order.
fn union(mut selects: Vec<String>) -> String {
    while selects.len() > SELECTS_MAX {
        let groups = selects.chunks(SELECTS_MAX).map(|group| format!("SELECT * FROM ({})", group.join(" UNION ALL ")));
        selects = groups.collect();
    }
    selects.join(" UNION ALL ")
}

/// Below SQLite's own 500, since a query may put further selects beside the view's.
const SELECTS_MAX: usize = 256;
