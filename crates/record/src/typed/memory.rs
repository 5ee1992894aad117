//! Allocations, frees and failed allocations of memory, on the host or a device.
//!
//! They are moments of the kind `Memory`, with arguments that exporters show as totals over time.

use crate::event::{self, OF_SITE};
use crate::kind::Kind;
use crate::site::Site;
use crate::value::{Listed, Value};

/// Kind of a memory event.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum MemoryEvent {
    /// Memory was allocated.
    Allocate,
    /// Memory was freed.
    Free,
    /// An allocation failed for lack of memory.
    OutOfMemory,
}

impl MemoryEvent {
    /// Returns its name in recordings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Free => "free",
            Self::OutOfMemory => "out of memory",
        }
    }
}

/// Amounts of a memory event.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct MemoryCounts<'a> {
    /// Address of the memory; 0 if there is none.
    pub address: u64,
    /// Size, bytes.
    pub bytes: u64,
    /// Device: `cpu`, `cuda:0`.
    pub device: &'a str,
    /// Memory allocated on the device afterwards, bytes.
    pub total_allocated: Option<u64>,
    /// Memory reserved from the device by the allocator afterwards, bytes.
    pub total_reserved: Option<u64>,
}

/// Returns the site of all events of a kind.
pub fn site_of(event: MemoryEvent) -> &'static Site {
    match event {
        MemoryEvent::Allocate => &ALLOCATE,
        MemoryEvent::Free => &FREE,
        MemoryEvent::OutOfMemory => &OUT_OF_MEMORY,
    }
}

/// Records a memory event.
pub fn memory(event: MemoryEvent, counts: &MemoryCounts<'_>) {
    let site = site_of(event);
    if !event::is_wanted(site) {
        return;
    }
    let totals = [counts.total_allocated, counts.total_reserved];
    let stated = [
        (OF_SITE, Value::Unsigned(counts.address)),
        (1 | OF_SITE, Value::Unsigned(counts.bytes)),
        (2 | OF_SITE, Value::Text(counts.device)),
    ];
    let mut all = [stated[0], stated[1], stated[2], stated[0], stated[0]];
    let mut count = stated.len();
    for (place, total) in (3..).zip(totals) {
        if let Some(total) = total {
            all[count] = (place | OF_SITE, Value::Unsigned(total));
            count += 1;
        }
    }
    event::instant(site, &Listed(count, |at: usize| all[at]));
}

/// Records a memory event: `memory!(Allocate, address = pointer, bytes = size, device = "cuda:0",
/// total_allocated = sum)`. The kind is one of [`MemoryEvent`](crate::typed::MemoryEvent); the
/// arguments that readers understand are those of [`keys`](crate::typed::keys).
#[macro_export]
macro_rules! memory {
    ($event:ident $(, $($rest:tt)*)?) => {{
        $crate::__site!(
            SITE, $crate::Kind::Memory, $crate::typed::MemoryEvent::$event.as_str(); $($($rest)*)?
        );
        if $crate::__wanted!(SITE) {
            $crate::event::instant(&SITE, &$crate::__values!([], 0; $($($rest)*)?));
        }
    }};
}

const KEYS: &[&str] =
    &[super::keys::ADDRESS, super::keys::BYTES, super::keys::DEVICE, super::keys::ALLOCATED, super::keys::RESERVED];

static ALLOCATE: Site = Site::new(MemoryEvent::Allocate.as_str(), Kind::Memory, "", 0, KEYS);
static FREE: Site = Site::new(MemoryEvent::Free.as_str(), Kind::Memory, "", 0, KEYS);
static OUT_OF_MEMORY: Site = Site::new(MemoryEvent::OutOfMemory.as_str(), Kind::Memory, "", 0, KEYS);
