//! Updates a thread's view of the sessions: at its first event, whenever the gate has changed, and
//! when the thread ends.
//!
//! `slow` calls [`bring_up`] within an event. The list of sessions is read under its lock, which
//! other threads hold only while sessions begin or end. The update does not allocate, so a signal
//! handler may run it.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence};

use rustix::mm::{MapFlags, ProtFlags};

use crate::active::core::Core;
use crate::active::registry::Registry;
use crate::detail::Details;
use crate::layout::header;
use crate::memory::gate;
use crate::thread::block::{self, Block, LANES};
use crate::thread::lane::Lane;
use crate::thread::masked::Masked;

/// The thread's block, created if it has none; `None` if the system has no memory for one, or the
/// thread is about to end.
pub(crate) fn attached() -> Option<&'static Block> {
    let current = block::current();
    if !ptr::eq(current, &raw const block::NONE) {
        return (!ptr::eq(current, &raw const ENDED)).then_some(current);
    }
    // A signal handler that came in between would take a block, too, and one of them would be
    // nobody's.
    let _masked = Masked::all();
    let current = block::current();
    if !ptr::eq(current, &raw const block::NONE) {
        return Some(current);
    }
    let block = take_free().or_else(map_more)?;
    let serial = new_serial();
    block.take(serial, tid());
    block::set_current(block);
    call_at_end(block);
    Some(block)
}

/// A serial number that no thread has.
pub(crate) fn new_serial() -> u32 {
    SERIAL.fetch_add(1, Ordering::Relaxed)
}

/// Makes a block of this registry's: others can see whether its thread is within an event.
pub(crate) fn enlist(block: &'static Block, registry: &Registry) {
    if block.registry.get() == registry.number {
        return;
    }
    // A signal handler that came in between would put it on the list twice.
    let _masked = Masked::all();
    if block.registry.get() == registry.number {
        return;
    }
    // In a child: what is there is its parent's.
    block.lanes().iter().for_each(Lane::forget);
    block.lane_count.set(0);
    block.fast_gate.set(gate::NEVER);
    block.registry.set(registry.number);
    registry.enlist(&block.activity);
}

/// Makes a block right for the gate as it is now. Called within an event.
pub(crate) fn bring_up(block: &Block, registry: &Registry) {
    let sessions = registry.sessions();
    let gate = gate::current();
    leave_ended(block, &sessions);
    let mut name = [0_u8; NAME_BYTES];
    for core in sessions.iter().filter(|core| core.covers(block.serial.get())) {
        let count = block.lane_count.get();
        let is_there = block.lanes().iter().any(|lane| lane.session() == core.number);
        if !is_there && count < LANES {
            block.lanes[count].attach(core, block.serial.get(), block.tid.get(), thread_name(&mut name));
            block.lane_count.set(count + 1);
        }
    }
    let watches = || registry.watches().iter().filter(|watch| watch.is_for(block.serial.get()));
    let observed = watches().fold(0, |kinds, watch| kinds | watch.kinds);
    block.kinds.set(block.lanes().iter().fold(observed, |kinds, lane| kinds | lane.core().noticed()));
    let details = if watches().any(|watch| watch.arguments) { Details::ALL } else { Details::NONE };
    block.details.set(block.lanes().iter().fold(details, |details, lane| details.union(lane.core().details)));
    block.ticks.set(registry.ticks());
    // From now on handlers count in the lanes, which must be whole.
    compiler_fence(Ordering::SeqCst);
    block.known_gate.set(gate);
    let plain = |core: &Core| core.every.load(Ordering::Relaxed) <= 1 && core.least_ticks == 0 && !core.counts_omitted;
    let usual = !registry.is_slow() && block.lane_count.get() == 1 && plain(block.lane().core());
    block.fast_gate.set(if usual { gate } else { gate::NEVER });
}

/// An event of a signal handler came while the thread was within another.
pub(crate) fn interrupted(registry: &Registry, block: &Block, bit: u32) {
    // Only then are the lanes right, and stay: whoever ends a session waits for the event that was
    // interrupted.
    if block.known_gate.get() == gate::current() {
        let wanting = block.lanes().iter().filter(|lane| lane.core().wanted() & bit != 0);
        return wanting.for_each(|lane| lane.interrupted(1));
    }
    registry.look(bit, Some(block.serial.get()), |core| {
        core.header(header::INTERRUPTED).fetch_add(1, Ordering::Relaxed);
    });
}

/// Counts an event of a thread that has no block: it is about to end, or the system has no memory.
pub(crate) fn lost_without_block(registry: &Registry, bit: u32) {
    let now = registry.ticks().now();
    registry.look(bit, None, |core| core.lose(1, now, now));
}

/// Forgets lanes of sessions that are gone; returns those of sessions that continue without this
/// thread.
fn leave_ended(block: &Block, sessions: &[Arc<Core>]) {
    let mut kept = 0;
    for at in 0..block.lane_count.get() {
        let lane = &block.lanes[at];
        match sessions.iter().find(|core| core.number == lane.session()) {
            None => lane.forget(),
            Some(core) if !core.covers(block.serial.get()) => lane.detach(block.ticks.get().now()),
            Some(_) => {
                if kept != at {
                    lane.move_to(&block.lanes[kept]);
                }
                kept += 1;
            }
        }
    }
    block.lane_count.set(kept);
}

/// A thread ends: returns what it holds of sessions that continue.
extern "C" fn at_end(block: *mut libc::c_void) {
    // SAFETY: `call_at_end` gave a block, which lives as long as the program.
    let block: &'static Block = unsafe { &*block.cast_const().cast::<Block>() };
    // What handlers record from now on comes when the thread has no block any more.
    let _masked = Masked::all();
    block::set_current(&ENDED);
    if let Some(registry) = Registry::current().filter(|registry| registry.number == block.registry.get()) {
        block.activity.busy.store(registry.number, Ordering::Relaxed);
        let sessions = registry.sessions();
        leave_ended(block, &sessions);
        block.lanes().iter().for_each(|lane| lane.detach(block.ticks.get().now()));
        drop(sessions);
        block.activity.busy.store(0, Ordering::Release);
    }
    block.lane_count.set(0);
    block.taken.store(false, Ordering::Release);
}

fn call_at_end(block: &'static Block) {
    let Some(key) = key_of_end() else { return };
    // SAFETY: the key is valid, and the value is a pointer that only `at_end` gets. Where the
    // system has no memory for it, the thread's block stays taken.
    let _ = unsafe { libc::pthread_setspecific(key, ptr::from_ref(block).cast()) };
}

/// The key whose values [`at_end`] gets. No `OnceLock`: a child that is forked while another thread
/// is within one waits for that thread, which it has not.
fn key_of_end() -> Option<libc::pthread_key_t> {
    let known = KEY.load(Ordering::Acquire);
    if known != 0 {
        return libc::pthread_key_t::try_from(known - 1).ok();
    }
    let mut key = MaybeUninit::uninit();
    // SAFETY: the call writes the key where it succeeds; the function lives as long as the program.
    let made = unsafe { libc::pthread_key_create(key.as_mut_ptr(), Some(at_end)) } == 0;
    // SAFETY: written, since the call has succeeded.
    let key = made.then(|| unsafe { key.assume_init() })?;
    match KEY.compare_exchange(0, u64::from(key) + 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(key),
        Err(first) => {
            // SAFETY: made above, and known to nobody.
            unsafe { libc::pthread_key_delete(key) };
            libc::pthread_key_t::try_from(first - 1).ok()
        }
    }
}

/// A block that a thread has left.
fn take_free() -> Option<&'static Block> {
    let mut batch = BATCHES.load(Ordering::Acquire);
    // SAFETY: only `map_more` puts batches on the list, which are never freed.
    while let Some(blocks) = unsafe { batch.as_ref() } {
        let free =
            |block: &&Block| block.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let free = blocks.blocks.iter().find(free);
        if free.is_some() {
            return free;
        }
        batch = blocks.next.load(Ordering::Acquire);
    }
    None
}

fn map_more() -> Option<&'static Block> {
    let bytes = size_of::<Batch>();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the system chooses an address where nothing is.
    let mapped = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) }.ok()?;
    let batch: *mut Batch = mapped.cast();
    let made = Batch { next: AtomicPtr::new(ptr::null_mut()), blocks: [const { Block::none() }; BATCH] };
    // SAFETY: mapped with room for one, aligned to a page, and nobody else knows it.
    unsafe { batch.write(made) };
    let mut head = BATCHES.load(Ordering::Acquire);
    loop {
        // SAFETY: written above; nobody frees it.
        unsafe { (*batch).next.store(head, Ordering::Release) };
        match BATCHES.compare_exchange_weak(head, batch, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(other) => head = other,
        }
    }
    take_free()
}

fn tid() -> u64 {
    u64::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or(0)
}

/// The thread's name as the system has it: 15 bytes at most.
fn thread_name(place: &mut [u8; NAME_BYTES]) -> &str {
    // SAFETY: PR_GET_NAME writes at most 16 bytes, with a zero at the end.
    let known = unsafe { libc::prctl(libc::PR_GET_NAME, place.as_mut_ptr()) } == 0;
    let name = known.then(|| CStr::from_bytes_until_nul(place).ok()).flatten();
    name.and_then(|name| name.to_str().ok()).unwrap_or("")
}

struct Batch {
    next: AtomicPtr<Self>,
    blocks: [Block; BATCH],
}

const NAME_BYTES: usize = 16;
/// Blocks that are mapped at once.
const BATCH: usize = 16;

/// One more than [`key_of_end`]; 0: not created yet.
static KEY: AtomicU64 = AtomicU64::new(0);
/// The block of threads that are about to end.
static ENDED: Block = Block::none();
static BATCHES: AtomicPtr<Batch> = AtomicPtr::new(ptr::null_mut());
static SERIAL: AtomicU32 = AtomicU32::new(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Policy, Reach, Recorder, scope};

    /// Earlier, a handler tried that lock a thousand times, and lost its event if another thread
    /// held it for longer.
    #[test]
    fn handlers_are_counted_while_somebody_holds_the_sessions() {
        let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
        let session = builder.start().expect("nothing else records this thread");
        drop(scope!("own"));
        let (registry, block) =
            (Registry::current().expect("there is a session"), attached().expect("it has recorded"));
        let held = registry.sessions();
        let known = block.known_gate.replace(gate::NEVER);
        interrupted(registry, block, crate::Kinds::bit(Kind::User));
        lost_without_block(registry, crate::Kinds::bit(Kind::User));
        block.known_gate.set(known);
        drop(held);
        let recording = session.finish().expect("whole");
        let of_threads = recording.threads().iter().map(|thread| thread.interrupted).sum::<u64>();
        assert_eq!((recording.status().interrupted, of_threads), (1, 0), "by its sessions, not by its lanes");
        assert_eq!(recording.status().lost.events, 0, "a thread that is not known is no member");
    }
}
