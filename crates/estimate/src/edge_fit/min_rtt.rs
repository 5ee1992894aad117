//! NTP's minimum round-trip method, as a baseline.
//!
//! The faster packet of each direction of an exchange gives u and l; the round trip is u − l and,
//! if the path is symmetric, θ = (u + l)/2 midway between the two packets. The exchange with the
//! smallest round trip gives theta, and the smallest ones of the two halves of the window give the
//! slope.
//!
//! It uses no other packets, so its error scales with the spacing of delays over one exchange
//! rather than over many.

use super::line::Line;
use super::packets::{Packet, Packets};

/// One exchange: time and θ of its middle, and its round trip, ns.
#[derive(Copy, Clone)]
struct Middle {
    x: f64,
    theta: f64,
    round_trip: f64,
}

/// Returns the line through the smallest round trip, |slope| ≤ `limit`.
pub(super) fn line(packets: &Packets, limit: f64) -> Line {
    let mut middles: Vec<Middle> = packets.by_exchange().map(middle).collect();
    middles.sort_unstable_by(|a, b| a.x.total_cmp(&b.x));
    let (early, late) = middles.split_at(middles.len() / 2);
    let slope = match (fastest(early), fastest(late)) {
        (Some(a), Some(b)) if b.x > a.x => ((b.theta - a.theta) / (b.x - a.x)).clamp(-limit, limit),
        _ => 0.0,
    };
    let intercept = fastest(&middles).map_or(0.0, |best| best.theta - slope * best.x);
    Line { intercept, slope }
}

fn middle([forward, reverse]: [&[Packet]; 2]) -> Middle {
    let (f, r) = (lower(forward), lower(reverse));
    Middle { x: 0.5 * (f.x - r.x), theta: 0.5 * (f.y - r.y), round_trip: f.y + r.y }
}

fn lower(packets: &[Packet]) -> Packet {
    packets.iter().copied().reduce(|a, b| if b.y < a.y { b } else { a }).unwrap_or(Packet {
        x: 0.0,
        y: 0.0,
        slack: 0.0,
    })
}

fn fastest(middles: &[Middle]) -> Option<Middle> {
    middles.iter().copied().min_by(|a, b| a.round_trip.total_cmp(&b.round_trip))
}
