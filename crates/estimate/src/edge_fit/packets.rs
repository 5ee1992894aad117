//! Conversion of exchanges into the points of a fit: one stamp source, small numbers, slack for
//! suspicious packets.
//!
//! Reverse points are mirrored, (x, l) → (−x, −l), so that both directions are bounded from below
//! and share all code; see `hull`.
//!
//! Slack: in a coded pair only the packet with the SMALLER delay can bind, and it is suspicious
//! when its partner disagrees: either the partner was queued (harmless) or this stamp glitched low
//! (fatal). Its constraint is relaxed by `ε·(1/w − 1) = Δgap²/ε`, at most by |Δgap|: then it binds
//! no more than its partner does.

use probe_sync_time::{Duration, Exchange, StampSource};

use super::input::{EdgeWindow, FitOptions};
use crate::purity;
use crate::statistics::upper_median_by;

/// One packet as a constraint y ≥ line(x) + margin.
#[derive(Copy, Clone, Debug)]
pub(super) struct Packet {
    /// Time on the source's clock since the midpoint, ns; negated for reverse packets.
    pub(super) x: f64,
    /// u − base, or base − l, ns.
    pub(super) y: f64,
    /// Amount by which the constraint may be relaxed, ns.
    pub(super) slack: f64,
}

/// The packets of a window in order of exchange: two per direction and exchange, or one if its
/// partner was lost.
#[derive(Clone, Debug)]
pub(super) struct Packets {
    pub(super) forward: Vec<Packet>,
    pub(super) reverse: Vec<Packet>,
    /// Subtracted from all ordinates, ns.
    pub(super) base: i64,
    /// Stamp source.
    pub(super) stamp: StampSource,
    /// Mean purity weight.
    pub(super) purity: f64,
    /// Exchanges skipped because of another stamp source or another edge.
    pub(super) left_out: u32,
    /// Number of packets per direction of each exchange.
    counts: Vec<[u8; 2]>,
}

impl Packets {
    /// Returns the packets of the best stamp source; `None` if there is no exchange.
    pub(super) fn new(window: &EdgeWindow<'_>, options: &FitOptions) -> Option<Self> {
        let own = || window.exchanges.iter().filter(|exchange| exchange.edge == window.edge);
        let stamp = best_source(own())?;
        let kept: Vec<&Exchange> = own().filter(|exchange| exchange.stamp == stamp).collect();
        let changes = kept.iter().flat_map(|exchange| gap_changes(exchange)).flatten();
        let epsilon = purity::epsilon_ns(changes.clone(), options.tick_ns.max(f64::MIN_POSITIVE));
        // A packet alone agrees with nobody and contradicts nobody.
        let (pairs, weights) =
            changes.fold((0usize, 0.0), |(n, sum), change| (n + 1, sum + purity::weight(change, epsilon)));

        let base = median_ordinate(&kept);
        let since = |at: i64| (i128::from(at) - i128::from(window.midpoint.as_ns())) as f64;
        let above = |ordinate: Duration| (i128::from(ordinate.as_ns()) - i128::from(base)) as f64;
        let mut packets = Self {
            forward: Vec::with_capacity(2 * kept.len()),
            reverse: Vec::with_capacity(2 * kept.len()),
            base,
            stamp,
            purity: if pairs > 0 { weights / pairs as f64 } else { 1.0 },
            left_out: (window.exchanges.len() - kept.len()) as u32,
            counts: Vec::with_capacity(kept.len()),
        };
        for exchange in &kept {
            let [forward, reverse] = arrived(exchange);
            let pair = exchange.forward().map(|(at, u)| (since(at.as_ns()), above(u)));
            packets.forward.extend(with_slack(pair, epsilon).into_iter().take(forward));
            let pair = exchange.reverse().map(|(at, l)| (-since(at.as_ns()), -above(l)));
            packets.reverse.extend(with_slack(pair, epsilon).into_iter().take(reverse));
            packets.counts.push([forward as u8, reverse as u8]);
        }
        Some(packets)
    }

    /// Returns the number of exchanges.
    pub(super) fn exchanges(&self) -> usize {
        self.counts.len()
    }

    /// Returns the packets of each exchange, by direction; none is empty.
    pub(super) fn by_exchange(&self) -> impl Iterator<Item = [&[Packet]; 2]> {
        let (mut forward, mut reverse) = (&self.forward[..], &self.reverse[..]);
        self.counts.iter().map(move |&[of_forward, of_reverse]| {
            [(&mut forward, of_forward), (&mut reverse, of_reverse)].map(|(left, count)| {
                let (own, rest) = left.split_at(usize::from(count).min(left.len()));
                *left = rest;
                own
            })
        })
    }
}

/// Returns the number of packets that arrived in each direction.
fn arrived(exchange: &Exchange) -> [usize; 2] {
    [exchange.forward_is_whole(), exchange.reverse_is_whole()].map(|whole| if whole { 2 } else { 1 })
}

/// Returns the changes of spacing of the complete coded pairs.
fn gap_changes(exchange: &Exchange) -> [Option<Duration>; 2] {
    [
        exchange.forward_is_whole().then(|| exchange.forward_gap_change()),
        exchange.reverse_is_whole().then(|| exchange.reverse_gap_change()),
    ]
}

/// Returns the best source with enough exchanges, otherwise the most common one.
fn best_source<'a>(exchanges: impl Iterator<Item = &'a Exchange>) -> Option<StampSource> {
    let mut counts = SOURCES.map(|source| (source, 0usize));
    for exchange in exchanges {
        for (source, count) in &mut counts {
            *count += usize::from(*source == exchange.stamp);
        }
    }
    let enough = counts.iter().find(|(_, count)| *count >= ENOUGH);
    // The first of equals is the better source.
    let common = counts.iter().rev().max_by_key(|(_, count)| *count).filter(|(_, count)| *count > 0);
    enough.or(common).map(|(source, _)| *source)
}

/// Returns the median of u: a base near all ordinates that a single wrong stamp does not affect.
fn median_ordinate(exchanges: &[&Exchange]) -> i64 {
    let mut ordinates: Vec<i64> = exchanges.iter().map(|e| e.forward()[0].1.as_ns()).collect();
    upper_median_by(&mut ordinates, i64::cmp).unwrap_or(0)
}

fn with_slack(pair: [(f64, f64); 2], epsilon: f64) -> [Packet; 2] {
    let change = pair[1].1 - pair[0].1;
    let slack = (change * change / epsilon).min(change.abs());
    let of = |(x, y): (f64, f64), lower: bool| Packet { x, y, slack: if lower { slack } else { 0.0 } };
    [of(pair[0], change > 0.0), of(pair[1], change < 0.0)]
}

/// Sources, best first.
const SOURCES: [StampSource; 3] = [StampSource::Hardware, StampSource::Kernel, StampSource::User];

/// A source with this many exchanges is preferred to a less accurate one with more.
const ENOUGH: usize = 8;
