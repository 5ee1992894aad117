//! Traces on one clock: `align`, `merge`, `convert` and `check`, as the command line does them.
//!
//! Each function calls the library that the command calls, and returns the document that the
//! command prints with `--json`. The calls share nothing, so threads may make them at once.

mod options;

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::ptr;

use probe_sync_alignment::{
    AlignDocument, AlignedTrace, Calibrated, ConvertDocument, MergeDocument, MergeReport, Outcome, Output, Request,
    Verdict, align, calibrate, check, convert, merge,
};
use probe_sync_analysis::query::{Query, QuerySettings};
use serde::Serialize;

pub use self::options::*;
use crate::pointers::{borrowed, given_size, text};
use crate::status::{Failure, guard, ps_status};
use ps_outcome::*;
use ps_status::*;

/// Outcome of a check of causality.
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ps_outcome {
    /// No check was requested.
    #[default]
    PS_OUTCOME_UNCHECKED = 0,
    /// No collective ends before every rank has entered it, within the clocks' uncertainty.
    PS_OUTCOME_HOLDS = 1,
    /// Collectives end before every rank has entered them, by more than the uncertainty explains.
    PS_OUTCOME_VIOLATED = 2,
    /// Everything that was checked holds, but not everything could be checked.
    PS_OUTCOME_INCOMPLETE = 3,
    /// The traces share no collective that could be checked.
    PS_OUTCOME_NOTHING = 4,
}

/// Result of a function on traces.
#[repr(C)]
#[derive(Debug)]
pub struct ps_trace_result {
    /// Set by the caller before the call: sizeof(ps_trace_result). Nothing beyond it is written.
    pub size: usize,
    /// The document that the command prints with --json; docs/schemas describes it. NULL if the
    /// call failed, except with PS_ERROR_VIOLATED, which has results, too.
    pub json: *mut c_char,
    /// What the caller should know, one line each; lines of problems begin with "warning: ". NULL
    /// like json.
    pub notes: *mut c_char,
    /// Number of traces used.
    pub traces: u64,
    /// Number of traces skipped because they could not be read (skip_bad).
    pub skipped: u64,
    /// Number of happens-before edges checked.
    pub edges: u64,
    /// Number of edges that are broken by more than the clocks' uncertainty explains.
    pub violations: u64,
    /// Outcome of the check.
    pub outcome: ps_outcome,
}

/// Rewrites traces onto the reference clock, each in its own format: a single trace to the file
/// output, several to the directory output. options may be NULL, and traces too if run_dir is set:
/// the traces in that directory are used then. With validate, nothing is written if causality is
/// violated, and the call returns PS_ERROR_VIOLATED. result may be NULL; otherwise set its size
/// first, and free it with ps_trace_result_free(). After an error, traces already written remain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_align(
    traces: *const *const c_char,
    count: usize,
    options: *const ps_trace_options,
    output: *const c_char,
    result: *mut ps_trace_result,
) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (result, output) = unsafe { (ResultOut::new(result)?, text(output, "output")?) };
        // SAFETY: the rule of the crate.
        let (options, request) = unsafe { asked(Call::Align, traces, count, options, Vec::new()) }?;
        let calibrated = calibrate(&request)?;
        let verdict = options.has("validate").then(|| check(&calibrated));
        let mut written = Vec::new();
        if !is_violated(verdict.as_ref()) {
            for aligned in align(&calibrated, Path::new(output), options.align())? {
                written.push(AlignedTrace::from(aligned?));
            }
        }
        let count = written.len();
        let document = AlignDocument::new(written, &calibrated, verdict.as_ref());
        result.tell(&document, count, &calibrated, &[], verdict.as_ref());
        refuse_violated(verdict.as_ref(), output)
    })
}

/// Merges traces into the file output, whose ending decides its format. Everything else is as in
/// ps_align().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_merge(
    traces: *const *const c_char,
    count: usize,
    options: *const ps_trace_options,
    output: *const c_char,
    result: *mut ps_trace_result,
) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (result, output) = unsafe { (ResultOut::new(result)?, text(output, "output")?) };
        // SAFETY: the rule of the crate.
        let (options, request) = unsafe { asked(Call::Merge, traces, count, options, vec![output.into()]) }?;
        let calibrated = calibrate(&request)?;
        let verdict = options.has("validate").then(|| check(&calibrated));
        let report = match is_violated(verdict.as_ref()) {
            true => MergeReport::default(),
            false => merge(&calibrated, Path::new(output), options.merge())?,
        };
        let document = MergeDocument::new(output.into(), &calibrated, &report, verdict.as_ref());
        result.tell(&document, report.written.len(), &calibrated, &report.notes, verdict.as_ref());
        refuse_violated(verdict.as_ref(), output)
    })
}

/// Writes traces in other formats to a folder, which is created. formats lists them, separated by
/// commas: pftrace, json, json.gz, kineto, kineto.gz, xspace and csv. Names of the files begin with
/// the key output_file ("out"). Everything else is as in ps_align().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_convert(
    traces: *const *const c_char,
    count: usize,
    options: *const ps_trace_options,
    folder: *const c_char,
    formats: *const c_char,
    result: *mut ps_trace_result,
) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (result, folder, formats) =
            unsafe { (ResultOut::new(result)?, text(folder, "folder")?, text(formats, "formats")?) };
        // SAFETY: the rule of the crate.
        let options = unsafe { options.as_ref() }.cloned().unwrap_or_default();
        let outputs = outputs(Path::new(folder), options.prefix(), formats)?;
        let paths = outputs.iter().map(|output| output.path.clone()).collect();
        // SAFETY: the rule of the crate.
        let request = options.request(Call::Convert, unsafe { paths_of(traces, count) }?, paths)?;
        let calibrated = if outputs.is_empty() { None } else { Some(calibrate(&request)?) };
        let report = calibrated.as_ref().map(|calibrated| convert(calibrated, &outputs, &options.convert()));
        let report = report.transpose()?;
        let query = formats.split(',').any(|format| format == CSV).then(|| open(&request, &options)).transpose()?;
        let csv = query.as_ref().map(|query| query.write_csv(Path::new(folder), options.prefix(), &options.csv()));
        let csv = csv.transpose()?.unwrap_or_default();
        let Some(used) = calibrated.as_ref().or(query.as_ref().map(Query::calibrated)) else {
            return Err(Failure::argument("formats is empty; name at least one"));
        };
        let omitted = calibrated.as_ref().map(Calibrated::omitted).unwrap_or_default();
        let document = ConvertDocument::new(report, csv, omitted);
        result.tell(&document, used.traces.len(), used, &[], None);
        Ok(())
    })
}

/// Checks that no collective ends before every rank has entered it: on the times as recorded, or
/// on the corrected ones if the options name a source of clocks. Returns PS_OK whatever it finds;
/// result->outcome is the verdict. Everything else is as in ps_align().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_check(
    traces: *const *const c_char,
    count: usize,
    options: *const ps_trace_options,
    result: *mut ps_trace_result,
) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let result = unsafe { ResultOut::new(result) }?;
        // SAFETY: the rule of the crate.
        let (_, request) = unsafe { asked(Call::Check, traces, count, options, Vec::new()) }?;
        let calibrated = calibrate(&request)?;
        let verdict = check(&calibrated);
        result.tell(&verdict.document(), calibrated.traces.len(), &calibrated, &verdict.remarks(), Some(&verdict));
        Ok(())
    })
}

/// Frees the texts of a result and sets them to NULL; the numbers stay. Call it whatever the function
/// returned. NULL, and a result whose size is not sizeof(ps_trace_result), are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_trace_result_free(result: *mut ps_trace_result) {
    guard(|| {
        // SAFETY: the rule of the crate.
        if result.is_null() || unsafe { (&raw const (*result).size).read() } != size_of::<ps_trace_result>() {
            return Ok(());
        }
        // SAFETY: the rule of the crate; the texts are NULL or were passed to the caller by `tell`.
        unsafe {
            for place in [&raw mut (*result).json, &raw mut (*result).notes] {
                let text = place.replace(ptr::null_mut());
                if !text.is_null() {
                    drop(CString::from_raw(text));
                }
            }
        }
        Ok(())
    });
}

/// A function on traces.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Align,
    Merge,
    Convert,
    Check,
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Self::Align => "ps_align()",
            Self::Merge => "ps_merge()",
            Self::Convert => "ps_convert()",
            Self::Check => "ps_check()",
        }
    }
}

/// The caller's place for a result; NULL if it wants none.
struct ResultOut(*mut ps_trace_result);

impl ResultOut {
    /// Clears the result, so that it can be freed whatever happens.
    ///
    /// # Safety
    /// `result` is NULL, or its field `size` is set and the rest is valid to write while this is
    /// used.
    unsafe fn new(result: *mut ps_trace_result) -> Result<Self, Failure> {
        if result.is_null() {
            return Ok(Self(result));
        }
        // SAFETY: the caller's promise.
        let size = unsafe { given_size::<ps_trace_result>((&raw const (*result).size).read(), "ps_trace_result") }?;
        let cleared = ps_trace_result {
            size,
            json: ptr::null_mut(),
            notes: ptr::null_mut(),
            traces: 0,
            skipped: 0,
            edges: 0,
            violations: 0,
            outcome: PS_OUTCOME_UNCHECKED,
        };
        // SAFETY: the caller's promise.
        unsafe { result.write(cleared) };
        Ok(Self(result))
    }

    /// Passes a result to the caller.
    fn tell(
        &self,
        document: &impl Serialize,
        traces: usize,
        calibrated: &Calibrated,
        notes: &[String],
        verdict: Option<&Verdict<'_>>,
    ) {
        // SAFETY: `new` has written it, and the caller promised it that nothing else uses it.
        let Some(result) = (unsafe { self.0.as_mut() }) else { return };
        // The text that the command prints, so that the two can be compared.
        let json = serde_json::to_string_pretty(document).expect("documents have only text keys");
        result.json = handed_over(&json);
        result.notes = handed_over(&all_notes(calibrated, notes));
        result.traces = traces as u64;
        result.skipped = calibrated.omitted().traces.len() as u64;
        if let Some(verdict) = verdict {
            result.edges = verdict.result.edges as u64;
            result.violations = verdict.result.violations() as u64;
            result.outcome = match verdict.outcome() {
                Outcome::Holds => PS_OUTCOME_HOLDS,
                Outcome::Violated => PS_OUTCOME_VIOLATED,
                Outcome::Incomplete => PS_OUTCOME_INCOMPLETE,
                Outcome::Nothing => PS_OUTCOME_NOTHING,
            };
        }
    }
}

/// Returns the settings and the request of a call.
///
/// # Safety
/// The rule of the crate, for pointers from C.
unsafe fn asked(
    call: Call,
    traces: *const *const c_char,
    count: usize,
    options: *const ps_trace_options,
    outputs: Vec<PathBuf>,
) -> Result<(ps_trace_options, Request), Failure> {
    // SAFETY: the caller's promise.
    let options = unsafe { options.as_ref() }.cloned().unwrap_or_default();
    // SAFETY: the caller's promise.
    let request = options.request(call, unsafe { paths_of(traces, count) }?, outputs)?;
    Ok((options, request))
}

/// Returns the paths in an array of C.
///
/// # Safety
/// `traces` is NULL, or points to `count` C strings.
unsafe fn paths_of(traces: *const *const c_char, count: usize) -> Result<Vec<PathBuf>, Failure> {
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's promise.
    unsafe { borrowed(traces, "traces") }?;
    // SAFETY: the caller's promise.
    let traces = unsafe { std::slice::from_raw_parts(traces, count) };
    // SAFETY: the caller's promise.
    let path = |trace: &*const c_char| Ok(PathBuf::from(unsafe { text(*trace, "a path in traces") }?));
    traces.iter().map(path).collect()
}

/// Returns the outputs of all formats except CSV, each once.
fn outputs(folder: &Path, prefix: &str, formats: &str) -> Result<Vec<Output>, Failure> {
    let mut outputs: Vec<Output> = Vec::new();
    for format in formats.split(',').filter(|format| *format != CSV) {
        let unknown = || Failure::argument(format!("formats: {format:?} is unknown; give {FORMATS}"));
        let output = Output::named(folder, prefix, format).ok_or_else(unknown)?;
        if !outputs.contains(&output) {
            outputs.push(output);
        }
    }
    Ok(outputs)
}

/// Opens the databases that are to be written as CSV.
fn open(request: &Request, options: &ps_trace_options) -> Result<Query, Failure> {
    let (own_clocks, window) = (options.has("no_correction"), options.convert().window);
    Ok(Query::open(request, &QuerySettings { own_clocks, window, ..QuerySettings::default() })?)
}

fn is_violated(verdict: Option<&Verdict<'_>>) -> bool {
    verdict.is_some_and(|verdict| verdict.outcome() == Outcome::Violated)
}

fn refuse_violated(verdict: Option<&Verdict<'_>>, output: &str) -> Result<(), Failure> {
    match verdict {
        Some(verdict) if is_violated(Some(verdict)) => {
            let text = format!("causality is violated, so {output} was not written: {}", verdict.brief().trim_end());
            Err(Failure::new(PS_ERROR_VIOLATED, text))
        }
        _ => Ok(()),
    }
}

/// Returns warnings and notes, one per line.
fn all_notes(calibrated: &Calibrated, notes: &[String]) -> String {
    let warnings = calibrated.warnings.iter().map(|warning| format!("warning: {warning}"));
    let of_traces = calibrated.traces.iter().flat_map(|of| {
        let path = of.trace.path.display().to_string();
        of.notes.iter().map(move |note| format!("{path}: {note}"))
    });
    let all = warnings.chain(calibrated.notes.iter().chain(notes).cloned()).chain(of_traces);
    all.collect::<Vec<_>>().join("\n")
}

/// Passes a text to the caller; `ps_trace_result_free` takes it back.
fn handed_over(text: &str) -> *mut c_char {
    CString::new(text.replace('\0', " ")).unwrap_or_default().into_raw()
}

/// The format whose files [`Query`] writes.
const CSV: &str = "csv";
const FORMATS: &str = "pftrace, json, json.gz, kineto, kineto.gz, xspace or csv";
