//! NVIDIA GPUs: their kernels and copies by CUPTI's activity records, and where CUPTI is missing
//! the ranges that a program marks, by pairs of CUDA events.
//!
//! [`Cupti`] records what the devices do without any change to the program. Its clock is that of
//! `cuptiGetTimestamp`, in which CUPTI gives all times. Scopes of the kinds that launch work
//! ([`Cupti::linked_to`]) give their id to the calls of CUDA within them (external correlation), so
//! that each kernel refers to the innermost such scope around its launch.
//!
//! [`CudaEvents`] needs only the driver.
//!
//! | file | holds |
//! |---|---|
//! | `api` | the loaded library |
//! | `buffers` | memory that CUPTI fills |
//! | `records` | where the fields of its records are, by version |
//! | `work` | records on their way to the recording |
//! | `events`, `driver` | the fallback |

mod api;
mod buffers;
mod driver;
mod events;
mod functions;
mod records;
#[cfg(test)]
mod tests;
mod work;

use std::cell::Cell;

use probe_sync_sys::Library;

use self::api::Api;
use self::buffers::POOL;
use self::work::Held;
use super::{Backend, DeviceClock, DevicePair, HostClock, Request, Sink};
use crate::active::core::Reach;
use crate::kind::{Kind, Kinds};
use crate::observe::{Observer, Observing};

pub use events::{CudaEvents, CudaRange};

/// Records kernels, copies and memory sets of all NVIDIA GPUs that the process uses.
///
/// CUPTI serves one recorder per process: a profiler of the framework (`torch.profiler`) that starts
/// later takes the records away from this one, and under a tool such as Nsight Systems CUPTI
/// refuses. Work that is in progress when the session ends is not recorded; synchronize the devices
/// before.
///
/// ```no_run
/// use probe_sync_record::backend::Cupti;
/// use probe_sync_record::{Kind, Recorder, scope};
///
/// let session = Recorder::builder().backend(Cupti::new()).start()?;
/// {
///     let _launch = scope!(Kind::Runtime, "forward");
///     // Kernels launched here refer to this scope.
/// }
/// let recording = session.finish()?;
/// println!("{}", recording.notes().join("\n"));
/// # Ok::<(), probe_sync_record::Error>(())
/// ```
#[derive(Debug)]
pub struct Cupti {
    linked: Kinds,
    api: Option<Api>,
    observing: Option<Observing>,
    held: Held,
    /// CUPTI's time of the previous collection.
    horizon: u64,
    dropped: u64,
    phase: Phase,
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum Phase {
    Idle,
    Running,
    /// Stopped; records are still to be collected.
    Stopped,
}

impl Default for Cupti {
    fn default() -> Self {
        Self::new()
    }
}

impl Cupti {
    /// Creates the backend; work is linked to scopes of [`Kind::Runtime`].
    pub fn new() -> Self {
        Self {
            linked: Kinds::of(&[Kind::Runtime]),
            api: None,
            observing: None,
            held: Held::default(),
            horizon: 0,
            dropped: 0,
            phase: Phase::Idle,
        }
    }

    /// Sets the kinds of scopes to which work is linked. Each such scope costs two calls of CUPTI,
    /// and each call of CUDA within one a record. Without kinds nothing is linked.
    pub fn linked_to(mut self, kinds: &[Kind]) -> Self {
        self.linked = Kinds::of(kinds);
        self
    }

    /// Checks whether there are a driver and a known version of CUPTI.
    ///
    /// # Errors
    /// States what is missing and what to do.
    pub fn check() -> Result<(), String> {
        Self::load().map(|_| ())
    }

    fn load() -> Result<Api, String> {
        // Some versions of CUPTI fail without naming a reason if there is no driver.
        Library::open(&[driver::NAME])
            .map_err(|reason| driver::absent(&reason))
            .and_then(|_| Api::load().map_err(|reason| format!("{reason}; {FALLBACK}")))
    }

    fn kinds(&self) -> &'static [u32] {
        if self.linked.is_empty() { &KINDS[LINK_KINDS..] } else { &KINDS }
    }

    /// Collects records from now on.
    fn enable(&self, api: Api) -> Result<(), String> {
        api.register(buffers::requested, buffers::completed)?;
        // Those of an earlier session do not count.
        api.dropped();
        self.kinds().iter().try_for_each(|kind| api.enable(*kind))
    }

    /// Ends collecting; CUPTI returns all buffers.
    fn disable(&self, api: Api) -> Result<(), String> {
        let disabled = self.kinds().iter().map(|kind| api.disable(*kind)).fold(Ok(()), Result::and);
        api.flush(true).and(disabled)
    }

    fn observe(&self, api: Api) -> Result<Option<Observing>, String> {
        if self.linked.is_empty() {
            return Ok(None);
        }
        let session = POOL.session();
        let observer = Observer::new().of_kinds(self.linked).on_enter(move |scope| {
            let (of, depth) = PUSHED.get();
            // Scopes that were open when an earlier session ended have left their ids.
            let left = if of == session { 0 } else { depth };
            (0..left).take_while(|_| api.pop()).for_each(drop);
            let pushed = u32::from(api.push(scope.id()));
            PUSHED.set((session, depth - left + pushed));
            pushed.into()
        });
        let observer = observer.on_leave(move |_, pushed| {
            let (of, depth) = PUSHED.get();
            if pushed == 1 && of == session && depth > 0 {
                api.pop();
                PUSHED.set((of, depth - 1));
            }
        });
        observer.add().map(Some).map_err(|error| error.to_string())
    }

    /// States what was lost, once.
    fn report(&self, sink: &Sink) {
        let refused = POOL.refused();
        let notes = [
            (self.dropped, "records were dropped because no buffer was free; collect more often (pair_period)"),
            (refused, "requests for a buffer were refused: all were full"),
            (
                self.held.unmeasured,
                "records have no times: work was in progress at the end, or the device's memory was full",
            ),
            (self.held.unreadable, "buffers were cut short by an incomplete record"),
        ];
        for (count, what) in notes.into_iter().filter(|(count, _)| *count > 0) {
            sink.note(&format!("backend cupti: {count} {what}"));
        }
    }
}

impl Backend for Cupti {
    fn name(&self) -> &str {
        "cupti"
    }

    fn is_for(&self, reach: Reach) -> Result<(), String> {
        is_for_devices(reach)
    }

    fn prepare(&mut self, _: &Request) -> Result<(), String> {
        self.api = Some(Self::load()?);
        (self.held, self.horizon, self.dropped) = (Held::default(), 0, 0);
        Ok(())
    }

    fn clock(&self) -> DeviceClock {
        DeviceClock::Own { hz: 1_000_000_000 }
    }

    fn pair(&mut self, host: HostClock) -> Option<DevicePair> {
        let api = self.api?;
        api.now().ok()?;
        // A reading that fails later is 0, a pair that goes back, which is dropped.
        Some(host.bracket(|| api.now().unwrap_or(0)))
    }

    fn start(&mut self) -> Result<(), String> {
        let api = self.api.ok_or("it was not prepared")?;
        POOL.open()?;
        let started = self.enable(api).and_then(|()| self.observe(api));
        match started {
            Ok(observing) => {
                self.observing = observing;
                self.phase = Phase::Running;
                self.horizon = api.now().unwrap_or(0);
                Ok(())
            }
            Err(reason) => {
                let _ = self.disable(api);
                POOL.close();
                Err(format!("{reason}; {FALLBACK}"))
            }
        }
    }

    fn stop(&mut self) -> Result<(), String> {
        let api = self.api.ok_or("it was not prepared")?;
        self.phase = Phase::Stopped;
        let is_removed = self.observing.take().is_none_or(Observing::remove);
        self.disable(api)?;
        if is_removed { Ok(()) } else { Err("one of its calls has not returned".into()) }
    }

    fn collect(&mut self, sink: &mut Sink) -> Result<(), String> {
        let api = self.api.ok_or("it was not prepared")?;
        // Before the flush: what ended until now is in this one, and its launch's id in the next.
        let now = api.now()?;
        if self.phase == Phase::Running {
            api.flush(false)?;
        }
        // Not more than there are, in case CUPTI fills them faster.
        for (place, valid) in std::iter::from_fn(|| POOL.take_full()).take(buffers::COUNT) {
            // SAFETY: CUPTI has returned the buffer with this many bytes, and gets it again only
            // after it is put back.
            unsafe { self.held.read(&api, place, valid) };
            POOL.put_back(place);
        }
        let dropped = api.dropped();
        self.dropped += dropped;
        sink.lose(dropped, self.horizon, now);
        let is_last = self.phase == Phase::Stopped;
        self.held.pass_on(sink, if is_last { u64::MAX } else { self.horizon });
        self.horizon = now;
        if is_last {
            self.report(sink);
            POOL.close();
            self.phase = Phase::Idle;
        }
        Ok(())
    }
}

impl Drop for Cupti {
    fn drop(&mut self) {
        if let (Some(api), Phase::Running | Phase::Stopped) = (self.api, self.phase) {
            let _ = self.disable(api);
            POOL.close();
        }
    }
}

/// Checks the reach for a backend of devices.
fn is_for_devices(reach: Reach) -> Result<(), String> {
    match reach {
        Reach::Process => Ok(()),
        Reach::Thread => Err("a device serves all threads; record the process".into()),
    }
}

/// Remedy where CUPTI is missing.
const FALLBACK: &str = "without CUPTI, the backend CudaEvents measures the ranges that the program marks";

/// Kinds of records; those of calls and ids only if work is linked to scopes.
const KINDS: [u32; LINK_KINDS + 4] = [
    records::EXTERNAL_CORRELATION,
    records::RUNTIME,
    records::DRIVER,
    records::CONCURRENT_KERNEL,
    records::MEMCPY,
    records::MEMCPY2,
    records::MEMSET,
];
const LINK_KINDS: usize = 3;

thread_local! {
    /// Session and number of ids that CUPTI holds for this thread.
    static PUSHED: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
}
