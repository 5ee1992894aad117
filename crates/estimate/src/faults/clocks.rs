//! Each node's clock from round to round: steps, restarts, jumps of rate, and the reference's own.
//!
//! Place in the flow: last step of [`Watch::observe`](super::Watch::observe). A node's (offset x, rate f) is filtered
//! (`kalman`), measured whole in each round. The measurement's variance
//! leaves path asymmetry out, which is the same in every round: 1/Σ 1/Var(beta) over a node's edges, plus the reference's.
//! A measurement is off its prediction when it is [`DEVIATIONS`] standard deviations away, in units of the scale that all
//! nodes' own deviations show ([`Scale`]), and at least [`STEP_MIN_NS`] or [`RATE_MIN_NS_PER_S`].
//!
//! Off the prediction once: suspected and predicted on. Off again in the next round: named, and begun anew. It is a step where a jump was
//! shown ([`Jump`]: more than the rates explain; or the window proved it), and then one round alone is not to be used if it is off by
//! several times the limit. Otherwise the rate took it there. Changes of rate too small for a round are gathered over several
//! ([`Onsets`]). Most nodes off by the same amount, the median:
//! that is the reference, with the opposite sign. More than half the nodes off by differing amounts: no fault, but clocks
//! wilder than the model; they are learnt from.
//!
//! What it does not do: tell two nodes apart. Where only one node is measured, it is named and not the reference, unless the reference saw
//! its own step.

use probe_sync_time::{NodeId, RoundId};

use super::comparison::{Comparison, Innovation};
use super::fault::{Culprit, Fault, FaultKind};
use super::filter::{Filter, UPDATES_MIN};
use super::jump::{Jump, Recent};
use super::measured::Measured;
use super::membership::Heard;
use super::onset::{Onset, Onsets};
use super::paths::Inconsistencies;
use super::scale::Scale;
use super::verdict::{Break, Verdict};
use super::view::RoundView;
use crate::kalman::Belief;
use crate::motion::NS_PER_S_PER_PPM;
use crate::statistics::median;

/// What is known of every clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Clocks {
    tracks: Vec<Track>,
    reference: Option<Suspicion>,
    /// As [`Track::fell_ns`], of the reference.
    reference_fell_ns: f64,
    /// Of offset and rate.
    scales: [Scale; 2],
}

#[derive(Copy, Clone, Debug, Default)]
struct Track {
    filter: Option<Filter>,
    suspicion: Option<Suspicion>,
    recent: Recent,
    onsets: Onsets,
    /// A jump was shown in the round before; a step late in a window is off its prediction only in the next.
    jumped: bool,
    /// By how much the margins of its edges fell in the round before, ns: the rate of the window after tells whether a kink explains it.
    fell_ns: f64,
}

/// Something is wrong since a round.
#[derive(Copy, Clone, Debug)]
struct Suspicion {
    since: RoundId,
    /// Its window proved a step.
    broken: bool,
    /// It moved by more than rates explain.
    jumped: bool,
}

impl Clocks {
    /// Compares the round with what was predicted; changes nothing but the number of nodes.
    pub(super) fn compare(&mut self, view: &RoundView<'_>, heard: &Heard, broken: &[bool]) -> Comparison {
        let count = view.nodes.len();
        self.tracks.resize(count, Track::default());
        let mut broken = broken.to_vec();
        for (node, event) in view.clock_events {
            if let Some(broken) = broken.get_mut(node.index()) {
                *broken |= event.step_ns.unsigned_abs() > EVENT_MIN_NS;
            }
        }
        let whole = !broken.get(view.reference.index()).copied().unwrap_or(false);
        let own = random_variances(view);
        let measured: Vec<Option<Measured>> = view
            .nodes
            .iter()
            .enumerate()
            .map(|(node, estimate)| {
                let usable = whole && estimate.reachable && heard.now[node] && !broken[node];
                let rate_sd = estimate.drift_sigma_ppm * NS_PER_S_PER_PPM;
                let reference = own.get(view.reference.index()).copied().unwrap_or(0.0);
                let variance = [own[node] + reference, rate_sd * rate_sd];
                let finite = variance.iter().all(|v| v.is_finite() && *v > 0.0) && estimate.offset_ns.is_finite();
                let state = [estimate.offset_ns, estimate.drift_ppm * NS_PER_S_PER_PPM];
                (usable && finite && node != view.reference.index()).then_some(Measured { state, variance })
            })
            .collect();
        let scales = [self.scales[0].value(), self.scales[1].value()];
        let innovations: Vec<Option<Innovation>> = self
            .tracks
            .iter()
            .zip(&measured)
            .map(|(track, measured)| {
                Some(track.filter?.innovation(view.reference_midpoint.as_ns(), measured.as_ref()?, scales))
            })
            .collect();
        let common = common(&innovations);
        let jump = |(track, measured): (&Track, &Option<Measured>)| {
            measured.map_or_else(Jump::default, |m| track.recent.judge(view.reference_midpoint.as_ns(), m))
        };
        let jumps = self.tracks.iter().zip(&measured).map(jump).collect();
        Comparison { innovations, measured, jumps, broken, common, back: heard.back.clone() }
    }

    /// Names what is sure, suspects what is not, and takes the rest in.
    pub(super) fn judge(
        &mut self,
        view: &RoundView<'_>,
        compared: &Comparison,
        inconsistencies: &Inconsistencies,
        lossy: &[bool],
        verdict: &mut Verdict,
    ) {
        let jumped: Vec<bool> = compared
            .jumps
            .iter()
            .zip(&self.tracks)
            // Where most moved alike it was the reference, and a node's own windows are measured against what jumped.
            .map(|(jump, track)| jump.is_shown(track.fell_ns) && compared.common.is_none())
            .collect();
        let settled = self.judge_reference(view, compared, inconsistencies, verdict);
        let mut onsets: Vec<(usize, Onset)> = Vec::new();
        let judged = compared.innovations.iter().flatten().filter(|i| i.judged);
        let (mut all, mut off) = (0, 0);
        judged.for_each(|i| {
            all += 1;
            off += usize::from(i.less(compared.common).is_off());
        });
        let wild = all >= WILD_MIN && 2 * off > all;
        for node in (0..self.tracks.len()).filter(|node| *node != view.reference.index()) {
            self.tracks[node].fell_ns = inconsistencies.fell_ns[node];
            if compared.broken[node] {
                let fresh = Suspicion { since: view.round, broken: true, jumped: true };
                let suspicion = self.tracks[node].suspicion.get_or_insert(fresh);
                (suspicion.broken, suspicion.jumped) = (true, true);
                verdict.invalid.push(NodeId(node as u32));
                self.forget_young(view, node, verdict);
                continue;
            }
            let Some(measured) = compared.measured[node] else { continue };
            if inconsistencies.nodes[node] {
                // What it says depends on the peer: begin anew when that stops.
                self.tracks[node] = Track::default();
                verdict.invalid.push(NodeId(node as u32));
                continue;
            }
            let innovation = compared.innovations[node].map(|innovation| innovation.less(compared.common));
            let surely_off = innovation.filter(|innovation| innovation.judged && !wild && innovation.is_off());
            match (innovation, surely_off) {
                (_, Some(innovation)) => {
                    let jumped = jumped[node] || self.tracks[node].jumped;
                    self.judge_node(view, node, &innovation, jumped, compared, inconsistencies, lossy, verdict);
                }
                (innovation, None) => {
                    self.clear(view, node, verdict);
                    let within = innovation.map(|i| [0, 1].map(|k| i.off[k] / i.deviation[k]));
                    within.into_iter().for_each(|within| (0..2).for_each(|k| self.scales[k].learn(within[k])));
                    if settled {
                        let deviations = ONSET_DEVIATIONS * self.scales[0].value().max(self.scales[1].value());
                        let onset = self.tracks[node].take_in(view, &measured, deviations);
                        onsets.extend(onset.map(|onset| (node, onset)));
                    }
                }
            }
            let track = &mut self.tracks[node];
            track.jumped = jumped[node];
            track.recent.take_in(view.reference_midpoint.as_ns(), measured);
        }
        self.judge_onsets(view, &onsets, all, compared, verdict);
    }

    /// Names the changes of rate that only several rounds together show. Most nodes at once: that was the reference, or all are wild.
    fn judge_onsets(
        &mut self,
        view: &RoundView<'_>,
        onsets: &[(usize, Onset)],
        judged: usize,
        compared: &Comparison,
        verdict: &mut Verdict,
    ) {
        let many = onsets.len() > 1 && 2 * onsets.len() > judged;
        let middle = median(onsets.iter().map(|(_, onset)| onset.ns_per_s));
        let alike = onsets.iter().all(|(_, onset)| (onset.ns_per_s - middle).abs() < 0.5 * middle.abs());
        if many && alike && 10 * onsets.len() >= 7 * judged {
            let since = onsets.iter().map(|(_, onset)| onset.since).min().unwrap_or(view.round);
            name_reference(view.reference, [0.0, -middle], 0.0, since, self.tracks.len(), verdict);
        }
        for (node, onset) in onsets {
            if !many {
                name(NodeId(*node as u32), [0.0, onset.ns_per_s], 0.0, onset.since, FaultKind::Step, verdict);
            }
            if let Some(measured) = compared.measured[*node] {
                self.tracks[*node] = Track { recent: self.tracks[*node].recent, ..Track::default() };
                self.tracks[*node].take_in(view, &measured, f64::INFINITY);
            }
        }
    }

    /// The reference's own clock; false while it is suspected, when nothing may be taken in.
    fn judge_reference(
        &mut self,
        view: &RoundView<'_>,
        compared: &Comparison,
        inconsistencies: &Inconsistencies,
        verdict: &mut Verdict,
    ) -> bool {
        let reference = view.reference;
        let judged = compared.innovations.iter().zip(&compared.jumps).filter(|(i, _)| i.is_some_and(|i| i.judged));
        let now_ns = inconsistencies.fell_ns.get(reference.index()).copied().unwrap_or(0.0);
        let fell_ns = std::mem::replace(&mut self.reference_fell_ns, now_ns);
        let jumped = Jump::of_reference(judged.map(|(_, jump)| jump)).is_shown(fell_ns);
        if compared.broken.get(reference.index()) == Some(&true) {
            let fresh = Suspicion { since: view.round, broken: true, jumped: true };
            let suspicion = self.reference.get_or_insert(fresh);
            (suspicion.broken, suspicion.jumped) = (true, true);
            verdict.invalid.push(reference);
            return false;
        }
        match (compared.common, self.reference) {
            (None, suspicion) => {
                if suspicion.is_some_and(|s| s.broken) && compared.innovations.iter().flatten().any(|i| i.judged) {
                    let since = suspicion.map_or(view.round, |s| s.since);
                    verdict.faults.push(Fault::new(FaultKind::Glitch, Culprit::Node(reference), 0.0, since));
                }
                self.reference = None;
                true
            }
            (Some(common), None) => {
                self.reference = Some(Suspicion { since: view.round, broken: false, jumped });
                let far = |i: &Innovation| Innovation { off: common, ..*i }.is_far_off();
                if jumped && compared.innovations.iter().flatten().any(far) {
                    verdict.invalid.push(reference);
                }
                false
            }
            (Some(common), Some(suspicion)) => {
                self.reference = None;
                let limit =
                    compared.innovations.iter().flatten().map(|i| i.limit[1]).fold(RATE_JUMP_NS_PER_S, f64::max);
                let own = common.map(|off| -off);
                let limit = if suspicion.jumped || jumped { f64::INFINITY } else { limit };
                if own[1].abs() > limit || limit == f64::INFINITY {
                    name_reference(reference, own, limit, suspicion.since, self.tracks.len(), verdict);
                }
                for track in &mut self.tracks {
                    // Windows of before it explain nothing of what comes.
                    (track.recent, track.jumped) = (Recent::default(), false);
                    if let Some(filter) = &mut track.filter {
                        let state = &mut filter.belief.state;
                        *state = [state[0] + common[0], state[1] + common[1]];
                    }
                }
                true
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one place that needs everything that was found in the round")]
    fn judge_node(
        &mut self,
        view: &RoundView<'_>,
        node: usize,
        innovation: &Innovation,
        jumped: bool,
        compared: &Comparison,
        inconsistencies: &Inconsistencies,
        lossy: &[bool],
        verdict: &mut Verdict,
    ) {
        let track = &mut self.tracks[node];
        let id = NodeId(node as u32);
        let back = compared.back[node];
        let fresh = Suspicion { since: view.round, broken: false, jumped };
        let Some(suspicion) = track.suspicion.or(back.then_some(fresh)) else {
            track.suspicion = Some(fresh);
            if jumped && innovation.is_far_off() {
                verdict.invalid.push(id);
            }
            return;
        };
        let jumped = jumped || suspicion.jumped;
        let restarted = back || suspicion.broken && lossy[node];
        let kind = if restarted { FaultKind::Restart } else { FaultKind::Step };
        // That something happened is sure; what it was needs less evidence.
        let limit = (0.5 * innovation.limit[1]).max(RATE_JUMP_NS_PER_S);
        let limit = if jumped { f64::INFINITY } else { limit };
        let kind = if jumped { kind } else { FaultKind::Step };
        let faults = verdict.faults.len();
        // Where neither jumped nor changed by much, rates of which none was much took it there.
        if jumped || innovation.off[1].abs() > limit {
            name(id, innovation.off, limit, suspicion.since, kind, verdict);
        }
        if inconsistencies.explained[node] {
            verdict.faults.truncate(faults);
        }
        // After a jump nothing before it explains anything.
        let recent = if jumped { Recent::default() } else { track.recent };
        *track = Track { recent, ..Track::default() };
        if let Some(measured) = &compared.measured[node] {
            track.take_in(view, measured, f64::INFINITY);
        }
    }

    /// A history too short to be judged by does not go on behind a broken window: what the node saw itself is all there is.
    fn forget_young(&mut self, view: &RoundView<'_>, node: usize, verdict: &mut Verdict) {
        let track = &mut self.tracks[node];
        if track.filter.is_none_or(|filter| filter.updates >= UPDATES_MIN) {
            return;
        }
        *track = Track::default();
        let id = NodeId(node as u32);
        verdict.breaks.push(Break { node: id, round: view.round });
        if let Some((_, event)) = view.clock_events.iter().find(|(of, event)| *of == id && event.step_ns != 0) {
            verdict.faults.push(Fault::new(FaultKind::Step, Culprit::Node(id), event.step_ns as f64, view.round));
        }
    }

    /// The node is where it was predicted: what was suspected is over.
    fn clear(&mut self, view: &RoundView<'_>, node: usize, verdict: &mut Verdict) {
        let track = &mut self.tracks[node];
        let suspicion = track.suspicion.take().filter(|suspicion| suspicion.broken && suspicion.since < view.round);
        if let Some(suspicion) = suspicion.filter(|_| track.filter.is_some_and(|f| f.updates >= UPDATES_MIN)) {
            let culprit = Culprit::Node(NodeId(node as u32));
            verdict.faults.push(Fault::new(FaultKind::Glitch, culprit, 0.0, suspicion.since));
        }
    }
}

/// Adds a fault, by the rate when that is off, else by the offset; and a break, unless the rate alone changed: offsets go on from there.
fn name(node: NodeId, off: [f64; 2], rate_limit: f64, since: RoundId, kind: FaultKind, verdict: &mut Verdict) {
    let rate = off[1].abs() > rate_limit;
    let (kind, size) = match kind {
        FaultKind::Step if rate => (FaultKind::RateJump, off[1] / NS_PER_S_PER_PPM),
        kind => (kind, off[0]),
    };
    if kind != FaultKind::RateJump {
        verdict.breaks.push(Break { node, round: since });
    }
    verdict.faults.push(Fault::new(kind, Culprit::Node(node), size, since));
}

/// The same of the reference: seen from there it is everybody else's clock that is not continued.
fn name_reference(
    reference: NodeId,
    off: [f64; 2],
    rate_limit: f64,
    since: RoundId,
    nodes: usize,
    verdict: &mut Verdict,
) {
    let before = verdict.breaks.len();
    name(reference, off, rate_limit, since, FaultKind::Step, verdict);
    if let Some(broken) = verdict.breaks.get(before).copied() {
        verdict.breaks.truncate(before);
        let others = (0..nodes as u32).map(NodeId).filter(|node| *node != reference);
        verdict.breaks.extend(others.map(|node| Break { node, ..broken }));
    }
}

/// What most nodes are off by, if it is the same and beyond the limits. One node alone is no majority.
fn common(innovations: &[Option<Innovation>]) -> Option<[f64; 2]> {
    let judged: Vec<&Innovation> = innovations.iter().flatten().filter(|i| i.judged).collect();
    if judged.len() < 2 {
        return None;
    }
    let middle = [0, 1].map(|k| median(judged.iter().map(|i| i.off[k])));
    let off = judged.iter().filter(|i| Innovation { off: middle, ..***i }.is_off()).count();
    let alike = judged.iter().filter(|i| !i.less(Some(middle)).is_off()).count();
    (10 * off >= 7 * judged.len() && 10 * alike >= 7 * judged.len()).then_some(middle)
}

/// Random variance of each node's offset: that of its edges together.
fn random_variances(view: &RoundView<'_>) -> Vec<f64> {
    let mut precision = vec![0.0; view.nodes.len()];
    for edge in view.edges.iter().filter(|edge| edge.feasible && edge.covariance[0] > 0.0) {
        for node in [edge.src_node_id, edge.dst_node_id] {
            precision.get_mut(node.index()).into_iter().for_each(|sum| *sum += 1.0 / edge.covariance[0]);
        }
    }
    precision.into_iter().map(|sum| if sum > 0.0 { 1.0 / sum } else { VARIANCE_UNKNOWN_NS2 }).collect()
}

impl Track {
    /// Updates the filter; a change of rate that the rounds so far show with so many standard deviations.
    fn take_in(&mut self, view: &RoundView<'_>, measured: &Measured, deviations: f64) -> Option<Onset> {
        let at_ns = view.reference_midpoint.as_ns();
        let [x, f] = measured.variance;
        let Some(filter) = &mut self.filter else {
            let belief = Belief { state: measured.state, covariance: [x, 0.0, f] };
            self.filter = Some(Filter { at_ns, belief, updates: 1 });
            return None;
        };
        let taken = filter.update(view.round, at_ns, measured)?;
        self.onsets.take_in(&taken, deviations)
    }
}

/// A change of rate gathered over several rounds: so many. Less than for one round, because one wild round alone is not enough for it.
const ONSET_DEVIATIONS: f64 = 6.5;

/// A fault whose rate is off by more than this is a jump of the rate and not a step.
const RATE_JUMP_NS_PER_S: f64 = 50.0;

/// A step that a node saw itself counts from here on, ns.
const EVENT_MIN_NS: u64 = 1_000;

/// Fewest nodes whose majority can be wild.
const WILD_MIN: usize = 4;

/// A node without a usable edge is measured this badly.
const VARIANCE_UNKNOWN_NS2: f64 = 1e18;
