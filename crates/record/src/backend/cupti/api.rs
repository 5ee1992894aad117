//! CUPTI's activity API, as far as it is used, with statuses as texts.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStringExt as _;

use probe_sync_sys::Library;

use super::functions::{functions, status_name};
use super::records::{self, VERSIONS};

functions! {
    /// By `cupti_version.h`, `cupti_result.h` and `cupti_activity.h`.
    Table {
        version = c"cuptiGetVersion"(*mut u32);
        result_string = c"cuptiGetResultString"(c_int, *mut *const c_char);
        timestamp = c"cuptiGetTimestamp"(*mut u64);
        register = c"cuptiActivityRegisterCallbacks"(Requested, Completed);
        enable = c"cuptiActivityEnable"(c_int);
        disable = c"cuptiActivityDisable"(c_int);
        flush_all = c"cuptiActivityFlushAll"(u32);
        next_record = c"cuptiActivityGetNextRecord"(*mut u8, usize, *mut *mut u8);
        dropped = c"cuptiActivityGetNumDroppedRecords"(*mut c_void, u32, *mut usize);
        push = c"cuptiActivityPushExternalCorrelationId"(c_int, u64);
        pop = c"cuptiActivityPopExternalCorrelationId"(c_int, *mut u64);
    }
}

/// `CUpti_BuffersCallbackRequestFunc`.
pub(super) type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// `CUpti_BuffersCallbackCompleteFunc`.
pub(super) type Completed = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// The loaded library, in a version whose records are known.
#[derive(Copy, Clone, Debug)]
pub(super) struct Api(Table);

impl Api {
    /// Loads the library that [`PATH`] names, or the usual ones.
    ///
    /// # Errors
    /// States what is missing, and what to do.
    pub fn load() -> Result<Self, String> {
        let library = match std::env::var_os(PATH).filter(|path| !path.is_empty()) {
            Some(path) => {
                let path = CString::new(path.into_vec()).map_err(|_| format!("{PATH} contains a zero byte"))?;
                Library::open(&[&path])
            }
            None => {
                let toolkit = std::env::var_os("CUDA_HOME").and_then(|home| {
                    let mut path = home.into_vec();
                    path.extend_from_slice(b"/extras/CUPTI/lib64/libcupti.so");
                    CString::new(path).ok()
                });
                let names: Vec<&CStr> = NAMES.into_iter().chain(toolkit.as_deref()).collect();
                Library::open(&names)
            }
        };
        let install = "install CUPTI (part of the CUDA toolkit; pip install nvidia-cuda-cupti), or set";
        let library = library.map_err(|reason| format!("{reason}; {install} {PATH} to its libcupti.so"))?;
        let api = Self(Table::of(library)?);
        let mut version = 0;
        // SAFETY: `version` is valid for the one write.
        api.check("cuptiGetVersion", unsafe { (api.0.version)(&raw mut version) })?;
        if VERSIONS.contains(&version) {
            return Ok(api);
        }
        Err(format!(
            "CUPTI's API version is {version}, whose records are unknown here (known: {}); set {PATH} to the libcupti.so of \
             another CUDA release, or update probe_sync",
            records::known_versions()
        ))
    }

    /// Returns CUPTI's current time, ns.
    pub fn now(&self) -> Result<u64, String> {
        let mut ns = 0;
        // SAFETY: `ns` is valid for the one write.
        self.check("cuptiGetTimestamp", unsafe { (self.0.timestamp)(&raw mut ns) })?;
        Ok(ns)
    }

    /// Sets the callbacks that provide and take buffers, in place of those set before.
    pub fn register(&self, requested: Requested, completed: Completed) -> Result<(), String> {
        // SAFETY: both are functions of this program, with the signatures of the header.
        self.check("cuptiActivityRegisterCallbacks", unsafe { (self.0.register)(requested, completed) })
    }

    /// Begins to collect records of a kind.
    pub fn enable(&self, kind: u32) -> Result<(), String> {
        // SAFETY: the function takes any number.
        self.check("cuptiActivityEnable", unsafe { (self.0.enable)(kind as c_int) })
    }

    /// Ends collecting records of a kind.
    pub fn disable(&self, kind: u32) -> Result<(), String> {
        // SAFETY: the function takes any number.
        self.check("cuptiActivityDisable", unsafe { (self.0.disable)(kind as c_int) })
    }

    /// Has buffers returned: those whose records are complete, or all.
    pub fn flush(&self, all: bool) -> Result<(), String> {
        // SAFETY: the flag is 0 or CUPTI_ACTIVITY_FLAG_FLUSH_FORCED; this is no callback of CUPTI.
        self.check("cuptiActivityFlushAll", unsafe { (self.0.flush_all)(u32::from(all)) })
    }

    /// Returns the record that follows the one at `record` in the first `valid` bytes of a buffer,
    /// or the first one if it is null; `None` at the end.
    ///
    /// # Errors
    /// The next record is incomplete or invalid; those behind it cannot be read.
    ///
    /// # Safety
    /// CUPTI has filled this many bytes there; `record` is null or came from this function.
    pub unsafe fn next_record(
        &self,
        buffer: *mut u8,
        valid: usize,
        mut record: *mut u8,
    ) -> Result<Option<*mut u8>, String> {
        // SAFETY: the caller's promise; `record` is valid for the one write.
        match unsafe { (self.0.next_record)(buffer, valid, &raw mut record) } {
            MAX_LIMIT_REACHED => Ok(None),
            status => self.check("cuptiActivityGetNextRecord", status).map(|()| Some(record)),
        }
    }

    /// Returns the number of records dropped since the previous call.
    pub fn dropped(&self) -> u64 {
        let mut dropped = 0;
        // SAFETY: `dropped` is valid for the one write; null means all contexts.
        let status = unsafe { (self.0.dropped)(std::ptr::null_mut(), 0, &raw mut dropped) };
        if status == 0 { dropped as u64 } else { 0 }
    }

    /// Gives this thread's calls of CUDA an id; returns true if it was taken.
    pub fn push(&self, id: u64) -> bool {
        // SAFETY: the kind is one of the header's.
        unsafe { (self.0.push)(records::CUSTOM as c_int, id) == 0 }
    }

    /// Removes the last id of this thread; returns false if there is none.
    pub fn pop(&self) -> bool {
        let mut last = 0;
        // SAFETY: the kind is one of the header's; `last` is valid for the one write.
        unsafe { (self.0.pop)(records::CUSTOM as c_int, &raw mut last) == 0 }
    }

    fn check(&self, function: &str, status: c_int) -> Result<(), String> {
        let name = match status {
            0 => return Ok(()),
            status => status_name(self.0.result_string, status),
        };
        let advice = match status {
            NOT_INITIALIZED => "; is there a GPU that this process may use?",
            MULTIPLE_SUBSCRIBERS => "; another profiler holds CUPTI (Nsight, a debugger): run without it",
            INSUFFICIENT_PRIVILEGES => "; the driver restricts profiling to administrators",
            _ => "",
        };
        Err(format!("{function}: {name}{advice}"))
    }
}

/// Environment variable with the path of the library.
const PATH: &str = "PROBE_SYNC_CUPTI";
const NAMES: [&CStr; 5] =
    [c"libcupti.so.13", c"libcupti.so.12", c"libcupti.so.11.8", c"libcupti.so.11.7", c"libcupti.so"];

/// Statuses of `cupti_result.h`.
const MAX_LIMIT_REACHED: c_int = 12;
const NOT_INITIALIZED: c_int = 15;
const INSUFFICIENT_PRIVILEGES: c_int = 35;
const MULTIPLE_SUBSCRIBERS: c_int = 39;
