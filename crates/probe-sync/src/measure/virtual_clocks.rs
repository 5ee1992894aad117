//! Virtual clocks with known error, laid over the real timestamps to test the whole pipeline
//! against truth.
//!
//! `--inject-skew SEED` gives every node but node 0 an offset and a rate drawn uniformly from the
//! configured ranges, and `--skew-model` says what else its clock does ([`SkewModel`]). The
//! estimators never see any of it; `truth.json` states it, t being the machine's real clock:
//!
//! `node(t) = t + off_ns + ppm·1e-6·(t − t0_ns) + amp_ns·sin(2π·(t − t0_ns)/period_ns + phase_rad)
//!            + Σ step_ns·[t − t0_ns ≥ step_at_ns]`.
//!
//! Node 0 is not skewed. When the reference r shows M, the true offset of node i is `node_i(t) − M`
//! with t such that `node_r(t) = M`; where node 0 is the reference, t is M itself.
//!
//! Who sees what. A wave stands for the oscillator's temperature, which moves `CLOCK_MONOTONIC_RAW`
//! too, so the clock watch is shown the clock without it. A step stands for somebody who sets the
//! clock, and the watch sees it.
//!
//! It means something only where all nodes share one real clock, so `roster` refuses it across
//! machines.

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::io::ErrorKind;
use std::path::Path;

use probe_sync_time::{Duration, NodeId, Reference, SkewedClock, Step, System, Timestamp, Wave};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::config::SkewModel;
use crate::join::Joined;
use crate::{Config, Error};

/// Returns the virtual clock of a node of this run.
pub(crate) fn clock_of(joined: &Joined, node: NodeId) -> SkewedClock {
    virtual_clock(&joined.config, joined.plan.clock_numbers[node.index()], joined.roster.start.as_ns())
}

/// Returns the virtual clock of this number, which is that of its node unless the run is one of
/// several (`Plan::clock_numbers`), in a run that starts when the real clock shows `start_ns`; the
/// identity without `--inject-skew`.
fn virtual_clock(config: &Config, number: u32, start_ns: i64) -> SkewedClock {
    let (Some(seed), true) = (config.inject_skew, number != UNSKEWED) else { return SkewedClock::default() };
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // One stream per node: its clock does not depend on how many nodes there are. Models draw after
    // offset and rate, which are therefore the same in all.
    random.set_stream(u64::from(number));
    let range = config.skew_offset.as_ns().abs();
    let off_ns = random.random_range(-range..=range);
    let ppm = random.random_range(-config.skew_ppm..=config.skew_ppm);
    let (wave, mut steps) = match config.skew_model {
        SkewModel::Constant => (None, Vec::new()),
        SkewModel::Sinusoid => (Some(wave(&mut random)), Vec::new()),
        SkewModel::Steps => (None, steps(config, start_ns, &mut random)),
    };
    let injected = config.inject_step.filter(|step| step.node.0 == number);
    steps.extend(
        injected.map(|step| Step { at_ns: start_ns.saturating_add(step.after.as_ns()), step_ns: step.step.as_ns() }),
    );
    SkewedClock { t0_ns: start_ns, off_ns, ppm, wave, steps }
}

fn wave(random: &mut ChaCha8Rng) -> Wave {
    Wave {
        amp_ns: random.random_range(WAVE_AMP_NS[0]..=WAVE_AMP_NS[1]),
        period_ns: random.random_range(WAVE_PERIOD_NS[0]..=WAVE_PERIOD_NS[1]),
        phase_rad: TAU * random.random::<f64>(),
    }
}

fn steps(config: &Config, start_ns: i64, random: &mut ChaCha8Rng) -> Vec<Step> {
    let window_ns = config.window().as_ns();
    let span_ns = config.duration.map_or(window_ns.saturating_mul(WINDOWS_WITHOUT_DURATION), Duration::as_ns);
    // `Config` has seen to it that the run is long enough.
    let last_ns = span_ns.saturating_sub(window_ns).max(window_ns);
    let count = random.random_range(1..=STEPS_MAX);
    (0..count)
        .map(|_| {
            let at_ns = start_ns.saturating_add(random.random_range(window_ns..=last_ns));
            // Evenly over the orders of magnitude: a small step is no rarer than a large one.
            let size_ns = STEP_NS[0] * (STEP_NS[1] / STEP_NS[0]).powf(random.random::<f64>());
            let sign = if random.random::<bool>() { 1.0 } else { -1.0 };
            Step { at_ns, step_ns: (sign * size_ns).round() as i64 }
        })
        .collect()
}

/// The true clocks of all nodes of a run with virtual clocks, and their true offsets from the
/// reference.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Clocks by node; empty if unknown.
    clocks: Vec<SkewedClock>,
    reference: SkewedClock,
}

impl Truth {
    /// Reads the truth from a run's directory; `None` if its clocks were real.
    ///
    /// # Errors
    /// [`Error::File`] names a file that cannot be read or does not state clocks.
    pub fn read(directory: &Path) -> Result<Option<Self>, Error> {
        let path = directory.join(TRUTH);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file(&path, "read")(error)),
        };
        let stated = serde_json::from_slice(&text).map_err(|error| Error::file(&path, "read")(error.into()))?;
        Ok(Some(Self::stated(&stated)))
    }

    /// Creates the truth from the content of [`document`].
    fn stated(Stated { reference_node, nodes }: &Stated) -> Self {
        let clock = |node: u32| nodes.get(&node).map(Clock::clock).unwrap_or_default();
        let count = nodes.keys().next_back().map_or(0, |last| last.saturating_add(1)).min(NODES_MAX);
        Self { clocks: (0..count).map(clock).collect(), reference: clock(reference_node.0) }
    }

    /// Returns the truth of a run whose nodes have clocks of these numbers; empty without
    /// `--inject-skew`.
    pub(crate) fn of(config: &Config, numbers: &[u32], reference: NodeId, start: Timestamp<System>) -> Self {
        if config.inject_skew.is_none() {
            return Self::default();
        }
        let clock = |number: &u32| virtual_clock(config, *number, start.as_ns());
        let reference = numbers.get(reference.index()).map(clock).unwrap_or_default();
        Self { clocks: numbers.iter().map(clock).collect(), reference }
    }

    /// Returns true if the run has virtual clocks.
    pub(crate) fn is_known(&self) -> bool {
        !self.clocks.is_empty()
    }

    /// Returns the virtual clocks by node.
    pub(crate) fn clocks(&self) -> &[SkewedClock] {
        &self.clocks
    }

    /// Returns the true offset of a node, ns, when the reference's clock shows `at`: `node_i(t) −
    /// at` for the t at which `node_r(t) = at`.
    pub fn offset_ns(&self, node: NodeId, at: Timestamp<Reference>) -> Option<f64> {
        let clock = self.clocks.get(node.index())?;
        let real = self.reference.invert(at.of_reference_node());
        Some(clock.error_ns(real) - self.reference.error_ns(real))
    }

    /// Returns the true rate of a node relative to the reference, ppm, when the reference's clock
    /// shows `at`.
    pub(crate) fn drift_ppm(&self, node: NodeId, at: Timestamp<Reference>) -> Option<f64> {
        let clock = self.clocks.get(node.index())?;
        let real = self.reference.invert(at.of_reference_node());
        let of_reference = self.reference.rate_ppm(real);
        Some((clock.rate_ppm(real) - of_reference) / (1.0 + of_reference * 1e-6))
    }
}

/// The fields of `truth.json` that are read.
#[derive(Deserialize)]
struct Stated {
    reference_node: NodeId,
    nodes: BTreeMap<u32, Clock>,
}

/// One clock in the form of [`parameters`].
#[derive(Deserialize)]
struct Clock {
    t0_ns: i64,
    off_ns: i64,
    ppm: f64,
    amp_ns: f64,
    period_ns: i64,
    phase_rad: f64,
    #[serde(flatten)]
    first: StepSinceStart,
    #[serde(default)]
    more_steps: Vec<StepSinceStart>,
}

#[derive(Deserialize)]
struct StepSinceStart {
    step_ns: i64,
    step_at_ns: i64,
}

impl Clock {
    fn clock(&self) -> SkewedClock {
        let Self { t0_ns, off_ns, ppm, amp_ns, period_ns, phase_rad, first, more_steps } = self;
        let waves = *amp_ns != 0.0 && *period_ns > 0;
        let steps = [first].into_iter().chain(more_steps).filter(|step| step.step_ns != 0);
        let step = |step: &StepSinceStart| Step { at_ns: t0_ns.saturating_add(step.step_at_ns), step_ns: step.step_ns };
        SkewedClock {
            t0_ns: *t0_ns,
            off_ns: *off_ns,
            ppm: *ppm,
            wave: waves.then_some(Wave { amp_ns: *amp_ns, period_ns: *period_ns, phase_rad: *phase_rad }),
            steps: steps.map(step).collect(),
        }
    }
}

/// Returns the content of `truth.json`. The keys of the first step are repeated at the top level
/// for readers that support only one.
pub(crate) fn document(config: &Config, clocks: &[SkewedClock], reference: NodeId, start: Timestamp<System>) -> Value {
    let nodes: Map<String, Value> =
        clocks.iter().enumerate().map(|(node, clock)| (node.to_string(), parameters(clock, start.as_ns()))).collect();
    json!({
        "reference": "t = CLOCK_REALTIME of the machine that ran all nodes",
        "reference_node": reference, "skew_model": config.skew_model.name(),
        "model": "node(t) = t + off_ns + ppm*1e-6*(t - t0_ns) + amp_ns*sin(2*pi*(t - t0_ns)/period_ns + phase_rad) \
                  + (step_ns if step_ns != 0 and t - t0_ns >= step_at_ns) \
                  + (sum of step_ns of more_steps with t - t0_ns >= their step_at_ns)",
        "nodes": nodes,
    })
}

fn parameters(clock: &SkewedClock, start_ns: i64) -> Value {
    let wave = clock.wave.unwrap_or(Wave { amp_ns: 0.0, period_ns: 1, phase_rad: 0.0 });
    let step = |step: &Step| {
        let since_start = Timestamp::<System>::from_ns(step.at_ns) - Timestamp::from_ns(start_ns);
        (step.step_ns, since_start.as_ns())
    };
    let (step_ns, step_at_ns) = clock.steps.first().map_or((0, 0), step);
    let more = clock.steps.iter().skip(1).map(step);
    let more: Vec<Value> = more.map(|(ns, at_ns)| json!({ "step_ns": ns, "step_at_ns": at_ns })).collect();
    json!({
        "t0_ns": start_ns, "off_ns": clock.off_ns, "ppm": clock.ppm,
        "amp_ns": wave.amp_ns, "period_ns": wave.period_ns, "phase_rad": wave.phase_rad,
        "step_ns": step_ns, "step_at_ns": step_at_ns, "more_steps": more,
    })
}

/// Name of the file in a run's directory.
pub(crate) const TRUTH: &str = "truth.json";
/// Most nodes of a run, so that a number in a foreign file cannot exhaust the memory.
const NODES_MAX: u32 = 1 << 20;

/// Number of the clock that is the real one, whichever node is the reference.
const UNSKEWED: u32 = 0;

/// Range of the waves' amplitudes.
const WAVE_AMP_NS: [f64; 2] = [5_000.0, 50_000.0];
/// Range of the waves' periods.
const WAVE_PERIOD_NS: [i64; 2] = [20_000_000_000, 60_000_000_000];
/// Range of the steps' sizes. Smaller steps would be below the clock watch's detection limit.
const STEP_NS: [f64; 2] = [5_000.0, 1_000_000.0];
/// Most steps of one clock.
const STEPS_MAX: u32 = 2;
/// A run without a set length has its steps within this many windows.
const WINDOWS_WITHOUT_DURATION: i64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_true_and_the_others_stay_in_range() {
        let config = Config { inject_skew: Some(7), ..Config::default() };
        assert!(virtual_clock(&config, UNSKEWED, 5).is_identity());
        assert!(virtual_clock(&Config::default(), 1, 5).is_identity());
        for node in 1..200 {
            let clock = virtual_clock(&config, node, 5);
            assert!(clock.off_ns.abs() <= 10_000_000 && clock.ppm.abs() <= 50.0 && !clock.is_identity());
            assert_eq!(clock, virtual_clock(&config, node, 5));
        }
    }

    #[test]
    fn models_keep_their_ranges_and_leave_offset_and_rate_alone() {
        let constant = Config {
            inject_skew: Some(7),
            duration: Some(Duration::from_ms(12_000)),
            fixed: true,
            ..Config::default()
        };
        let window_ns = constant.window().as_ns();
        for node in 1..200 {
            let [plain, swinging, stepping] = [SkewModel::Constant, SkewModel::Sinusoid, SkewModel::Steps]
                .map(|skew_model| virtual_clock(&Config { skew_model, ..constant.clone() }, node, 5));
            assert!((plain.off_ns, plain.ppm) == (swinging.off_ns, swinging.ppm));
            assert!((plain.off_ns, plain.ppm) == (stepping.off_ns, stepping.ppm));
            assert!(
                plain.wave.is_none() && plain.steps.is_empty() && swinging.steps.is_empty() && stepping.wave.is_none()
            );
            let wave = swinging.wave.expect("a wave");
            assert!((5e3..=5e4).contains(&wave.amp_ns) && (20_000_000_000..=60_000_000_000).contains(&wave.period_ns));
            assert!((1..=2).contains(&stepping.steps.len()));
            for step in &stepping.steps {
                assert!((5_000..=1_000_000).contains(&step.step_ns.abs()), "{step:?}");
                assert!((5 + window_ns..=5 + 2 * window_ns).contains(&step.at_ns), "{step:?}");
            }
        }
    }

    #[test]
    fn the_document_says_what_the_clocks_do() {
        let config = Config { inject_skew: Some(3), skew_model: SkewModel::Sinusoid, ..Config::default() };
        let mut clock = virtual_clock(&config, 1, 1_000);
        clock.steps = [(7, 300), (-9, 500)].map(|(step_ns, at_ns)| Step { at_ns: 1_000 + at_ns, step_ns }).to_vec();
        let document =
            document(&config, &[SkewedClock::default(), clock.clone()], NodeId(0), Timestamp::from_ns(1_000));
        let stated = &document["nodes"]["1"];
        let number = |value: &Value| value.as_f64().expect("a number");
        for since in [0, 400, 7_000_000_000_i64] {
            let angle = TAU * since as f64 / number(&stated["period_ns"]) + number(&stated["phase_rad"]);
            let mut expected = number(&stated["off_ns"]) + number(&stated["ppm"]) * 1e-6 * since as f64;
            expected += number(&stated["amp_ns"]) * angle.sin();
            let more = stated["more_steps"].as_array().expect("a list");
            for step in more.iter().chain([stated]) {
                expected += if since as f64 >= number(&step["step_at_ns"]) { number(&step["step_ns"]) } else { 0.0 };
            }
            assert!(
                (clock.error_ns(Timestamp::from_ns(1_000 + since)) - expected).abs() < 1e-6,
                "{since} {document:#}"
            );
        }
        assert_eq!(document["skew_model"], "sinusoid");

        let read = Truth::stated(&serde_json::from_value(document).expect("as it is stated"));
        assert_eq!(read.clocks(), [SkewedClock::default(), clock].map(|clock| SkewedClock { t0_ns: 1_000, ..clock }));
    }

    #[test]
    fn truth_by_hand() {
        // Node 1 is 1000 ns ahead at t0 = 0 and gains 10 ppm: after 1 s it is 11 000 ns ahead.
        let one = SkewedClock { t0_ns: 0, off_ns: 1000, ppm: 10.0, ..SkewedClock::default() };
        let clocks = vec![SkewedClock::default(), one.clone()];
        let second = Timestamp::from_ns(1_000_000_000);
        let truth = Truth { clocks: clocks.clone(), reference: SkewedClock::default() };
        assert_eq!(truth.offset_ns(NodeId(1), second), Some(11_000.0));
        assert_eq!(truth.drift_ppm(NodeId(1), second), Some(10.0));
        // The other way round: when node 1 shows 1 s, 11 000 ns less 0.11 ns have passed for node
        // 0.
        let truth = Truth { clocks, reference: one };
        let offset = truth.offset_ns(NodeId(0), second).expect("known");
        assert!((offset + 11_000.0 - 0.11).abs() < 0.01, "{offset}");
        assert_eq!(truth.offset_ns(NodeId(1), second), Some(0.0));
        let drift = truth.drift_ppm(NodeId(0), second).expect("known");
        assert!((drift + 10.0).abs() < 1e-3 && drift > -10.0, "{drift}");
    }
}
