//! An event that is not the usual case: the first of its site or thread, after a change, or with several sessions, filters or observers.
//!
//! Place in the flow: `event` comes here when [`Block::begin`] says no. What a signal handler records while its thread is within another event is
//! counted, never mixed with it.

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use crate::active::registry::Registry;
use crate::memory::gate;
use crate::site::Site;
use crate::thread::block::Block;
use crate::thread::define;
use crate::thread::lane::{Lane, Opened};
use crate::thread::{observed, sync};
use crate::value::Arguments;

/// Where an open scope is found again.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Nobody records it.
    Nowhere,
    /// In the thread's only lane.
    At(*const AtomicU64),
    /// In the thread's only lane, which had no room for a frame.
    Deep,
    /// To be looked for in each lane.
    Seek,
    /// The same, and observers know of it by this number.
    Observed(u64),
}

/// Runs an event with lanes that are right. None where nothing records, or the thread is within another event.
pub(crate) fn within<R>(event: impl FnOnce(&Block) -> R) -> Option<R> {
    let registry = Registry::current()?;
    if gate::current() == 0 {
        return None;
    }
    let block = sync::attached()?;
    if block.activity.busy.load(Ordering::Relaxed) == registry.number {
        if let Some(lane) = block.lanes().first() {
            lane.interrupted();
        }
        return None;
    }
    sync::enlist(block, registry);
    block.activity.busy.store(registry.number, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    // The last look at the gate, as in `Block::begin`.
    if block.known_gate.get() != gate::current() {
        sync::bring_up(block, registry);
    }
    let result = event(block);
    block.end();
    Some(result)
}

/// Opens a scope in every lane that wants it.
#[cold]
#[inline(never)]
pub(crate) fn open(site: &'static Site, arguments: &impl Arguments) -> (Frame, Opened, u32) {
    let told = observed::enter(site, arguments);
    let (frame, opened, gate) = open_in_lanes(site, told.map(|told| told.id));
    match told {
        Some(told) => (Frame::Observed(told.token), Opened { id: told.id, ..opened }, gate),
        None => (frame, opened, gate),
    }
}

/// `id` is that by which observers know it already.
fn open_in_lanes(site: &'static Site, id: Option<u64>) -> (Frame, Opened, u32) {
    let opened = |block: &Block| {
        let wanting = block.kinds.get() & site.bit != 0;
        let number = wanting.then(|| define::number_of(site)).flatten()?;
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
    within(opened).flatten().unwrap_or((Frame::Nowhere, Opened { start: 0, id: 0 }, 0))
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
    // After its end, so that what observers do is not part of it.
    if let Frame::Observed(token) = frame {
        observed::leave(token);
    }
}

/// Adds arguments to an open scope in every lane that has it.
#[cold]
#[inline(never)]
pub(crate) fn argue(frame: Frame, opened: Opened, arguments: &impl Arguments) {
    if let Frame::Observed(token) = frame {
        observed::argue(token, arguments);
    }
    argue_in_lanes(opened, arguments);
}

/// Adds arguments to an open scope in every lane that has it, where observers have them.
#[cold]
#[inline(never)]
pub(crate) fn argue_in_lanes(opened: Opened, arguments: &impl Arguments) {
    within(|block| {
        for lane in block.lanes() {
            let place = lane.find(opened);
            if !place.is_null() {
                lane.argue(place, arguments);
            }
        }
    });
}

/// Writes a record that is no scope into every lane that wants it: `kind`, now, `second` or the id of the event, arguments.
pub(crate) fn record(site: &'static Site, kind: u64, second: Option<u64>, arguments: &impl Arguments) {
    within(|block| {
        if block.kinds.get() & site.bit == 0 {
            return;
        }
        let Some(number) = define::number_of(site) else { return };
        let second = second.unwrap_or_else(|| block.new_id());
        let now = block.ticks.get().now();
        for lane in block.lanes().iter().filter(|lane| lane.core().wanted() & site.bit != 0) {
            let head = crate::layout::record::head(number, kind, 3, lane.depth());
            lane.write_with([head, now, second], arguments);
        }
    });
}

/// Whether a scope that is not found in a lane is one of those for which the lane had no room, if it has any.
fn may_be_deep(lane: &Lane, site: &Site, frame: Frame) -> bool {
    let core = lane.core();
    let every = core.every.load(Ordering::Relaxed);
    matches!(frame, Frame::Seek | Frame::Observed(_)) && core.wanted() & site.bit != 0 && every <= 1
}

fn wants(lane: &Lane, site: &Site) -> bool {
    let core = lane.core();
    let every = core.every.load(Ordering::Relaxed);
    core.wanted() & site.bit != 0 && (every <= 1 || lane.is_turn(every))
}
