//! Summarises all judged operations by rank, host, operation and step.

use std::collections::{BTreeMap, BTreeSet};

use probe_sync_alignment::collectives::Matching;
use probe_sync_alignment::{Calibrated, CalibratedTrace};
use probe_sync_formats::words::joined;
use probe_sync_lateness::operation::DEVIATIONS;

use super::dependence::{dependence, lateness};
use super::gather::Gathered;
use super::history::{Held, History, Saving};
use super::left_out::{notes, unpaired, warnings};
use super::lines::{as_recorded, host_lines, operation_lines, rank_lines, step_lines};
use super::ranks::Ranks;
use super::report::{HostLine, LateInstance, Lateness, RankLine, SCHEMA, Straggler};
use super::text::short;
use super::verdict::{Chance, Recurrent, Unit, by_loss, recurrent};

/// Summarises; `traces` are the ranks, in the order of their numbers in the operations, which are
/// in order of time.
pub(super) fn summarize(
    calibrated: &Calibrated,
    traces: &[&CalibratedTrace],
    gathered: Gathered,
    matching: &Matching,
) -> Lateness {
    let Gathered { held, spans, impossible, notes: left_out } = gathered;
    let (held, spans) = (&held[..], &spans);
    let ranks = Ranks::of(calibrated, traces);
    let history = History::new(held);
    let instances: Vec<LateInstance> = held.iter().map(|held| ranks.instance(held)).collect();
    let first = instances.iter().map(|instance| instance.first_arrival_ns).min().unwrap_or(0);
    let last = held.iter().flat_map(|held| &held.arrivals).map(|arrival| arrival.end_ns).max().unwrap_or(0);
    let stepped: i64 = spans.values().map(|(start, end)| end - start).sum();
    let total_ns = if spans.is_empty() { last - first } else { stepped };
    let share = |ns: i64| if total_ns > 0 { ns as f64 / total_ns as f64 } else { 0.0 };
    let mut rank_lines = rank_lines(&ranks, held);
    let unseen = unseen(&ranks, &rank_lines);
    let mut host_lines = host_lines(&ranks, &instances);
    let mut savings = savings(&history, &ranks, &rank_lines, &host_lines);
    for line in &mut rank_lines {
        line.lost_share = share(line.lost_ns);
        line.saved_ns = savings.ranks.get(&line.rank).map(|saving| saving.total_ns);
    }
    for line in &mut host_lines {
        line.lost_share = share(line.lost_ns);
        line.saved_ns = savings.hosts.get(&line.host).map(|saving| saving.total_ns);
    }
    let of_ranks = rank_units(held);
    let tests = Tests::new(&ranks, held);
    let stragglers = stragglers(&ranks, [&of_ranks, &host_units(&ranks, &tests, held)], &tests, &mut savings, &share);
    rank_lines.sort_by_key(|line| (std::cmp::Reverse((line.lost_ns, line.times_last)), line.rank));
    host_lines.sort_by_key(|line| (std::cmp::Reverse((line.lost_ns, line.times_last)), line.host.clone()));
    let warnings = warnings(impossible, &instances);
    let mut sigmas: Vec<f64> = instances.iter().map(|instance| instance.lead_sigma_ns).collect();
    sigmas.sort_by(f64::total_cmp);
    Lateness {
        schema: SCHEMA,
        clocks: calibrated.method.to_owned(),
        timeline: calibrated.timeline.clone(),
        span_ns: last - first,
        stepped_ns: total_ns,
        lead_sigma_median_ns: sigmas.get(sigmas.len() / 2).copied(),
        independent_steps: tests.units as f64 / tests.ranks.dependence,
        stragglers,
        missing_ranks: missing_ranks(traces),
        ranks: rank_lines,
        hosts: host_lines,
        operations: operation_lines(&instances),
        steps: step_lines(&instances, spans),
        critical_path: history.critical_path(|rank| ranks.numbers[rank]),
        as_recorded: as_recorded(&instances),
        unpaired: unpaired(calibrated, matching),
        impossible_instances: impossible,
        omitted: calibrated.omitted(),
        warnings: warnings.clone(),
        notes: warnings
            .into_iter()
            .chain(notes(calibrated, &instances, spans))
            .chain(unseen)
            .chain(set_aside(&ranks, &of_ranks))
            .chain(left_out)
            .collect(),
        instances,
    }
}

/// What the job would have saved, for the member that lost most.
struct Savings<'a> {
    history: &'a History<'a>,
    ranks: BTreeMap<u32, Saving>,
    hosts: BTreeMap<String, Saving>,
}

fn savings<'a>(history: &'a History<'a>, ranks: &Ranks, lines: &[RankLine], hosts: &[HostLine]) -> Savings<'a> {
    let mut savings = Savings { history, ranks: BTreeMap::new(), hosts: BTreeMap::new() };
    let mut costly: Vec<(i64, usize)> = lines
        .iter()
        .filter_map(|line| {
            let place = ranks.numbers.iter().position(|number| *number == line.rank)?;
            Some((line.lost_ns, place)).filter(|(lost, _)| *lost > 0)
        })
        .collect();
    costly.sort_by_key(|(lost, place)| (std::cmp::Reverse(*lost), *place));
    for (_, place) in costly.into_iter().take(REPLAYS_MAX) {
        savings.of_rank(ranks, place);
    }
    let mut costly: Vec<&HostLine> = hosts.iter().filter(|line| line.lost_ns > 0).collect();
    costly.sort_by_key(|line| std::cmp::Reverse(line.lost_ns));
    for line in costly.into_iter().take(REPLAYS_MAX) {
        savings.of_host(ranks, &line.host);
    }
    savings
}

impl Savings<'_> {
    fn of_rank(&mut self, ranks: &Ranks, place: usize) -> &Saving {
        let history = self.history;
        self.ranks.entry(ranks.numbers[place]).or_insert_with(|| history.without_delays_of(&BTreeSet::from([place])))
    }

    fn of_host(&mut self, ranks: &Ranks, host: &str) -> &Saving {
        let history = self.history;
        self.hosts.entry(host.to_owned()).or_insert_with(|| history.without_delays_of(&ranks.of_host(host)))
    }
}

/// What chance explains, for ranks and for whole hosts.
pub(super) struct Tests<'a> {
    /// Hosts that can be late as a whole, in order.
    names: Vec<&'a String>,
    /// Steps, or operations if steps are unknown.
    units: usize,
    pub(super) ranks: Chance,
    pub(super) hosts: Chance,
}

impl<'a> Tests<'a> {
    pub(super) fn new(ranks: &'a Ranks, held: &[Held]) -> Self {
        let mut sizes: BTreeMap<&String, Vec<usize>> = BTreeMap::new();
        ranks.hosts.iter().enumerate().for_each(|(rank, host)| sizes.entry(host).or_default().push(rank));
        sizes.retain(|_, own| own.len() > 1);
        let late_by = lateness(held, ranks.numbers.len());
        let of_host = |own: &Vec<usize>| -> Vec<f64> {
            let mut all: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
            own.iter()
                .flat_map(|rank| &late_by[*rank])
                .for_each(|(unit, late)| all.entry(*unit).or_default().push(*late));
            all.into_values().map(|late| late.iter().sum::<f64>() / late.len() as f64).collect()
        };
        let of_hosts: Vec<Vec<f64>> = sizes.values().map(of_host).collect();
        let of_ranks = late_by.iter().map(|late| late.values().copied().collect::<Vec<f64>>());
        let of_ranks: Vec<Vec<f64>> = of_ranks.filter(|late| !late.is_empty()).collect();
        // Of one host alone nothing can be said.
        let tests = 1 + usize::from(sizes.len() > 1);
        Self {
            units: late_by.iter().filter_map(|late| late.keys().last()).max().map_or(0, |last| last + 1),
            ranks: Chance { members: ranks.numbers.len(), tests, dependence: dependence(&of_ranks, 1.0) },
            hosts: Chance { members: sizes.len(), tests, dependence: dependence(&of_hosts, 1.0) },
            names: sizes.into_keys().collect(),
        }
    }
}

/// Ranks and whole hosts that recur and cost.
fn stragglers(
    ranks: &Ranks,
    [of_ranks, of_hosts]: [&[Unit]; 2],
    tests: &Tests<'_>,
    savings: &mut Savings<'_>,
    share: &impl Fn(i64) -> f64,
) -> Vec<Straggler> {
    let of = tests.units;
    let mut found = Vec::new();
    let mut name = |units: &[Unit], recurrent: Recurrent, rank: Option<u32>, host: &str, saving: &Saving| {
        let saved_ns = saved_in_the_rest(units, recurrent.member, saving);
        let of_it = || recurrent.units.iter().map(|place| units[*place]);
        let saved_by_step_ns = of_it().filter_map(|unit| Some(saving.by_step.get(&unit.step?).copied().unwrap_or(0)));
        found.push(Straggler {
            rank,
            host: host.to_owned(),
            steps: of_it().filter_map(|unit| unit.step).collect(),
            times: recurrent.units.len(),
            of,
            chance: recurrent.chance,
            lost_ns: of_it().map(|unit| unit.lost_ns).sum(),
            saved_ns,
            saved_share: share(saved_ns),
            saved_by_step_ns: saved_by_step_ns.collect(),
        });
    };
    for recurrent in recurrent(of_ranks, tests.ranks) {
        let (number, host) = (ranks.numbers[recurrent.member], &ranks.hosts[recurrent.member]);
        let saving = savings.of_rank(ranks, recurrent.member);
        name(of_ranks, recurrent, Some(number), host, saving);
    }
    for recurrent in recurrent(of_hosts, tests.hosts) {
        let host = tests.names[recurrent.member];
        let saving = savings.of_host(ranks, host);
        name(of_hosts, recurrent, None, host, saving);
    }
    found.retain(|straggler| straggler.saved_share >= SAVED_SHARE_MIN);
    found.sort_by_key(|straggler| std::cmp::Reverse(straggler.saved_ns));
    found
}

/// What a member's speed would have saved, without what is set aside. For operations without steps
/// the individual savings are unknown: then its loss in the rest is the limit.
fn saved_in_the_rest(units: &[Unit], member: usize, saving: &Saving) -> i64 {
    let (order, aside) = by_loss(units);
    let (aside, rest) = order.split_at(aside);
    let steps = aside.iter().filter_map(|place| saving.by_step.get(&units[*place].step?));
    let saved_ns = saving.total_ns - steps.sum::<i64>();
    if !aside.iter().any(|place| units[*place].step.is_none() && units[*place].member == Some(member)) {
        return saved_ns;
    }
    let own = rest.iter().filter(|place| units[**place].member == Some(member));
    saved_ns.min(own.map(|place| units[*place].lost_ns).sum())
}

/// Each step with the rank that lost most of it.
pub(super) fn rank_units(held: &[Held]) -> Vec<Unit> {
    units(held.iter().map(|held| {
        let judged = &held.judged;
        let member = judged.named().map(|place| held.arrivals[place].rank);
        (held.step, member, Loss::new(judged.lead_ns, judged.lead_sigma_ns))
    }))
}

/// Each step with the host that, as a whole, lost most of it.
pub(super) fn host_units(ranks: &Ranks, tests: &Tests<'_>, held: &[Held]) -> Vec<Unit> {
    units(held.iter().filter_map(|held| {
        let late = ranks.late_host(held)?;
        let host = tests.names.binary_search(&late.host).ok()?;
        Some((held.step, late.is_certain.then_some(host), Loss::new(late.lead_ns, late.lead_sigma_ns)))
    }))
}

/// Total leads, and what clocks may have added to them or taken from them, ns.
#[derive(Copy, Clone, Default)]
struct Loss {
    lost_ns: i64,
    room_ns: i64,
}

impl Loss {
    fn new(lead_ns: i64, sigma_ns: f64) -> Self {
        // Clocks of which nothing is known have all the room that there is.
        Self { lost_ns: lead_ns, room_ns: (DEVIATIONS * sigma_ns) as i64 }
    }

    fn add(&mut self, other: Self) {
        self.lost_ns = self.lost_ns.saturating_add(other.lost_ns);
        self.room_ns = self.room_ns.saturating_add(other.room_ns);
    }

    fn most_ns(self) -> i64 {
        self.lost_ns.saturating_add(self.room_ns)
    }
}

/// Ranks without a judged operation, while others have some.
fn unseen(ranks: &Ranks, lines: &[RankLine]) -> Option<String> {
    let seen: BTreeSet<u32> = lines.iter().map(|line| line.rank).collect();
    let unseen: Vec<String> =
        ranks.numbers.iter().filter(|rank| !seen.contains(rank)).map(|rank| format!("rank {rank}")).collect();
    let count = unseen.len();
    (count > 0 && !seen.is_empty()).then(|| {
        let told = joined(unseen.into_iter().take(UNSEEN_TOLD), count);
        format!(
            "no operation of {told} can be analysed: any of these ranks may have been last instead of the named rank"
        )
    })
}

/// The ranks of the job, and of the groups that the traces list, without a trace. Empty if some
/// trace does not state its own rank.
fn missing_ranks(traces: &[&CalibratedTrace]) -> Vec<u32> {
    let own: Option<BTreeSet<u32>> = traces.iter().map(|of| of.trace.facts.identity.rank).collect();
    let Some(own) = own else { return Vec::new() };
    let facts = || traces.iter().map(|of| &of.trace.facts);
    let size = facts().filter_map(|facts| facts.identity.world_size).max().unwrap_or(0).min(RANKS_MAX);
    let listed = facts().flat_map(|facts| &facts.groups).filter_map(|group| group.ranks.as_ref()).flatten();
    let all: BTreeSet<u32> = (0..size).chain(listed.copied()).collect();
    all.difference(&own).copied().collect()
}

/// Note about what lost more than all the rest, and so says nothing about recurrence.
fn set_aside(ranks: &Ranks, units: &[Unit]) -> Option<String> {
    let (order, aside) = by_loss(units);
    let told = order[..aside].iter().map(|place| {
        let Unit { step, member, lost_ns, .. } = units[*place];
        let of = step.map_or_else(|| "an operation".to_owned(), |step| format!("step {step}"));
        let who = member.map_or_else(|| "tied".to_owned(), |member| format!("rank {}", ranks.numbers[member]));
        format!("{of} ({who}: {})", short(lost_ns as f64))
    });
    let told = joined(told.take(ASIDE_TOLD), aside);
    (aside > 0).then(|| {
        format!("not counted as consistent lateness, because each lost more than all smaller losses together: {told}")
    })
}

/// Each step with the member that lost most of it, `None` counting as one of them; operations
/// without a step count separately.
fn units(losses: impl Iterator<Item = (Option<i64>, Option<usize>, Loss)>) -> Vec<Unit> {
    let mut by_step: BTreeMap<i64, BTreeMap<Option<usize>, Loss>> = BTreeMap::new();
    let mut units = Vec::new();
    for (step, member, loss) in losses.filter(|(.., loss)| loss.lost_ns > 0) {
        match step {
            Some(step) => by_step.entry(step).or_default().entry(member).or_default().add(loss),
            None => units.push(unit(step, &BTreeMap::from([(member, loss)]))),
        }
    }
    units.extend(by_step.iter().map(|(step, losses)| unit(Some(*step), losses)));
    units
}

/// A step by its losses; losses of unknown members may belong to any member.
fn unit(step: Option<i64>, losses: &BTreeMap<Option<usize>, Loss>) -> Unit {
    let most = losses.iter().max_by_key(|(member, loss)| (loss.lost_ns, std::cmp::Reverse(**member)));
    let (member, loss) = most.map_or((None, Loss::default()), |(member, loss)| (*member, *loss));
    let known = losses.iter().filter(|(member, _)| member.is_some()).map(|(_, loss)| loss.most_ns()).max();
    let open = losses.get(&None).map_or(0, |loss| loss.most_ns());
    let most_ns = known.unwrap_or(0).saturating_add(open);
    Unit { step, member, lost_ns: loss.lost_ns, bounds_ns: [loss.lost_ns.saturating_sub(loss.room_ns), most_ns] }
}

/// No job has more ranks: larger numbers in a trace are ignored.
const RANKS_MAX: u32 = 1 << 20;
/// Most ranks reported as not seen.
const UNSEEN_TOLD: usize = 8;
/// Most steps reported as set aside.
const ASIDE_TOLD: usize = 4;
/// Ranks, and hosts, for which the job is run again without their delays.
const REPLAYS_MAX: usize = 8;
/// A straggler costs at least this share of all steps.
const SAVED_SHARE_MIN: f64 = 0.01;
