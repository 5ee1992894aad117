//! A second analysis of the packets once the clocks are known: the distribution of delays, and the
//! information it gives for every packet.
//!
//! A single window must find its line from its few lowest delays. With the clocks known to some
//! nanoseconds, all packets from one node to the other over the whole run show the distribution h
//! of that direction's delays, and every packet then contributes information:
//! - **Motion.** With ψ = (ln h)′ the efficient estimate of how much θ moved in a window is where
//!   scoring steps end, `δ = Σ s / Σ J` each, where a forward packet of delay e has `s = −ψ(e)`, a
//!   reverse packet `s = ψ(e)`, and J is the mean of −ψ′ over the run; its variance is
//!   `n·E[ψ²]/(n·J)²`, with what left together summed before it is squared. (Fisher scoring; van
//!   der Vaart, Asymptotic Statistics, 5.7.) For delays with a sharp floor it is as good as the
//!   hull, for software stamps, whose floor is soft, much better. h is a kernel estimate in the
//!   variable asinh(e/s).
//! - **Level.** The floor of each direction over the whole run,
//!   `lowest − mean spacing of the lowest`, has a bias many times smaller than a window's; half the
//!   difference of the two floors is the constant part of θ. The loops decide how far it replaces
//!   the windows' mean.
//!
//! It cannot tell asymmetry from offset, because the floors contain the asymmetry too.

use std::collections::BTreeMap;

use probe_sync_time::{Duration, Edge, Exchange, StampSource, Timestamp};

use super::fit::{Fit, Level};
use super::layout::{Measure, PARTS, Span};
use super::refine;
use crate::graph::edges::PER_SECOND;
use crate::graph::linear::{Block, Pair, inverse};
use crate::motion::{apply, block, product, square};
use crate::statistics::{MOMENT_NS, by_moment, lowest_by_moment};

/// A packet whose delay is known up to the error of the clocks.
#[derive(Copy, Clone, Debug)]
struct Delayed {
    knot: u32,
    /// Since the knot, s.
    x: f64,
    delay: f64,
}

impl Delayed {
    /// Since the run's origin, s.
    fn time(&self, knots: &[f64]) -> f64 {
        knots[self.knot as usize] + self.x
    }
}

/// All packets between two nodes, from the first to the second and back.
#[derive(Clone, Debug, Default)]
struct Traffic {
    ways: [Vec<Delayed>; 2],
}

/// Exchanges by edge.
pub type Exchanges<'a> = BTreeMap<Edge, Vec<&'a [Exchange]>>;

/// Replaces the lines of the windows by the result of all packets, if there are enough of them.
pub(super) fn renew_motion(fit: &mut Fit, exchanges: &Exchanges<'_>, told: &mut dyn FnMut(f64)) {
    let traffic = sorted(fit, exchanges, &mut |share| told(SORTED * share));
    let levels = fit.means();
    let mut measures = Vec::with_capacity(fit.layout.measures.len());
    let mut covariances = Vec::with_capacity(measures.capacity());
    let mut weights = Vec::with_capacity(measures.capacity());
    let count = fit.layout.node_pairs.len();
    for number in 0..count {
        told(SORTED + (1.0 - SORTED) * number as f64 / count as f64);
        let node_pair = fit.layout.node_pairs[number].clone();
        let first = measures.len();
        let scores = traffic.get(number).and_then(|traffic| Scores::new(&fit.layout.knots, traffic));
        let renewed = scores
            .map(|scores| renewed(fit, levels[number].value, (number, &traffic[number]), &scores))
            .unwrap_or_default();
        // A sharp floor is better left to the hull; what each claims to know decides.
        let old = node_pair.measures.clone().map(|at| fit.rescaled(fit.layout.measures[at].covariance));
        let knows = |covariances: &mut dyn Iterator<Item = Block>| covariances.map(|c| 1.0 / c[0]).sum::<f64>();
        if knows(&mut renewed.iter().map(|measure| measure.covariance)) > knows(&mut old.clone()) {
            weights.extend(renewed.iter().map(|_| 1.0));
            covariances.extend(renewed.iter().map(|measure| measure.covariance));
            measures.extend(renewed);
        } else {
            measures.extend(fit.layout.measures[node_pair.measures.clone()].iter().cloned());
            covariances.extend(old);
            weights.extend(fit.robust.0[node_pair.measures.clone()].iter().copied());
        }
        fit.layout.node_pairs[number].measures = first..measures.len();
    }
    fit.layout.measures = measures;
    fit.covariances = covariances;
    fit.robust.0 = weights;
    fit.scales = [1.0; 2];
    fit.share_errors();
}

/// The constant part of every node pair's theta, from the floors of its delays.
pub(super) fn floors(fit: &Fit, exchanges: &Exchanges<'_>, told: &mut dyn FnMut(f64)) -> Vec<Option<Level>> {
    let knots = &fit.layout.knots;
    let level = |traffic: &Traffic| {
        let [there, back] = [floor(knots, &traffic.ways[0])?, floor(knots, &traffic.ways[1])?];
        Some(Level { value: 0.5 * (there.0 - back.0), variance: 0.25 * (there.1 + back.1) })
    };
    sorted(fit, exchanges, told).iter().map(level).collect()
}

/// Every node pair's packets with their delays.
fn sorted(fit: &Fit, exchanges: &Exchanges<'_>, told: &mut dyn FnMut(f64)) -> Vec<Traffic> {
    let tracks = Tracks::new(fit);
    let place: BTreeMap<[usize; 2], usize> =
        fit.layout.node_pairs.iter().enumerate().map(|(number, node_pair)| (node_pair.nodes, number)).collect();
    let mut traffic = vec![Traffic::default(); fit.layout.node_pairs.len()];
    for (number, (edge, lists)) in exchanges.iter().enumerate() {
        told(number as f64 / exchanges.len() as f64);
        let (from, to) = (edge.src.index(), edge.dst.index());
        let Some(pair) = place.get(&[from.min(to), from.max(to)]) else { continue };
        let there = usize::from(from > to);
        let (Some(source), Some(way)) = (common_source(lists), tracks.way([from, to])) else { continue };
        for exchange in lists.iter().flat_map(|list| list.iter()).filter(|exchange| exchange.stamp == source) {
            for (at, u) in exchange.forward_arrived() {
                traffic[*pair].ways[there].extend(tracks.delayed(way, at, u, 1.0));
            }
            for (at, l) in exchange.reverse_arrived() {
                traffic[*pair].ways[1 - there].extend(tracks.delayed(way, at, l, -1.0));
            }
        }
    }
    traffic
}

/// The source of most stamps.
fn common_source(lists: &[&[Exchange]]) -> Option<StampSource> {
    let mut counts: BTreeMap<StampSource, usize> = BTreeMap::new();
    for exchange in lists.iter().flat_map(|list| list.iter()) {
        *counts.entry(exchange.stamp).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(source, _)| source)
}

/// The clocks as far as they are known.
struct Tracks<'a> {
    fit: &'a Fit,
    /// By node: asked for several times per packet, too often for a map.
    spans: Vec<Vec<&'a Span>>,
    reference: usize,
}

/// Common to all packets of an edge: its nodes, and the difference between the source's clock and
/// the reference's at the run's origin.
#[derive(Copy, Clone)]
struct Way {
    from: usize,
    to: usize,
    apart: Apart,
}

/// Difference of potentials, and of the values relative to them.
type Apart = (i128, f64);

impl<'a> Tracks<'a> {
    fn new(fit: &'a Fit) -> Self {
        let nodes = fit.layout.spans.iter().map(|span| span.node + 1).max().unwrap_or(0);
        let mut spans: Vec<Vec<&Span>> = vec![Vec::new(); nodes];
        for span in &fit.layout.spans {
            spans[span.node].push(span);
        }
        Self { fit, spans, reference: fit.reference }
    }

    /// `None` if the source's clock is not known at all.
    fn way(&self, [from, to]: [usize; 2]) -> Option<Way> {
        Some(Way { from, to, apart: self.apart(from, 0.0, 0)? })
    }

    /// A packet's delay: u − θ forward, θ − l backward. `None` if the clocks are not known.
    fn delayed(
        &self,
        Way { from, to, apart }: Way,
        at: Timestamp<probe_sync_time::System>,
        ordinate: Duration,
        sign: f64,
    ) -> Option<Delayed> {
        let layout = &self.fit.layout;
        // When the source's clock shows `at`, the reference's shows `at` less the offset; offsets
        // hardly change over its error.
        let read = |(potential, above): Apart| {
            let since = i128::from(at.as_ns()) - i128::from(layout.origin_ns) - potential;
            (since as f64 - above) / PER_SECOND
        };
        let guess = read(apart);
        let t = read(self.apart(from, guess, nearest(&layout.knots, guess))?);
        let knot = nearest(&layout.knots, t);
        let ((p, a), (q, b)) = (self.offset(from, t, knot)?, self.offset(to, t, knot)?);
        let theta = b - a;
        let rest = (i128::from(ordinate.as_ns()) - (q - p)) as f64 - theta;
        Some(Delayed { knot: knot as u32, x: t - layout.knots[knot], delay: sign * rest })
    }

    /// Difference between a node's clock and the reference's.
    fn apart(&self, node: usize, t: f64, knot: usize) -> Option<Apart> {
        let (potential, above) = self.offset(node, t, knot)?;
        let (zero, base) = self.offset(self.reference, t, knot)?;
        Some((potential - zero, above - base))
    }

    /// Potential, and offset above it, of a node at `t` seconds in the span that holds `knot`; of
    /// the first span for the first guess.
    fn offset(&self, node: usize, t: f64, knot: usize) -> Option<(i128, f64)> {
        let knots = &self.fit.layout.knots;
        let spans = self.spans.get(node)?;
        let span = spans.iter().find(|span| (span.first..=span.last).contains(&knot)).or(spans.first())?;
        let states = &self.fit.states[span.base..span.base + span.len()];
        let above = refine::offset_at_time(&knots[span.first..=span.last], states, t);
        Some((span.potential, above))
    }
}

fn nearest(knots: &[f64], t: f64) -> usize {
    let next = knots.partition_point(|knot| *knot <= t).min(knots.len() - 1);
    let before = next.saturating_sub(1);
    if (t - knots[before]).abs() <= (knots[next] - t).abs() { before } else { next }
}

/// The measures of a node pair from scores: one for each third of a window, or for each window if
/// packets are few. They keep the node pair's mean `level` above the states.
fn renewed(fit: &Fit, level: f64, (number, traffic): (usize, &Traffic), scores: &Scores) -> Vec<Measure> {
    let layout = &fit.layout;
    let mut olds: BTreeMap<usize, &Measure> = BTreeMap::new();
    // A node pair's measures come in order of knot, both ways of a pair next to each other.
    for old in &layout.measures[layout.node_pairs[number].measures.clone()] {
        olds.entry(old.knot).or_insert(old);
    }
    let split = fit.refined && scores.tells_thirds(traffic, olds.len());
    let mut heard: BTreeMap<usize, Heard> = BTreeMap::new();
    for way in [0, 1] {
        for packet in &traffic.ways[way] {
            let own = packet.knot as usize;
            let knot = if split || !fit.refined { own } else { refine::middle(own) };
            let x = packet.x + layout.knots[own] - layout.knots[knot];
            heard.entry(knot).or_default()[way].push([x, packet.delay]);
        }
    }
    let mut measures: Vec<Measure> = Vec::with_capacity(heard.len());
    for (middle, old) in olds {
        let knots = if split { middle - 1..=middle + 1 } else { middle..=middle };
        let (from, to) = if old.sign > 0.0 { (old.from, old.to) } else { (old.to, old.from) };
        let renewed: Option<Vec<Measure>> = knots
            .map(|knot| {
                let (shift, covariance) = shifted(heard.get(&knot)?, scores)?;
                let (a, b) = (fit.states[layout.state(from, knot)], fit.states[layout.state(to, knot)]);
                let value = [b[0] - a[0] + level + shift[0], b[1] - a[1] + shift[1]];
                Some(Measure { from, to, knot, sign: 1.0, value, covariance })
            })
            .collect();
        let as_it_was = || vec![Measure { covariance: fit.rescaled(old.covariance), ..old.clone() }];
        measures.extend(renewed.unwrap_or_else(as_it_was));
    }
    measures
}

/// A window's packets of both directions: since the knot in s, and delay in ns.
type Heard = [Vec<[f64; 2]>; 2];

/// How far a window's line moves, and its covariance J⁻¹·V·J⁻¹: scoring steps until convergence. A
/// single one would stay near its start, and claim to be certain of it. `None` if they do not
/// converge.
fn shifted(heard: &Heard, scores: &Scores) -> Option<(Pair, Block)> {
    if heard.iter().map(Vec::len).sum::<usize>() < PACKETS_PER_WINDOW_MIN {
        return None;
    }
    let [mut steepness, mut scatter]: [Block; 2] = [[0.0; 3]; 2];
    for (packets, law) in heard.iter().zip(&scores.ways) {
        for [x, _] in packets {
            for (k, power) in [1.0, *x, x * x].into_iter().enumerate() {
                steepness[k] += law.steepness * power;
                scatter[k] += law.scatter * power;
            }
        }
    }
    let inverse = square(inverse(steepness)?);
    let covariance = block(product(product(inverse, square(scatter)), inverse));
    let mut shift = [0.0; 2];
    for _ in 0..STEPS_MAX {
        let mut sum = [0.0; 2];
        for ((packets, law), sign) in heard.iter().zip(&scores.ways).zip([-1.0, 1.0]) {
            for [x, delay] in packets {
                let score = sign * law.psi(delay + sign * (shift[0] + shift[1] * x));
                sum = [sum[0] + score, sum[1] + x * score];
            }
        }
        let step = apply(inverse, sum);
        shift = [shift[0] + step[0], shift[1] + step[1]];
        if step[0] * step[0] <= STEP_MIN * STEP_MIN * covariance[0] {
            return Some((shift, covariance));
        }
    }
    None
}

/// The laws of both directions' delays.
struct Scores {
    ways: [Score; 2],
}

impl Scores {
    fn new(knots: &[f64], traffic: &Traffic) -> Option<Self> {
        Some(Self { ways: [Score::new(knots, &traffic.ways[0])?, Score::new(knots, &traffic.ways[1])?] })
    }

    /// Whether a third of a window has enough packets to move a line, and reveals more about the
    /// clocks' positions than they bend within a window.
    fn tells_thirds(&self, traffic: &Traffic, windows: usize) -> bool {
        let thirds = (windows * PARTS).max(1) as f64;
        let per_third = |way: usize| traffic.ways[way].len() as f64 / thirds;
        let sum = |of: fn(&Score) -> f64| per_third(0) * of(&self.ways[0]) + per_third(1) * of(&self.ways[1]);
        let variance = sum(|law| law.scatter) / sum(|law| law.steepness).powi(2);
        per_third(0) + per_third(1) >= PACKETS_PER_THIRD_MIN && variance <= THIRD_SD_NS * THIRD_SD_NS
    }
}

/// ψ on a grid of asinh((e − center)/scale), with its mean steepness and mean square.
struct Score {
    center: f64,
    scale: f64,
    start: f64,
    step: f64,
    values: Vec<f64>,
    steepness: f64,
    scatter: f64,
}

impl Score {
    fn new(knots: &[f64], packets: &[Delayed]) -> Option<Self> {
        if packets.len() < PACKETS_MIN {
            return None;
        }
        let mut delays: Vec<f64> = packets.iter().map(|packet| packet.delay).collect();
        delays.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize];
        let (center, scale) = (at(0.05), (at(0.25) - at(0.05)).max(SCALE_MIN_NS));
        let seen: Vec<f64> = delays.iter().map(|delay| ((delay - center) / scale).asinh()).collect();
        let spread = (seen[(seen.len() - 1) * 3 / 4] - seen[(seen.len() - 1) / 4]) / 1.34;
        // Half of the usual width (Silverman 1986): what counts is the edge of the distribution,
        // which a wide kernel blurs.
        let width = 0.45 * spread.max(0.1) * (seen.len() as f64).powf(-0.2);
        let start = seen[0] - 4.0 * width;
        let step = (seen[seen.len() - 1] + 4.0 * width - start) / (GRID - 1) as f64;
        let density = smoothed(&seen, start, step, width);
        let values = (0..GRID).map(|k| {
            let y = start + step * k as f64;
            let rise = |k: usize| density[k.min(GRID - 1)].max(f64::MIN_POSITIVE).ln();
            let slope =
                (rise(k + 1) - rise(k.saturating_sub(1))) / (step * (2 - usize::from(k == 0 || k + 1 == GRID)) as f64);
            // From y to e: d/de ln(k(y)·dy/de), with dy/de = 1/(scale·cosh y).
            (slope - y.tanh()) / (scale * y.cosh())
        });
        let mut score = Self { center, scale, start, step, values: values.collect(), steepness: 0.0, scatter: 0.0 };
        let count = delays.len() as f64;
        let by = STEEPNESS_STEP * scale;
        let mean = |shift: f64| delays.iter().map(|delay| score.psi(delay + shift)).sum::<f64>() / count;
        let steepness = (mean(-by) - mean(by)) / (2.0 * by);
        let scatter = score.scatter_by_moment(knots, packets) / count;
        (score.steepness, score.scatter) = (steepness, scatter);
        (steepness > 0.0 && scatter.is_finite()).then_some(score)
    }

    /// Σ (Σψ)², the outer sum over the moments at which packets left: those that left together err
    /// alike, and n of them know little more than one (the variance of a sum over clusters; Liang
    /// and Zeger, Biometrika 73, 1986). Never less than Σψ².
    fn scatter_by_moment(&self, knots: &[f64], packets: &[Delayed]) -> f64 {
        let scores: Vec<(f64, f64)> =
            packets.iter().map(|packet| (packet.time(knots), self.psi(packet.delay))).collect();
        let alone = scores.iter().map(|(_, score)| score.powi(2)).sum();
        let together =
            by_moment(scores.into_iter(), MOMENT_S, |sum, score| sum + score).iter().map(|sum| sum * sum).sum();
        f64::max(together, alone)
    }

    fn psi(&self, delay: f64) -> f64 {
        let place = (((delay - self.center) / self.scale).asinh() - self.start) / self.step;
        let place = place.clamp(0.0, (GRID - 1) as f64);
        let below = (place as usize).min(GRID - 2);
        let part = place - below as f64;
        self.values[below] * (1.0 - part) + self.values[below + 1] * part
    }
}

/// Kernel density of sorted values on the grid, up to a constant.
fn smoothed(seen: &[f64], start: f64, step: f64, width: f64) -> Vec<f64> {
    let mut bins = vec![0.0; GRID];
    for y in seen {
        let place = ((y - start) / step).clamp(0.0, (GRID - 1) as f64);
        let below = (place as usize).min(GRID - 2);
        bins[below] += 1.0 - (place - below as f64);
        bins[below + 1] += place - below as f64;
    }
    let reach = (5.0 * width / step).ceil() as usize;
    let kernel: Vec<f64> = (0..=reach).map(|k| (-0.5 * (k as f64 * step / width).powi(2)).exp()).collect();
    (0..GRID)
        .map(|k| {
            let from = k.saturating_sub(reach);
            (from..=(k + reach).min(GRID - 1)).map(|other| bins[other] * kernel[k.abs_diff(other)]).sum()
        })
        .collect()
}

/// The floor of a direction's delays and its variance; packets that leave together count once, with
/// the lowest.
fn floor(knots: &[f64], packets: &[Delayed]) -> Option<(f64, f64)> {
    if packets.len() < PACKETS_MIN {
        return None;
    }
    let lowest = lowest_by_moment(packets.iter().map(|packet| (packet.time(knots), packet.delay)), MOMENT_S);
    if lowest.len() < MOMENTS_MIN {
        return None;
    }
    let count = (lowest.len() as f64).sqrt() as usize + 2;
    let spacing = |from: usize| (lowest[from + count] - lowest[from]) / count as f64;
    // A single stamp that is too early lies alone below all others.
    let first = (0..GLITCHES_MAX)
        .find(|k| lowest[k + 1] - lowest[*k] <= LONELY_SPACINGS * spacing(k + 1))
        .unwrap_or(GLITCHES_MAX);
    let spacing = spacing(first);
    Some((lowest[first] - spacing, (FLOOR_SPACINGS * spacing).powi(2)))
}

/// Share of the time of [`renew_motion`] in which delays are found.
const SORTED: f64 = 0.3;

/// Fewest packets of a direction from which a distribution is taken.
const PACKETS_MIN: usize = 200;

/// Fewest moments at which they left, from which a floor is taken, and how far apart two of them
/// are, s: as in `edge_fit`.
const MOMENTS_MIN: usize = 25;
const MOMENT_S: f64 = MOMENT_NS / PER_SECOND;

/// Fewest packets, both ways, that move a window's line.
const PACKETS_PER_WINDOW_MIN: usize = 12;

/// Fewest packets, both ways, in the mean third of a window that is divided: twice as many as move
/// a line, because some thirds have less.
const PACKETS_PER_THIRD_MIN: f64 = 24.0;

/// Largest standard deviation of the mean third. A clock that warms up by 0.2 ppm bends by as much
/// in 4 s; thirds that tell less would add noise and show nothing.
const THIRD_SD_NS: f64 = 10.0;

/// Convergence: the next step is shorter than this, in standard deviations of the line; and the
/// most steps.
const STEP_MIN: f64 = 0.1;
const STEPS_MAX: usize = 30;

/// Points of the grid of ψ.
const GRID: usize = 512;

/// The shift from which ψ's mean steepness is taken, in scales.
const STEEPNESS_STEP: f64 = 0.05;

/// Floor of the scale, ns.
const SCALE_MIN_NS: f64 = 1.0;

/// Standard deviation of a floor, in mean spacings.
const FLOOR_SPACINGS: f64 = 1.5;

/// Most early timestamps per direction that are searched for, and how isolated they are.
const GLITCHES_MAX: usize = 3;
const LONELY_SPACINGS: f64 = 8.0;

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// A second apart.
    fn knots() -> Vec<f64> {
        (0..20).map(f64::from).collect()
    }

    /// Packets of one direction: `wakes` per knot over 20 knots of a second, `train` of them
    /// together, queues of 100 ns in the mean over a floor that stamps blur.
    fn way(wakes: u32, train: u32, seed: u64) -> Vec<Delayed> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut packets = Vec::new();
        for wake in 0..20 * wakes {
            let mut blur = || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
            let delay = 20.0 * blur() + 500.0 - 100.0 * (1.0 - random.random::<f64>()).ln();
            let x = f64::from(wake % wakes) / f64::from(wakes) - 0.5;
            packets.extend((0..train).map(|k| Delayed { knot: wake / wakes, x: x + 1e-5 * f64::from(k), delay }));
        }
        packets
    }

    #[test]
    fn packets_that_leave_together_scatter_as_one() {
        let alone = Score::new(&knots(), &way(50, 1, 1)).expect("packets enough");
        let together = Score::new(&knots(), &way(50, 4, 1)).expect("packets enough");
        let plain = |score: &Score, packets: &[Delayed]| {
            packets.iter().map(|packet| score.psi(packet.delay).powi(2)).sum::<f64>() / packets.len() as f64
        };
        assert!((alone.scatter / plain(&alone, &way(50, 1, 1)) - 1.0).abs() < 1e-9, "each is a moment of its own");
        assert!((together.scatter / plain(&together, &way(50, 4, 1)) - 4.0).abs() < 1e-9, "four count as one");
    }

    #[test]
    fn a_window_finds_its_line_from_far_away() {
        let traffic = Traffic { ways: [way(50, 1, 2), way(50, 1, 3)] };
        let scores = Scores::new(&knots(), &traffic).expect("packets enough");
        for theta in [0.0, 30.0, -300.0, 1_500.0] {
            // Theta is larger than the states say: forward packets seem late, and those of the way
            // back early.
            let window = |way: usize, sign: f64| {
                let here = traffic.ways[way].iter().filter(|packet| packet.knot == 7);
                here.map(|packet| [packet.x, packet.delay + sign * theta]).collect()
            };
            let ([shift, _], [variance, ..]) = shifted(&[window(0, 1.0), window(1, -1.0)], &scores).expect("it ends");
            let error = (shift - theta).abs();
            assert!(error < 4.0 * variance.sqrt() && variance.sqrt() < 15.0, "{theta}: {shift} ± {}", variance.sqrt());
        }
    }
}
