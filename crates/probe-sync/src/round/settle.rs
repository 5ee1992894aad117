//! The end of the rounds: probing ends everywhere, every rank's account goes to the root, and the
//! root makes the report.

use std::sync::atomic::Ordering;
use std::time::Duration as StdDuration;

use probe_sync_files::OwnFolder;
use probe_sync_sys::clock;

use super::Rounds;
use super::node::Node;
use crate::Error;
use crate::clock::Feed;
use crate::join::Plan;
use crate::measure::account::RankAccount;
use crate::measure::prober::FINISH_LIMIT;
use crate::report::{RunReport, Stopped};
use crate::store::{StreamState, limit_per_node, pairs_file};

impl Rounds<'_> {
    /// Ends probing everywhere, drains the network, and gathers every rank's account at the root
    /// (elsewhere the result is empty). No node counts before all nodes have ended their exchanges,
    /// so that packets sent and received compare exactly.
    ///
    /// # Errors
    /// Names a rank that did not take part.
    pub fn settle(&mut self) -> Result<Vec<RankAccount>, Error> {
        match self.settle_with_all() {
            // All rounds have been; there is nobody to report to.
            Err(error) if self.exchange.master_is_lost(&error) => {
                tracing::warn!("{error}; the run had already ended");
                Ok(Vec::new())
            }
            settled => settled,
        }
    }

    fn settle_with_all(&mut self) -> Result<Vec<RankAccount>, Error> {
        let (instant, cpu) = self.begun;
        let wall_ns = instant.elapsed().as_nanos() as u64;
        let cpu_ns = clock::process_cpu_time().saturating_sub(cpu).as_nanos() as u64;
        if let Some(node) = &mut self.node {
            node.stop_probing();
        }
        self.exchange.end_admission();
        self.exchange.meet(self.configured_window, StdDuration::ZERO)?;
        // Who still asks for a lost packet makes others count.
        self.node.as_mut().map(Node::let_end).transpose()?;
        self.exchange.meet(self.configured_window, self.end_limit)?;
        let (run, limit) = (self.joined.plan.run, limit_per_node(self.joined.plan.nodes(), self.killed_soon()));
        let account = self.node.take().map(|node| node.finish(run, limit)).transpose()?;
        let mut account = RankAccount { wall_ns, cpu_ns, ..account.unwrap_or_default() };
        account.files.extend(self.feed.as_ref().and_then(Feed::removed_page).map(|(page, times)| StreamState {
            name: page.display().to_string(),
            reason: Some(format!("the clock page was removed during the run, {times} times, and recreated")),
            ..StreamState::default()
        }));
        let accounts = self.exchange.accounts(&account, self.configured_window, FINISH_LIMIT)?;
        if let Some(keeper) = &mut self.keeper {
            keeper.take_down(self.round_id, &mut self.exchange);
        }
        Ok(accounts)
    }

    /// At the root, once: creates and writes the report, without accounts if the run failed.
    /// Nothing is recorded after this but the snapshot pairs that ranks sent.
    pub fn report(&mut self, accounts: &[RankAccount], error: Option<String>) -> Option<Result<RunReport, Error>> {
        let keeper = self.keeper.take()?;
        let asked = self.stop.raised() || self.decider.as_ref().is_some_and(|decider| decider.asked());
        let stopped = Stopped { asked, killed_soon: self.killed_soon() };
        let pacing = self.decider.as_ref().and_then(|decider| decider.pacing());
        let folder = keeper.folder().clone();
        let report = keeper.report(accounts, stopped, error, pacing);
        // Last: a launcher may kill this process before many files are written.
        keep_pairs(&folder, accounts, &self.joined.plan);
        Some(report)
    }

    /// Returns true if there was a signal that the launcher lets a kill follow.
    fn killed_soon(&self) -> bool {
        self.exchange.signals_reach_all() && self.stop.of_caller().load(Ordering::Relaxed)
    }
}

/// Writes the snapshot pairs that ranks sent with their accounts. A failure costs only the file.
fn keep_pairs(folder: &OwnFolder, accounts: &[RankAccount], plan: &Plan) {
    let limit = limit_per_node(plan.nodes(), false);
    for (rank, account) in accounts.iter().enumerate() {
        let Some((node, pairs)) = plan.probes_for(rank).zip(account.pairs.as_ref()) else { continue };
        let name = pairs_file(node);
        match pairs.write(folder, &name, limit) {
            Err(error) => tracing::warn!("cannot write {}: {error}", folder.path_of(&name).display()),
            Ok(()) if pairs.left_out > 0 => tracing::info!(
                "{name} lacks {} pairs, evenly spaced; {} has all of them",
                pairs.left_out,
                plan.hostname(node)
            ),
            Ok(()) => {}
        }
    }
}
