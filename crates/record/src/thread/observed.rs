//! Calls observers before a scope begins and after it has ended.
//!
//! The observers to call are determined within an event; the calls themselves follow it, when no
//! other thread waits for this one. Observed scopes lie on a stack of the thread, with the value
//! that each observer returned. Events within an observer's call are not observed.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::active::registry::Registry;
use crate::active::watch::{Observed, WATCHES_MAX, Watch};
use crate::layout::argument;
use crate::site::{self, Site};
use crate::thread::block::{self, Block};
use crate::thread::lane::Opened;
use crate::thread::slow::{self, Frame};
use crate::value::{ArgumentValue, Arguments, Words};

/// Opens a scope: observers are called, then it begins wherever it is recorded.
#[cold]
#[inline(never)]
pub(crate) fn open(site: &'static Site, arguments: &impl Arguments) -> (Frame, Opened, u32) {
    let told = enter(site, arguments);
    let (frame, opened, gate) = slow::open(site, told.map(|told| told.id));
    match told {
        Some(told) => (Frame::Observed(told.token), Opened { id: told.id, ..opened }, gate),
        None => (frame, opened, gate),
    }
}

/// Ends a scope, and then calls observers that know about it, so that their work is not part of it.
#[cold]
#[inline(never)]
pub(crate) fn close(site: &'static Site, frame: Frame, opened: Opened) {
    slow::close(site, frame, opened);
    if let Frame::Observed(token) = frame {
        leave(token);
    }
}

/// Adds arguments to an open scope.
#[cold]
#[inline(never)]
pub(crate) fn argue(frame: Frame, opened: Opened, arguments: &impl Arguments) {
    if let Frame::Observed(token) = frame {
        argue_told(token, arguments);
    }
    slow::argue(opened, arguments);
}

/// A scope that observers know of.
#[derive(Copy, Clone, Debug)]
struct Told {
    /// Which, on this thread.
    pub token: u64,
    /// Its id.
    pub id: u64,
}

/// An observed scope that is open.
struct Open {
    told: Told,
    site: &'static Site,
    /// Its arguments, if an observer requested them.
    words: Option<Vec<AtomicU64>>,
    /// Numbers of observers, and their results.
    contexts: Vec<(u64, u64)>,
}

/// State of a thread for observers.
#[derive(Default)]
struct State {
    token: u64,
    open: Vec<Open>,
    /// Numbers of observers that are not called for every scope, and scopes until the next call.
    turns: Vec<(u64, u32)>,
}

/// A scope is about to begin. `None` if nothing observes it.
fn enter(site: &'static Site, arguments: &impl Arguments) -> Option<Told> {
    let registry = Registry::current().filter(|registry| registry.is_observed())?;
    let (block, mut watches) = (block::current(), Vec::new());
    // Of a signal handler that interrupts an event; whoever records counts it.
    if block.activity.busy.load(Ordering::Relaxed) == registry.number {
        return None;
    }
    let id = slow::within(|block| {
        if !block.observing.get() {
            let wanting = registry.watches().iter().filter(|watch| watch.wants(site.bit, block.serial.get()));
            watches.extend(wanting.map(Arc::clone));
        }
        if watches.is_empty() { 0 } else { block.new_id() }
    })?;
    if watches.is_empty() {
        return None;
    }
    let _calling = Calling::begin()?;
    watches.retain(|watch| watch.every <= 1 || with_state(|state| state.is_turn(watch)).unwrap_or(false));
    if watches.is_empty() {
        return None;
    }
    let mut words = watches.iter().any(|watch| watch.arguments).then(Vec::new);
    if let Some(words) = &mut words {
        append(words, arguments);
    }
    let contexts = call_enter(&watches, site, id, words.as_deref());
    with_state(|state| {
        state.forget_all_but(&watches);
        state.token += 1;
        let told = Told { token: state.token, id };
        state.open.push(Open { told, site, words, contexts });
        told
    })
}

/// A scope has ended, and with it those within that have not.
fn leave(token: u64) {
    let Some(_calling) = Calling::begin() else { return };
    let ended = with_state(|state| state.take(token)).unwrap_or_default();
    let mut watches = Vec::new();
    let registry = Registry::current().filter(|registry| registry.is_observed());
    if let Some(registry) = registry {
        slow::within(|_| watches.extend(registry.watches().iter().map(Arc::clone)));
    }
    for open in ended.iter().rev() {
        call_leave(&watches, open, token);
    }
}

/// A scope has got more arguments.
fn argue_told(token: u64, arguments: &impl Arguments) {
    with_state(|state| {
        let open = state.open.iter_mut().rev().find(|open| open.told.token == token);
        if let Some(words) = open.and_then(|open| open.words.as_mut()) {
            append(words, arguments);
        }
    });
}

fn call_enter(watches: &[Arc<Watch>], site: &'static Site, id: u64, words: Option<&[AtomicU64]>) -> Vec<(u64, u64)> {
    let shown = words.map(|words| decode(site, words)).unwrap_or_default();
    let mut contexts = Vec::with_capacity(watches.len());
    for watch in watches {
        let arguments: &[_] = if watch.arguments { &shown } else { &[] };
        let event = Observed { site, id, unfinished: false, arguments };
        let context = watch.enter.as_ref().map_or(Some(0), |enter| watch.call(|| enter(&event)));
        contexts.extend(context.map(|context| (watch.number, context)));
    }
    contexts
}

fn call_leave(watches: &[Arc<Watch>], open: &Open, token: u64) {
    let shown = open.words.as_ref().map(|words| decode(open.site, words)).unwrap_or_default();
    // The last to enter leaves first.
    for (number, context) in open.contexts.iter().rev() {
        let Some(watch) = watches.iter().find(|watch| watch.number == *number) else { continue };
        let arguments: &[_] = if watch.arguments { &shown } else { &[] };
        let (id, unfinished) = (open.told.id, open.told.token != token);
        let event = Observed { site: open.site, id, unfinished, arguments };
        if let Some(leave) = &watch.leave {
            watch.call(|| leave(&event, *context));
        }
    }
}

impl State {
    fn is_turn(&mut self, watch: &Watch) -> bool {
        let at = self.turns.iter().position(|(number, _)| *number == watch.number).unwrap_or_else(|| {
            // Those of observers that are gone make room.
            if self.turns.len() >= WATCHES_MAX {
                self.turns.remove(0);
            }
            self.turns.push((watch.number, 0));
            self.turns.len() - 1
        });
        let left = &mut self.turns[at].1;
        let turn = *left == 0;
        *left = if turn { watch.every - 1 } else { *left - 1 };
        turn
    }

    /// Takes off the scope of a token, and those opened after it.
    fn take(&mut self, token: u64) -> Vec<Open> {
        let at = self.open.iter().rposition(|open| open.told.token == token);
        at.map(|at| self.open.split_off(at)).unwrap_or_default()
    }

    /// Removes scopes that were forgotten rather than dropped, and whose observers are gone; they
    /// would otherwise stay for ever.
    fn forget_all_but(&mut self, watches: &[Arc<Watch>]) {
        if self.open.len() >= OPEN_MAX {
            let is_there = |number: u64| watches.iter().any(|watch| watch.number == number);
            self.open.retain(|open| open.contexts.iter().any(|(number, _)| is_there(*number)));
            self.open.truncate(OPEN_MAX - 1);
        }
    }
}

/// While this exists, this thread is within calls of observers.
struct Calling(&'static Block);

impl Calling {
    fn begin() -> Option<Self> {
        let block = block::current();
        (!block.observing.replace(true)).then_some(Self(block))
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        self.0.observing.set(false);
    }
}

fn append(words: &mut Vec<AtomicU64>, arguments: &impl Arguments) {
    let more = arguments.words();
    if words.len() + more <= WORDS_MAX {
        let at = words.len();
        words.resize_with(at + more, AtomicU64::default);
        // SAFETY: as many words as the arguments take are there, and nobody else knows them.
        arguments.write(unsafe { Words::at(words[at..].as_ptr(), more) });
    }
}

fn decode(site: &Site, words: &[AtomicU64]) -> Vec<(String, ArgumentValue)> {
    let words: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    let (mut found, mut rest) = (Vec::new(), &words[..]);
    while let Some(head) = rest.first().copied() {
        let length = (head >> 40 & 0xff) as usize;
        let Some(body) = rest.get(1..length) else { break };
        let key = head as u32;
        let of_site = || site.keys().get((key & !argument::OF_SITE) as usize).map(|key| (*key).to_owned());
        let key = if key & argument::OF_SITE != 0 { of_site() } else { site::name_of(key) };
        found.push((key.unwrap_or_default(), ArgumentValue::of_words(head, body)));
        rest = &rest[length..];
    }
    found
}

/// `None` if a signal handler interrupts the thread here, or the thread is about to end.
fn with_state<R>(change: impl FnOnce(&mut State) -> R) -> Option<R> {
    let changed = STATE.try_with(|state| state.try_borrow_mut().ok().map(|mut state| change(&mut state)));
    changed.ok().flatten()
}

/// Words of the arguments of an observed scope.
const WORDS_MAX: usize = 4096;
/// Observed scopes that are open at once on a thread.
const OPEN_MAX: usize = 4096;

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}
