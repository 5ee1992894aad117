//! The declarations that bindgen generates from libotf2's header (see `build.rs`).
//!
//! See the library's own reference for their documentation.
#![expect(non_camel_case_types, non_snake_case, dead_code, reason = "names are the header's")]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
