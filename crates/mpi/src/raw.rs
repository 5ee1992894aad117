//! A thin layer over `mpi::ffi`, which checks every return code and every length and owns every
//! handle.
//!
//! Buffers are plain bytes. Requests own their buffers: MPI may write into them until the request
//! is complete, so a request that is dropped earlier leaks them on purpose. It does not wait until
//! a deadline (`Requests::poll` returns at once) or initialise MPI.

use std::ffi::c_int;
use std::mem::ManuallyDrop;

use mpi::ffi;
use probe_sync_collective::Error;

/// Returns an error for an MPI return code, with MPI's own message.
///
/// # Errors
/// [`Error::Backend`] for every code but `MPI_SUCCESS`.
pub fn check(code: c_int, operation: &'static str) -> Result<(), Error> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0u8; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut length: c_int = 0;
    // SAFETY: the buffer has the length that MPI requires for an error text.
    let described = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    let known = described == ffi::MPI_SUCCESS as c_int;
    let text = &text[..if known { (length.max(0) as usize).min(text.len()) } else { 0 }];
    Err(Error::Backend { operation, reason: format!("MPI error {code}: {}", String::from_utf8_lossy(text)) })
}

/// A communicator that returns errors instead of ending the job, freed explicitly.
///
/// Freeing is collective, so nothing is freed on drop: after an error the peers may not be there to
/// take part.
#[derive(Debug)]
pub struct Communicator {
    handle: ffi::MPI_Comm,
    rank: usize,
    size: usize,
}

impl Communicator {
    /// Duplicates a communicator of the host program, so that our messages cannot mix with its own.
    ///
    /// # Safety
    /// MPI must be initialised, this thread must be allowed to call it, and `handle` must be a
    /// valid communicator whose ranks all take part in the call.
    ///
    /// # Errors
    /// MPI's error.
    pub unsafe fn duplicate(handle: ffi::MPI_Comm) -> Result<Self, Error> {
        let mut copy = handle;
        // SAFETY: as this function requires.
        check(unsafe { ffi::MPI_Comm_dup(handle, &mut copy) }, "MPI_Comm_dup")?;
        // SAFETY: the call above made the communicator.
        unsafe { Self::own(copy) }
    }

    /// Takes ownership of a communicator.
    ///
    /// # Safety
    /// `handle` must be a valid communicator that is not used or freed elsewhere.
    pub(crate) unsafe fn own(handle: ffi::MPI_Comm) -> Result<Self, Error> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the handle is valid and the pointers are of local variables.
        unsafe {
            check(ffi::MPI_Comm_set_errhandler(handle, ffi::RSMPI_ERRORS_RETURN), "MPI_Comm_set_errhandler")?;
            check(ffi::MPI_Comm_rank(handle, &mut rank), "MPI_Comm_rank")?;
            check(ffi::MPI_Comm_size(handle, &mut size), "MPI_Comm_size")?;
        }
        Ok(Self { handle, rank: rank as usize, size: size as usize })
    }

    /// Returns a second reference to the communicator. It is freed once, and used until then.
    pub(crate) fn same(&self) -> Self {
        Self { handle: self.handle, rank: self.rank, size: self.size }
    }

    /// The handle, for calls that this layer does not offer.
    pub fn handle(&self) -> ffi::MPI_Comm {
        self.handle
    }

    /// The rank of this process.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Collective: creates one communicator per `color`, ordered by rank; `None` for ranks without
    /// a colour.
    ///
    /// # Errors
    /// MPI's error.
    pub(crate) fn split(&self, color: Option<usize>) -> Result<Option<Self>, Error> {
        let color = match color {
            Some(color) => length_as_int(color, "MPI_Comm_split")?,
            None => ffi::MPI_UNDEFINED,
        };
        let mut part = self.handle;
        // SAFETY: the handle is valid as long as `self`; every rank calls with a colour or none.
        check(unsafe { ffi::MPI_Comm_split(self.handle, color, self.rank as c_int, &mut part) }, "MPI_Comm_split")?;
        // SAFETY: comparing handles reads no memory behind them.
        if part == unsafe { ffi::RSMPI_COMM_NULL } {
            return Ok(None);
        }
        // SAFETY: the call above made the communicator.
        unsafe { Self::own(part) }.map(Some)
    }

    /// Collective: frees the communicator.
    ///
    /// # Errors
    /// MPI's error.
    pub(crate) fn free(mut self) -> Result<(), Error> {
        // SAFETY: the handle is ours; `self` is gone afterwards.
        check(unsafe { ffi::MPI_Comm_free(&mut self.handle) }, "MPI_Comm_free")
    }

    /// Collective and blocking: returns when all ranks have called it.
    ///
    /// # Errors
    /// MPI's error.
    pub fn barrier(&self) -> Result<(), Error> {
        // SAFETY: the handle is valid as long as `self`.
        check(unsafe { ffi::MPI_Barrier(self.handle) }, "MPI_Barrier")
    }

    /// Collective and blocking: copies the root's bytes into every rank's buffer. All buffers must
    /// have the same length.
    ///
    /// # Errors
    /// MPI's error, or an error for a length or root that MPI cannot express.
    pub(crate) fn broadcast(&self, buffer: &mut [u8], root: usize) -> Result<(), Error> {
        let (count, root) = (length_as_int(buffer.len(), "MPI_Bcast")?, self.known_rank(root, "MPI_Bcast")?);
        let pointer = buffer.as_mut_ptr().cast();
        // SAFETY: the buffer has `count` bytes and is ours for the whole call.
        check(unsafe { ffi::MPI_Bcast(pointer, count, ffi::RSMPI_UINT8_T, root, self.handle) }, "MPI_Bcast")
    }

    /// Collective and blocking: sends one number from every rank to every rank.
    ///
    /// # Errors
    /// MPI's error.
    pub(crate) fn allgather(&self, value: u64) -> Result<Vec<u64>, Error> {
        let mut values = vec![0u64; self.size];
        let (send, receive) = ((&raw const value).cast(), values.as_mut_ptr().cast());
        // SAFETY: one number is sent, and the vector has room for one of each rank.
        let code = unsafe {
            let kind = ffi::RSMPI_UINT64_T;
            ffi::MPI_Allgather(send, 1, kind, receive, 1, kind, self.handle)
        };
        check(code, "MPI_Allgather")?;
        Ok(values)
    }

    /// Collective and blocking: sends every rank's bytes to every rank. `parts` is equal on all
    /// ranks; `received` must have exactly [`Parts::total`] bytes.
    ///
    /// # Errors
    /// MPI's error, or an error for buffers whose lengths do not match `parts`.
    pub fn allgatherv(&self, send: &[u8], parts: &Parts, received: &mut [u8]) -> Result<(), Error> {
        const NAME: &str = "MPI_Allgatherv";
        let count = self.check_parts(send, parts, received.len(), NAME)?;
        // SAFETY: `check_parts` saw that every part lies within `received` and that `send` has
        // `count` bytes.
        let code = unsafe {
            ffi::MPI_Allgatherv(
                send.as_ptr().cast(),
                count,
                ffi::RSMPI_UINT8_T,
                received.as_mut_ptr().cast(),
                parts.counts.as_ptr(),
                parts.starts.as_ptr(),
                ffi::RSMPI_UINT8_T,
                self.handle,
            )
        };
        check(code, NAME)
    }

    /// Starts [`Communicator::allgatherv`]; the buffer of the request is the received bytes.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn start_allgatherv(
        &self,
        send: Vec<u8>,
        parts: &Parts,
        requests: &mut Requests,
    ) -> Result<usize, Error> {
        const NAME: &str = "MPI_Iallgatherv";
        let count = self.check_parts(&send, parts, parts.total(), NAME)?;
        let mut memory = Memory { bytes: vec![0; parts.total()], sent: send, parts: Some(Box::new(parts.clone())) };
        requests.start(NAME, |request| {
            let parts = memory.parts.as_deref().unwrap_or(parts);
            // SAFETY: `check_parts` saw that the lengths fit; the memory moves into the request
            // set, but what these pointers name is on the heap and stays where it is until the
            // request is complete.
            let code = unsafe {
                ffi::MPI_Iallgatherv(
                    memory.sent.as_ptr().cast(),
                    count,
                    ffi::RSMPI_UINT8_T,
                    memory.bytes.as_mut_ptr().cast(),
                    parts.counts.as_ptr(),
                    parts.starts.as_ptr(),
                    ffi::RSMPI_UINT8_T,
                    self.handle,
                    request,
                )
            };
            (code, memory)
        })
    }

    /// Starts a broadcast; the buffer of the request is the source or the destination.
    ///
    /// # Errors
    /// As [`Communicator::broadcast`].
    pub(crate) fn start_broadcast(
        &self,
        mut buffer: Vec<u8>,
        root: usize,
        requests: &mut Requests,
    ) -> Result<usize, Error> {
        const NAME: &str = "MPI_Ibcast";
        let (count, root) = (length_as_int(buffer.len(), NAME)?, self.known_rank(root, NAME)?);
        requests.start(NAME, |request| {
            let pointer = buffer.as_mut_ptr().cast();
            // SAFETY: the buffer has `count` bytes on the heap and lives in the request set until
            // it is complete.
            let code = unsafe { ffi::MPI_Ibcast(pointer, count, ffi::RSMPI_UINT8_T, root, self.handle, request) };
            (code, Memory::of(buffer))
        })
    }

    /// Starts sending `buffer` to `to`.
    ///
    /// # Errors
    /// MPI's error, or an error for a length or rank that MPI cannot express.
    pub(crate) fn start_send(
        &self,
        buffer: Vec<u8>,
        to: usize,
        tag: c_int,
        requests: &mut Requests,
    ) -> Result<usize, Error> {
        const NAME: &str = "MPI_Isend";
        let (count, to) = (length_as_int(buffer.len(), NAME)?, self.known_rank(to, NAME)?);
        requests.start(NAME, |request| {
            let pointer = buffer.as_ptr().cast();
            // SAFETY: as in `start_broadcast`.
            let code = unsafe { ffi::MPI_Isend(pointer, count, ffi::RSMPI_UINT8_T, to, tag, self.handle, request) };
            (code, Memory::of(buffer))
        })
    }

    /// Starts receiving at most `buffer.len()` bytes from `from`.
    ///
    /// # Errors
    /// MPI's error, or an error for a length or rank that MPI cannot express.
    pub(crate) fn start_receive(
        &self,
        mut buffer: Vec<u8>,
        from: usize,
        tag: c_int,
        requests: &mut Requests,
    ) -> Result<usize, Error> {
        const NAME: &str = "MPI_Irecv";
        let (count, from) = (length_as_int(buffer.len(), NAME)?, self.known_rank(from, NAME)?);
        requests.start(NAME, |request| {
            let pointer = buffer.as_mut_ptr().cast();
            // SAFETY: as in `start_broadcast`.
            let code = unsafe { ffi::MPI_Irecv(pointer, count, ffi::RSMPI_UINT8_T, from, tag, self.handle, request) };
            (code, Memory::of(buffer))
        })
    }

    /// Returns a message waiting to be received, from any rank.
    ///
    /// # Errors
    /// MPI's error.
    pub(crate) fn probe(&self) -> Result<Option<Waiting>, Error> {
        let (mut flag, mut bytes) = (0, 0);
        // SAFETY: the handle is valid as long as `self`, the rest are local variables; the status
        // is read where MPI has written it.
        let status = unsafe {
            let mut status: ffi::MPI_Status = std::mem::zeroed();
            let (any, tag) = (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_ANY_TAG);
            check(ffi::MPI_Iprobe(any, tag, self.handle, &mut flag, &mut status), "MPI_Iprobe")?;
            if flag == 0 {
                return Ok(None);
            }
            check(ffi::MPI_Get_count(&status, ffi::RSMPI_UINT8_T, &mut bytes), "MPI_Get_count")?;
            status
        };
        let from = usize::try_from(status.MPI_SOURCE).unwrap_or(usize::MAX);
        Ok(Some(Waiting { from, tag: status.MPI_TAG, bytes: usize::try_from(bytes).unwrap_or(0) }))
    }

    /// Lets MPI make progress.
    pub(crate) fn progress(&self) {
        let mut flag = 0;
        // SAFETY: the handle is valid, the flag is a local variable, and no status is asked for.
        // The result does not matter: an error will come back from the operation that it belongs
        // to.
        unsafe {
            ffi::MPI_Iprobe(
                ffi::RSMPI_ANY_SOURCE,
                ffi::RSMPI_ANY_TAG,
                self.handle,
                &mut flag,
                ffi::RSMPI_STATUS_IGNORE,
            );
        }
    }

    fn known_rank(&self, rank: usize, operation: &'static str) -> Result<c_int, Error> {
        if rank < self.size {
            return length_as_int(rank, operation);
        }
        Err(Error::Backend { operation, reason: format!("rank {rank} in a group of {}", self.size) })
    }

    fn check_parts(
        &self,
        send: &[u8],
        parts: &Parts,
        received: usize,
        operation: &'static str,
    ) -> Result<c_int, Error> {
        let own = parts.counts.get(self.rank).copied();
        let fits = parts.counts.len() == self.size && received == parts.total();
        match own {
            Some(own) if fits && own as usize == send.len() => Ok(own),
            _ => {
                let reason = format!(
                    "{} parts with {} bytes in all, own part {own:?}, for {} ranks, {received} bytes, own part {}",
                    parts.counts.len(),
                    parts.total(),
                    self.size,
                    send.len()
                );
                Err(Error::Backend { operation, reason })
            }
        }
    }
}

/// A message that has not been received yet.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Waiting {
    pub from: usize,
    pub tag: c_int,
    pub bytes: usize,
}

/// How many bytes each rank contributes, and where they go.
#[derive(Clone, Debug)]
pub struct Parts {
    counts: Vec<c_int>,
    starts: Vec<c_int>,
    total: usize,
}

impl Parts {
    /// Creates parts of these lengths, one after the other.
    ///
    /// # Errors
    /// [`Error::Backend`] if the sum exceeds what MPI's `int` can express (2 GiB).
    pub fn new(lengths: impl IntoIterator<Item = usize>) -> Result<Self, Error> {
        let mut parts = Self { counts: Vec::new(), starts: Vec::new(), total: 0 };
        for length in lengths {
            parts.counts.push(length_as_int(length, "gather")?);
            parts.starts.push(length_as_int(parts.total, "gather")?);
            parts.total = parts.total.saturating_add(length);
        }
        length_as_int(parts.total, "gather")?;
        Ok(parts)
    }

    /// Total bytes of all parts.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Returns the range of the bytes of `rank`.
    ///
    /// # Panics
    /// Panics if there is no such rank.
    pub(crate) fn range(&self, rank: usize) -> std::ops::Range<usize> {
        let start = self.starts[rank] as usize;
        start..start + self.counts[rank] as usize
    }
}

/// Requests in progress, each with the memory that MPI reads and writes.
#[derive(Debug)]
pub(crate) struct Requests {
    raw: Vec<ffi::MPI_Request>,
    memory: Vec<ManuallyDrop<Memory>>,
    done: Vec<bool>,
    indices: Vec<c_int>,
    statuses: Vec<ffi::MPI_Status>,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self { raw: Vec::new(), memory: Vec::new(), done: Vec::new(), indices: Vec::new(), statuses: Vec::new() }
    }

    /// Number of requests, including complete ones.
    pub(crate) fn len(&self) -> usize {
        self.raw.len()
    }

    /// The requests that are not complete.
    pub(crate) fn pending(&self) -> impl Iterator<Item = usize> {
        (0..self.done.len()).filter(|&index| !self.done[index])
    }

    /// The bytes of a complete request; empty while it is in progress.
    pub(crate) fn take(&mut self, index: usize) -> Vec<u8> {
        if self.done[index] { std::mem::take(&mut self.memory[index].bytes) } else { Vec::new() }
    }

    /// Lets MPI make progress, and returns newly completed requests: each index, and the number of
    /// bytes received.
    pub(crate) fn poll(&mut self) -> Result<Vec<(usize, usize)>, Error> {
        let mut count: c_int = 0;
        // SAFETY: all four arrays have as many elements as there are requests.
        let code = unsafe {
            self.indices.resize(self.raw.len(), 0);
            self.statuses.resize(self.raw.len(), std::mem::zeroed());
            ffi::MPI_Testsome(
                self.raw.len() as c_int,
                self.raw.as_mut_ptr(),
                &mut count,
                self.indices.as_mut_ptr(),
                self.statuses.as_mut_ptr(),
            )
        };
        check(code, "MPI_Testsome")?;
        let mut complete = Vec::new();
        for position in 0..usize::try_from(count).unwrap_or(0).min(self.raw.len()) {
            let index = self.indices[position] as usize;
            let mut bytes: c_int = 0;
            // SAFETY: the status was written by the call above.
            let code = unsafe { ffi::MPI_Get_count(&self.statuses[position], ffi::RSMPI_UINT8_T, &mut bytes) };
            check(code, "MPI_Get_count")?;
            self.done[index] = true;
            complete.push((index, usize::try_from(bytes).unwrap_or(0)));
        }
        Ok(complete)
    }

    fn start(
        &mut self,
        operation: &'static str,
        call: impl FnOnce(*mut ffi::MPI_Request) -> (c_int, Memory),
    ) -> Result<usize, Error> {
        // SAFETY: reading a constant handle.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        let (code, memory) = call(&mut request);
        check(code, operation)?;
        self.raw.push(request);
        self.memory.push(ManuallyDrop::new(memory));
        self.done.push(false);
        Ok(self.raw.len() - 1)
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        for (memory, done) in self.memory.iter_mut().zip(&self.done) {
            if *done {
                // SAFETY: dropped once, here; MPI is done with it.
                unsafe { ManuallyDrop::drop(memory) };
            }
        }
    }
}

/// Memory that MPI reads and writes until a request is complete.
#[derive(Debug)]
struct Memory {
    bytes: Vec<u8>,
    sent: Vec<u8>,
    parts: Option<Box<Parts>>,
}

impl Memory {
    fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, sent: Vec::new(), parts: None }
    }
}

/// MPI counts with `int`.
pub(crate) fn length_as_int(length: usize, operation: &'static str) -> Result<c_int, Error> {
    c_int::try_from(length)
        .map_err(|_| Error::Backend { operation, reason: format!("{length} exceeds what MPI can count (2 GiB)") })
}
