//! Views that combine the tables of several processes under one name.
//!
//! SQLite rejects a compound of more than 500 selects (`SQLITE_LIMIT_COMPOUND_SELECT`), so larger
//! unions are nested. All tables must have the same columns: `SELECT *` takes the first table's
//! names, and SQLite rejects unequal counts.

/// Returns an identifier in double quotes.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns `CREATE VIEW base AS …` over `base` with each suffix, in their order.
///
/// # Panics
/// Panics if no suffix is given.
pub fn union_view(base: &str, suffixes: &[&str]) -> String {
    assert!(!suffixes.is_empty(), "a view over no table");
    let selects =
        suffixes.iter().map(|suffix| format!("SELECT * FROM {}", quoted(&format!("{base}{suffix}")))).collect();
    format!("CREATE VIEW {} AS {}", quoted(base), union(selects))
}

/// Joins all selects into one, in their order.
fn union(mut selects: Vec<String>) -> String {
    while selects.len() > SELECTS_MAX {
        let groups = selects.chunks(SELECTS_MAX).map(|group| format!("SELECT * FROM ({})", group.join(" UNION ALL ")));
        selects = groups.collect();
    }
    selects.join(" UNION ALL ")
}

/// Below SQLite's own limit of 500, since a query may add selects to those of the view.
const SELECTS_MAX: usize = 256;
