//! The root's side: arrivals of all ranks, judged, and where what is found goes: the log,
//! `late.jsonl`, callers.

use probe_sync_files::OwnFolder;
use probe_sync_lateness::live::{Batch, Clocks, Counts, Event, Place, Watch};
use probe_sync_lines::Round;
use probe_sync_time::NodeId;

use super::document::{LATE_FILE, Late, LateEvent, LateLine, LateRecord, LateStanding, SCHEMA, WaitLine};
use super::hang::{LastArrival, LastArrivals, Progress};
use crate::join::Joined;
use crate::store::{Limits, Stream};

/// The root's watch over all ranks.
#[derive(Debug)]
pub(super) struct Root {
    watch: Watch,
    host_of_rank: Vec<String>,
    hosts: Vec<String>,
    file: File,
    standing: LateStanding,
    /// Time of the last report on continuing states, ns on the reference clock.
    told_ns: i64,
}

/// `late.jsonl`, created with its first line.
#[derive(Debug)]
struct File {
    folder: OwnFolder,
    limits: Limits,
    stream: Option<Stream>,
    has_failed: bool,
}

/// Values for the metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    /// Group, rank, and the sum of the rank's leads since the run began, s.
    pub lost_s: Vec<(String, u32, f64)>,
    /// Group, rank, and the median lead of a rank that is late at present, s.
    pub lead_s: Vec<(String, u32, f64)>,
    /// Group, and how long its members have waited for missing ones, s.
    pub waiting_s: Vec<(String, f64)>,
    /// Counts of arrivals and operations.
    pub counts: Counts,
}

/// Clocks of the ranks, from the last round.
pub(super) struct Estimates<'a> {
    pub round: &'a Round,
    pub node_of_rank: &'a [NodeId],
}

impl Clocks for Estimates<'_> {
    fn on_reference(&self, rank: u32, at_ns: i64) -> Option<(i64, f64)> {
        let node = *self.node_of_rank.get(rank as usize)?;
        let own = self.round.node(node).filter(|own| own.reachable && own.sigma_ns.is_finite())?;
        // The estimate holds in the middle of the window, and grows older at the rate that is known
        // and that is not.
        let roughly_ns = at_ns.saturating_sub(own.offset_ns as i64);
        let then_ns = roughly_ns.saturating_sub(self.round.midpoint().as_ns()) as f64;
        let offset_ns = own.offset_ns + own.drift_ppm * 1e-6 * then_ns;
        let aged_ns = if own.drift_sigma_ppm.is_finite() { own.drift_sigma_ppm * 1e-6 * then_ns } else { 0.0 };
        Some((at_ns.saturating_sub(offset_ns.round() as i64), own.sigma_ns.hypot(aged_ns)))
    }
}

impl Root {
    pub fn new(joined: &Joined, folder: OwnFolder) -> Self {
        let plan = &joined.plan;
        let mut hosts: Vec<String> = Vec::new();
        let places = plan.hostnames.iter().zip(&plan.node_of_rank).map(|(name, node)| {
            let host = hosts.iter().position(|known| known == name).unwrap_or_else(|| {
                hosts.push(name.clone());
                hosts.len() - 1
            });
            Place { host: host as u32, clock: node.0 }
        });
        let watch = Watch::new(places.collect());
        let file = File { folder, limits: Limits::of(&joined.config), stream: None, has_failed: false };
        let host_of_rank = plan.hostnames.clone();
        Self { watch, host_of_rank, hosts, file, standing: LateStanding::default(), told_ns: i64::MIN }
    }

    pub fn hear(&mut self, rank: usize, word: &[u8], now_ns: i64) {
        self.watch.hear(rank as u32, word, now_ns);
    }

    pub fn take(&mut self, rank: usize, batch: Batch, now_ns: i64) {
        self.watch.take(rank as u32, batch, now_ns);
    }

    /// Judges complete operations; returns true if a lateness or a wait began or ended.
    pub fn advance(&mut self, now_ns: i64, clocks: &dyn Clocks) -> bool {
        let events = self.watch.advance(now_ns, clocks);
        for event in &events {
            self.tell(event, now_ns);
        }
        let standing = self.watch.standing(now_ns);
        let late = standing.late.iter().map(|late| LateLine::new(late, &self.host_of_rank, &self.hosts));
        let waiting = standing.waiting.iter().map(|wait| WaitLine::new(wait, &self.host_of_rank));
        self.standing = LateStanding { late: late.collect(), waiting: waiting.collect() };
        if now_ns.saturating_sub(self.told_ns) >= CONTINUES_EVERY_NS {
            self.told_ns = now_ns;
            let late = self.standing.late.iter().cloned().map(Late::Late);
            let about: Vec<Late> = late.chain(self.standing.waiting.iter().cloned().map(Late::Waiting)).collect();
            about.into_iter().for_each(|about| self.file.write(now_ns, LateEvent::Continues, about));
        }
        !events.is_empty()
    }

    pub fn standing(&self) -> &LateStanding {
        &self.standing
    }

    /// Returns the last arrival of each rank in each group.
    pub fn progress(&self) -> Progress {
        let last = |(rank, (restarts, step))| LastArrival { rank, step, restarts };
        let groups = self.watch.last_arrivals();
        let groups =
            groups.map(|(name, ranks)| LastArrivals { name: name.to_owned(), last: ranks.map(last).collect() });
        Progress { groups: groups.collect(), lost: self.watch.lost().collect() }
    }

    pub fn totals(&self) -> Totals {
        let seconds = |ns: i64| ns as f64 * 1e-9;
        let late = self.standing.late.iter();
        Totals {
            lost_s: self.watch.totals().map(|(group, rank, _, ns)| (group.to_owned(), rank, seconds(ns))).collect(),
            lead_s: late.filter_map(|late| Some((late.group.clone(), late.rank?, seconds(late.lead_ns)))).collect(),
            waiting_s: self.standing.waiting.iter().map(|wait| (wait.group.clone(), seconds(wait.waited_ns))).collect(),
            counts: self.watch.standing(0).counts,
        }
    }

    fn tell(&mut self, event: &Event, now_ns: i64) {
        let (event, about) = match event {
            Event::LateBegun(late) => {
                let line = LateLine::new(late, &self.host_of_rank, &self.hosts);
                tracing::warn!("late: {line}");
                (LateEvent::Begun, Late::Late(line))
            }
            Event::LateEnded(late) => {
                let line = LateLine::new(late, &self.host_of_rank, &self.hosts);
                tracing::info!("late no more: {line}");
                (LateEvent::Ended, Late::Late(line))
            }
            Event::WaitBegun(wait) => {
                let line = WaitLine::new(wait, &self.host_of_rank);
                tracing::warn!("waiting: {line}");
                (LateEvent::Begun, Late::Waiting(line))
            }
            Event::WaitEnded(wait) => {
                let line = WaitLine::new(wait, &self.host_of_rank);
                tracing::info!("waits no more: {line}");
                (LateEvent::Ended, Late::Waiting(line))
            }
        };
        self.file.write(now_ns, event, about);
    }
}

impl File {
    fn write(&mut self, at_ns: i64, event: LateEvent, about: Late) {
        if self.has_failed {
            return;
        }
        if self.stream.is_none() {
            match Stream::create(&self.folder, LATE_FILE, self.limits, None::<&u8>) {
                Ok(stream) => self.stream = Some(stream),
                Err(error) => {
                    tracing::warn!("{error}; who is late is in the log alone");
                    self.has_failed = true;
                }
            }
        }
        if let Some(stream) = &mut self.stream {
            stream.append(&LateRecord { schema: SCHEMA, at_ns, event, about });
            stream.end_round();
        }
    }
}

/// Interval of reports on continuing states, ns.
const CONTINUES_EVERY_NS: i64 = 60_000_000_000;
