//! The hand-shake of a rank that comes back to a run under way.
//!
//! Place in the flow: the root keeps a [`Notice`] for whoever is started in the place of a rank that has left; that rank answers with a
//! [`Statement`], the root judges it ([`judge`]), and all ranks learn of a node that [`Back`] is with the round's broadcast.
//!
//! What it does not do: talk to other ranks, bind.

use probe_sync_time::NodeId;
use serde::{Deserialize, Serialize};

use super::plan::refuse_difference;
use super::roster::refuse_public;
use super::{Hello, Plan, Ready, Roster};

/// What a rank that comes back is told of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Notice {
    /// As all ranks have it.
    pub plan: Plan,
    /// As it is now.
    pub roster: Roster,
}

/// What it says of itself; the second is there for the rank that probes for a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Statement {
    /// As at the start of a run.
    pub hello: Hello,
    /// Its socket is bound.
    pub ready: Option<Ready>,
}

/// A node that probes again, as all ranks learn of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Back {
    /// The node.
    pub node: NodeId,
    /// What its new process says.
    pub ready: Ready,
    /// Which life of the node this is: greater than all before, so that packets of an earlier one are told apart.
    pub incarnation: u32,
    /// The system clock is still the one of before. False after a start of the machine.
    pub same_clock: bool,
}

/// What the root says to a statement of `rank`: whether the clock is still that of `before`, the rank's hello in its earlier life, or why
/// it cannot come back. `root` is the root's own hello.
pub(crate) fn judge(
    statement: &Result<Statement, String>,
    rank: usize,
    before: &Hello,
    root: &Hello,
    plan: &Plan,
) -> Result<bool, String> {
    let Statement { hello, ready } = statement.as_ref().map_err(Clone::clone)?;
    refuse_difference(root, rank, hello)?;
    if hello.hostname != before.hostname {
        return Err(format!(
            "rank {rank} was on {} and comes back on {}: its traces would be of two clocks. Start it on {} again, or start the run anew",
            before.hostname, hello.hostname, before.hostname
        ));
    }
    match (plan.probes_for(rank), ready) {
        (Some(node), None) => return Err(format!("rank {rank} probes for node {node} and has no socket")),
        (Some(_), Some(ready)) if !plan.secret => refuse_public(std::slice::from_ref(ready))?,
        _ => {}
    }
    Ok(hello.clock_identity == before.clock_identity)
}

impl Roster {
    /// Takes in where a node is now.
    pub(crate) fn renew(&mut self, back: &Back) {
        if let Some(ready) = self.nodes.get_mut(back.node.index()) {
            ready.clone_from(&back.ready);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use probe_sync_time::StampSource;

    use super::super::plan::tests::{hellos, plan_of};
    use super::*;

    fn ready(address: &str) -> Option<Ready> {
        let address: SocketAddr = address.parse().expect("an address");
        Some(Ready { address, stamp: StampSource::Kernel, stamp_error_ns: 0, tracer_clock: None })
    }

    #[test]
    fn a_rank_comes_back_where_it_was_with_what_all_have() {
        let all = hellos(&["a", "b"]);
        let plan = plan_of(&all);
        let judged = |change: &dyn Fn(&mut Hello), ready: Option<Ready>| {
            let mut hello = all[1].clone();
            change(&mut hello);
            judge(&Ok(Statement { hello, ready }), 1, &all[1], &all[0], &plan)
        };
        let here = || ready("10.0.0.2:9");
        assert_eq!(judged(&|_| {}, here()), Ok(true));
        assert_eq!(judged(&|hello| hello.clock_identity = "another boot".into(), here()), Ok(false));
        let refused = |change: &dyn Fn(&mut Hello), ready: Option<Ready>, part: &str| {
            let reason = judged(change, ready).expect_err(part);
            assert!(reason.contains(part), "{reason}");
        };
        refused(&|hello| hello.hostname = "c".into(), here(), "rank 1 was on b and comes back on c");
        refused(&|hello| hello.version = "2".into(), here(), "version 2");
        refused(&|hello| hello.shared_entries[0].1 = "other".into(), here(), "on rank 1 (b)");
        refused(&|_| {}, None, "has no socket");
        refused(&|_| {}, ready("9.9.9.9:9"), "public address");
        let own = judge(&Err("cannot bind".into()), 1, &all[1], &all[0], &plan);
        assert_eq!(own, Err("cannot bind".to_owned()));
    }
}
