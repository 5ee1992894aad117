//! The complete content of a page before rendering.

use probe_sync::report::NodeRow;
use probe_sync_lines::Fault;

use crate::data::{Data, Mark, Series};
use crate::hang::Hang;
use crate::number::Number;
use crate::series::{NODES_SHOWN, Survey, Times};
use crate::table::Table;
use crate::traces::Traces;
use crate::verdict::{Mood, Sentence};

/// A report page.
#[derive(Clone, Debug)]
pub struct Page {
    /// Title.
    pub(crate) title: String,
    /// Facts about the run: name and value.
    pub(crate) facts: Vec<(String, String)>,
    /// The verdict in sentences.
    pub(crate) verdict: Vec<Sentence>,
    /// What could not be read, and what is omitted.
    pub(crate) notes: Vec<String>,
    /// Faults in sentences.
    pub(crate) faults: Vec<String>,
    /// Ranks that were late while the job ran, in sentences.
    pub(crate) late: Vec<String>,
    /// Cost, and other tables.
    pub(crate) tables: Vec<Table>,
    /// Data of the charts.
    pub(crate) data: Data,
    /// Results from the traces.
    pub(crate) traces: Option<Traces>,
    /// Who stopped the job, if it hung.
    pub(crate) hang: Option<Hang>,
}

impl Page {
    /// The verdict: the mood and text of each sentence.
    pub fn verdict(&self) -> impl Iterator<Item = (Mood, &str)> {
        self.verdict.iter().map(|sentence| (sentence.mood, sentence.text.as_str()))
    }

    /// What could not be read, and what is omitted.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Adds the results from the traces.
    pub fn add_traces(&mut self, traces: Traces) {
        self.verdict.extend(traces.verdict.iter().cloned());
        self.notes.extend(traces.notes.iter().cloned());
        self.data.traces = Some(traces.data.clone());
        self.traces = Some(traces);
    }

    /// Adds who stopped the job.
    pub fn add_hang(&mut self, hang: Hang) {
        self.verdict.splice(0..0, hang.verdict.iter().cloned());
        self.notes.extend(hang.notes.iter().cloned());
        self.hang = Some(hang);
    }

    /// Notes which rounds could not be read, and how they are thinned.
    pub(crate) fn note_reading(&mut self, survey: &Survey) {
        let reading = &survey.reading;
        if reading.ends_mid_line {
            self.notes.push("The file of offsets ends in the middle of a line, because its writer was killed or is still writing. The \
                preceding rounds are complete.".into());
        }
        if reading.unreadable_lines > 0 {
            self.notes.push(format!(
                "{} lines of the file of offsets cannot be read and are omitted.",
                reading.unreadable_lines
            ));
        }
        if reading.unordered_rounds > 0 {
            self.notes.push(format!("{} rounds are out of order and are omitted.", reading.unordered_rounds));
        }
        let left_out = survey.nodes.len().saturating_sub(self.data.nodes.len());
        if left_out > 0 {
            self.notes.push(format!("The table of nodes omits {left_out} with smaller uncertainty."));
        }
        self.note_what_is_left_out(survey);
    }

    fn note_what_is_left_out(&mut self, survey: &Survey) {
        let series = &self.data.series;
        if series.thinned {
            self.notes.push(format!(
                "Charts over time are reduced: {} rounds in {} columns, two for every {:.0} rounds. Each pair keeps the minimum and \
                maximum of its rounds, so no extreme is lost.",
                survey.rounds,
                series.t.len(),
                2.0 * survey.rounds as f64 / series.t.len().max(1) as f64
            ));
        }
        if let Some(others) = &series.others {
            self.notes.push(format!(
                "Charts over time show the {NODES_SHOWN} nodes with the largest uncertainty; the other {} are shown as one band in \
                the chart of widths.",
                others.nodes
            ));
        }
        let edges = &self.data.edges;
        if edges.without_file > 0 && !self.data.nodes.is_empty() {
            self.notes.push(format!(
                "The edge fits of {} of {} nodes are not in this directory: their residuals and margins are not shown.",
                edges.without_file,
                edges.nodes.len()
            ));
        }
        if edges.left_out > 0 {
            self.notes.push(format!("The map of edges omits {} with small residuals.", edges.left_out));
        }
    }
}

/// The rows that fit the page, in order: if there are too many, those of the least certain nodes.
pub(crate) fn worst_rows(mut rows: Vec<NodeRow>) -> Vec<NodeRow> {
    if rows.len() > ROWS_MAX {
        rows.sort_by(|a, b| a.reachable.cmp(&b.reachable).then(b.half_width_95_ns.total_cmp(&a.half_width_95_ns)));
        rows.truncate(ROWS_MAX);
        rows.sort_by_key(|row| row.node_id);
    }
    rows
}

/// Faults on the time axis; if several are in one column of a long run, one mark stands for them.
pub(crate) fn marks(faults: &[Fault], times: &Times, series: &Series) -> Vec<Mark> {
    let when = |fault: &Fault| times.get(&fault.began.0).or_else(|| times.get(&fault.round.0)).copied();
    let mut placed: Vec<(f64, &Fault)> = faults.iter().filter_map(|fault| Some((when(fault)?, fault))).collect();
    placed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let last = series.t.last().map_or(0.0, |t| t.0);
    let apart = if placed.len() > MARKS_MAX { last / MARKS_MAX as f64 } else { 0.0 };
    let mut marks: Vec<Mark> = Vec::new();
    for (t, fault) in placed {
        match marks.last_mut() {
            Some(mark) if apart > 0.0 && t - mark.t.0 < apart => mark.count += 1,
            _ => marks.push(Mark {
                t: Number::thousandth(t),
                kind: fault.kind.as_str(),
                text: fault.to_string(),
                count: 1,
            }),
        }
    }
    marks
}

/// Most rows of nodes.
const ROWS_MAX: usize = 1000;
/// Most marks on the axis.
const MARKS_MAX: usize = 500;
