//! Databases of rocprofv3 (rocpd): the tables of their schemas, and their views with every join on
//! the guid.
//!
//! [`schema`] consists of text only: definitions, tags and views, for use with any connection.
#![forbid(unsafe_code)]

pub mod schema;
pub mod writer;
