//! Rows of a query over databases, in batches of columns.
//!
//! The query runs on its own thread, at most two batches ahead of the reader; it is cancelled when
//! the rows are dropped. `probe_sync/traces.py` turns batches into tuples and tables.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use numpy::IntoPyArray as _;
use probe_sync_alignment::Request;
use probe_sync_analysis::Error;
use probe_sync_analysis::query::{Query, QuerySettings, RowSink, Value};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::errors::Failure;
use crate::traces::{Asked, Span, duration};

/// Runs one SQL statement over the databases of all ranks.
#[pyfunction]
#[pyo3(signature = (sql, asked, *, no_correction, span, timeout))]
#[expect(clippy::needless_pass_by_value, reason = "Python's arguments are made for the call")]
pub fn query(
    py: Python<'_>,
    sql: String,
    asked: Asked,
    no_correction: bool,
    span: Span,
    timeout: Option<&str>,
) -> PyResult<Rows> {
    let settings = QuerySettings {
        own_clocks: no_correction,
        window: span.window()?,
        timeout: duration("timeout", timeout)?.map(probe_sync_time::Duration::to_std),
        ..QuerySettings::default()
    };
    let cancel = Cancel(Arc::clone(&settings.cancelled));
    let request = asked.request(Vec::new())?;
    let (sender, receiver) = sync_channel(AHEAD);
    let body = move || {
        let mut sink = Batches { sender, begun: None, columns: Vec::new(), rows: 0 };
        let last = match sink.run(&request, &settings, &sql) {
            Ok(()) => Message::Ended,
            Err(error) => Message::Failed(Failure::of_traces(error)),
        };
        // If the rows were dropped, the receiver has gone.
        let _dropped = sink.sender.send(last);
    };
    std::thread::Builder::new().name("probe_sync".into()).stack_size(STACK).spawn(body)?;
    let receiver = Mutex::new(receiver);
    match next(py, &receiver)? {
        Message::Begun(begun) => Ok(Rows { begun, receiver, has_ended: AtomicBool::new(false), _cancel: cancel }),
        Message::Failed(failure) => Err(failure.into()),
        Message::Batch(_) | Message::Ended => Err(panicked().into()),
    }
}

/// Rows of a query that have not been read yet.
#[pyclass(frozen, module = "probe_sync._native")]
#[derive(Debug)]
pub struct Rows {
    begun: Begun,
    receiver: Mutex<Receiver<Message>>,
    has_ended: AtomicBool,
    _cancel: Cancel,
}

/// Cancels the statement when it is dropped.
#[derive(Debug)]
struct Cancel(Arc<AtomicBool>);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[pymethods]
impl Rows {
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.begun.columns.clone()
    }

    #[getter]
    fn timeline(&self) -> &str {
        &self.begun.timeline
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.begun.notes.clone()
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.begun.warnings.clone()
    }

    /// Returns the columns of the next rows; None at the end.
    fn next_batch<'py>(&self, py: Python<'py>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        if self.has_ended.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match next(py, &self.receiver)? {
            Message::Batch(columns) => {
                columns.into_iter().map(|column| column.into_python(py)).collect::<PyResult<Vec<_>>>().map(Some)
            }
            Message::Begun(_) => Err(panicked().into()),
            last => {
                self.has_ended.store(true, Ordering::Relaxed);
                if let Message::Failed(failure) = last { Err(failure.into()) } else { Ok(None) }
            }
        }
    }
}

/// Facts that are known before the first row.
#[derive(Clone, Debug)]
struct Begun {
    columns: Vec<String>,
    timeline: String,
    notes: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Debug)]
enum Message {
    Begun(Begun),
    Batch(Vec<Column>),
    Failed(Failure),
    Ended,
}

fn panicked() -> Failure {
    Failure::failed("the query panicked: please report this with the statement")
}

/// Waits for the next message, with Python's signal handlers in between.
fn next(py: Python<'_>, receiver: &Mutex<Receiver<Message>>) -> PyResult<Message> {
    loop {
        let received =
            py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SIGNALS_EVERY));
        match received {
            Ok(message) => return Ok(message),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => return Err(panicked().into()),
        }
    }
}

/// Collects rows into batches, and sends them.
struct Batches {
    sender: SyncSender<Message>,
    /// Sent with the names of the columns.
    begun: Option<Begun>,
    columns: Vec<Column>,
    rows: usize,
}

impl Batches {
    fn run(&mut self, request: &Request, settings: &QuerySettings, sql: &str) -> Result<(), Error> {
        let query = Query::open(request, settings)?;
        self.begun = Some(Begun {
            columns: Vec::new(),
            timeline: query.timeline.clone(),
            notes: query.notes.clone(),
            warnings: query.warnings.clone(),
        });
        query.run(sql, self)?;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.rows) == 0 {
            return Ok(());
        }
        let empty = self.columns.iter().map(|_| Column::default()).collect();
        self.send(Message::Batch, empty)
    }

    fn send(&mut self, message: impl FnOnce(Vec<Column>) -> Message, next: Vec<Column>) -> Result<(), Error> {
        let columns = std::mem::replace(&mut self.columns, next);
        self.sender.send(message(columns)).map_err(|_| Error::Query { problem: "its rows were dropped".into() })
    }
}

impl RowSink for Batches {
    fn columns(&mut self, names: &[String]) -> Result<(), Error> {
        let columns = names.iter().map(|_| Column::default()).collect();
        let Some(begun) = self.begun.take() else { return Ok(()) };
        let begun = Begun { columns: names.to_vec(), ..begun };
        self.send(|_| Message::Begun(begun), columns)
    }

    fn row(&mut self, cells: &[Value<'_>]) -> Result<(), Error> {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.push(*cell);
        }
        self.rows += 1;
        if self.rows < BATCH_ROWS { Ok(()) } else { self.flush() }
    }
}

/// Values of a column; numbers of one kind without NULL need no objects.
#[derive(Debug)]
enum Column {
    Integers(Vec<i64>),
    Reals(Vec<f64>),
    Mixed(Vec<Cell>),
}

#[derive(Debug)]
enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

impl Default for Column {
    fn default() -> Self {
        Self::Integers(Vec::new())
    }
}

impl Column {
    fn push(&mut self, value: Value<'_>) {
        match (&mut *self, value) {
            (Self::Integers(numbers), Value::Integer(number)) => numbers.push(number),
            (Self::Reals(numbers), Value::Real(number)) => numbers.push(number),
            (Self::Integers(numbers), Value::Real(number)) if numbers.is_empty() => *self = Self::Reals(vec![number]),
            (Self::Mixed(cells), value) => cells.push(value.into()),
            (Self::Integers(numbers), value) => {
                let cells = numbers.drain(..).map(Cell::Integer);
                *self = Self::Mixed(cells.chain([value.into()]).collect());
            }
            (Self::Reals(numbers), value) => {
                let cells = numbers.drain(..).map(Cell::Real);
                *self = Self::Mixed(cells.chain([value.into()]).collect());
            }
        }
    }

    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(match self {
            Self::Integers(numbers) => numbers.into_pyarray(py).into_any(),
            Self::Reals(numbers) => numbers.into_pyarray(py).into_any(),
            Self::Mixed(cells) => {
                // Names repeat: equal neighbours share one object.
                let mut last: Option<(String, Bound<'_, PyAny>)> = None;
                let list = PyList::empty(py);
                for cell in cells {
                    match cell {
                        Cell::Null => list.append(py.None())?,
                        Cell::Integer(number) => list.append(number)?,
                        Cell::Real(number) => list.append(number)?,
                        Cell::Blob(bytes) => list.append(PyBytes::new(py, &bytes))?,
                        Cell::Text(text) => {
                            if last.as_ref().is_none_or(|(known, _)| *known != text) {
                                let object = PyString::new(py, &text).into_any();
                                last = Some((text, object));
                            }
                            if let Some((_, object)) = &last {
                                list.append(object)?;
                            }
                        }
                    }
                }
                list.into_any()
            }
        })
    }
}

impl From<Value<'_>> for Cell {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Integer(number) => Self::Integer(number),
            Value::Real(number) => Self::Real(number),
            Value::Text(bytes) => Self::Text(String::from_utf8_lossy(bytes).into_owned()),
            Value::Blob(bytes) => Self::Blob(bytes.to_vec()),
        }
    }
}

/// Batches that may wait for the reader.
const AHEAD: usize = 2;
const BATCH_ROWS: usize = 16_384;
const SIGNALS_EVERY: Duration = Duration::from_millis(50);
/// SQLite's parser and the readers of traces recurse.
const STACK: usize = 8 << 20;
