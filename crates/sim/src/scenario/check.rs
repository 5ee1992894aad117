//! Validates a scenario: every number must be within its range, and every node must be part of the
//! run.
//!
//! It does not check whether a scenario is realistic.

use std::ops::RangeInclusive;

use probe_sync_time::NodeId;

use crate::error::Error;
use crate::scenario::Scenario;
use crate::scenario::faults::{Fault, FaultKind};

impl Scenario {
    /// Checks every number; [`crate::Simulation::new`] does so as well.
    ///
    /// # Errors
    /// Names the first field that is out of range.
    pub fn check(&self) -> Result<(), Error> {
        within("nodes", f64::from(self.nodes), 1.0..=1e6)?;
        within("neighbors", f64::from(self.neighbors), 0.0..=1e6)?;
        self.known("reference", self.reference)?;
        within("duration_s", self.duration_s, 1e-3..=MAX_DURATION_S)?;
        within("window_s", self.window_s, 1e-3..=MAX_S)?;
        within("gap_us", self.gap.as_ns_f64() * 1e-3, 1e-3..=MAX_S * 1e6)?;
        within("spacing_us", self.spacing.as_ns_f64() * 1e-3, 0.0..=MAX_S * 1e6)?;
        within("exchange_timeout_us", self.exchange_timeout.as_ns_f64() * 1e-3, 1e-3..=MAX_S * 1e6)?;
        within("wakeup_ns_mean", self.wakeup_ns_mean, TIME_NS)?;
        if let Some(rate) = self.pairs_per_second {
            within("pairs_per_second", rate, 1e-3..=1e6)?;
        }
        self.check_clocks()?;
        self.check_network()?;
        self.check_stamps()?;
        (0..).zip(&self.replays).try_for_each(|(place, _)| self.check_replay(place))?;
        (0..).zip(&self.faults).try_for_each(|(place, fault)| self.check_fault(place, fault))
    }

    fn check_clocks(&self) -> Result<(), Error> {
        let clocks = &self.clocks;
        within("clocks.offset_ns_max", clocks.offset_ns_max as f64, 0.0..=1e18)?;
        within("clocks.skew_ppm_max", clocks.skew_ppm_max, 0.0..=MAX_PPM)?;
        within("clocks.wander_ppm", clocks.wander_ppm, 0.0..=MAX_WANDER_PPM)?;
        within("clocks.thermal.every_s", clocks.thermal.every_s, 0.0..=MAX_S)?;
        within("clocks.thermal.sd_ppm", clocks.thermal.sd_ppm, 0.0..=MAX_WANDER_PPM)?;
        within("clocks.thermal.tau_s", clocks.thermal.tau_s, 0.0..=MAX_S)?;
        let least_s = if clocks.slews.every_s == 0.0 { 0.0 } else { MIN_SLEWS_S };
        within("clocks.slews.every_s", clocks.slews.every_s, least_s..=MAX_S)?;
        within("clocks.slews.ppm_max", clocks.slews.ppm_max, 0.0..=MAX_PPM)?;
        within("clocks.slews.for_s", clocks.slews.for_s, 0.0..=MAX_S)?;
        within("clocks.wave.amplitude_ns_max", clocks.wave.amplitude_ns_max, TIME_NS)?;
        within("clocks.wave.period_s", clocks.wave.period_s, 1e-3..=MAX_S)?;
        // Amplitude in ns over period in s is slope in units of 1e-9.
        let slope_ppm = std::f64::consts::TAU * clocks.wave.amplitude_ns_max / clocks.wave.period_s * 1e-3;
        within("steepest slope of clocks.wave in ppm", slope_ppm, 0.0..=MAX_PPM)
    }

    fn check_network(&self) -> Result<(), Error> {
        let network = &self.network;
        within("network.delay_ns", network.delay_ns as f64, TIME_NS)?;
        within("network.delay_spread_ns", network.delay_spread_ns as f64, TIME_NS)?;
        within("network.asymmetry_ns_max", network.asymmetry_ns_max as f64, TIME_NS)?;
        within("network.asymmetry_sd_ns", network.asymmetry_sd_ns, TIME_NS)?;
        within("network.load", network.load, 0.0..=MAX_LOAD)?;
        within("network.load_spread", network.load_spread, 0.0..=MAX_LOAD)?;
        within("network.load + network.load_spread", network.load + network.load_spread, 0.0..=MAX_LOAD)?;
        within("network.load_change_s", network.load_change_s, 0.0..=MAX_S)?;
        within("network.burst_ns_mean", network.burst_ns_mean, TIME_NS)?;
        within("network.queueing_ns_mean", network.queueing_ns_mean, TIME_NS)?;
        within("network.loss", network.loss, PROBABILITY)?;
        within("network.duplication", network.duplication, PROBABILITY)?;
        within("network.straggling", network.straggling, PROBABILITY)?;
        within("network.straggling_ns", network.straggling_ns as f64, TIME_NS)?;
        within("network.foreign", network.foreign, PROBABILITY)
    }

    fn check_stamps(&self) -> Result<(), Error> {
        let stamps = &self.stamps;
        within("stamps.noise_ns_max", stamps.noise_ns_max as f64, TIME_NS)?;
        within("stamps.noise_sd_ns", stamps.noise_sd_ns, TIME_NS)?;
        within("stamps.late_ns_mean", stamps.late_ns_mean, TIME_NS)?;
        within("stamps.spike", stamps.spike, PROBABILITY)?;
        within("stamps.spike_ns_mean", stamps.spike_ns_mean, TIME_NS)?;
        within("stamps.tick_ns", stamps.tick_ns as f64, 1.0..=MAX_NS)?;
        within("stamps.report_ns", stamps.report_ns as f64, TIME_NS)?;
        within("stamps.missing", stamps.missing, PROBABILITY)?;
        within("stamps.unsendable", stamps.unsendable, PROBABILITY)
    }

    fn check_replay(&self, place: usize) -> Result<(), Error> {
        let replay = &self.replays[place];
        let field = format!("replays[{place}]");
        self.known(&format!("{field}.node"), replay.node)?;
        if self.replays[..place].iter().any(|other| other.node == replay.node) {
            return Err(Error::Contradiction { field, problem: format!("node {} has a series already", replay.node) });
        }
        if !replay.points.iter().all(|(at, error)| at.abs() <= MAX_S && error.abs() <= MAX_NS) {
            return Err(Error::Contradiction {
                field,
                problem: format!("times up to {MAX_S} s and errors up to 1e15 ns"),
            });
        }
        if replay.points.windows(2).any(|pair| pair[1].0 - pair[0].0 < 1e-6) {
            let problem = "times must grow by at least a microsecond from point to point".to_owned();
            return Err(Error::Contradiction { field, problem });
        }
        Ok(())
    }

    fn check_fault(&self, place: usize, fault: &Fault) -> Result<(), Error> {
        let name = |part: &str| format!("faults[{place}].{part}");
        within(&name("start_s"), fault.start_s, 0.0..=MAX_S)?;
        if let Some(end_s) = fault.end_s {
            within(&name("end_s"), end_s, fault.start_s..=MAX_S)?;
        }
        match &fault.what {
            FaultKind::Step { node, step_ns, .. } => {
                self.known(&name("what.step.node"), *node)?;
                within(&name("what.step.step_ns"), *step_ns as f64, -MAX_NS..=MAX_NS)
            }
            FaultKind::Slew { node, ppm, .. } => {
                self.known(&name("what.slew.node"), *node)?;
                within(&name("what.slew.ppm"), *ppm, -MAX_PPM..=MAX_PPM)
            }
            FaultKind::Reboot { node, offset_ns } => {
                self.known(&name("what.reboot.node"), *node)?;
                within(&name("what.reboot.offset_ns"), *offset_ns as f64, -MAX_NS..=MAX_NS)
            }
            FaultKind::Pause { node } => self.known(&name("what.pause.node"), *node),
            FaultKind::LateJoin { node } => self.known(&name("what.late_join.node"), *node),
            FaultKind::Falseticker { node, constant_ns, ramp_ns_per_s, .. } => {
                self.known(&name("what.falseticker.node"), *node)?;
                within(&name("what.falseticker.constant_ns"), *constant_ns, -MAX_NS..=MAX_NS)?;
                within(&name("what.falseticker.ramp_ns_per_s"), *ramp_ns_per_s, -MAX_NS..=MAX_NS)
            }
            FaultKind::Asymmetry { src, dst, extra_ns } => {
                self.check_path(&name("what.asymmetry"), *src, *dst, *extra_ns)
            }
            FaultKind::RouteChange { src, dst, extra_ns, .. } => {
                self.check_path(&name("what.route_change"), *src, *dst, *extra_ns)
            }
            FaultKind::Loss { probability, from, to, .. } => {
                from.iter().chain(to).try_for_each(|node| self.known(&name("what.loss"), *node))?;
                within(&name("what.loss.probability"), *probability, PROBABILITY)
            }
            FaultKind::Partition { nodes } => {
                nodes.iter().try_for_each(|node| self.known(&name("what.partition.nodes"), *node))
            }
        }
    }

    fn check_path(&self, field: &str, src: NodeId, dst: NodeId, extra_ns: i64) -> Result<(), Error> {
        self.known(&format!("{field}.src"), src)?;
        self.known(&format!("{field}.dst"), dst)?;
        if src == dst {
            return Err(Error::Contradiction {
                field: field.to_owned(),
                problem: "src and dst are the same".to_owned(),
            });
        }
        within(&format!("{field}.extra_ns"), extra_ns as f64, -MAX_NS..=MAX_NS)
    }

    fn known(&self, field: &str, node: NodeId) -> Result<(), Error> {
        within(field, f64::from(node.0), 0.0..=f64::from(self.nodes) - 1.0)
    }
}

fn within(field: &str, value: f64, range: RangeInclusive<f64>) -> Result<(), Error> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Error::Range {
        field: field.to_owned(),
        value: value.to_string(),
        range: (range.start().to_string(), range.end().to_string()),
    })
}

/// 31 years.
const MAX_S: f64 = 1e9;
/// A day: wander is drawn in advance.
const MAX_DURATION_S: f64 = 86_400.0;
/// Twelve days: sums of some such times stay far from the ends of i64.
const MAX_NS: f64 = 1e15;
/// One per cent; no oscillator is so bad.
const MAX_PPM: f64 = 1e4;
/// Slews are drawn in advance: a clock has a limited number of them.
const MIN_SLEWS_S: f64 = 0.1;
/// A rate that walks so far in a second stays below a few per cent for a day.
const MAX_WANDER_PPM: f64 = 100.0;
/// The queue's length grows like 1/(1 − load), and its relaxation time like the square of that.
const MAX_LOAD: f64 = 0.99;
const TIME_NS: RangeInclusive<f64> = 0.0..=MAX_NS;
const PROBABILITY: RangeInclusive<f64> = 0.0..=1.0;
