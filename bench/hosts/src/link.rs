//! The seeded model of every direction of every link, which decides the fate of each packet.
//!
//! The emulator calls [`Links::admit`] once per packet and obeys the answer. The model is pure: it
//! has no clock and no sockets. In the direction a→b a packet is lost with probability `loss` and
//! otherwise delayed by `delay + asymmetry(a, b) + jitter·U`, with U uniform in [−1, 1] and
//! `asymmetry(b, a) = −asymmetry(a, b)`. Half the difference of the two directions,
//! `asymmetry(a, b)`, is exactly the error that no estimator can see on this link. Each direction
//! has its own random stream, so traffic elsewhere does not change its packets' fate. It does not
//! model bandwidth, bursts of loss or duplication.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::packet::Protocol;

/// How all links behave.
#[derive(Clone, Debug, Args)]
pub(crate) struct LinkOptions {
    /// One-way delay
    #[arg(long, default_value = "2ms", value_parser = humantime::parse_duration)]
    pub(crate) delay: Duration,
    /// Largest deviation from the delay, uniformly distributed to both sides
    #[arg(long, default_value = "300us", value_parser = humantime::parse_duration)]
    pub(crate) jitter: Duration,
    /// Packets lost, percent
    #[arg(long, default_value_t = 1.0)]
    pub(crate) loss: f64,
    /// Range of the seeded asymmetry: a link is up to this much slower one way and faster the other
    /// way
    #[arg(long, default_value = "0us", value_parser = humantime::parse_duration)]
    pub(crate) asymmetry: Duration,
    /// One link that is slower by so much from one host to another and as much faster on the way
    /// back, besides the seeded asymmetry
    #[arg(long, value_name = "FROM:TO:DURATION")]
    pub(crate) asymmetric_link: Option<AsymmetricLink>,
    /// Never let a packet overtake an earlier one of its direction
    #[arg(long)]
    pub(crate) keep_order: bool,
    /// UDP packets lost besides on the way from one host to another, FROM:TO:PERCENT
    #[arg(long, value_name = "FROM:TO:PERCENT")]
    pub(crate) one_way_loss: Option<OneWayLoss>,
    /// Seed of delays and losses
    #[arg(long, default_value_t = 1)]
    pub(crate) link_seed: u64,
}

/// A direction that loses more than the others; TCP, which carries the run's control, is spared.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct OneWayLoss {
    /// The host that sends.
    pub(crate) from: usize,
    /// The host that misses packets.
    pub(crate) to: usize,
    /// Chance to be lost.
    pub(crate) percent: f64,
}

impl FromStr for OneWayLoss {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not FROM:TO:PERCENT, as in 2:3:30");
        let parts: Vec<&str> = text.split(':').collect();
        let [from, to, percent] = parts[..] else { return Err(wrong()) };
        let host = |part: &str| part.parse().map_err(|_| wrong());
        let percent = percent.parse().ok().filter(|percent| (0.0..=100.0).contains(percent)).ok_or_else(wrong)?;
        Ok(Self { from: host(from)?, to: host(to)?, percent })
    }
}

/// A link whose two directions differ by twice `slower`.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct AsymmetricLink {
    /// One host.
    pub(crate) from: usize,
    /// The other.
    pub(crate) to: usize,
    /// The way from one to the other takes this longer, the way back is this faster.
    pub(crate) slower: Duration,
}

impl AsymmetricLink {
    /// What it adds to the delay of a direction, ns.
    fn of(self, from: usize, to: usize) -> f64 {
        match (from, to) {
            way if way == (self.from, self.to) => nanoseconds(self.slower),
            way if way == (self.to, self.from) => -nanoseconds(self.slower),
            _ => 0.0,
        }
    }
}

impl FromStr for AsymmetricLink {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not FROM:TO:DURATION, as in 2:3:500us");
        let parts: Vec<&str> = text.split(':').collect();
        let [from, to, slower] = parts[..] else { return Err(wrong()) };
        let host = |part: &str| part.parse().map_err(|_| wrong());
        let slower = humantime::parse_duration(slower).map_err(|_| wrong())?;
        Ok(Self { from: host(from)?, to: host(to)?, slower })
    }
}

/// Every direction between hosts, with its counts.
pub(crate) struct Links {
    options: LinkOptions,
    directions: BTreeMap<(usize, usize), Direction>,
}

struct Direction {
    asymmetry_ns: f64,
    random: ChaCha8Rng,
    /// Release time of the latest packet since the start, for `keep_order`.
    latest: Duration,
    counts: BTreeMap<Protocol, Counts>,
}

/// Exact counts of one protocol in one direction.
/// `seen = dropped + delivered + refused + what is still under way`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    /// Packets that entered the link.
    pub(crate) seen: u64,
    /// Packets that the link lost on purpose.
    pub(crate) dropped: u64,
    /// Packets handed to the receiving host.
    pub(crate) delivered: u64,
    /// Packets that the receiving host's device did not take, or for which the queue had no room.
    pub(crate) refused: u64,
}

impl LinkOptions {
    fn loss_percent(&self, from: usize, to: usize, protocol: Protocol) -> f64 {
        let besides = self.one_way_loss.filter(|way| protocol == Protocol::Udp && (way.from, way.to) == (from, to));
        self.loss + besides.map_or(0.0, |way| way.percent)
    }
}

impl Links {
    /// Links between all pairs of `hosts` hosts.
    pub(crate) fn new(options: &LinkOptions, hosts: usize) -> Self {
        let pairs = (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to))).filter(|(from, to)| from != to);
        let directions = pairs.map(|(from, to)| ((from, to), Direction::new(options, from, to))).collect();
        Self { options: options.clone(), directions }
    }

    /// Decides a packet's fate: `None` when it is lost, otherwise when it comes out, given that it
    /// came in at `now` (both since the emulator started).
    pub(crate) fn admit(&mut self, from: usize, to: usize, protocol: Protocol, now: Duration) -> Option<Duration> {
        let direction = self.directions.get_mut(&(from, to))?;
        let counts = direction.counts.entry(protocol).or_default();
        counts.seen += 1;
        // Both draws for every packet, so that a changed loss rate leaves the delays of the others
        // alone.
        let lost = direction.random.random::<f64>() * 100.0 < self.options.loss_percent(from, to, protocol);
        let jitter_ns = direction.random.random_range(-1.0..=1.0) * nanoseconds(self.options.jitter);
        if lost {
            counts.dropped += 1;
            return None;
        }
        let delay_ns = (nanoseconds(self.options.delay) + direction.asymmetry_ns + jitter_ns).max(0.0);
        let mut release = now + Duration::from_nanos(delay_ns as u64);
        if self.options.keep_order {
            release = release.max(direction.latest);
            direction.latest = release;
        }
        Some(release)
    }

    /// Notes that the packet came out, or that the receiver did not take it.
    pub(crate) fn settle(&mut self, from: usize, to: usize, protocol: Protocol, taken: bool) {
        if let Some(direction) = self.directions.get_mut(&(from, to)) {
            let counts = direction.counts.entry(protocol).or_default();
            *(if taken { &mut counts.delivered } else { &mut counts.refused }) += 1;
        }
    }

    /// The counts of one protocol in one direction.
    pub(crate) fn counts(&self, from: usize, to: usize, protocol: Protocol) -> Counts {
        let direction = self.directions.get(&(from, to));
        direction.and_then(|direction| direction.counts.get(&protocol)).copied().unwrap_or_default()
    }

    /// How much slower than `delay` the direction is, ns.
    pub(crate) fn asymmetry_ns(&self, from: usize, to: usize) -> f64 {
        self.directions.get(&(from, to)).map_or(0.0, |direction| direction.asymmetry_ns)
    }
}

impl Direction {
    fn new(options: &LinkOptions, from: usize, to: usize) -> Self {
        let (low, high) = (from.min(to), from.max(to));
        // Equal streams on both directions of a link for the asymmetry, different ones for the
        // packets.
        let mut of_pair = ChaCha8Rng::seed_from_u64(options.link_seed);
        of_pair.set_stream(stream(low, high, 0));
        let slower = of_pair.random_range(-1.0..=1.0) * nanoseconds(options.asymmetry);
        let mut random = ChaCha8Rng::seed_from_u64(options.link_seed);
        random.set_stream(stream(from, to, 1));
        let besides = options.asymmetric_link.map_or(0.0, |link| link.of(from, to));
        let asymmetry_ns = besides + if from < to { slower } else { -slower };
        Self { asymmetry_ns, random, latest: Duration::ZERO, counts: BTreeMap::new() }
    }
}

fn stream(from: usize, to: usize, purpose: u64) -> u64 {
    ((from as u64) << 33) | ((to as u64) << 1) | purpose
}

fn nanoseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> LinkOptions {
        LinkOptions {
            delay: Duration::from_micros(2000),
            jitter: Duration::from_micros(300),
            loss: 1.0,
            asymmetry: Duration::from_micros(50),
            keep_order: false,
            one_way_loss: None,
            asymmetric_link: None,
            link_seed: 7,
        }
    }

    /// Sends `packets` one µs apart from 0 to 1, returns the delays in ns of those that arrive.
    fn delays(options: &LinkOptions, packets: u64) -> (Vec<f64>, Links) {
        let mut links = Links::new(options, 3);
        let mut delays = Vec::new();
        for number in 0..packets {
            let now = Duration::from_micros(number);
            if let Some(release) = links.admit(0, 1, Protocol::Udp, now) {
                delays.push(nanoseconds(release - now));
                links.settle(0, 1, Protocol::Udp, true);
            }
        }
        (delays, links)
    }

    #[test]
    fn one_link_may_be_slower_one_way_and_faster_back() {
        let asymmetric_link = Some("2:1:500us".parse().expect("a link"));
        let plain = Links::new(&options(), 3);
        let links = Links::new(&LinkOptions { asymmetric_link, ..options() }, 3);
        let besides = |from, to| links.asymmetry_ns(from, to) - plain.asymmetry_ns(from, to);
        let all = [(2, 1), (1, 2), (0, 1), (2, 0)].map(|(from, to)| besides(from, to).round());
        assert_eq!(all, [500_000.0, -500_000.0, 0.0, 0.0]);
        for text in ["", "0:1", "0:1:x", "a:1:3us", "0:1:2us:3"] {
            assert!(text.parse::<AsymmetricLink>().is_err(), "{text}");
        }
    }

    #[test]
    fn delays_and_losses_are_as_configured_and_counted_exactly() {
        let (delays, links) = delays(&options(), 100_000);
        let counts = links.counts(0, 1, Protocol::Udp);
        assert_eq!(counts.seen, 100_000);
        assert_eq!(counts.dropped + counts.delivered, counts.seen);
        assert_eq!(counts.delivered, delays.len() as u64);
        // Binomial with standard deviation 31.
        assert!((850..1150).contains(&counts.dropped), "{}", counts.dropped);
        let middle = 2_000_000.0 + links.asymmetry_ns(0, 1);
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        assert!((mean - middle).abs() < 3_000.0, "{mean}");
        assert!(delays.iter().all(|delay| (delay - middle).abs() <= 300_001.0));
        assert_eq!(links.counts(1, 0, Protocol::Udp), Counts::default());
    }

    #[test]
    fn one_direction_loses_probes_and_nothing_else() {
        let one_way_loss = Some("0:1:30".parse().expect("a direction"));
        let mut links = Links::new(&LinkOptions { one_way_loss, ..options() }, 3);
        let mut lost = |from, to, protocol| {
            (0..10_000).filter(|_| links.admit(from, to, protocol, Duration::ZERO).is_none()).count()
        };
        // Binomial with standard deviations 46 and 10.
        assert!((2900..3300).contains(&lost(0, 1, Protocol::Udp)));
        for (from, to, protocol) in [(1, 0, Protocol::Udp), (0, 2, Protocol::Udp), (0, 1, Protocol::Tcp)] {
            assert!((50..150).contains(&lost(from, to, protocol)), "{from}→{to}");
        }
        for text in ["", "0:1", "0:1:x", "a:1:3", "0:1:101", "0:1:2:3"] {
            assert!(text.parse::<OneWayLoss>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_directions_of_a_link_are_asymmetric_by_opposite_amounts() {
        let links = Links::new(&options(), 4);
        for (from, to) in [(0, 1), (0, 3), (2, 3)] {
            let slower = links.asymmetry_ns(from, to);
            assert!(slower != 0.0 && slower.abs() <= 50_000.0);
            assert_eq!(slower, -links.asymmetry_ns(to, from));
        }
    }

    #[test]
    fn a_seed_fixes_every_fate_whatever_other_directions_do() {
        let (alone, _) = delays(&options(), 500);
        let mut links = Links::new(&options(), 3);
        let mut mixed = Vec::new();
        for number in 0..500 {
            let now = Duration::from_micros(number);
            links.admit(1, 0, Protocol::Udp, now);
            links.admit(2, 1, Protocol::Tcp, now);
            mixed.extend(links.admit(0, 1, Protocol::Udp, now).map(|release| nanoseconds(release - now)));
        }
        assert_eq!(alone, mixed);
        assert_ne!(alone, delays(&LinkOptions { link_seed: 8, ..options() }, 500).0);
    }

    #[test]
    fn order_is_kept_only_when_asked_for() {
        for keep_order in [false, true] {
            let mut links = Links::new(&LinkOptions { keep_order, ..options() }, 2);
            let releases: Vec<_> = (0..1000)
                .filter_map(|number| links.admit(0, 1, Protocol::Udp, Duration::from_micros(10 * number)))
                .collect();
            assert_eq!(releases.is_sorted(), keep_order);
        }
    }
}
