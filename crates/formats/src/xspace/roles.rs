//! The names of a plane that matter to the reader of facts, and the meaning they give to an event's
//! stats.
//!
//! `facts` fills [`Tables`] from a plane's metadata before it reads the plane's lines; it and
//! [`super::sift`] look up events in them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::FixedState;
use probe_sync_lines::{MarkToken, parse_mark_name};

use super::fields::event;
use super::names;
use super::outline::MetadataVisitor;
use super::plane_clock::PlaneClock;
use super::stat::{Stat, StatValue};
use crate::model::{CollectiveKind, Reach};
use crate::protobuf::{Fault, Fields, Value};
use crate::stated::{COLLECTIVE_CATEGORY, COLLECTIVE_NAME, Stated};
use crate::{FactOptions, rank_marker};

/// Meaning of events with a given name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Role {
    /// A marker whose name or stats state the system time.
    Marker(Option<i64>),
    /// An event between two readings of the system clock: its process and its number.
    Mark(MarkToken, u64),
    /// A host operation of this name.
    Operation(String, CollectiveKind),
    /// A kernel of a collectives library.
    Kernel(String, CollectiveKind),
    /// A kernel that may belong to a collective operation.
    PerhapsKernel(String),
    /// On the host: execution of a program.
    Execute,
    /// On the host: start of a run.
    Run,
    /// On the host: position of a device among those of an operation.
    Clique,
    /// On the host: launch of a kernel that waits for it.
    Launch,
}

impl Role {
    /// Name and kind of the collective that an event with this role and these stats is part of, if
    /// any.
    pub(super) fn collective(&self, stats: &EventStats) -> Option<(&String, CollectiveKind)> {
        match self {
            // XLA's own events state their operation; others that happen to bear such a name do
            // not.
            Role::Operation(name, kind) if stats.hlo_op.is_some() => Some((name, kind.clone())),
            Role::Kernel(name, kind) => Some((name, kind.clone())),
            Role::PerhapsKernel(name) => Some((name, names::kernel_kind(name, stats.hlo_op.as_deref())?)),
            Role::Operation(..) | Role::Marker(_) | Role::Mark(..) => None,
            Role::Execute | Role::Run | Role::Clique | Role::Launch => None,
        }
    }
}

/// The names of a plane that matter.
pub(super) struct Tables<'a> {
    options: &'a FactOptions,
    pub(super) plane: String,
    pub(super) clock: PlaneClock,
    pub(super) roles: HashMap<u64, Role, FixedState>,
    /// Candidates until the plane's name shows that it is a device.
    names: Vec<(u64, String)>,
    stats: HashMap<u64, String, FixedState>,
    /// Some stat says which events of a host plane are parts of operations.
    stating: bool,
    /// Names of kernels of earlier planes that wait for their launches.
    kernels: Arc<HashSet<String>>,
    kept_bytes: usize,
    pub(super) dropped: u64,
    /// The rank stated by a marker: no profiler that writes this format states it.
    pub(super) rank: Option<(u32, u32)>,
    /// Range of the plane's plausible times; `None`: not known yet, or all.
    pub(super) reach: Option<Reach>,
}

impl<'a> Tables<'a> {
    pub(super) fn new(options: &'a FactOptions, kernels: Arc<HashSet<String>>) -> Tables<'a> {
        let (roles, stats) = (HashMap::default(), HashMap::default());
        let (plane, clock, names) = (String::new(), PlaneClock::default(), Vec::new());
        let (stating, kept_bytes, dropped, rank) = (false, 0, 0, None);
        Tables { options, plane, clock, roles, names, stats, stating, kernels, kept_bytes, dropped, rank, reach: None }
    }

    /// Whether a name of this length still fits.
    fn admit(&mut self, name: &str) -> bool {
        // A map's entry costs its key and value beside the text.
        self.kept_bytes += name.len() + 64;
        let fits = self.kept_bytes <= NAME_BYTES_MAX;
        self.dropped += u64::from(!fits);
        fits
    }

    /// Whether the plane is that of a GPU which XLA has traced.
    pub(super) fn is_gpu(&self) -> bool {
        self.plane.starts_with(GPU_PREFIX)
    }

    /// The number in a device plane's name.
    pub(super) fn ordinal(&self) -> Option<u64> {
        let name = self.plane.strip_prefix("/device:")?;
        let (_, numbered) = name.split_once(':')?;
        let digits = numbered.bytes().take_while(u8::is_ascii_digit).count();
        numbered[..digits].parse().ok()
    }

    /// Whether the plane is a device's.
    pub(super) fn is_device(&self) -> bool {
        self.plane.starts_with("/device:")
    }

    /// Classifies all names once they are known.
    pub(super) fn classify(&mut self) {
        // Kernels of any name may belong to a collective operation, but only where operations of
        // such a name exist.
        let has_operations = self.stats.values().any(|name| names::operation_kind(name).is_some());
        let is_device = self.is_device();
        self.stating = !is_device && self.stats.values().any(|name| name == COLLECTIVE_NAME);
        for (number, name) in std::mem::take(&mut self.names) {
            let role = if is_device {
                match names::kernel_kind(&name, None) {
                    Some(kind) => Some(Role::Kernel(name, kind)),
                    None => has_operations.then_some(Role::PerhapsKernel(name)),
                }
            } else {
                match names::operation_kind(&name) {
                    Some(kind) => Some(Role::Operation(name, kind)),
                    None => self.launching(&name),
                }
            };
            if let Some(role) = role {
                self.roles.insert(number, role);
            }
        }
    }

    /// Whether an event states that it is a part of an operation.
    #[inline]
    pub(super) fn states(&self, bytes: &[u8]) -> bool {
        if !self.stating {
            return false;
        }
        // A name may have several numbers.
        let of_stat = |inner: &[u8]| Stat::parse(inner).is_ok_and(|stat| self.stat(stat.number) == COLLECTIVE_NAME);
        Fields::of(bytes).map_while(Result::ok).any(|field| match (field.number, field.value) {
            (event::STATS, Value::Bytes(inner)) => of_stat(inner),
            _ => false,
        })
    }

    /// What a name of the host's says about waiting kernels, if anything.
    fn launching(&self, name: &str) -> Option<Role> {
        if self.kernels.is_empty() {
            return None;
        }
        match name {
            CLIQUE => Some(Role::Clique),
            RENDEZVOUS => Some(Role::Run),
            _ if name.contains(EXECUTE) => Some(Role::Execute),
            _ => self.kernels.contains(name).then_some(Role::Launch),
        }
    }

    /// The marker that a name makes, if it does.
    fn marker(&self, name: &str) -> Option<Role> {
        if let Some((token, number)) = parse_mark_name(name.as_bytes()) {
            return Some(Role::Mark(token, number));
        }
        if name == DATA_SET_MARKER || name == OWN_MARKER {
            return Some(Role::Marker(None));
        }
        if let Some(stated) = name.strip_prefix(OWN_MARKER).and_then(|rest| rest.strip_prefix('#')) {
            return Some(Role::Marker(stated.parse().ok()));
        }
        let captures = self.options.markers.as_ref()?.captures(name)?;
        Some(Role::Marker(captures.name("system_ns").and_then(|stated| stated.as_str().parse().ok())))
    }

    /// The name of a stat.
    fn stat(&self, number: u64) -> &str {
        self.stats.get(&number).map_or("", String::as_str)
    }
}

impl MetadataVisitor for Tables<'_> {
    fn name(&mut self, name: &str) {
        name.clone_into(&mut self.plane);
    }

    fn event_metadata(&mut self, number: u64, name: &str) {
        if name.starts_with(END_PREFIX) {
            return;
        }
        self.rank = self.rank.or_else(|| rank_marker(name.as_bytes()));
        if let Some(role) = self.marker(name) {
            if self.admit(name) {
                self.roles.insert(number, role);
            }
            return;
        }
        // The plane's name stands before its metadata in every real file; where it does not, names
        // of both sorts are kept.
        let of_host = || names::operation_kind(name).is_some() || self.launching(name).is_some();
        let possible = self.plane.is_empty() || self.is_device() || of_host();
        if possible && self.admit(name) {
            self.names.push((number, name.to_owned()));
        }
    }

    fn stat_metadata(&mut self, number: u64, name: &str) {
        if self.admit(name) {
            self.stats.insert(number, name.to_owned());
        }
    }
}

/// The stats of an interesting event.
#[derive(Default)]
pub(super) struct EventStats {
    pub(super) hlo_op: Option<String>,
    pub(super) hlo_module: Option<String>,
    pub(super) module_name: Option<String>,
    /// The number of a run, if all processes share it.
    pub(super) run_id: Option<i64>,
    pub(super) program_id: Option<u64>,
    pub(super) device: Option<u64>,
    pub(super) correlation: Option<i64>,
    /// A device's number in its process, its place in a clique, and the clique.
    pub(super) clique: (Option<u64>, Option<u64>, Option<String>),
    pub(super) system_ns: Option<i64>,
    pub(super) tracer_ns: Option<u64>,
    pub(super) bracket_ns: Option<f64>,
}

/// Reads the stats of an event that matter.
pub(super) fn event_stats(bytes: &[u8], tables: &Tables<'_>) -> Result<EventStats, Fault> {
    let mut found = EventStats::default();
    for field in Fields::of(bytes) {
        let field = field?;
        let (event::STATS, Value::Bytes(inner)) = (field.number, field.value) else {
            continue;
        };
        let stat = Stat::parse(inner).map_err(|fault| fault.within(field.value_at))?;
        let number = || stat_number(&stat, tables);
        match tables.stat(stat.number) {
            "hlo_op" => found.hlo_op = stat_text(&stat, tables),
            "hlo_module" => found.hlo_module = stat_text(&stat, tables),
            "module_name" => found.module_name = stat_text(&stat, tables),
            "run_id" => found.run_id = number().filter(|run| run.unsigned_abs() >= COUNTERS_BELOW),
            "program_id" => found.program_id = number().map(|value| value as u64),
            "device_ordinal" => found.device = number().map(|value| value as u64),
            "correlation_id" => found.correlation = number(),
            "device" => found.clique.0 = number().map(|value| value as u64),
            "rank" => found.clique.1 = number().map(|value| value as u64),
            "clique_key" => found.clique.2 = stat_text(&stat, tables),
            "system_ns" | "node_ns" => found.system_ns = number(),
            "rocm_ns" | "tracer_ns" => found.tracer_ns = number().and_then(|value| u64::try_from(value).ok()),
            "bracket_ns" => found.bracket_ns = number().map(|value| value as f64),
            _ => {}
        }
    }
    Ok(found)
}

/// What an event states about an operation; `None` if no recorder marks it as part of one: calls
/// that only enqueue state as much.
pub(super) fn stated(bytes: &[u8], tables: &Tables<'_>) -> Result<Option<Stated<'static>>, Fault> {
    let (mut stated, mut is_part) = (Stated::default(), false);
    for field in Fields::of(bytes) {
        let field = field?;
        let (event::STATS, Value::Bytes(inner)) = (field.number, field.value) else {
            continue;
        };
        let stat = Stat::parse(inner).map_err(|fault| fault.within(field.value_at))?;
        let name = tables.stat(stat.number);
        if name == CATEGORY {
            is_part = stat_text(&stat, tables).is_some_and(|category| category == COLLECTIVE_CATEGORY);
        } else if let Some(place) = stated.place(name) {
            let number = || stat_number(&stat, tables).map(|number| number.to_string());
            *place = stat_text(&stat, tables).or_else(number).unwrap_or_default().into();
        }
    }
    Ok(is_part.then_some(stated))
}

/// A stat's value as text.
fn stat_text(stat: &Stat<'_>, tables: &Tables<'_>) -> Option<String> {
    match stat.value {
        StatValue::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        StatValue::Reference(number) => tables.stats.get(&number).cloned(),
        StatValue::Number(_) | StatValue::Other => None,
    }
}

/// A stat's value as a number; annotations made from text may be digits.
fn stat_number(stat: &Stat<'_>, tables: &Tables<'_>) -> Option<i64> {
    match stat.value {
        StatValue::Number(value) => Some(value as i64),
        StatValue::Text(_) | StatValue::Reference(_) => stat_text(stat, tables)?.parse().ok(),
        StatValue::Other => None,
    }
}

/// If several processes run one program, XLA derives the number of a run from the program and its
/// number of runs, which all of them share. Smaller numbers are counts within a process, which say
/// nothing about another.
const COUNTERS_BELOW: u64 = 1 << 20;
/// The stat of an event's category.
const CATEGORY: &str = "category";
/// Prefix of the names of GPU planes.
const GPU_PREFIX: &str = "/device:GPU:";
/// The host takes part in a clique of devices.
const CLIQUE: &str = "AcquireGpuClique";
/// The host has initialised all that a run needs.
const RENDEZVOUS: &str = "RendezvousAfterInitialization";
/// Part of the names of events that run programs.
const EXECUTE: &str = "Execut";
/// Bytes of names that are kept of one plane at most.
const NAME_BYTES_MAX: usize = 48 << 20;
/// The name of this project's own markers.
const OWN_MARKER: &str = "probe_sync.clock";
/// Markers of the data sets, which state true and system time.
const DATA_SET_MARKER: &str = "clkmark";
/// Prefix of the name of an event that only marks another's end.
const END_PREFIX: &str = "end: ";
