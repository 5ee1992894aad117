//! What a database of rocprofv3 holds: tables, tags, and the views over them.
//!
//! Place in the flow: read by whoever makes, merges or queries such a database. [`tables`] are those of schema 3 and 3.0.0, which differ
//! in their [`tags`] only. [`union_view`] lays the tables of several processes together under one name, and [`canonical_views`] are the
//! views that rocprofv3's own readers expect over those names: same names, same columns, same order.
//!
//! A database holds a set of tables for every process: `rocpd_region_0000…` and so on, the part after the name being the process's guid
//! with underscores. Ids count within one set, so a row is known by id AND guid. AMD's own views forget that at two places: `threads`
//! joins processes by id alone and `memory_allocations` threads by id alone, and give too many rows where processes of several hosts
//! have one pid. Here the condition on guid is added by the code that builds the views, so none can lack it.
//!
//! What it does not do: run SQL, or take any from a database.

mod canonical;
mod shape;
mod tables;
mod union;
mod views;
mod views_by_track;

pub use canonical::{View, canonical_views};
pub use tables::{BASE_TABLES, TableDefinition, Version, suffix_of, tables, tags};
pub use union::{quoted, union_view};
