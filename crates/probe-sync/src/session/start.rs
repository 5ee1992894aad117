//! The start of a session: handshake, sockets, directory, threads.
//!
//! Until the roster is settled every refusal goes through `join`, so that all ranks end with one
//! message.

use std::sync::Arc;
use std::time::Duration as StdDuration;

use probe_sync_collective::{Collective, Deadline};
use probe_sync_files::{NewFolders, OwnFolder};
use probe_sync_probe::topology;
use probe_sync_sys::{TracerClock, host};
use probe_sync_time::{Duration, Edge, NodeId, SessionKey};

use super::context::Context;
use crate::clock::{self, Feed, Pages};
use crate::config::TracerClockChoice;
use crate::join::{self, Hello, Joined, KeyFile, Notice, Plan, Ready, Roster, Statement};
use crate::late::Turn;
use crate::measure::prober::ProberSetup;
use crate::measure::stop::Stop;
use crate::measure::virtual_clocks::clock_of;
use crate::pace::{Pace, Policy};
use crate::report::Recorder;
use crate::round::decider::Decider;
use crate::round::exchange::Exchange;
use crate::round::keeper::Keeper;
use crate::round::messages::Broadcast;
use crate::round::node::Node;
use crate::round::side::Side;
use crate::round::standby::Present;
use crate::round::{Rounds, Setup};
use crate::store::{ReceivedFiles, RunDirectory, keep_successors};
use crate::{Config, Error, wire};

/// Creates the parts of a session and starts to measure, at the configured pace unless `policy` is
/// given.
///
/// # Errors
/// The first error; [`Error::Refused`] on all ranks.
pub(super) fn start<'c>(
    config: Result<Config, Error>,
    collective: &'c mut dyn Collective,
    context: &Context,
    policy: Option<Policy>,
) -> Result<Begun<'c>, Error> {
    let leads = collective.rank() == collective.root();
    let handshake = handshake(leads, context);
    let key_file = config.as_ref().ok().and_then(|config| config.key_file.as_deref()).map(KeyFile::read).transpose();
    let notice = collective.admission().and_then(|admission| admission.notice());
    let own = |config: &Config| {
        let key_file = key_file.as_ref().map_err(ToString::to_string)?;
        clock::usable(config.clock_counter)?;
        check_recording(config)?;
        // Who comes back finds who leads now.
        if notice.is_none() {
            check_master(config, collective)?;
        }
        check_regions(config, context)?;
        Hello::of(config, &host::Host::detect(), context.towards_root, key_file.as_ref(), context.part.as_ref())
    };
    let mut hello = config.as_ref().map_err(ToString::to_string).and_then(own);
    let key_file = key_file.unwrap_or_default();
    if let Some(notice) = notice {
        let said = hello.clone();
        let (joined, rounds) = again(&notice, config, hello, key_file.as_ref(), collective, context)?;
        return Ok(Begun { joined, rounds, hello: said.ok() });
    }
    if let (Ok(config), Ok(hello)) = (&config, &mut hello)
        && may_stand_by(config, context)
    {
        hello.stands_by = collective.succession().map(|succession| succession.stand_by()).transpose()?;
    }
    let (plan, hellos) = join::agree_on_plan(collective, config.as_ref().ok(), &hello, &handshake)?;
    let config = config?;
    let rank = collective.rank();
    let bound = plan.probes_for(rank).map(|node| Bound::bind(&config, &plan, node, hello.as_ref().ok(), context));
    let ready = bound.as_ref().map(|bound| bound.as_ref().map(|own| own.ready.clone()).map_err(Clone::clone));
    let start = context.start();
    let claim = || RunDirectory::claim(&config.out);
    let (roster, claimed) =
        join::agree_on_roster(collective, &plan, ready.as_ref(), start, config.reference, claim, &handshake)?;
    tell_of_the_start(leads, &plan, &roster);
    let session_key = join::session_key(&plan, key_file.as_ref());
    let joined = Arc::new(joined(config, plan, session_key, roster, collective));
    if let Some(directory) = &claimed {
        receive_files(collective, &joined, directory);
    }
    // After a successful assembly no node failed to bind.
    let bound = bound.and_then(Result::ok);
    let node = bound.map(|bound| Node::start(bound.prober, bound.tracer, &joined, rank, None)).transpose()?;
    let decider = decider(&joined, leads, policy);
    let mut keeper = claimed.map(|directory| keeper(&joined, hellos, directory)).transpose()?;
    line_up(collective, &joined);
    let stop = Stop::new(&context.stop);
    let mut exchange = Exchange::new(collective, &joined, stop.of_caller());
    if let Some(keeper) = keeper.as_ref().filter(|_| !context.ends_with_lost_rank) {
        exchange.continue_without_lost(keeper.notice())?;
    }
    let attendants = tell_successors(&joined, &mut exchange, keeper.as_deref_mut())?;
    let (own, feed) = (joined.plan.node_of_rank[rank], feed(&joined, rank, context)?);
    let pause = Arc::clone(&context.pause);
    let (requests, notes, timeline) = (context.requests.clone(), context.notes.clone(), context.timeline.clone());
    let side = side(&joined, rank, context, keeper.as_deref());
    let setup = Setup { node, own, decider, keeper, attendants, feed, stop, pause, requests, notes, timeline, side };
    let rounds = Rounds::new(&joined, exchange, setup);
    Ok(Begun { joined, rounds, hello: hello.ok() })
}

/// Returns this rank's part in the detection of late ranks.
fn side(joined: &Arc<Joined>, rank: usize, context: &Context, keeper: Option<&Keeper>) -> Arc<Side> {
    Side::new(Turn::new(joined, rank, &context.arrivals, &context.late, &context.hang), keeper.map(Keeper::folder))
}

/// Returns how long the handshake may take: rank 0 may still be meeting other ranks when this one
/// is ready.
fn handshake(leads: bool, context: &Context) -> Deadline {
    let limit = if leads { HANDSHAKE_LIMIT } else { HANDSHAKE_LIMIT + MEETING_LIMIT };
    Deadline::new(limit, Some(Arc::clone(&context.stop)))
}

/// At the root: accepts files of ranks with other directories into the run's. Without admission in
/// the backend, these files stay in their ranks' directories.
fn receive_files(collective: &mut dyn Collective, joined: &Joined, directory: &RunDirectory) {
    let nodes = (0..joined.ranks).map(|rank| joined.plan.probes_for(rank)).collect();
    if let Some(admission) = collective.admission() {
        admission.receive_files(Arc::new(ReceivedFiles::new(directory.folder().clone(), nodes)));
    }
}

/// The parts of a session.
pub(super) struct Begun<'c> {
    pub joined: Arc<Joined>,
    pub rounds: Rounds<'c>,
    /// This rank's hello.
    pub hello: Option<Hello>,
}

/// At the root: returns the keeper of the rounds in this directory.
fn keeper(joined: &Arc<Joined>, hellos: Vec<Hello>, directory: RunDirectory) -> Result<Box<Keeper>, Error> {
    let recorder = Recorder::begin(Arc::clone(joined), &hellos, directory, None)?;
    Ok(Box::new(Keeper::new(joined, recorder, hellos)))
}

/// Tells potential successors which ranks are present, if the rounds do not convey it.
fn tell_successors(
    joined: &Joined,
    exchange: &mut Exchange<'_>,
    keeper: Option<&mut Keeper>,
) -> Result<Option<Present>, Error> {
    if !joined.config.rounds.all_solve() {
        return Ok(None);
    }
    let present = keeper.and_then(Keeper::for_successors);
    exchange.tell_successors(present.as_ref(), Pace::configured(&joined.config).window)
}

/// At the root: logs where packets come from, and how their key was transmitted.
fn tell_of_the_start(leads: bool, plan: &Plan, roster: &Roster) {
    if !leads {
        return;
    }
    if plan.nodes() > 1 {
        tracing::info!("nodes probe from {}", plan.sources_reason);
    }
    if !plan.secret && roster.nodes.iter().any(|ready| !ready.is_missing() && !ready.address.ip().is_loopback()) {
        tracing::info!(
            "without --key-file this run's packet key was sent like the ranks' other traffic; probes are only sent between private addresses"
        );
    }
}

/// Returns the decider of this rank, with the pace of `policy` if given.
fn decider(joined: &Joined, leads: bool, policy: Option<Policy>) -> Option<Box<Decider>> {
    let mode = joined.config.rounds;
    let decides = mode.all_solve() || (mode.has_master() && leads);
    let configured = || Policy::of(&joined.config, joined.plan.nodes(), &joined.edges, leads);
    decides.then(|| Box::new(Decider::new(joined, policy.unwrap_or_else(configured))))
}

/// Rejoins a running run, in the place of a process that has left it.
///
/// # Errors
/// This rank's own error, or why the root refused it.
fn again<'c>(
    notice: &[u8],
    config: Result<Config, Error>,
    hello: Result<Hello, String>,
    key_file: Option<&KeyFile>,
    collective: &'c mut dyn Collective,
    context: &Context,
) -> Result<(Arc<Joined>, Rounds<'c>), Error> {
    let rank = collective.rank();
    let key = |plan: &Plan| join::session_key(plan, key_file);
    let Returned { joined, bound, latest } = come_back(notice, config, hello, key, collective, context)?;
    let (joined, node) = node_again(joined, bound, &latest, rank)?;
    let stop = Stop::new(&context.stop);
    let exchange = Exchange::new(collective, &joined, stop.of_caller());
    let (own, feed) = (joined.plan.node_of_rank[rank], feed(&joined, rank, context)?);
    let pause = Arc::clone(&context.pause);
    let (requests, notes, timeline) = (context.requests.clone(), context.notes.clone(), context.timeline.clone());
    let (decider, keeper, attendants) = (None, None, None);
    let side = side(&joined, rank, context, keeper.as_deref());
    let setup = Setup { node, own, decider, keeper, attendants, feed, stop, pause, requests, notes, timeline, side };
    let rounds = Rounds::new(&joined, exchange, setup).again(latest)?;
    Ok((joined, rounds))
}

/// A rank that rejoins, before its node starts.
pub(super) struct Returned {
    pub joined: Joined,
    pub bound: Option<Bound>,
    /// The first broadcast that it received.
    pub latest: Broadcast,
}

/// Sends the root its statement in response to `notice`, and receives the next round. `key` derives
/// the key of packets from the run's plan.
///
/// # Errors
/// This rank's own error, or why the root refused it.
pub(super) fn come_back(
    notice: &[u8],
    config: Result<Config, Error>,
    hello: Result<Hello, String>,
    key: impl FnOnce(&Plan) -> SessionKey,
    collective: &mut dyn Collective,
    context: &Context,
) -> Result<Returned, Error> {
    let (rank, root) = (collective.rank(), collective.root());
    let Notice { plan, roster } = wire::decode(notice, root)?;
    let bind = |hello: &Hello| {
        let bind = |node| Bound::bind(config.as_ref().map_err(ToString::to_string)?, &plan, node, Some(hello), context);
        plan.probes_for(rank).map(bind).transpose()
    };
    let bound = hello.as_ref().map_err(Clone::clone).and_then(bind);
    let statement = hello.and_then(|hello| {
        let bound = bound.as_ref().map_err(Clone::clone)?;
        Ok::<_, String>(Statement { hello, ready: bound.as_ref().map(|bound| bound.ready.clone()) })
    });
    let window = config.as_ref().map_or(Duration::ZERO, |config| Pace::configured(config).window);
    let limit = RETURN_LIMIT + 3 * window.to_std();
    let deadline = Deadline::new(limit, Some(Arc::clone(&context.stop)));
    let admission = collective.admission().expect("only a backend that lets ranks return gives a notice");
    let welcome = admission.rejoin(&wire::encode(&statement), &deadline);
    let config = config?;
    welcome?;
    let session_key = key(&plan);
    let mut joined = joined(config, plan, session_key, roster, collective);
    // It stands by for nobody, and has a voice when the others choose.
    line_up(collective, &joined);
    let latest = Exchange::new(collective, &joined, Arc::clone(&context.stop)).next_broadcast(None, None, window)?;
    if let Broadcast::Solved(told) = &latest {
        told.back.iter().for_each(|back| joined.roster.renew(back));
    }
    // The root lets nobody in who has not bound what it needs.
    Ok(Returned { joined, bound: bound.ok().flatten(), latest })
}

/// Starts the node of a rank that rejoins, in the incarnation that `latest` announced to all.
///
/// # Errors
/// Returns an error if a file or a thread cannot be created.
pub(super) fn node_again(
    joined: Joined,
    bound: Option<Bound>,
    latest: &Broadcast,
    rank: usize,
) -> Result<(Arc<Joined>, Option<Node>), Error> {
    let joined = Arc::new(joined);
    let back = if let Broadcast::Solved(told) = latest { told.back.as_slice() } else { &[] };
    let own = back.iter().find(|back| Some(back.node) == joined.plan.probes_for(rank));
    let start = |(bound, back): (Bound, _)| Node::start(bound.prober, bound.tracer, &joined, rank, Some(back));
    let node = bound.zip(own).map(start).transpose()?;
    Ok((joined, node))
}

/// Sets the successors of the master, for this process and for the next one of this rank.
fn line_up(collective: &mut dyn Collective, joined: &Joined) {
    let successors = &joined.plan.successors;
    // Without succession no rank stands by, and there are no successors.
    if let Some(succession) = collective.succession() {
        succession.set_successors(successors);
    }
    keep_successors(&joined.config.out, collective.rank(), joined.plan.run, successors);
}

/// Checks that the group was formed for the configured master: which process others contact first
/// is settled when they meet.
fn check_master(config: &Config, collective: &dyn Collective) -> Result<(), String> {
    let (master, root, size) = (config.master as usize, collective.root(), collective.size());
    if master >= size {
        return Err(format!("--master {master}: there is no such rank; the run has {size} ranks, numbered from 0"));
    }
    if master != root {
        return Err(format!(
            "--master {master}: this group is led by rank {root}. The command `probe_sync` and groups of `collective::Led` can choose \
            another master, but sessions that use a launcher cannot: omit master"
        ));
    }
    Ok(())
}

/// Checks, before any rank begins, that the folder to record into exists.
fn check_recording(config: &Config) -> Result<(), String> {
    let Some(folder) = &config.record else { return Ok(()) };
    let made = NewFolders::create(folder).and_then(|made| {
        made.keep();
        OwnFolder::open(folder)
    });
    made.map(drop).map_err(|error| format!("--record {}: this folder cannot be used: {error}", folder.display()))
}

/// Refuses regions, unless this run is one of them; they are formed before their runs begin.
fn check_regions(config: &Config, context: &Context) -> Result<(), String> {
    let wrong =
        |set| format!("{set}: only the command `probe_sync run` supports regions, not a session in a program; omit it");
    config.region_setting().filter(|_| context.part.is_none()).map_or(Ok(()), |set| Err(wrong(set)))
}

/// Returns true if this rank is a potential successor of the master. Without rounds there is no
/// master, and if the first lost rank ends the run there are no successors.
fn may_stand_by(config: &Config, context: &Context) -> bool {
    config.rounds.has_rounds() && config.successors > 0 && !context.ends_with_lost_rank
}

fn joined(config: Config, plan: Plan, session_key: SessionKey, roster: Roster, collective: &dyn Collective) -> Joined {
    let (backend, ranks) = (collective.backend(), collective.size());
    Joined { edges: edges(&config, &plan), config, plan, session_key, roster, backend, ranks }
}

/// Returns the feed for the clocks requested of this rank.
fn feed(joined: &Joined, rank: usize, context: &Context) -> Result<Option<Feed>, Error> {
    let Joined { config, plan, roster, .. } = joined;
    let node = plan.node_of_rank[rank];
    // Ranks of one host that are nodes have one real clock.
    let first_of_host = plan.probes_for(rank).is_some() && plan.place_on_host[rank].0 == 0;
    let path = config.clock_page.clone().filter(|_| first_of_host);
    let pages = Pages { own: context.clock.clone(), path };
    let in_region = context.part.is_some();
    // A region's own numbers would say of its master that it shows its own time.
    let ranks_of_job = (NodeId(plan.clock_numbers[node.index()]), NodeId(0));
    let shown = if in_region { ranks_of_job } else { (node, roster.reference) };
    Feed::new(&pages, config, (node, shown), clock_of(joined, node), in_region)
}

/// Resources of a node before the peers are known.
pub(super) struct Bound {
    prober: ProberSetup,
    tracer: Option<TracerClock>,
    ready: Ready,
}

impl Bound {
    /// Binds the node's socket and opens its tracer clock; the error states why this rank cannot
    /// take part.
    fn bind(
        config: &Config,
        plan: &Plan,
        node: NodeId,
        hello: Option<&Hello>,
        context: &Context,
    ) -> Result<Self, String> {
        // Whoever said no hello was refused before.
        let offer = hello.map(|hello| &hello.offer).ok_or("this rank offered no address")?;
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

/// Returns the tracer clock for snapshot pairs: the caller's own if given, otherwise the configured
/// one.
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
    if let Some(edges) = &plan.edges {
        return edges.clone();
    }
    let nodes = plan.nodes() as u32;
    let neighbors = config.neighbors.unwrap_or(DEFAULT_NEIGHBORS).min(nodes.saturating_sub(1));
    topology::edges(nodes, neighbors, config.seed)
}

/// Longest handshake; ranks of a large job start minutes apart on some clusters, and one that never
/// joins must still be named.
const HANDSHAKE_LIMIT: StdDuration = StdDuration::from_secs(60);
/// The root begins when the ranks have met, and a rank waits for it from when it has met the root
/// itself: at most the longest --start-timeout.
const MEETING_LIMIT: StdDuration = StdDuration::from_secs(600);
/// Longest wait of a returning rank; it is admitted at the end of the current window, which may
/// have grown.
const RETURN_LIMIT: StdDuration = StdDuration::from_secs(600);
const DEFAULT_NEIGHBORS: u32 = 10;
