//! The handshake of a rank that returns to a run in progress.
//!
//! The root keeps a [`Notice`] for a process started in the place of a rank that has left. That
//! rank answers with a [`Statement`], the root judges it ([`judge`]), and all ranks learn from the
//! round's broadcast that a node is [`Back`].

use probe_sync_collective::ROOT;
use probe_sync_time::NodeId;
use serde::{Deserialize, Serialize};

use super::plan::refuse_difference;
use super::roster::refuse_public;
use super::{Hello, Plan, Ready, Roster};

/// What a returning rank is told about the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Notice {
    /// The plan, as all ranks have it.
    pub plan: Plan,
    /// The current roster.
    pub roster: Roster,
}

/// What a returning rank states about itself; `ready` is present if it probes for a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Statement {
    /// As at the start of a run.
    pub hello: Hello,
    /// State of its bound socket.
    pub ready: Option<Ready>,
}

/// A node that probes again, as announced to all ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Back {
    /// The node.
    pub node: NodeId,
    /// Socket of its new process.
    pub ready: Ready,
    /// Incarnation of the node: greater than all before, so that packets of earlier ones can be
    /// recognised.
    pub incarnation: u32,
    /// True if its system clock and the clock of its snapshot pairs are unchanged. The former
    /// changes with a reboot of the machine.
    pub same_clocks: bool,
}

/// Returns the root's answer to a statement of `rank`: whether its clocks are unchanged, or why it
/// cannot return. `hellos` are the ranks' latest, by rank; those of ranks that are `away` date from
/// earlier incarnations.
pub(crate) fn judge(
    statement: &Result<Statement, String>,
    rank: usize,
    hellos: &[Hello],
    away: &[bool],
    Notice { plan, roster }: &Notice,
) -> Result<bool, String> {
    let Statement { hello, ready } = statement.as_ref().map_err(Clone::clone)?;
    let before = &hellos[rank];
    refuse_difference(&hellos[ROOT], rank, hello)?;
    if before.missing {
        let loopback = plan.probes_for(rank).is_some_and(|node| plan.sources[node.index()].is_loopback());
        if loopback && hello.network_identity != before.network_identity {
            return Err(format!(
                "rank {rank} joined late, on {}, but the run has started over loopback on {}: start all ranks before --start-timeout \
                expires, or select a network with --interface",
                hello.hostname, hellos[ROOT].hostname
            ));
        }
    } else if hello.hostname != before.hostname {
        return Err(format!(
            "rank {rank} was on {} and came back on {}, so its traces would use two clocks: restart it on {}, or start the run again",
            before.hostname, hello.hostname, before.hostname
        ));
    }
    if hello.neighbors != before.neighbors {
        return Err(format!(
            "rank {rank} came back with different out_neighbors or in_neighbors, but the graph cannot change: give it the same ones, \
            or start the run again"
        ));
    }
    let same_node = |other: usize| {
        !before.missing && other != rank && !away[other] && plan.node_of_rank[other] == plan.node_of_rank[rank]
    };
    let elsewhere = |other: &usize| same_node(*other) && hellos[*other].clock_identity != hello.clock_identity;
    if let Some(other) = (0..hellos.len()).find(elsewhere) {
        return Err(format!(
            "rank {rank} shared a machine with rank {other}, but came back on another machine of the same name, {}, so its traces \
            would be corrected by the wrong clock: restart it on the first machine, or start the run again",
            hello.hostname
        ));
    }
    match (plan.probes_for(rank), ready) {
        (Some(node), None) => return Err(format!("rank {rank} probes for node {node} but has no socket")),
        (Some(_), Some(ready)) if !plan.secret => refuse_public(std::slice::from_ref(ready))?,
        _ => {}
    }
    let earlier = roster.nodes.get(plan.node_of_rank[rank].index()).and_then(|ready| ready.tracer_clock.as_ref());
    let now = ready.as_ref().and_then(|ready| ready.tracer_clock.as_ref());
    let name = |clock: Option<&(String, String)>| clock.map(|(name, _)| name.clone());
    let same = hello.clock_identity == before.clock_identity && name(earlier) == name(now);
    Ok(same && !before.missing)
}

impl Roster {
    /// Updates the address of a node.
    pub(crate) fn renew(&mut self, back: &Back) {
        if let Some(ready) = self.nodes.get_mut(back.node.index()) {
            ready.clone_from(&back.ready);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use probe_sync_time::{StampSource, Timestamp};

    use super::super::plan::tests::{hellos, plan_of};
    use super::*;

    fn ready(address: &str, clock: &str) -> Ready {
        let address: SocketAddr = address.parse().expect("an address");
        let tracer_clock = Some((clock.to_owned(), "named".to_owned()));
        Ready { address, stamp: StampSource::Kernel, stamp_error_ns: 0, tracer_clock }
    }

    /// A run with these hosts, of which ranks in `away` are absent.
    struct Run {
        hellos: Vec<Hello>,
        away: Vec<bool>,
        notice: Notice,
    }

    impl Run {
        fn of(hosts: &[&str], away: &[usize]) -> Self {
            let hellos = hellos(hosts);
            let plan = plan_of(&hellos);
            let nodes = (0..plan.nodes()).map(|node| ready(&format!("10.0.0.{node}:9"), "boottime")).collect();
            let roster = Roster { nodes, start: Timestamp::from_ns(0), reference: NodeId(0) };
            let away = (0..hosts.len()).map(|rank| away.contains(&rank)).collect();
            Self { hellos, away, notice: Notice { plan, roster } }
        }

        fn judge(&self, rank: usize, change: impl Fn(&mut Hello), ready: Option<Ready>) -> Result<bool, String> {
            let mut hello = self.hellos[rank].clone();
            change(&mut hello);
            judge(&Ok(Statement { hello, ready }), rank, &self.hellos, &self.away, &self.notice)
        }
    }

    fn rebooted(hello: &mut Hello) {
        hello.clock_identity = "another boot".into();
    }

    #[test]
    fn a_rank_comes_back_where_it_was_with_what_all_have() {
        let run = Run::of(&["a", "b"], &[1]);
        let here = || Some(ready("10.0.0.2:9", "boottime"));
        assert_eq!(run.judge(1, |_| (), here()), Ok(true));
        assert_eq!(run.judge(1, rebooted, here()), Ok(false));
        assert_eq!(run.judge(1, |_| (), Some(ready("10.0.0.2:9", "monotonic"))), Ok(false), "pairs for another clock");
        let refused = |change: &dyn Fn(&mut Hello), ready: Option<Ready>, part: &str| {
            let reason = run.judge(1, change, ready).expect_err(part);
            assert!(reason.contains(part), "{reason}");
        };
        refused(&|hello| hello.hostname = "c".into(), here(), "rank 1 was on b and came back on c");
        refused(&|hello| hello.version = "2".into(), here(), "version 2");
        refused(&|hello| hello.shared_entries[0].1 = "other".into(), here(), "on rank 1 (b)");
        refused(&|_| {}, None, "has no socket");
        refused(&|_| {}, Some(ready("9.9.9.9:9", "boottime")), "public address");
        let own = judge(&Err("cannot bind".into()), 1, &run.hellos, &run.away, &run.notice);
        assert_eq!(own, Err("cannot bind".to_owned()));
    }

    #[test]
    fn a_rank_that_comes_late_may_be_on_any_host_that_the_run_reaches() {
        let late = |one_host| {
            let mut run = Run::of(&["a", "b"], &[1]);
            run.hellos[1] = Hello::of_missing(1, &run.hellos[0], one_host);
            run.notice.plan = plan_of(&run.hellos);
            run
        };
        let come = |run: &Run, host: &str| {
            let on_host = |hello: &mut Hello| {
                (hello.hostname, hello.network_identity, hello.missing) = (host.into(), host.into(), false);
            };
            run.judge(1, on_host, Some(ready("10.0.0.2:9", "boottime")))
        };
        assert_eq!(come(&late(false), "z"), Ok(false));
        assert_eq!(come(&late(true), "a"), Ok(false));
        let refused = come(&late(true), "z").expect_err("loopback does not lead there");
        assert!(refused.contains("rank 1 joined late, on z") && refused.contains("on a"), "{refused}");
    }

    #[test]
    fn ranks_of_one_node_have_one_clock() {
        // Ranks 1 and 3 are on b; rank 3 follows rank 1.
        let run = Run::of(&["a", "b", "a", "b"], &[3]);
        assert_eq!(run.judge(3, |_| (), None), Ok(false), "it takes no pairs, and has none to go on with");
        let other = run.judge(3, rebooted, None).expect_err("another machine of that name");
        assert!(other.contains("with rank 1"), "{other}");
        let all_gone = Run::of(&["a", "b", "a", "b"], &[1, 3]);
        assert_eq!(
            all_gone.judge(1, rebooted, Some(ready("10.0.0.2:9", "boottime"))),
            Ok(false),
            "the host was rebooted"
        );
    }
}
