//! The round loop over a simulated run: the code of a live round, window by window.
//!
//! It serves callers that inspect each round and steer the next. One step advances to the window's
//! end, cuts every node's window, computes each node's contribution with [`fit_window`] and solves
//! the round with one [`Solver`] for the whole run: graph, watch, live smoother, clamp. A live run
//! calls the same functions, with processes and messages in between.
//!
//! It does not lose a node's results on their way to the master, and it does not smooth the run as
//! a whole ([`Smoothed`](probe_sync_estimate::run::Smoothed) does).

use probe_sync_estimate::edge_fit::FitOptions;
use probe_sync_estimate::round::{SolvedRound, Solver, SolverOptions, WindowCut, fit_window};
use probe_sync_lines::{Hosts, NodeWindow};
use probe_sync_time::{Duration, NodeId, Reference, RoundId, System, Timestamp};

use crate::error::Error;
use crate::runs::running::Running;
use crate::runs::simulation::Simulation;

/// A simulated run, one window at a time.
#[derive(Debug)]
pub struct Rounds<'a> {
    solver: Solver,
    windows: Windows<'a>,
    options: SolverOptions,
}

/// The part that simulates and does not depend on solved rounds: unless the run is steered, it may
/// be ahead of the solver.
#[derive(Debug)]
struct Windows<'a> {
    running: Running<'a>,
    reference: NodeId,
    window: Duration,
    /// True time when the current window began, and when the run ends.
    begun: Timestamp<System>,
    end: Timestamp<System>,
    index: usize,
}

/// One window of all nodes, simulated and not yet solved.
#[derive(Clone, Debug)]
pub struct Window {
    index: usize,
    cuts: Vec<WindowCut>,
    /// Used if the reference is silent: its clock, which the truth refers to.
    silent_reference: WindowCut,
}

/// Passes every window that the first function makes to the second, in order, until there is none.
/// This crate starts no threads; a caller may run both at the same time.
pub type HandOver = fn(&mut dyn FnMut() -> Option<Window>, &mut (dyn FnMut(Window) + Send));

/// Passes on each window before the next is made.
pub fn in_turn(make: &mut dyn FnMut() -> Option<Window>, take: &mut (dyn FnMut(Window) + Send)) {
    while let Some(window) = make() {
        take(window);
    }
}

/// One window of all nodes, solved.
#[derive(Clone, Debug)]
pub struct SimulatedRound {
    /// Index, from 0.
    pub index: usize,
    /// What every live node collected.
    pub cuts: Vec<WindowCut>,
    /// The fits of every node.
    pub windows: Vec<NodeWindow>,
    /// The round as solved by the master of a live run.
    pub solved: SolvedRound,
}

impl<'a> Rounds<'a> {
    /// Starts a run of `duration` in windows of `window`.
    ///
    /// # Errors
    /// [`Error::Window`] unless `window` is positive and fits into `duration`.
    pub fn new(simulation: &'a Simulation, duration: Duration, window: Duration) -> Result<Self, Error> {
        let (nodes, reference) = (simulation.scenario().nodes as usize, simulation.scenario().reference);
        // No simulated host has an asymmetry of its own, and the estimator is told so: what else it
        // states is judged without that margin.
        Self::with_options(
            simulation,
            duration,
            window,
            SolverOptions { hosts: Hosts::one(nodes), ..SolverOptions::new(nodes, reference) },
        )
    }

    /// The same with other solver options.
    ///
    /// # Errors
    /// As [`Rounds::new`].
    pub fn with_options(
        simulation: &'a Simulation,
        duration: Duration,
        window: Duration,
        options: SolverOptions,
    ) -> Result<Self, Error> {
        let begun = Simulation::START;
        if window.as_ns() <= 0 || window > duration {
            return Err(Error::Window { window, duration });
        }
        Ok(Self {
            solver: Solver::new(options.clone()),
            windows: Windows {
                running: simulation.start(duration),
                reference: options.reference,
                window,
                begun,
                end: begun + duration,
                index: 0,
            },
            options,
        })
    }

    /// Returns the next window, solved; `None` if less than a whole window is left.
    pub fn step(&mut self) -> Option<SimulatedRound> {
        self.step_watched(&|_| true)
    }

    /// The same with progress: `goes_on` is told from time to time the simulated share of the whole
    /// run, 0 to 1, and returns whether to continue. The result is `None` also if it returned
    /// false, and then the run must not be continued.
    pub fn step_watched(&mut self, goes_on: &dyn Fn(f64) -> bool) -> Option<SimulatedRound> {
        let window = self.windows.next(goes_on)?;
        Some(solved(&mut self.solver, self.windows.reference, window))
    }

    /// Passes all remaining windows, solved, to `take`; `hand_over` may simulate the next while one
    /// is solved.
    pub fn all(
        &mut self,
        goes_on: &dyn Fn(f64) -> bool,
        hand_over: HandOver,
        take: &mut (dyn FnMut(SimulatedRound) + Send),
    ) {
        let Self { solver, windows, .. } = self;
        let reference = windows.reference;
        hand_over(&mut || windows.next(goes_on), &mut |window| take(solved(solver, reference, window)));
    }

    /// Number of nodes of the run.
    pub fn nodes(&self) -> usize {
        self.options.nodes
    }

    /// The solver's options.
    pub fn options(&self) -> &SolverOptions {
        &self.options
    }

    /// The node whose offset is zero.
    pub fn reference(&self) -> NodeId {
        self.windows.reference
    }

    /// The run, to be steered between steps. Do not advance or cut it: its windows would be missing
    /// here.
    pub fn running_mut(&mut self) -> &mut Running<'a> {
        &mut self.windows.running
    }

    /// The run: truth and counts.
    pub fn running(&self) -> &Running<'a> {
        &self.windows.running
    }
}

impl Windows<'_> {
    /// The next window; `None` if less than a whole one is left, or if `goes_on` returned false.
    fn next(&mut self, goes_on: &dyn Fn(f64) -> bool) -> Option<Window> {
        let (begun, end) = (self.begun, self.begun + self.window);
        if end > self.end {
            return None;
        }
        let whole = (self.end - Simulation::START).as_ns_f64();
        for part in 1..=PARTS {
            let at = begun + Duration::from_ns(self.window.as_ns() / PARTS * part);
            self.running.advance_to(at);
            if !goes_on((at - Simulation::START).as_ns_f64() / whole) {
                return None;
            }
        }
        self.running.advance_to(end);
        let (cuts, index) = (self.running.cut(), self.index);
        (self.index, self.begun) = (index + 1, end);
        Some(Window { index, cuts, silent_reference: self.silent_reference([begun, end]) })
    }

    /// The window of a silent reference, from its clock alone.
    fn silent_reference(&self, window: [Timestamp<System>; 2]) -> WindowCut {
        let [start, end] = window.map(|at| self.running.clocks()[self.reference.index()].apply(at));
        WindowCut { node: self.reference, start, end, edges: Vec::new(), clock_event: None, packets: Vec::new() }
    }
}

fn solved(solver: &mut Solver, reference: NodeId, window: Window) -> SimulatedRound {
    let Window { index, cuts, silent_reference } = window;
    let id = RoundId(index as u64);
    let fitted = |cut: &WindowCut| fit_window(cut, id, &FitOptions::default(), false).0;
    let windows: Vec<NodeWindow> = cuts.iter().map(fitted).collect();
    let own = windows.iter().find(|window| window.node_id == reference);
    let silent = own.is_none().then(|| fitted(&silent_reference));
    let reference = own.or(silent.as_ref()).expect("either its own window or the one made of its clock");
    let solved = solver.solve(id, reference, &windows);
    let solved = solved.expect("the simulation's edges join its own nodes");
    SimulatedRound { index, cuts, windows, solved }
}

/// Progress reports per window.
const PARTS: i64 = 16;

impl SimulatedRound {
    /// The instant at which the round's offsets hold.
    pub const fn midpoint(&self) -> Timestamp<Reference> {
        self.solved.data.midpoint()
    }
}
