//! Numbers sites and names, and writes their definitions into every session.
//!
//! This happens at the first event of a site and whenever a run-time name is used as a key. A
//! session that starts meanwhile writes all existing definitions ([`everything`]); writing one
//! twice is harmless because both copies are equal.

use crate::active::core::Core;
use crate::active::registry::Registry;
use crate::site::{self, Site};
use crate::thread::exclusive::Exclusive;

/// Returns the number of a site, assigned now if it has none; `None` if there are too many. The
/// sessions' lock is held meanwhile, so that threads wait for each other rather than lose events.
/// Called within an event, and not while that lock is held.
pub(crate) fn number_of(site: &'static Site, registry: &Registry) -> Option<u32> {
    let known = site.number();
    if site::is_number(known) {
        return Some(known);
    }
    let sessions = registry.sessions();
    let known = site.number();
    if site::is_number(known) {
        return Some(known);
    }
    let number = site.list()?;
    for core in sessions.iter() {
        core.define_site(number, site);
    }
    site.publish(number);
    Some(number)
}

/// The number of a name, for a key that is known only when the program runs.
pub(crate) fn number_of_name(name: &str) -> Option<u32> {
    // A signal handler of this thread records nothing meanwhile: it would wait for a lock that this
    // thread holds.
    let registry = Registry::current();
    let _exclusive = registry.map(Exclusive::of);
    let (number, new) = site::intern(name)?;
    if new && let Some(registry) = registry {
        for core in registry.sessions().iter() {
            core.define_name(number, name);
        }
    }
    Some(number)
}

/// Writes all existing definitions into a session that begins.
pub(crate) fn everything(core: &Core) {
    for (number, site) in Site::all() {
        core.define_site(number, site);
    }
    site::names(|number, name| core.define_name(number, name));
}
