//! The events of a thread as a tree.
//!
//! [`walk`] returns every event of a [`Recording`] with its [`Placed`] as it is read, in memory
//! that does not grow with the recording; a [`Tree`] holds one whole thread. Nesting follows from
//! the order of the records and their depths, not from times; times are adjusted to fit (`place`).
//! Scopes that are open when a recording ends, normally or by a kill, end with it and are marked.
//! Nothing here is recursive, because a tree may be as deep as a stack.
//!
//! Times stay in ticks; the caller maps them to a clock.

mod links;
mod place;
mod whole;

#[cfg(test)]
mod tests;

use crate::error::Error;
use crate::kind::Kind;
use crate::read::{ArgumentValue, Event, OpenScope, Recording, Thread, What};

pub use links::{At, Foreign, Links};
pub use place::{Placed, Placer, Unplaced};
pub use whole::{Node, Tree};

/// An item on a thread.
#[derive(Copy, Clone, Debug)]
pub enum Item<'a> {
    /// A recorded event.
    Event(&'a Event<'a>),
    /// A scope that had not ended when the recording did, and the number of scopes around it.
    Open(&'a OpenScope, u32),
}

impl Item<'_> {
    /// Returns the name.
    pub fn name(&self) -> &str {
        match self {
            Self::Event(event) => event.name(),
            Self::Open(scope, _) => &scope.name,
        }
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Event(event) => event.kind(),
            Self::Open(scope, _) => scope.kind,
        }
    }

    /// Returns the content; the end of a scope without one is 0.
    pub fn what(&self) -> What {
        match self {
            Self::Event(event) => event.what,
            Self::Open(scope, _) => What::Scope { start: scope.start, end: 0, id: scope.id, unfinished: true },
        }
    }

    /// Returns the number of enclosing open scopes.
    pub fn depth(&self) -> u32 {
        match self {
            Self::Event(event) => event.depth,
            Self::Open(_, depth) => *depth,
        }
    }

    /// Returns the value of an argument.
    pub fn argument(&self, key: &str) -> Option<ArgumentValue> {
        match self {
            Self::Event(event) => event.arguments().find(|(own, _)| *own == key).map(|(_, value)| value),
            Self::Open(scope, _) => scope.arguments.iter().find(|(own, _)| own == key).map(|(_, value)| value.clone()),
        }
    }

    /// Calls `each` for every argument.
    pub fn each_argument(&self, mut each: impl FnMut(&str, &ArgumentValue)) {
        match self {
            Self::Event(event) => event.arguments().for_each(|(key, value)| each(key, &value)),
            Self::Open(scope, _) => scope.arguments.iter().for_each(|(key, value)| each(key, value)),
        }
    }
}

/// Passes every event of a thread with its place, in the order of their ends; the innermost of the
/// open scopes come last, followed only by those around them. `clock` maps ticks to the requested
/// clock, and must keep their order.
///
/// # Errors
/// Errors of `each`, and of [`Recording::visit`].
pub fn walk<E: From<Error>>(
    recording: &Recording,
    thread: &Thread,
    mut clock: impl FnMut(u64) -> i64,
    mut each: impl FnMut(Item<'_>, &Placed) -> Result<(), E>,
) -> Result<(), E> {
    let mut placer = Placer::default();
    recording.visit(thread.serial, |event| {
        let ticks = match event.what {
            What::Scope { start, end, .. } => [start, end],
            What::Lost { first, last, .. } => [first, last],
            other => [other.end(); 2],
        };
        let unplaced = Unplaced {
            depth: event.depth,
            ticks,
            times: ticks.map(&mut clock),
            is_scope: matches!(event.what, What::Scope { .. }),
        };
        let placed = match event.what {
            What::Scope { .. } | What::Instant { .. } | What::Flow { .. } => placer.place(unplaced),
            What::Counter { .. } | What::SpanBegin { .. } | What::SpanEnd { .. } => placer.aside(unplaced),
            // Where it is in the order says nothing of the depth at which events were lost.
            What::Lost { .. } => Placed { number: u64::MAX, ..aside_of_all(unplaced) },
        };
        each(Item::Event(event), &placed)
    })?;
    let end = recording.status().end;
    for (depth, scope) in thread.open.iter().enumerate().rev() {
        let ticks = [scope.start, end.max(scope.start)];
        let times = ticks.map(&mut clock);
        let depth = depth as u32;
        let placed = placer.place(Unplaced { depth, ticks, times, is_scope: true });
        each(Item::Open(scope, depth), &placed)?;
    }
    Ok(())
}

fn aside_of_all(event: Unplaced) -> Placed {
    let [start, end] = event.times;
    Placed { number: 0, parent: None, depth: 0, start, end: end.max(start), own: 0 }
}

/// Names of the argument by which a backward call refers to its forward call; the second is
/// Kineto's.
pub const SEQUENCE_NUMBER: [&str; 2] = ["sequence_number", "Sequence number"];
/// Names of the argument with the thread id of the forward call; the second is Kineto's.
pub const FORWARD_THREAD: [&str; 2] = ["forward_thread", "Fwd thread id"];
