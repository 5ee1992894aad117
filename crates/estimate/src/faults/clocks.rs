//! Each node's clock from round to round: steps, restarts, jumps in rate, and changes of the
//! reference itself.
//!
//! A node's (offset x, rate f) is filtered (`kalman`) and measured completely in each round. The
//! measurement's variance omits path asymmetry, which is the same in every round: it is 1/Σ
//! 1/Var(beta) over a node's edges, plus the reference's. A measurement deviates when it differs
//! from its prediction by more standard deviations than `filter` allows, in units of the scale of
//! all nodes' deviations ([`Scale`]), and by more than a step or rate that matters.
//!
//! Off the prediction once: suspected and predicted on. Off again in the next round: named, and
//! begun anew. It is a step where a jump was shown ([`Jump`]: more than the rates explain; or the
//! window proved it), and then one round alone is not to be used if it is off by several times the
//! limit. Otherwise the rate took it there. Changes of rate too small for a round are gathered over
//! several ([`Onsets`]). What most nodes are off by alike, the median, is taken from every node
//! before it is judged: that is the reference, with the opposite sign, and it is named once it is
//! beyond the limits. More than half the nodes off by differing amounts: no fault, but clocks
//! wilder than the model; they are learnt from.
//!
//! Before a filter can judge, the first two windows are compared by the third
//! (`Recent::first_jump`), and a step that a node or the reference saw itself ends what little was
//! known.
//!
//! It cannot tell two nodes apart. If only one node is measured, it names the node whose watch saw
//! the change, or else either of the two.

use probe_sync_lines::{ClockBreak, Culprit, Fault, FaultKind, Findings};
use probe_sync_time::{NodeId, RoundId};

use super::comparison::{Comparison, Innovation, is_beyond, is_most, shared};
use super::events::{Events, is_same, is_step};
use super::filter::{Filter, UPDATES_MIN};
use super::jump::{FirstJump, Jump, Recent, Window};
use super::measured::Measured;
use super::membership::Heard;
use super::naming::{Change, either};
use super::onset::SharedOnsets;
use super::paths::Inconsistencies;
use super::scale::Scale;
use super::track::{Suspicion, Track, measured};
use super::view::RoundView;
use crate::statistics::median;

/// State of every clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Clocks {
    tracks: Vec<Track>,
    reference: Option<Suspicion>,
    /// See [`Track::fell_ns`], for the reference.
    reference_fell_ns: f64,
    /// Scales of offset and rate.
    scales: [Scale; 2],
    events: Events,
}

impl Clocks {
    /// Compares the round with the predictions.
    pub(super) fn compare(
        &mut self,
        view: &RoundView<'_>,
        heard: &Heard,
        broken: &[bool],
        findings: &mut Findings,
    ) -> Comparison {
        self.tracks.resize(view.nodes.len(), Track::default());
        self.events.take_in(view);
        let mut broken = broken.to_vec();
        for (node, _) in view.clock_events.iter().filter(|(_, event)| is_step(event)) {
            broken.get_mut(node.index()).into_iter().for_each(|broken| *broken = true);
        }
        let measured = measured(view, heard, &broken);
        let alone = measured.iter().flatten().count() == 1;
        self.judge_beginnings(view, &measured, alone, findings);
        let now_ns = view.reference_midpoint.as_ns();
        let scales = [self.scales[0].value(), self.scales[1].value()];
        let tracks = || self.tracks.iter().zip(&measured);
        let innovations: Vec<Option<Innovation>> = tracks()
            .map(|(track, measured)| Some(track.filter?.innovation(now_ns, measured.as_ref()?, scales)))
            .collect();
        let shared = shared(&innovations);
        let common = shared
            .filter(|shared| is_beyond(*shared, &innovations))
            .or_else(|| self.seen_by_reference(view, &innovations));
        let judge = |recent: &Recent, measured: &Option<Measured>| {
            measured.map_or_else(Jump::default, |measured| {
                recent.judge(Window { round: view.round, at_ns: now_ns, measured })
            })
        };
        let jumps: Vec<Jump> = tracks().map(|(track, measured)| judge(&track.recent, measured)).collect();
        // Where most moved alike it was the reference, and a node's own windows are measured
        // against what moved.
        let own_jumps = common.map_or_else(
            || jumps.clone(),
            |off| {
                let since_ns = self.reference.map_or(now_ns, |suspicion| suspicion.since_ns);
                let shifted = |(track, measured): (&Track, &Option<Measured>)| {
                    let mut recent = track.recent;
                    recent.shift(since_ns, now_ns, off);
                    judge(&recent, measured)
                };
                let shifted: Vec<Jump> = tracks().map(shifted).collect();
                let judged = shifted.iter().zip(&innovations).filter(|(_, i)| i.is_some_and(|i| i.judged));
                let others = Jump::of_reference(&judged.map(|(jump, _)| jump));
                if alone { shifted } else { shifted.into_iter().map(|jump| jump.less(&others)).collect() }
            },
        );
        let shared = common.or(shared).unwrap_or_default();
        Comparison { innovations, measured, jumps, own_jumps, broken, common, shared, alone, back: heard.back.clone() }
    }

    /// Checks for a step of the reference if only one node is measured. One node is no majority;
    /// but if the reference saw itself step, and the node seems to have stepped back by the same
    /// amount, the reference stepped.
    fn seen_by_reference(&self, view: &RoundView<'_>, innovations: &[Option<Innovation>]) -> Option<[f64; 2]> {
        let suspicion = self.reference.filter(|suspicion| suspicion.broken)?;
        let mut judged = innovations.iter().enumerate().filter_map(|(node, i)| Some((node, i.filter(|i| i.judged)?)));
        let (node, innovation) = judged.next().filter(|_| judged.next().is_none())?;
        let [seen, _] = self.events.since(view.reference, suspicion.since);
        let [own, _] = self.events.since(NodeId(node as u32), suspicion.since);
        let sure = seen != 0.0 && innovation.is_off() && (innovation.off[0] - (own - seen)).abs() < 0.5 * seen.abs();
        sure.then_some(if own == 0.0 { innovation.off } else { [-seen, 0.0] })
    }

    /// Judges jumps between the first two windows of clocks, before any filter can judge. If most
    /// are equal, the reference jumped.
    fn judge_beginnings(
        &mut self,
        view: &RoundView<'_>,
        measured: &[Option<Measured>],
        alone: bool,
        findings: &mut Findings,
    ) {
        let at_ns = view.reference_midpoint.as_ns();
        let first = |(node, track): (usize, &Track)| {
            let young = track.filter.is_some_and(|filter| filter.updates == UPDATES_MIN) && track.suspicion.is_none();
            let now = Window { round: view.round, at_ns, measured: measured[node].filter(|_| young)? };
            Some((node, track.recent.first_jump(now)?))
        };
        let jumps: Vec<(usize, FirstJump)> = self.tracks.iter().enumerate().filter_map(first).collect();
        let middle = median(jumps.iter().map(|(_, jump)| jump.unexplained_ns));
        let odd = |ns: f64, jump: &FirstJump| ns.abs() > jump.allowed_ns;
        let far = |ns: f64, jump: &FirstJump| ns.abs() > jump.allowed_ns + jump.hard_ns;
        let count = |is: &dyn Fn(&FirstJump) -> bool| jumps.iter().filter(|(_, jump)| is(jump)).count();
        let most = |some: usize| jumps.len() > 1 && is_most(some, jumps.len());
        let alike = most(count(&|jump| !odd(jump.unexplained_ns - middle, jump)));
        let reference = alike && most(count(&|jump| far(middle, jump)));
        if let Some((_, jump)) = jumps.first().filter(|_| reference) {
            Change::step(-middle, jump.second.round).of_reference(view.reference, self.tracks.len(), findings);
        }
        for (node, jump) in &jumps {
            let own = jump.unexplained_ns - if alike { middle } else { 0.0 };
            if far(own, jump) {
                self.name(view, alone, *node, Change::step(own, jump.second.round), findings);
            }
            // Whatever it was, the first window says nothing of the others.
            if reference || odd(jump.unexplained_ns, jump) {
                let mut recent = Recent::default();
                recent.take_in(jump.second);
                let filter = Some(Filter::begun(jump.second.at_ns, &jump.second.measured));
                self.tracks[*node] = Track { recent, filter, ..Track::default() };
            }
        }
    }

    /// Reports a change of a node relative to the reference. If there is only one node, only the
    /// clock watches of both can tell which of them changed.
    fn name(&self, view: &RoundView<'_>, alone: bool, node: usize, change: Change, findings: &mut Findings) {
        let (node, reference) = (NodeId(node as u32), view.reference);
        // A watch may have seen it in the round before packets showed it.
        let since = RoundId(change.since.0.saturating_sub(1));
        let saw = |node: NodeId, off: [f64; 2]| {
            let seen = self.events.since(node, since);
            (0..2).any(|k| is_same(off[k], seen[k]))
        };
        match (saw(node, change.off), saw(reference, change.reversed().off)) {
            (true, false) => change.of_node(node, findings),
            _ if !alone => change.of_node(node, findings),
            (false, true) => change.reversed().of_reference(reference, self.tracks.len(), findings),
            _ => change.of_either(node, reference, findings),
        }
    }

    /// Reports certain faults, records suspicions, and updates the rest.
    pub(super) fn judge(
        &mut self,
        view: &RoundView<'_>,
        compared: &Comparison,
        inconsistencies: &Inconsistencies,
        lossy: &[bool],
        findings: &mut Findings,
    ) {
        let settled = self.judge_reference(view, compared, inconsistencies, findings);
        let judged: Vec<Innovation> = compared.innovations.iter().flatten().filter(|i| i.judged).copied().collect();
        let off = judged.iter().filter(|i| i.less(compared.shared).is_off()).count();
        let wild = judged.len() >= WILD_MIN && 2 * off > judged.len();
        let mut taken = Vec::new();
        for node in (0..self.tracks.len()).filter(|node| *node != view.reference.index()) {
            let fell_ns = std::mem::replace(&mut self.tracks[node].fell_ns, inconsistencies.fell_ns[node]);
            if compared.broken[node] {
                self.suspect_broken(view, node, findings);
                continue;
            }
            let Some(measured) = compared.measured[node] else { continue };
            if inconsistencies.nodes[node] {
                // What it says depends on the peer: begin anew when that stops.
                self.tracks[node] = Track::default();
                findings.invalid.push(NodeId(node as u32));
                continue;
            }
            let innovation = compared.innovations[node].map(|innovation| innovation.less(compared.shared));
            let jumped = compared.own_jumps[node].is_shown(fell_ns, innovation.map_or(0.0, |i| i.off[0]));
            let surely_off = innovation.filter(|innovation| innovation.judged && !wild && innovation.is_off());
            if let Some(innovation) = surely_off {
                let jumped = jumped || self.tracks[node].jumped;
                self.judge_node(view, node, &innovation, jumped, compared, inconsistencies, lossy, findings);
            } else {
                self.clear(view, node, compared.alone, findings);
                self.learn(compared, node);
                if settled && self.tracks[node].take_in(view, &measured) {
                    taken.push(node);
                }
            }
            let track = &mut self.tracks[node];
            track.jumped = jumped;
            track.recent.take_in(Window { round: view.round, at_ns: view.reference_midpoint.as_ns(), measured });
        }
        self.judge_onsets(view, &taken, judged.len(), compared, findings);
    }

    /// Updates the scales from deviations; what the reference did to all nodes is not noise of a
    /// node.
    fn learn(&mut self, compared: &Comparison, node: usize) {
        let Some(innovation) = compared.innovations[node] else { return };
        let within = innovation.less(compared.common.unwrap_or_default());
        (0..2).for_each(|k| self.scales[k].learn(within.off[k] / within.deviation[k]));
    }

    /// Records a suspicion if the node's own window, or its watch, proves a step.
    fn suspect_broken(&mut self, view: &RoundView<'_>, node: usize, findings: &mut Findings) {
        let suspicion = self.tracks[node].suspicion.get_or_insert(Suspicion::broken(view));
        (suspicion.broken, suspicion.jumped) = (true, true);
        findings.invalid.push(NodeId(node as u32));
        self.forget_young(view, node, findings);
    }

    /// Reports rate changes that only several rounds together show. If most nodes agree, the
    /// reference changed; if most changed differently, all are wild.
    fn judge_onsets(
        &mut self,
        view: &RoundView<'_>,
        taken: &[usize],
        judged: usize,
        compared: &Comparison,
        findings: &mut Findings,
    ) {
        let deviations = ONSET_DEVIATIONS * self.scales[0].value().max(self.scales[1].value());
        let shared = SharedOnsets::of(&taken.iter().map(|node| &self.tracks[*node].onsets));
        let anew: Vec<usize> = if let Some(onset) = shared.surest(deviations) {
            let change = Change::rate(-onset.ns_per_s, onset.since);
            change.of_reference(view.reference, self.tracks.len(), findings);
            taken.to_vec()
        } else {
            let own = |node: &usize| Some((*node, self.tracks[*node].onsets.surest(deviations, &shared)?));
            let onsets: Vec<_> = taken.iter().filter_map(own).collect();
            if onsets.len() < 2 || 2 * onsets.len() <= judged {
                for (node, onset) in &onsets {
                    self.name(view, compared.alone, *node, Change::rate(onset.ns_per_s, onset.since), findings);
                }
            }
            onsets.iter().map(|(node, _)| *node).collect()
        };
        for node in anew {
            if let Some(measured) = compared.measured[node] {
                self.tracks[node] = Track { recent: self.tracks[node].recent, ..Track::default() };
                self.tracks[node].take_in(view, &measured);
            }
        }
    }

    /// Judges the reference's own clock; returns false while it is suspected, so that nothing may
    /// be updated.
    fn judge_reference(
        &mut self,
        view: &RoundView<'_>,
        compared: &Comparison,
        inconsistencies: &Inconsistencies,
        findings: &mut Findings,
    ) -> bool {
        let reference = view.reference;
        let judged = compared.innovations.iter().zip(&compared.jumps).filter(|(i, _)| i.is_some_and(|i| i.judged));
        let now_ns = inconsistencies.fell_ns.get(reference.index()).copied().unwrap_or(0.0);
        let fell_ns = std::mem::replace(&mut self.reference_fell_ns, now_ns);
        let off_ns = compared.common.map_or(0.0, |common| common[0]);
        let jumped = Jump::of_reference(&judged.map(|(_, jump)| jump)).is_shown(fell_ns, off_ns);
        if compared.broken.get(reference.index()) == Some(&true) {
            let suspicion = self.reference.get_or_insert(Suspicion::broken(view));
            (suspicion.broken, suspicion.jumped) = (true, true);
            findings.invalid.push(reference);
            self.forget_all_young(view, findings);
            return false;
        }
        match (compared.common, self.reference) {
            (None, suspicion) => {
                let mut judged = compared.innovations.iter().flatten().filter(|i| i.judged).peekable();
                // One node alone that is off: it has not come back, and what happened is still to
                // be named.
                let back = judged.peek().is_some() && !(compared.alone && judged.any(Innovation::is_off));
                if let Some(suspicion) = suspicion.filter(|suspicion| suspicion.broken && back) {
                    let culprit = Culprit::Node(reference);
                    findings.faults.push(Fault::new(FaultKind::Glitch, culprit, 0.0, suspicion.since));
                }
                self.reference = None;
                true
            }
            (Some(common), None) => {
                self.reference = Some(Suspicion { jumped, broken: false, ..Suspicion::broken(view) });
                let far = |i: &Innovation| Innovation { off: common, ..*i }.is_far_off();
                if jumped && compared.innovations.iter().flatten().any(far) {
                    findings.invalid.push(reference);
                }
                false
            }
            (Some(common), Some(suspicion)) => {
                self.name_reference(view, compared, common, suspicion, jumped, findings);
                true
            }
        }
    }

    /// Reports the reference if it is off again: as seen from the others, by the opposite of their
    /// deviation.
    fn name_reference(
        &mut self,
        view: &RoundView<'_>,
        compared: &Comparison,
        common: [f64; 2],
        suspicion: Suspicion,
        jumped: bool,
        findings: &mut Findings,
    ) {
        self.reference = None;
        let limits = compared.innovations.iter().flatten().map(|i| i.limit[1]);
        let limit = limits.fold(RATE_JUMP_NS_PER_S, f64::max);
        let rate_limit = if suspicion.jumped || jumped { f64::INFINITY } else { limit };
        let mut since = suspicion.since;
        if compared.alone {
            // Whatever made the one other node suspect was the reference.
            for (node, track) in self.tracks.iter_mut().enumerate() {
                let seen = self.events.since(NodeId(node as u32), since) != [0.0; 2];
                since = since.min(track.suspicion.take_if(|_| !seen).map_or(since, |suspicion| suspicion.since));
            }
        }
        if common[1].abs() > rate_limit || rate_limit == f64::INFINITY {
            let change = Change { kind: FaultKind::Step, off: common, rate_limit, since }.reversed();
            change.of_reference(view.reference, self.tracks.len(), findings);
        }
        for track in &mut self.tracks {
            // Windows of before it go on as if the reference had always run as it does now.
            track.recent.shift(suspicion.since_ns, view.reference_midpoint.as_ns(), common);
            if let Some(filter) = &mut track.filter {
                let state = &mut filter.belief.state;
                *state = [state[0] + common[0], state[1] + common[1]];
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
        findings: &mut Findings,
    ) {
        let track = &mut self.tracks[node];
        let id = NodeId(node as u32);
        let back = compared.back[node];
        let fresh = Suspicion { jumped, broken: false, ..Suspicion::broken(view) };
        let Some(suspicion) = track.suspicion.or(back.then_some(fresh)) else {
            track.suspicion = Some(fresh);
            if jumped && innovation.is_far_off() {
                findings.invalid.push(id);
            }
            return;
        };
        let jumped = jumped || suspicion.jumped;
        let restarted = jumped && (back || suspicion.broken && lossy[node]);
        let kind = if restarted { FaultKind::Restart } else { FaultKind::Step };
        // That something happened is sure; what it was needs less evidence.
        let limit = (0.5 * innovation.limit[1]).max(RATE_JUMP_NS_PER_S);
        let rate_limit = if jumped { f64::INFINITY } else { limit };
        // Where neither jumped nor changed by much, rates of which none was much took it there.
        let faults = findings.faults.len();
        if jumped || innovation.off[1].abs() > rate_limit {
            let change = Change { kind, off: innovation.off, rate_limit, since: suspicion.since };
            self.name(view, compared.alone && !restarted, node, change, findings);
        }
        if inconsistencies.explained[node] {
            findings.faults.truncate(faults);
        }
        // After a jump nothing before it explains anything.
        let track = &mut self.tracks[node];
        let recent = if jumped { Recent::default() } else { track.recent };
        *track = Track { recent, ..Track::default() };
        if let Some(measured) = &compared.measured[node] {
            track.take_in(view, measured);
        }
    }

    /// Discards a history too short to be judged after a broken window; only what the node itself
    /// saw is known.
    fn forget_young(&mut self, view: &RoundView<'_>, node: usize, findings: &mut Findings) {
        let track = &mut self.tracks[node];
        if track.filter.is_none_or(|filter| filter.updates >= UPDATES_MIN) {
            return;
        }
        *track = Track::default();
        let id = NodeId(node as u32);
        findings.breaks.push(ClockBreak { node: id, round: view.round });
        if let Some((_, event)) = view.clock_events.iter().find(|(of, event)| *of == id && event.step_ns != 0) {
            findings.faults.push(Fault::new(FaultKind::Step, Culprit::Node(id), event.step_ns as f64, view.round));
        }
    }

    /// Discards all short histories after a step of the reference.
    fn forget_all_young(&mut self, view: &RoundView<'_>, findings: &mut Findings) {
        let mut known = self.tracks.iter().filter_map(|track| track.filter).peekable();
        if known.peek().is_none() || known.any(|filter| filter.updates >= UPDATES_MIN) {
            return;
        }
        self.tracks.fill(Track::default());
        self.reference = None;
        let [step_ns, _] = self.events.since(view.reference, view.round);
        let faults = findings.faults.len();
        Change::step(step_ns, view.round).of_reference(view.reference, self.tracks.len(), findings);
        if step_ns == 0.0 {
            findings.faults.truncate(faults);
        }
    }

    /// Clears the suspicion of a node that is at its prediction.
    fn clear(&mut self, view: &RoundView<'_>, node: usize, alone: bool, findings: &mut Findings) {
        let track = &mut self.tracks[node];
        let suspicion = track.suspicion.take().filter(|suspicion| suspicion.broken && suspicion.since < view.round);
        if let Some(suspicion) = suspicion.filter(|_| track.filter.is_some_and(|f| f.updates >= UPDATES_MIN)) {
            let node = NodeId(node as u32);
            let seen = self.events.since(node, suspicion.since) != [0.0; 2];
            let culprit = if alone && !seen { either(node, view.reference) } else { Culprit::Node(node) };
            findings.faults.push(Fault::new(FaultKind::Glitch, culprit, 0.0, suspicion.since));
        }
    }
}

/// Standard deviations for a rate change gathered over several rounds. Fewer than for one round,
/// because a single wild round is not enough.
const ONSET_DEVIATIONS: f64 = 6.5;

/// A fault whose rate deviates by more than this is a rate jump, not a step.
const RATE_JUMP_NS_PER_S: f64 = 50.0;

/// Fewest nodes of which a majority can be wild.
const WILD_MIN: usize = 4;
