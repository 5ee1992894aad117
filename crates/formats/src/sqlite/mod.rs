//! What the formats that are SQLite databases share.
//!
//! `access` opens a file so that nothing in it runs, `table` reads the definitions, `copy` copies
//! tables with their times through a map, `output` begins and completes a new database, and `query`
//! runs statements over one that is being read.

pub(crate) mod access;
pub(crate) mod copy;
pub(crate) mod output;
pub(crate) mod query;
pub(crate) mod table;
