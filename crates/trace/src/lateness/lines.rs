//! What is told of each rank, host, operation and step.
//!
//! Place in the flow: under `summary`. What it does not do: say what the job would have saved, or who recurs.

use std::collections::BTreeMap;

use super::context::StepSpans;
use super::history::Held;
use super::operation::{Class, LateIn, median};
use super::ranks::Ranks;
use super::report::{AsRecorded, HostLine, LateInstance, OperationLine, RankLine, StepLine};

/// Of every rank that took part, without what needs the whole job.
pub(super) fn rank_lines(ranks: &Ranks, held: &[Held]) -> Vec<RankLine> {
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

/// Of every host.
pub(super) fn host_lines(ranks: &Ranks, instances: &[LateInstance]) -> Vec<HostLine> {
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

/// By name.
pub(super) fn operation_lines(instances: &[LateInstance]) -> Vec<OperationLine> {
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

/// In order of time.
pub(super) fn step_lines(instances: &[LateInstance], spans: &StepSpans) -> Vec<StepLine> {
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

/// What the traces' own times would have said.
pub(super) fn as_recorded(instances: &[LateInstance]) -> AsRecorded {
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

/// Operations of a trend at least.
const TREND_POINTS_MIN: usize = 8;
