//! The twelve cells in which methods are compared, and the requirements that our method must meet
//! there.
//!
//! A cell is a rate of coded pairs, a kind of stamps and a load; everything else comes from the
//! base scenario. The runs of many seeds are pooled into a [`CellOutcome`]; [`demands`] turns
//! twelve of them into statements with one figure each, met or missed.

use probe_sync_time::StampSource;
use serde::Serialize;

use super::plan::{Method, SeedRun};
use super::statistics::{Coverage, Pool, Summary, geometric_mean, quantile};
use crate::scenario::{Scenario, Stamps};

/// One point of the comparison.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Cell {
    /// Coded pairs per second, per edge and direction.
    pub pairs_per_second: f64,
    /// Stamp source: hardware or kernel.
    pub stamps: StampSource,
    /// Share of the time in which a packet finds a queue.
    pub load: f64,
}

impl Cell {
    /// Returns all cells, in the order of the tables.
    pub fn all() -> Vec<Self> {
        let cell = |pairs_per_second, stamps| [0.2, 0.5, 0.8].map(|load| Self { pairs_per_second, stamps, load });
        [
            (20.0, StampSource::Hardware),
            (20.0, StampSource::Kernel),
            (200.0, StampSource::Hardware),
            (200.0, StampSource::Kernel),
        ]
        .into_iter()
        .flat_map(|(rate, stamps)| cell(rate, stamps))
        .collect()
    }

    /// Returns the base scenario with this cell's rate, stamps and load.
    pub fn scenario(&self, base: &Scenario) -> Scenario {
        let mut scenario = with_stamps(base, self.stamps);
        scenario.pairs_per_second = Some(self.pairs_per_second);
        scenario.network.load = self.load;
        scenario
    }

    /// Returns the name, such as `20 hw 0.8`.
    pub fn name(&self) -> String {
        let stamps = if self.stamps == StampSource::Hardware { "hw" } else { "sw" };
        format!("{} {stamps} {}", self.pairs_per_second, self.load)
    }
}

/// Returns the scenario with hardware or software stamps and the path asymmetry that goes with
/// them: with hardware stamps, the hosts' own share is omitted.
pub fn with_stamps(base: &Scenario, source: StampSource) -> Scenario {
    let mut scenario = base.clone();
    (scenario.stamps, scenario.network.asymmetry_sd_ns) = match source {
        StampSource::Hardware => (Stamps::hardware(), ASYMMETRY_HARDWARE_NS),
        StampSource::Kernel | StampSource::User => (Stamps { source, ..Stamps::software() }, ASYMMETRY_SOFTWARE_NS),
    };
    scenario
}

/// Pooled results of many seeds of one scenario.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Results by method, in the plan's order.
    pub methods: Vec<(Method, Pool)>,
    /// Results of probe_sync between window midpoints.
    pub between: Pool,
    /// |error| that asymmetry alone causes, ns.
    pub floor_ns: Vec<f64>,
    /// Number of seeds pooled.
    pub seeds: usize,
    /// Packets over all seeds.
    pub packets: u64,
    /// Edges in one seed.
    pub edges: usize,
}

impl Outcome {
    /// Adds the run of one seed. The order of seeds changes results only by rounding.
    pub fn add(&mut self, run: &SeedRun) {
        for (method, judgements) in &run.methods {
            if !self.methods.iter().any(|(of, _)| of == method) {
                self.methods.push((*method, Pool::default()));
            }
            let pool = self.methods.iter_mut().find(|(of, _)| of == method).map(|(_, pool)| pool);
            pool.into_iter().for_each(|pool| judgements.iter().for_each(|judgement| pool.add(judgement)));
        }
        run.between.iter().for_each(|judgement| self.between.add(judgement));
        self.floor_ns.extend_from_slice(&run.floor_ns);
        self.seeds += 1;
        self.packets += run.packets;
        self.edges = run.edges;
    }

    /// Returns a method's results; `None` if it was not requested.
    pub fn summary(&self, method: Method) -> Option<Summary> {
        self.methods.iter().find(|(of, _)| *of == method).map(|(_, pool)| pool.summary())
    }

    /// Returns the median and 99th percentile of the floor, ns.
    pub fn floor(&self) -> [f64; 2] {
        let mut sorted = self.floor_ns.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        [quantile(&sorted, 0.50), quantile(&sorted, 0.99)]
    }
}

/// A cell with its results.
#[derive(Clone, Debug, PartialEq)]
pub struct CellOutcome {
    /// The cell.
    pub cell: Cell,
    /// Pooled results of its seeds.
    pub outcome: Outcome,
}

/// A requirement, the result, and whether it is met.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Demand {
    /// The requirement.
    pub what: String,
    /// The result.
    pub found: String,
    /// True if the result meets the requirement.
    pub reached: bool,
}

/// Returns every requirement that can be judged from these outcomes and their methods.
pub fn demands(outcomes: &[CellOutcome]) -> Vec<Demand> {
    let figures: Vec<Figures> = outcomes.iter().map(Figures::new).collect();
    let mut demands = Vec::new();
    for (method, limit) in [(Method::Huygens, 0.30), (Method::Ntp, 0.17), (Method::Svm, 0.70)] {
        demands.extend(mean_ratio(&figures, method, limit));
    }
    let described = [Method::Ntp, Method::Huygens, Method::Svm, Method::Mean];
    demands.extend(worst_ratio(&figures, &described, "as described"));
    let tuned = [Method::NtpPlus, Method::HuygensPlus, Method::SvmPlus];
    demands.extend(worst_ratio(&figures, &tuned, "as tuned by us"));
    demands.extend(figures.iter().filter_map(absolute));
    demands.extend(fewer_packets(&figures));
    demands.extend(intervals(&figures));
    demands.extend(complete(&figures));
    demands
}

/// The results of a cell that requirements use.
struct Figures {
    cell: Cell,
    by_method: Vec<(Method, Summary)>,
}

impl Figures {
    fn new(of: &CellOutcome) -> Self {
        let by_method = of.outcome.methods.iter().map(|(method, pool)| (*method, pool.summary())).collect();
        Self { cell: of.cell, by_method }
    }

    fn of(&self, method: Method) -> Option<&Summary> {
        self.by_method.iter().find(|(of, _)| *of == method).map(|(_, summary)| summary)
    }

    fn ours(&self) -> Option<&Summary> {
        self.of(Method::Ours)
    }
}

/// Requires few missing estimates, because a method that skips hard cases has smaller errors.
fn complete(figures: &[Figures]) -> Option<Demand> {
    let missing = figures.iter().map(|cell| cell.ours().map(|ours| ours.missing)).sum::<Option<usize>>()?;
    (!figures.is_empty()).then(|| Demand {
        what: "probe_sync has an estimate of every node in every window".into(),
        found: format!("{missing} missing"),
        reached: missing == 0,
    })
}

fn mean_ratio(figures: &[Figures], method: Method, limit: f64) -> Option<Demand> {
    let ratio = |cell: &Figures| Some(cell.ours()?.p99_ns / cell.of(method)?.p99_ns);
    let ratios: Option<Vec<f64>> = figures.iter().map(ratio).collect();
    let mean = geometric_mean(ratios.filter(|ratios| !ratios.is_empty())?);
    Some(Demand {
        what: format!("p99, geometric mean over the cells: at most {limit:.2} of {}", method.as_str()),
        found: format!("{mean:.3}"),
        reached: mean <= limit,
    })
}

fn worst_ratio(figures: &[Figures], baselines: &[Method], which: &str) -> Option<Demand> {
    let ratio = |cell: &Figures| {
        let baselines = baselines.iter().filter_map(|method| Some((*method, cell.of(*method)?.p99_ns)));
        let (method, best) = baselines.min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some((cell.ours()?.p99_ns / best, method, cell.cell.name()))
    };
    let (worst, method, name) = figures.iter().filter_map(ratio).max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Demand {
        what: format!("p99: in no cell more than 1.05 of the best baseline, {which}"),
        found: format!("{worst:.3} ({name}, against {})", method.as_str()),
        reached: worst <= WORST_RATIO_MAX,
    })
}

fn absolute(cell: &Figures) -> Option<Demand> {
    let ours = cell.ours()?;
    let Cell { pairs_per_second, stamps, load } = cell.cell;
    let [p50, p99] = match (pairs_per_second >= 200.0, stamps == StampSource::Hardware) {
        (true, true) => [10.0, 40.0],
        (true, false) => [20.0, 85.0],
        (false, true) if load >= 0.8 => [13.0, 50.0],
        (false, false) if load >= 0.8 => [30.0, 100.0],
        _ => return None,
    };
    Some(Demand {
        what: format!("{}: p50/p99 at most {p50:.0}/{p99:.0} ns", cell.cell.name()),
        found: format!("{:.1}/{:.1} ns", ours.p50_ns, ours.p99_ns),
        reached: ours.p50_ns <= p50 && ours.p99_ns <= p99,
    })
}

/// Compares probe_sync with a tenth of the packets against Huygens, at equal load, with hardware
/// stamps.
fn fewer_packets(figures: &[Figures]) -> Vec<Demand> {
    let hardware = |rate: f64| {
        figures.iter().filter(move |f| f.cell.stamps == StampSource::Hardware && f.cell.pairs_per_second == rate)
    };
    let demand = |few: &Figures| {
        let many = hardware(200.0).find(|many| many.cell.load == few.cell.load)?;
        let (ours, huygens) = (few.ours()?.p99_ns, many.of(Method::Huygens)?.p99_ns);
        Some(Demand {
            what: format!("p99 of probe_sync in {} at most huygens' in {}", few.cell.name(), many.cell.name()),
            found: format!("{ours:.1} against {huygens:.1} ns"),
            reached: ours <= huygens,
        })
    };
    hardware(20.0).filter_map(demand).collect()
}

fn intervals(figures: &[Figures]) -> Vec<Demand> {
    let stated: Vec<(&Cell, Coverage)> =
        figures.iter().filter_map(|cell| Some((&cell.cell, cell.ours()?.interval?))).collect();
    let total: usize = stated.iter().map(|(_, coverage)| coverage.count).sum();
    if total == 0 {
        return Vec::new();
    }
    let pooled = stated.iter().map(|(_, coverage)| coverage.held).sum::<usize>() as f64 / total as f64;
    let lowest = stated.iter().min_by(|a, b| a.1.share().total_cmp(&b.1.share()));
    let widest = stated.iter().max_by(|a, b| a.1.half_width_per_rms.total_cmp(&b.1.half_width_per_rms));
    let hard = figures.iter().filter_map(|cell| cell.ours()?.hard);
    let (held, count) = hard.fold((0, 0), |(held, count), hard| (held + hard.held, count + hard.count));
    let mut demands = vec![Demand {
        what: "95 % intervals hold 93 to 97 % pooled".into(),
        found: format!("{:.1} %", 100.0 * pooled),
        reached: (0.93..=0.97).contains(&pooled),
    }];
    demands.extend(lowest.map(|(cell, coverage)| Demand {
        what: "95 % intervals hold at least 90 % in each cell".into(),
        found: format!("{:.1} % ({})", 100.0 * coverage.share(), cell.name()),
        reached: coverage.share() >= 0.90,
    }));
    demands.extend(widest.map(|(cell, coverage)| Demand {
        what: "mean half-width at most 2.5 of the RMS error in each cell".into(),
        found: format!("{:.2} ({})", coverage.half_width_per_rms, cell.name()),
        reached: coverage.half_width_per_rms <= 2.5,
    }));
    demands.push(Demand {
        what: "hard intervals are never violated".into(),
        found: format!("{} of {count} violated", count - held),
        reached: held == count,
    });
    demands
}

/// Standard deviation of path asymmetry with hardware stamps, ns.
const ASYMMETRY_HARDWARE_NS: f64 = 20.0;

/// Standard deviation of path asymmetry with software stamps, ns.
const ASYMMETRY_SOFTWARE_NS: f64 = 50.0;

/// Largest allowed ratio of a cell's error to the best baseline's.
const WORST_RATIO_MAX: f64 = 1.05;

/// The base scenario of all cells, as a file; `bench/scenarios/cell.toml` links here.
pub const BASE: &str = include_str!("cell.toml");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accuracy::plan::Judgement;
    use probe_sync_time::{NodeId, Timestamp};

    fn run(seed: u64, methods: Vec<(Method, Vec<Judgement>)>) -> SeedRun {
        let (between, windows, lost) = (Vec::new(), Vec::new(), Vec::new());
        SeedRun { seed, methods, between, floor_ns: vec![1.0], packets: 6, edges: 1, windows, lost }
    }

    /// An outcome in which every method's error is `error(method)` everywhere and probe_sync states
    /// ±`half_width`.
    fn outcome(cell: Cell, error: impl Fn(Method) -> f64, half_width: f64) -> CellOutcome {
        let judgement = |method: Method| Judgement {
            node: NodeId(1),
            window: 0,
            at: Timestamp::from_ns(0),
            truth_ns: 0.0,
            estimate_ns: Some(error(method)),
            half_width_95_ns: (method == Method::Ours).then_some(half_width),
            hard_ns: (method == Method::Ours).then_some([error(method) - half_width, error(method) + half_width]),
            rate_ppm: None,
        };
        let mut outcome = Outcome::default();
        let methods = Method::ALL.map(|method| (method, vec![judgement(method)])).to_vec();
        outcome.add(&run(1, methods));
        CellOutcome { cell, outcome }
    }

    fn check(error: impl Fn(Method) -> f64 + Copy, half_width: f64, missed: &[&str]) {
        let outcomes: Vec<CellOutcome> = Cell::all().into_iter().map(|cell| outcome(cell, error, half_width)).collect();
        let demands = demands(&outcomes);
        assert_eq!(demands.len(), 3 + 2 + 8 + 3 + 4 + 1);
        let found: Vec<&Demand> = demands.iter().filter(|demand| !demand.reached).collect();
        assert_eq!(found.len(), missed.len(), "{found:?}");
        for (found, part) in found.iter().zip(missed) {
            assert!(found.what.contains(part), "{found:?} lacks {part}");
        }
    }

    #[test]
    fn the_cells_are_twelve() {
        let names: Vec<String> = Cell::all().iter().map(Cell::name).collect();
        assert_eq!(names.len(), 12);
        assert_eq!((names[0].as_str(), names[11].as_str()), ("20 hw 0.2", "200 sw 0.8"));
    }

    #[test]
    fn each_demand_can_be_reached_and_missed() {
        let good = |method| if method == Method::Ours { 9.0 } else { 100.0 };
        // One judgement each: coverage is 0 or 100 %, so the pooled demand is missed either way.
        check(good, 20.0, &["93 to 97"]);
        check(good, 30.0, &["93 to 97", "2.5 of the RMS"]);
        check(good, 8.0, &["93 to 97", "at least 90", "hard"]);
        let even = |method| if method == Method::Huygens { 8.0 } else { 9.0 };
        check(
            even,
            20.0,
            &[
                "0.30 of huygens",
                "0.17 of ntp",
                "0.70 of svm",
                "1.05",
                "20 hw 0.2",
                "20 hw 0.5",
                "20 hw 0.8",
                "93 to 97",
            ],
        );
        let slow = |method| if method == Method::Ours { 12.0 } else { 100.0 };
        check(slow, 24.0, &["200 hw 0.2", "200 hw 0.5", "200 hw 0.8", "93 to 97"]);
    }

    #[test]
    fn an_estimate_that_is_missing_is_seen() {
        let mut outcomes = vec![outcome(Cell::all()[0], |_| 1.0, 2.0)];
        let reached = |outcomes: &[CellOutcome]| demands(outcomes).last().map(|demand| demand.reached);
        assert_eq!(reached(&outcomes), Some(true));
        let nothing = Judgement {
            node: NodeId(2),
            window: 0,
            at: Timestamp::from_ns(0),
            truth_ns: 0.0,
            estimate_ns: None,
            half_width_95_ns: None,
            hard_ns: None,
            rate_ppm: None,
        };
        let methods = vec![(Method::Ours, vec![nothing])];
        outcomes[0].outcome.add(&run(2, methods));
        assert_eq!(reached(&outcomes), Some(false));
    }

    #[test]
    fn without_our_method_nothing_is_demanded() {
        let mut only = outcome(Cell::all()[0], |_| 1.0, 2.0);
        only.outcome.methods.retain(|(method, _)| *method == Method::Ntp);
        assert_eq!(demands(&[only]), []);
        assert_eq!(demands(&[]), []);
    }
}
