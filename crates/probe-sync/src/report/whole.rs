//! The run as a whole, for the offsets written at its end in addition to those of its rounds.
//!
//! It takes every solved round from the master. When the run is over, all rounds are smoothed
//! together and `offsets.smoothed.jsonl` gets enough lines for linear interpolation, from the start
//! of the first window to the end of the last. A round knew only the rounds before it, and says
//! nothing about the time between it and the next.
//!
//! Memory is bounded: a run of more than [`MOST_EDGES`] fits is not kept, and its end says how to
//! smooth it from its files. It does not delay the end of a failed run.

use probe_sync_estimate::round::{SolvedRound, SolverOptions};
use probe_sync_estimate::run::Smoothed;
use probe_sync_lines::{EdgeFit, OffsetRecord, OffsetsHeader, Round, SMOOTHED_OFFSETS};

use crate::Error;
use crate::store::{RunDirectory, write_offsets_to};

/// All solved rounds, while they are few enough.
#[derive(Debug, Default)]
pub(super) struct Whole {
    rounds: Vec<SolvedRound>,
    /// Rounds after the reference was lost: later data does not improve knowledge of its timeline,
    /// so their lines are unchanged.
    carried: Vec<Round>,
    edges: usize,
    too_long: bool,
}

impl Whole {
    /// Adds a solved round and its edges.
    pub(super) fn take(&mut self, data: &Round, edges: Vec<EdgeFit>) {
        self.edges += edges.len() + data.all_nodes.len();
        if self.too_long || self.edges > MOST_EDGES {
            (self.rounds, self.carried, self.too_long) = (Vec::new(), Vec::new(), true);
            return;
        }
        if data.carried_by.is_some() {
            self.carried.push(data.clone());
            return;
        }
        let (alone, smoothed) = (Default::default(), Vec::new());
        self.rounds.push(SolvedRound { data: data.clone(), edges, alone, smoothed });
    }

    /// Returns why the run is not smoothed at its end; `None` if it is.
    fn too_much(&self, killed_soon: bool) -> Option<&'static str> {
        match () {
            () if self.too_long => Some("this run is too long to be smoothed when it ends"),
            () if killed_soon && self.edges > MOST_EDGES_IN_A_HURRY => {
                Some("the launcher would end the ranks before this run is smoothed")
            }
            () => None,
        }
    }

    /// Smooths the run and writes its lines. For ranks that are `killed_soon`, only if it is short,
    /// because a truncated file is useless.
    pub(super) fn write(
        self,
        directory: &RunDirectory,
        header: &OffsetsHeader,
        killed_soon: bool,
    ) -> Result<(), Error> {
        if let Some(why) = self.too_much(killed_soon) {
            let out = directory.path().display();
            tracing::warn!(
                "{why}; for offsets that can be interpolated between its rounds, run: probe_sync solve --windows \
                {out}/windows/*.jsonl --out {out}/{SMOOTHED_OFFSETS}"
            );
            return Ok(());
        }
        if self.rounds.is_empty() {
            return Ok(());
        }
        let run = SolverOptions { hosts: header.hosts(), ..SolverOptions::new(header.nodes.len(), header.reference) };
        let smoothed = Smoothed::new(&run, self.rounds, None);
        let (knots, share) = smoothed.sufficient_knots();
        if share < 1.0 {
            let percent = 100.0 * share;
            tracing::warn!(
                "{SMOOTHED_OFFSETS} has only {percent:.1} % of the lines needed to interpolate between its rounds"
            );
        }
        let lines = smoothed.knot_lines(knots).chain(self.carried.iter().flat_map(OffsetRecord::of_round));
        directory.expect_own()?;
        let path = directory.path().join(SMOOTHED_OFFSETS);
        let file = directory.atomic(SMOOTHED_OFFSETS).map_err(Error::file(&path, "write"))?;
        write_offsets_to(file, header, lines)?;
        Ok(())
    }
}

/// Most fits and estimates kept: some 100 MB. 64 nodes of degree 8 reach it after an hour of 4 s
/// windows.
const MOST_EDGES: usize = 600_000;

/// Most fits and estimates if a kill follows: they are smoothed and written within some tenths of a
/// second. 8 nodes with 7 edges reach it after a quarter of an hour of 4 s windows.
const MOST_EDGES_IN_A_HURRY: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_killed_soon_is_smoothed_only_if_it_is_short() {
        let whole = |edges, too_long| Whole { edges, too_long, ..Whole::default() };
        let refused = |whole: Whole, killed_soon| whole.too_much(killed_soon).is_some();
        assert!(!refused(whole(MOST_EDGES_IN_A_HURRY, false), true) && !refused(whole(MOST_EDGES, false), false));
        assert!(refused(whole(MOST_EDGES_IN_A_HURRY + 1, false), true));
        assert!(refused(whole(MOST_EDGES + 1, true), false) && refused(whole(0, true), true));
    }
}
