//! Scopes as tasks of Intel's Instrumentation and Tracing Technology, for VTune and other tools
//! that read it.
//!
//! The collector is a library named in the environment, which VTune sets for the programs it
//! starts.

use std::cell::RefCell;
use std::sync::OnceLock;

use ittapi::{Domain, Task};

use super::MarkerSink;
use crate::site::Site;

/// Forwards scopes to ITT: `Recorder::builder().backend(Markers::to(Itt))`.
#[derive(Copy, Clone, Debug, Default)]
pub struct Itt;

impl MarkerSink for Itt {
    fn name(&self) -> &str {
        "itt"
    }

    fn is_present(&self) -> Result<(), String> {
        match std::env::var_os(COLLECTOR) {
            Some(path) if !path.is_empty() => Ok(()),
            _ => Err(format!("{COLLECTOR} is not set to a collector; start the program under VTune, or set it")),
        }
    }

    fn begin(&self, site: &'static Site) {
        // A name with a zero byte is none for C.
        let name = site.name().split('\0').next().unwrap_or("");
        let domain = DOMAIN.get_or_init(|| Box::leak(Box::new(Domain::new("probe_sync"))));
        // Where the thread is about to end nothing is kept, and the task ends at once.
        let _ = OPEN.try_with(|open| open.borrow_mut().push(Task::begin(domain, name)));
    }

    fn end(&self) {
        let _ = OPEN.try_with(|open| open.borrow_mut().pop());
    }
}

/// Variable set by VTune, which the library reads.
const COLLECTOR: &str = "INTEL_LIBITTNOTIFY64";

/// Domain of the program, referenced by tasks.
static DOMAIN: OnceLock<&'static Domain> = OnceLock::new();

thread_local! {
    /// Open tasks, innermost last, in the order of scopes.
    static OPEN: RefCell<Vec<Task<'static>>> = const { RefCell::new(Vec::new()) };
}
