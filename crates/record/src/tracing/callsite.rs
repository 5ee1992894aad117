//! Places in a program that `tracing` knows, as sites of the recorder.
//!
//! Place in the flow: the layer asks for one at every span and event. `tracing` has one description per place, which is never freed: its address is the
//! key. A thread finds those that it has met in a small table of its own.

use std::cell::RefCell;
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

    /// That of a description.
    #[inline]
    pub fn find(&'static self, metadata: &'static Metadata<'static>) -> &'static Callsite {
        let key = std::ptr::from_ref(metadata).addr();
        let own = std::ptr::from_ref(self).addr();
        let at = (key >> 3 ^ key >> 9) % KNOWN;
        let known = MET.try_with(|met| met.borrow()[at]);
        match known {
            Ok((found, of, Some(callsite))) if found == key && of == own => callsite,
            _ => self.find_slowly(metadata, key, (own, at)),
        }
    }

    #[cold]
    fn find_slowly(
        &self,
        metadata: &'static Metadata<'static>,
        key: usize,
        (own, at): (usize, usize),
    ) -> &'static Callsite {
        let known = self.all.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        let callsite = known.unwrap_or_else(|| {
            let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
            all.entry(key).or_insert_with(|| self.make(metadata))
        });
        let _ = MET.try_with(|met| met.borrow_mut()[at] = (key, own, Some(callsite)));
        callsite
    }

    /// Kept as long as the program runs, as the description is.
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

/// Address of the description, of the list, and what is found there.
type Met = (usize, usize, Option<&'static Callsite>);

thread_local! {
    static MET: RefCell<[Met; KNOWN]> = const { RefCell::new([(0, 0, None); KNOWN]) };
}
