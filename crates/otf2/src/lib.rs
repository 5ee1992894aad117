//! OTF2 archives, the Open Trace Format of Score-P, Vampir and Scalasca, written through the system's libotf2 (3.0 or newer).
//!
//! Place in the flow: under `trace::write::otf2`, with its feature `otf2`. An [`Archive`] is a folder's `NAME.otf2`, `NAME.def` and the
//! folder `NAME/` with a file per location. Numbers of definitions are the caller's; the library checks neither that they are
//! defined nor that they are unique. Definitions may come at any time before [`Archive::close`]. Times are ns. An event goes to the
//! buffer of its location (256 KiB, taken as it fills) and from there to its file.
//! Reference: the headers `otf2/OTF2_*.h`, whose words the names here are.
//!
//! Declarations are made by bindgen when the crate is built. What it does not do: read archives, number or
//! intern anything, order events, write the records that no caller needs.

mod archive;
mod bindings;
mod definitions;
mod errors;
mod memory;

pub use archive::{Archive, CollectiveEnd, Error};
pub use definitions::{CollectiveOperation, GroupKind, LocationGroup, LocationKind, Region, RegionRole, UNDEFINED};
