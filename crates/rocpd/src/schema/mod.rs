//! The contents of a rocprofv3 database: tables, tags, and the views over them.
//!
//! [`tables`] are those of schema 3 and 3.0.0, which differ only in their [`tags`]. [`union_view`]
//! combines the tables of several processes under one name. [`canonical_views`] are the views that
//! rocprofv3's own readers expect over those names, with the same names, columns and column order.
//!
//! A database holds a set of tables for every process: `rocpd_region_0000…` and so on, the part
//! after the name being the process's guid with underscores. Ids count within one set, so a row is
//! known by id AND guid. AMD's own views forget that at two places: `threads` joins processes by id
//! alone and `memory_allocations` threads by id alone, and give too many rows where processes of
//! several hosts have one pid. Here the condition on guid is added by the code that builds the
//! views, so none can lack it.

mod canonical;
mod shape;
mod tables;
mod union;
mod views;
mod views_by_track;

pub use canonical::{View, canonical_views};
pub use tables::{BASE_TABLES, TableDefinition, Version, suffix_of, tables, tags};
pub use union::{quoted, union_view};
