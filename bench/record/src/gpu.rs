//! A simulated device with a queue and a clock of its own: what a session's part of recording a
//! device costs, without a driver.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use probe_sync_record::backend::{Backend, DeviceClock, DeviceEvent, DevicePair, HostClock, Request, Sink};
use probe_sync_record::event::FlowPlace;
use probe_sync_record::{Kind, Value};

/// A device; clones are the same one.
#[derive(Clone, Default)]
pub struct Gpu(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    host: Option<HostClock>,
    running: bool,
    /// End of the last kernel, ticks of the recorder.
    busy_until: u64,
    done: VecDeque<Kernel>,
}

struct Kernel {
    name: String,
    start: u64,
    end: u64,
    correlation: u64,
}

impl Gpu {
    /// Launches a kernel of `ticks` ticks, unless no session records the device.
    pub fn launch(&self, name: &str, ticks: u64, correlation: u64) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(host) = state.host.filter(|_| state.running) else { return };
        let start = state.busy_until.max(host.now());
        state.busy_until = start + ticks;
        state.done.push_back(Kernel { name: name.into(), start, end: start + ticks, correlation });
    }
}

impl Backend for Gpu {
    fn name(&self) -> &str {
        "simulated GPU"
    }

    fn prepare(&mut self, _: &Request) -> Result<(), String> {
        Ok(())
    }

    fn clock(&self) -> DeviceClock {
        DeviceClock::Own { hz: 1_000_000_000 }
    }

    fn pair(&mut self, host: HostClock) -> Option<DevicePair> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).host = Some(host);
        Some(host.bracket(|| count(host.now())))
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
        let done = std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).done);
        let track = sink.track("GPU 0", "queue 0");
        for kernel in done {
            let event = DeviceEvent {
                name: &kernel.name,
                kind: Kind::Custom,
                start: count(kernel.start),
                end: count(kernel.end),
                correlation: kernel.correlation,
                flow: Some((FlowPlace::In, kernel.correlation)),
                arguments: &[("queue", Value::Unsigned(0))],
            };
            sink.event(track, &event);
        }
        Ok(())
    }
}

/// The device's clock at a time of the recorder's: 80 ppm fast.
fn count(ticks: u64) -> u64 {
    (ticks as f64 * 0.4 * 1.000_08) as u64
}
