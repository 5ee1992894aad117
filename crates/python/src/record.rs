//! The recorder: recordings of this process, and the scopes, spans, instants and counters in them.
//!
//! An open scope is on a list of its thread; a `Scope` itself is only a name with arguments, so that
//! one may be entered by several threads, and again within itself. In a forked child the recording
//! belongs to the parent and continues there. `probe_sync/record.py` has the public names.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use probe_sync_record::event::{self, ScopeWords};
use probe_sync_record::typed::{self, Collective};
use probe_sync_record::{Kind, Listed, Recorder, Session, Site, Span as NativeSpan, Value};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::errors::Failure;

/// A recording in progress.
#[pyclass(frozen, module = "probe_sync._native")]
#[derive(Debug)]
pub struct Recording {
    /// Process that owns the recording.
    process: u32,
    /// None once it was finished.
    session: Mutex<Option<Session>>,
    /// The finished recording, if the file for it could not be written.
    kept: Mutex<Option<probe_sync_record::Recording>>,
}

#[pymethods]
impl Recording {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "Python's arguments are made for the call")]
    fn new(py: Python<'_>, settings: Vec<(String, String)>, started_at: String) -> PyResult<Self> {
        let session = py.detach(|| {
            let mut builder = Recorder::builder().started_at(started_at);
            for (key, value) in &settings {
                builder = builder.set(key, value)?;
            }
            builder.start()
        });
        let session = session.map_err(|error| Failure::of_recorder(&error))?;
        Ok(Self { process: std::process::id(), session: Mutex::new(Some(session)), kept: Mutex::default() })
    }

    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<Option<String>> {
        py.detach(|| self.running(|session| Ok(session.path().map(|path| path.to_string_lossy().into_owned()))))
    }

    #[getter]
    fn is_recording(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.running(|session| Ok(session.is_recording())))
    }

    #[getter]
    fn lost(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.running(|session| Ok(session.counts().lost)))
    }

    fn pause(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.running(Session::pause))
    }

    fn resume(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.running(Session::resume))
    }

    #[expect(clippy::needless_pass_by_value, reason = "Python's arguments are made for the call")]
    fn snapshot(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.running(|session| session.snapshot()?.save(&path)))
    }

    /// Ends the recording, and copies it if there is a path; returns the numbers of events that are
    /// in it and that were lost. If the copy fails, the next call tries again.
    fn finish(&self, py: Python<'_>, path: Option<PathBuf>) -> PyResult<(u64, u64)> {
        py.detach(|| {
            let mut session = self.session()?;
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let recording = match (kept.take(), session.take()) {
                (Some(recording), _) => recording,
                (None, Some(session)) => session.finish().map_err(|error| Failure::of_recorder(&error))?,
                (None, None) => return Err(ended().into()),
            };
            if let Some(Err(error)) = path.map(|path| recording.save(&path)) {
                *kept = Some(recording);
                return Err(Failure::of_recorder(&error).into());
            }
            let threads = recording.threads().iter();
            let (events, lost) = threads.fold((0, recording.status().lost.events), |(events, lost), thread| {
                (events + thread.events, lost + thread.lost.events)
            });
            Ok((events, lost))
        })
    }
}

impl Recording {
    /// Calls `act` with a recording that is not finished.
    fn running<T>(&self, act: impl FnOnce(&Session) -> Result<T, probe_sync_record::Error>) -> PyResult<T> {
        let session = self.session()?;
        let result = act(session.as_ref().ok_or_else(ended)?);
        Ok(result.map_err(|error| Failure::of_recorder(&error))?)
    }

    /// Returns the session, in the process that owns it.
    fn session(&self) -> Result<MutexGuard<'_, Option<Session>>, Failure> {
        if self.process != std::process::id() {
            return Err(Failure::ended(FORKED));
        }
        Ok(self.session.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // Its lock and its thread are the parent's.
            std::mem::forget(std::mem::take(&mut self.session));
        }
    }
}

fn ended() -> Failure {
    Failure::ended("this recording is finished; start another with probe_sync.record.start()")
}

/// A name of scopes with its arguments.
#[pyclass(frozen, module = "probe_sync._native")]
#[derive(Debug)]
pub struct Scope {
    site: &'static Site,
    arguments: Option<Py<PyDict>>,
}

#[pymethods]
impl Scope {
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let (scope, own) = (slf.get(), slf.as_ptr().addr());
        if !event::is_anything_wanted() || !scope.open(slf.py(), own)? {
            OPEN.with_borrow_mut(|open| shadow(open, own, scope.site));
        }
        Ok(slf)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.arguments.as_ref().map_or(Ok(()), |arguments| visit.call(arguments))
    }

    fn __exit__(slf: &Bound<'_, Self>, _kind: &Bound<'_, PyAny>, _error: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) {
        let own = slf.as_ptr().addr();
        if let Some(words) = OPEN.with_borrow_mut(|open| taken(open, own)) {
            // SAFETY: `open` put the words there, unchanged.
            unsafe { words.end() };
        }
    }

    /// Adds arguments to the use of this thread that is open.
    #[pyo3(signature = (**arguments))]
    fn add(slf: &Bound<'_, Self>, arguments: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let own = slf.as_ptr().addr();
        let words =
            OPEN.with_borrow(|open| open.iter().rev().find(|(scope, _)| *scope == own).map(|(_, words)| *words));
        let (Some(words), Some(arguments)) = (words, arguments) else { return Ok(()) };
        // SAFETY: `open` put the words there, unchanged.
        let scope = unsafe { probe_sync_record::Scope::from_words(words) };
        let stated = state(&scope, arguments);
        // Taken back for the call only; the scope stays open.
        let _ = scope.into_words();
        stated
    }

    fn __call__<'py>(slf: &Bound<'py, Self>, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("probe_sync.record")?.call_method1("_decorated", (slf, function))
    }

    fn __repr__(&self) -> String {
        format!("scope({:?}, {:?})", self.site.name(), self.site.kind().as_str())
    }
}

impl Scope {
    fn of(site: &'static Site, arguments: Option<&Bound<'_, PyDict>>) -> Self {
        Self { site, arguments: arguments.map(kept) }
    }

    /// Begins a use; false if it is not recorded.
    fn open(&self, py: Python<'_>, own: usize) -> PyResult<bool> {
        let words = match &self.arguments {
            None => {
                let mut words = std::mem::MaybeUninit::uninit();
                if !ScopeWords::enter(self.site, &(), &mut words) {
                    return Ok(false);
                }
                // SAFETY: `enter` wrote them.
                unsafe { words.assume_init() }
            }
            Some(arguments) => {
                if !event::is_wanted(self.site) {
                    return Ok(false);
                }
                // Observers see them when the scope begins; whether the others are wanted, only the
                // scope can say.
                let arguments = arguments.bind(py);
                let known = stated(arguments, |_, is_function| !is_function)?;
                let scope = probe_sync_record::Scope::enter_with(self.site, &listed(&known));
                if !scope.is_recorded() {
                    return Ok(false);
                }
                if known.len() < arguments.len() {
                    let takes = |key: &str, is_function| is_function && scope.wants_detail_named(key);
                    scope.state(&listed(&stated(arguments, takes)?));
                }
                scope.into_words()
            }
        };
        OPEN.with_borrow_mut(|open| put(open, own, words));
        Ok(true)
    }
}

/// Notes a use.
fn put(open: &mut Vec<(usize, ScopeWords)>, own: usize, words: ScopeWords) {
    if open.len() >= OPEN_MAX {
        // Left by a generator, say, that never went on.
        open.remove(0);
    }
    open.push((own, words));
}

/// Notes a use that is not recorded, if it is within one that is, which its end must not end.
fn shadow(open: &mut Vec<(usize, ScopeWords)>, own: usize, site: &'static Site) {
    if open.iter().any(|(scope, _)| *scope == own) {
        put(open, own, ScopeWords { site, place: 0, start: 0, id: 0, gate: 0 });
    }
}

/// Removes and returns the latest use of a scope; those that were entered within it and are not
/// left stay.
fn taken(open: &mut Vec<(usize, ScopeWords)>, own: usize) -> Option<ScopeWords> {
    if open.last()?.0 == own {
        return open.pop().map(|(_, words)| words);
    }
    let place = open.iter().rposition(|(scope, _)| *scope == own)?;
    Some(open.remove(place).1)
}

thread_local! {
    /// Scopes that this thread entered and did not leave: the address of each, and where it is.
    static OPEN: RefCell<Vec<(usize, ScopeWords)>> = const { RefCell::new(Vec::new()) };
}

/// A span, which may end on another thread or in another task than it began.
#[pyclass(frozen, module = "probe_sync._native")]
#[derive(Debug)]
pub struct Span {
    site: &'static Site,
    arguments: Option<Py<PyDict>>,
    /// 0 while it is not open.
    id: AtomicU64,
}

#[pymethods]
impl Span {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.arguments.as_ref().map_or(Ok(()), |arguments| visit.call(arguments))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let span = slf.get();
        if event::is_wanted(span.site) {
            let stated = all_stated(span.arguments.as_ref().map(|arguments| arguments.bind(slf.py())))?;
            let begun = NativeSpan::begin_with(span.site, &listed(&stated));
            // One that is still open ends here.
            drop(NativeSpan::of_id(span.site, span.id.swap(begun.into_id(), Ordering::Relaxed)));
        }
        Ok(slf)
    }

    fn __exit__(&self, _kind: &Bound<'_, PyAny>, _error: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) {
        NativeSpan::of_id(self.site, self.id.swap(0, Ordering::Relaxed)).end();
    }
}

/// Returns the scope of a name and kind; without arguments it is the same each time.
#[pyfunction]
#[pyo3(signature = (name, kind=None, /, **arguments))]
pub fn scope<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyString>,
    kind: Option<&str>,
    arguments: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    static SCOPES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    if kind.is_some() || arguments.is_some() {
        return Ok(Bound::new(py, Scope::of(site(kind, name.to_cow()?.as_ref())?, arguments))?.into_any());
    }
    let known = SCOPES.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    if let Some(found) = known.get_item(name)? {
        return Ok(found);
    }
    let made = Bound::new(py, Scope::of(site(None, name.to_cow()?.as_ref())?, None))?.into_any();
    if known.len() < NAMES_KEPT {
        known.set_item(name, &made)?;
    }
    Ok(made)
}

/// Returns a span of a name and kind.
#[pyfunction]
#[pyo3(signature = (name, kind=None, /, **arguments))]
pub fn span(name: &str, kind: Option<&str>, arguments: Option<&Bound<'_, PyDict>>) -> PyResult<Span> {
    Ok(Span { site: site(kind, name)?, arguments: arguments.map(kept), id: AtomicU64::new(0) })
}

/// Returns the scope of this rank's part in a collective operation.
#[pyfunction]
pub fn collective(operation: &str, arguments: &Bound<'_, PyDict>) -> PyResult<Scope> {
    let known = Collective::ALL.into_iter().find(|known| known.as_str() == operation);
    let Some(known) = known else {
        let names: Vec<&str> = Collective::ALL.iter().map(|known| known.as_str()).collect();
        let text = format!("{operation:?} is not a collective operation; give one of {}", names.join(", "));
        return Err(Failure::config(text).into());
    };
    arguments.set_item(typed::keys::COLLECTIVE, operation)?;
    Ok(Scope::of(typed::site_of_collective(known), Some(arguments)))
}

/// Records an instant.
#[pyfunction]
#[pyo3(signature = (name, kind=None, /, **arguments))]
pub fn instant(name: &str, kind: Option<&str>, arguments: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    if event::is_anything_wanted() {
        let site = site(kind, name)?;
        if event::is_wanted(site) {
            event::instant(site, &listed(&all_stated(arguments)?));
        }
    }
    Ok(())
}

/// Records the new value of a counter.
#[pyfunction]
pub fn counter(name: &str, value: f64) -> PyResult<()> {
    if event::is_anything_wanted() {
        event::counter(site(None, name)?, value);
    }
    Ok(())
}

/// Arguments as they are kept until they are recorded.
fn kept(arguments: &Bound<'_, PyDict>) -> Py<PyDict> {
    arguments.clone().unbind()
}

fn site(kind: Option<&str>, name: &str) -> PyResult<&'static Site> {
    let kind = kind.map_or(Ok(Kind::User), str::parse).map_err(Failure::config)?;
    let found = Site::named(kind, name).or_else(|| Site::named(Kind::Custom, TOO_MANY));
    Ok(found.ok_or_else(|| Failure::config(TOO_MANY))?)
}

/// Adds arguments to an open scope; those that are functions are called, if they are wanted.
fn state(scope: &probe_sync_record::Scope, arguments: &Bound<'_, PyDict>) -> PyResult<()> {
    let stated = stated(arguments, |key, is_function| !is_function || scope.wants_detail_named(key))?;
    scope.state(&listed(&stated));
    Ok(())
}

/// An argument by key.
type Stated = (u32, Owned);

enum Owned {
    Integer(i64),
    Unsigned(u64),
    Float(f64),
    Boolean(bool),
    Text(String),
    Json(String),
}

/// Converts the arguments that are taken, by key and whether they are functions, which are called.
fn stated(arguments: &Bound<'_, PyDict>, takes: impl Fn(&str, bool) -> bool) -> PyResult<Vec<Stated>> {
    let mut all = Vec::with_capacity(arguments.len());
    for (key, value) in arguments {
        let key = key.cast::<PyString>()?.to_cow()?;
        let is_function = value.is_instance(functions(value.py())?)?;
        if !takes(&key, is_function) {
            continue;
        }
        let value = if is_function { value.call0()? } else { value };
        if let Some(number) = event::key(&key) {
            all.push((number, Owned::of(&value)));
        }
    }
    Ok(all)
}

/// Converts all arguments of an event that is recorded.
fn all_stated(arguments: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<Stated>> {
    arguments.map_or_else(|| Ok(Vec::new()), |arguments| stated(arguments, |_, _| true))
}

/// Types of functions. Others that can be called, such as a module of a model, are values.
fn functions(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static FUNCTIONS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let types = || {
        let types = py.import("types")?;
        let names = ["FunctionType", "MethodType", "BuiltinFunctionType"];
        let mut all = names.iter().map(|name| types.getattr(*name)).collect::<PyResult<Vec<_>>>()?;
        all.push(py.import("functools")?.getattr("partial")?);
        Ok::<_, PyErr>(PyTuple::new(py, all)?.into_any().unbind())
    };
    Ok(FUNCTIONS.get_or_try_init(py, types)?.bind(py))
}

fn listed<'a>(stated: &'a [Stated]) -> Listed<impl Fn(usize) -> (u32, Value<'a>)> {
    Listed(stated.len(), |place: usize| {
        let (key, value) = &stated[place];
        (*key, value.borrowed())
    })
}

impl Owned {
    /// Converts a value. Nothing is computed on a tensor or array: of what is neither a number, a
    /// text nor a list of these, the type's name is recorded.
    fn of(value: &Bound<'_, PyAny>) -> Self {
        let list = || json(value, JSON_DEPTH).map(|list| Self::Json(list.to_string()));
        Self::of_scalar(value).or_else(list).unwrap_or_else(|| {
            Self::Text(format!("<{}>", value.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string())))
        })
    }

    fn of_scalar(value: &Bound<'_, PyAny>) -> Option<Self> {
        if let Ok(yes) = value.cast::<PyBool>() {
            return Some(Self::Boolean(yes.is_true()));
        }
        if value.is_instance_of::<PyInt>() {
            let unsigned = || value.extract().map(Self::Unsigned);
            let number = value.extract().map(Self::Integer).or_else(|_| unsigned());
            return Some(number.unwrap_or_else(|_| Self::Text(value.to_string())));
        }
        if let Ok(number) = value.cast::<PyFloat>() {
            return Some(Self::Float(number.value()));
        }
        Some(Self::Text(value.cast::<PyString>().ok()?.to_string_lossy().into_owned()))
    }

    fn borrowed(&self) -> Value<'_> {
        match self {
            Self::Integer(number) => Value::Integer(*number),
            Self::Unsigned(number) => Value::Unsigned(*number),
            Self::Float(number) => Value::Float(*number),
            Self::Boolean(yes) => Value::Boolean(*yes),
            Self::Text(text) => Value::Text(text),
            Self::Json(text) => Value::Json(text),
        }
    }
}

/// Returns a list as JSON; None for what is not made of lists, numbers and texts.
fn json(value: &Bound<'_, PyAny>, depth: usize) -> Option<serde_json::Value> {
    if value.cast::<PyList>().is_ok() || value.cast::<PyTuple>().is_ok() {
        let items = value.try_iter().ok()?.map(|item| json(&item.ok()?, depth.checked_sub(1)?));
        return items.collect::<Option<Vec<_>>>().map(serde_json::Value::Array);
    }
    if value.is_none() {
        return Some(serde_json::Value::Null);
    }
    Some(match Owned::of_scalar(value)? {
        Owned::Integer(number) => number.into(),
        Owned::Unsigned(number) => number.into(),
        Owned::Float(number) => number.into(),
        Owned::Boolean(yes) => yes.into(),
        Owned::Text(text) | Owned::Json(text) => text.into(),
    })
}

/// Most scopes that a thread may have open.
const OPEN_MAX: usize = 4096;
/// Most names whose scopes are kept.
const NAMES_KEPT: usize = 1 << 16;
/// Name of events whose own name is one too many.
const TOO_MANY: &str = "(more than 2^20 names)";
/// Deepest nesting of a list.
const JSON_DEPTH: usize = 8;
const FORKED: &str =
    "this recording belongs to the parent of this forked process and continues there; start one in this process";
