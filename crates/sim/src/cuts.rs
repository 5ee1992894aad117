//! The windows of a generator, solved as in a live run and recorded as `solve` reads them.
//!
//! The generators `warming` and `coverage` both end here and share nothing before it: each has its
//! own clocks, paths, queues and stamps.

use probe_sync_estimate::edge_fit::FitOptions;
use probe_sync_estimate::round::{SolvedRound, Solver, SolverOptions, WindowCut, fit_window};
use probe_sync_estimate::run::Recorded;
use probe_sync_lines::NodeWindow;
use probe_sync_time::RoundId;

/// Solves rounds one after the other; each is all nodes' windows, in order of nodes.
pub(crate) fn solve(options: &SolverOptions, cuts: &[Vec<WindowCut>]) -> Vec<SolvedRound> {
    let mut solver = Solver::new(options.clone());
    let round = |(id, cuts): (RoundId, &Vec<WindowCut>)| {
        let fitted = |cut: &WindowCut| fit_window(cut, id, &FitOptions::default(), false).0;
        let windows: Vec<NodeWindow> = cuts.iter().map(fitted).collect();
        let solved = solver.solve(id, &windows[options.reference.index()], &windows);
        solved.expect("the edges join the run's own nodes")
    };
    (0..).map(RoundId).zip(cuts).map(round).collect()
}

/// Returns the exchanges of all rounds, as a recording has them.
pub(crate) fn recorded(cuts: &[Vec<WindowCut>]) -> Vec<Recorded<'_>> {
    (0..)
        .map(RoundId)
        .zip(cuts)
        .flat_map(|(round_id, cuts)| {
            let edges = cuts.iter().flat_map(|cut| &cut.edges);
            edges.map(move |cut| Recorded { round_id, edge: cut.edge, exchanges: &cut.exchanges })
        })
        .collect()
}
