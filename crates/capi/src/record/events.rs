//! What is recorded: scopes, moments, values, flows, spans.
//!
//! Place in the flow: over `probe_sync_record::event`. No function here waits, fails, takes memory or keeps a text; where a pointer is NULL nothing is
//! recorded.
//!
//! A scope is the caller's own struct. What is wrong with the order of calls is seen by the recorder: a scope that is left too late has been
//! closed with the one around it, and is marked so in the recording; one that is left twice, or on another thread, ends nothing.

use std::ffi::c_char;
use std::mem::{MaybeUninit, offset_of};

use probe_sync_record::event::{self, FlowPlace, ScopeWords};
use probe_sync_record::{Arguments, Kind, Scope, Site, Span};

use super::values::{listed, ps_record_argument, too_many};
use crate::pointers::{Out, text};
use crate::status::{Failure, guard, guarded, ps_status};

/// What sort of thing an event is.
#[repr(C)]
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ps_record_kind {
    /// A function or an operator of a framework.
    PS_RECORD_FUNCTION = 0,
    /// The backward pass of one.
    PS_RECORD_BACKWARD = 1,
    /// What the user named: a step, a phase.
    PS_RECORD_USER = 2,
    /// A collective operation or a message.
    PS_RECORD_COLLECTIVE = 3,
    /// A call of a runtime, as a launch of a kernel.
    PS_RECORD_RUNTIME = 4,
    /// Reading and writing.
    PS_RECORD_IO = 5,
    /// Memory that is allocated or freed.
    PS_RECORD_MEMORY = 6,
    /// Anything else.
    PS_RECORD_CUSTOM = 7,
}

/// Where an event of a flow stands.
#[repr(C)]
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ps_record_flow_place {
    /// It begins here.
    PS_RECORD_FLOW_OUT = 0,
    /// It passes.
    PS_RECORD_FLOW_STEP = 1,
    /// It ends here.
    PS_RECORD_FLOW_IN = 2,
}

/// Name and kind of events, kept as long as the process.
#[derive(Debug)]
pub struct ps_record_site(());

/// A scope that is open, in the caller's memory; all zero: none.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct ps_record_scope {
    /// Its site.
    pub site: *const ps_record_site,
    /// Where it lies.
    pub place: u64,
    /// When it began, ticks.
    pub start: u64,
    /// Its id.
    pub id: u64,
    /// When it began, as a number of the recorder's own.
    pub gate: u32,
    /// Nothing.
    pub reserved: u32,
}

/// Name and kind (one of ps_record_kind) of events, to be kept in a static variable: the same for the same name and kind. A process has at most 2^20 of a
/// kind, and none is given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_site_new(
    kind: u32,
    name: *const c_char,
    site: *mut *const ps_record_site,
) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (name, site) = unsafe { (text(name, "name")?, Out::new(site, "site")?) };
        let kind =
            Kind::ALL.get(kind as usize).ok_or_else(|| Failure::argument(format!("{NO_KIND}, and not {kind}")))?;
        site.set(std::ptr::from_ref(Site::named(*kind, name).ok_or_else(|| too_many(name))?).cast());
        Ok(())
    })
}

/// Whether an event of this site would be recorded now; no for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_wanted(site: *const ps_record_site) -> bool {
    // SAFETY: the rule of the crate.
    guarded(|_| false, || Ok(unsafe { known(site) }.is_some_and(event::is_wanted)))
}

/// A scope begins; ps_record_leave() ends it on the same thread, those within before. Whether anybody records it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_enter(site: *const ps_record_site, scope: *mut ps_record_scope) -> bool {
    // SAFETY: the rule of the crate.
    guarded(|_| false, || Ok(unsafe { enter(site, &(), scope) }))
}

/// As ps_record_enter(), with count arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_enter_with(
    site: *const ps_record_site,
    arguments: *const ps_record_argument,
    count: usize,
    scope: *mut ps_record_scope,
) -> bool {
    // SAFETY: the rule of the crate.
    guarded(|_| false, || Ok(unsafe { enter(site, &listed(arguments, count), scope) }))
}

/// States arguments of the innermost open scope. Those of another one are counted as lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_state(
    scope: *const ps_record_scope,
    arguments: *const ps_record_argument,
    count: usize,
) {
    let state = || {
        // SAFETY: the rule of the crate.
        if let Some(words) = unsafe { scope.as_ref().and_then(|scope| scope.words()) } {
            // SAFETY: the rule of the crate.
            let scope = unsafe { Scope::from_words(words) };
            // SAFETY: the rule of the crate.
            let arguments = unsafe { listed(arguments, count) };
            scope.state(&arguments);
            // It goes on.
            std::mem::forget(scope);
        }
        Ok(())
    };
    guard(state);
}

/// Ends a scope and any scope within it that is still open. A zeroed scope, as after this call, and NULL are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_leave(scope: *mut ps_record_scope) {
    let leave = || {
        // SAFETY: the rule of the crate.
        if let Some(scope) = unsafe { scope.as_mut() } {
            // SAFETY: the rule of the crate.
            let words = unsafe { scope.words() };
            scope.place = 0;
            if let Some(words) = words {
                // SAFETY: the rule of the crate.
                unsafe { words.end() };
            }
        }
        Ok(())
    };
    guard(leave);
}

/// Something happens now, with count arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_instant(
    site: *const ps_record_site,
    arguments: *const ps_record_argument,
    count: usize,
) {
    with(site, |site| {
        // SAFETY: the rule of the crate.
        let arguments = unsafe { listed(arguments, count) };
        event::instant(site, &arguments);
    });
}

/// The value of something from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_counter(site: *const ps_record_site, value: f64) {
    with(site, |site| event::counter(site, value));
}

/// Adds the open scope to a flow; all scopes with one id are joined, across threads. place is one of ps_record_flow_place; other values are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_flow(site: *const ps_record_site, place: u32, id: u64) {
    let places = [FlowPlace::Out, FlowPlace::Step, FlowPlace::In];
    if let Some(place) = places.get(place as usize) {
        with(site, |site| event::flow(site, *place, id));
    }
}

/// A span begins that may end on another thread. Its id, for ps_record_span_end(); 0 where nobody records it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_span_begin(site: *const ps_record_site) -> u64 {
    // SAFETY: the rule of the crate.
    guarded(|_| 0, || Ok(unsafe { known(site) }.map_or(0, |site| Span::begin(site).into_id())))
}

/// Ends it on this thread; 0 is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_span_end(site: *const ps_record_site, id: u64) {
    with(site, |site| Span::of_id(site, id).end());
}

/// Events of this thread that begin from now on have this id, as the number by which a device's events know their launch. What was before, for
/// ps_record_correlate_pop().
#[unsafe(no_mangle)]
pub extern "C" fn ps_record_correlate_push(id: u64) -> u64 {
    guarded(|_| 0, || Ok(event::set_correlation(id)))
}

/// Sets back what ps_record_correlate_push() gave.
#[unsafe(no_mangle)]
pub extern "C" fn ps_record_correlate_pop(before: u64) {
    guarded(|_| 0, || Ok(event::set_correlation(before)));
}

impl ps_record_scope {
    pub(super) const NOTHING: Self = Self { site: std::ptr::null(), place: 0, start: 0, id: 0, gate: 0, reserved: 0 };

    /// # Safety
    /// It was written by [`enter`], or is all zero.
    #[inline]
    unsafe fn words(&self) -> Option<ScopeWords> {
        // SAFETY: the caller's promise.
        let site = unsafe { known(self.site) }?;
        Some(ScopeWords { site, place: self.place, start: self.start, id: self.id, gate: self.gate })
    }
}

/// # Safety
/// The rule of the crate, for both pointers.
#[inline]
pub(super) unsafe fn enter(
    site: *const ps_record_site,
    arguments: &impl Arguments,
    scope: *mut ps_record_scope,
) -> bool {
    if scope.is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    match unsafe { known(site) } {
        // SAFETY: not NULL, and the caller's promise; both are of one layout.
        Some(site) => ScopeWords::enter(site, arguments, unsafe { &mut *scope.cast::<MaybeUninit<ScopeWords>>() }),
        None => {
            // SAFETY: not NULL, and the caller's promise.
            unsafe { scope.write(ps_record_scope::NOTHING) };
            false
        }
    }
}

/// Does something with a site that is one; never unwinds.
#[inline]
pub(super) fn with(site: *const ps_record_site, act: impl FnOnce(&'static Site)) {
    guard(|| {
        // SAFETY: the rule of the crate.
        unsafe { known(site) }.map(act);
        Ok(())
    });
}

/// # Safety
/// `site` is NULL or came from `ps_record_site_new`.
#[inline]
unsafe fn known(site: *const ps_record_site) -> Option<&'static Site> {
    // SAFETY: made of a `Site` that is kept as long as the process.
    unsafe { site.cast::<Site>().as_ref() }
}

const _: () = {
    assert!(size_of::<ps_record_scope>() == size_of::<ScopeWords>());
    assert!(offset_of!(ps_record_scope, place) == offset_of!(ScopeWords, place));
    assert!(offset_of!(ps_record_scope, start) == offset_of!(ScopeWords, start));
    assert!(offset_of!(ps_record_scope, id) == offset_of!(ScopeWords, id));
    assert!(offset_of!(ps_record_scope, gate) == offset_of!(ScopeWords, gate));
};

const NO_KIND: &str = "kind is one of ps_record_kind, from PS_RECORD_FUNCTION to PS_RECORD_CUSTOM";
