//! The baseline methods, each of which fits a line to the same packets of one edge in one window.
//!
//! The first group follows the published descriptions:
//! - **mean** averages the offsets of all exchanges, as rocmProfileData's "ChronoSync" does. One
//!   exchange says (u₁ + u₂ + l₁ + l₂)/4; a regression line carries the average to the window's
//!   midpoint (a bare mean would be wrong by the rate difference times how far the exchanges' mean
//!   time lies off the midpoint).
//! - **svm** gives all packets to the linear soft-margin classifier, C = 1 in seconds and
//!   microseconds.
//! - **huygens** (Geng et al., NSDI 2018) first drops every coded pair whose gap changed by more
//!   than a fixed tolerance, both packets of a pair and each direction on its own.
//! - **ntp** keeps the exchange with the smallest round trip (RFC 5905, clock filter), and those of
//!   the window's halves for the slope.
//!
//! Each also runs with the choices that serve it best in the twelve cells. Nobody publishes them
//! so, but a comparison must not win by bad choices for others:
//! - **svm+** and **huygens+** have a free slope and the unit of length in which C = 1 makes the
//!   margin nearly hard. The line of largest vertical margin, to which that leads, is our own hull.
//! - **ntp+** draws the line between the neighbouring windows' samples, later ones included.
//!
//! They do not state an uncertainty.

use probe_sync_estimate::edge_fit::EdgeWindow;
use probe_sync_time::{Duration, Edge, Exchange, StampSource, System, Timestamp};

use super::joining::EdgeLine;
use super::svm::{self, Point, Units};

/// All packets, regression of the exchanges' offsets.
pub(super) fn mean(window: &EdgeWindow<'_>) -> Option<EdgeLine> {
    let base = base(window)?;
    let offset = |exchange: &Exchange| {
        let packets = exchange.forward().into_iter().chain(exchange.reverse());
        let (x, y) =
            packets.map(|packet| point(window, base, packet)).fold((0.0, 0.0), |sum, p| (sum.0 + p.0, sum.1 + p.1));
        (0.25 * x, 0.25 * y)
    };
    let line = svm::regression(window.exchanges.iter().map(offset))?;
    Some(edge_line(window, base, line))
}

/// Variants of a baseline.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// As described by its authors.
    Plain,
    /// With the most favourable parameters.
    Tuned,
}

/// All packets, soft-margin classifier.
pub(super) fn svm(window: &EdgeWindow<'_>, version: Version) -> Option<EdgeLine> {
    classified(window, units(window, version), |_| true)
}

/// Pairs that kept their gap, soft-margin classifier; `None` if fewer than [`PAIRS_MIN`] pairs of a
/// direction are left.
pub(super) fn huygens(window: &EdgeWindow<'_>, version: Version) -> Option<EdgeLine> {
    let tolerance_ns = match window.exchanges.first()?.stamp {
        StampSource::Hardware => TOLERANCE_HARDWARE_NS,
        StampSource::Kernel | StampSource::User => TOLERANCE_SOFTWARE_NS,
    };
    classified(window, units(window, version), |change| change.as_ns_f64().abs() <= tolerance_ns)
}

fn units(window: &EdgeWindow<'_>, version: Version) -> Units {
    if version == Version::Plain {
        return svm::units(1e9, 1e3);
    }
    let round_trips = window.exchanges.iter().map(|exchange| round_trip(exchange).0.as_ns_f64());
    let smallest_ns = round_trips.fold(f64::INFINITY, f64::min);
    svm::units(FREE_SLOPE_NS, (0.5 * SVM_UNIT * smallest_ns).clamp(UNIT_NS_MIN, UNIT_NS_MAX))
}

fn classified(window: &EdgeWindow<'_>, units: Units, keeps: impl Fn(Duration) -> bool) -> Option<EdgeLine> {
    let base = base(window)?;
    let kept = |change: fn(&Exchange) -> Duration, packets: fn(&Exchange) -> [Packet; 2]| -> Vec<Point> {
        let pairs = window.exchanges.iter().filter(|exchange| keeps(change(exchange)));
        pairs.flat_map(packets).map(|packet| point(window, base, packet)).collect()
    };
    let forward = kept(Exchange::forward_gap_change, Exchange::forward);
    let reverse = kept(Exchange::reverse_gap_change, Exchange::reverse);
    if forward.len().min(reverse.len()) < 2 * PAIRS_MIN {
        return None;
    }
    Some(edge_line(window, base, svm::line(&forward, &reverse, units)?))
}

/// The exchange with the smallest round trip in one window of one edge.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Fastest {
    /// Midway between its packets, ns on the source's clock.
    at_ns: i64,
    /// offset_dst − offset_src at that time, ns.
    theta_ns: f64,
}

/// Returns the exchange with the smallest round trip.
pub(super) fn fastest(window: &EdgeWindow<'_>) -> Option<Fastest> {
    window.exchanges.iter().map(round_trip).min_by_key(|(time, _)| *time).map(|(_, middle)| middle)
}

/// Returns the line of one window alone: through the smallest round trip, with the slope between
/// those of the two halves.
pub(super) fn ntp(window: &EdgeWindow<'_>) -> Option<EdgeLine> {
    let (early, late): (Vec<Exchange>, Vec<Exchange>) =
        window.exchanges.iter().partition(|exchange| round_trip(exchange).1.at_ns < window.midpoint.as_ns());
    let half = |exchanges| fastest(&EdgeWindow { exchanges, ..*window });
    let best = fastest(window)?;
    let alpha = match (half(&early[..]), half(&late[..])) {
        (Some(a), Some(b)) => (b.theta_ns - a.theta_ns) / (b.at_ns - a.at_ns) as f64,
        _ => return None,
    };
    let beta_ns = best.theta_ns + alpha * (window.midpoint.as_ns() - best.at_ns) as f64;
    (alpha.abs() <= svm::SLOPE_MAX).then_some(EdgeLine {
        edge: window.edge,
        midpoint_ns: window.midpoint.as_ns(),
        alpha,
        beta_ns,
    })
}

/// The round trip of an exchange consists of the faster packet of each direction.
fn round_trip(exchange: &Exchange) -> (Duration, Fastest) {
    let (forward, reverse) = (exchange.forward(), exchange.reverse());
    let up = if forward[1].1 < forward[0].1 { forward[1] } else { forward[0] };
    let down = if reverse[1].1 > reverse[0].1 { reverse[1] } else { reverse[0] };
    let at_ns = up.0.as_ns().midpoint(down.0.as_ns());
    let theta_ns = 0.5 * (up.1.as_ns() as f64 + down.1.as_ns() as f64);
    (up.1 - down.1, Fastest { at_ns, theta_ns })
}

/// Returns the line between the two samples of an edge nearest to `midpoint_ns`, one on each side
/// if possible; `None` with fewer than two samples in the whole run. `samples` are in order of
/// time.
pub(super) fn between(edge: Edge, midpoint_ns: i64, samples: &[Fastest]) -> Option<EdgeLine> {
    let after = samples.partition_point(|sample| sample.at_ns <= midpoint_ns);
    let second = after.clamp(1, samples.len().saturating_sub(1).max(1));
    let (a, b) = (samples.get(second - 1)?, samples.get(second)?);
    let apart = (b.at_ns - a.at_ns) as f64;
    let alpha = if apart > 0.0 { (b.theta_ns - a.theta_ns) / apart } else { 0.0 };
    let beta_ns = a.theta_ns + alpha * (midpoint_ns - a.at_ns) as f64;
    Some(EdgeLine { edge, midpoint_ns, alpha, beta_ns })
}

type Packet = (Timestamp<System>, Duration);

/// Subtracted from all differences to keep them small.
fn base(window: &EdgeWindow<'_>) -> Option<i64> {
    window.exchanges.first().map(|exchange| exchange.forward()[0].1.as_ns())
}

fn point(window: &EdgeWindow<'_>, base: i64, (at, difference): Packet) -> Point {
    ((at.as_ns() - window.midpoint.as_ns()) as f64, (difference.as_ns() - base) as f64)
}

fn edge_line(window: &EdgeWindow<'_>, base: i64, (intercept, slope): (f64, f64)) -> EdgeLine {
    EdgeLine { edge: window.edge, midpoint_ns: window.midpoint.as_ns(), alpha: slope, beta_ns: base as f64 + intercept }
}

/// A millisecond is small compared with any window.
const FREE_SLOPE_NS: f64 = 1e6;

/// Glitched stamps can result in a round trip of zero or less.
const UNIT_NS_MIN: f64 = 1.0;

/// Beyond a second the unit says nothing about a network.
const UNIT_NS_MAX: f64 = 1e9;

/// Largest change of a coded pair's gap that Huygens' filter accepts, ns. A pair's gap carries the
/// noise of four stamps, 16 ns or 1 µs, and the jitter of two packets. Geometric mean of huygens'
/// p99 over the hardware cells, two seeds: 183 ns at 200, 148 at 400, 143 at 800 ns (at 100 a loaded
/// cell has hardly an estimate left); over the software cells 433 at 1, 334 at 2.5, 326 at 4 µs.
const TOLERANCE_HARDWARE_NS: f64 = 800.0;
const TOLERANCE_SOFTWARE_NS: f64 = 5_000.0;

/// Unit of length in which svm+ and huygens+ have C = 1, in halves of the window's smallest round
/// trip. Units of 0.3 and below were equally good; at 1 the loaded cells were up to ten times worse.
const SVM_UNIT: f64 = 0.3;

/// Fewest pairs per direction for a line. Two would suffice, but a node is better off without such
/// an edge; eight left most nodes without any edge at load 0.8.
const PAIRS_MIN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets grow by 1 ppm from 1000 ns at 0; `waits` are the delays above 200 ns of the four
    /// packets.
    fn exchange(at: i64, waits: [i64; 4]) -> Exchange {
        let theta = |at: i64| 1_000 + at / 1_000_000;
        let mut t = [0; 8];
        for (packet, wait) in waits.into_iter().enumerate() {
            let sent = at + 100_000 * packet as i64;
            let (forward, delay) = (packet < 2, 200 + wait);
            let (source, destination) = if forward { (sent, sent + delay) } else { (sent + delay, sent) };
            let stamps =
                if forward { [source, destination + theta(source)] } else { [destination + theta(source), source] };
            (t[2 * packet], t[2 * packet + 1]) = (stamps[0], stamps[1]);
        }
        Exchange { edge: Edge::new(0, 1), seq: 0, stamp: StampSource::Hardware, t: t.map(Timestamp::from_ns) }
    }

    fn window(exchanges: &[Exchange]) -> EdgeWindow<'_> {
        EdgeWindow {
            edge: Edge::new(0, 1),
            midpoint: Timestamp::from_ns(0),
            exchanges,
            lost: 0,
            stamp_errors_ns: [0.0; 2],
        }
    }

    fn check(line: Option<EdgeLine>, expected_ns: f64, tolerance_ns: f64) {
        let line = line.expect("enough packets");
        assert!((line.beta_ns - expected_ns).abs() <= tolerance_ns, "{line:?}, expected {expected_ns}");
    }

    #[test]
    fn each_method_by_hand() {
        let second = 1_000_000_000;
        let mut exchanges: Vec<Exchange> = (-4..=4).map(|k| exchange(k * second, [0; 4])).collect();
        check(mean(&window(&exchanges)), 1_000.0, 1.0);
        check(ntp(&window(&exchanges)), 1_000.0, 1.0);
        check(svm(&window(&exchanges), Version::Tuned), 1_000.0, 1.0);
        check(svm(&window(&exchanges), Version::Plain), 1_000.0, 1.0);
        check(huygens(&window(&exchanges), Version::Tuned), 1_000.0, 1.0);
        // One forward pair in nine waits 9 µs, its second packet 9 µs and 1 µs: the mean moves by
        // (9 + 10)/4/9 µs, Huygens drops the pair.
        exchanges[4] = exchange(0, [9_000, 10_000, 0, 0]);
        check(mean(&window(&exchanges)), 1_000.0 + 19_000.0 / 36.0, 1.0);
        check(huygens(&window(&exchanges), Version::Tuned), 1_000.0, 1.0);
        assert_eq!(huygens(&window(&exchanges[1..5]), Version::Tuned), None, "three forward pairs are left");
        assert_eq!(mean(&window(&[])), None);
    }

    #[test]
    fn ntp_keeps_the_fastest_and_interpolates() {
        let second = 1_000_000_000;
        let of = |k: i64, waits| fastest(&window(&[exchange((k - 1) * second, [500; 4]), exchange(k * second, waits)]));
        let early = of(-4, [0, 400, 400, 0]).expect("two exchanges");
        assert_eq!(early.at_ns, (-4 * second + -4 * second + 300_000 + 200) / 2);
        let late = of(4, [0; 4]).expect("two exchanges");
        check(between(Edge::new(0, 1), 0, &[early, late]), 1_000.0, 1.0);
        check(between(Edge::new(0, 1), 8 * second, &[early, late]), 9_000.0, 3.0);
        assert_eq!(between(Edge::new(0, 1), 0, &[early]), None);
        assert_eq!(between(Edge::new(0, 1), 0, &[]), None);
    }
}
