//! The numbers of the fields of an XSpace that are written.
//!
//! `formats::xspace` documents the whole message.

/// Fields of the outermost message.
pub(super) mod space {
    pub(in super::super) const PLANES: u32 = 1;
    pub(in super::super) const HOSTNAMES: u32 = 4;
}

/// Fields of a plane.
pub(super) mod plane {
    pub(in super::super) const ID: u32 = 1;
    pub(in super::super) const NAME: u32 = 2;
    pub(in super::super) const LINES: u32 = 3;
    pub(in super::super) const EVENT_METADATA: u32 = 4;
    pub(in super::super) const STAT_METADATA: u32 = 5;
    pub(in super::super) const STATS: u32 = 6;
}

/// Fields of an entry of a plane's names, and of the message in it.
pub(super) mod metadata {
    pub(in super::super) const KEY: u32 = 1;
    pub(in super::super) const VALUE: u32 = 2;
    pub(in super::super) const ID: u32 = 1;
    pub(in super::super) const NAME: u32 = 2;
}

/// Fields of a line.
pub(super) mod line {
    pub(in super::super) const ID: u32 = 1;
    pub(in super::super) const NAME: u32 = 2;
    pub(in super::super) const TIMESTAMP_NS: u32 = 3;
    pub(in super::super) const EVENTS: u32 = 4;
}

/// Fields of an event.
pub(super) mod event {
    pub(in super::super) const METADATA_ID: u32 = 1;
    pub(in super::super) const OFFSET_PS: u32 = 2;
    pub(in super::super) const DURATION_PS: u32 = 3;
    pub(in super::super) const STATS: u32 = 4;
}

/// Fields of a stat.
pub(super) mod stat {
    pub(in super::super) const METADATA_ID: u32 = 1;
    pub(in super::super) const DOUBLE: u32 = 2;
    pub(in super::super) const UINT64: u32 = 3;
    pub(in super::super) const INT64: u32 = 4;
    pub(in super::super) const STRING: u32 = 5;
    pub(in super::super) const REFERENCE: u32 = 7;
}
