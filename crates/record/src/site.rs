//! A place in a program where events are made, and names that are known only when it runs: each has a number, which records hold.
//!
//! Place in the flow: macros make a `static` [`Site`]; the first event there numbers it and puts it on a list (`thread::define` then writes it
//! into every recording). Neither takes a lock or memory, so that it may happen in a signal handler. Names of run time are interned in a
//! table of bounded size.
//! What it does not do: write definitions.

use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::kind::{Kind, Kinds};

/// A place in a program.
#[derive(Debug)]
pub struct Site {
    number: AtomicU32,
    /// The bit of its kind.
    pub(crate) bit: u32,
    next: AtomicPtr<Self>,
    name: &'static str,
    kind: Kind,
    file: &'static str,
    line: u32,
    keys: &'static [&'static str],
}

impl Site {
    /// A place that makes events of one name and kind, with arguments of these keys, in their order.
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

    /// A place for a name that is known only when the program runs; the same for the same name and kind. It is kept as long as the program runs;
    /// None where there are more than 2^20 of them.
    pub fn named(kind: Kind, name: &str) -> Option<&'static Self> {
        let mut places = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        let places = places.get_or_insert_with(HashMap::new);
        let of_kind = places.entry(kind).or_default();
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

    /// What its events are called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Their kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// File and line of the place; the file may be empty.
    pub fn place(&self) -> (&'static str, u32) {
        (self.file, self.line)
    }

    /// Keys of their arguments.
    pub fn keys(&self) -> &'static [&'static str] {
        self.keys
    }

    /// Its number; 0 before its first event.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        // A number is stored when the site is on the list and in all recordings.
        self.number.load(Ordering::Acquire)
    }

    /// Gives it a number; None where another thread, or the code that a signal handler has interrupted, is doing so.
    pub(crate) fn claim(&'static self) -> Option<u32> {
        let claimed = self.number.compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Acquire);
        claimed.ok().and_then(|_| next_number())
    }

    /// Puts a claimed site on the list, before it is defined and numbered: a recording that starts meanwhile finds it.
    pub(crate) fn list(&'static self) {
        let own = ptr::from_ref(self).cast_mut();
        let mut head = SITES.load(Ordering::Acquire);
        loop {
            self.next.store(head, Ordering::Release);
            match SITES.compare_exchange_weak(head, own, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => head = other,
            }
        }
    }

    /// From now on its events are recorded.
    pub(crate) fn publish(&self, number: u32) {
        self.number.store(number, Ordering::Release);
    }

    /// All places with a number that have had events.
    pub(crate) fn all() -> impl Iterator<Item = (u32, &'static Self)> {
        let mut next = SITES.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            loop {
                // SAFETY: only `list` puts pointers on the list, each to a site that lives as long as the program.
                let site: &'static Self = unsafe { next.as_ref() }?;
                next = site.next.load(Ordering::Acquire);
                let number = site.number();
                // One that is still being numbered is defined by whoever numbers it.
                if number != 0 && number != CLAIMED {
                    return Some((number, site));
                }
            }
        })
    }
}

/// Whether a number can stand in a record.
#[inline]
pub(crate) fn is_number(number: u32) -> bool {
    number != 0 && number != CLAIMED
}

/// The number of a text; the same for the same text. None where there are too many.
pub(crate) fn intern(text: &str) -> Option<(u32, bool)> {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_with(HashMap::new);
    if let Some(number) = names.get(text) {
        return Some((*number, false));
    }
    if names.len() >= NAMES_MAX {
        return None;
    }
    let number = next_number()?;
    names.insert(text.into(), number);
    Some((number, true))
}

/// All names of run time.
pub(crate) fn names(mut each: impl FnMut(u32, &str)) {
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    for (text, number) in names.iter().flatten() {
        each(*number, text);
    }
}

/// The name of run time that has this number.
pub(crate) fn name_of(number: u32) -> Option<String> {
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.iter().flatten().find(|(_, own)| **own == number).map(|(text, _)| (**text).to_owned())
}

fn next_number() -> Option<u32> {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // Beyond this no more are given; a program has no such number of places.
    (number < CLAIMED / 2).then_some(number)
}

/// Of a site that somebody is numbering.
const CLAIMED: u32 = u32::MAX;
/// Names of run time that a process may have, of each kind.
const NAMES_MAX: usize = 1 << 20;

static NUMBER: AtomicU32 = AtomicU32::new(1);
static SITES: AtomicPtr<Site> = AtomicPtr::new(ptr::null_mut());
static NAMED: Mutex<Option<HashMap<Kind, HashMap<&'static str, &'static Site>>>> = Mutex::new(None);
static NAMES: Mutex<Option<HashMap<Box<str>, u32>>> = Mutex::new(None);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_numbered_once_and_found() {
        static SITE: Site = Site::new("once", Kind::User, file!(), line!(), &["a"]);
        assert!(!is_number(SITE.number()));
        let number = SITE.claim().expect("nobody has");
        assert_eq!(SITE.claim(), None);
        SITE.list();
        assert!(Site::all().all(|(_, site)| site.name() != "once"), "not before it is defined");
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
