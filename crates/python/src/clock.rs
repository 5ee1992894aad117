//! The reference time in Python, and the marks of a traced process.
//!
//! Times are integers in ns throughout, because a float cannot hold them. It does not enter events
//! (`probe_sync/torch.py`, `probe_sync/jax.py`).

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use numpy::ndarray::ArrayView1;
use numpy::{PyArray1, PyReadonlyArray1};
use probe_sync::clock::Interval;
use probe_sync::{GlobalClock, MarkWriter};
use probe_sync_time::Timestamp;
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::waiting::Until;

/// Reference time for this process.
#[pyclass(frozen, module = "probe_sync._native")]
#[derive(Clone, Debug)]
pub struct Clock(pub GlobalClock);

/// One reading of a clock, in ns since 1970.
#[pyclass(frozen, get_all, module = "probe_sync._native")]
#[derive(Debug)]
pub struct Reading {
    time: i64,
    earliest: i64,
    latest: i64,
    bound95: i64,
    status: &'static str,
    epoch: u64,
}

/// Marks of this process, in a file of its own.
#[pyclass(frozen, module = "probe_sync._native")]
#[derive(Debug)]
pub struct Marks(Mutex<MarkWriter>);

/// Converted times and their 95 % half-widths.
type Converted<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);

#[pymethods]
impl Clock {
    /// Opens the clock that a session on this host maintains in a file.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "Python's arguments are made for the call")]
    fn open(path: PathBuf) -> PyResult<Self> {
        Ok(GlobalClock::open(&path).map(Self).map_err(|error| Failure::of_session(&error, false))?)
    }

    /// Returns the current reference time, ns since 1970.
    fn now_ns(&self) -> PyResult<i64> {
        self.0.now_ns().ok_or_else(unknown)
    }

    /// Returns the current reference time with its bounds.
    fn now(&self) -> PyResult<Reading> {
        let now = self.0.now().ok_or_else(unknown)?;
        Ok(Reading {
            time: now.time.as_ns(),
            earliest: now.earliest.as_ns(),
            latest: now.latest.as_ns(),
            bound95: now.bound95.as_ns(),
            status: now.status.as_str(),
            epoch: now.epoch,
        })
    }

    #[getter]
    fn status(&self) -> &'static str {
        self.0.status().as_str()
    }

    /// Returns True if this time has certainly passed.
    fn after(&self, time_ns: i64) -> bool {
        self.0.after(Timestamp::from_ns(time_ns))
    }

    /// Returns True if this time is certainly still in the future.
    fn before(&self, time_ns: i64) -> bool {
        self.0.before(Timestamp::from_ns(time_ns))
    }

    /// Waits until the reference time is known.
    #[pyo3(signature = (timeout=None))]
    fn wait_until_known(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let until = Until::new(timeout)?;
        while self.0.now_ns().is_none() {
            py.check_signals()?;
            if let Some(over) = until.over("the reference time", "is a session running?") {
                return Err(over.into());
            }
            py.detach(|| _ = self.0.wait_until_known(until.slice()));
        }
        Ok(())
    }

    /// Waits until the clock shows this time.
    #[pyo3(signature = (time_ns, timeout=None))]
    fn wait_until(&self, py: Python<'_>, time_ns: i64, timeout: Option<f64>) -> PyResult<()> {
        let until = Until::new(timeout)?;
        loop {
            let left = time_ns.saturating_sub(self.0.now_ns().ok_or_else(unknown)?);
            py.check_signals()?;
            if left <= SLICE_NS {
                let last = Duration::from_nanos(left.max(0).unsigned_abs()) + Duration::from_secs(1);
                let waited = py.detach(|| self.0.wait_until(Timestamp::from_ns(time_ns), last));
                return Ok(waited.map_err(|error| Failure::of_session(&error, true))?);
            }
            if let Some(over) = until.over("that time", "the time is still in the future") {
                return Err(over.into());
            }
            py.detach(|| std::thread::sleep(until.slice().min(Duration::from_nanos((left - SLICE_NS).unsigned_abs()))));
        }
    }

    /// Converts times of a clock of this host to reference times, with the half-widths of their 95
    /// % intervals.
    #[pyo3(signature = (times, of="realtime"))]
    #[expect(clippy::needless_pass_by_value, reason = "Python's arguments are made for the call")]
    fn convert<'py>(&self, py: Python<'py>, times: PyReadonlyArray1<'py, i64>, of: &str) -> PyResult<Converted<'py>> {
        let conversion = self.0.conversion().ok_or_else(unknown)?;
        let times = times.as_array();
        let found = py.detach(|| match of {
            "realtime" => Ok(conversion.system().and_then(|by| columns(&times, |at| by.interval(at)))),
            "monotonic_raw" => Ok(columns(&times, |at| Some(conversion.raw(Timestamp::from_ns(at))))),
            "boottime" => Ok(conversion.boot().and_then(|by| columns(&times, |at| by.interval(at)))),
            other => Err(Failure::config(format!(
                "of={other:?}: give the clock of the times: realtime, monotonic_raw or boottime"
            ))),
        });
        let [times, bounds] = found?.ok_or_else(|| {
            Failure::clock(format!(
                "this host's {of} was set after one of these times, or they are older than the session, so they cannot be converted"
            ))
        })?;
        Ok((PyArray1::from_vec(py, times), PyArray1::from_vec(py, bounds)))
    }

    fn __repr__(&self) -> String {
        let status = self.0.status().as_str();
        match self.0.now() {
            Some(now) => {
                format!("<probe_sync.Clock {} ns, ±{} ns in 95 %, {status}>", now.time.as_ns(), now.bound95.as_ns())
            }
            None => format!("<probe_sync.Clock, {status}>"),
        }
    }
}

#[pymethods]
impl Reading {
    fn __repr__(&self) -> String {
        let Self { time, earliest, latest, bound95, status, .. } = self;
        format!("<probe_sync.Reading {time} ns, ±{bound95} ns in 95 %, {earliest} to {latest}, {status}>")
    }
}

impl Marks {
    /// Wraps a writer.
    pub fn new(writer: MarkWriter) -> Self {
        Self(Mutex::new(writer))
    }
}

#[pymethods]
impl Marks {
    /// Returns the number and name of the next mark; None in a forked child.
    fn next_name(&self) -> Option<(u64, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next_name()
    }

    /// Writes the readings of the system clock before and after the event. Returns False if they
    /// are invalid.
    fn write(&self, number: u64, before_ns: i64, after_ns: i64) -> PyResult<bool> {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = writer.write(number, Timestamp::from_ns(before_ns), Timestamp::from_ns(after_ns));
        Ok(written.map_err(|error| Failure::of_session(&error, true))?)
    }
}

/// Converts times and their 95 % half-widths; None if one of them cannot be converted.
#[inline]
fn columns(times: &ArrayView1<'_, i64>, convert: impl Fn(i64) -> Option<Interval>) -> Option<[Vec<i64>; 2]> {
    let (mut found, mut bounds) = (Vec::with_capacity(times.len()), Vec::with_capacity(times.len()));
    for at in times {
        let Interval { time, bound95, .. } = convert(*at)?;
        found.push(time.as_ns());
        bounds.push(bound95.as_ns());
    }
    Some([found, bounds])
}

fn unknown() -> PyErr {
    Failure::clock("the reference time is not known yet; call wait_until_known() first, while a session is running")
        .into()
}

/// Length of the last part of a wait, which is not divided, so that it ends on time.
const SLICE_NS: i64 = 50_000_000;
