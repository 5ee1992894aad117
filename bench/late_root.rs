//! What finding late ranks costs rank 0, and how many bytes an arrival takes on the way there.
//!
//! `cargo bench -p probe-sync-lateness --bench late_root`: a minute of simulated arrivals of 64 and
//! 1000 ranks, 100 collectives per second, in one group and in groups of 8. Each rank reports once a
//! second, and the root looks ten times a second, as in a run. Reading messages and judging is
//! timed; making them is not. It asserts no time.

use std::time::{Duration, Instant};

use probe_sync_lateness::live::{Batch, Clocks, GroupArrivals, Place, Stamp, Watch};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

const RATE: u64 = 100;
const SECOND_NS: i64 = 1_000_000_000;
const LOOKS: i64 = 10;

/// All ranks have the reference clock, within 1 µs.
struct Known;

impl Clocks for Known {
    fn on_reference(&self, _rank: u32, at_ns: i64) -> Option<(i64, f64)> {
        Some((at_ns, 1000.0))
    }
}

fn main() {
    // `cargo bench` says so; `cargo test` does not.
    let seconds = if std::env::args().any(|given| given == "--bench") { 60 } else { 3 };
    println!("ranks  group  % of a core  bytes per arrival  named");
    for (ranks, group) in [(64, 64), (64, 8), (1000, 1000), (1000, 8)] {
        let (busy, bytes, arrivals, named) = job(ranks, group, seconds);
        let (share, bytes) = (100.0 * busy.as_secs_f64() / seconds as f64, bytes as f64 / arrivals as f64);
        println!("{ranks:5}  {group:5}  {share:11.2}  {bytes:17.1}  {named:5}");
    }
}

/// Time at the root, bytes and arrivals sent, and members named; no rank is late.
fn job(ranks: u32, group: u32, seconds: u64) -> (Duration, u64, u64, usize) {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut watch = Watch::new((0..ranks).map(|rank| Place { host: rank / 8, clock: rank / 8 }).collect());
    let (mut busy, mut bytes, mut arrivals, mut now_ns) = (Duration::ZERO, 0, 0, 1_800_000_000 * SECOND_NS);
    for second in 0..seconds {
        let messages: Vec<(u32, Vec<u8>)> = (0..ranks)
            .flat_map(|rank| {
                let stamp = |turn| {
                    let at_ns = now_ns + turn as i64 * (SECOND_NS / RATE as i64) + random.random_range(0..100_000);
                    Stamp { step: second * RATE + turn, at_ns }
                };
                let arrivals = (0..RATE).map(stamp).collect();
                let groups = vec![GroupArrivals { name: format!("all_reduce (dp_{})", rank / group), arrivals }];
                let batch = Batch { as_of_ns: now_ns + SECOND_NS, is_whole: true, dropped: 0, groups };
                batch.encode(4096, 64).0.into_iter().map(move |word| (rank, word))
            })
            .collect();
        now_ns += SECOND_NS;
        arrivals += u64::from(ranks) * RATE;
        bytes += messages.iter().map(|(_, word)| word.len() as u64).sum::<u64>();
        let begun = Instant::now();
        for (rank, word) in &messages {
            watch.hear(*rank, word, now_ns);
        }
        for look in 0..LOOKS {
            watch.advance(now_ns + look * SECOND_NS / LOOKS, &Known);
        }
        busy += begun.elapsed();
    }
    (busy, bytes, arrivals, watch.standing(now_ns).late.len())
}
