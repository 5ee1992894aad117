//! Agreement on the participants: the two-step handshake before the first round.
//!
//! Step 1, [`agree_on_plan`]: every rank says [`Hello`] with its version, host and configuration;
//! the root refuses ranks that differ, decides which ranks are nodes, and broadcasts a [`Plan`].
//! Step 2, [`agree_on_roster`]: every node binds its socket and says that it is [`Ready`]; the root
//! broadcasts the [`Roster`]. A refusal reaches all ranks, so all end with one message. A rank that
//! comes back later has a hand-shake of its own (`back`).

mod back;
mod choice;
mod clock_reading;
mod graph;
mod hello;
mod key_file;
mod launcher;
mod machines;
mod neighbors;
mod offer;
mod part;
mod plan;
mod region_file;
mod regions;
mod roster;
mod wish;

use std::time::Duration as StdDuration;

use probe_sync_collective::{Collective, Deadline, Frames, random_bytes};
use probe_sync_time::{Edge, RunId, SessionKey, System, Timestamp};
use serde::Serialize;

pub(crate) use self::back::{Back, Notice, Statement, judge};
pub(crate) use self::hello::Hello;
pub use self::key_file::KeyFile;
pub use self::part::PartOfJob;
pub(crate) use self::plan::{Plan, ranks};
pub(crate) use self::regions::{Grouping, Region, agree_on_regions, own_region};
pub(crate) use self::roster::{Ready, Roster, addresses_seen_from, stamp_errors_ns};
use crate::config::ReferenceChoice;
use crate::store::RunDirectory;
use crate::{Config, Error, wire};

/// Everything settled before the first round.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    /// The settings.
    pub config: Config,
    /// The plan: which ranks are nodes.
    pub plan: Plan,
    /// Key that authenticates the packets of this run.
    pub session_key: SessionKey,
    /// Addresses of the nodes, and the reference.
    pub roster: Roster,
    /// Edges: which node probes which.
    pub edges: Vec<Edge>,
    /// Name of the backend.
    pub backend: &'static str,
    /// Number of ranks.
    pub ranks: usize,
}

/// Step 1. `own` is this rank's hello, or why its configuration is unusable. The root draws the run
/// id and key. Returns the plan, and at the root every rank's hello.
///
/// # Errors
/// [`Error::Refused`] on every rank if a configuration is unusable, versions or configurations
/// differ, or the root has no random bytes.
pub(crate) fn agree_on_plan(
    collective: &mut dyn Collective,
    config: Option<&Config>,
    own: &Result<Hello, String>,
    deadline: &Deadline,
) -> Result<(Plan, Vec<Hello>), Error> {
    let mut all = Vec::new();
    let root = collective.root();
    let plan: Plan = negotiate(collective, Some(own), deadline, |hellos: Vec<Option<Result<Hello, String>>>| {
        let named = |(rank, hello): (usize, Option<Result<Hello, String>>)| {
            hello.transpose().map_err(|reason| format!("rank {rank}: {reason}"))
        };
        let said: Vec<Option<Hello>> = hellos.into_iter().enumerate().map(named).collect::<Result<_, _>>()?;
        all = with_missing(said, root)?;
        machines::tell_apart(&mut all);
        let drawn = random_bytes().and_then(|run| Ok((RunId(u64::from_le_bytes(run)), SessionKey(random_bytes()?))));
        let (run, drawn_key) = drawn.map_err(|error| format!("rank {root}: {error}"))?;
        let config = config.ok_or_else(|| format!("rank {root} has no configuration"))?;
        plan::agree((config, root), &all, run, drawn_key)
    })?;
    Ok((plan, all))
}

/// Returns all ranks' hellos, with the root's substitutes for those that have not joined.
fn with_missing(said: Vec<Option<Hello>>, root: usize) -> Result<Vec<Hello>, String> {
    let own = said.get(root).cloned().flatten().ok_or_else(|| format!("rank {root} sent nothing"))?;
    let there = || said.iter().flatten();
    let one_host = own.is_on_loopback() && there().all(|hello| hello.network_identity == own.network_identity);
    let of = |(rank, hello): (usize, Option<Hello>)| hello.unwrap_or_else(|| Hello::of_missing(rank, &own, one_host));
    Ok(said.into_iter().enumerate().map(of).collect())
}

/// Returns the key that authenticates the run's packets: derived from what rank 0 drew, and from
/// the key file if there is one.
pub(crate) fn session_key(plan: &Plan, key_file: Option<&KeyFile>) -> SessionKey {
    key_file.map_or(plan.drawn_key, |key_file| key_file.session_key(plan.run, plan.drawn_key))
}

/// Step 2. `own` is this node's ready message, or why it cannot take part; `None` for ranks that
/// are not a node. When all are ready, the root calls `claim` for the run's directory and returns
/// it. Refusals come before that and leave an earlier run in its place; no rank writes to the
/// directory before it has the roster.
///
/// # Errors
/// [`Error::Refused`] on every rank if a node could not bind its socket (with its rank) or has a
/// public address without a key file, or if the directory cannot be used.
pub(crate) fn agree_on_roster(
    collective: &mut dyn Collective,
    plan: &Plan,
    own: Option<&Result<Ready, String>>,
    start: Timestamp<System>,
    reference: ReferenceChoice,
    claim: impl FnOnce() -> Result<RunDirectory, Error>,
    deadline: &Deadline,
) -> Result<(Roster, Option<RunDirectory>), Error> {
    let (mut claimed, root) = (None, collective.root());
    let roster = negotiate(collective, own, deadline, |statements: Vec<Option<Result<Ready, String>>>| {
        let mut nodes = Vec::with_capacity(plan.nodes());
        for (rank, ready) in statements.into_iter().enumerate() {
            match ready {
                Some(Ok(ready)) => nodes.push(ready),
                Some(Err(reason)) => return Err(format!("rank {rank} on {}: {reason}", plan.hostnames[rank])),
                // A node that has come has something to say.
                None if plan.probes_for(rank).is_some() => nodes.push(Ready::missing()),
                None => {}
            }
        }
        let roster = Roster::new(nodes, start, reference, plan.secret)?;
        claimed = Some(claim().map_err(|error| format!("rank {root}: {error}"))?);
        Ok(roster)
    })?;
    Ok((roster, claimed))
}

/// Gathers every rank's statement (`None` for those that have not joined), lets the root decide,
/// and broadcasts the decision or the refusal.
pub(crate) fn negotiate<S, D>(
    collective: &mut dyn Collective,
    own: Option<&S>,
    deadline: &Deadline,
    decide: impl FnOnce(Vec<Option<S>>) -> Result<D, String>,
) -> Result<D, Error>
where
    S: Serialize + serde::de::DeserializeOwned,
    D: Serialize + serde::de::DeserializeOwned,
{
    let everyone = vec![true; collective.size()];
    let missing = collective.admission().map(|admission| admission.missing()).unwrap_or_default();
    let mut frames = Frames::default();
    collective.gather(&everyone, &wire::encode(&own), &mut frames, deadline)?;
    let mut decision = Vec::new();
    if collective.rank() == collective.root() {
        let of_rank = |(rank, bytes): (usize, &[u8])| match bytes {
            [] if missing.contains(&rank) => Ok(None),
            [] => Err(Error::Refused { reason: format!("rank {rank} was lost before") }),
            bytes => wire::decode(bytes, rank),
        };
        let statements: Result<Vec<Option<S>>, Error> = frames.iter().enumerate().map(of_rank).collect();
        decision = wire::encode(&statements.map_err(|error| error.to_string()).and_then(decide));
    }
    collective.broadcast(&mut decision, &deadline.extended(ROOT_SPEAKS_FIRST))?;
    wire::decode::<Result<D, String>>(&decision, collective.root())?.map_err(|reason| Error::Refused { reason })
}

/// Additional time for which ranks wait for the root, compared with the root itself.
pub(crate) const ROOT_SPEAKS_FIRST: StdDuration = StdDuration::from_secs(2);
