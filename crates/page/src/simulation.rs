//! Conversion of a simulated run into a page.
//!
//! `probe_sync sim --out` passes in the judged estimates with the truth; the series and charts are
//! the same as for a real run.

use std::collections::{BTreeMap, BTreeSet};

use probe_sync::report::{NodeRow, TruthVerdict};
use probe_sync_estimate::statistics::median;
use probe_sync_lines::NodeWindow;
use probe_sync_time::{NodeId, StampSource};

use crate::Error;
use crate::data::{Data, SCHEMA};
use crate::edges;
use crate::page::{Page, worst_rows};
use crate::rounds::{Estimate, PageRound, Reading, Source};
use crate::series::Survey;
use crate::table::Table;
use crate::verdict::{self, Sentence};

/// Results of a simulation.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// What was simulated.
    pub title: String,
    /// Name and value.
    pub facts: Vec<(String, String)>,
    /// The node whose offset is zero.
    pub reference: NodeId,
    /// Where its timestamps were taken.
    pub stamp: StampSource,
    /// The estimates of one run, in any order; none if only tables were made.
    pub samples: Vec<Sample>,
    /// The fits of the nodes in the last windows of this run, in order; none if only tables were
    /// made.
    pub windows: Vec<NodeWindow>,
    /// Lost exchanges on each node's out-edges, over the run; none if only tables were made.
    pub lost: Vec<u64>,
    /// The simulation's own requirements: whether each is met, and its text.
    pub demands: Vec<(bool, String)>,
    /// Cost, and comparison of methods.
    pub tables: Vec<Table>,
}

/// One estimate with the truth.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Sample {
    /// The node.
    pub node: NodeId,
    /// The window.
    pub window: u64,
    /// Time, on the reference clock, ns.
    pub at_ns: i64,
    /// True offset, ns.
    pub truth_ns: f64,
    /// Estimated offset, ns.
    pub offset_ns: Option<f64>,
    /// Half-width of the 95 % interval, ns.
    pub half_width_95_ns: Option<f64>,
    /// Hard interval, ns.
    pub hard_ns: Option<[f64; 2]>,
    /// Rate, ppm.
    pub rate_ppm: Option<f64>,
}

struct Samples(Vec<PageRound>);

impl Source for Samples {
    fn each(&self, take: &mut dyn FnMut(&PageRound)) -> Result<Reading, Error> {
        self.0.iter().for_each(take);
        Ok(Reading::default())
    }
}

impl Simulated {
    /// Returns the page.
    ///
    /// # Errors
    /// No error can come from the samples.
    pub fn page(self) -> Result<Page, Error> {
        let source = Samples(self.rounds());
        let survey = Survey::of(&source)?;
        let (series, _) = survey.series(&source, Some(self.reference), &Default::default())?;
        let nodes = worst_rows(self.rows(&survey, &source.0));
        let of_map: BTreeSet<NodeId> = survey.nodes.keys().copied().chain([self.reference]).collect();
        let of_map: Vec<NodeId> = of_map.into_iter().collect();
        let edges = edges::map_of(&self.windows, &of_map, &survey.latest, self.reference);
        let truth = judged(&source.0);
        let mut verdict = match &truth {
            Some(truth) => verdict::truth_held(truth),
            None => vec![Sentence::plain("Only tables were requested, so no run is shown over time.")],
        };
        verdict.extend(self.demands.iter().map(|(holds, text)| Sentence::of(*holds, text.clone())));
        let mut page = Page {
            title: self.title,
            facts: self.facts,
            verdict,
            notes: Vec::new(),
            faults: Vec::new(),
            late: Vec::new(),
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
                edges,
                traces: None,
            },
            traces: None,
            hang: None,
        };
        page.note_reading(&survey);
        Ok(page)
    }

    /// The estimates by window, in order of time.
    fn rounds(&self) -> Vec<PageRound> {
        let mut rounds: BTreeMap<(i64, u64), PageRound> = BTreeMap::new();
        for sample in &self.samples {
            let fresh = || PageRound { number: sample.window, at_ns: sample.at_ns, nodes: Vec::new() };
            rounds.entry((sample.at_ns, sample.window)).or_insert_with(fresh).nodes.push(estimate(sample));
        }
        rounds.into_values().collect()
    }

    fn rows(&self, survey: &Survey, rounds: &[PageRound]) -> Vec<NodeRow> {
        let finite = |bound: f64| bound.is_finite().then_some(bound);
        let fitted = self.fitted();
        let mut held: BTreeMap<NodeId, bool> = BTreeMap::new();
        let bounded = |of: &&Estimate| of.reachable && of.hard_ns.iter().any(|bound| bound.is_finite());
        for of in rounds.iter().flat_map(|round| &round.nodes).filter(bounded) {
            *held.entry(of.node).or_insert(true) &= !of.truth_is_outside();
        }
        let row = |(node, of): (&NodeId, &crate::series::NodeSurvey)| NodeRow {
            node_id: *node,
            rank: node.0,
            host: "simulated".into(),
            stamp: self.stamp,
            reachable: of.last.reachable,
            clock_disturbed: false,
            offset_ns: of.last.offset_ns,
            drift_ppm: of.last.rate_ppm,
            half_width_95_ns: of.last.half_width_ns,
            hard_interval_ns: of.last.hard_ns.map(finite),
            edges: fitted.get(node).copied().unwrap_or(0),
            lost: self.lost.get(node.index()).copied().unwrap_or(0),
            true_offset_ns: Some(of.last.truth_ns),
            error_ns: Some(of.last.offset_ns - of.last.truth_ns).filter(|_| of.last.reachable),
            bounds_held: held.get(node).copied(),
        };
        survey.nodes.iter().map(row).collect()
    }

    /// By node, the edges of the last window that have a fit.
    fn fitted(&self) -> BTreeMap<NodeId, u32> {
        let last = self.windows.last().map(|window| window.round_id);
        let of_last = self.windows.iter().filter(|window| Some(window.round_id) == last);
        let mut fitted = BTreeMap::new();
        for fit in of_last.flat_map(|window| &window.edges) {
            for node in [fit.src_node_id, fit.dst_node_id] {
                *fitted.entry(node).or_default() += 1;
            }
        }
        fitted
    }
}

fn estimate(sample: &Sample) -> Estimate {
    Estimate {
        node: sample.node,
        reachable: sample.offset_ns.is_some(),
        disturbed: false,
        offset_ns: sample.offset_ns.unwrap_or(f64::NAN),
        rate_ppm: sample.rate_ppm.unwrap_or(f64::NAN),
        half_width_ns: sample.half_width_95_ns.unwrap_or(f64::INFINITY),
        hard_ns: sample.hard_ns.unwrap_or([f64::NEG_INFINITY, f64::INFINITY]),
        truth_ns: sample.truth_ns,
    }
}

impl Estimate {
    /// Outside its hard interval.
    fn truth_is_outside(&self) -> bool {
        !(self.hard_ns[0]..=self.hard_ns[1]).contains(&self.truth_ns)
    }
}

/// Compares estimates with truth, as for a run; `None` without any.
fn judged(rounds: &[PageRound]) -> Option<TruthVerdict> {
    let all: Vec<&Estimate> = rounds.iter().flat_map(|round| &round.nodes).collect();
    let (known, unknown): (Vec<&Estimate>, Vec<_>) = all.into_iter().partition(|of| of.reachable);
    if known.is_empty() {
        return None;
    }
    let errors: Vec<f64> = known.iter().map(|of| (of.offset_ns - of.truth_ns).abs()).collect();
    let within = known.iter().filter(|of| (of.offset_ns - of.truth_ns).abs() <= of.half_width_ns).count();
    let crossed = known.iter().filter(|of| of.truth_is_outside()).count();
    Some(TruthVerdict {
        judged: known.len(),
        not_judged: unknown.len(),
        worst_error_ns: errors.iter().copied().fold(0.0, f64::max),
        median_error_ns: median(errors),
        median_half_width_95_ns: median(known.iter().map(|of| of.half_width_ns)),
        coverage_95: within as f64 / known.len() as f64,
        median_hard_width_ns: median(known.iter().map(|of| of.hard_ns[1] - of.hard_ns[0])),
        outside_hard_interval: crossed,
        // A simulation's rounds do not tell the true rates.
        worst_drift_error_ppm: f64::NAN,
    })
}

#[cfg(test)]
mod tests {
    use probe_sync_lines::EdgeFit;
    use probe_sync_time::{RoundId, Timestamp};

    use super::*;

    /// The reference's own, of round 1: 100 ms before the middle of the round it measures node 1 58
    /// ns ahead, which gains 0.5 ppm, 50 ns in these 100 ms.
    fn windows() -> Vec<NodeWindow> {
        let [window_start, window_end] = [400_000_000, 1_400_000_000].map(Timestamp::from_ns);
        let edge = EdgeFit {
            src_node_id: NodeId(0),
            dst_node_id: NodeId(1),
            midpoint: window_start.midpoint(window_end),
            alpha: 5e-7,
            beta: 58.0,
            pairs_count: 3,
            lost_count: 1,
            covariance: [1.0, 0.0, 1e-18],
            margin_ns: 20.0,
            bound_lo_ns: 38.0,
            bound_hi_ns: 78.0,
            alpha_bounds: [0.0, 1e-6],
            feasible: true,
            purity: 1.0,
            stamp: StampSource::Kernel,
            stamp_errors_ns: [0.0; 2],
        };
        vec![NodeWindow {
            node_id: NodeId(0),
            round_id: RoundId(1),
            window_start,
            window_end,
            edges: vec![edge],
            clock_event: None,
            stop_requested: false,
            packets: Vec::new(),
            unfitted: Vec::new(),
            punctuality: Default::default(),
        }]
    }

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
            rate_ppm: offset_ns.map(|_| 0.5),
        };
        let unbounded = Sample { hard_ns: None, ..sample(3, 1, Some(100.0)) };
        let samples = vec![sample(1, 1, Some(105.0)), sample(1, 0, Some(120.0)), sample(2, 1, None), unbounded];
        let simulated = Simulated {
            title: "sim".into(),
            facts: Vec::new(),
            reference: NodeId(0),
            stamp: StampSource::Kernel,
            samples,
            windows: windows(),
            lost: vec![0, 3, 0],
            demands: vec![(false, "It must hold.".into())],
            tables: Vec::new(),
        };
        let page = simulated.page().expect("a page");
        let truth = page.data.truth.as_ref().expect("judged");
        assert_eq!((truth.judged, truth.not_judged, truth.worst_error_ns, truth.coverage_95), (3, 1, 20.0, 2.0 / 3.0));
        assert_eq!((truth.outside_hard_interval, page.data.rounds, page.data.nodes.len()), (0, 2, 3));
        // Node 1 is 105 ns ahead, and the edge from the reference to it says 108 ns at that moment:
        // 3 ns more.
        let edge = page.data.edges.edges[0];
        assert_eq!((page.data.edges.edges.len(), page.data.edges.rounds, page.data.edges.nodes.len()), (1, 1, 4));
        assert_eq!(
            (edge.src, edge.dst, edge.residual_ns.0, edge.margin_ns.0, edge.loss.0),
            (NodeId(0), NodeId(1), 3.0, 20.0, 0.25)
        );
        let row = |node| page.data.nodes.iter().find(|row| row.node_id == NodeId(node)).expect("it has a row");
        assert_eq!((row(2).bounds_held, row(3).bounds_held), (None, None), "nothing is stated");
        let row = row(1);
        assert_eq!((row.edges, row.lost, row.drift_ppm, row.bounds_held), (1, 3, 0.5, Some(true)));
        assert!(!page.data.series.nodes[0].rate.is_empty());
        assert!(page.verdict.iter().any(|said| said.mood == verdict::Mood::Bad && said.text == "It must hold."));
    }
}
