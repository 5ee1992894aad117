//! A solved round as arrays by node.
//!
//! `session` returns it; every rank has the same bytes.

use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1};
use probe_sync_lines::{NodeEstimate, Round};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// One round: all nodes' clocks relative to the reference, in the order of `nodes`.
#[pyclass(frozen, name = "Round", module = "probe_sync._native")]
#[derive(Debug)]
pub struct PyRound {
    data: Arc<Round>,
    /// Node numbers: all nodes, or in a large group only the reference and this rank's node.
    #[pyo3(get)]
    nodes: Py<PyArray1<u32>>,
    /// offset_i = S_i − S_reference at the midpoint of the window, ns.
    #[pyo3(get)]
    offset_ns: Py<PyArray1<f64>>,
    /// Rate of each clock relative to the reference, ppm.
    #[pyo3(get)]
    drift_ppm: Py<PyArray1<f64>>,
    /// Standard deviation of `offset_ns`; infinite if a node was not reached.
    #[pyo3(get)]
    sigma_ns: Py<PyArray1<f64>>,
    /// Lower end of the hard interval, ns.
    #[pyo3(get)]
    bound_lo_ns: Py<PyArray1<f64>>,
    /// Upper end of the hard interval, ns.
    #[pyo3(get)]
    bound_hi_ns: Py<PyArray1<f64>>,
    /// True if a chain of fitted edges connects the node to the reference.
    #[pyo3(get)]
    reachable: Py<PyArray1<bool>>,
}

impl PyRound {
    /// Creates the round's arrays, once.
    pub fn new(py: Python<'_>, data: Arc<Round>) -> Self {
        let column = |value: fn(&NodeEstimate) -> f64| {
            data.all_nodes.iter().map(value).collect::<Vec<f64>>().into_pyarray(py).unbind()
        };
        let reachable: Vec<bool> = data.all_nodes.iter().map(|node| node.reachable).collect();
        let nodes: Vec<u32> = data.all_nodes.iter().map(|node| node.node_id.0).collect();
        Self {
            nodes: nodes.into_pyarray(py).unbind(),
            offset_ns: column(|node| node.offset_ns),
            drift_ppm: column(|node| node.drift_ppm),
            sigma_ns: column(|node| node.sigma_ns),
            bound_lo_ns: column(|node| node.bound_lo_ns),
            bound_hi_ns: column(|node| node.bound_hi_ns),
            reachable: reachable.into_pyarray(py).unbind(),
            data,
        }
    }

    /// Returns the arrays by name.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        columns.set_item("node", &self.nodes)?;
        columns.set_item("offset_ns", &self.offset_ns)?;
        columns.set_item("drift_ppm", &self.drift_ppm)?;
        columns.set_item("sigma_ns", &self.sigma_ns)?;
        columns.set_item("bound_lo_ns", &self.bound_lo_ns)?;
        columns.set_item("bound_hi_ns", &self.bound_hi_ns)?;
        columns.set_item("reachable", &self.reachable)?;
        Ok(columns)
    }

    /// Returns the round itself.
    pub fn data(&self) -> &Arc<Round> {
        &self.data
    }
}

#[pymethods]
impl PyRound {
    /// Number of the round.
    #[getter]
    fn number(&self) -> u64 {
        self.data.round_id.0
    }

    /// The reference node, whose offset is zero.
    #[getter]
    fn reference(&self) -> u32 {
        self.data.reference.0
    }

    /// The instant to which the offsets apply, on the reference clock, ns since 1970.
    #[getter]
    fn midpoint_ns(&self) -> i64 {
        self.data.midpoint().as_ns()
    }

    /// The window's start and end on the reference clock, ns since 1970.
    #[getter]
    fn window_ns(&self) -> (i64, i64) {
        (self.data.window_start.as_ns(), self.data.window_end.as_ns())
    }

    /// Returns a DataFrame with one row per node; requires pandas.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("pandas")?.call_method1("DataFrame", (self.columns(py)?,))
    }

    /// Exports the rows as an Arrow stream (for polars, duckdb and others); requires pyarrow.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let table = py.import("pyarrow")?.call_method1("table", (self.columns(py)?,))?;
        table.call_method1("__arrow_c_stream__", (requested_schema,))
    }

    fn __len__(&self) -> usize {
        self.data.all_nodes.len()
    }

    fn __repr__(&self) -> String {
        let reached = self.data.all_nodes.iter().filter(|node| node.reachable).count();
        format!("<probe_sync.Round {}: {reached} of {} nodes reached>", self.data.round_id, self.data.all_nodes.len())
    }
}
