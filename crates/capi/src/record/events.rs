//! Recording of events: scopes, instants, values, flows and spans.
//!
//! No function here waits, fails, allocates memory or retains a string. A call with a NULL pointer
//! records nothing.
//!
//! A scope is the caller's own struct. What is wrong with the order of calls is seen by the
//! recorder: a scope that is left too late has been closed with the one around it, and is marked so
//! in the recording; one that is left twice, or on another thread, ends nothing.

use std::ffi::c_char;
use std::mem::{MaybeUninit, offset_of};

use probe_sync_record::event::{self, FlowPlace, ScopeWords};
use probe_sync_record::{Arguments, Kind, Scope, Site, Span};

use super::values::{listed, ps_record_argument, too_many};
use crate::pointers::{Out, text};
use crate::status::{Failure, guard, guarded, ps_status};

/// Kind of an event.
#[repr(C)]
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ps_record_kind {
    /// A function or an operator of a framework.
    PS_RECORD_FUNCTION = 0,
    /// The backward pass of a function or operator.
    PS_RECORD_BACKWARD = 1,
    /// A user-defined event, such as a step or a phase.
    PS_RECORD_USER = 2,
    /// A collective operation or a message.
    PS_RECORD_COLLECTIVE = 3,
    /// A runtime call, such as a kernel launch.
    PS_RECORD_RUNTIME = 4,
    /// Reading or writing.
    PS_RECORD_IO = 5,
    /// Allocating or freeing memory.
    PS_RECORD_MEMORY = 6,
    /// Anything else.
    PS_RECORD_CUSTOM = 7,
}

/// Position of an event in its flow.
#[repr(C)]
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ps_record_flow_place {
    /// The flow begins here.
    PS_RECORD_FLOW_OUT = 0,
    /// The flow passes through here.
    PS_RECORD_FLOW_STEP = 1,
    /// The flow ends here.
    PS_RECORD_FLOW_IN = 2,
}

/// Name and kind of events; lives as long as the process.
#[derive(Debug)]
pub struct ps_record_site(());

/// An open scope, in the caller's memory; all zero means none.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct ps_record_scope {
    /// Site of the scope.
    pub site: *const ps_record_site,
    /// Position in the recording.
    pub place: u64,
    /// Start, in ticks.
    pub start: u64,
    /// Id of the scope.
    pub id: u64,
    /// Internal.
    pub gate: u32,
    /// Unused.
    pub reserved: u32,
}

/// Gets the site for a name and kind (one of ps_record_kind) of events; the same name and kind give
/// the same site. Keep it in a static variable. A process can have at most 2^20 sites per kind;
/// they are never freed.
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

/// Returns true if an event of this site would be recorded now. Returns false for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_wanted(site: *const ps_record_site) -> bool {
    // SAFETY: the rule of the crate.
    guarded(|_| false, || Ok(unsafe { known(site) }.is_some_and(event::is_wanted)))
}

/// Begins a scope, which ps_record_leave() ends on the same thread, after the scopes within it.
/// Returns true if the scope is being recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_enter(site: *const ps_record_site, scope: *mut ps_record_scope) -> bool {
    // SAFETY: the rule of the crate.
    guarded(|_| false, || Ok(unsafe { enter(site, &(), scope) }))
}

/// Begins a scope like ps_record_enter(), with count arguments.
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

/// Adds arguments to the innermost open scope. Arguments for any other scope are counted as lost.
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

/// Ends a scope and any scope within it that is still open. A zeroed scope, as after this call, and
/// NULL are ignored.
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

/// Records an instant event with count arguments.
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

/// Records the new value of a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_counter(site: *const ps_record_site, value: f64) {
    with(site, |site| event::counter(site, value));
}

/// Adds the open scope to a flow; all scopes with one id are joined, across threads. place is one
/// of ps_record_flow_place; other values are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_flow(site: *const ps_record_site, place: u32, id: u64) {
    let places = [FlowPlace::Out, FlowPlace::Step, FlowPlace::In];
    if let Some(place) = places.get(place as usize) {
        with(site, |site| event::flow(site, *place, id));
    }
}

/// Begins a span, which may end on another thread. Returns its id for ps_record_span_end(), or 0 if
/// it is not being recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_span_begin(site: *const ps_record_site) -> u64 {
    // SAFETY: the rule of the crate.
    guarded(|_| 0, || Ok(unsafe { known(site) }.map_or(0, |site| Span::begin(site).into_id())))
}

/// Ends a span on this thread; 0 is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_span_end(site: *const ps_record_site, id: u64) {
    with(site, |site| Span::of_id(site, id).end());
}

/// Assigns this correlation id to events that begin on this thread from now on; device events use
/// it to refer to their launch. Returns the previous id for ps_record_correlate_pop().
#[unsafe(no_mangle)]
pub extern "C" fn ps_record_correlate_push(id: u64) -> u64 {
    guarded(|_| 0, || Ok(event::set_correlation(id)))
}

/// Restores the id that ps_record_correlate_push() returned.
#[unsafe(no_mangle)]
pub extern "C" fn ps_record_correlate_pop(before: u64) {
    guarded(|_| 0, || Ok(event::set_correlation(before)));
}

impl ps_record_scope {
    pub(super) const NOTHING: Self = Self { site: std::ptr::null(), place: 0, start: 0, id: 0, gate: 0, reserved: 0 };

    /// # Safety
    /// The scope was written by [`enter`], or is all zero.
    #[inline]
    unsafe fn words(&self) -> Option<ScopeWords> {
        // SAFETY: the caller's promise.
        let site = unsafe { known(self.site) }?;
        Some(ScopeWords { site, place: self.place, start: self.start, id: self.id, gate: self.gate })
    }
}

/// # Safety
/// Begins a scope; both pointers follow the rule of this crate.
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

/// Calls `act` if the site is valid; never unwinds.
#[inline]
pub(super) fn with(site: *const ps_record_site, act: impl FnOnce(&'static Site)) {
    guard(|| {
        // SAFETY: the rule of the crate.
        unsafe { known(site) }.map(act);
        Ok(())
    });
}

/// # Safety
/// `site` is NULL, or came from `ps_record_site_new`.
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

const NO_KIND: &str = "kind must be one of ps_record_kind, from PS_RECORD_FUNCTION to PS_RECORD_CUSTOM";
