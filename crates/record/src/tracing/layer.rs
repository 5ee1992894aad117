//! The layer, which turns the spans and events of `tracing` into calls of the recorder.
//!
//! A span that is entered on the thread that created it, before the next one is created, needs only
//! state of that thread; other spans keep theirs in the registry's extensions.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::callsite::{Callsite, Callsites, Met};
use super::fields::Fields;
use crate::event::{self, FlowPlace, Scope, Span, correlate};
use crate::kind::Kind;
use crate::site::Site;

/// Spans whose whole lifetime is recorded, in addition to their scopes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Lives {
    /// Those of callsites whose spans were entered more than once, or on other threads.
    #[default]
    Learned,
    /// All spans.
    All,
    /// No spans.
    None,
}

/// Records spans and events of the crate `tracing`.
#[derive(Debug)]
pub struct RecordLayer {
    /// Never freed, like a subscriber.
    callsites: &'static Callsites,
    lives: Lives,
    /// Number of spans with state among the registry's extensions; while it is zero, the registry
    /// is not asked.
    kept: AtomicU64,
    /// Number of these with values that no scope has stated yet.
    unstated: AtomicU64,
}

/// Data of a span in the registry's extensions.
#[derive(Debug, Default)]
struct Kept {
    /// It has not been entered yet.
    fresh: bool,
    fields: Fields,
    /// Last values recorded since, for the scope that is entered next.
    unstated: Fields,
    life: Option<Span>,
    /// Flows that end where it is entered next.
    flows: Vec<u64>,
}

/// State of a thread.
struct State {
    met: Met,
    /// The span that was made last, if it was not entered yet.
    fresh: Option<(u64, &'static Callsite)>,
    fields: Fields,
    /// Scopes of spans that are entered, the innermost last.
    open: Vec<(u64, Scope)>,
}

impl State {
    const fn new() -> Self {
        Self { met: Met::new(), fresh: None, fields: Fields::new(), open: Vec::new() }
    }
}

impl RecordLayer {
    /// Creates a layer that records spans and events with the kind `User`.
    pub fn new() -> Self {
        Self {
            callsites: Box::leak(Box::new(Callsites::of(Kind::User))),
            lives: Lives::default(),
            kept: AtomicU64::new(0),
            unstated: AtomicU64::new(0),
        }
    }

    /// Sets another kind.
    pub fn kind(self, kind: Kind) -> Self {
        Self { callsites: Box::leak(Box::new(Callsites::of(kind))), ..self }
    }

    /// Sets which spans' whole lifetime is recorded.
    pub fn lives(self, lives: Lives) -> Self {
        Self { lives, ..self }
    }

    fn find(&self, metadata: &'static Metadata<'static>) -> &'static Callsite {
        let known = with_state(|state| self.callsites.find(metadata, &mut state.met));
        known.unwrap_or_else(|| self.callsites.find_slowly(metadata, std::ptr::from_ref(metadata).addr()))
    }

    /// Stores state of a span in the extensions.
    fn keep<S: Subscriber + for<'a> LookupSpan<'a>>(
        &self,
        id: &Id,
        context: &Context<'_, S>,
        change: impl FnOnce(&mut Kept),
    ) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        if extensions.get_mut::<Kept>().is_none() {
            extensions.insert(Kept::default());
            self.kept.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(kept) = extensions.get_mut::<Kept>() {
            change(kept);
        }
    }

    /// Stores this thread's state of the span that it created last, before the next one.
    #[inline]
    fn put_aside<S: Subscriber + for<'a> LookupSpan<'a>>(&self, state: &mut State, context: &Context<'_, S>) {
        if state.fresh.is_some() {
            self.put_aside_now(state, context);
        }
    }

    #[cold]
    fn put_aside_now<S: Subscriber + for<'a> LookupSpan<'a>>(&self, state: &mut State, context: &Context<'_, S>) {
        if let Some((id, _)) = state.fresh.take() {
            let fields = std::mem::take(&mut state.fields);
            self.keep(&Id::from_u64(id), context, |kept| {
                kept.fresh = true;
                kept.fields = fields;
            });
        }
    }

    fn take_unstated(&self, kept: &mut Kept) -> Fields {
        self.unstated.fetch_sub(u64::from(!kept.unstated.is_empty()), Ordering::Relaxed);
        std::mem::take(&mut kept.unstated)
    }

    /// A span is entered that is not the one this thread has made last.
    #[cold]
    fn enter_again<S: Subscriber + for<'a> LookupSpan<'a>>(&self, id: &Id, context: &Context<'_, S>) -> Option<Scope> {
        let callsite = self.find(context.metadata(id)?);
        if !event::is_wanted(&callsite.site) {
            return None;
        }
        let span = context.span(id)?;
        let mut extensions = span.extensions_mut();
        let mut none = Kept::default();
        let kept = extensions.get_mut::<Kept>();
        let (is_kept, kept) = (kept.is_some(), kept.unwrap_or(&mut none));
        let (fresh, unstated) = (std::mem::take(&mut kept.fresh), self.take_unstated(kept));
        if fresh || kept.life.is_none() {
            kept.fields.append(&unstated);
        }
        if !fresh && self.lives == Lives::Learned {
            callsite.comes_back.store(true, Ordering::Relaxed);
            if kept.life.is_none() {
                kept.life = Some(Span::begin_with(&callsite.site, &kept.fields.arguments()));
            }
        }
        let link = kept.life.as_ref().filter(|life| life.id() != 0).map(|life| correlate(life.id()));
        let scope = match fresh {
            true => Scope::enter_with(&callsite.site, &kept.fields.arguments()),
            false if unstated.is_empty() => Scope::enter(&callsite.site),
            false => Scope::enter_with(&callsite.site, &unstated.arguments()),
        };
        drop(link);
        for flow in kept.flows.drain(..) {
            event::flow(&FOLLOWS, FlowPlace::In, flow);
        }
        if !is_kept && none.life.is_some() {
            extensions.insert(none);
            self.kept.fetch_add(1, Ordering::Relaxed);
        }
        Some(scope)
    }
}

impl Default for RecordLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for RecordLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if !event::is_anything_wanted() {
            return;
        }
        with_state(|state| {
            let callsite = self.callsites.find(attributes.metadata(), &mut state.met);
            self.put_aside(state, &context);
            // Whether anybody wants it the scope finds out itself; values are made only for
            // somebody.
            if !state.fields.is_empty() {
                state.fields.clear();
            }
            if !attributes.is_empty() && event::is_wanted(&callsite.site) {
                attributes.record(&mut state.fields);
            }
            let comes_back = || callsite.comes_back.load(Ordering::Relaxed);
            if self.lives == Lives::All || self.lives == Lives::Learned && comes_back() {
                let life = Span::begin_with(&callsite.site, &state.fields.arguments());
                let fields = std::mem::take(&mut state.fields);
                return self.keep(id, &context, |kept| {
                    (kept.fresh, kept.life, kept.fields) = (true, Some(life), fields);
                });
            }
            state.fresh = Some((id.into_u64(), callsite));
            FRESH.set(id.into_u64());
        });
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if !event::is_anything_wanted() {
            return;
        }
        let number = id.into_u64();
        let entered = with_state(|state| {
            let (_, callsite) = state.fresh.take_if(|(fresh, _)| *fresh == number)?;
            // Another thread may have recorded values on it already.
            if self.unstated.load(Ordering::Relaxed) != 0
                && let Some(span) = context.span(id)
                && let Some(kept) = span.extensions_mut().get_mut::<Kept>()
            {
                state.fields.append(&self.take_unstated(kept));
            }
            let scope = match state.fields.is_empty() {
                true => Scope::enter(&callsite.site),
                false => Scope::enter_with(&callsite.site, &state.fields.arguments()),
            };
            state.open.push((number, scope));
            Some(())
        });
        if entered == Some(None)
            && let Some(scope) = self.enter_again(id, &context)
        {
            with_state(|state| state.open.push((number, scope)));
        }
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        let number = id.into_u64();
        // What ends is dropped outside, since observers may make spans.
        let last = with_state(|state| if state.open.last()?.0 == number { state.open.pop() } else { None });
        if last.flatten().is_none() {
            let at = |state: &State| state.open.iter().rposition(|(open, _)| *open == number);
            drop(with_state(|state| at(state).map(|at| state.open.remove(at))));
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let number = id.into_u64();
        if FRESH.get() == number {
            FRESH.set(0);
            with_state(|state| state.fresh.take_if(|(fresh, _)| *fresh == number));
        }
        if self.kept.load(Ordering::Relaxed) != 0
            && let Some(span) = context.span(&id)
            && let Some(mut kept) = span.extensions_mut().remove::<Kept>()
        {
            self.kept.fetch_sub(1, Ordering::Relaxed);
            // No scope is left to state them.
            let unstated = self.take_unstated(&mut kept);
            if !unstated.is_empty() {
                event::instant(&self.find(span.metadata()).site, &unstated.arguments());
            }
            drop(kept);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if !event::is_anything_wanted() {
            return;
        }
        let mut fields = Fields::default();
        values.record(&mut fields);
        let number = id.into_u64();
        let stated = with_state(|state| {
            let open = state.open.iter().rev().find(|(open, _)| *open == number);
            if let Some((_, scope)) = open {
                scope.state(&fields.arguments());
            } else if state.fresh.is_some_and(|(fresh, _)| fresh == number) {
                state.fields.append(&fields);
            } else {
                return false;
            }
            true
        });
        if stated == Some(false) {
            self.keep(id, &context, |kept| {
                self.unstated.fetch_add(u64::from(kept.unstated.is_empty()), Ordering::Relaxed);
                kept.unstated.replace(&fields);
            });
        }
    }

    fn on_follows_from(&self, id: &Id, _: &Id, context: Context<'_, S>) {
        if !event::is_wanted(&FOLLOWS) {
            return;
        }
        // The id of a span of the recorder's is no other's.
        let flow = crate::thread::slow::within(|block| block.new_id()).unwrap_or(0);
        event::flow(&FOLLOWS, FlowPlace::Out, flow);
        let number = id.into_u64();
        let is_open = with_state(|state| {
            self.put_aside(state, &context);
            state.open.iter().any(|(open, _)| *open == number)
        });
        if is_open == Some(true) {
            event::flow(&FOLLOWS, FlowPlace::In, flow);
        } else {
            self.keep(id, &context, |kept| kept.flows.push(flow));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !event::is_anything_wanted() {
            return;
        }
        let callsite = self.find(event.metadata());
        if !event::is_wanted(&callsite.site) {
            return;
        }
        let mut fields = EVENT.try_with(|fields| fields.take()).unwrap_or_default();
        fields.clear();
        event.record(&mut fields);
        fields.push_text(event.metadata().fields().len(), event.metadata().level().as_str());
        event::instant(&callsite.site, &fields.arguments());
        let _ = EVENT.try_with(|kept| kept.replace(fields));
    }
}

/// `None` if the thread is within, or about to end.
#[inline]
fn with_state<R>(change: impl FnOnce(&mut State) -> R) -> Option<R> {
    let changed = STATE.try_with(|state| state.try_borrow_mut().ok().map(|mut state| change(&mut state)));
    changed.ok().flatten()
}

static FOLLOWS: Site = Site::new("follows from", Kind::User, "", 0, &[]);

thread_local! {
    static STATE: RefCell<State> = const { RefCell::new(State::new()) };
    /// The span that was created last, or 0: avoids the cost of a destructor.
    static FRESH: Cell<u64> = const { Cell::new(0) };
    /// Values of events, for their memory.
    static EVENT: RefCell<Fields> = const { RefCell::new(Fields::new()) };
}
