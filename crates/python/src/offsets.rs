//! The offsets of a run, or of a table, as arrays, and the conversion of times through them.
//!
//! `t_ref = t_i − offset_i(t_i)`, in integer picoseconds inside and rounded to the nearest
//! nanosecond here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use probe_sync_alignment::Error;
use probe_sync_alignment::clocks::{self, RunDirectory, Survey};

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use probe_sync_estimate::series::{OffsetSample, TimeMap};
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::waiting;

/// Offsets of all nodes by time.
#[pyclass(frozen, module = "probe_sync._native")]
#[derive(Debug)]
pub struct Offsets {
    survey: Survey,
    offsets: clocks::Offsets,
    /// Maps of all nodes with offsets except the reference.
    maps: BTreeMap<u32, TimeMap>,
}

/// Times as arrays: `at_ns`, `offset_ns`, `drift_ppm`, `sigma_ns`.
type Columns<'py> =
    (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>);

/// Times and their standard deviations.
type Converted<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f64>>);

#[pymethods]
impl Offsets {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let read = waiting::run(py, None, move |_| read(&path))?;
        Ok(read.map_err(Failure::of_traces)?)
    }

    /// The reference node, whose offset is zero.
    #[getter]
    fn reference(&self) -> u32 {
        self.survey.reference
    }

    /// All nodes in the file, including the reference.
    #[getter]
    fn nodes(&self) -> Vec<u32> {
        let mut nodes: Vec<u32> = self.survey.nodes().chain([self.survey.reference]).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Host name of each node, if given.
    #[getter]
    fn hosts(&self) -> BTreeMap<u32, String> {
        self.survey.hostnames.clone()
    }

    /// Lines of the file that were ignored, and why.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.offsets.notes.clone()
    }

    /// Returns the start and end of a node's measurement on its own clock, ns since 1970; None for
    /// a node without offsets.
    fn measured_ns(&self, node: u32) -> Option<(i128, i128)> {
        self.survey.measured(node).map(|span| (span.first_ns, span.last_ns))
    }

    /// Returns a node's lines: time, offset, rate and standard deviation; NaN if not given.
    fn lines<'py>(&self, py: Python<'py>, node: u32) -> PyResult<Columns<'py>> {
        let samples = self.offsets.nodes.get(&node).map_or(&[][..], Vec::as_slice);
        if samples.is_empty() {
            self.map(node)?;
        }
        let column = |value: fn(&OffsetSample) -> f64| -> Bound<'py, PyArray1<f64>> {
            samples.iter().map(value).collect::<Vec<f64>>().into_pyarray(py)
        };
        let at_ns: Vec<i64> = samples.iter().map(|sample| sample.at_ns).collect();
        let (drift, sigma) = (
            column(|sample| sample.drift_ppm.unwrap_or(f64::NAN)),
            column(|sample| sample.sigma_ns.unwrap_or(f64::NAN)),
        );
        Ok((at_ns.into_pyarray(py), column(|sample| sample.offset_ns), drift, sigma))
    }

    /// Converts times of a node's clock to the reference clock, with their standard deviations.
    #[expect(clippy::needless_pass_by_value, reason = "Python's arguments are made for the call")]
    fn convert<'py>(
        &self,
        py: Python<'py>,
        times_ns: PyReadonlyArray1<'py, i64>,
        node: u32,
    ) -> PyResult<Converted<'py>> {
        let map = self.map(node)?;
        let times: Vec<i64> = times_ns.as_array().iter().copied().collect();
        let (converted, sigmas): (Vec<i64>, Vec<f64>) =
            py.detach(|| times.into_iter().map(|time_ns| through(map, time_ns)).unzip());
        Ok((converted.into_pyarray(py), sigmas.into_pyarray(py)))
    }
}

impl Offsets {
    /// Returns the node's map; None for the reference.
    fn map(&self, node: u32) -> Result<Option<&TimeMap>, Failure> {
        if node == self.survey.reference {
            return Ok(None);
        }
        let missing = || Error::NoOffsets { path: self.offsets.path.clone(), node };
        self.maps.get(&node).map(Some).ok_or_else(|| Failure::of_traces(missing()))
    }
}

fn read(path: &Path) -> Result<Offsets, Error> {
    let (survey, offsets) = if path.is_dir() {
        let directory = RunDirectory::open(path)?;
        let offsets = directory.offsets(directory.survey.everything())?;
        (directory.survey, offsets)
    } else {
        let survey = Survey::read(path)?;
        let offsets = survey.offsets(survey.everything())?;
        (survey, offsets)
    };
    let mut maps = BTreeMap::new();
    for &node in offsets.nodes.keys() {
        if let Some(found) = offsets.map(node)? {
            maps.insert(node, found.map);
        }
    }
    Ok(Offsets { survey, offsets, maps })
}

fn through(map: Option<&TimeMap>, time_ns: i64) -> (i64, f64) {
    let Some(map) = map else { return (time_ns, 0.0) };
    let mapped = map.map(i128::from(time_ns) * PS_PER_NS);
    let nearest = (mapped.time_ps + PS_PER_NS / 2).div_euclid(PS_PER_NS);
    (i64::try_from(nearest).unwrap_or(if nearest < 0 { i64::MIN } else { i64::MAX }), mapped.sigma_ns)
}

const PS_PER_NS: i128 = 1000;
