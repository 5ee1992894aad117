//! The slow path of an event: the first of its site or thread, the first after a change, or one
//! with several sessions, filters or observers.
//!
//! `event` takes this path when [`Block::begin`] declines. Events that a signal handler records
//! while its thread is within another event are counted and never mixed with that event.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::active::registry::Registry;
use crate::layout::Filter;
use crate::memory::{gate, order};
use crate::site::Site;
use crate::thread::block::Block;
use crate::thread::define;
use crate::thread::lane::{Lane, Opened};
use crate::thread::sync;
use crate::value::Arguments;

/// How to find an open scope again.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// It is not recorded.
    Nowhere,
    /// In the thread's only lane.
    At(*const AtomicU64),
    /// In the thread's only lane, which had no room for a frame.
    Deep,
    /// To be searched for in each lane.
    Seek,
    /// The same, and observers know of it by this number.
    Observed(u64),
}

/// Runs something with up-to-date lanes. `None` if nothing records, or the thread is within an
/// event.
pub(crate) fn within<R>(event: impl FnOnce(&Block) -> R) -> Option<R> {
    within_for(0, event)
}

/// Runs an event of these bits with up-to-date lanes. If the thread is within another, it is
/// counted.
pub(crate) fn within_for<R>(bit: u32, event: impl FnOnce(&Block) -> R) -> Option<R> {
    let registry = Registry::current()?;
    if gate::current() == 0 {
        return None;
    }
    let Some(block) = sync::attached() else {
        if bit != 0 {
            sync::lost_without_block(registry, bit);
        }
        return None;
    };
    if block.activity.busy.load(Ordering::Relaxed) == registry.number {
        if bit != 0 {
            sync::interrupted(registry, block, bit);
        }
        return None;
    }
    sync::enlist(block, registry);
    let is_right = order::begin(&block.activity.busy, registry.number, gate::word(), block.known_gate.get());
    let _ending = block.ending();
    if !is_right {
        sync::bring_up(block, registry);
    }
    Some(event(block))
}

/// Opens a scope in every lane that wants it. `id` is that by which observers know it already.
#[cold]
#[inline(never)]
pub(crate) fn open(site: &'static Site, id: Option<u64>) -> (Frame, Opened, u32) {
    let opened = |block: &Block| {
        let wanting = block.kinds.get() & site.bit != 0;
        let number = wanting.then(|| number_of(site, block)).flatten()?;
        let opened = id.map_or_else(|| block.opened(), |id| Opened { id, start: block.ticks.get().now() });
        let mut frame = Frame::Nowhere;
        for lane in block.lanes().iter().filter(|lane| wants(lane, site)) {
            let place = lane.open(number, opened);
            frame = match place.is_null() {
                _ if block.lanes().len() > 1 => Frame::Seek,
                true => Frame::Deep,
                false => Frame::At(place),
            };
        }
        Some((frame, opened, block.known_gate.get()))
    };
    within_for(site.bit, opened).flatten().unwrap_or((Frame::Nowhere, Opened { start: 0, id: 0 }, 0))
}

/// Ends a scope in every lane that has it.
#[cold]
#[inline(never)]
pub(crate) fn close(site: &'static Site, frame: Frame, opened: Opened) {
    within(|block| {
        let end = block.ticks.get().now();
        for lane in block.lanes() {
            let place = lane.find(opened);
            if !place.is_null() {
                lane.close(place, opened, end, lane.core().least_ticks);
            } else if frame == Frame::Deep || may_be_deep(lane, site, frame) {
                lane.close_deep(site.number(), opened, end);
            }
        }
    });
}

/// Adds arguments to an open scope in every lane that has it.
#[cold]
#[inline(never)]
pub(crate) fn argue(opened: Opened, arguments: &impl Arguments) {
    within(|block| {
        for lane in block.lanes() {
            let place = lane.find(opened);
            if !place.is_null() {
                lane.argue(place, arguments);
            } else if lane.is_deep(opened) {
                lane.arguments_lost(arguments);
            }
        }
    });
}

/// Writes a record that is no scope into every lane that wants it: `kind`, now, `second` or the id
/// of the event, arguments.
pub(crate) fn record(site: &'static Site, kind: u64, second: Option<u64>, arguments: &impl Arguments) {
    within_for(site.bit, |block| {
        if block.kinds.get() & site.bit == 0 {
            return;
        }
        let Some(number) = number_of(site, block) else { return };
        let second = second.unwrap_or_else(|| block.new_id());
        let now = block.ticks.get().now();
        for lane in block.lanes().iter().filter(|lane| is_of_kind(lane, site)) {
            let head = crate::layout::record::head(number, kind, 3, lane.depth());
            lane.write_with([head, now, second], arguments);
        }
    });
}

/// Whether a scope that is not found in a lane is one of those for which the lane had no room, if
/// it has any.
fn may_be_deep(lane: &Lane, site: &Site, frame: Frame) -> bool {
    let core = lane.core();
    let every = core.every.load(Ordering::Relaxed);
    matches!(frame, Frame::Seek | Frame::Observed(_)) && core.wanted() & site.bit != 0 && every <= 1
}

/// The number of a site; without one the event is lost.
fn number_of(site: &'static Site, block: &Block) -> Option<u32> {
    let number = Registry::current().and_then(|registry| define::number_of(site, registry));
    if number.is_none() {
        let now = block.ticks.get().now();
        let wanting = block.lanes().iter().filter(|lane| lane.core().wanted() & site.bit != 0);
        wanting.for_each(|lane| lane.lose(1, now, now));
    }
    number
}

/// Whether a lane records a scope of a site that begins now; if a filter omits it, it is counted.
fn wants(lane: &Lane, site: &Site) -> bool {
    let every = lane.core().every.load(Ordering::Relaxed);
    if !is_of_kind(lane, site) {
        return false;
    }
    let is_turn = every <= 1 || lane.is_turn(every);
    if !is_turn {
        lane.omit(Filter::OneIn);
    }
    is_turn
}

/// Returns true if a lane records events of a site's kind; counts an omitted one if the session asks
/// for it.
fn is_of_kind(lane: &Lane, site: &Site) -> bool {
    let core = lane.core();
    let wanted = core.wanted();
    if wanted != 0 && wanted & site.bit == 0 && core.counts_omitted {
        lane.omit(Filter::Kinds);
    }
    wanted & site.bit != 0
}
