//! The results from traces: how alignment moves events, which edges of their collectives hold
//! before and after, and which ranks were late.
//!
//! The results come from `alignment` and `analysis` and are added to a run's page. A rank's
//! lateness in an operation is its arrival minus the median arrival of all ranks in it. If a column
//! covers several operations (a step, or a bucket of operations if steps are unknown or too many),
//! it shows the median of these and the sum of its waits. Step numbers need not be in chronological
//! order, so columns are ordered by their start. It does not name a rank whose lateness is within
//! the clocks' uncertainty (`analysis::lateness`).

use std::collections::{BTreeMap, HashMap};

use probe_sync_alignment::{Calibrated, CalibratedTrace, Outcome, Verdict};
use probe_sync_analysis::{LateInstance, Lateness, lost_ns};
use probe_sync_estimate::statistics::{SIGMAS_95, median};
use probe_sync_formats::words::counted;
use serde::Serialize;

use crate::number::Number;
use crate::quantity::{signed, unsigned};
use crate::table::Table;
use crate::verdict::Sentence;

/// Results from traces on the page.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    pub(crate) verdict: Vec<Sentence>,
    pub(crate) notes: Vec<String>,
    pub(crate) tables: Vec<Table>,
    pub(crate) data: TraceData,
}

/// Data of the charts about traces.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct TraceData {
    /// Edges and violated ones: as recorded, `None` if there is nothing to compare, and after
    /// alignment.
    pub edges: [Option<[usize; 2]>; 2],
    /// Rows of the map.
    pub ranks: Vec<u32>,
    /// Omitted ranks: those that lost least.
    pub ranks_left_out: usize,
    /// Columns of the map, in order of time.
    pub columns: Vec<Column>,
    /// Lateness by rank, then column, ns.
    pub late_ns: Vec<Vec<Number>>,
    /// Waiting time by rank, then column, ns.
    pub waited_ns: Vec<Vec<Number>>,
    /// The operations with the longest waits.
    pub operations: Vec<Arrivals>,
}

/// A column of the map.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Column {
    /// `step 7`, `steps 7 to 9`, `operation 3`.
    pub label: String,
    /// Start, s since the first.
    pub t: Number,
    /// Median spread of its operations, ns.
    pub spread_ns: Number,
    /// Time lost to named ranks, ns.
    pub lost_ns: Number,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Arrivals {
    /// Name, instance and step.
    pub name: String,
    /// The last rank, in words.
    pub last: String,
    /// By rank: rank, arrival since the first, ns, and half-width of its 95 % interval, ns.
    pub ranks: Vec<(u32, Number, Number)>,
}

impl Traces {
    /// From traces with known clocks, with the check of their collectives; `lateness` is an error
    /// with the reason if nothing could be compared.
    pub fn new(calibrated: &Calibrated, verdict: &Verdict<'_>, lateness: Result<&Lateness, String>) -> Self {
        let mut traces = Self::default();
        traces.verdict.push(edges_in_words(verdict));
        traces.tables.push(moved(&calibrated.traces));
        traces.tables.push(edges(verdict));
        let counts = |report: &probe_sync_alignment::CheckReport| [report.edges, report.broken];
        traces.data.edges = [verdict.before.as_ref().map(counts), Some(counts(&verdict.result))];
        match lateness {
            Ok(lateness) => traces.add_lateness(lateness),
            Err(reason) => traces.notes.push(format!("Stragglers are not shown: {reason}")),
        }
        traces
    }

    fn add_lateness(&mut self, lateness: &Lateness) {
        self.verdict.extend(stragglers(lateness));
        self.tables.push(ranks(lateness));
        self.tables.push(operations(lateness));
        self.notes.extend(lateness.notes.iter().cloned());
        map(lateness, &mut self.data);
        self.data.operations = longest(lateness);
    }
}

fn edges_in_words(verdict: &Verdict<'_>) -> Sentence {
    let result = &verdict.result;
    let after = format!("{} of {}", result.broken, result.edges);
    let text = match &verdict.before {
        _ if result.edges == 0 => {
            return Sentence::plain(
                "The traces share no collective whose parts can be matched with certainty, so nothing was checked.",
            );
        }
        Some(before) => format!(
            "{} of {} happens-before edges of the collectives are broken as recorded, {after} after alignment.",
            before.broken, before.edges
        ),
        None => format!("{after} happens-before edges of the collectives are broken; the traces were not aligned."),
    };
    let explained = match result.broken {
        0 => String::new(),
        _ => format!(" {} of them are within the clocks' uncertainty.", result.explained),
    };
    let unjudged = match verdict.outcome() {
        Outcome::Incomplete => format!(" {} could not be checked.", result.unjudged()),
        _ => String::new(),
    };
    let mood = matches!(verdict.outcome(), Outcome::Holds);
    Sentence::of(mood, format!("{text}{explained}{unjudged}"))
}

/// Ranks that are late repeatedly, as far as the clocks tell.
fn stragglers(lateness: &Lateness) -> Vec<Sentence> {
    if lateness.instances.is_empty() {
        return Vec::new();
    }
    if !lateness.warnings.is_empty() {
        return lateness.warnings.iter().map(Sentence::bad).collect();
    }
    let mut said: Vec<Sentence> = lateness.missing().map(Sentence::bad).into_iter().collect();
    let unknown = lateness.lead_sigma_median_ns.is_some_and(f64::is_infinite);
    let is_open = unknown || lateness.instances.iter().all(|instance| instance.missing > 0);
    for straggler in lateness.stragglers.iter().take(STRAGGLERS_MAX) {
        let who = match straggler.rank {
            Some(rank) => format!("Rank {rank} on {}", straggler.host),
            None => format!("All of host {}", straggler.host),
        };
        let what = if lateness.steps.is_empty() { "operations" } else { "steps" };
        said.push(Sentence::bad(format!(
            "{who} was late in {} of {} {what}, which cost {}; at median speed, the job would have saved {} ({:.1} %).",
            straggler.times,
            straggler.of,
            unsigned(straggler.lost_ns as f64),
            unsigned(straggler.saved_ns as f64),
            100.0 * straggler.saved_share
        )));
    }
    if lateness.stragglers.is_empty() && !is_open {
        let certain = lateness.lead_sigma_median_ns.map_or_else(String::new, |ns| {
            format!(" The uncertainty of leads is ±{} (95 %).", unsigned(SIGMAS_95 * ns))
        });
        said.push(Sentence::good(format!("No rank was consistently late to the collectives.{certain}")));
    }
    said
}

/// The effect of alignment on each trace.
fn moved(traces: &[CalibratedTrace]) -> Table {
    let mut table = Table::new(
        "Corrections by alignment",
        &["trace", "node", "at its first event", "at its last event", "±95 % first", "±95 % last"],
    );
    let row = |of: &CalibratedTrace| {
        // The path is this machine's.
        let name = of.trace.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut cells = vec![name, of.trace.name.clone()];
        let ends = of.map.as_ref().zip(of.trace.facts.span);
        cells.extend(match ends {
            Some((map, (first, last))) => {
                let mapped = [first, last].map(|time| (time, map.map(time)));
                let by = mapped.map(|(time, to)| signed((to.time_ps - time) as f64 * 1e-3));
                by.into_iter().chain(mapped.map(|(_, to)| unsigned(SIGMAS_95 * to.sigma_ns))).collect()
            }
            None if of.map.is_some() => vec!["none".to_owned(); 4],
            None => ["left on its own clock", "", "", ""].map(str::to_owned).to_vec(),
        });
        cells
    };
    table.rows = traces.iter().take(ROWS_MAX).map(row).collect();
    table
}

fn edges(verdict: &Verdict<'_>) -> Table {
    let mut table =
        Table::new("Happens-before edges of collectives", &["times", "edges", "broken", "within uncertainty", "worst"]);
    let mut row = |what: &str, report: &probe_sync_alignment::CheckReport| {
        let worst = if report.broken > 0 { unsigned(report.worst_ns) } else { "none".into() };
        let [edges, broken, explained] = [report.edges, report.broken, report.explained].map(|count| count.to_string());
        table.rows.push(vec![what.to_owned(), edges, broken, explained, worst]);
    };
    if let Some(before) = &verdict.before {
        row("as recorded", before);
    }
    row(if verdict.before.is_some() { "after alignment" } else { "unchanged" }, &verdict.result);
    table
}

fn ranks(lateness: &Lateness) -> Table {
    let mut table = Table::new(
        "Ranks by lost time",
        &[
            "rank",
            "host",
            "operations",
            "times last",
            "time lost",
            "share of steps",
            "waited for others",
            "median lateness",
        ],
    );
    table.rows = lateness
        .ranks
        .iter()
        .take(ROWS_MAX)
        .map(|of| {
            vec![
                of.rank.to_string(),
                of.host.clone(),
                of.instances.to_string(),
                of.last_range(),
                unsigned(of.lost_ns as f64),
                format!("{:.2} %", 100.0 * of.lost_share),
                unsigned(of.waited_ns as f64),
                signed(of.late_by_median_ns as f64),
            ]
        })
        .collect();
    table
}

fn operations(lateness: &Lateness) -> Table {
    let header = ["operation", "count", "last rank named", "most often last", "median spread", "median transfer"];
    let mut table = Table::new("Operations", &header);
    table.rows = lateness
        .operations
        .iter()
        .take(ROWS_MAX)
        .map(|of| {
            let most = of
                .most_often_last
                .map_or_else(|| "none".into(), |rank| format!("rank {rank}, {}", counted(of.times, "time")));
            vec![
                of.name.clone(),
                of.instances.to_string(),
                of.named.to_string(),
                most,
                unsigned(of.spread_median_ns as f64),
                signed(of.transfer_median_ns as f64),
            ]
        })
        .collect();
    table
}

/// The operations of one column.
struct Group<'a> {
    label: String,
    instances: Vec<&'a LateInstance>,
    start_ns: i64,
}

/// Rank by step, or by bucket of operations.
fn map(lateness: &Lateness, data: &mut TraceData) {
    let groups = bucketed(groups(lateness));
    let Some(begin) = groups.iter().map(|group| group.start_ns).min() else { return };
    data.ranks = lateness.ranks.iter().map(|line| line.rank).take(RANKS_MAX).collect();
    data.ranks.sort_unstable();
    data.ranks_left_out = lateness.ranks.len() - data.ranks.len();
    let rows: HashMap<u32, usize> = data.ranks.iter().enumerate().map(|(row, rank)| (*rank, row)).collect();
    data.late_ns = vec![vec![Number::NONE; groups.len()]; data.ranks.len()];
    data.waited_ns = data.late_ns.clone();
    for (place, group) in groups.iter().enumerate() {
        let mut late: BTreeMap<usize, (Vec<f64>, f64)> = BTreeMap::new();
        for instance in &group.instances {
            let middle = median(instance.arrivals.iter().map(|of| (of.arrival_ns - instance.first_arrival_ns) as f64));
            for of in &instance.arrivals {
                if let Some(row) = rows.get(&of.rank) {
                    let (lateness, waited) = late.entry(*row).or_default();
                    lateness.push((of.arrival_ns - instance.first_arrival_ns) as f64 - middle);
                    *waited += of.wait_ns as f64;
                }
            }
        }
        for (row, (lateness, waited)) in late {
            data.late_ns[row][place] = Number(median(lateness).round());
            data.waited_ns[row][place] = Number(waited);
        }
    }
    let column = |group: &Group<'_>| Column {
        label: group.label.clone(),
        t: Number(((group.start_ns - begin) as f64 * 1e-3).round() * 1e-6),
        spread_ns: Number(median(group.instances.iter().map(|of| of.spread_ns as f64)).round()),
        lost_ns: Number(lost_ns(&group.instances) as f64),
    };
    data.columns = groups.iter().map(column).collect();
}

/// One group for each step or, if steps are unknown, for each operation, in order of time.
fn groups(lateness: &Lateness) -> Vec<Group<'_>> {
    let starts: HashMap<i64, i64> = lateness.steps.iter().map(|step| (step.step, step.start_ns)).collect();
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut of_step: HashMap<i64, usize> = HashMap::new();
    for (number, instance) in lateness.instances.iter().enumerate() {
        let Some(step) = instance.step.filter(|_| !starts.is_empty()) else {
            if starts.is_empty() {
                let label = format!("operation {}", number + 1);
                groups.push(Group { label, instances: vec![instance], start_ns: instance.first_arrival_ns });
            }
            continue;
        };
        let place = *of_step.entry(step).or_insert_with(|| {
            let start_ns = starts.get(&step).copied().unwrap_or(instance.first_arrival_ns);
            groups.push(Group { label: format!("step {step}"), instances: Vec::new(), start_ns });
            groups.len() - 1
        });
        groups[place].instances.push(instance);
    }
    groups.sort_by_key(|group| group.start_ns);
    groups
}

/// Neighbours share a column if there are too many.
fn bucketed(groups: Vec<Group<'_>>) -> Vec<Group<'_>> {
    let each = groups.len().div_ceil(COLUMNS_MAX).max(1);
    if each == 1 {
        return groups;
    }
    let mut buckets: Vec<Group<'_>> = Vec::new();
    for (number, group) in groups.into_iter().enumerate() {
        match buckets.last_mut().filter(|_| !number.is_multiple_of(each)) {
            Some(bucket) => {
                let begin = bucket.label.split(" to ").next().unwrap_or_default().to_owned();
                bucket.label = format!("{begin} to {}", group.label);
                bucket.instances.extend(group.instances);
            }
            None => buckets.push(group),
        }
    }
    buckets
}

/// The operations in which ranks waited longest.
fn longest(lateness: &Lateness) -> Vec<Arrivals> {
    let mut instances: Vec<&LateInstance> = lateness.instances.iter().collect();
    instances.sort_by_key(|of| std::cmp::Reverse(of.spread_ns));
    let arrivals = |of: &LateInstance| Arrivals {
        name: match of.step {
            Some(step) => format!("{}, {}, step {step}", of.name, of.instance),
            None => format!("{}, {}", of.name, of.instance),
        },
        last: match of.last_rank {
            Some(rank) => {
                format!(
                    "rank {rank} came last, {} ±{} after the others",
                    unsigned(of.lead_ns as f64),
                    unsigned(SIGMAS_95 * of.lead_sigma_ns)
                )
            }
            None if of.missing > 0 => format!("{} without data may have been last", counted(of.missing, "rank")),
            None if of.latest_rank.is_none() => "no rank had to wait".to_owned(),
            None => "the clocks are not accurate enough to tell which rank came last".to_owned(),
        },
        ranks: of
            .arrivals
            .iter()
            .take(ARRIVALS_MAX)
            .map(|line| {
                let since = (line.arrival_ns - of.first_arrival_ns) as f64;
                (line.rank, Number(since), Number::tenth(SIGMAS_95 * line.sigma_ns))
            })
            .collect(),
    };
    instances.into_iter().take(OPERATIONS_SHOWN).map(arrivals).collect()
}

const ROWS_MAX: usize = 200;
const STRAGGLERS_MAX: usize = 5;
/// Rows and columns of the map: some forty thousand cells.
const RANKS_MAX: usize = 128;
const COLUMNS_MAX: usize = 300;
/// Operations whose arrivals are drawn, and ranks of each.
const OPERATIONS_SHOWN: usize = 20;
const ARRIVALS_MAX: usize = 256;
