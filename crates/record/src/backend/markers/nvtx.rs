//! Scopes as ranges of NVIDIA's Tools Extension, for Nsight Systems and other tools that read it.
//!
//! The tool is a library named in the environment, which `nsys` sets for the programs it starts.

use std::cell::RefCell;
use std::ffi::CString;
use std::sync::OnceLock;

use nvtx::Domain;
use nvtx::domain::LocalRange;

use super::MarkerSink;
use crate::site::Site;

/// Forwards scopes to NVTX: `Recorder::builder().backend(Markers::to(Nvtx))`.
#[derive(Copy, Clone, Debug, Default)]
pub struct Nvtx;

impl MarkerSink for Nvtx {
    fn name(&self) -> &str {
        "nvtx"
    }

    fn is_present(&self) -> Result<(), String> {
        match std::env::var_os(TOOL) {
            Some(path) if !path.is_empty() => Ok(()),
            _ => Err(format!("{TOOL} is not set to a tool; start the program under nsys, or set it")),
        }
    }

    fn begin(&self, site: &'static Site) {
        // A name with a zero byte is none for C.
        let name = CString::new(site.name().split('\0').next().unwrap_or("")).unwrap_or_default();
        let domain = DOMAIN.get_or_init(|| Box::leak(Box::new(Domain::new(c"probe_sync"))));
        // Where the thread is about to end nothing is kept, and the range ends at once.
        let _ = OPEN.try_with(|open| open.borrow_mut().push(domain.local_range(name)));
    }

    fn end(&self) {
        let _ = OPEN.try_with(|open| open.borrow_mut().pop());
    }
}

/// Variable set by `nsys`, which the library reads.
const TOOL: &str = "NVTX_INJECTION64_PATH";

/// Domain of the program, referenced by ranges.
static DOMAIN: OnceLock<&'static Domain> = OnceLock::new();

thread_local! {
    /// Open ranges, innermost last, in the order of scopes.
    static OPEN: RefCell<Vec<LocalRange<'static>>> = const { RefCell::new(Vec::new()) };
}
