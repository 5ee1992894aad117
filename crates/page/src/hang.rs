//! Who stopped the job, on the page: the verdict of `probe_sync hang`, the graph of who waits for
//! whom, and the last operations of the ranks.
//!
//! Ranks that wait in the same operation for the same ranks share a box, so that the graph of a
//! thousand ranks has a few boxes.

use std::collections::{BTreeMap, BTreeSet};

use probe_sync_hang::{Certainty, Job, Timeline, Verdict};

use crate::table::Table;
use crate::verdict::Sentence;

/// The section on a hung job.
#[derive(Clone, Debug)]
pub struct Hang {
    pub(crate) verdict: Vec<Sentence>,
    pub(crate) lines: Vec<String>,
    pub(crate) graph: Graph,
    pub(crate) chart: Option<Chart>,
    pub(crate) members: Table,
    pub(crate) notes: Vec<String>,
}

/// Boxes of ranks, and arrows from those that wait to those they wait for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub width: u32,
    pub height: u32,
    pub boxes: Vec<RankBox>,
    pub arrows: Vec<Arrow>,
    pub left_out: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct RankBox {
    pub x: u32,
    pub y: u32,
    pub class: &'static str,
    pub title: String,
    pub ranks: String,
    pub operation: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Arrow {
    pub x1: u32,
    pub y1: u32,
    pub x2: u32,
    pub y2: u32,
}

/// The last operations: a row per rank.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub height: u32,
    pub rows: Vec<Row>,
    pub span: String,
    pub one_clock: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub label: String,
    pub class: &'static str,
    pub y: u32,
    pub marks: Vec<Mark>,
}

#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub x: u32,
    /// Up to the end for an operation that has not finished.
    pub width: u32,
    pub class: &'static str,
    pub title: String,
}

impl Hang {
    /// Creates the section from a judged job.
    pub fn new(job: &Job, verdict: &Verdict, clocks: &probe_sync_hang::Clocks) -> Self {
        let causes = verdict.causes.iter();
        let sentences = causes.take(CAUSES_MAX).map(|cause| Sentence::bad(format!("The job stopped: {cause}.")));
        let mut sentences: Vec<Sentence> = sentences.collect();
        if sentences.is_empty() {
            sentences.push(Sentence::plain("The dumps of the job do not show which rank stopped it."));
        }
        let guilty: Vec<u32> = verdict.causes.iter().flat_map(|cause| cause.ranks.iter().copied()).collect();
        let shown = shown(&guilty, verdict);
        Self {
            verdict: sentences,
            lines: verdict.text().lines().map(str::to_owned).collect(),
            graph: Graph::new(verdict),
            chart: Chart::new(&job.timeline(&shown, clocks), &guilty),
            members: members(verdict),
            notes: Vec::new(),
        }
    }

    /// Adds a note on what was left out.
    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }
}

/// The guilty ranks, and some of those that wait.
fn shown(guilty: &[u32], verdict: &Verdict) -> Vec<u32> {
    let others: Vec<u32> =
        verdict.waiting.iter().map(|waiting| waiting.rank).filter(|rank| !guilty.contains(rank)).collect();
    let room = ROWS_MAX.saturating_sub(guilty.len().min(ROWS_MAX));
    let every = others.len().div_ceil(room.max(1)).max(1);
    let some = others.into_iter().step_by(every).take(room);
    guilty.iter().copied().take(ROWS_MAX).chain(some).collect()
}

fn members(verdict: &Verdict) -> Table {
    let caption = verdict
        .stopped_at
        .as_ref()
        .map_or_else(|| "Members".to_owned(), |stop| format!("Members of {}", stop.group_name()));
    let mut table = Table::new(&caption, &["rank", "state", "stack"]);
    let Some(stop) = &verdict.stopped_at else { return table };
    let stacks: BTreeMap<u32, String> =
        verdict.stacks.iter().map(|stack| (stack.rank, stack.frames.join(" ← "))).collect();
    let mut members = stop.members.clone();
    members.sort_unstable();
    // Those that are not waiting come first in a long list.
    members.sort_by_key(|rank| stop.waiting.contains(rank));
    for rank in members.into_iter().take(MEMBERS_MAX) {
        let state = match rank {
            rank if stop.waiting.contains(&rank) => "waits",
            rank if stop.unknown.contains(&rank) => "not known",
            rank if stop.missing.contains(&rank) => "never enqueued it",
            _ => "has finished it",
        };
        table.rows.push(vec![rank.to_string(), state.to_owned(), stacks.get(&rank).cloned().unwrap_or_default()]);
    }
    table
}

/// Ranks that share a box.
struct Node<'a> {
    ranks: BTreeSet<u32>,
    /// How certain it is that they are the cause, if they may be.
    certainty: Option<Certainty>,
    operation: &'a str,
    waits_for: &'a [u32],
}

impl Graph {
    fn new(verdict: &Verdict) -> Self {
        // What the ranks of a box share: the operation, and for whom it waits.
        let mut waiting: BTreeMap<(&str, &[u32]), Vec<u32>> = BTreeMap::new();
        for wait in &verdict.waiting {
            waiting.entry((&wait.operation, &wait.waits_for)).or_default().push(wait.rank);
        }
        let mut nodes: Vec<Node<'_>> = Vec::new();
        for cause in &verdict.causes {
            let (ranks, certainty) = (cause.ranks.iter().copied().collect(), Some(cause.certainty));
            nodes.push(Node { ranks, certainty, operation: "", waits_for: &[] });
        }
        for ((operation, waits_for), ranks) in waiting {
            nodes.push(Node { ranks: ranks.into_iter().collect(), certainty: None, operation, waits_for });
        }
        let links = |from: usize| -> Vec<usize> {
            let wanted: BTreeSet<u32> = nodes[from].waits_for.iter().copied().collect();
            let is_target = |at: &usize| *at != from && !nodes[*at].ranks.is_disjoint(&wanted);
            (0..nodes.len()).filter(is_target).collect()
        };
        let links: Vec<Vec<usize>> = (0..nodes.len()).map(links).collect();
        let columns = columns(&links, verdict.causes.len());
        let mut filled: BTreeMap<usize, u32> = BTreeMap::new();
        let mut graph = Self { left_out: nodes.len().saturating_sub(BOXES_MAX), ..Self::default() };
        for (at, Node { ranks, operation, certainty, .. }) in nodes.iter().enumerate().take(BOXES_MAX) {
            let row = filled.entry(columns[at]).or_default();
            let ranks: Vec<u32> = ranks.iter().copied().collect();
            graph.boxes.push(RankBox {
                x: MARGIN + columns[at] as u32 * (BOX_WIDTH + GAP),
                y: MARGIN + *row * (BOX_HEIGHT + MARGIN),
                class: match certainty {
                    Some(Certainty::Undecided) => "candidate",
                    Some(_) => "guilty",
                    None => "waits",
                },
                title: format!("{} {operation}", probe_sync_hang::ranks(&ranks)),
                ranks: short(&probe_sync_hang::ranks(&ranks), 30),
                operation: if operation.is_empty() {
                    "cause".to_owned()
                } else {
                    short(&format!("in {operation}"), 36)
                },
            });
            *row += 1;
        }
        for (from, targets) in links.iter().enumerate().take(BOXES_MAX) {
            for to in targets.iter().filter(|to| **to < BOXES_MAX && columns[**to] < columns[from]) {
                let (a, b) = (&graph.boxes[from], &graph.boxes[*to]);
                graph.arrows.push(Arrow {
                    x1: a.x,
                    y1: a.y + BOX_HEIGHT / 2,
                    x2: b.x + BOX_WIDTH,
                    y2: b.y + BOX_HEIGHT / 2,
                });
            }
        }
        graph.width = graph.boxes.iter().map(|one| one.x + BOX_WIDTH + MARGIN).max().unwrap_or(0);
        graph.height = graph.boxes.iter().map(|one| one.y + BOX_HEIGHT + MARGIN).max().unwrap_or(0);
        graph
    }
}

/// The column of each box: its distance from the causes, which are the first `causes` boxes.
fn columns(links: &[Vec<usize>], causes: usize) -> Vec<usize> {
    let mut columns: Vec<Option<usize>> = (0..links.len()).map(|at| (at < causes).then_some(0)).collect();
    for column in 1..=links.len() {
        let next: Vec<usize> = (0..links.len())
            .filter(|at| columns[*at].is_none() && links[*at].iter().any(|to| columns[*to] == Some(column - 1)))
            .collect();
        if next.is_empty() {
            break;
        }
        next.into_iter().for_each(|at| columns[at] = Some(column));
    }
    // Boxes from which no cause is reached stand alone.
    let last = columns.iter().flatten().max().map_or(0, |last| last + 1);
    columns.into_iter().map(|column| column.unwrap_or(last)).collect()
}

impl Chart {
    fn new(timeline: &Timeline, guilty: &[u32]) -> Option<Self> {
        let times = || timeline.ranks.iter().flat_map(|rank| &rank.operations).map(|operation| operation.at_ns);
        let end = times().max()?;
        let begin = times().min()?.max(end.saturating_sub(SPAN_MAX_NS));
        let span_ns = end.saturating_sub(begin).max(1);
        let place = |at_ns: i64| {
            let part = (at_ns - begin) as f64 / span_ns as f64;
            LABEL_WIDTH + (part * f64::from(CHART_WIDTH)).round() as u32
        };
        let rows = timeline.ranks.iter().enumerate().map(|(number, rank)| {
            let recent = rank.operations.iter().filter(|operation| operation.at_ns >= begin);
            let marks = recent.map(|operation| {
                let x = place(operation.at_ns);
                let before_end = (end - operation.at_ns) as f64 / 1e6;
                let width = if operation.is_finished { 2 } else { LABEL_WIDTH + CHART_WIDTH + 12 - x };
                let class = if operation.is_finished { "done" } else { "open" };
                Mark {
                    x,
                    width,
                    class,
                    title: format!("{}, {before_end:.3} ms before the last enqueue", operation.name),
                }
            });
            Row {
                label: format!("rank {}", rank.rank),
                class: if guilty.contains(&rank.rank) { "guilty" } else { "waits" },
                y: number as u32 * ROW_HEIGHT,
                marks: marks.collect(),
            }
        });
        let rows: Vec<Row> = rows.collect();
        let span = match span_ns {
            1_000_000_000.. => format!("{:.1} s", span_ns as f64 / 1e9),
            _ => format!("{:.3} ms", span_ns as f64 / 1e6),
        };
        Some(Self { height: rows.len() as u32 * ROW_HEIGHT + 4, rows, span, one_clock: timeline.one_clock })
    }
}

fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

const CAUSES_MAX: usize = 8;
const BOXES_MAX: usize = 40;
const ROWS_MAX: usize = 32;
const MEMBERS_MAX: usize = 256;
const MARGIN: u32 = 8;
const BOX_WIDTH: u32 = 260;
const BOX_HEIGHT: u32 = 44;
const GAP: u32 = 60;
const LABEL_WIDTH: u32 = 90;
const CHART_WIDTH: u32 = 900;
const ROW_HEIGHT: u32 = 20;
/// Longest time shown before the last enqueue.
const SPAN_MAX_NS: i64 = 10_000_000_000;
