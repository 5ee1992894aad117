//! The reported results of each rank, host, operation and step.

use std::collections::BTreeMap;

use probe_sync_lateness::operation::{Class, DEVIATIONS, LateIn, median};

use super::context::StepSpans;
use super::dependence::{dependence, middle, places};
use super::history::Held;
use super::ranks::Ranks;
use super::report::{AsRecorded, HostLine, LateInstance, OperationLine, RankLine, StepLine};

/// Returns a line for every rank that took part, without the fields that need the whole job.
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
            line.times_tied += usize::from(judged.named().is_none() && judged.may_be_last(place));
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

/// Returns the growth of lateness, ns/s: the median slope from each point of the first half of
/// (time, lateness), ns, to the corresponding point of the second half (Theil's incomplete method).
/// A few outliers, as when ranks begin to record one after the other, change it little, whereas
/// they dominate a least-squares line. A third of the wider side of its 99.7 % interval serves as
/// the standard deviation. That interval lies between two of the slopes, whatever the distribution
/// of errors (sign test); as many slopes count as one as the dependence of the points requires.
/// `None` for few points, and if a single shift of the level explains them as well.
fn trend(points: &[(i64, i64)]) -> Option<(f64, f64)> {
    let (first, second) = (&points[..points.len() / 2], &points[points.len().div_ceil(2)..]);
    let slope = |((at, late), (then, later)): (&(i64, i64), &(i64, i64))| {
        (then > at).then(|| later.saturating_sub(*late) as f64 / (then.saturating_sub(*at) as f64 / 1e9))
    };
    let mut slopes: Vec<f64> = first.iter().zip(second).filter_map(slope).collect();
    slopes.sort_by(f64::total_cmp);
    let count = slopes.len();
    if count == 0 {
        return None;
    }
    let middle = f64::midpoint(slopes[(count - 1) / 2], slopes[count / 2]);
    let beside = |(at, late): &(i64, i64)| *late as f64 - middle * (at.saturating_sub(points[0].0) as f64 / 1e9);
    let dependence = dependence(&[points.iter().map(beside).collect()], 2.0);
    // So many slopes are below the interval: three standard deviations, √count / 2 each, from the
    // middle one.
    let below = ((count as f64 - 3.0 * (count as f64 * dependence).sqrt()) / 2.0).floor();
    if below < 1.0 {
        return None;
    }
    let (low, high) = (slopes[below as usize - 1], slopes[count - below as usize]);
    let sigma = (high - middle).max(middle - low) / 3.0;
    (middle.abs() <= DEVIATIONS * sigma || is_line(points, dependence)).then_some((middle, sigma))
}

/// Returns true if a line explains the points clearly better than a single shift of their level.
/// Both are fitted to the statistical ranks of the values, so that outliers do not dominate. The
/// best shift may be anywhere, and explains three quarters of the sum of squares of a line.
fn is_line(points: &[(i64, i64)], dependence: f64) -> bool {
    let late: Vec<f64> = points.iter().map(|(_, late)| *late as f64).collect();
    let places = places(&late);
    let count = places.len() as f64;
    let times = (0..places.len()).map(|k| k as f64 - (count - 1.0) / 2.0);
    let along: f64 = times.clone().zip(&places).map(|(time, place)| time * place).sum();
    let all: f64 = places.iter().map(|place| place * place).sum();
    let by_line = along * along / times.map(|time| time * time).sum::<f64>();
    let mut sum = 0.0;
    let after = |(k, place): (usize, &f64)| {
        sum += place;
        let before = (k + 1) as f64;
        sum * sum * (1.0 / before + 1.0 / (count - before))
    };
    let by_shift = places[..places.len() - 1].iter().enumerate().map(after).fold(0.0, f64::max);
    let variance = (all - by_line) / (count - 2.0);
    by_line - by_shift > CLEARLY * dependence * variance
}

/// A line explains more than a shift if it removes this many residual variances more of the sum of
/// squares.
const CLEARLY: f64 = 4.0;

/// Returns a line for every host.
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

/// Returns the lines by operation name.
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

/// Returns the most frequent number (the smallest if several) and its frequency.
fn most(numbers: impl Iterator<Item = u32>) -> Option<(u32, usize)> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    numbers.for_each(|number| *counts.entry(number).or_default() += 1);
    counts.into_iter().max_by_key(|(number, count)| (*count, std::cmp::Reverse(*number)))
}

/// Returns the time lost in some operations: the sum of leads in the operations of one rank, for
/// the rank with the largest sum, since groups without common members lose time in parallel.
pub fn lost_ns(instances: &[&LateInstance]) -> i64 {
    let mut seen: BTreeMap<u32, i64> = BTreeMap::new();
    for instance in instances.iter().filter(|instance| instance.last_rank.is_some()) {
        instance.arrivals.iter().for_each(|part| *seen.entry(part.rank).or_default() += instance.lead_ns);
    }
    seen.into_values().max().unwrap_or(0)
}

/// Returns a line for every step, in order of time.
pub(super) fn step_lines(instances: &[LateInstance], spans: &StepSpans) -> Vec<StepLine> {
    let mut of_step: BTreeMap<i64, Vec<&LateInstance>> = BTreeMap::new();
    for instance in instances {
        if let Some(step) = instance.step {
            of_step.entry(step).or_default().push(instance);
        }
    }
    let line = |(step, of): (i64, Vec<&LateInstance>)| {
        let mut losses: BTreeMap<u32, i64> = BTreeMap::new();
        for (last, lead_ns) in of.iter().filter_map(|instance| Some((instance.last_rank?, instance.lead_ns))) {
            *losses.entry(last).or_default() += lead_ns;
        }
        let (start_ns, end_ns) = spans.get(&step).copied().unwrap_or_default();
        let (instances, lost_ns) = (of.len(), lost_ns(&of));
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

/// Returns the verdict that uncorrected times would have given.
pub(super) fn as_recorded(instances: &[LateInstance]) -> AsRecorded {
    let all = || instances.iter().filter(|instance| instance.waits == "all" && instance.missing == 0);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Lateness every 10 ms, ns: `of` the point's number, plus reproducible normal noise with σ = 1
    /// µs.
    fn points(count: i64, seed: u64, of: impl Fn(i64) -> i64) -> Vec<(i64, i64)> {
        let mut state = seed;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        };
        let mut normal = || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
        (0..count).map(|k| (10_000_000 * k, of(k) + (1_000.0 * normal()) as i64)).collect()
    }

    fn seen(points: &[(i64, i64)]) -> (f64, bool) {
        let (slope, sigma) = trend(points).expect("enough points");
        (slope, slope.abs() > 3.0 * sigma)
    }

    fn is_seen(points: &[(i64, i64)]) -> bool {
        trend(points).is_some_and(|(slope, sigma)| slope.abs() > 3.0 * sigma)
    }

    /// Like `points`, with noise that keeps a share of the previous point's.
    fn lasting(count: i64, seed: u64, kept: f64, of: impl Fn(i64) -> i64) -> Vec<(i64, i64)> {
        let mut last = 0.0;
        let noise = points(count + 50, seed, |_| 0).into_iter().map(|(_, noise)| {
            last = kept * last + (1.0 - kept * kept).sqrt() * noise as f64;
            last as i64
        });
        noise.skip(50).zip(0..).map(|(noise, k)| (10_000_000 * k, of(k) + noise)).collect()
    }

    #[test]
    fn a_trend_is_what_most_points_do() {
        // 20 µs later each second.
        let (slope, clear) = seen(&points(90, 1, |k| 200 * k));
        assert!((slope - 20_000.0).abs() < 2_000.0 && clear, "{slope}");
        // Two ranks begin to record 400 ms before the others: a line of least squares would fall by
        // 440 ms each second.
        let (slope, clear) = seen(&points(90, 2, |k| if k == 0 { -400_000_000 } else { 0 }));
        assert!(slope.abs() < 2_000.0 && !clear, "{slope}");
        assert_eq!(trend(&points(25, 3, |_| 0)), None);
        // Of 26 that do not look as if they depended on each other.
        assert!((0..10).any(|seed| trend(&points(26, seed, |_| 0)).is_some()));
        assert_eq!(trend(&[(5, 1); 60]), None, "no time passes");
        assert!(
            trend(&[(i64::MIN, i64::MAX), (i64::MAX, i64::MIN)].repeat(30)).is_none_or(|(slope, _)| slope.is_finite())
        );
    }

    /// Number of false trends in 1000 jobs in which nothing changes.
    fn false_trends(count: i64, kept: f64) -> usize {
        (0..1000).filter(|seed| is_seen(&lasting(count, *seed, kept, |_| 0))).count()
    }

    #[test]
    fn noise_is_no_trend_and_neither_is_noise_that_lasts() {
        for kept in [0.0, 0.5, 0.7, 0.9] {
            for count in [26, 90] {
                let wrong = false_trends(count, kept);
                assert!(wrong <= 5, "{wrong} of 1000 with {count} points, {kept} kept");
            }
        }
        // A slope of ten of its standard deviations is seen.
        let found = (0..200).filter(|seed| is_seen(&points(90, *seed, |k| 60 * k))).count();
        assert!(found > 190, "{found} of 200");
    }

    #[test]
    fn a_shift_of_level_is_no_trend() {
        for kept in [0.0, 0.5] {
            for height in [500, 1_000, 2_000, 5_000, 50_000] {
                let shifted = |seed: u64| {
                    let at = 40 + (seed % 320) as i64;
                    is_seen(&lasting(400, seed, kept, |k| if k < at { 0 } else { height }))
                };
                let wrong = (0..400).filter(|seed| shifted(*seed)).count();
                assert!(wrong <= 2, "{wrong} of 400 shifts by {height} ns, {kept} kept");
            }
        }
    }
}
