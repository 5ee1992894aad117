//! Settings of the functions on traces: keys and values are the options of the commands, with
//! underscores.

use std::ffi::c_char;
use std::path::PathBuf;
use std::sync::Arc;

use probe_sync_alignment::nodes::NodeList;
use probe_sync_alignment::{
    AddedTrack, AlignSettings, Bound, ClockSource, ConvertSettings, FilterSettings, MergeSettings, OutputClock,
    Request, Window,
};
use probe_sync_analysis::LateTrack;
use probe_sync_analysis::query::CsvSettings;
use probe_sync_formats::{AgentIndex, CpuClock, PlaneLayout};

use super::Call;
use crate::pointers::{Out, borrowed_mut, taken_back, text};
use crate::status::{Failure, guard, ps_status};
use ps_status::*;

/// Settings of ps_align(), ps_merge(), ps_convert() and ps_check().
#[derive(Clone, Debug, Default)]
pub struct ps_trace_options {
    /// Keys that were set, except those set to false.
    given: Vec<&'static str>,
    request: Request,
    filter: FilterSettings,
    layout: PlaneLayout,
    schema: Option<String>,
    window: Window,
    agent_index: AgentIndex,
    name: Option<String>,
}

/// Creates settings with default values. Free them with ps_trace_options_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_trace_options_new(options: *mut *mut ps_trace_options) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let options = unsafe { Out::new(options, "options") }?;
        options.hand_over(ps_trace_options::default());
        Ok(())
    })
}

/// Sets one key from its text, for example ("run_dir", "run") or ("nodes", "0-3"). Keys and values
/// are those of `probe_sync align --help`, and of merge, convert and check, with underscores;
/// options without a value take "true" or "false". Each call of nodes, snapshots, only and
/// suspended adds to the list. Clocks come from run_dir, offsets or from_collectives; with none of
/// them, times are used as they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_trace_options_set(
    options: *mut ps_trace_options,
    key: *const c_char,
    value: *const c_char,
) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (options, key, value) =
            unsafe { (borrowed_mut(options, "options")?, text(key, "key")?, text(value, "value")?) };
        options.set(key, value).map_err(|problem| Failure::new(PS_ERROR_OPTION, format!("{key} = {value}: {problem}")))
    })
}

/// Frees the settings (NULL is a no-op).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_trace_options_free(options: *mut ps_trace_options) {
    guard(|| {
        // SAFETY: the rule of the crate.
        drop(unsafe { taken_back(options) });
        Ok(())
    });
}

impl ps_trace_options {
    /// Returns the request of a call; rejects settings of other calls and settings that exclude
    /// each other.
    pub(super) fn request(&self, call: Call, traces: Vec<PathBuf>, outputs: Vec<PathBuf>) -> Result<Request, Failure> {
        let wrong = |text: String| Err(Failure::new(PS_ERROR_OPTION, text));
        let foreign = KEYS.iter().find(|key| self.has(key.name) && !key.calls.contains(&call));
        if let Some(key) = foreign {
            return wrong(format!("{} does not apply to {}; omit it", key.name, call.name()));
        }
        if let Some((one, other)) = EXCLUSIVE.iter().find(|(one, other)| self.has(one) && self.has(other)) {
            return wrong(format!("{one} and {other} exclude each other; omit one of them"));
        }
        if let Some((key, needed)) = NEEDED.iter().find(|(key, needed)| self.has(key) && !self.has(needed)) {
            return wrong(format!("{key} needs {needed}; set it too"));
        }
        if traces.is_empty() && !self.has("run_dir") {
            return Err(Failure::argument("no traces; give some, or set run_dir to a run that contains traces"));
        }
        let foreign_clocks = ["no_correction", "assume_order"].into_iter().find(|key| self.has(key));
        if let (true, Some(key)) = (traces.is_empty(), foreign_clocks) {
            return wrong(format!("{key} needs traces: those of run_dir are of known nodes and on known clocks"));
        }
        let mut request = Request { traces, outputs, ..self.request.clone() };
        request.assume_order = self.has("assume_order");
        request.realtime_only = self.has("realtime_only");
        request.skip_bad = self.has("skip_bad");
        request.merging = call == Call::Merge;
        if self.has("from_collectives") {
            request.clocks = ClockSource::Collectives;
        }
        if self.has("no_correction") {
            request = Request { clocks: ClockSource::Nothing, snapshots: Vec::new(), markers: None, ..request };
        }
        Ok(request)
    }

    /// Returns true if a key was set, and not to false.
    pub(super) fn has(&self, key: &str) -> bool {
        self.given.contains(&key)
    }

    pub(super) fn align(&self) -> AlignSettings {
        AlignSettings {
            annotate: self.has("annotate"),
            embed_snapshots: self.has("embed_snapshots"),
            repair: self.has("repair"),
        }
    }

    pub(super) fn merge(&self) -> MergeSettings {
        let track = || Arc::new(LateTrack { steps: self.filter.step_names.clone() }) as Arc<dyn AddedTrack>;
        MergeSettings {
            layout: self.layout,
            allow_uncalibrated: self.has("allow_uncalibrated") || self.has("no_correction"),
            annotate: self.has("annotate"),
            schema: self.schema.clone(),
            drop_foreign: self.has("drop_foreign"),
            repair: self.has("repair"),
            track: self.has("mark_late").then(track),
            filter: self.filter.clone(),
        }
    }

    pub(super) fn convert(&self) -> ConvertSettings {
        ConvertSettings {
            window: self.window.clone(),
            collective_flows: self.has("collective_flows"),
            machines: self.has("machines"),
            without_args: self.has("without_args"),
            as_they_are: self.has("no_correction"),
            group_by_queue: self.has("group_by_queue"),
            agent_index: self.agent_index,
        }
    }

    pub(super) fn csv(&self) -> CsvSettings {
        let (plain_columns, raw_cells) = (self.has("plain_columns"), self.has("raw_cells"));
        CsvSettings { agent_index: self.agent_index, plain_columns, raw_cells }
    }

    /// Returns the prefix of the names of converted files.
    pub(super) fn prefix(&self) -> &str {
        self.name.as_deref().unwrap_or("out")
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let key = KEYS.iter().find(|key| key.name == name);
        let key = key.ok_or("unknown key; see `probe_sync align --help`, and merge, convert and check")?;
        let is_on = match key.set {
            Set::Flag => boolean(value)?,
            Set::Value(set) => set(self, value).map(|()| true)?,
        };
        self.given.retain(|given| *given != key.name);
        self.given.extend(is_on.then_some(key.name));
        Ok(())
    }
}

/// A setting.
struct Key {
    name: &'static str,
    calls: &'static [Call],
    set: Set,
}

/// How a setting is stored.
enum Set {
    /// Only in the list of given keys.
    Flag,
    /// Parsed from its text.
    Value(fn(&mut ps_trace_options, &str) -> Result<(), String>),
}

const fn flag(name: &'static str, calls: &'static [Call]) -> Key {
    Key { name, calls, set: Set::Flag }
}

const fn value(
    name: &'static str,
    calls: &'static [Call],
    set: fn(&mut ps_trace_options, &str) -> Result<(), String>,
) -> Key {
    Key { name, calls, set: Set::Value(set) }
}

/// Stores a parsed value.
fn put<T, E: ToString>(place: &mut T, parsed: Result<T, E>) -> Result<(), String> {
    *place = parsed.map_err(|problem| problem.to_string())?;
    Ok(())
}

fn boolean(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "give true or false".to_owned())
}

fn cpu_clock(options: &mut ps_trace_options) -> &mut CpuClock {
    options.request.cpu_clock.get_or_insert_default()
}

/// All settings. Those of the clocks apply to every call.
const KEYS: &[Key] = &[
    value("nodes", EVERY, |to, text| {
        to.request.nodes.extend(NodeList::joined(&[text.parse()?]));
        Ok(())
    }),
    flag("assume_order", EVERY),
    value("run_dir", EVERY, |to, text| put(&mut to.request.clocks, Ok::<_, String>(ClockSource::Run(text.into())))),
    value("offsets", EVERY, |to, text| put(&mut to.request.clocks, Ok::<_, String>(ClockSource::Offsets(text.into())))),
    value("extrapolate", EVERY, |to, text| put(&mut to.request.extrapolate, probe_sync::config::duration(text))),
    value("snapshots", EVERY, |to, text| {
        to.request.snapshots.push(text.into());
        Ok(())
    }),
    value("snapshot_markers", EVERY, |to, text| put(&mut to.request.markers, regex::Regex::new(text).map(Some))),
    flag("realtime_only", EVERY),
    value("timeline", EVERY, |to, text| {
        let timelines = [("host", OutputClock::System), ("tracer", OutputClock::Tracer)];
        put(&mut to.request.timeline, one_of(text, &timelines))
    }),
    flag("from_collectives", EVERY),
    value("max_rate_change", EVERY, |to, text| put(&mut to.request.max_rate_change_ppm, text.parse().map(Some))),
    flag("skip_bad", EVERY),
    value("cpu_clock", EVERY, |to, text| {
        cpu_clock(to);
        one_of(text, &[("monotonic", ())])
    }),
    value("suspended", EVERY, |to, text| {
        let (host, time) = text.rsplit_once('=').map_or((None, text), |(host, time)| (Some(host), time));
        cpu_clock(to).add(host, probe_sync::config::duration(time)?)
    }),
    flag("annotate", &[Call::Align, Call::Merge]),
    flag("repair", &[Call::Align, Call::Merge]),
    flag("validate", &[Call::Align, Call::Merge]),
    flag("embed_snapshots", &[Call::Align]),
    value("ranks", MERGE, |to, text| put(&mut to.filter.ranks, text.parse().map(Some))),
    value("steps", MERGE, |to, text| put(&mut to.filter.steps, text.parse().map(Some))),
    value("from", MERGE, |to, text| put(&mut to.filter.from, text.parse())),
    value("to", MERGE, |to, text| put(&mut to.filter.to, text.parse())),
    value("only", MERGE, |to, text| to.filter.only.add(text)),
    value("max_size", MERGE, |to, text| match probe_sync::config::bytes(text)? {
        0 => Err("must be at least 1".to_owned()),
        bytes => put(&mut to.filter.bytes_max, Ok::<_, String>(Some(bytes))),
    }),
    value("step_name", MERGE, |to, text| put(&mut to.filter.step_names, text.parse())),
    flag("allow_uncalibrated", MERGE),
    value("plane_layout", MERGE, |to, text| {
        let layouts = [("xprof", PlaneLayout::Xprof), ("gpu-tracks", PlaneLayout::GpuTracks)];
        put(&mut to.layout, one_of(text, &layouts))
    }),
    value("schema", MERGE, |to, text| put(&mut to.schema, Ok::<_, String>(Some(text.to_owned())))),
    flag("drop_foreign", MERGE),
    flag("mark_late", MERGE),
    flag("no_correction", &[Call::Merge, Call::Convert]),
    value("output_file", CONVERT, |to, text| put(&mut to.name, Ok::<_, String>(Some(text.to_owned())))),
    value("start", CONVERT, |to, text| put(&mut to.window.start, text.parse())),
    value("end", CONVERT, |to, text| put(&mut to.window.end, text.parse())),
    value("start_marker", CONVERT, |to, text| {
        put(&mut to.window.start, Ok::<_, String>(Bound::Marker(text.to_owned())))
    }),
    value("end_marker", CONVERT, |to, text| put(&mut to.window.end, Ok::<_, String>(Bound::Marker(text.to_owned())))),
    value("inclusive", CONVERT, |to, text| put(&mut to.window.inclusive, boolean(text))),
    flag("group_by_queue", CONVERT),
    value("agent_index_value", CONVERT, |to, text| {
        let kinds = [
            ("absolute", AgentIndex::Absolute),
            ("relative", AgentIndex::Relative),
            ("type-relative", AgentIndex::TypeRelative),
        ];
        put(&mut to.agent_index, one_of(text, &kinds))
    }),
    flag("collective_flows", CONVERT),
    flag("machines", CONVERT),
    flag("without_args", CONVERT),
    flag("plain_columns", CONVERT),
    flag("raw_cells", CONVERT),
];

/// Returns the value with this name.
fn one_of<T: Copy>(text: &str, named: &[(&str, T)]) -> Result<T, String> {
    let found = named.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    found.ok_or_else(|| format!("give {}", named.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or ")))
}

const EVERY: &[Call] = &[Call::Align, Call::Merge, Call::Convert, Call::Check];
const MERGE: &[Call] = &[Call::Merge];
const CONVERT: &[Call] = &[Call::Convert];

/// Settings of which only one may be given.
const EXCLUSIVE: &[(&str, &str)] = &[
    ("run_dir", "offsets"),
    ("run_dir", "from_collectives"),
    ("offsets", "from_collectives"),
    ("no_correction", "from_collectives"),
    ("no_correction", "annotate"),
    ("nodes", "assume_order"),
    ("realtime_only", "snapshots"),
    ("realtime_only", "snapshot_markers"),
    ("start", "start_marker"),
    ("end", "end_marker"),
];

/// Settings that apply only together with another.
const NEEDED: &[(&str, &str)] =
    &[("max_rate_change", "from_collectives"), ("cpu_clock", "suspended"), ("suspended", "cpu_clock")];
