//! Databases of rocprofv3 (rocpd): what a schema holds, and its views with every join on guid.
//!
//! Place in the flow: under the trace format `rocpd`, which reads, rewrites and merges such databases, and under recorders that write
//! them. [`schema`] is text only: definitions, tags and views, for whoever has a connection.
//! What it does not do: read a database, trust one, or move its times.
#![forbid(unsafe_code)]

pub mod schema;
pub mod writer;
