//! What is told of ranks that are late: values for callers, the lines of `late.jsonl`, and
//! sentences for people.

use std::fmt;

use probe_sync_lateness::live::{Lateness, Member, Waiting, Window};
use serde::{Deserialize, Serialize};

/// Late ranks, and ranks that others wait for, at present.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LateStanding {
    /// Late ranks and hosts, most costly first.
    pub late: Vec<LateLine>,
    /// Operations that some members entered and others have not.
    pub waiting: Vec<WaitLine>,
}

/// A rank, or a host with all its ranks, that is repeatedly late.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LateLine {
    /// The rank; null if all ranks of the host are late.
    pub rank: Option<u32>,
    /// Host name.
    pub host: String,
    /// Name of the group in whose operations it is late.
    pub group: String,
    /// First late arrival, ns on the reference clock.
    pub since_ns: i64,
    /// Latest late arrival, ns on the reference clock.
    pub last_ns: i64,
    /// Operations of the group since the first late arrival.
    pub operations: u64,
    /// Operations at which it was late.
    pub times: u64,
    /// Median time between the second-latest arrival and its own, ns.
    pub lead_ns: i64,
    /// Standard deviation of `lead_ns` due to clock errors, ns.
    pub lead_sigma_ns: f64,
    /// Share of the time since the first late arrival that others waited for it.
    pub share: f64,
    /// The last ten seconds, the last minute, and the whole run.
    pub windows: Vec<LateWindow>,
}

/// Time lost through a member in a span of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LateWindow {
    /// Length, s; null for the whole run.
    pub length_s: Option<u64>,
    /// Operations of the group.
    pub operations: u64,
    /// Operations at which the member was last.
    pub late: u64,
    /// Sum of the member's leads, ns.
    pub lost_ns: i64,
}

/// An operation that some members entered and others have not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitLine {
    /// Name of the group.
    pub group: String,
    /// Number of the operation in its group.
    pub step: u64,
    /// First arrival, ns on the reference clock.
    pub since_ns: i64,
    /// Waiting time of the first member, ns.
    pub waited_ns: i64,
    /// Ranks that have not arrived; the first of them only.
    pub missing: Vec<MissingRank>,
    /// Number of ranks that have not arrived.
    pub missing_ranks: u32,
    /// Ranks that are waiting; the first of them only.
    pub waiting: Vec<u32>,
    /// Number of ranks that are waiting.
    pub waiting_ranks: u32,
}

/// A rank that has not arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissingRank {
    /// The rank.
    pub rank: u32,
    /// Host name.
    pub host: String,
    /// Number of the group's operation at which it last arrived.
    pub last_step: Option<u64>,
}

/// One line of `late.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LateRecord {
    /// Version of this document; raised when a field is removed or changes its meaning.
    pub schema: u32,
    /// Time of detection, ns on the reference clock.
    pub at_ns: i64,
    /// Kind of change.
    pub event: LateEvent,
    /// Subject of the line.
    #[serde(flatten)]
    pub about: Late,
}

/// Kind of change.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LateEvent {
    /// The state began.
    Begun,
    /// The state continues; reported once a minute.
    Continues,
    /// The state ended.
    Ended,
}

/// Subject of a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Late {
    /// A late rank or host.
    Late(LateLine),
    /// Ranks that are waiting for others.
    Waiting(WaitLine),
}

impl LateRecord {
    /// Returns the last line about each lateness and each wait, oldest first; it has the totals.
    pub fn last_of_each(records: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut last: Vec<Self> = Vec::new();
        for record in records {
            last.retain(|known| !known.about.is_same(&record.about));
            last.push(record);
        }
        last
    }
}

impl Late {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Late(one), Self::Late(other)) => one.is_same(other),
            (Self::Waiting(one), Self::Waiting(other)) => one.is_same(other),
            _ => false,
        }
    }
}

impl LateStanding {
    /// Returns the state after these lines of `late.jsonl`, oldest first.
    pub fn after(records: impl IntoIterator<Item = LateRecord>) -> Self {
        let mut standing = Self::default();
        let last = LateRecord::last_of_each(records);
        for record in last.into_iter().filter(|record| record.event != LateEvent::Ended) {
            match record.about {
                Late::Late(line) => standing.late.push(line),
                Late::Waiting(line) => standing.waiting.push(line),
            }
        }
        standing.late.sort_by(|a, b| b.share.total_cmp(&a.share));
        standing
    }
}

impl LateLine {
    /// Describes a late member; `host_of_rank` and `hosts` hold the run's host names.
    pub(super) fn new(found: &Lateness, host_of_rank: &[String], hosts: &[String]) -> Self {
        let name = |names: &[String], number: u32| names.get(number as usize).cloned().unwrap_or_default();
        let (rank, host) = match found.member {
            Member::Rank(rank) => (Some(rank), name(host_of_rank, rank)),
            Member::Host(host) => (None, name(hosts, host)),
        };
        let window = |window: &Window| LateWindow {
            length_s: Some(window.length_ns.unsigned_abs() / 1_000_000_000).filter(|length| *length > 0),
            operations: window.operations,
            late: window.late,
            lost_ns: window.lost_ns,
        };
        Self {
            rank,
            host,
            group: found.group.clone(),
            since_ns: found.since_ns,
            last_ns: found.last_ns,
            operations: found.operations,
            times: found.times,
            lead_ns: found.lead_ns,
            lead_sigma_ns: found.lead_sigma_ns,
            share: found.share,
            windows: found.windows.iter().map(window).collect(),
        }
    }

    /// The sentence about a lateness that may be over.
    pub fn until(&self) -> String {
        format!("{self}, until {}", time_of_day(self.last_ns))
    }

    /// Returns true if two lines describe the same lateness.
    fn is_same(&self, other: &Self) -> bool {
        (self.rank, &self.host, &self.group, self.since_ns) == (other.rank, &other.host, &other.group, other.since_ns)
    }
}

impl WaitLine {
    /// Describes a wait; `host_of_rank` holds the run's host names.
    pub(super) fn new(found: &Waiting, host_of_rank: &[String]) -> Self {
        let missing = |(rank, last_step): &(u32, Option<u64>)| MissingRank {
            rank: *rank,
            host: host_of_rank.get(*rank as usize).cloned().unwrap_or_default(),
            last_step: *last_step,
        };
        Self {
            group: found.group.clone(),
            step: found.step,
            since_ns: found.since_ns,
            waited_ns: found.waited_ns,
            missing: found.missing.iter().take(RANKS_TOLD).map(missing).collect(),
            missing_ranks: found.missing.len() as u32,
            waiting: found.waiting.iter().take(RANKS_TOLD).copied().collect(),
            waiting_ranks: found.waiting.len() as u32,
        }
    }

    /// Returns true if two lines describe the same wait.
    fn is_same(&self, other: &Self) -> bool {
        (&self.group, self.step, self.since_ns) == (&other.group, other.step, other.since_ns)
    }
}

impl fmt::Display for LateLine {
    /// `rank 5 on gpu-05: 41 of 50 operations of grads, by 3.1 ms ± 2.0 µs, since 12:03:11, 2.6 % of the time`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(f, "rank {rank} on {}", self.host)?,
            None => write!(f, "host {} with all its ranks", self.host)?,
        }
        write!(
            f,
            ": {} of {} operations of {}, by {} ± {}, since {}, {:.1} % of the time",
            self.times,
            self.operations,
            self.group,
            span(self.lead_ns as f64),
            span(self.lead_sigma_ns),
            time_of_day(self.since_ns),
            100.0 * self.share
        )
    }
}

impl fmt::Display for WaitLine {
    /// `#4711 of tp_1: rank 3 on gpu-01 has not arrived for 12.4 s; ranks 0, 1, 2 wait`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} of {}: ", self.step, self.group)?;
        for (place, missing) in self.missing.iter().enumerate() {
            write!(f, "{}rank {} on {}", if place > 0 { ", " } else { "" }, missing.rank, missing.host)?;
            if let Some(step) = missing.last_step.filter(|step| *step > self.step) {
                write!(f, " (at #{step})")?;
            }
        }
        let others = self.missing_ranks as usize - self.missing.len().min(self.missing_ranks as usize);
        if others > 0 {
            write!(f, " and {others} more")?;
        }
        let have = if self.missing_ranks == 1 { "has" } else { "have" };
        write!(f, " {have} not arrived for {:.1} s; ", self.waited_ns as f64 * 1e-9)?;
        let waiting: Vec<String> = self.waiting.iter().map(u32::to_string).collect();
        let more = if self.waiting_ranks as usize > waiting.len() { ", …" } else { "" };
        match self.waiting_ranks {
            1 => write!(f, "rank {} waits", waiting.join(", ")),
            _ => write!(f, "ranks {}{more} wait", waiting.join(", ")),
        }
    }
}

/// Formats a time with its unit, to two or three digits.
fn span(ns: f64) -> String {
    match ns.abs() {
        size if size < 999.5 => format!("{ns:.0} ns"),
        size if size < 999_500.0 => format!("{:.1} µs", ns * 1e-3),
        size if size < 999_500_000.0 => format!("{:.1} ms", ns * 1e-6),
        _ => format!("{:.1} s", ns * 1e-9),
    }
}

/// Formats a reference time as hours, minutes and seconds, UTC.
fn time_of_day(ns: i64) -> String {
    let seconds = ns.div_euclid(1_000_000_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// File of late ranks and of waits.
pub(crate) const LATE_FILE: &str = "late.jsonl";
/// Version of the lines of `late.jsonl`.
pub(super) const SCHEMA: u32 = 1;
/// Most ranks listed in a line; further ones are only counted.
const RANKS_TOLD: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences() {
        let late = LateLine {
            rank: Some(5),
            host: "gpu-05".into(),
            group: "grads".into(),
            since_ns: 1_800_000_191_000_000_000,
            operations: 50,
            times: 41,
            lead_ns: 3_100_000,
            lead_sigma_ns: 2000.0,
            share: 0.026,
            ..LateLine::default()
        };
        let expected =
            "rank 5 on gpu-05: 41 of 50 operations of grads, by 3.1 ms ± 2.0 µs, since 08:03:11 UTC, 2.6 % of the time";
        assert_eq!(late.to_string(), expected);
        assert!(LateLine { rank: None, ..late }.to_string().starts_with("host gpu-05 with all its ranks: 41 of 50"));
        let missing = |rank, last_step| MissingRank { rank, host: "gpu-01".into(), last_step };
        let wait = WaitLine {
            group: "tp_1".into(),
            step: 4711,
            waited_ns: 12_400_000_000,
            missing: vec![missing(3, Some(4710))],
            missing_ranks: 1,
            waiting: vec![0, 1, 2],
            waiting_ranks: 3,
            ..WaitLine::default()
        };
        assert_eq!(wait.to_string(), "#4711 of tp_1: rank 3 on gpu-01 has not arrived for 12.4 s; ranks 0, 1, 2 wait");
        let wait = WaitLine {
            missing: vec![missing(3, Some(4712)), missing(4, None)],
            missing_ranks: 4,
            waiting: vec![0],
            waiting_ranks: 1,
            ..wait
        };
        assert_eq!(
            wait.to_string(),
            "#4711 of tp_1: rank 3 on gpu-01 (at #4712), rank 4 on gpu-01 and 2 more have not arrived for 12.4 s; rank 0 waits"
        );
    }
}
