//! Device time of ranges that a program marks, by pairs of CUDA events: for machines without CUPTI.
//!
//! The driver only tells the time between two events. Base events, on a stream of their own, tie
//! this to the recorder's clock: the recorder reads its clock before it records one and after the
//! device has reached it, so that the pair is wrong by at most half of that bracket (some 10 µs on
//! an idle device). Ranges are measured from the base before them; the driver resolves 0.5 µs, and
//! its result, a float of ms, has 24 bits (1 µs after 16 s).

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::driver::{Context, Driver, Event, Handle, Stream};
use crate::active::core::Reach;
use crate::backend::{Backend, DeviceClock, DeviceEvent, DevicePair, HostClock, Request, Sink};
use crate::event::FlowPlace;
use crate::kind::Kind;

/// Records the ranges that a program marks on the streams of one CUDA context; clones are the same
/// backend. The context must exist until the session has ended.
///
/// ```no_run
/// use probe_sync_record::backend::CudaEvents;
/// use probe_sync_record::{Kind, Recorder, scope};
///
/// let events = CudaEvents::new();
/// let session = Recorder::builder().backend(events.clone()).start()?;
/// # let stream = std::ptr::null_mut();
/// {
///     let launch = scope!(Kind::Runtime, "forward");
///     // SAFETY: the default stream of this thread's context.
///     let _range = unsafe { events.begin(stream, "forward", launch.id()) };
///     // Work launched on this stream here is within the range.
/// }
/// session.finish()?;
/// # Ok::<(), probe_sync_record::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CudaEvents(Arc<Mutex<State>>);

/// An open range; dropping it ends it.
#[must_use = "a range ends when it is dropped; bind it to a name, as _range"]
#[derive(Debug)]
pub struct CudaRange {
    open: Option<(CudaEvents, u64)>,
    /// The end is recorded by the thread whose context is current.
    of_thread: PhantomData<*const ()>,
}

#[derive(Debug, Default)]
struct State {
    host: Option<HostClock>,
    is_running: bool,
    /// Stopped; ranges are still to be collected.
    is_stopped: bool,
    timeline: Option<Timeline>,
    ranges: VecDeque<Range>,
    /// Number of the next range.
    next: u64,
    /// Why no further range is recorded.
    failure: Option<String>,
    lost: [u64; LOSSES.len()],
}

/// The device's time, which begins at [`ORIGIN`].
#[derive(Debug)]
struct Timeline {
    driver: &'static Driver,
    context: Context,
    device: i32,
    stream: Stream,
    base: Arc<Base>,
    /// Pairs of bases that the sink does not have.
    pairs: Vec<DevicePair>,
    /// Handles of streams, in order of appearance.
    streams: Vec<usize>,
}

#[derive(Debug)]
struct Base {
    event: Event,
    device: u64,
}

#[derive(Debug)]
struct Range {
    number: u64,
    name: String,
    stream: usize,
    correlation: u64,
    base: Arc<Base>,
    begin: Event,
    end: Option<Event>,
}

impl CudaEvents {
    /// Creates the backend.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a range on a stream of this thread's context (null: the default stream).
    /// `correlation` is the id of the scope that it belongs to ([`Scope::id`](crate::Scope::id)), 0
    /// for none. Outside of a session nothing is recorded.
    ///
    /// # Safety
    /// `stream` is a `CUstream` or `cudaStream_t` of this thread's context that exists until the
    /// range ends.
    pub unsafe fn begin(&self, stream: Handle, name: &str, correlation: u64) -> CudaRange {
        let mut state = self.lock();
        // SAFETY: the caller's promise.
        let number = if state.is_running { unsafe { state.begin(stream, name, correlation) } } else { None };
        drop(state);
        CudaRange { open: number.map(|number| (self.clone(), number)), of_thread: PhantomData }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CudaRange {
    fn drop(&mut self) {
        if let Some((events, number)) = self.open.take() {
            events.lock().end(number);
        }
    }
}

impl State {
    /// Returns the number of the range; `None` if it is not recorded.
    ///
    /// # Safety
    /// The same condition as for [`CudaEvents::begin`].
    unsafe fn begin(&mut self, stream: Handle, name: &str, correlation: u64) -> Option<u64> {
        if self.ranges.len() >= RANGES_MAX {
            return self.lose(Loss::Room);
        }
        let (driver, host) = (Driver::load().ok()?, self.host?);
        let Some(context) = driver.current() else { return self.lose(Loss::Context) };
        // SAFETY: the caller's promise.
        if unsafe { driver.is_capturing(stream) } {
            return self.lose(Loss::Capture);
        }
        if self.timeline.is_none() {
            match Timeline::new(driver, context, host) {
                Ok(timeline) => self.timeline = Some(timeline),
                Err(reason) => {
                    // Each attempt may take long.
                    (self.is_running, self.failure) = (false, Some(reason));
                    return None;
                }
            }
        }
        let timeline = self.timeline.as_mut()?;
        if timeline.context != context {
            return self.lose(Loss::Context);
        }
        // SAFETY: the caller's promise.
        let Ok(begin) = (unsafe { Event::on(driver, stream) }) else { return self.lose(Loss::Driver) };
        let (stream, base) = (timeline.number_of(stream), Arc::clone(&timeline.base));
        let name = name.chars().take(NAME_MAX).collect();
        let number = self.next;
        self.next += 1;
        self.ranges.push_back(Range { number, name, stream, correlation, base, begin, end: None });
        Some(number)
    }

    fn end(&mut self, number: u64) {
        let (Some(timeline), Ok(at)) =
            (&self.timeline, self.ranges.binary_search_by_key(&number, |range| range.number))
        else {
            return;
        };
        let stream = timeline.streams[self.ranges[at].stream];
        // SAFETY: it is the stream of `CudaEvents::begin`, which exists until here.
        let ended = unsafe { Event::on(timeline.driver, std::ptr::with_exposed_provenance_mut(stream)) };
        match ended {
            Ok(end) => self.ranges[at].end = Some(end),
            Err(_) => {
                self.ranges.remove(at);
                self.lost[Loss::Driver as usize] += 1;
            }
        }
    }

    fn lose(&mut self, loss: Loss) -> Option<u64> {
        self.lost[loss as usize] += 1;
        None
    }

    /// Passes on the ranges that the device has reached the end of, each stream's in their order.
    fn pass_on(&mut self, sink: &mut Sink) {
        let Some(timeline) = &mut self.timeline else { return };
        timeline.pairs.drain(..).for_each(|pair| sink.pair(pair));
        let mut waiting = vec![false; timeline.streams.len()];
        let device = format!("GPU {}", timeline.device);
        for range in std::mem::take(&mut self.ranges) {
            let is_reached = match &range.end {
                Some(end) if !waiting[range.stream] => end.is_reached(),
                _ => Ok(false),
            };
            match is_reached.and_then(|reached| reached.then(|| range.span()).transpose()) {
                Ok(Some([start, end])) => {
                    let queue = format!("stream {}, event pairs", range.stream);
                    let (correlation, kind) = (range.correlation, Kind::Custom);
                    let flow = (correlation != 0).then_some((FlowPlace::In, correlation));
                    let track = sink.track(&device, &queue);
                    let event = DeviceEvent { name: &range.name, kind, start, end, correlation, flow, arguments: &[] };
                    sink.event(track, &event);
                }
                Ok(None) => {
                    waiting[range.stream] = true;
                    self.ranges.push_back(range);
                }
                Err(_) => self.lost[Loss::Driver as usize] += 1,
            }
        }
    }

    /// Ends the session: what is not complete is lost, and said.
    fn finish(&mut self, sink: &Sink) {
        self.lost[Loss::Unfinished as usize] += self.ranges.len() as u64;
        for (count, reason) in self.lost.iter().zip(LOSSES).filter(|(count, _)| **count > 0) {
            sink.note(&format!("backend cuda events: {count} ranges are missing: {reason}"));
        }
        *self = Self { next: self.next, ..Self::default() };
    }
}

impl Range {
    /// Returns start and end on the device's time.
    fn span(&self) -> Result<[u64; 2], String> {
        let base = &self.base;
        let start = self.begin.ns_since(&base.event)?;
        let length = self.end.as_ref().map_or(Ok(0), |end| end.ns_since(&self.begin))?;
        Ok([base.device + start, base.device + start + length])
    }
}

impl Timeline {
    /// Creates the timeline of this thread's context, with its first base.
    fn new(driver: &'static Driver, context: Context, host: HostClock) -> Result<Self, String> {
        let (device, stream) = (driver.device()?, Stream::new(driver)?);
        let (event, pair) = measure(driver, &stream, host)?;
        let pair = DevicePair { device: ORIGIN, ..pair };
        let base = Arc::new(Base { event, device: ORIGIN });
        Ok(Self { driver, context, device, stream, base, pairs: vec![pair], streams: Vec::new() })
    }

    /// Takes a new base.
    fn renew(&mut self, host: HostClock) -> Result<(), String> {
        // SAFETY: the program keeps the context until the session has ended.
        let measured = unsafe { self.driver.within(self.context, || measure(self.driver, &self.stream, host)) };
        let (event, pair) = measured??;
        let device = self.base.device + event.ns_since(&self.base.event)?;
        self.base = Arc::new(Base { event, device });
        self.pairs.push(DevicePair { device, ..pair });
        Ok(())
    }

    fn number_of(&mut self, stream: Handle) -> usize {
        let stream = stream.expose_provenance();
        self.streams.iter().position(|known| *known == stream).unwrap_or_else(|| {
            self.streams.push(stream);
            self.streams.len() - 1
        })
    }
}

/// Has the device reach an event, between two readings of the host's clock; returns the narrowest
/// of several attempts. The stream is one of this thread's context.
fn measure(driver: &'static Driver, stream: &Stream, host: HostClock) -> Result<(Event, DevicePair), String> {
    let mut best: Option<(Event, DevicePair)> = None;
    for _ in 0..ATTEMPTS {
        let (deadline, before) = (Instant::now() + REACH_LIMIT, host.now());
        // SAFETY: it is a stream of this thread's context.
        let event = unsafe { Event::on(driver, stream.handle()) }?;
        while !event.is_reached()? {
            if Instant::now() > deadline {
                return Err(format!("the device did not reach an event within {REACH_LIMIT:?}"));
            }
        }
        let bracket_ticks = host.now().saturating_sub(before);
        if best.as_ref().is_none_or(|(_, best)| bracket_ticks < best.bracket_ticks) {
            best = Some((event, DevicePair { device: 0, ticks: before + bracket_ticks / 2, bracket_ticks }));
        }
    }
    best.ok_or_else(|| "no attempt".into())
}

impl Backend for CudaEvents {
    fn name(&self) -> &str {
        "cuda events"
    }

    fn is_for(&self, reach: Reach) -> Result<(), String> {
        super::is_for_devices(reach)
    }

    fn prepare(&mut self, _: &Request) -> Result<(), String> {
        Driver::load().map(|_| ())
    }

    fn clock(&self) -> DeviceClock {
        DeviceClock::Own { hz: 1_000_000_000 }
    }

    /// Takes a base; `collect` passes its pair on, since the first one is taken by a range.
    fn pair(&mut self, host: HostClock) -> Option<DevicePair> {
        let mut state = self.lock();
        state.host = Some(host);
        if let Some(timeline) = &mut state.timeline {
            // If the device does not respond, the other pairs serve.
            let _ = timeline.renew(host);
        }
        None
    }

    fn start(&mut self) -> Result<(), String> {
        self.lock().is_running = true;
        Ok(())
    }

    fn stop(&mut self) -> Result<(), String> {
        let mut state = self.lock();
        (state.is_running, state.is_stopped) = (false, true);
        Ok(())
    }

    fn collect(&mut self, sink: &mut Sink) -> Result<(), String> {
        let mut state = self.lock();
        let mut result = state.failure.take().map_or(Ok(()), Err);
        if let Some((driver, context)) = state.timeline.as_ref().map(|timeline| (timeline.driver, timeline.context)) {
            // SAFETY: the program keeps the context until the session has ended.
            let passed = unsafe { driver.within(context, || state.pass_on(sink)) };
            result = result.and(passed);
        }
        if state.is_stopped {
            state.finish(sink);
        }
        result
    }
}

/// Reasons why ranges are missing.
#[derive(Copy, Clone, Debug)]
enum Loss {
    Room,
    Context,
    Capture,
    Driver,
    Unfinished,
}

/// Texts of [`Loss`].
const LOSSES: [&str; 5] = [
    "too many were in progress at once",
    "their thread had no CUDA context, or not that of the first range; use one backend per context",
    "their stream was being captured into a graph",
    "the driver refused to record or measure them",
    "the device had not reached their end; synchronize it before the session ends",
];

/// Most ranges in progress.
const RANGES_MAX: usize = 1 << 14;
/// Longest name, characters.
const NAME_MAX: usize = 4096;
/// Attempts at a base.
const ATTEMPTS: usize = 4;
/// Longest wait for one.
const REACH_LIMIT: Duration = Duration::from_millis(10);
/// The device's time at the first base, ns.
const ORIGIN: u64 = 1_000_000_000;
