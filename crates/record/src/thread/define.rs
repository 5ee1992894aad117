//! Numbers sites and names, and writes their definitions into every session.
//!
//! Place in the flow: at the first event of a site, and whenever a name of run time is used as a key. A session that starts meanwhile writes all
//! that are there ([`everything`]); what is written twice is the same.

use crate::active::core::Core;
use crate::active::registry::Registry;
use crate::site::{self, Site};

/// The number of a site, given now if it has none; None where somebody is giving it one. A session's lock is taken, so not from where that is held.
pub(crate) fn number_of(site: &'static Site) -> Option<u32> {
    let known = site.number();
    if site::is_number(known) {
        return Some(known);
    }
    let number = site.claim()?;
    site.list();
    if let Some(registry) = Registry::current() {
        for core in registry.sessions().iter() {
            core.define_site(number, site);
        }
    }
    site.publish(number);
    Some(number)
}

/// The number of a name, for a key that is known only when the program runs.
pub(crate) fn number_of_name(name: &str) -> Option<u32> {
    let (number, new) = site::intern(name)?;
    if new && let Some(registry) = Registry::current() {
        for core in registry.sessions().iter() {
            core.define_name(number, name);
        }
    }
    Some(number)
}

/// Writes all definitions there are into a session that begins.
pub(crate) fn everything(core: &Core) {
    for (number, site) in Site::all() {
        core.define_site(number, site);
    }
    site::names(|number, name| core.define_name(number, name));
}
