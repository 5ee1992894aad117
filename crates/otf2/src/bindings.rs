//! What `build.rs` has bindgen declare of libotf2's header.
//!
//! Place in the flow: under the rest of this crate. What it does not do: anything; see the library's own reference.
#![expect(non_camel_case_types, non_snake_case, dead_code, reason = "names are the header's")]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
