//! Checks of databases as SQLite and rocprofv3's readers see them.

mod faults;
mod named;
mod readers;
mod schema;
mod writer;
