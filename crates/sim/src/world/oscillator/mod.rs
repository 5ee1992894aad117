//! Generates a clock: constants, wander, temperature, slews, and the faults that affect it.
//!
//! Wander: over each step of Δ = [`STEP_NS`] the rate is constant, `f_{k+1} = f_k + N(0, σ²·Δ)`,
//! and the error it adds is its integral, `x_{k+1} = x_k + f_k·Δ`. Temperature: changes come as a
//! Poisson process (at most one per step) and move the target T of the thermal rate h by N(0, sd²);
//! `h_{k+1} = T + (h_k − T)·exp(−Δ/τ)`, so a change A at t adds the rate
//! `A·(1 − exp(−(t' − t)/τ))`.
//!
//! Each clock has its own streams of random numbers: a longer run has the same beginning.

use probe_sync_time::{Duration, NodeId, SkewedClock, Step, System, Timestamp, Wave};

use crate::scenario::faults::{FaultKind, nanoseconds};
use crate::scenario::{Clocks, Scenario};
use crate::world::clock::{Disturbance, STEP_NS, Slew, WanderingClock};
use crate::world::random::{Draws, Purpose};

/// The clock of `node` in a run of `scenario`; its wander is drawn for `horizon`, afterwards it
/// keeps its last rate.
pub(crate) fn clock(
    scenario: &Scenario,
    seed: u64,
    node: NodeId,
    start: Timestamp<System>,
    horizon: Duration,
) -> WanderingClock {
    let laws = &scenario.clocks;
    let mut draws = Draws::new(seed, Purpose::Clock, u64::from(node.0));
    let off_ns = draws.symmetric(laws.offset_ns_max as f64).round() as i64;
    let ppm = draws.symmetric(laws.skew_ppm_max);
    let wave = Wave {
        amp_ns: laws.wave.amplitude_ns_max * draws.unit(),
        period_ns: nanoseconds(laws.wave.period_s),
        phase_rad: std::f64::consts::TAU * draws.unit(),
    };
    let is_reference = node == NodeId(0);
    let mut clock = WanderingClock {
        skewed: SkewedClock { t0_ns: start.as_ns(), ..SkewedClock::default() },
        start,
        knots: Vec::new(),
        slews: Vec::new(),
        replay: replay(scenario, node),
        noticed: Vec::new(),
    };
    if !is_reference {
        clock.skewed.off_ns = off_ns;
        clock.skewed.wave = (wave.amp_ns != 0.0).then_some(wave);
    }
    if !is_reference || laws.reference_wanders {
        clock.skewed.ppm = ppm;
        clock.knots = knots(laws, horizon, &mut draws);
        add_slews(&mut clock, laws, horizon, &mut Draws::new(seed, Purpose::ClockEvents, u64::from(node.0)));
    }
    add_faults(&mut clock, scenario, node);
    clock.noticed.retain(|seen| {
        scenario.clock_watch && (seen.step_ns.abs() > STEP_SEEN_NS || seen.slew_ppm.abs() > SLEW_SEEN_PPM)
    });
    clock.noticed.sort_by_key(|seen| seen.at_ns);
    clock
}

/// Error and rate of wander and temperature at each step.
fn knots(laws: &Clocks, horizon: Duration, draws: &mut Draws) -> Vec<(f64, f64)> {
    let thermal = laws.thermal;
    let warms = thermal.every_s > 0.0 && thermal.sd_ppm > 0.0;
    if laws.wander_ppm == 0.0 && !warms {
        return Vec::new();
    }
    let step_s = STEP_NS as f64 * 1e-9;
    let wander_sd = laws.wander_ppm * 1e-6 * step_s.sqrt();
    let change = if warms { 1.0 - (-step_s / thermal.every_s).exp() } else { 0.0 };
    let stays = if thermal.tau_s > 0.0 { (-step_s / thermal.tau_s).exp() } else { 0.0 };
    let (mut error, mut wander, mut heat, mut target) = (0.0, 0.0, 0.0, 0.0);
    let steps = horizon.as_ns().max(0) / STEP_NS + 1;
    let knot = |_| {
        if draws.chance(change) {
            target += draws.normal(thermal.sd_ppm * 1e-6);
        }
        let knot = (error, wander + heat);
        error += (wander + heat) * STEP_NS as f64;
        wander += draws.normal(wander_sd);
        heat = target + (heat - target) * stays;
        knot
    };
    (0..steps).map(knot).collect()
}

/// A daemon's slews.
fn add_slews(clock: &mut WanderingClock, laws: &Clocks, horizon: Duration, draws: &mut Draws) {
    let law = laws.slews;
    if law.every_s <= 0.0 || law.for_s <= 0.0 {
        return;
    }
    let mut at_s = draws.exponential(law.every_s);
    while nanoseconds(at_s) < horizon.as_ns() {
        let slew = Slew {
            start_ns: nanoseconds(at_s),
            end_ns: nanoseconds(at_s + law.for_s),
            ppm: draws.symmetric(law.ppm_max),
        };
        add_slew(clock, slew, true);
        // A daemon ends one slew before it begins the next.
        at_s += law.for_s + draws.exponential(law.every_s);
    }
}

fn add_slew(clock: &mut WanderingClock, slew: Slew, seen: bool) {
    clock.slews.push(slew);
    if seen {
        for (at_ns, slew_ppm) in [(slew.start_ns, slew.ppm), (slew.end_ns, -slew.ppm)] {
            clock.noticed.push(Disturbance { at_ns, step_ns: 0, slew_ppm });
        }
    }
}

fn add_faults(clock: &mut WanderingClock, scenario: &Scenario, node: NodeId) {
    for fault in &scenario.faults {
        let span = fault.span();
        match fault.what {
            FaultKind::Step { node: whose, step_ns, seen } if whose == node => {
                add_step(clock, span.start_ns, step_ns);
                if seen {
                    clock.noticed.push(Disturbance { at_ns: span.start_ns, step_ns, slew_ppm: 0.0 });
                }
            }
            FaultKind::Slew { node: whose, ppm, seen } if whose == node => {
                add_slew(clock, Slew { start_ns: span.start_ns, end_ns: span.end_ns, ppm }, seen);
            }
            // The new process has never seen the clock before the jump.
            FaultKind::Reboot { node: whose, offset_ns } if whose == node => {
                add_step(clock, span.start_ns, offset_ns);
            }
            _ => {}
        }
    }
}

fn add_step(clock: &mut WanderingClock, since_ns: i64, step_ns: i64) {
    clock.skewed.steps.push(Step { at_ns: clock.start.as_ns() + since_ns, step_ns });
}

fn replay(scenario: &Scenario, node: NodeId) -> Vec<(i64, f64)> {
    let own = scenario.replays.iter().find(|replay| replay.node == node);
    own.into_iter().flat_map(|replay| &replay.points).map(|(at_s, error_ns)| (nanoseconds(*at_s), *error_ns)).collect()
}

/// Smaller steps pass unnoticed by a real watch (`STEP_LIMIT_NS` of `probe_sync_sys`'s clock
/// watch), ns.
const STEP_SEEN_NS: i64 = 1_000;

/// Smaller changes of rate pass unnoticed by a real watch (`SLEW_LIMIT_PPM` there), ppm.
const SLEW_SEEN_PPM: f64 = 2.0;

#[cfg(test)]
mod tests;
