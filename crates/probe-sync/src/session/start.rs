//! How a session starts: hand-shake, sockets, directory, threads.
//!
//! Place in the flow: before the first round. Until the roster is settled every refusal goes through `join`, so that all ranks
//! end with one message. What it does not do: go through rounds.

use std::sync::Arc;
use std::time::Duration as StdDuration;

use probe_sync_collective::{Collective, Deadline, ROOT};
use probe_sync_probe::topology;
use probe_sync_sys::{TracerClock, clock, host};
use probe_sync_time::{Clock, Edge, NodeId};

use super::context::Context;
use crate::config::TracerClockChoice;
use crate::join::{self, Hello, Joined, KeyFile, Plan, Ready};
use crate::measure::prober::ProberSetup;
use crate::measure::stop::Stop;
use crate::pace::Policy;
use crate::report::Recorder;
use crate::round::Rounds;
use crate::round::exchange::Exchange;
use crate::round::master::Master;
use crate::round::node::Node;
use crate::store::RunDirectory;
use crate::{Config, Error};

/// What a session is made of: starts to measure, at the pace that the configuration asks for unless `policy` is given.
///
/// # Errors
/// The first error; [`Error::Refused`] on every rank alike.
pub(super) fn start<'c>(
    config: Result<Config, Error>,
    collective: &'c mut dyn Collective,
    context: &Context,
    policy: Option<Policy>,
) -> Result<(Arc<Joined>, Rounds<'c>), Error> {
    let handshake = Deadline::new(HANDSHAKE_LIMIT, Some(Arc::clone(&context.stop)));
    let key_file = config.as_ref().ok().and_then(|config| config.key_file.as_deref()).map(KeyFile::read).transpose();
    let own = |config: &Config| {
        let key_file = key_file.as_ref().map_err(ToString::to_string)?;
        Hello::of(config, &host::Host::detect(), context.towards_root, key_file.as_ref())
    };
    let hello = config.as_ref().map_err(ToString::to_string).and_then(own);
    let key_file = key_file.unwrap_or_default();
    let (plan, hellos) = join::agree_on_plan(collective, config.as_ref().ok(), &hello, key_file.as_ref(), &handshake)?;
    let config = config?;
    let rank = collective.rank();
    if rank == ROOT && plan.nodes() > 1 {
        tracing::info!("nodes probe from {}", plan.sources_reason);
    }
    let bound = plan.probes_for(rank).map(|node| Bound::bind(&config, &plan, node, hello.as_ref().ok(), context));
    let ready = bound.as_ref().map(|bound| bound.as_ref().map(|own| own.ready.clone()).map_err(Clone::clone));
    let start = clock::SystemClock.now();
    let claim = || RunDirectory::claim(&config.out);
    let (roster, claimed) =
        join::agree_on_roster(collective, &plan, ready.as_ref(), start, config.reference, claim, &handshake)?;
    if rank == ROOT && !plan.secret && roster.nodes.iter().any(|ready| !ready.address.ip().is_loopback()) {
        tracing::info!(
            "without --key-file the key of this run's packets has travelled as the ranks' own traffic does; probes go between private \
             addresses only"
        );
    }
    let (backend, ranks) = (collective.backend(), collective.size());
    let joined = Arc::new(Joined { edges: edges(&config, &plan), config, plan, roster, backend, ranks });
    // After a successful assembly no node failed to bind.
    let bound = bound.and_then(Result::ok);
    let node = bound.map(|bound| Node::start(bound.prober, bound.tracer, &joined, rank)).transpose()?;
    let master = claimed.map(|directory| {
        let recorder = Recorder::begin(Arc::clone(&joined), &hellos, directory)?;
        let configured = || Policy::of(&joined.config, joined.plan.nodes(), &joined.edges);
        Ok::<_, Error>(Master::new(&joined, policy.unwrap_or_else(configured), recorder))
    });
    let master = master.transpose()?;
    let stop = Stop::new(&context.stop);
    let exchange = Exchange::new(collective, &joined, stop.of_caller());
    let rounds = Rounds::new(&joined, exchange, node, master, stop);
    Ok((joined, rounds))
}

/// What a node holds before the peers are known.
struct Bound {
    prober: ProberSetup,
    tracer: Option<TracerClock>,
    ready: Ready,
}

impl Bound {
    /// Binds the node's socket and opens its tracer clock; the error says why this rank cannot take part.
    fn bind(
        config: &Config,
        plan: &Plan,
        node: NodeId,
        hello: Option<&Hello>,
        context: &Context,
    ) -> Result<Self, String> {
        // Whoever said no hello was refused before.
        let offer = hello.map(|hello| &hello.offer).ok_or("this rank has offered no address")?;
        let address = plan.sources[node.index()].address(offer, config.port)?;
        let prober = ProberSetup::bind(config, node, address).map_err(|error| error.to_string())?;
        let tracer =
            tracer_clock(config.tracer_clock, context.tracer_clock.as_ref()).map_err(|error| error.to_string())?;
        let ready = Ready {
            address: prober.local_addr(),
            stamp: prober.stamp_source(),
            stamp_error_ns: prober.conversion_error().as_ns(),
            tracer_clock: tracer.as_ref().map(|tracer| (tracer.name().to_owned(), tracer.reason().to_owned())),
        };
        Ok(Self { prober, tracer, ready })
    }
}

/// The clock to take snapshot pairs of: the caller's own where one is handed in, else what is configured.
fn tracer_clock(
    configured: TracerClockChoice,
    handed_in: Option<&TracerClock>,
) -> Result<Option<TracerClock>, probe_sync_sys::Error> {
    match (handed_in, configured) {
        (_, TracerClockChoice::None) => Ok(None),
        (Some(clock), _) => Ok(Some(clock.clone())),
        (None, TracerClockChoice::Auto) => TracerClock::open_auto().map(Some),
        (None, TracerClockChoice::Named(name)) => TracerClock::open(name).map(Some),
    }
}

fn edges(config: &Config, plan: &Plan) -> Vec<Edge> {
    let nodes = plan.nodes() as u32;
    let neighbors = config.neighbors.unwrap_or(DEFAULT_NEIGHBORS).min(nodes.saturating_sub(1));
    topology::edges(nodes, neighbors, config.seed)
}

/// Ranks of a large job start minutes apart on some clusters; one that never comes must still be named.
const HANDSHAKE_LIMIT: StdDuration = StdDuration::from_secs(60);
const DEFAULT_NEIGHBORS: u32 = 10;
