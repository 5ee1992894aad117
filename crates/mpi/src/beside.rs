//! [`MpiMessages`]: messages over the MPI that a launcher has initialised and will finalise.
//!
//! It serves a session inside a launcher, under `collective::ByMessages`. All sends, receives and
//! tests are non-blocking, on a duplicate of the launcher's communicator that returns errors: its
//! messages never mix with the launcher's, nothing here ends the job, and there is no panic hook.
//! [`crate::MpiCollective`] is only for our own programs: it waits within its calls, for ranks
//! whose launchers may be busy for minutes, and no other thread can drive it.
//!
//! MPI may be finalised while a session still runs. `MPI_Finalize` first deletes what is attached
//! to `MPI_COMM_SELF`: that is how this learns of it, after which it calls MPI no more. A thread
//! that is within a call then is waited for, for microseconds.
//!
//! It does not initialise or finalise MPI, and it waits for other ranks only in
//! [`MpiMessages::beside`].

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpi::environment::{self, Threading};
use mpi::ffi;
use probe_sync_collective::{Error, Messages, Rank, Threads};

use crate::mail::Mail;
use crate::raw::{Communicator, check};

/// Point-to-point messages of one rank over a launcher's MPI.
#[derive(Debug)]
pub struct MpiMessages {
    comm: Option<Communicator>,
    rank: Rank,
    size: usize,
    threads: Threads,
    life: Arc<Life>,
    mail: Mail,
}

// SAFETY: a communicator's handle is plain data, and MPI's requests belong to no thread. Which
// threads call MPI is `threads`' matter: it is MPI's own level, and `collective::Carrier` moves
// nothing on a thread for which it is not enough.
unsafe impl Send for MpiMessages {}

impl MpiMessages {
    /// As [`MpiMessages::beside`], for launchers that use rsmpi, in the version that this crate
    /// uses.
    ///
    /// # Errors
    /// As there.
    pub fn of(communicator: &impl mpi::traits::Communicator) -> Result<Self, Error> {
        // SAFETY: rsmpi's communicators are valid as long as they are there; MPI runs, which is
        // asked first.
        unsafe { Self::beside(communicator.as_raw()) }
    }

    /// Creates a way to send between the ranks of `comm`, which must all make this call; it waits
    /// for them, because `comm` is duplicated.
    ///
    /// # Safety
    /// `comm` must be `MPI_COMM_NULL` or a communicator of the MPI that this process runs with.
    ///
    /// # Errors
    /// [`Error::Setup`] if MPI is not running, this thread may not call it, or `comm` is not a
    /// group of ranks; [`Error::Backend`] with MPI's error.
    pub unsafe fn beside(comm: ffi::MPI_Comm) -> Result<Self, Error> {
        let threads = running()?;
        // SAFETY: comparing handles reads no memory behind them.
        if comm == unsafe { ffi::RSMPI_COMM_NULL } {
            return Err(setup("this is MPI_COMM_NULL; give a communicator that contains this rank"));
        }
        let mut inter = 0;
        // SAFETY: a valid communicator, and a local variable.
        check(unsafe { ffi::MPI_Comm_test_inter(comm, &mut inter) }, "MPI_Comm_test_inter")?;
        if inter != 0 {
            return Err(setup(
                "this is an intercommunicator; give an intracommunicator, for example from MPI_Intercomm_merge",
            ));
        }
        // SAFETY: as this function requires; MPI runs, and this thread may call it.
        let comm = unsafe { Communicator::duplicate(comm) }?;
        let (rank, size) = (comm.rank(), comm.size());
        let life = Life::until_finalise()?;
        Ok(Self { comm: Some(comm), rank, size, threads, life, mail: Mail::new() })
    }
}

impl Messages for MpiMessages {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn backend(&self) -> &'static str {
        "mpi"
    }

    fn threads(&self) -> Threads {
        self.threads
    }

    fn send(&mut self, to: Rank, message: Vec<u8>) -> Result<(), Error> {
        let life = Arc::clone(&self.life);
        let _running = life.running("MPI_Isend")?;
        let Some(comm) = &self.comm else { return Ok(()) };
        self.mail.send(comm, to, message)
    }

    fn receive(&mut self) -> Result<Option<(Rank, Vec<u8>)>, Error> {
        let life = Arc::clone(&self.life);
        let _running = life.running("MPI_Iprobe")?;
        let Some(comm) = &self.comm else { return Ok(None) };
        self.mail.next(comm)
    }

    fn sending(&self) -> bool {
        self.mail.sending()
    }

    fn release(&mut self) -> Result<(), Error> {
        let life = Arc::clone(&self.life);
        if let Ok(running) = life.running("MPI_Comm_free") {
            drop(running);
            life.forget_finalise()?;
            return self.comm.take().map_or(Ok(()), Communicator::free);
        }
        Ok(())
    }
}

/// Whether MPI is still running, as far as one session is concerned.
#[derive(Debug)]
struct Life {
    finalised: Mutex<bool>,
    /// The attribute key that `MPI_Finalize` deletes first.
    key: Mutex<c_int>,
}

impl Life {
    /// Watches for `MPI_Finalize` from now on.
    fn until_finalise() -> Result<Arc<Self>, Error> {
        let life = Arc::new(Self { finalised: Mutex::new(false), key: Mutex::new(0) });
        let mut key = 0;
        let attached = Arc::into_raw(Arc::clone(&life));
        // SAFETY: MPI runs. The attribute is a counted reference, which the callback for its
        // deletion takes back, once.
        unsafe {
            let made = ffi::MPI_Comm_create_keyval(Some(not_copied), Some(deleted), &mut key, std::ptr::null_mut());
            check(made, "MPI_Comm_create_keyval")?;
            let set = ffi::MPI_Comm_set_attr(ffi::RSMPI_COMM_SELF, key, attached.cast_mut().cast());
            check(set, "MPI_Comm_set_attr")?;
        }
        *life.key.lock().unwrap_or_else(PoisonError::into_inner) = key;
        Ok(life)
    }

    /// MPI may be called while the guard is held.
    fn running(&self, operation: &'static str) -> Result<MutexGuard<'_, bool>, Error> {
        let finalised = self.finalised.lock().unwrap_or_else(PoisonError::into_inner);
        if *finalised {
            let reason = "MPI_Finalize was called while the session was running; stop the session first";
            return Err(Error::Backend { operation, reason: reason.into() });
        }
        Ok(finalised)
    }

    fn forget_finalise(&self) -> Result<(), Error> {
        let mut key = *self.key.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: MPI runs; the attribute was set by `until_finalise` and is deleted once.
        unsafe {
            check(ffi::MPI_Comm_delete_attr(ffi::RSMPI_COMM_SELF, key), "MPI_Comm_delete_attr")?;
            check(ffi::MPI_Comm_free_keyval(&mut key), "MPI_Comm_free_keyval")
        }
    }
}

/// A duplicate of `MPI_COMM_SELF` does not get the attribute.
unsafe extern "C" fn not_copied(
    _: ffi::MPI_Comm,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: MPI gives a place for the answer.
    unsafe { flag.write(0) };
    ffi::MPI_SUCCESS as c_int
}

/// MPI is being finalised, or the session has ended before that.
unsafe extern "C" fn deleted(_: ffi::MPI_Comm, _: c_int, attribute: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: `until_finalise` attached it, and MPI deletes an attribute once.
    let life = unsafe { Arc::from_raw(attribute.cast::<Life>().cast_const()) };
    *life.finalised.lock().unwrap_or_else(PoisonError::into_inner) = true;
    ffi::MPI_SUCCESS as c_int
}

/// Returns which threads may call the MPI that the launcher has initialised; an error if this one
/// may not.
fn running() -> Result<Threads, Error> {
    if environment::is_finalized() {
        return Err(setup("MPI is already finalised; start the session before MPI_Finalize"));
    }
    if !environment::is_initialized() {
        return Err(setup("MPI is not initialised; start the session after MPI_Init or MPI_Init_thread"));
    }
    let threads = match environment::threading_support() {
        Threading::Single | Threading::Funneled => Threads::Own,
        Threading::Serialized => Threads::OneAtATime,
        Threading::Multiple => Threads::Any,
    };
    let mut main_thread = 0;
    // SAFETY: MPI runs, and the flag is a local variable.
    check(unsafe { ffi::MPI_Is_thread_main(&mut main_thread) }, "MPI_Is_thread_main")?;
    if threads == Threads::Own && main_thread == 0 {
        return Err(setup("only the thread that initialised MPI may call it; start the session there"));
    }
    Ok(threads)
}

fn setup(reason: &str) -> Error {
    Error::Setup { what: "MPI".into(), reason: reason.into() }
}
