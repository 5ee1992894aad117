//! From all judged operations to what is told of ranks, hosts, operations and steps.
//!
//! Place in the flow: after `gather`; asks `history` and `verdict`. What it does not do: print.

use std::collections::{BTreeMap, BTreeSet};

use super::SCHEMA;
use super::gather::StepSpans;
use super::history::{Held, History, Saving};
use super::operation::{Arrival, Class, DEVIATIONS, LateIn, median};
use super::report::{
    ArrivalLine, AsRecorded, HostLine, LateInstance, Lateness, OperationLine, RankLine, StepLine, Straggler, Unpaired,
};
use super::verdict::{Recurrent, Unit, recurrent};
use crate::calibrate::{Calibrated, CalibratedTrace};
use crate::collectives::Matching;

/// Sums up; `traces` are the ranks, in the order of their numbers in the operations, which are in order of time.
pub(super) fn summarize(
    calibrated: &Calibrated,
    traces: &[&CalibratedTrace],
    held: &[Held],
    spans: &StepSpans,
    matching: Matching,
) -> Lateness {
    let ranks = Ranks::of(calibrated, traces);
    let history = History::new(held);
    let instances: Vec<LateInstance> = held.iter().map(|held| ranks.instance(held)).collect();
    let first = instances.iter().map(|instance| instance.first_arrival_ns).min().unwrap_or(0);
    let last = held.iter().flat_map(|held| &held.arrivals).map(|arrival| arrival.end_ns).max().unwrap_or(0);
    let stepped: i64 = spans.values().map(|(start, end)| end - start).sum();
    let total_ns = if spans.is_empty() { last - first } else { stepped };
    let share = |ns: i64| if total_ns > 0 { ns as f64 / total_ns as f64 } else { 0.0 };
    let mut rank_lines = rank_lines(&ranks, held);
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
    let stragglers = stragglers(&ranks, held, &instances, &mut savings, &share);
    rank_lines.sort_by_key(|line| (std::cmp::Reverse((line.lost_ns, line.times_last)), line.rank));
    host_lines.sort_by_key(|line| (std::cmp::Reverse((line.lost_ns, line.times_last)), line.host.clone()));
    let mut sigmas: Vec<f64> = instances.iter().map(|instance| instance.lead_sigma_ns).collect();
    sigmas.sort_by(f64::total_cmp);
    Lateness {
        schema: SCHEMA,
        clocks: calibrated.method.to_owned(),
        timeline: calibrated.timeline.clone(),
        span_ns: last - first,
        stepped_ns: total_ns,
        lead_sigma_median_ns: sigmas.get(sigmas.len() / 2).copied(),
        stragglers,
        ranks: rank_lines,
        hosts: host_lines,
        operations: operation_lines(&instances),
        steps: step_lines(&instances, spans),
        critical_path: history.critical_path(|rank| ranks.numbers[rank]),
        as_recorded: as_recorded(&instances),
        unpaired: unpaired(calibrated, &matching),
        notes: notes(calibrated, &instances, spans),
        instances,
    }
}

/// Numbers and hosts of the ranks.
struct Ranks {
    numbers: Vec<u32>,
    hosts: Vec<String>,
}

impl Ranks {
    fn of(calibrated: &Calibrated, traces: &[&CalibratedTrace]) -> Self {
        let host = |of: &&CalibratedTrace| {
            let stated = of.trace.facts.identity.hostname.clone();
            let recorded = || calibrated.hosts.get(&of.trace.node).cloned();
            stated.or_else(recorded).unwrap_or_else(|| format!("node {}", of.trace.node))
        };
        Self { numbers: traces.iter().map(|of| of.trace.part).collect(), hosts: traces.iter().map(host).collect() }
    }

    fn of_host(&self, host: &str) -> BTreeSet<usize> {
        (0..self.hosts.len()).filter(|rank| self.hosts[*rank] == host).collect()
    }

    fn instance(&self, held: &Held) -> LateInstance {
        let Held { judged, arrivals, .. } = held;
        let number = |place: usize| self.numbers[arrivals[place].rank];
        let starts = || arrivals.iter().map(|arrival| arrival.start_ns);
        let (late_host, host_lead_ns) = self.late_host(held).unzip();
        let line = |(arrival, wait_ns): (&Arrival, &i64)| ArrivalLine {
            rank: self.numbers[arrival.rank],
            arrival_ns: arrival.start_ns,
            sigma_ns: arrival.error.sigma_ns,
            launch_ns: arrival.launch_ns,
            end_ns: arrival.end_ns,
            wait_ns: *wait_ns,
        };
        LateInstance {
            name: held.name.clone(),
            instance: held.instance.clone(),
            evidence: held.evidence,
            waits: if held.waits.is_all() { "all" } else { "some" },
            step: held.step,
            last_rank: judged.named().map(number),
            latest_rank: judged.latest.map(number),
            tied_ranks: judged.tied.iter().map(|place| number(*place)).collect(),
            late_host,
            host_lead_ns: host_lead_ns.unwrap_or(0),
            first_arrival_ns: starts().min().unwrap_or(0),
            last_arrival_ns: judged.latest.map(|place| arrivals[place].start_ns).or(starts().max()).unwrap_or(0),
            lead_ns: judged.lead_ns,
            lead_sigma_ns: judged.lead_sigma_ns,
            spread_ns: judged.spread_ns,
            spread_sigma_ns: judged.spread_sigma_ns,
            transfer_ns: judged.transfer_ns,
            class: judged.class,
            late_in: judged.late_in,
            recorded_last_rank: self.numbers[held.recorded.0],
            recorded_spread_ns: held.recorded.1,
            arrivals: arrivals.iter().zip(&judged.waits_ns).map(line).collect(),
        }
    }

    /// The host all of whose ranks, two or more, came after all others for certain, and by how much.
    fn late_host(&self, held: &Held) -> Option<(String, i64)> {
        let last = &held.arrivals[held.judged.latest.filter(|_| held.waits.is_all())?];
        let host = &self.hosts[last.rank];
        let (own, others): (Vec<&Arrival>, Vec<&Arrival>) =
            held.arrivals.iter().partition(|arrival| self.hosts[arrival.rank] == *host);
        let first = own.iter().min_by_key(|arrival| arrival.start_ns).filter(|_| own.len() > 1)?;
        let before = others.iter().max_by_key(|arrival| arrival.start_ns)?;
        let certain = own.iter().all(|own| {
            others.iter().all(|other| (own.start_ns - other.start_ns) as f64 > DEVIATIONS * own.error.with(other.error))
        });
        certain.then(|| (host.clone(), first.start_ns - before.start_ns))
    }
}

fn rank_lines(ranks: &Ranks, held: &[Held]) -> Vec<RankLine> {
    let line = |(rank, host): (&u32, &String)| RankLine {
        rank: *rank,
        host: host.clone(),
        instances: 0,
        times_last: 0,
        times_tied: 0,
        times_cpu: 0,
        times_gpu: 0,
        lost_ns: 0,
        lost_share: 0.0,
        waited_ns: 0,
        late_by_median_ns: 0,
        trend_ns_per_s: None,
        trend_sigma_ns_per_s: None,
        saved_ns: None,
    };
    let mut lines: Vec<RankLine> = ranks.numbers.iter().zip(&ranks.hosts).map(line).collect();
    let mut late_by: Vec<Vec<(i64, i64)>> = vec![Vec::new(); lines.len()];
    for Held { judged, arrivals, waits, .. } in held {
        let middle = middle(arrivals.iter().map(|arrival| arrival.start_ns).collect());
        for (place, arrival) in arrivals.iter().enumerate() {
            let line = &mut lines[arrival.rank];
            line.instances += 1;
            line.waited_ns += judged.waits_ns[place];
            let may_be_last = judged.latest == Some(place) || judged.tied.contains(&place);
            line.times_tied += usize::from(may_be_last && !judged.tied.is_empty());
            if waits.is_all() {
                late_by[arrival.rank].push((arrival.start_ns, arrival.start_ns - middle));
            }
        }
        if let Some(last) = judged.named() {
            let line = &mut lines[arrivals[last].rank];
            line.times_last += 1;
            line.lost_ns += judged.lead_ns;
            line.times_cpu += usize::from(matches!(judged.late_in, Some(LateIn::Cpu | LateIn::Both)));
            line.times_gpu += usize::from(matches!(judged.late_in, Some(LateIn::Gpu | LateIn::Both)));
        }
    }
    for (line, late_by) in lines.iter_mut().zip(late_by) {
        (line.trend_ns_per_s, line.trend_sigma_ns_per_s) = trend(&late_by).unzip();
        line.late_by_median_ns = median(late_by.into_iter().map(|(_, late)| late).collect()).unwrap_or(0);
    }
    lines.retain(|line| line.instances > 0);
    lines
}

/// The median, of an even number of times the mean of the two in the middle.
fn middle(mut times: Vec<i64>) -> i64 {
    times.sort_unstable();
    let upper = times.len() / 2;
    let (Some(high), Some(low)) = (times.get(upper), times.get(times.len().saturating_sub(1) / 2)) else { return 0 };
    low + (high - low) / 2
}

/// Slope of a line through (time, lateness), ns, and its standard deviation, both in ns/s; None of few points.
fn trend(points: &[(i64, i64)]) -> Option<(f64, f64)> {
    let count = points.len();
    let first = points.first().filter(|_| count >= TREND_POINTS_MIN)?.0;
    let points: Vec<(f64, f64)> = points.iter().map(|(at, late)| ((at - first) as f64 / 1e9, *late as f64)).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count as f64;
    let (time, late) = (mean(|point| point.0), mean(|point| point.1));
    let squares: f64 = points.iter().map(|point| (point.0 - time).powi(2)).sum();
    let slope = points.iter().map(|point| (point.0 - time) * (point.1 - late)).sum::<f64>() / squares;
    let left: f64 = points.iter().map(|point| (point.1 - late - slope * (point.0 - time)).powi(2)).sum();
    Some((slope, (left / (count - 2) as f64 / squares).sqrt())).filter(|_| squares > 0.0)
}

fn host_lines(ranks: &Ranks, instances: &[LateInstance]) -> Vec<HostLine> {
    let mut lines: BTreeMap<&str, HostLine> = BTreeMap::new();
    for (rank, host) in ranks.numbers.iter().zip(&ranks.hosts) {
        let new = || HostLine {
            host: host.clone(),
            ranks: Vec::new(),
            times_last: 0,
            lost_ns: 0,
            lost_share: 0.0,
            saved_ns: None,
        };
        lines.entry(host).or_insert_with(new).ranks.push(*rank);
    }
    for instance in instances {
        let Some(line) = instance.late_host.as_deref().and_then(|host| lines.get_mut(host)) else { continue };
        line.times_last += 1;
        line.lost_ns += instance.host_lead_ns;
    }
    lines.into_values().collect()
}

/// What the job would have saved, for whoever lost most.
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

/// Ranks and whole hosts that recur and cost.
fn stragglers(
    ranks: &Ranks,
    held: &[Held],
    instances: &[LateInstance],
    savings: &mut Savings<'_>,
    share: &impl Fn(i64) -> f64,
) -> Vec<Straggler> {
    let by_rank =
        held.iter().filter_map(|held| Some((held.step, held.arrivals[held.judged.named()?].rank, held.judged.lead_ns)));
    let names: Vec<&String> = ranks.hosts.iter().collect::<BTreeSet<_>>().into_iter().collect();
    let by_host = instances.iter().filter_map(|instance| {
        let host = names.binary_search(&instance.late_host.as_ref()?).ok()?;
        Some((instance.step, host, instance.host_lead_ns))
    });
    let (of_ranks, of_hosts) = (units(by_rank), units(by_host));
    let stepped = instances.iter().any(|instance| instance.step.is_some());
    let of = if stepped {
        instances.iter().map(|instance| instance.step).collect::<BTreeSet<_>>().len()
    } else {
        instances.len()
    };
    let mut found = Vec::new();
    let mut name = |units: &[Unit], recurrent: Recurrent, rank: Option<u32>, host: &str, saving: &Saving| {
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
            saved_ns: saving.total_ns,
            saved_share: share(saving.total_ns),
            saved_by_step_ns: saved_by_step_ns.collect(),
        });
    };
    for recurrent in recurrent(&of_ranks, ranks.numbers.len()) {
        let (number, host) = (ranks.numbers[recurrent.member], &ranks.hosts[recurrent.member]);
        let saving = savings.of_rank(ranks, recurrent.member);
        name(&of_ranks, recurrent, Some(number), host, saving);
    }
    for recurrent in recurrent(&of_hosts, names.len()) {
        let host = names[recurrent.member];
        let saving = savings.of_host(ranks, host);
        name(&of_hosts, recurrent, None, host, saving);
    }
    found.retain(|straggler| straggler.saved_share >= SAVED_SHARE_MIN);
    found.sort_by_key(|straggler| std::cmp::Reverse(straggler.saved_ns));
    found
}

/// Each step with the member that lost most of it; operations without a step stand for themselves.
fn units(losses: impl Iterator<Item = (Option<i64>, usize, i64)>) -> Vec<Unit> {
    let mut by_step: BTreeMap<i64, BTreeMap<usize, i64>> = BTreeMap::new();
    let mut units = Vec::new();
    for (step, member, lost_ns) in losses.filter(|(.., lost_ns)| *lost_ns > 0) {
        match step {
            Some(step) => *by_step.entry(step).or_default().entry(member).or_default() += lost_ns,
            None => units.push(Unit { step, member, lost_ns }),
        }
    }
    for (step, members) in by_step {
        let most = members.into_iter().max_by_key(|(member, lost_ns)| (*lost_ns, std::cmp::Reverse(*member)));
        units.extend(most.map(|(member, lost_ns)| Unit { step: Some(step), member, lost_ns }));
    }
    units
}

fn operation_lines(instances: &[LateInstance]) -> Vec<OperationLine> {
    let mut by_name: BTreeMap<&str, Vec<&LateInstance>> = BTreeMap::new();
    instances.iter().for_each(|instance| by_name.entry(&instance.name).or_default().push(instance));
    let line = |(name, of): (&str, Vec<&LateInstance>)| {
        let (most_often_last, times) = most(of.iter().filter_map(|instance| instance.last_rank)).unzip();
        let classes = [Class::Transfer, Class::Skew, Class::Mixed, Class::Undecided];
        OperationLine {
            name: name.to_owned(),
            instances: of.len(),
            named: of.iter().filter(|instance| instance.last_rank.is_some()).count(),
            most_often_last,
            times: times.unwrap_or(0),
            spread_median_ns: median(of.iter().map(|instance| instance.spread_ns).collect()).unwrap_or(0),
            transfer_median_ns: median(of.iter().map(|instance| instance.transfer_ns).collect()).unwrap_or(0),
            classes: classes.map(|class| of.iter().filter(|instance| instance.class == Some(class)).count()),
        }
    };
    by_name.into_iter().map(line).collect()
}

/// The most frequent number, the smallest of several, and how often it is there.
fn most(numbers: impl Iterator<Item = u32>) -> Option<(u32, usize)> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    numbers.for_each(|number| *counts.entry(number).or_default() += 1);
    counts.into_iter().max_by_key(|(number, count)| (*count, std::cmp::Reverse(*number)))
}

fn step_lines(instances: &[LateInstance], spans: &StepSpans) -> Vec<StepLine> {
    let mut of_step: BTreeMap<i64, (usize, BTreeMap<u32, i64>)> = BTreeMap::new();
    for instance in instances {
        let Some(step) = instance.step else { continue };
        let (count, losses) = of_step.entry(step).or_default();
        *count += 1;
        if let Some(last) = instance.last_rank {
            *losses.entry(last).or_default() += instance.lead_ns;
        }
    }
    let line = |(step, (instances, losses)): (i64, (usize, BTreeMap<u32, i64>))| {
        let (start_ns, end_ns) = spans.get(&step).copied().unwrap_or_default();
        let lost_ns = losses.values().sum();
        let most = losses.into_iter().max_by_key(|(rank, lost)| (*lost, std::cmp::Reverse(*rank)));
        let length_ns = end_ns - start_ns;
        let lost_share = if length_ns > 0 { lost_ns as f64 / length_ns as f64 } else { 0.0 };
        let (last_rank, last_rank_lost_ns) = most.unzip();
        let last_rank_lost_ns = last_rank_lost_ns.unwrap_or(0);
        StepLine { step, start_ns, length_ns, instances, last_rank, last_rank_lost_ns, lost_ns, lost_share }
    };
    let mut lines: Vec<StepLine> = of_step.into_iter().map(line).collect();
    // Runs of compiled programs bear numbers in no order.
    lines.sort_by_key(|line| (line.start_ns, line.step));
    lines
}

fn as_recorded(instances: &[LateInstance]) -> AsRecorded {
    let all = || instances.iter().filter(|instance| instance.waits == "all");
    let (rank, times) = most(all().map(|instance| instance.recorded_last_rank)).unzip();
    let named = || all().filter_map(|instance| Some((instance.last_rank?, instance.recorded_last_rank)));
    AsRecorded {
        rank,
        times: times.unwrap_or(0),
        wrong: named().filter(|(last, recorded)| last != recorded).count(),
        of: named().count(),
        spread_median_ns: median(all().map(|instance| instance.recorded_spread_ns).collect()).unwrap_or(0),
        aligned_spread_median_ns: median(all().map(|instance| instance.spread_ns).collect()).unwrap_or(0),
    }
}

fn unpaired(calibrated: &Calibrated, matching: &Matching) -> Unpaired {
    let merged = calibrated.traces.iter().filter(|of| of.trace.facts.merged);
    let merged: u64 = merged.map(|of| of.trace.facts.collectives.len()).sum();
    let ambiguous = matching.ambiguous.iter().map(|line| line.instances).sum();
    let mut by_reason: BTreeMap<&str, (usize, Vec<&str>)> = BTreeMap::new();
    for line in &matching.ambiguous {
        let (count, operations) = by_reason.entry(&line.reason).or_default();
        *count += line.instances;
        operations.push(&line.operation);
    }
    let told = |(reason, (count, operations)): (&str, (usize, Vec<&str>))| {
        let more =
            if operations.len() > 1 { format!(" and {} other kinds", operations.len() - 1) } else { String::new() };
        format!("{count} × {}{more}: {reason}", operations[0])
    };
    let mut remedies: Vec<String> = by_reason.into_iter().map(told).collect();
    if ambiguous > 0 {
        remedies.push(REMEDY_AMBIGUOUS.to_owned());
    }
    let counts = [
        (matching.unpaired as u64, "parts that no other trace shows", REMEDY_ALONE),
        (matching.unordered as u64, "parts without a known root or peer", REMEDY_UNORDERED),
        (matching.lost, "parts that could not be kept or read back", REMEDY_LOST),
        (merged, "parts in files into which several traces were merged", REMEDY_MERGED),
    ];
    let told = counts.iter().filter(|(count, ..)| *count > 0);
    remedies.extend(told.map(|(count, what, remedy)| format!("{count} {what}: {remedy}")));
    Unpaired {
        ambiguous_instances: ambiguous,
        alone_parts: matching.unpaired,
        unordered_parts: matching.unordered,
        lost_parts: matching.lost + merged,
        remedies,
    }
}

fn notes(calibrated: &Calibrated, instances: &[LateInstance], spans: &StepSpans) -> Vec<String> {
    let mut notes = Vec::new();
    if calibrated.traces.iter().any(|of| of.map.is_none() && of.trace.facts.aligned_to.is_some()) {
        notes.push("the traces were aligned before, and do not say how well: leads count as exact; give the original traces and --run-dir for uncertainties".to_owned());
    }
    if spans.is_empty() && !instances.is_empty() {
        notes.push(
            "no steps were found: each operation stands for itself; --step-name names the events that are steps"
                .to_owned(),
        );
    }
    let overtaken =
        instances.iter().filter(|instance| (instance.transfer_ns as f64) < -DEVIATIONS * instance.lead_sigma_ns);
    let overtaken = overtaken.count();
    if overtaken > 0 {
        notes.push(format!(
            "{overtaken} operations ended before their last arrival beyond what uncertainty explains: a clock is wrong; see probe_sync check"
        ));
    }
    notes
}

/// Operations of a trend at least.
const TREND_POINTS_MIN: usize = 8;
/// Ranks, and hosts, for which the job is run again without their delays.
const REPLAYS_MAX: usize = 8;
/// A straggler costs at least this share of all steps.
const SAVED_SHARE_MIN: f64 = 0.01;
const REMEDY_AMBIGUOUS: &str = "what cannot be paired for certain is left out: let each operation name its process group (NCCL kernels of PyTorch 2.4 or later do), or use one group";
const REMEDY_ALONE: &str = "give the traces of all ranks, recorded over the same steps";
const REMEDY_UNORDERED: &str = "who waits for whom is not in the trace; newer profilers state it";
const REMEDY_LOST: &str = "memory or the disk for temporary files (TMPDIR) was full; give traces of fewer steps";
const REMEDY_MERGED: &str = "they do not say whose each part is; give the traces that went into them";
