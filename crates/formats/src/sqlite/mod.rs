//! What the formats that are SQLite databases share.
//!
//! `access` opens a file so that nothing in it runs, `table` reads the definitions, `query` runs
//! statements over a database that is being read, `times` finds first and last times, and `names`
//! markers and steps among stored texts. `copy` copies tables with their times through a map,
//! `output` begins and completes a new database, `rewrite` writes one database as another, and
//! `metadata` what an alignment states about it.

pub(crate) mod access;
pub(crate) mod copy;
pub(crate) mod metadata;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod query;
pub(crate) mod rewrite;
pub(crate) mod table;
pub(crate) mod times;
