//! The arguments of recorded collectives and memory events, under the names that trace readers
//! know.
//!
//! The names are those of PyTorch's profiler, which `probe_sync check` reads.

use std::ffi::c_char;
use std::sync::OnceLock;

use probe_sync_record::{Arguments, Listed, Value, event};

use super::events::{enter, ps_record_scope, ps_record_site, with};
use super::values::lossy;
use crate::status::guarded;

/// A collective operation. NULL and negative values mean unknown and are omitted.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct ps_record_collective {
    /// Name of the operation, for example "allreduce".
    pub name: *const c_char,
    /// The group's name.
    pub group: *const c_char,
    /// Type of the elements, for example "Float".
    pub dtype: *const c_char,
    /// The operation's number in its group.
    pub sequence: i64,
    /// Number of elements that this rank sends.
    pub elements_in: i64,
    /// Number of elements that this rank receives.
    pub elements_out: i64,
    /// Number of ranks in the group.
    pub group_size: i64,
    /// This rank in the job.
    pub rank: i64,
}

/// Memory that is allocated (bytes > 0) or freed (bytes < 0). Negative values (except in `bytes`
/// and `device`) mean unknown and are omitted.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct ps_record_memory {
    /// Address of the memory.
    pub address: u64,
    /// Size in bytes; negative if the memory is freed.
    pub bytes: i64,
    /// Device number, or -1 for the host.
    pub device: i64,
    /// Bytes in use on the device afterwards.
    pub allocated: i64,
    /// Bytes reserved from the device afterwards.
    pub reserved: i64,
}

/// Begins the scope of a collective, which ps_record_leave() ends. collective may be NULL if
/// nothing is known about it. Returns true if the scope is being recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_collective_enter(
    site: *const ps_record_site,
    collective: *const ps_record_collective,
    scope: *mut ps_record_scope,
) -> bool {
    let begin = || {
        // SAFETY: the rule of the crate.
        Ok(match unsafe { collective.as_ref() } {
            // SAFETY: the rule of the crate.
            Some(collective) => unsafe { enter(site, &stated(collective.arguments()), scope) },
            // SAFETY: the rule of the crate.
            None => unsafe { enter(site, &(), scope) },
        })
    };
    guarded(|_| false, begin)
}

/// Records that memory was allocated or freed now; NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_memory_event(site: *const ps_record_site, memory: *const ps_record_memory) {
    // SAFETY: the rule of the crate.
    if let Some(memory) = unsafe { memory.as_ref() } {
        with(site, |site| event::instant(site, &stated(memory.arguments())));
    }
}

impl ps_record_collective {
    /// # Safety
    /// The texts follow the rule of this crate.
    unsafe fn arguments<'a>(&self) -> [Option<Value<'a>>; KEYS.len()] {
        // SAFETY: the caller's promise.
        let text = |text: *const c_char| (!text.is_null()).then(|| Value::Text(unsafe { lossy(text) }));
        let number = |number: i64| (number >= 0).then_some(Value::Integer(number));
        let mut values = [None; KEYS.len()];
        values[..8].copy_from_slice(&[
            text(self.name),
            text(self.group),
            number(self.sequence),
            text(self.dtype),
            number(self.elements_in),
            number(self.elements_out),
            number(self.group_size),
            number(self.rank),
        ]);
        values
    }
}

impl ps_record_memory {
    fn arguments<'a>(&self) -> [Option<Value<'a>>; KEYS.len()] {
        let number = |number: i64| (number >= 0).then_some(Value::Integer(number));
        let mut values = [None; KEYS.len()];
        values[8..].copy_from_slice(&[
            Some(Value::Unsigned(self.address)),
            Some(Value::Integer(self.bytes)),
            Some(Value::Integer(i64::from(self.device >= 0))),
            Some(Value::Integer(self.device)),
            number(self.allocated),
            number(self.reserved),
        ]);
        values
    }
}

/// Returns the known values with their keys.
fn stated<'a>(values: [Option<Value<'a>>; KEYS.len()]) -> impl Arguments {
    let keys = keys();
    let mut known = [(0, Value::Boolean(false)); KEYS.len()];
    let mut count = 0;
    for (key, value) in keys.iter().zip(values) {
        if let (Some(key), Some(value)) = (key, value) {
            known[count] = (*key, value);
            count += 1;
        }
    }
    Listed(count, move |at: usize| known[at])
}

fn keys() -> &'static [Option<u32>; KEYS.len()] {
    static NUMBERS: OnceLock<[Option<u32>; KEYS.len()]> = OnceLock::new();
    NUMBERS.get_or_init(|| KEYS.map(event::key))
}

/// Keys of collectives, then of memory. The type of a device is 1 for a GPU, 0 for the host.
const KEYS: [&str; 14] = [
    "Collective name",
    "Process Group Name",
    "Seq",
    "dtype",
    "In msg nelems",
    "Out msg nelems",
    "Group size",
    "Rank",
    "Addr",
    "Bytes",
    "Device Type",
    "Device Id",
    "Total Allocated",
    "Total Reserved",
];
