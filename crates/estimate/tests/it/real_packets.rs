//! 46 TCP packets between two hosts, captured on both (Trace Compass, EPL-2.0): the published line,
//! the bounds of a linear program over the packets, and ours.
//!
//! Published: t_dest = 0.9999413783703139011·t_src + 79796507913179.33347660. With scp_src as node
//! 0 and scp_dest as node 1 theta(t_src) = t_dest − t_src = (0.9999413783703139011 − 1)·t_src +
//! 79796507913179.33347660.

use probe_sync_estimate::edge_fit::{FitDiagnostics, FitOptions, OneWayPacket, PacketWindow, fit_packets};
use probe_sync_lines::EdgeFit;
use probe_sync_time::{Edge, StampSource, Timestamp};

use crate::support::measured;

/// Packets from scp_src, and to it.
struct Capture {
    forward: Vec<OneWayPacket>,
    reverse: Vec<OneWayPacket>,
}

fn capture() -> Option<Capture> {
    let text = String::from_utf8(measured("tracecompass-synctraces-packets.csv")?).expect("text");
    let mut capture = Capture { forward: Vec::new(), reverse: Vec::new() };
    for line in text.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let time = |text: &str| Timestamp::from_ns(text.parse().expect("a time"));
        let packet = OneWayPacket { sent: time(fields[1]), received: time(fields[2]) };
        if fields[0] == "ab" { capture.forward.push(packet) } else { capture.reverse.push(packet) }
    }
    Some(capture)
}

impl Capture {
    /// The middle of the trace on scp_src's clock.
    fn middle_ns(&self) -> i64 {
        let times = || self.forward.iter().map(|p| p.sent).chain(self.reverse.iter().map(|p| p.received));
        let (first, last) = (times().min().expect("packets"), times().max().expect("packets"));
        first.as_ns().midpoint(last.as_ns())
    }

    fn fit(&self, max_skew: f64) -> (EdgeFit, FitDiagnostics) {
        let window = PacketWindow {
            edge: Edge::new(0, 1),
            midpoint: Timestamp::from_ns(self.middle_ns()),
            forward: &self.forward,
            reverse: &self.reverse,
            stamp: StampSource::Kernel,
        };
        fit_packets(&window, &FitOptions { max_skew, ..FitOptions::default() }).expect("packets each way")
    }
}

/// The published theta in ns, in integers as far as they go: −5.86…e-5 · 1.36e18 ns leaves an f64
/// no nanosecond.
fn published_ns(t_src_ns: i64) -> f64 {
    // 1 − 0.9999413783703139011 in units of 1e-19.
    const SLOW: i128 = 586_216_296_860_989;
    let whole = i128::from(t_src_ns) * SLOW / 10_000_000_000_000_000_000;
    (79_796_507_913_179 - whole) as f64
}

const PUBLISHED_ALPHA: f64 = -5.862_162_968_609_89e-5;

#[test]
fn the_published_line_is_inside_our_interval_and_the_bounds_are_the_linear_programs() {
    let Some(capture) = capture() else { return };
    assert_eq!((capture.forward.len(), capture.reverse.len()), (24, 22));
    let (line, diagnostics) = capture.fit(0.01);
    let [sd_beta, sd_alpha] = [line.covariance[0].sqrt(), line.covariance[2].sqrt()];
    let published = published_ns(capture.middle_ns());
    println!(
        "theta {:.3} us ± {:.3} (95 %), hard [{:.3}, {:.3}], published {:.3}; drift {:.0} ± {:.0} ppm (95 %), hard {:.0} to {:.0}",
        line.beta * 1e-3,
        1.96e-3 * sd_beta,
        line.bound_lo_ns * 1e-3,
        line.bound_hi_ns * 1e-3,
        published * 1e-3,
        line.alpha * 1e6,
        1.96e6 * sd_alpha,
        line.alpha_bounds[0] * 1e6,
        line.alpha_bounds[1] * 1e6
    );
    assert!(line.feasible && diagnostics.alpha_determined);
    assert!((-80_704_000.0..=-80_428_000.0).contains(&line.beta), "{line:?}");
    assert!((line.beta - published).abs() <= 1.96 * sd_beta);
    assert!((line.alpha - PUBLISHED_ALPHA).abs() <= 1.96 * sd_alpha);
    // A linear program over the packets leaves the offset 276 us wide and the rate within ±2700
    // ppm.
    assert!((line.bound_hi_ns - line.bound_lo_ns - 276_000.0).abs() < 15_000.0, "{line:?}");
    for (bound, expected) in line.alpha_bounds.into_iter().zip([-2700e-6, 2700e-6]) {
        assert!((bound - expected).abs() < 100e-6, "{line:?}");
    }
    assert!((1000e-6..=2700e-6).contains(&(1.96 * sd_alpha)), "the rate is nearly unknown: {line:?}");
    // Nothing says how the margin is shared between the directions, and the interval claims no
    // more: most of the margin.
    assert!(1.96 * sd_beta > 0.5 * line.margin_ns);
}

#[test]
fn the_largest_skew_is_a_bound_that_may_be_chosen() {
    let Some(capture) = capture() else { return };
    let (free, held) = (capture.fit(0.01).0, capture.fit(100e-6).0);
    assert_eq!(held.alpha_bounds, [-100e-6, 100e-6]);
    assert!(held.covariance[2].sqrt() < 0.1 * free.covariance[2].sqrt());
    assert!(held.bound_hi_ns - held.bound_lo_ns < free.bound_hi_ns - free.bound_lo_ns);
    assert!((held.beta - free.beta).abs() < 1.96 * held.covariance[0].sqrt());
}

#[test]
fn the_other_direction_gives_the_opposite_line() {
    let Some(capture) = capture() else { return };
    let (line, _) = capture.fit(0.01);
    let there = capture.middle_ns() + line.beta.round() as i64;
    let window = PacketWindow {
        edge: Edge::new(1, 0),
        midpoint: Timestamp::from_ns(there),
        forward: &capture.reverse,
        reverse: &capture.forward,
        stamp: StampSource::Kernel,
    };
    let (back, _) = fit_packets(&window, &FitOptions { max_skew: 0.01, ..FitOptions::default() }).expect("packets");
    // The middle moves with the clock by at most what the rate makes of delays: some ten
    // nanoseconds.
    assert!((back.beta + line.beta).abs() < 100.0, "{} {}", back.beta, line.beta);
    assert!((back.covariance[0].sqrt() / line.covariance[0].sqrt() - 1.0).abs() < 0.01);
}
