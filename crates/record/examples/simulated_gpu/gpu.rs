//! A simulated device, whose clock runs 80 ppm fast, wanders by 20 µs and has its own epoch. Its
//! queues execute kernels one after the other, some time after they are launched.
//!
//! It is an example of [`Backend`]. Tests use it because it can tell when a kernel truly ran.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use probe_sync_record::backend::{Backend, DeviceClock, DeviceEvent, DevicePair, HostClock, Request, Sink};
use probe_sync_record::event::FlowPlace;
use probe_sync_record::{Kind, Reach, Value};

/// A device; clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Gpu(Arc<Mutex<State>>);

/// A kernel that was launched; times are the recorder's ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Name.
    pub name: String,
    /// The queue that executes it.
    pub queue: usize,
    /// Id of the launch.
    pub correlation: u64,
    /// True start.
    pub start: u64,
    /// True end.
    pub end: u64,
}

#[derive(Debug, Default)]
struct State {
    host: Option<HostClock>,
    /// The recorder's ticks when the device was switched on.
    zero: u64,
    running: bool,
    queues: Vec<u64>,
    done: VecDeque<Kernel>,
}

impl Gpu {
    /// Launches a kernel of `ticks` ticks. It begins when the queue is free, and [`LAUNCH_TICKS`]
    /// after the launch at the earliest.
    pub fn launch(&self, queue: usize, name: &str, ticks: u64, correlation: u64) -> Option<Kernel> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let host = state.host.filter(|_| state.running)?;
        let queues = state.queues.len().max(queue + 1);
        state.queues.resize(queues, 0);
        let start = state.queues[queue].max(host.now() + LAUNCH_TICKS);
        let kernel = Kernel { name: name.into(), queue, correlation, start, end: start + ticks };
        state.queues[queue] = kernel.end;
        state.done.push_back(kernel.clone());
        Some(kernel)
    }
}

impl State {
    /// The device's clock at a time of the recorder's.
    fn count(&self, ticks: u64) -> u64 {
        let since = ticks.saturating_sub(self.zero) as f64;
        let wave = RATE * WANDER_TICKS * (since / WANDER_PERIOD_TICKS * std::f64::consts::TAU).sin();
        EPOCH + (since * RATE + wave).max(0.0) as u64
    }
}

impl Backend for Gpu {
    fn name(&self) -> &str {
        "simulated GPU"
    }

    fn is_for(&self, reach: Reach) -> Result<(), String> {
        match reach {
            Reach::Process => Ok(()),
            Reach::Thread => Err("a device serves all threads; record the process".into()),
        }
    }

    fn prepare(&mut self, _: &Request) -> Result<(), String> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.queues.clear();
        state.done.clear();
        Ok(())
    }

    fn clock(&self) -> DeviceClock {
        DeviceClock::Own { hz: 1_000_000_000 }
    }

    fn pair(&mut self, host: HostClock) -> Option<DevicePair> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.host.is_none() {
            (state.host, state.zero) = (Some(host), host.now());
        }
        Some(host.bracket(|| state.count(host.now())))
    }

    fn start(&mut self) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).running = true;
        Ok(())
    }

    fn stop(&mut self) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).running = false;
        Ok(())
    }

    fn collect(&mut self, sink: &mut Sink) -> Result<(), String> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(kernel) = state.done.pop_front() {
            let track = sink.track("GPU 0", &format!("queue {}", kernel.queue));
            let arguments = [("queue", Value::Unsigned(kernel.queue as u64))];
            sink.event(
                track,
                &DeviceEvent {
                    name: &kernel.name,
                    kind: Kind::Custom,
                    start: state.count(kernel.start),
                    end: state.count(kernel.end),
                    correlation: kernel.correlation,
                    flow: Some((FlowPlace::In, kernel.correlation)),
                    arguments: &arguments,
                },
            );
        }
        Ok(())
    }
}

/// Between a launch and the kernel's begin at the earliest.
pub const LAUNCH_TICKS: u64 = 10_000;
/// Reading of the device's clock when it is switched on.
const EPOCH: u64 = 5_000_000_000_000;
/// Counts per tick of the recorder.
const RATE: f64 = 0.4 * 1.000_08;
/// Amplitude of the clock's wander, ticks.
pub const WANDER_TICKS: f64 = 50_000.0;
/// Period of the wander.
pub const WANDER_PERIOD_TICKS: f64 = 2e9;
