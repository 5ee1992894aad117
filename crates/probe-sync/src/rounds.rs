//! The round loop (Variant B, master-controlled): windows are cut, edges fitted, gathered, solved, broadcast.
//!
//! Windows tile time: where one is cut the next begins, and probing never pauses. Round k, window k:
//! 1. every node waits for the window's end, which the last decision gave on the reference clock and which the node
//!    translates with its own offset (`t_i = t_ref + offset_i`); a node without an offset uses the window's length;
//! 2. the probe thread cuts the window; the edges are fitted on the spot;
//! 3. [`NodeWindowData`] of all nodes is gathered at the root;
//! 4. the root solves the graph and asks its policy; 5. [`Broadcast`] goes to all ranks, identical bytes.
//!
//! Deadlines are on the monotonic clock: a system clock that jumps can shorten or lengthen a window by half at most.
//! What it does not do: set up or end a run (`run`), estimate (crate `estimate`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as StdDuration, Instant};

use probe_sync_collective::{Collective, Deadline, Frames, ROOT};
use probe_sync_estimate::edge_fit::FitOptions;
use probe_sync_estimate::graph::GraphOptions;
use probe_sync_estimate::round::{Decision, GlobalWindowData, Solver, SolverOptions, WindowCut, fit_window};
use probe_sync_estimate::window::{NodeEstimate, NodeWindowData};
use probe_sync_sys::clock;
use probe_sync_time::{Duration, NodeId, RoundId, System, Timestamp};
use serde::{Deserialize, Serialize};

use crate::files::{JsonLines, ProbeLine, ProbeWindowLine};
use crate::policy::{Pace, Policy};
use crate::probing::Prober;
use crate::report::RankAccount;
use crate::roster::Plan;
use crate::snapshots::{Sampler, SnapshotCounts};
use crate::{Config, Error, truth, wire};

/// What the root sends to all ranks at the end of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Broadcast {
    /// The solved round, with the decision about the next one.
    Solved(Box<GlobalWindowData>),
    /// The run ends here; the window under way was too short to be solved.
    Ended {
        /// The round under way.
        round_id: RoundId,
    },
}

/// What a rank needs for its rounds.
pub struct Rounds<'a> {
    /// The settings.
    pub config: &'a Config,
    /// The peers.
    pub collective: &'a mut dyn Collective,
    /// Who probes.
    pub plan: &'a Plan,
    /// The probe thread, where this rank is a node.
    pub node: Option<NodeRounds>,
    /// Raised by a signal.
    pub stop: Arc<AtomicBool>,
}

/// The part of a rank's rounds that only nodes have.
pub struct NodeRounds {
    /// The node.
    pub node: NodeId,
    /// Its probe thread.
    pub prober: Prober,
    /// `windows/nodeN.jsonl`.
    pub windows: JsonLines,
    /// `probes/nodeN.jsonl`, with `keep_probes`.
    pub probes: Option<JsonLines>,
    /// Takes snapshot pairs, with `tracer_clock`.
    pub sampler: Option<Sampler>,
    /// Exchanges that no fit used, because their stamps came from another source than the window's best.
    pub left_out: u64,
}

/// The part of the rounds that only the root has: what to do with a solved round.
pub struct Master<'a> {
    /// Chooses the pace.
    pub policy: &'a mut dyn Policy,
    /// Called with every solved round and the time since the root's own window ended: its fits, the gather and the graph.
    pub solved: Box<OnSolved<'a>>,
}

/// Takes a solved round.
pub type OnSolved<'a> = dyn FnMut(&GlobalWindowData, StdDuration) -> Result<(), Error> + 'a;

impl Rounds<'_> {
    /// Runs rounds until one says stop. `master` is given at the root.
    ///
    /// # Errors
    /// The first error; finished rounds are in the files by then.
    pub fn run(&mut self, start: Decision, mut master: Option<Master<'_>>) -> Result<(), Error> {
        let begun = Instant::now();
        let participants = self.plan.participants();
        let mut window = WindowPlan::first(start);
        let mut pace = Pace::configured(self.config);
        let mut frames = Frames::default();
        let mut solver = Solver::new(solver_options(self.plan.nodes()));
        for round_id in (0..).map(RoundId) {
            let (own, closed) = self.close_window(round_id, &window)?;
            let mut buffer = Vec::new();
            // Ranks that are no node call it too, and return at once.
            let payload = own.as_ref().map(wire::encode).unwrap_or_default();
            self.collective.gather(&participants, &payload, &mut frames, &self.patience(&pace))?;
            if let (Some(master), Some(own)) = (&mut master, &own) {
                let nodes = decode_nodes(&frames)?;
                let mut end = self.ends(begun, &nodes);
                let broadcast = if end && too_short(own, &window.decision) {
                    Broadcast::Ended { round_id }
                } else {
                    let solved = solver.solve(round_id, own, &nodes);
                    let mut round = solved.map_err(|source| Error::Graph { round_id, source })?.data;
                    pace = master.policy.next(&round, &nodes, &pace);
                    end |= self.duration_over(begun, &pace);
                    round.decision = pace.decision(round.window_end, end);
                    (master.solved)(&round, closed.elapsed())?;
                    Broadcast::Solved(Box::new(round))
                };
                buffer = wire::encode(&broadcast);
            }
            self.collective.broadcast(&mut buffer, &self.patience(&pace).extended(ROOT_SPEAKS_FIRST))?;
            match wire::decode(&buffer, ROOT)? {
                Broadcast::Ended { round_id: ended } => return in_sequence(ended, round_id),
                Broadcast::Solved(round) => {
                    in_sequence(round.round_id, round_id)?;
                    if round.decision.stop {
                        return Ok(());
                    }
                    pace = Pace::decided(&round.decision);
                    self.apply(&pace)?;
                    window = WindowPlan::following(&round, self.node.as_ref().map(|own| own.node));
                }
            }
        }
        unreachable!("a u64 counts rounds for longer than any run")
    }

    /// Waits for the window's end, cuts it and fits its edges; `None` on ranks that are no node. Also when it was cut.
    fn close_window(
        &mut self,
        round_id: RoundId,
        window: &WindowPlan,
    ) -> Result<(Option<NodeWindowData>, Instant), Error> {
        let Some(own) = &mut self.node else { return Ok((None, Instant::now())) };
        let wait = window.remaining(own.prober.system_now());
        own.prober.wait(wait, &self.stop)?;
        let cut = own.prober.cut()?;
        let closed = Instant::now();
        let stop_requested = self.stop.load(Ordering::Relaxed);
        let (data, left_out) = fit_window(&cut, round_id, &fit_options(self.config), stop_requested);
        own.left_out += left_out;
        own.windows.append(&data)?;
        own.windows.flush()?;
        if let Some(probes) = &mut own.probes {
            keep_probes(probes, round_id, own.node, &cut)?;
        }
        Ok((Some(data), closed))
    }

    /// Ends probing everywhere, lets the network drain, and brings every rank's account to the root (elsewhere the result
    /// is empty). Nobody counts before everybody has stopped: what one sent and another received then compares exactly.
    ///
    /// # Errors
    /// Names the rank that did not take part.
    pub fn settle(&mut self, begun: (Instant, StdDuration)) -> Result<Vec<RankAccount>, Error> {
        let (instant, cpu) = begun;
        let wall_ns = instant.elapsed().as_nanos() as u64;
        let cpu_ns = clock::process_cpu_time().saturating_sub(cpu).as_nanos() as u64;
        if let Some(own) = &mut self.node {
            own.prober.stop_probing();
        }
        let patience = self.patience(&Pace::configured(self.config));
        let everyone = vec![true; self.collective.size()];
        let mut frames = Frames::default();
        self.collective.gather(&everyone, &[], &mut frames, &patience)?;
        self.collective.broadcast(&mut Vec::new(), &patience.extended(ROOT_SPEAKS_FIRST))?;
        let mut account = self.node.take().map_or_else(
            || Ok(RankAccount::default()),
            |own| {
                let snapshots = own.sampler.map(Sampler::finish).transpose()?;
                let mut account = own.prober.finish()?;
                let snapshots = snapshots.iter().flat_map(SnapshotCounts::named);
                account.counters.extend(snapshots.map(|(name, count)| (name.to_owned(), count)));
                account.counters.push(("exchanges_of_mixed_stamps".into(), own.left_out));
                Ok::<_, Error>(account)
            },
        )?;
        (account.wall_ns, account.cpu_ns) = (wall_ns, cpu_ns);
        let patience = self.patience(&Pace::configured(self.config));
        self.collective.gather(&everyone, &wire::encode(&account), &mut frames, &patience)?;
        frames.iter().enumerate().map(|(rank, bytes)| wire::decode(bytes, rank)).collect()
    }

    fn apply(&mut self, pace: &Pace) -> Result<(), Error> {
        let Some(own) = &mut self.node else { return Ok(()) };
        if own.prober.cadence() != pace.cadence {
            own.prober.set_cadence(pace.cadence)?;
        }
        let extra = pace.extra_edges.iter().filter(|edge| edge.src == own.node);
        own.prober.set_extra_edges(extra.map(|edge| edge.dst).collect());
        Ok(())
    }

    /// How long to wait for the others. Their windows end up to half a window later than this one where a clock jumped,
    /// and a rank that is no node has yet to wait for the whole window.
    ///
    /// A signal to this rank alone must not end the run in an error: the others come at their window's end and learn of
    /// it then. Under a launcher that signals all ranks at once (mpirun, which kills a second later) they come at once,
    /// and whoever is missing is named before that.
    fn patience(&self, pace: &Pace) -> Deadline {
        let nanos = |span: Duration| StdDuration::from_nanos(span.as_ns().unsigned_abs());
        let window = nanos(pace.window) * 3 / 2;
        let mut patience = Deadline::new(nanos(self.config.round_timeout) + window, Some(Arc::clone(&self.stop)));
        if !self.collective.signals_reach_all() {
            patience.grace += window;
        }
        patience
    }

    fn ends(&self, begun: Instant, nodes: &[NodeWindowData]) -> bool {
        nodes.iter().any(|node| node.stop_requested)
            || self.stop.load(Ordering::Relaxed)
            || self.duration_over(begun, &Pace::configured(self.config))
    }

    /// True when less than half a window of the configured duration is left.
    fn duration_over(&self, begun: Instant, pace: &Pace) -> bool {
        self.config.duration.is_some_and(|duration| {
            let half = StdDuration::from_nanos(pace.window.as_ns().unsigned_abs() / 2);
            begun.elapsed() + half >= StdDuration::from_nanos(duration.as_ns().unsigned_abs())
        })
    }
}

/// How the run fits its edges.
pub(crate) fn fit_options(config: &Config) -> FitOptions {
    FitOptions { method: config.fit, ..FitOptions::default() }
}

/// How a run of `nodes` nodes solves its rounds.
pub(crate) fn solver_options(nodes: usize) -> SolverOptions {
    SolverOptions { nodes, reference: truth::REFERENCE, graph: GraphOptions::default() }
}

/// When the window under way ends.
#[derive(Clone, Debug)]
struct WindowPlan {
    decision: Decision,
    /// The end on this node's clock, where its offset is known.
    end: Option<Timestamp<System>>,
}

impl WindowPlan {
    fn first(decision: Decision) -> Self {
        Self { decision, end: None }
    }

    /// `t_i = t_ref + offset_i`.
    fn following(round: &GlobalWindowData, node: Option<NodeId>) -> Self {
        let estimate = node.and_then(|node| round.all_nodes.get(node.index())).filter(|estimate| estimate.reachable);
        let on_own_clock = |estimate: &NodeEstimate| {
            round.decision.next_window_end.of_reference_node() + Duration::from_ns_f64(estimate.offset_ns)
        };
        Self { decision: round.decision.clone(), end: estimate.map(on_own_clock) }
    }

    /// How long to wait from now: between half a window and one and a half, whatever the system clock says.
    fn remaining(&self, now: Timestamp<System>) -> Duration {
        let length = self.decision.next_window.as_ns();
        let wait = self.end.map_or(length, |end| (end - now).as_ns());
        Duration::from_ns(wait.clamp(length / 2, length + length / 2))
    }
}

/// By how much ranks that wait for the root outlast the root's own waits.
pub(crate) const ROOT_SPEAKS_FIRST: StdDuration = StdDuration::from_secs(2);

/// A last window cut short by a signal is solved only if it has half its length.
fn too_short(own: &NodeWindowData, decision: &Decision) -> bool {
    (own.window_end - own.window_start).as_ns() < decision.next_window.as_ns() / 2
}

fn in_sequence(got: RoundId, expected: RoundId) -> Result<(), Error> {
    if got == expected { Ok(()) } else { Err(Error::Sequence { expected, got }) }
}

fn decode_nodes(frames: &Frames) -> Result<Vec<NodeWindowData>, Error> {
    let present = frames.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty());
    present.map(|(rank, bytes)| wire::decode(bytes, rank)).collect()
}

fn keep_probes(file: &mut JsonLines, round_id: RoundId, node: NodeId, cut: &WindowCut) -> Result<(), Error> {
    for exchange in cut.edges.iter().flat_map(|edge| &edge.exchanges) {
        file.append(&ProbeLine::new(round_id, exchange))?;
    }
    file.append(&ProbeWindowLine {
        meta: true,
        round_id,
        src: node,
        window_start: cut.start,
        window_end: cut.end,
        lost: cut.edges.iter().map(|edge| (edge.edge.dst, edge.lost)).collect(),
        packets: cut.packets.clone(),
    })?;
    file.flush()
}
