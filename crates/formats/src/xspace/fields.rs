//! The numbers of the fields that are read or written, by message; the names are those of the
//! format.
//!
//! It omits fields that are only copied.

/// Field numbers of the outermost message.
pub mod space {
    pub const PLANES: u32 = 1;
    pub const HOSTNAMES: u32 = 4;
}

/// Field numbers of a plane.
pub mod plane {
    pub const ID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const LINES: u32 = 3;
    pub const EVENT_METADATA: u32 = 4;
    pub const STAT_METADATA: u32 = 5;
    pub const STATS: u32 = 6;
}

/// Field numbers of an entry of a plane's names, and of the metadata in it.
pub mod metadata {
    pub const KEY: u32 = 1;
    pub const VALUE: u32 = 2;
    pub const ID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const STATS: u32 = 5;
}

/// Field numbers of a stat.
pub mod stat {
    pub const METADATA_ID: u32 = 1;
    pub const DOUBLE: u32 = 2;
    pub const UINT64: u32 = 3;
    pub const INT64: u32 = 4;
    pub const STRING: u32 = 5;
    pub const REFERENCE: u32 = 7;
}

/// Field numbers of a line.
pub mod line {
    pub const ID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const TIMESTAMP_NS: u32 = 3;
    pub const EVENTS: u32 = 4;
    pub const DURATION_PS: u32 = 9;
    pub const DISPLAY_ID: u32 = 10;
    pub const DISPLAY_NAME: u32 = 11;
}

/// Field numbers of an event.
pub mod event {
    pub const METADATA_ID: u32 = 1;
    pub const OFFSET_PS: u32 = 2;
    pub const DURATION_PS: u32 = 3;
    pub const STATS: u32 = 4;
    pub const OCCURRENCES: u32 = 5;
}
