//! Maps callsites of `tracing` to sites of the recorder.
//!
//! `tracing` has one description per callsite, which is never freed, so its address serves as the
//! key. Each thread caches the callsites that it has met in a small table.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{PoisonError, RwLock};

use tracing_core::Metadata;

use crate::kind::Kind;
use crate::site::Site;

/// A place.
#[derive(Debug)]
pub(super) struct Callsite {
    pub site: Site,
    /// Spans of it are entered more than once, or on other threads.
    pub comes_back: AtomicBool,
}

/// Places of one kind.
#[derive(Debug)]
pub(super) struct Callsites {
    kind: Kind,
    all: RwLock<HashMap<usize, &'static Callsite>>,
}

impl Callsites {
    pub fn of(kind: Kind) -> Self {
        Self { kind, all: RwLock::default() }
    }

    /// Returns the callsite of a description; `met` is the thread's own table.
    #[inline]
    pub fn find(&'static self, metadata: &'static Metadata<'static>, met: &mut Met) -> &'static Callsite {
        let key = std::ptr::from_ref(metadata).addr();
        let place = &mut met.0[(key >> 3 ^ key >> 9) % KNOWN];
        match *place {
            (found, Some(of), Some(callsite)) if found == key && std::ptr::eq(of, self) => callsite,
            _ => {
                let callsite = self.find_slowly(metadata, key);
                *place = (key, Some(self), Some(callsite));
                callsite
            }
        }
    }

    /// The same, without a table.
    #[cold]
    pub fn find_slowly(&self, metadata: &'static Metadata<'static>, key: usize) -> &'static Callsite {
        let known = self.all.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        known.unwrap_or_else(|| {
            let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
            all.entry(key).or_insert_with(|| self.make(metadata))
        })
    }

    /// Kept as long as the program runs, as is the description.
    fn make(&self, metadata: &'static Metadata<'static>) -> &'static Callsite {
        let mut keys: Vec<&'static str> = metadata.fields().iter().map(|field| field.name()).collect();
        // An event's own name is its file and line, which the site has.
        let name = if metadata.is_event() { metadata.target() } else { metadata.name() };
        if metadata.is_event() {
            keys.push(LEVEL);
        }
        let (file, line) = (metadata.file().unwrap_or(""), metadata.line().unwrap_or(0));
        let site = Site::new(name, self.kind, file, line, Box::leak(keys.into_boxed_slice()));
        Box::leak(Box::new(Callsite { site, comes_back: AtomicBool::new(false) }))
    }
}

/// The argument behind an event's fields.
const LEVEL: &str = "level";
/// Places that a thread finds without a lock.
const KNOWN: usize = 128;

/// Callsites that a thread has met: address of the description, whose list it is on, and the
/// callsite found there.
#[derive(Debug)]
pub(super) struct Met([(usize, Option<&'static Callsites>, Option<&'static Callsite>); KNOWN]);

impl Met {
    pub const fn new() -> Self {
        Self([(0, None, None); KNOWN])
    }
}
