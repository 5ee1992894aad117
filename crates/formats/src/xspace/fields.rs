//! The numbers of the fields that this crate reads or writes, by message.
//!
//! It omits fields that are only copied.

/// Field numbers of the outermost message.
pub(super) mod space {
    pub(in super::super) const PLANES: u32 = 1;
    pub(in super::super) const HOSTNAMES: u32 = 4;
}

/// Field numbers of a plane.
pub(super) mod plane {
    pub(in super::super) const ID: u32 = 1;
    pub(in super::super) const NAME: u32 = 2;
    pub(in super::super) const LINES: u32 = 3;
    pub(in super::super) const EVENT_METADATA: u32 = 4;
    pub(in super::super) const STAT_METADATA: u32 = 5;
    pub(in super::super) const STATS: u32 = 6;
}

/// Field numbers of an event's or stat's metadata.
pub(super) mod metadata {
    pub(in super::super) const STATS: u32 = 5;
}

/// Field numbers of a stat.
pub(super) mod stat {
    pub(in super::super) const METADATA_ID: u32 = 1;
    pub(in super::super) const DOUBLE: u32 = 2;
    pub(in super::super) const UINT64: u32 = 3;
    pub(in super::super) const INT64: u32 = 4;
    pub(in super::super) const STRING: u32 = 5;
    pub(in super::super) const REFERENCE: u32 = 7;
}

/// Field numbers of a line.
pub(super) mod line {
    pub(in super::super) const ID: u32 = 1;
    pub(in super::super) const NAME: u32 = 2;
    pub(in super::super) const TIMESTAMP_NS: u32 = 3;
    pub(in super::super) const EVENTS: u32 = 4;
    pub(in super::super) const DURATION_PS: u32 = 9;
    pub(in super::super) const DISPLAY_ID: u32 = 10;
    pub(in super::super) const DISPLAY_NAME: u32 = 11;
}

/// Field numbers of an event.
pub(super) mod event {
    pub(in super::super) const METADATA_ID: u32 = 1;
    pub(in super::super) const OFFSET_PS: u32 = 2;
    pub(in super::super) const DURATION_PS: u32 = 3;
    pub(in super::super) const STATS: u32 = 4;
    pub(in super::super) const OCCURRENCES: u32 = 5;
}
