//! Sites, the places in a program where events are created, and names that are known only at run
//! time. Each has a number, which records store.
//!
//! Macros create a `static` [`Site`]. Its first event numbers it and adds it to a list
//! (`thread::define` then writes it into every recording). Neither step allocates, so both may
//! happen in a signal handler. Run-time names are interned in a table of bounded size, which takes
//! a lock and allocates; a signal handler can therefore use only existing sites and keys. A forked
//! child has its own table.

use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::kind::{Kind, Kinds};
use crate::memory::gate;
use crate::memory::lock::{Held, Lock};

/// A site in a program.
#[derive(Debug)]
pub struct Site {
    number: AtomicU32,
    /// Bit of its kind.
    pub(crate) bit: u32,
    next: AtomicPtr<Self>,
    name: &'static str,
    kind: Kind,
    file: &'static str,
    line: u32,
    keys: &'static [&'static str],
}

impl Site {
    /// Creates a site for events of one name and kind, with arguments of these keys, in order.
    pub const fn new(
        name: &'static str,
        kind: Kind,
        file: &'static str,
        line: u32,
        keys: &'static [&'static str],
    ) -> Self {
        Self {
            number: AtomicU32::new(0),
            bit: Kinds::bit(kind),
            next: AtomicPtr::new(ptr::null_mut()),
            name,
            kind,
            file,
            line,
            keys,
        }
    }

    /// Returns a site for a name that is known only at run time; equal names and kinds give the
    /// same one. It is never freed; `None` if there are more than 2^20 of them.
    pub fn named(kind: Kind, name: &str) -> Option<&'static Self> {
        let mut names = Names::lock();
        let of_kind = names.places.entry(kind).or_default();
        if let Some(site) = of_kind.get(name) {
            return Some(site);
        }
        if of_kind.len() >= NAMES_MAX {
            return None;
        }
        let name: &'static str = Box::leak(name.into());
        let site: &'static Self = Box::leak(Box::new(Self::new(name, kind, "", 0, &[])));
        of_kind.insert(name, site);
        Some(site)
    }

    /// Returns the name of its events.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the kind of its events.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns file and line of the site; the file may be empty.
    pub fn place(&self) -> (&'static str, u32) {
        (self.file, self.line)
    }

    /// Returns the keys of its events' arguments.
    pub fn keys(&self) -> &'static [&'static str] {
        self.keys
    }

    /// Returns its number; 0 before its first event.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        // A number is stored when the site is on the list and in all recordings.
        self.number.load(Ordering::Acquire)
    }

    /// Puts it on the list, if it is not there, and assigns a number, which is effective once
    /// published; `None` if there are too many. The caller holds the lock of the sessions: a
    /// recording that starts afterwards finds it. A child forked meanwhile starts anew.
    pub(crate) fn list(&'static self) -> Option<u32> {
        let number = next_number()?;
        let own = ptr::from_ref(self).cast_mut();
        let mut head = SITES.load(Ordering::Acquire);
        // It has a successor when another process, from which this one was forked, was within this
        // function.
        if !self.next.load(Ordering::Acquire).is_null() && Self::listed().any(|site| ptr::eq(site, self)) {
            return Some(number);
        }
        loop {
            // The last one names itself, so that whoever was on the list before is known by its
            // successor.
            let next = if head.is_null() { own } else { head };
            self.next.store(next, Ordering::Release);
            match SITES.compare_exchange_weak(head, own, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(number),
                Err(other) => head = other,
            }
        }
    }

    /// From now on its events are recorded.
    pub(crate) fn publish(&self, number: u32) {
        self.number.store(number, Ordering::Release);
    }

    /// All sites with a number that have had events.
    pub(crate) fn all() -> impl Iterator<Item = (u32, &'static Self)> {
        // One that is still being numbered is defined by whoever numbers it.
        Self::listed().map(|site| (site.number(), site)).filter(|(number, _)| is_number(*number))
    }

    fn listed() -> impl Iterator<Item = &'static Self> {
        let mut next = SITES.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: only `list` puts pointers on the list, each to a site that lives as long as
            // the program.
            let site: &'static Self = unsafe { next.as_ref() }?;
            let after = site.next.load(Ordering::Acquire);
            next = if after == next { ptr::null_mut() } else { after };
            Some(site)
        })
    }
}

/// Whether a number can be used in a record.
#[inline]
pub(crate) fn is_number(number: u32) -> bool {
    number != 0
}

/// The number of a text; the same for equal texts. `None` if there are too many.
pub(crate) fn intern(text: &str) -> Option<(u32, bool)> {
    let mut names = Names::lock();
    if let Some(number) = names.numbers.get(text) {
        return Some((*number, false));
    }
    if names.numbers.len() >= NAMES_MAX {
        return None;
    }
    let number = next_number()?;
    names.numbers.insert(text.into(), number);
    Some((number, true))
}

/// All names known only at run time.
pub(crate) fn names(mut each: impl FnMut(u32, &str)) {
    for (text, number) in &Names::lock().numbers {
        each(*number, text);
    }
}

/// The name of run time that has this number.
pub(crate) fn name_of(number: u32) -> Option<String> {
    let names = Names::lock();
    names.numbers.iter().find(|(_, own)| **own == number).map(|(text, _)| (**text).to_owned())
}

/// Names of run time of this process.
#[derive(Default)]
struct Names {
    places: HashMap<Kind, HashMap<&'static str, &'static Site>>,
    numbers: HashMap<Box<str>, u32>,
}

impl Names {
    fn lock() -> Held<'static, Self> {
        // Without it, nothing can record.
        let _ = gate::prepare();
        let place = &gate::page().names;
        let mut known = place.load(Ordering::Acquire).cast::<Lock<Self>>();
        if known.is_null() {
            let made = Box::into_raw(Box::new(Lock::new(Self::default())));
            match place.compare_exchange(ptr::null_mut(), made.cast(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => known = made,
                Err(other) => {
                    known = other.cast();
                    // SAFETY: nobody else has seen it.
                    drop(unsafe { Box::from_raw(made) });
                }
            }
        }
        // SAFETY: only this function stores one, which is never freed.
        unsafe { &*known }.lock()
    }
}

fn next_number() -> Option<u32> {
    let next = |number: u32| (number < NUMBERS_MAX).then_some(number + 1);
    NUMBER.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
}

/// No numbers above this are assigned; no program has so many sites.
const NUMBERS_MAX: u32 = 1 << 31;
/// Names of run time that a process may have, of each kind.
const NAMES_MAX: usize = 1 << 20;

static NUMBER: AtomicU32 = AtomicU32::new(1);
static SITES: AtomicPtr<Site> = AtomicPtr::new(ptr::null_mut());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_numbered_once_and_found() {
        static SITE: Site = Site::new("once", Kind::User, file!(), line!(), &["a"]);
        assert!(!is_number(SITE.number()));
        let number = SITE.list().expect("there are few");
        assert!(Site::all().all(|(_, site)| site.name() != "once"), "not before it is defined");
        assert_ne!(SITE.list(), Some(number));
        assert_eq!(Site::listed().filter(|site| site.name() == "once").count(), 1, "on the list once");
        SITE.publish(number);
        assert!(Site::all().any(|(found, site)| found == number && site.name() == "once"));
    }

    #[test]
    fn a_name_keeps_its_number() {
        let (number, new) = intern("a name of run time").expect("room");
        assert!(new && is_number(number));
        assert_eq!(intern("a name of run time"), Some((number, false)));
        let mut found = None;
        names(|number, text| found = if text == "a name of run time" { Some(number) } else { found });
        assert_eq!(found, Some(number));
    }
}
