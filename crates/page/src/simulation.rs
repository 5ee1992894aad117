//! A simulated run becomes a page.
//!
//! Place in the flow: `probe_sync sim --out` hands in what it judged, each estimate beside the truth; the same series and charts as of a real run come of it. What it does not do: simulate.

use std::collections::BTreeMap;

use probe_sync::report::{NodeRow, TruthVerdict};
use probe_sync_estimate::statistics::median;
use probe_sync_time::{NodeId, StampSource};

use crate::Error;
use crate::data::{Data, SCHEMA};
use crate::edges::EdgeMap;
use crate::page::{Page, worst_rows};
use crate::rounds::{Estimate, Reading, Round, Source};
use crate::series::Survey;
use crate::table::Table;
use crate::verdict::{self, Sentence};

/// What a simulation found.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// What was simulated.
    pub title: String,
    /// Name and value.
    pub facts: Vec<(String, String)>,
    /// The node whose offset is zero.
    pub reference: NodeId,
    /// Where its stamps were taken.
    pub stamp: StampSource,
    /// The estimates of one run, in any order; none where only tables were made.
    pub samples: Vec<Sample>,
    /// Sentences that the simulation's own demands make: whether each holds, and what it says.
    pub demands: Vec<(bool, String)>,
    /// What it cost, and how methods compare.
    pub tables: Vec<Table>,
}

/// One estimate beside the truth.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Sample {
    /// The node.
    pub node: NodeId,
    /// The window.
    pub window: u64,
    /// When, on the reference clock, ns.
    pub at_ns: i64,
    /// The true offset, ns.
    pub truth_ns: f64,
    /// The estimated offset, ns.
    pub offset_ns: Option<f64>,
    /// Half-width of the 95 % interval, ns.
    pub half_width_95_ns: Option<f64>,
    /// The hard interval, ns.
    pub hard_ns: Option<[f64; 2]>,
}

struct Samples(Vec<Round>);

impl Source for Samples {
    fn each(&self, take: &mut dyn FnMut(&Round)) -> Result<Reading, Error> {
        self.0.iter().for_each(take);
        Ok(Reading::default())
    }
}

impl Simulated {
    /// The page.
    ///
    /// # Errors
    /// None that comes of the samples.
    pub fn page(self) -> Result<Page, Error> {
        let source = Samples(self.rounds());
        let survey = Survey::of(&source)?;
        let (series, _) = survey.series(&source, Some(self.reference), &Default::default())?;
        let nodes = worst_rows(self.rows(&survey));
        let truth = judged(&source.0);
        let mut verdict = match &truth {
            Some(truth) => verdict::truth_held(truth),
            None => vec![Sentence::plain("Tables alone were asked for: no run is shown over time.")],
        };
        verdict.extend(self.demands.iter().map(|(holds, text)| Sentence::of(*holds, text.clone())));
        let mut page = Page {
            title: self.title,
            facts: self.facts,
            verdict,
            notes: Vec::new(),
            faults: Vec::new(),
            tables: self.tables,
            data: Data {
                schema: SCHEMA,
                reference: Some(self.reference),
                target_ns: None,
                rounds: survey.rounds,
                nodes,
                truth,
                marks: Vec::new(),
                series,
                edges: EdgeMap::default(),
                traces: None,
            },
            traces: None,
        };
        page.note_reading(&survey);
        Ok(page)
    }

    /// The estimates by window, in order of time.
    fn rounds(&self) -> Vec<Round> {
        let mut rounds: BTreeMap<(i64, u64), Round> = BTreeMap::new();
        for sample in &self.samples {
            let fresh = || Round { number: sample.window, at_ns: sample.at_ns, nodes: Vec::new() };
            rounds.entry((sample.at_ns, sample.window)).or_insert_with(fresh).nodes.push(estimate(sample));
        }
        rounds.into_values().collect()
    }

    fn rows(&self, survey: &Survey) -> Vec<NodeRow> {
        let finite = |bound: f64| bound.is_finite().then_some(bound);
        let row = |(node, of): (&NodeId, &crate::series::NodeSurvey)| NodeRow {
            node_id: *node,
            rank: node.0,
            host: "simulated".into(),
            stamp: self.stamp,
            reachable: of.last.reachable,
            clock_disturbed: false,
            offset_ns: of.last.offset_ns,
            drift_ppm: f64::NAN,
            half_width_95_ns: of.last.half_width_ns,
            hard_interval_ns: of.last.hard_ns.map(finite),
            edges: 0,
            lost: 0,
            true_offset_ns: Some(of.last.truth_ns),
            error_ns: Some(of.last.offset_ns - of.last.truth_ns).filter(|_| of.last.reachable),
            bounds_held: None,
        };
        survey.nodes.iter().map(row).collect()
    }
}

fn estimate(sample: &Sample) -> Estimate {
    Estimate {
        node: sample.node,
        reachable: sample.offset_ns.is_some(),
        disturbed: false,
        offset_ns: sample.offset_ns.unwrap_or(f64::NAN),
        rate_ppm: f64::NAN,
        half_width_ns: sample.half_width_95_ns.unwrap_or(f64::INFINITY),
        hard_ns: sample.hard_ns.unwrap_or([f64::NEG_INFINITY, f64::INFINITY]),
        truth_ns: sample.truth_ns,
    }
}

/// Compares estimates with truth, as the judge of a run does; None without any.
fn judged(rounds: &[Round]) -> Option<TruthVerdict> {
    let all: Vec<&Estimate> = rounds.iter().flat_map(|round| &round.nodes).collect();
    let (known, unknown): (Vec<&Estimate>, Vec<_>) = all.into_iter().partition(|of| of.reachable);
    if known.is_empty() {
        return None;
    }
    let errors: Vec<f64> = known.iter().map(|of| (of.offset_ns - of.truth_ns).abs()).collect();
    let within = known.iter().filter(|of| (of.offset_ns - of.truth_ns).abs() <= of.half_width_ns).count();
    let crossed = known.iter().filter(|of| !(of.hard_ns[0]..=of.hard_ns[1]).contains(&of.truth_ns)).count();
    Some(TruthVerdict {
        judged: known.len(),
        not_judged: unknown.len(),
        worst_error_ns: errors.iter().copied().fold(0.0, f64::max),
        median_error_ns: median(errors),
        median_half_width_95_ns: median(known.iter().map(|of| of.half_width_ns)),
        coverage_95: within as f64 / known.len() as f64,
        median_hard_width_ns: median(known.iter().map(|of| of.hard_ns[1] - of.hard_ns[0])),
        outside_hard_interval: crossed,
        worst_drift_error_ppm: 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_judged_against_the_truth() {
        let sample = |node: u32, window: u64, offset_ns: Option<f64>| Sample {
            node: NodeId(node),
            window,
            at_ns: 1_000_000_000 * window as i64,
            truth_ns: 100.0,
            offset_ns,
            half_width_95_ns: Some(10.0),
            hard_ns: Some([0.0, 150.0]),
        };
        let samples = vec![sample(1, 1, Some(105.0)), sample(1, 0, Some(120.0)), sample(2, 1, None)];
        let simulated = Simulated {
            title: "sim".into(),
            facts: Vec::new(),
            reference: NodeId(0),
            stamp: StampSource::Kernel,
            samples,
            demands: vec![(false, "It must hold.".into())],
            tables: Vec::new(),
        };
        let page = simulated.page().expect("a page");
        let truth = page.data.truth.as_ref().expect("judged");
        assert_eq!((truth.judged, truth.not_judged, truth.worst_error_ns, truth.coverage_95), (2, 1, 20.0, 0.5));
        assert_eq!((truth.outside_hard_interval, page.data.rounds, page.data.nodes.len()), (0, 2, 2));
        assert!(page.verdict.iter().any(|said| said.mood == verdict::Mood::Bad && said.text == "It must hold."));
    }
}
