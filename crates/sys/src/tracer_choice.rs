//! The choice of the tracer clock for the traces recorded during a run if the user does not name
//! one (`tracer_clock = auto`).
//!
//! It is made once per node when a run starts. The choice and its reason are stored in the run's
//! files, because a wrong guess must be visible. The first row that applies decides:
//!
//! | what is here | clock | because |
//! |---|---|---|
//! | rocprofiler-sdk loaded in this process | `rocprofiler` | the profiler in use stamps with it |
//! | CUPTI loaded in this process | `cupti` | the same |
//! | AMD devices (`/dev/kfd`) | `boottime` | rocprofiler-sdk and rocpd stamp with `CLOCK_BOOTTIME`; no library is needed to read it |
//! | NVIDIA devices (`/dev/nvidia0`) and a CUPTI to load | `cupti` | traces of their kernels are on CUPTI's clock |
//! | nothing of that | `boottime` | traces of CPUs are on Unix time and need no pairs; raw planes and rocpd are on boottime |
//!
//! It does not examine traces, because none exist yet. It does not consider clocks that the caller
//! supplies.

use std::path::Path;

use crate::tracer::is_loaded;
use crate::{Error, TracerClock, TracerClockName};

impl TracerClock {
    /// Opens the clock that traces on this host are most likely on; [`TracerClock::reason`] says
    /// why.
    ///
    /// # Errors
    /// Returns an error if not even the clock that every system has can be read.
    pub fn open_auto() -> Result<Self, Error> {
        open(&Sight::of_this_host(), Self::open)
    }
}

/// What is visible on a host.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Sight {
    rocprofiler_loaded: bool,
    cupti_loaded: bool,
    amd_devices: bool,
    nvidia_devices: bool,
}

impl Sight {
    fn of_this_host() -> Self {
        Self {
            rocprofiler_loaded: is_loaded(TracerClockName::Rocprofiler),
            cupti_loaded: is_loaded(TracerClockName::Cupti),
            amd_devices: Path::new("/dev/kfd").exists(),
            nvidia_devices: Path::new("/dev/nvidia0").exists(),
        }
    }

    /// The clock, and why.
    fn choice(self) -> (TracerClockName, &'static str) {
        match self {
            Self { rocprofiler_loaded: true, .. } => {
                (TracerClockName::Rocprofiler, "rocprofiler-sdk is loaded in this process")
            }
            Self { cupti_loaded: true, .. } => (TracerClockName::Cupti, "CUPTI is loaded in this process"),
            Self { amd_devices: true, .. } => {
                (TracerClockName::Boottime, "this host has AMD devices (/dev/kfd), whose profilers use CLOCK_BOOTTIME")
            }
            Self { nvidia_devices: true, .. } => {
                (TracerClockName::Cupti, "this host has NVIDIA devices (/dev/nvidia0), whose profilers use CUPTI")
            }
            Self { .. } => (TracerClockName::Boottime, "this host has no accelerator whose profiler has its own clock"),
        }
    }
}

/// A guess must not prevent a run from starting: if the clock cannot be opened, the one that every
/// system has is used.
fn open(sight: &Sight, open: impl Fn(TracerClockName) -> Result<TracerClock, Error>) -> Result<TracerClock, Error> {
    let (name, why) = sight.choice();
    match open(name) {
        Ok(clock) => Ok(clock.because(format!("auto: {why}"))),
        Err(error) if name == TracerClockName::Boottime => Err(error),
        Err(error) => Ok(open(TracerClockName::Boottime)?.because(format!(
            "auto: {why}, but that clock is not available ({error}); select it with --tracer-clock to require it"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sight: Sight, usable: &[TracerClockName], clock: &str, reason: &str) {
        let opened = open(&sight, |name| {
            let refused =
                || Error::TracerClock { name: name.as_str().into(), reason: "cannot load any of lib.so".into() };
            // What stands for it here can be read everywhere.
            let stand_in = TracerClock::of_callback(name.as_str(), || Ok(1));
            if usable.contains(&name) { stand_in } else { Err(refused()) }
        });
        match opened {
            Ok(opened) => {
                assert_eq!(opened.name(), clock, "{sight:?}");
                assert!(opened.reason().contains(reason), "{} lacks {reason}", opened.reason());
            }
            Err(error) => assert_eq!(clock, "none", "{error}"),
        }
    }

    #[test]
    fn what_is_loaded_counts_before_devices_and_what_cannot_be_read_is_not_chosen() {
        use TracerClockName::{Boottime, Cupti, Rocprofiler};
        let all = [Boottime, Cupti, Rocprofiler];
        let nothing = Sight::default();
        check(nothing, &all, "boottime", "no accelerator");
        check(Sight { rocprofiler_loaded: true, ..nothing }, &all, "rocprofiler", "rocprofiler-sdk is loaded");
        check(Sight { cupti_loaded: true, amd_devices: true, ..nothing }, &all, "cupti", "CUPTI is loaded");
        check(Sight { amd_devices: true, nvidia_devices: true, ..nothing }, &all, "boottime", "/dev/kfd");
        check(Sight { nvidia_devices: true, ..nothing }, &all, "cupti", "/dev/nvidia0");
        check(Sight { nvidia_devices: true, ..nothing }, &[Boottime], "boottime", "cannot load any of lib.so");
        check(nothing, &[], "none", "");
    }

    #[test]
    fn on_this_host_some_clock_is_chosen_and_says_why() {
        let clock = TracerClock::open_auto().expect("every Linux has a clock");
        println!("{}: {}", clock.name(), clock.reason());
        assert!(clock.reason().starts_with("auto: "), "{}", clock.reason());
        assert!(clock.now().is_ok());
    }
}
