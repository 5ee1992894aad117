//! The board's layout in shared memory, and the only code that touches it.
//!
//! [`super::Board`] decides who may read and write which part, and when. The layout is [`Head`],
//! one [`Slot`] per member, the slots' data, and the pages of the broadcast ring, all initially
//! zero.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Size of a board for `members`, bytes.
pub(crate) const fn bytes(members: usize) -> usize {
    size_of::<Head>() + members * size_of::<Slot>() + (members + PAGES) * STRIDE
}

/// The words that all members read. The doorbell has cache lines of its own, because every member
/// writes it.
#[repr(C, align(128))]
pub(super) struct Head {
    /// Pieces published since the beginning; the leader sleeps on it.
    pub(super) doorbell: AtomicU32,
    /// The value of the doorbell that wakes the leader; a past value while it is awake.
    pub(super) wake_at: AtomicU32,
    /// The leader sleeps until some member has read a piece.
    pub(super) leader_wants_hearing: AtomicU32,
    /// Number of messages that the root has sent, and that were sent to it.
    pub(super) words: [AtomicU32; 2],
    pub(super) announcement: Announcement,
}

/// The state of the broadcast ring.
#[repr(C, align(128))]
pub(super) struct Announcement {
    /// Pieces announced since the beginning; the members sleep on it.
    pub(super) count: AtomicU32,
    /// Members that sleep or are about to.
    pub(super) sleepers: AtomicU32,
    /// The piece that the leader itself waits for; distinguishes a late leader from a late root.
    pub(super) leader_at: AtomicU32,
    /// Length of the complete payload that each page holds a piece of.
    pub(super) lengths: [AtomicU64; PAGES],
    /// The operation that each page belongs to.
    pub(super) tags: [AtomicU64; PAGES],
}

/// The words of one member.
#[repr(C, align(128))]
pub(super) struct Slot {
    /// Pieces published by the member.
    pub(super) published: AtomicU32,
    /// Pieces taken by the leader; the member sleeps on it.
    pub(super) taken: AtomicU32,
    /// The member sleeps or is about to.
    pub(super) writer_sleeps: AtomicU32,
    /// Announced pieces that the member has read.
    pub(super) heard: AtomicU32,
    /// Length of the complete payload that the slot holds a piece of.
    pub(super) length: AtomicU64,
    /// The operation that the piece belongs to.
    pub(super) tag: AtomicU64,
}

/// The shared memory of one board.
pub(crate) struct Memory {
    base: NonNull<u8>,
    members: usize,
}

impl Memory {
    /// Creates the board's memory at `base`.
    ///
    /// # Safety
    /// At `base` there must be [`bytes`]`(members)` bytes, aligned to [`ALIGNMENT`], zero before
    /// the first member uses them, that outlive this value and are accessed only by boards of the
    /// same members.
    pub(crate) unsafe fn new(base: NonNull<u8>, members: usize) -> Self {
        Self { base, members }
    }

    /// Creates a board of one member, in memory of its own, which stays until the process ends.
    pub(crate) fn of_one() -> Self {
        let layout = Layout::from_size_align(bytes(1), ALIGNMENT).expect("a board of one member is small");
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: zeroed memory of that size and alignment, which nothing else uses and nobody
        // frees.
        unsafe { Self::new(base, 1) }
    }

    pub(super) fn members(&self) -> usize {
        self.members
    }

    pub(super) fn head(&self) -> &Head {
        // SAFETY: `new` requires a board at `base`; all fields are atomic, and zero is a value of
        // each.
        unsafe { self.base.cast::<Head>().as_ref() }
    }

    pub(super) fn slot(&self, member: usize) -> &Slot {
        assert!(member < self.members, "members are numbered from 0");
        // SAFETY: as in `head`; the slots follow it, and there is one for each member.
        unsafe { self.base.byte_add(size_of::<Head>()).cast::<Slot>().add(member).as_ref() }
    }

    /// Copies `piece` into the slot of `member`.
    ///
    /// # Safety
    /// No other thread or process may read or write the slot's data meanwhile.
    pub(super) unsafe fn fill_slot(&self, member: usize, piece: &[u8]) {
        assert!(member < self.members && piece.len() <= PIECE, "a piece fits a slot");
        // SAFETY: in bounds by the assertion, not shared by the caller's promise.
        unsafe { self.data(member).copy_from_nonoverlapping(NonNull::from(piece).cast(), piece.len()) };
    }

    /// Copies `piece` into a page.
    ///
    /// # Safety
    /// No other thread or process may read or write the page meanwhile.
    pub(super) unsafe fn fill_page(&self, page: usize, piece: &[u8]) {
        assert!(page < PAGES && piece.len() <= PIECE, "a piece fits a page");
        // SAFETY: in bounds by the assertion, not shared by the caller's promise.
        unsafe { self.data(self.members + page).copy_from_nonoverlapping(NonNull::from(piece).cast(), piece.len()) };
    }

    /// Returns the first `length` bytes of the slot of `member`.
    ///
    /// # Safety
    /// The slot's data must not be written while the slice is in use.
    pub(super) unsafe fn slot_bytes(&self, member: usize, length: usize) -> &[u8] {
        assert!(member < self.members && length <= PIECE, "a piece fits a slot");
        // SAFETY: in bounds by the assertion, not written by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.data(member).as_ptr(), length) }
    }

    /// Returns the first `length` bytes of a page.
    ///
    /// # Safety
    /// The page must not be written while the slice is in use.
    pub(super) unsafe fn page_bytes(&self, page: usize, length: usize) -> &[u8] {
        assert!(page < PAGES && length <= PIECE, "a piece fits a page");
        // SAFETY: in bounds by the assertion, not written by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.data(self.members + page).as_ptr(), length) }
    }

    /// Start of the data of a slot (or, after the members, of a page).
    fn data(&self, place: usize) -> NonNull<u8> {
        let start = size_of::<Head>() + self.members * size_of::<Slot>() + place * STRIDE;
        // SAFETY: the callers keep `place` below members + PAGES, so this lies within what `bytes`
        // counts.
        unsafe { self.base.byte_add(start) }
    }
}

/// Bytes that a slot or a page holds. Longer payloads are sent in pieces.
pub(super) const PIECE: usize = 64 << 10;

/// Pages of the broadcast ring: how many broadcasts the slowest member may lag behind before the
/// leader waits for it.
pub(super) const PAGES: usize = 4;

/// Required alignment of the memory.
pub(crate) const ALIGNMENT: usize = align_of::<Head>();

/// Distance between the data of slots. Not a power of two: slots exactly 64 KiB apart would share
/// the same cache sets.
const STRIDE: usize = PIECE + 5 * 64;
