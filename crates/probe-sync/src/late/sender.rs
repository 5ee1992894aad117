//! What a rank reports of its arrivals: once a second, in few words.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use probe_sync_lateness::live::{Batch, GroupArrivals, Stamp};
use probe_sync_time::{SkewedClock, System, Timestamp};

use super::arrivals::Arrivals;

/// One rank's reports.
#[derive(Debug)]
pub(super) struct Sender {
    arrivals: Arrivals,
    /// Virtual clock of the node.
    clock: SkewedClock,
    last: Option<Instant>,
    /// Messages that may be sent now.
    credit: f64,
}

impl Sender {
    pub fn new(arrivals: Arrivals, clock: SkewedClock) -> Self {
        Self { arrivals, clock, last: None, credit: CREDIT_MAX }
    }

    /// Returns the messages of a report if one is due. A rank that has arrived anywhere reports
    /// even without new arrivals, so that the root knows that there were none.
    pub fn words(&mut self, now: Instant, at: Timestamp<System>, word_max: usize) -> Vec<Vec<u8>> {
        let since = self.last.map(|last| now.saturating_duration_since(last));
        if !self.arrivals.has_begun() || since.is_some_and(|since| since < REPORT_EVERY) {
            return Vec::new();
        }
        let earned = since.map_or(0.0, |since| since.as_secs_f64() * WORDS_PER_SECOND);
        (self.last, self.credit) = (Some(now), (self.credit + earned).min(CREDIT_MAX));
        let (words, left_out) = self.batch(at).encode(word_max, self.credit as usize);
        self.credit -= words.len() as f64;
        self.arrivals.lose(left_out);
        words
    }

    /// Collects the arrivals up to `at` into a report.
    pub fn batch(&mut self, at: Timestamp<System>) -> Batch {
        // Before the ring is drained: arrivals added in between are later.
        let at = self.arrivals.as_of(at);
        let mut groups: BTreeMap<u32, Vec<Stamp>> = BTreeMap::new();
        for arrival in self.arrivals.take(TAKEN_MAX) {
            let at_ns = self.clock.apply(arrival.at).as_ns();
            groups.entry(arrival.group).or_default().push(Stamp { step: arrival.step, at_ns });
        }
        let named = |(group, arrivals)| GroupArrivals { name: self.arrivals.name(group).to_owned(), arrivals };
        Batch {
            as_of_ns: self.clock.apply(at).as_ns(),
            is_whole: true,
            dropped: self.arrivals.dropped(),
            groups: groups.into_iter().map(named).collect(),
        }
    }

    /// Returns true once the rank has arrived anywhere.
    pub fn has_begun(&self) -> bool {
        self.arrivals.has_begun()
    }
}

/// Time between two reports.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Messages of 4 KiB that a rank may send per second in the long run: some 4000 arrivals a second.
/// A root that does not listen for two minutes is not flooded.
const WORDS_PER_SECOND: f64 = 6.0;
/// Messages that a rank may send at once.
const CREDIT_MAX: f64 = 32.0;
/// Most arrivals in a report.
const TAKEN_MAX: usize = 1 << 15;

#[cfg(test)]
mod tests {
    use probe_sync_sys::SystemClock;
    use probe_sync_time::Clock as _;

    use super::*;

    #[test]
    fn a_report_is_complete_until_its_source_says() {
        let arrivals = Arrivals::default();
        let mut sender = Sender::new(arrivals.clone(), SkewedClock::default());
        let at = |ns| Timestamp::from_ns(1_800_000_000_000_000_000 + ns);
        let mut check = |now_ns, until_ns: i64, steps: &[u64]| {
            let batch = sender.batch(at(now_ns));
            assert_eq!(batch.as_of_ns, at(until_ns).as_ns());
            let sent = batch.groups.iter().flat_map(|group| &group.arrivals);
            assert_eq!(sent.map(|stamp| stamp.step).collect::<Vec<_>>(), steps);
        };
        arrivals.arrive_at("grads", 1, at(10));
        check(100, 100, &[1]);
        arrivals.complete_until(at(120));
        check(200, 120, &[]);
        arrivals.arrive_at("grads", 2, at(150));
        arrivals.complete_until(at(250));
        check(300, 250, &[2]);
        arrivals.complete_until(at(900));
        check(400, 400, &[]);
        arrivals.complete_until(Timestamp::from_ns(i64::MAX));
        check(500, 500, &[]);
    }

    #[test]
    fn reports_come_once_a_second_and_a_flood_is_dropped_and_counted() {
        let arrivals = Arrivals::default();
        let mut sender = Sender::new(arrivals.clone(), SkewedClock::default());
        let (begin, at) = (Instant::now(), SystemClock.now());
        assert!(sender.words(begin, at, 4000).is_empty(), "nothing has arrived anywhere");
        arrivals.arrive("grads", 1);
        assert_eq!(sender.words(begin, at, 4000).len(), 1);
        assert!(sender.words(begin + Duration::from_millis(900), at, 4000).is_empty());
        assert_eq!(sender.words(begin + Duration::from_secs(1), at, 4000).len(), 1, "a report of nothing");
        let (mut words, mut second) = (0, 1);
        while second < 60 {
            second += 1;
            (0..16_000).for_each(|step| arrivals.arrive("grads", step));
            words += sender.words(begin + Duration::from_secs(second), at, 4000).len();
        }
        assert!(words as f64 <= CREDIT_MAX + 60.0 * WORDS_PER_SECOND, "{words} words in a minute");
        assert!(arrivals.dropped() > 100_000, "{}", arrivals.dropped());
    }
}
