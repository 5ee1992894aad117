//! OTF2 archives, the Open Trace Format of Score-P, Vampir and Scalasca, written through the
//! system's libotf2 (3.0 or newer).
//!
//! `writers::otf2` uses the crate with its feature `otf2`. An [`Archive`] is a folder's
//! `NAME.otf2`, `NAME.def` and the folder `NAME/` with a file per location. The caller chooses the
//! numbers of definitions; the library checks neither that they are defined nor that they are
//! unique. Definitions may come at any time before [`Archive::close`]. Times are in ns. An event
//! goes to the buffer of its location (256 KiB, allocated as it fills) and from there to its file.
//! The names follow the reference, the headers `otf2/OTF2_*.h`.
//!
//! Declarations are made by bindgen when the crate is built. It does not read archives, number or
//! intern definitions, order events, or write records that no caller needs.

mod archive;
mod bindings;
mod definitions;
mod errors;
mod memory;

pub use archive::{Archive, CollectiveEnd, Error};
pub use definitions::{CollectiveOperation, GroupKind, LocationGroup, LocationKind, Region, RegionRole, UNDEFINED};
