//! The minimum round trip method of NTP, as a baseline.
//!
//! Place in the flow: one of the methods of `edge_fit`. Of an exchange the faster packet of each direction gives
//! u and l; its round trip is u − l and, if the path is symmetric, θ = (u + l)/2 midway between the two packets.
//! The exchange with the smallest round trip gives theta, the smallest of each half of the window the slope.
//!
//! What it does not do: use any other packet, so its error is a delay's spacing over one exchange and not over many.

use super::line::Line;
use super::packets::{Packet, Packets};

/// One exchange: time and θ of its middle, and its round trip, ns.
#[derive(Copy, Clone)]
struct Middle {
    x: f64,
    theta: f64,
    round_trip: f64,
}

/// The line through the smallest round trip, |slope| ≤ `limit`.
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
