//! Comparison of a run's files with its truth.
//!
//! After a run with `--inject-skew`, this module reads only `truth.json` and `offsets.jsonl`, and
//! `report.json` for the processor time. For
//! node i in a round whose window has the midpoint M on the reference clock, error = offset_i −
//! (e_i(t) − e_r(t)) with t such that t + e_r(t) = M, where r is the reference and e_i(t) = off_i +
//! ppm_i·1e-6·(t − t0_i) + amp_i·sin(2π·(t − t0_i)/period_i + phase_i) + Σ step·[t − t0_i ≥
//! step_at]. The reference itself is omitted. The claimed 95 % interval is offset ± 1.96·sigma, the
//! hard one [bound_lo, bound_hi].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// What the figures of a run must satisfy.
#[derive(Clone, Debug, Args)]
pub(crate) struct Limits {
    /// Nodes of the run; every round must hold all of them
    #[arg(long)]
    pub(crate) nodes: u32,
    /// Largest |error| from the second round on, ns
    #[arg(long)]
    pub(crate) worst_ns: Option<f64>,
    /// Largest median of |error| from the second round on, ns
    #[arg(long)]
    pub(crate) median_ns: Option<f64>,
    /// Largest ratio of the median 95 % half-width to the median |error|
    #[arg(long)]
    pub(crate) width_ratio: Option<f64>,
    /// Smallest share of errors inside the claimed 95 % [default: what a true claim misses in one
    /// run of a thousand; then no |error| may be more than five times its own 95 % half-width
    /// either]
    #[arg(long)]
    pub(crate) coverage: Option<f64>,
    /// Largest processor time of a rank while it probes, as a share of one core
    #[arg(long)]
    pub(crate) cpu_share: Option<f64>,
    /// Fewest rounds that the run must have
    #[arg(long, default_value_t = 2)]
    pub(crate) rounds: u64,
}

/// Compares, prints the figures, and names what is out of its limit.
///
/// # Errors
/// A file is missing or unreadable, or a figure is out of its limit.
pub(crate) fn verify(directory: &Path, limits: &Limits) -> Result<()> {
    let truth: Truth = read_json(&directory.join("truth.json"))?;
    let lines = read_offsets(&directory.join("offsets.jsonl"))?;
    let figures = Figures::new(&truth, &lines, limits)?;
    println!("{}", figures.text());
    let mut complaints = figures.complaints(limits);
    if let Some(most) = limits.cpu_share {
        let report: Report = read_json(&directory.join("report.json"))?;
        let share = report.cpu_cores / f64::from(limits.nodes);
        println!("processor time of a rank while it probes: {:.3} % of a core", 100.0 * share);
        if share.is_nan() || share > most {
            complaints.push(format!("a rank uses {:.2} % of a core, more than {:.2} %", 100.0 * share, 100.0 * most));
        }
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("; "));
    Ok(())
}

/// A node's virtual clock, as `truth.json` states it.
#[derive(Clone, Debug, Deserialize)]
struct Clock {
    t0_ns: i64,
    off_ns: f64,
    ppm: f64,
    #[serde(default)]
    amp_ns: f64,
    #[serde(default)]
    period_ns: f64,
    #[serde(default)]
    phase_rad: f64,
    #[serde(flatten)]
    step: Step,
    #[serde(default)]
    more_steps: Vec<Step>,
}

#[derive(Copy, Clone, Debug, Default, Deserialize)]
struct Step {
    #[serde(default)]
    step_ns: f64,
    #[serde(default)]
    step_at_ns: i64,
}

impl Clock {
    /// Its error when the machine's real clock shows `real_ns`.
    fn error_ns(&self, real_ns: i64) -> f64 {
        let since = real_ns - self.t0_ns;
        let steps = self.more_steps.iter().chain([&self.step]).filter(|step| since >= step.step_at_ns);
        let steps: f64 = steps.map(|step| step.step_ns).sum();
        let angle = std::f64::consts::TAU * since as f64 / self.period_ns.max(1.0) + self.phase_rad;
        self.off_ns + self.ppm * 1e-6 * since as f64 + self.amp_ns * angle.sin() + steps
    }

    /// The real time when this clock shows `shown_ns`.
    fn real_ns(&self, shown_ns: i64) -> i64 {
        // Rates are below 1 %: each turn makes the error a hundred times smaller.
        (0..INVERSE_TURNS).fold(shown_ns, |real_ns, _| shown_ns.saturating_sub(self.error_ns(real_ns).round() as i64))
    }

    /// Whether it steps between two real times.
    fn steps_within(&self, start_ns: i64, end_ns: i64) -> bool {
        // The node's own window is not cut at the same instant as the reference's.
        let start = start_ns.saturating_sub(self.t0_ns).saturating_sub(CUTS_APART_NS);
        let window = start..=end_ns.saturating_sub(self.t0_ns).saturating_add(CUTS_APART_NS);
        self.more_steps.iter().chain([&self.step]).any(|step| step.step_ns != 0.0 && window.contains(&step.step_at_ns))
    }
}

#[derive(Debug, Deserialize)]
struct Truth {
    nodes: BTreeMap<u32, Clock>,
    /// The node whose offset is zero; older files were all against node 0.
    #[serde(default)]
    reference_node: u32,
}

/// A line of `offsets.jsonl` after the first.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    round_id: u64,
    window_start_ns: i64,
    window_end_ns: i64,
    node_id: u32,
    offset_ns: f64,
    reachable: bool,
    /// Not to be trusted, says the line itself.
    #[serde(default)]
    clock_disturbed: bool,
    /// Null unless reachable.
    sigma_ns: Option<f64>,
    bound_lo_ns: Option<f64>,
    bound_hi_ns: Option<f64>,
}

impl Line {
    fn middle_ns(&self) -> i64 {
        self.window_start_ns + (self.window_end_ns - self.window_start_ns) / 2
    }
}

#[derive(Debug, Default)]
struct Figures {
    rounds: u64,
    /// Sorted |error| from the second round on.
    errors: Vec<f64>,
    /// Sorted 95 % half-widths of the same.
    widths: Vec<f64>,
    /// Largest |error| in multiples of its own 95 % half-width.
    times_width: f64,
    /// Sorted half-widths of the hard intervals of the same.
    hard_widths: Vec<f64>,
    inside: usize,
    complaints: Vec<String>,
}

impl Figures {
    fn new(truth: &Truth, lines: &[Line], limits: &Limits) -> Result<Self> {
        let first = lines.iter().map(|line| line.round_id).min().context("offsets.jsonl holds no round")?;
        let last = lines.iter().map(|line| line.round_id).max().unwrap_or(first);
        let mut figures = Self { rounds: last - first + 1, ..Self::default() };
        let present: BTreeSet<_> = lines.iter().map(|line| (line.round_id, line.node_id)).collect();
        if present.len() as u64 != figures.rounds * u64::from(limits.nodes) || present.len() != lines.len() {
            let (lines, rounds, nodes) = (lines.len(), figures.rounds, limits.nodes);
            figures.complaints.push(format!("{lines} lines for {rounds} rounds of {nodes} nodes"));
        }
        let clock = |node: u32| truth.nodes.get(&node).with_context(|| format!("truth.json lacks node {node}"));
        let reference = clock(truth.reference_node)?;
        for line in lines.iter().filter(|line| line.node_id != truth.reference_node) {
            let clock = clock(line.node_id)?;
            let [start, middle, end] =
                [line.window_start_ns, line.middle_ns(), line.window_end_ns].map(|ns| reference.real_ns(ns));
            // A node whose clock steps within the window has no offset in it; saying so is the
            // right answer.
            let refused = !line.reachable || line.clock_disturbed;
            if !refused || ![clock, reference].iter().any(|clock| clock.steps_within(start, end)) {
                let offset = clock.error_ns(middle) - reference.error_ns(middle);
                figures.add(line, offset, line.round_id > first);
            }
        }
        for sorted in [&mut figures.errors, &mut figures.widths, &mut figures.hard_widths] {
            sorted.sort_by(f64::total_cmp);
        }
        Ok(figures)
    }

    /// Takes one estimate in; the first round only has to be inside its hard interval.
    fn add(&mut self, line: &Line, truth_ns: f64, settled: bool) {
        let at = format!("round {} node {}", line.round_id, line.node_id);
        let (low, high) = (line.bound_lo_ns, line.bound_hi_ns);
        if !line.reachable {
            return self.complaints.push(format!("{at} is unreachable"));
        }
        match (low, high) {
            (Some(low), Some(high)) if low <= truth_ns && truth_ns <= high => {}
            (Some(low), Some(high)) => {
                self.complaints.push(format!("{at}: truth {truth_ns:.1} ns outside its hard interval [{low}, {high}]"));
            }
            _ => self.complaints.push(format!("{at} has no hard interval")),
        }
        if !settled {
            return;
        }
        let error = (line.offset_ns - truth_ns).abs();
        let width = NORMAL_95 * line.sigma_ns.unwrap_or(f64::INFINITY);
        self.errors.push(error);
        self.widths.push(width);
        self.times_width = self.times_width.max(error / width);
        self.hard_widths.extend(high.zip(low).map(|(high, low)| (high - low) / 2.0));
        self.inside += usize::from(error <= width);
    }

    fn coverage(&self) -> f64 {
        self.inside as f64 / self.errors.len().max(1) as f64
    }

    fn text(&self) -> String {
        let (rounds, estimates) = (self.rounds, self.errors.len());
        format!(
            "{rounds} rounds, {estimates} estimates from the second on: |error| median {:.1} ns, p95 {:.1} ns, worst {:.1} ns; \
             95 % half-width median {:.1} ns, holds in {:.1} %; hard half-width median {:.1} ns",
            quantile(&self.errors, 0.5),
            quantile(&self.errors, 0.95),
            quantile(&self.errors, 1.0),
            quantile(&self.widths, 0.5),
            100.0 * self.coverage(),
            quantile(&self.hard_widths, 0.5),
        )
    }

    fn complaints(&self, limits: &Limits) -> Vec<String> {
        let mut complaints = self.complaints.clone();
        let (median, worst) = (quantile(&self.errors, 0.5), quantile(&self.errors, 1.0));
        let ratio = quantile(&self.widths, 0.5) / median;
        let mut at_most = |what: &str, value: f64, limit: Option<f64>| {
            // A figure of no estimates is NaN, which is no better than too large.
            if limit.is_some_and(|limit| value.is_nan() || value > limit) {
                complaints.push(format!("{what} is {value:.1}, more than {:.1}", limit.unwrap_or_default()));
            }
        };
        at_most("worst |error| in ns", worst, limits.worst_ns);
        at_most("median |error| in ns", median, limits.median_ns);
        at_most("95 % half-width over |error|", ratio, limits.width_ratio);
        let times_width = limits.coverage.is_none().then_some(TIMES_WIDTH);
        at_most("|error| over its 95 % half-width", self.times_width, times_width);
        if self.coverage() < limits.coverage.unwrap_or_else(|| least_coverage(limits.nodes)) {
            complaints.push(format!("only {:.1} % of errors are inside the claimed 95 %", 100.0 * self.coverage()));
        }
        if self.rounds < limits.rounds {
            complaints.push(format!("only {} rounds", self.rounds));
        }
        complaints
    }
}

/// A quantile of sorted numbers; NaN of none.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let place = (sorted.len().saturating_sub(1) as f64 * q).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("parsing {}", path.display()))
}

/// The part of `report.json` that is judged.
#[derive(Debug, Deserialize)]
struct Report {
    cpu_cores: f64,
}

fn read_offsets(path: &Path) -> Result<Vec<Line>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let mut lines = text.lines().enumerate();
    let Some((_, meta)) = lines.next() else { bail!("{} is empty", path.display()) };
    ensure!(meta.contains("\"meta\""), "{}: the first line is not the one about the nodes", path.display());
    lines
        .map(|(at, line)| serde_json::from_str(line).with_context(|| format!("{}:{}", path.display(), at + 1)))
        .collect()
}

/// The share of errors inside true 95 % intervals that a run of `nodes` nodes undercuts once in a
/// thousand runs.
///
/// A node's errors within a run are one draw, not many: they share the paths' asymmetry and the
/// smoother's past. All nodes share what the reference's own stamps are wrong by, half of the
/// variance where nodes are alike: two nodes 1 and 2 with own errors a, b and a reference with c
/// are off by a − c and b − c. So of the n = nodes − 1 others, given c in units of one node's
/// error, each is outside with p(c) = P(|x − c| > 1.96·√2), x normal, and their number is binomial.
/// With 8 nodes 6 may be outside; errors that are too large for their intervals are found by
/// [`TIMES_WIDTH`] then.
fn least_coverage(nodes: u32) -> f64 {
    let n = f64::from(nodes.saturating_sub(1).max(1));
    let limit = NORMAL_95 * std::f64::consts::SQRT_2;
    let grid = || (-800..=800_i32).map(|step| f64::from(step) * 0.01);
    let density = |x: f64| (-x * x / 2.0).exp() * 0.01 / (2.0 * std::f64::consts::PI).sqrt();
    let outside = |c: f64| grid().filter(|x| (x - c).abs() > limit).map(density).sum::<f64>().clamp(0.0, 1.0 - 1e-12);
    let common: Vec<(f64, f64)> = grid().step_by(10).map(|c| (density(c) * 10.0, outside(c))).collect();
    // P(X = k | c), from P(X = 0 | c) on: P(k + 1) = P(k)·(n − k)/(k + 1)·p/(1 − p).
    let mut given: Vec<f64> = common.iter().map(|(_, p)| (1.0 - p).powf(n)).collect();
    let share = |given: &[f64]| given.iter().zip(&common).map(|(of, (weight, _))| of * weight).sum::<f64>();
    let (mut count, mut beyond) = (0.0, 1.0 - share(&given));
    while beyond >= FALSE_ALARMS && count < n {
        for (of, (_, p)) in given.iter_mut().zip(&common) {
            *of *= (n - count) / (count + 1.0) * p / (1.0 - p);
        }
        count += 1.0;
        beyond -= share(&given);
    }
    1.0 - count / n
}

/// Turns in which a clock's inverse settles.
const INVERSE_TURNS: u32 = 8;

/// Two-sided 95 % of a normal distribution.
const NORMAL_95: f64 = 1.96;

/// How often a run that claims truly may be refused.
const FALSE_ALARMS: f64 = 1e-3;

/// How many of its 95 % half-widths an error may be.
///
/// Eight processes on two cores, with a compiler beside them, meet delays that last for a whole
/// window in one direction: of 770 such errors 98 % were inside, but the largest was 2.35
/// half-widths, and one of another run 3.0. A normal distribution would have shown 2.5 in one of a
/// million.
const TIMES_WIDTH: f64 = 5.0;

/// Windows of different nodes end within this, ns.
const CUTS_APART_NS: i64 = 5_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        nodes: 2,
        worst_ns: Some(100.0),
        median_ns: Some(50.0),
        width_ratio: Some(10.0),
        coverage: Some(0.9),
        cpu_share: None,
        rounds: 2,
    };

    /// A run of two nodes and two rounds: node 1 is 1000 ns ahead at 0 and gains 10 ppm, windows
    /// are 2 s long.
    fn run(error_ns: f64, sigma_ns: f64, bounds: &str, reachable: bool) -> String {
        let mut text = "{\"meta\":true,\"nodes\":[]}\n".to_owned();
        for (round, middle_s) in [(0, 1.0), (1, 3.0)] {
            let offset = 1000.0 + 10.0e3 * middle_s + error_ns;
            let window = format!(
                "\"round_id\":{round},\"window_id\":{round},\"window_start_ns\":{},\"window_end_ns\":{}",
                round * 2_000_000_000_i64,
                (round + 1) * 2_000_000_000_i64
            );
            let zero = "\"offset_ns\":0.0,\"sigma_ns\":0.0,\"bound_lo_ns\":0.0,\"bound_hi_ns\":0.0,\"reachable\":true";
            text += &format!("{{{window},\"node_id\":0,{zero}}}\n");
            text += &format!(
                "{{{window},\"node_id\":1,\"offset_ns\":{offset},\"sigma_ns\":{sigma_ns},{bounds},\"reachable\":{reachable}}}\n"
            );
        }
        text
    }

    const WIDE: &str = "\"bound_lo_ns\":-1e6,\"bound_hi_ns\":1e6";

    /// Verifies such a run; `expected` is a part of the complaint, none when there must be none.
    fn check(offsets: &str, expected: Option<&str>) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let truth = r#"{"nodes":{"0":{"t0_ns":0,"off_ns":0,"ppm":0.0},"1":{"t0_ns":0,"off_ns":1000,"ppm":10.0}}}"#;
        fs::write(directory.path().join("truth.json"), truth).expect("writable");
        fs::write(directory.path().join("offsets.jsonl"), offsets).expect("writable");
        let complaint = verify(directory.path(), &LIMITS).map_err(|error| format!("{error:#}")).err();
        match (&complaint, expected) {
            (None, None) => {}
            (Some(text), Some(part)) => assert!(text.contains(part), "{text} lacks {part}"),
            _ => panic!("{complaint:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn a_true_claim_is_refused_once_in_a_thousand_runs() {
        let outside = |nodes: u32| ((1.0 - least_coverage(nodes)) * f64::from(nodes - 1)).round();
        // Drawn 200 000 and 40 000 times: P(X > 6) = 0.0004 and P(X > 5) = 0.0016 of 7; P(X > 45) =
        // 0.0008 and P(X > 44) = 0.0011 of 63.
        assert_eq!([2, 8, 64].map(outside), [1.0, 6.0, 45.0]);
    }

    #[test]
    fn figures_are_held_against_their_limits() {
        check(&run(10.0, 10.0, WIDE, true), None);
        check(&run(120.0, 100.0, WIDE, true), Some("worst |error|"));
        check(&run(60.0, 50.0, WIDE, true), Some("median |error|"));
        check(&run(10.0, 4.0, WIDE, true), Some("only 0.0 % of errors"));
        check(&run(10.0, 100.0, WIDE, true), Some("half-width over |error|"));
        check(&run(10.0, 10.0, WIDE, false), Some("unreachable"));
        check(&run(10.0, 10.0, "\"bound_lo_ns\":null,\"bound_hi_ns\":1e6", true), Some("no hard interval"));
        check(
            &run(10.0, 10.0, "\"bound_lo_ns\":0.0,\"bound_hi_ns\":20000.0", true),
            Some("round 1 node 1: truth 31000"),
        );
    }

    #[test]
    fn an_error_of_many_half_widths_is_refused_unless_coverage_is_given() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let truth = r#"{"nodes":{"0":{"t0_ns":0,"off_ns":0,"ppm":0.0},"1":{"t0_ns":0,"off_ns":1000,"ppm":10.0}}}"#;
        fs::write(directory.path().join("truth.json"), truth).expect("writable");
        for (error_ns, coverage, is_refused) in [(48.0, None, false), (50.0, None, true), (50.0, Some(0.0), false)] {
            fs::write(directory.path().join("offsets.jsonl"), run(error_ns, 5.0, WIDE, true)).expect("writable");
            let limits = Limits { coverage, worst_ns: None, median_ns: None, width_ratio: None, ..LIMITS };
            let complaint = verify(directory.path(), &limits).map_err(|error| error.to_string()).err();
            let says = complaint.is_some_and(|text| text.contains("|error| over its 95 % half-width is 5.1"));
            assert_eq!(says, is_refused, "{error_ns} ns, coverage {coverage:?}");
        }
    }

    #[test]
    fn the_processor_time_of_a_rank_is_held_against_its_limit() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let truth = r#"{"nodes":{"0":{"t0_ns":0,"off_ns":0,"ppm":0.0},"1":{"t0_ns":0,"off_ns":1000,"ppm":10.0}}}"#;
        fs::write(directory.path().join("truth.json"), truth).expect("writable");
        fs::write(directory.path().join("offsets.jsonl"), run(10.0, 10.0, WIDE, true)).expect("writable");
        fs::write(directory.path().join("report.json"), r#"{"cpu_cores":0.018}"#).expect("writable");
        let verified = |most| verify(directory.path(), &Limits { cpu_share: Some(most), ..LIMITS });
        verified(0.01).expect("0.9 % of a core per rank");
        let error = verified(0.008).expect_err("more than 0.8 %").to_string();
        assert!(error.contains("a rank uses 0.90 % of a core, more than 0.80 %"), "{error}");
    }

    #[test]
    fn the_run_s_own_reference_counts() {
        // Against node 1, node 0 is 1000 ns behind at 0 and loses 10 ppm.
        let directory = tempfile::tempdir().expect("a temporary directory");
        let truth = r#"{"reference_node":1,
            "nodes":{"0":{"t0_ns":0,"off_ns":0,"ppm":0.0},"1":{"t0_ns":0,"off_ns":1000,"ppm":10.0}}}"#;
        fs::write(directory.path().join("truth.json"), truth).expect("writable");
        let mut text = "{\"meta\":true,\"nodes\":[]}\n".to_owned();
        for (round, node, offset) in [(0, 0, -11e3), (0, 1, 0.0), (1, 0, -31e3), (1, 1, 0.0)] {
            let start = round * 2_000_000_000_i64;
            text += &format!(
                "{{\"round_id\":{round},\"window_start_ns\":{start},\"window_end_ns\":{},\"node_id\":{node},\
                 \"offset_ns\":{},\"sigma_ns\":10.0,{WIDE},\"reachable\":true}}\n",
                start + 2_000_000_000,
                offset + 10.0
            );
        }
        fs::write(directory.path().join("offsets.jsonl"), text).expect("writable");
        verify(directory.path(), &LIMITS).expect("10 ns of error");
    }

    #[test]
    fn clocks_that_swing_and_step_are_known() {
        let clock: Clock = serde_json::from_str(
            r#"{"t0_ns":100,"off_ns":1000,"ppm":0.0,"amp_ns":50.0,"period_ns":400,"phase_rad":0.0,
                "step_ns":7,"step_at_ns":200,"more_steps":[{"step_ns":-3,"step_at_ns":300}]}"#,
        )
        .expect("a clock");
        for (reference_ns, offset_ns) in [(100, 1000.0), (200, 1050.0), (300, 1007.0), (400, 954.0)] {
            assert!((clock.error_ns(reference_ns) - offset_ns).abs() < 1e-9, "{reference_ns}");
        }
        // Steps at 300 and 400 ns; cuts of other nodes may lie some milliseconds apart.
        assert!(clock.steps_within(250, 350) && clock.steps_within(CUTS_APART_NS, 2 * CUTS_APART_NS));
        assert!(!clock.steps_within(-3 * CUTS_APART_NS, -2 * CUTS_APART_NS));
        assert!(!clock.steps_within(2 * CUTS_APART_NS, 3 * CUTS_APART_NS));
    }

    #[test]
    fn missing_or_broken_lines_are_named() {
        let whole = run(10.0, 10.0, WIDE, true);
        let without = |skip: usize| -> String {
            let kept = whole.lines().enumerate().filter(|(at, _)| *at != skip);
            kept.map(|(_, line)| format!("{line}\n")).collect()
        };
        check(&without(4), Some("3 lines for 2 rounds of 2 nodes"));
        check(&without(0), Some("first line"));
        check(&format!("{whole}{{\"round_id\":"), Some("offsets.jsonl:6"));
        check("", Some("is empty"));
    }
}
