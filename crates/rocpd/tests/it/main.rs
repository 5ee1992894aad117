//! Checks of databases as SQLite and rocprofv3's readers see them.

mod faults;
mod readers;
mod schema;
mod writer;
