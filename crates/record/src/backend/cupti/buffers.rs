//! Memory that CUPTI fills with records: a bounded pool, and the callbacks through which buffers
//! come and go.
//!
//! The callbacks run on threads of the program and of CUPTI. They only move buffers between lists
//! of fixed length; records are decoded by the session's own thread. Callbacks cannot be
//! unregistered, so the pool is a static: a buffer that CUPTI returns after the session that lent
//! it has ended is freed, and its records are not read.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::panic::catch_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A pool of buffers of one size.
#[derive(Debug)]
pub(super) struct Pool(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Number of the session that uses it; 0: none.
    session: u64,
    /// Number of the last session.
    last: u64,
    buffers: [Option<Buffer>; COUNT],
    /// Buffers that came back with records.
    returned: u64,
    /// Requests that could not be met in this session.
    refused: u64,
}

#[derive(Copy, Clone, Debug)]
struct Buffer {
    place: Place,
    use_: Use,
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum Use {
    Free,
    /// CUPTI has it, from this session.
    Lent(u64),
    /// Returned with this many bytes of records; its number among the returned ones.
    Full(usize, u64),
    /// Being read.
    Reading,
}

/// Start of a buffer.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Place(pub *mut u8);

// SAFETY: a buffer is plain memory, and only the holder that its `Use` names accesses it.
unsafe impl Send for Place {}

impl Pool {
    /// Begins a session.
    ///
    /// # Errors
    /// States that another session of the process has it; its buffers are being read.
    pub fn open(&self) -> Result<(), String> {
        let mut state = self.lock();
        if state.session != 0 {
            return Err("another session of this process records the GPUs; finish it first".into());
        }
        state.last += 1;
        state.session = state.last;
        state.refused = 0;
        // Left by a session that broke off.
        for buffer in state.buffers.iter_mut().flatten() {
            if !matches!(buffer.use_, Use::Lent(_)) {
                buffer.use_ = Use::Free;
            }
        }
        Ok(())
    }

    /// Ends the session: no buffer is lent any more, and those that are not lent are freed.
    pub fn close(&self) {
        let mut state = self.lock();
        state.session = 0;
        for slot in &mut state.buffers {
            if let Some(buffer) = slot.take_if(|buffer| !matches!(buffer.use_, Use::Lent(_))) {
                buffer.place.free();
            }
        }
    }

    /// Takes the full buffer that was returned first, with the number of bytes to read. It must be
    /// given back with [`Pool::put_back`].
    pub fn take_full(&self) -> Option<(Place, usize)> {
        let mut state = self.lock();
        let full = state.buffers.iter_mut().flatten().filter_map(|buffer| match buffer.use_ {
            Use::Full(valid, order) => Some((order, valid, buffer)),
            _ => None,
        });
        let (_, valid, buffer) = full.min_by_key(|(order, ..)| *order)?;
        buffer.use_ = Use::Reading;
        Some((buffer.place, valid))
    }

    /// Gives back a buffer that has been read.
    pub fn put_back(&self, place: Place) {
        let mut state = self.lock();
        if let Some(buffer) = state.buffers.iter_mut().flatten().find(|buffer| buffer.place == place) {
            buffer.use_ = Use::Free;
        }
    }

    /// Returns the number of the session; 0 if there is none.
    pub fn session(&self) -> u64 {
        self.lock().session
    }

    /// Returns how many requests could not be met in this session.
    pub fn refused(&self) -> u64 {
        self.lock().refused
    }

    /// Lends a buffer.
    fn lend(&self) -> Option<Place> {
        let mut state = self.lock();
        if state.session == 0 {
            return None;
        }
        let session = state.session;
        let free = |slot: &&mut Option<Buffer>| slot.is_none_or(|buffer| buffer.use_ == Use::Free);
        // One that exists comes first, so that memory grows only if needed.
        state.buffers.sort_unstable_by_key(|slot| !slot.is_some_and(|buffer| buffer.use_ == Use::Free));
        let lent = state.buffers.iter_mut().find(free).and_then(|slot| {
            let place = match slot {
                Some(buffer) => buffer.place,
                None => Place::new()?,
            };
            *slot = Some(Buffer { place, use_: Use::Lent(session) });
            Some(place)
        });
        state.refused += u64::from(lent.is_none());
        lent
    }

    /// Takes back a buffer with records.
    fn take_back(&self, place: Place, valid: usize) {
        let mut state = self.lock();
        state.returned += 1;
        let (session, order) = (state.session, state.returned);
        let Some(slot) = state.buffers.iter_mut().find(|slot| slot.is_some_and(|buffer| buffer.place == place)) else {
            return;
        };
        match slot.map(|buffer| buffer.use_) {
            Some(Use::Lent(by)) if by == session => {
                let use_ = if valid == 0 { Use::Free } else { Use::Full(valid.min(BYTES), order) };
                *slot = Some(Buffer { place, use_ });
            }
            Some(Use::Lent(_)) => {
                *slot = None;
                place.free();
            }
            // Returned twice.
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    fn new() -> Option<Self> {
        // SAFETY: the size is not 0.
        let place = unsafe { alloc_zeroed(LAYOUT) };
        (!place.is_null()).then_some(Self(place))
    }

    fn free(self) {
        // SAFETY: it was allocated with this layout, and its slot, the only one with it, is gone.
        unsafe { dealloc(self.0, LAYOUT) };
    }
}

/// CUPTI needs a buffer.
pub(super) extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    let place = catch_unwind(|| POOL.lend()).ok().flatten();
    // SAFETY: CUPTI passes three places for results, which live as long as the call.
    unsafe {
        *buffer = place.map_or(std::ptr::null_mut(), |place| place.0);
        *size = if place.is_some() { BYTES } else { 0 };
        *records = 0;
    }
}

/// CUPTI returns a buffer.
pub(super) extern "C" fn completed(_context: *mut c_void, _stream: u32, buffer: *mut u8, _size: usize, valid: usize) {
    let place = Place(buffer);
    // A panic must not unwind into CUPTI.
    let _ = catch_unwind(move || POOL.take_back(place, valid));
}

/// The process's pool: CUPTI's callbacks have no argument for another.
pub(super) static POOL: Pool =
    Pool(Mutex::new(State { session: 0, last: 0, buffers: [None; COUNT], returned: 0, refused: 0 }));

/// CUPTI recommends 1 to 10 MiB.
pub(super) const BYTES: usize = 8 << 20;
/// At most 64 MiB in all.
pub(super) const COUNT: usize = 8;
/// Records are aligned to 8 bytes.
const LAYOUT: Layout = match Layout::from_size_align(BYTES, 8) {
    Ok(layout) => layout,
    Err(_) => panic!("8 is a power of two"),
};
