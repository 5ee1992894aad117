//! The recording functions that programs call, through macros or directly: scopes, instants,
//! values, flows, and spans that end on another thread.
//!
//! An event usually costs two clock readings and a few stores, and almost nothing while no session
//! wants it. No call waits, panics or fails: events that could not be recorded are counted in the
//! recording.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU64;

use crate::detail::Details;
use crate::layout::{argument, record};
use crate::memory::gate;
use crate::site::{self, Site};
use crate::thread::lane::Opened;
use crate::thread::slow::{self, Frame};
use crate::thread::{block, define, observed, sync};
use crate::value::{Argument, Arguments};

/// A scope, which lasts from its creation until it is dropped, on one thread. Scopes within it end
/// before; those that do not are closed with it, and marked.
#[must_use = "a scope ends when it is dropped; bind it to a name, as _step"]
#[derive(Debug)]
pub struct Scope {
    site: &'static Site,
    frame: Frame,
    opened: Opened,
    /// Number of the gate at the start.
    gate: u32,
    of_thread: PhantomData<*const ()>,
}

impl Scope {
    /// Begins a scope now.
    #[inline(always)]
    pub fn enter(site: &'static Site) -> Self {
        if gate::current() == 0 { Self::nowhere(site) } else { Self::enter_with(site, &()) }
    }

    /// Begins a scope now, with arguments by their places among the site's keys, plus [`OF_SITE`].
    #[inline]
    pub fn enter_with(site: &'static Site, arguments: &impl Arguments) -> Self {
        let gate = gate::current();
        let block = block::current();
        let number = site.number();
        if !site::is_number(number) || !block.begin(gate) {
            return Self::enter_slowly(site, arguments);
        }
        let ending = block.ending();
        if block.kinds.get() & site.bit == 0 {
            return Self::nowhere(site);
        }
        let opened = block.opened();
        let lane = block.lane();
        let place = lane.open(number, opened);
        match place.is_null() {
            false => lane.argue(place, arguments),
            true => lane.arguments_lost(arguments),
        }
        drop(ending);
        let frame = if place.is_null() { Frame::Deep } else { Frame::At(place) };
        Self { site, frame, opened, gate, of_thread: PhantomData }
    }

    #[cold]
    #[inline(never)]
    fn enter_slowly(site: &'static Site, arguments: &impl Arguments) -> Self {
        let (frame, opened, gate) = observed::open(site, arguments);
        if frame != Frame::Nowhere {
            slow::argue(opened, arguments);
        }
        Self { site, frame, opened, gate, of_thread: PhantomData }
    }

    /// Returns a scope that is not recorded.
    #[inline]
    pub fn nowhere(site: &'static Site) -> Self {
        let opened = Opened { start: 0, id: 0 };
        Self { site, frame: Frame::Nowhere, opened, gate: 0, of_thread: PhantomData }
    }

    /// Returns true if the scope is being recorded.
    #[inline]
    pub fn is_recorded(&self) -> bool {
        self.frame != Frame::Nowhere
    }

    /// Returns true if the argument at this place among the site's keys is evaluated if it is behind
    /// `||`.
    #[inline]
    pub fn wants_detail(&self, place: u32) -> bool {
        if !self.is_recorded() {
            return false;
        }
        self.wants(|| self.site.keys().get(place as usize).copied().unwrap_or_default())
    }

    /// Works like [`Scope::wants_detail`], for a key that is known only at run time.
    pub fn wants_detail_named(&self, key: &str) -> bool {
        self.is_recorded() && self.wants(|| key)
    }

    #[inline]
    fn wants<'a>(&self, key: impl FnOnce() -> &'a str) -> bool {
        let wanted = block::current().details.get();
        wanted == Details::ALL || wanted != Details::NONE && wanted.has(Details::of_key(key()))
    }

    /// Returns its id: that of [`correlate`], or a number of its own. 0 if it is not recorded.
    pub fn id(&self) -> u64 {
        self.opened.id
    }

    /// Adds an argument, by its place among the site's keys.
    #[inline]
    pub fn argument(&self, key: u32, value: &(impl Argument + ?Sized)) {
        self.state(&((key | OF_SITE, value), ()));
    }

    /// Adds an argument by a key that is known only at run time.
    pub fn argument_named(&self, key: &str, value: &(impl Argument + ?Sized)) {
        if self.is_recorded()
            && let Some(number) = define::number_of_name(key)
        {
            self.state(&((number, value), ()));
        }
    }

    /// Adds arguments, by places or by [`key`].
    #[inline]
    pub fn state(&self, arguments: &impl Arguments) {
        let Frame::At(place) = self.frame else {
            if self.frame != Frame::Nowhere {
                observed::argue(self.frame, self.opened, arguments);
            }
            return;
        };
        let block = block::current();
        if block.begin(self.gate) {
            let _ending = block.ending();
            let lane = block.lane();
            if lane.is_of(place, self.opened) {
                lane.argue(place, arguments);
            }
        } else {
            observed::argue(self.frame, self.opened, arguments);
        }
    }

    /// Converts the scope to plain words, for languages that store it themselves; it continues
    /// until [`Scope::from_words`] takes it back. All zero: a scope that is not recorded.
    #[inline]
    pub fn into_words(self) -> ScopeWords {
        let place = match self.frame {
            Frame::Nowhere => ScopeWords::NOWHERE,
            Frame::Deep => ScopeWords::DEEP,
            Frame::Seek => ScopeWords::SEEK,
            Frame::Observed(token) => token << 3 | ScopeWords::OBSERVED,
            Frame::At(place) => place.expose_provenance() as u64,
        };
        let words =
            ScopeWords { site: self.site, place, start: self.opened.start, id: self.opened.id, gate: self.gate };
        std::mem::forget(self);
        words
    }

    /// Restores the scope from its words; dropping it ends it. Words that were used before, or on
    /// another thread, end nothing.
    ///
    /// # Safety
    /// The words come unchanged from [`Scope::into_words`] in this process or one that it was
    /// forked from, on any thread.
    #[inline]
    pub unsafe fn from_words(words: ScopeWords) -> Self {
        let frame = match words.place {
            ScopeWords::NOWHERE => Frame::Nowhere,
            ScopeWords::DEEP => Frame::Deep,
            ScopeWords::SEEK => Frame::Seek,
            place if place & 7 == ScopeWords::OBSERVED => Frame::Observed(place >> 3),
            place => Frame::At(std::ptr::with_exposed_provenance(place as usize)),
        };
        let opened = Opened { start: words.start, id: words.id };
        Self { site: words.site, frame, opened, gate: words.gate, of_thread: PhantomData }
    }

    #[inline(never)]
    fn leave(&self) {
        let block = block::current();
        match self.frame {
            Frame::At(place) if block.begin(self.gate) => {
                let end = block.ticks.get().now();
                block.lane().close(place, self.opened, end, 0);
                block.end();
            }
            _ => observed::close(self.site, self.frame, self.opened),
        }
    }
}

impl Drop for Scope {
    #[inline(always)]
    fn drop(&mut self) {
        if self.frame != Frame::Nowhere {
            self.leave();
        }
    }
}

/// A scope as plain words.
#[derive(Copy, Clone, Debug)]
#[repr(C)]
pub struct ScopeWords {
    /// Site of the scope.
    pub site: &'static Site,
    /// Place in the recording; 0: none.
    pub place: u64,
    /// Start, ticks.
    pub start: u64,
    /// Id of the scope.
    pub id: u64,
    /// Number of the gate at the start.
    pub gate: u32,
}

impl ScopeWords {
    const NOWHERE: u64 = 0;
    /// Lower than any address.
    const DEEP: u64 = 1;
    const SEEK: u64 = 2;
    /// Stored in the lower bits; addresses are multiples of eight.
    const OBSERVED: u64 = 3;

    /// Begins a scope, like [`Scope::enter_with`], directly in the caller's memory, because
    /// creating and copying it would cost a third more. Returns true if it is being recorded.
    #[inline]
    pub fn enter(site: &'static Site, arguments: &impl Arguments, words: &mut MaybeUninit<Self>) -> bool {
        let gate = gate::current();
        let block = block::current();
        let number = site.number();
        if !site::is_number(number) || !block.begin(gate) {
            return Self::enter_slowly(site, arguments, words);
        }
        if block.kinds.get() & site.bit == 0 {
            block.end();
            words.write(Self { site, place: Self::NOWHERE, start: 0, id: 0, gate: 0 });
            return false;
        }
        let opened = block.opened();
        let lane = block.lane();
        let place = lane.open(number, opened);
        if !place.is_null() {
            lane.argue(place, arguments);
        }
        block.end();
        let place = if place.is_null() { Self::DEEP } else { place.expose_provenance() as u64 };
        words.write(Self { site, place, start: opened.start, id: opened.id, gate });
        true
    }

    #[cold]
    #[inline(never)]
    fn enter_slowly(site: &'static Site, arguments: &impl Arguments, words: &mut MaybeUninit<Self>) -> bool {
        let entered = Scope::enter_slowly(site, arguments).into_words();
        words.write(entered).place != Self::NOWHERE
    }

    /// Ends the scope, as dropping it does, without recreating it in the usual case.
    ///
    /// # Safety
    /// The same condition as for [`Scope::from_words`].
    #[inline]
    pub unsafe fn end(self) {
        let block = block::current();
        if self.place > Self::SEEK && self.place & 7 == 0 && block.begin(self.gate) {
            let end = block.ticks.get().now();
            let place = std::ptr::with_exposed_provenance(self.place as usize);
            block.lane().close(place, Opened { start: self.start, id: self.id }, end, 0);
            block.end();
        } else if self.place != Self::NOWHERE {
            // SAFETY: the caller's promise.
            unsafe { Self::end_slowly(self.site, self.place, self.start, self.id, self.gate) };
        }
    }

    /// # Safety
    /// The same condition as for [`Scope::from_words`].
    #[cold]
    #[inline(never)]
    unsafe fn end_slowly(site: &'static Site, place: u64, start: u64, id: u64, gate: u32) {
        // SAFETY: the caller's promise.
        drop(unsafe { Scope::from_words(Self { site, place, start, id, gate }) });
    }
}

/// Returns the key of a name that is known only at run time, for [`crate::Listed`]; equal names
/// give the same key. `None` if there are too many.
pub fn key(name: &str) -> Option<u32> {
    define::number_of_name(name)
}

/// Returns true if anything is recorded or observed.
#[inline]
pub fn is_anything_wanted() -> bool {
    gate::current() != 0
}

/// Returns true if an event of this site would be recorded; a session's filter may still exclude
/// it.
#[inline]
pub fn is_wanted(site: &'static Site) -> bool {
    let gate = gate::current();
    if gate == 0 {
        return false;
    }
    let block = block::current();
    if block.known_gate.get() == gate {
        return block.kinds.get() & site.bit != 0;
    }
    slow::within_for(site.bit, |block| block.kinds.get() & site.bit != 0).unwrap_or(false)
}

/// Records an instant now, with arguments by their places among the site's keys, plus [`OF_SITE`].
#[inline]
pub fn instant(site: &'static Site, arguments: &impl Arguments) {
    simple(site, record::INSTANT, None, arguments);
}

/// Records the new value of a counter.
#[inline]
pub fn counter(site: &'static Site, value: f64) {
    simple(site, record::COUNTER, Some(value.to_bits()), &());
}

/// Position of an event in its flow.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FlowPlace {
    /// The flow begins here.
    Out,
    /// The flow passes through here.
    Step,
    /// The flow ends here.
    In,
}

/// Adds the open scope to a flow; all scopes with one id are joined, across threads.
#[inline]
pub fn flow(site: &'static Site, place: FlowPlace, id: u64) {
    let kind = match place {
        FlowPlace::Out => record::FLOW_OUT,
        FlowPlace::Step => record::FLOW_STEP,
        FlowPlace::In => record::FLOW_IN,
    };
    simple(site, kind, Some(id), &());
}

#[inline]
fn simple(site: &'static Site, kind: u64, second: Option<u64>, arguments: &impl Arguments) {
    let gate = gate::current();
    if gate == 0 {
        return;
    }
    let block = block::current();
    let number = site.number();
    if !site::is_number(number) || !block.begin(gate) {
        return slow::record(site, kind, second, arguments);
    }
    let _ending = block.ending();
    if block.kinds.get() & site.bit != 0 {
        let second = second.unwrap_or_else(|| block.new_id());
        let now = block.ticks.get().now();
        let lane = block.lane();
        lane.write_with([record::head(number, kind, 3, lane.depth()), now, second], arguments);
    }
}

/// A span that may end on another thread.
#[must_use = "a span ends when it is dropped"]
#[derive(Debug)]
pub struct Span {
    site: &'static Site,
    id: u64,
}

impl Span {
    /// Begins a span now. Its id is that of [`correlate`], or a number of its own.
    pub fn begin(site: &'static Site) -> Self {
        Self::begin_with(site, &())
    }

    /// Begins a span now, with arguments by their places among the site's keys, plus [`OF_SITE`].
    pub fn begin_with(site: &'static Site, arguments: &impl Arguments) -> Self {
        let id = if is_wanted(site) { slow::within_for(site.bit, |block| block.new_id()).unwrap_or(0) } else { 0 };
        if id != 0 {
            simple(site, record::ASYNC_BEGIN, Some(id), arguments);
        }
        Self { site, id }
    }

    /// Returns a span that is not recorded.
    pub fn nowhere(site: &'static Site) -> Self {
        Self { site, id: 0 }
    }

    /// Returns its id; 0 if its beginning was not recorded.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Restores the span with an id, for callers that stored only that.
    pub fn of_id(site: &'static Site, id: u64) -> Self {
        Self { site, id }
    }

    /// Returns its id without ending it; [`Span::of_id`] restores it.
    pub fn into_id(self) -> u64 {
        let id = self.id;
        std::mem::forget(self);
        id
    }

    /// Ends the span on this thread.
    pub fn end(self) {}
}

impl Drop for Span {
    fn drop(&mut self) {
        if self.id != 0 {
            simple(self.site, record::ASYNC_END, Some(self.id), &());
        }
    }
}

/// Gives events of this thread that begin during its lifetime an id, by which a device's events
/// refer to their launch. Can be nested.
#[must_use = "the id holds until the guard is dropped"]
#[derive(Debug)]
pub struct Correlation {
    before: u64,
    of_thread: PhantomData<*const ()>,
}

/// Assigns an id to events of this thread.
pub fn correlate(id: u64) -> Correlation {
    Correlation { before: set_correlation(id), of_thread: PhantomData }
}

/// Works like [`correlate`], for callers that restore the previous id themselves: it is returned,
/// or 0 if there was none.
pub fn set_correlation(id: u64) -> u64 {
    sync::attached().map_or(0, |block| block.correlation.replace(id))
}

impl Drop for Correlation {
    fn drop(&mut self) {
        set_correlation(self.before);
    }
}

/// Added to a key that is a place among the site's keys.
pub const OF_SITE: u32 = argument::OF_SITE;

/// Size of a scope on the stack.
const _: () = assert!(size_of::<Scope>() <= 56 && size_of::<*const AtomicU64>() == 8);
