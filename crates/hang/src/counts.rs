//! How far each rank is in each group, for jobs whose operations were not recorded: the
//! arrivals of a run's session (`arrivals.json`), and the status of NCCL's RAS subsystem as JSON
//! (`ncclras -f json`, NCCL 2.28 and later).
//!
//! Field names of RAS are those of `src/ras/client_support.cc` in NCCL.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Deserialize;

use crate::dump::{DumpError, read_json};
use crate::job::{Job, Kind, Operation, Progress, Rank};

/// Counts of the operations that ranks have begun, by group.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    pub(crate) groups: Vec<CountedGroup>,
    /// Ranks that gave no answer, with the reason; their counts are from before.
    pub(crate) silent: BTreeMap<u32, String>,
    /// Groups in which ranks began operations while they were asked.
    pub(crate) advancing: Vec<String>,
    /// Ranks that gave counts, but did not write a dump that they were asked for, with the reason.
    pub(crate) without_dump: BTreeMap<u32, String>,
    pub(crate) hosts: BTreeMap<u32, String>,
}

/// A group with the progress of its members.
#[derive(Clone, Debug)]
pub(crate) struct CountedGroup {
    pub name: String,
    pub description: String,
    /// Global ranks, in the order of the group's own ranks.
    pub members: Vec<u32>,
    /// What each member has begun; if it is silent, it may have begun more.
    pub begun: BTreeMap<u32, Begun>,
}

/// What a member has begun in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begun {
    /// Number of its last operation.
    pub last: Option<u64>,
    /// Number of operations of each type, if known; then `last` is their sum.
    pub types: BTreeMap<String, u64>,
}

impl Counts {
    /// Largest file: the arrivals of 10 000 ranks in 100 groups take 40 MB.
    pub const MAX_BYTES: usize = 128 << 20;

    /// Reads `arrivals.json` or the JSON of RAS.
    ///
    /// # Errors
    /// Returns what is wrong with the file.
    ///
    /// # Examples
    /// ```
    /// let text = br#"{"schema": 1, "ranks": [{"rank": 0, "host": "a", "answer": "complete"}], "groups": []}"#;
    /// assert!(probe_sync_hang::Counts::read(text).is_ok());
    /// assert!(probe_sync_hang::Counts::read(b"{}").is_err());
    /// ```
    pub fn read(bytes: &[u8]) -> Result<Self, DumpError> {
        if bytes.len() > Self::MAX_BYTES {
            return Err(DumpError::TooLarge { bytes: bytes.len(), most: Self::MAX_BYTES });
        }
        match read_json(bytes)? {
            Document { communicators: Some(communicators), .. } => ras(&communicators),
            Document { schema: Some(1), ranks: Some(ranks), groups: Some(groups), advancing, .. } => {
                Ok(Self { advancing, ..arrivals(ranks, groups) })
            }
            _ => Err(DumpError::NotADump("it is neither arrivals.json of a run nor the JSON of NCCL RAS".to_owned())),
        }
    }
}

#[derive(Deserialize)]
struct Document {
    communicators: Option<Vec<Communicator>>,
    schema: Option<u32>,
    ranks: Option<Vec<Answered>>,
    groups: Option<Vec<Arrived>>,
    #[serde(default)]
    advancing: Vec<String>,
}

/// A rank's answer to `hang --live`.
#[derive(Deserialize)]
struct Answered {
    rank: u32,
    host: String,
    answer: Answer,
    /// Arrivals of it were lost.
    #[serde(default)]
    lost: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// It has written what it has.
    Complete,
    /// Its session answered, its program did not.
    SessionOnly,
    None,
}

#[derive(Deserialize)]
struct Arrived {
    name: String,
    last: Vec<Last>,
}

/// A rank's last arrival in a group.
#[derive(Deserialize)]
struct Last {
    rank: u32,
    step: u64,
    /// How often the steps have begun again from a lower number.
    #[serde(default)]
    restarts: u32,
}

fn arrivals(ranks: Vec<Answered>, groups: Vec<Arrived>) -> Counts {
    let mut counts = Counts::default();
    for rank in ranks {
        match rank.answer {
            Answer::Complete => {}
            Answer::SessionOnly => {
                let reason = "its session answered, but its program did not";
                counts.without_dump.insert(rank.rank, reason.to_owned());
            }
            Answer::None => drop(counts.silent.insert(rank.rank, "its session did not answer".to_owned())),
        }
        if rank.lost {
            counts.silent.entry(rank.rank).or_insert_with(|| "some of its arrivals were lost".to_owned());
        }
        counts.hosts.insert(rank.rank, rank.host);
    }
    for group in groups {
        let latest = group.last.iter().map(|last| last.restarts).max().unwrap_or(0);
        // If most have not begun again, one may have counted wrongly.
        let are_back = group.last.iter().filter(|last| last.restarts == latest).count();
        if 2 * are_back <= group.last.len() {
            continue;
        }
        // A rank that has not begun again has begun nothing of the present steps.
        let begun = |last: &Last| Begun { last: (last.restarts == latest).then_some(last.step), ..Begun::default() };
        let begun = group.last.iter().map(|last| (last.rank, begun(last))).collect();
        let members: BTreeSet<u32> = group.last.iter().map(|last| last.rank).collect();
        counts.groups.push(CountedGroup {
            name: group.name,
            description: String::new(),
            members: members.into_iter().collect(),
            begun,
        });
    }
    counts
}

#[derive(Deserialize)]
struct Communicator {
    hash: String,
    size: u32,
    ranks: Vec<RasRank>,
    #[serde(default)]
    missing_ranks: Vec<MissingRank>,
}

#[derive(Deserialize)]
struct RasRank {
    #[serde(flatten)]
    place: Place,
    collective_counts: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct MissingRank {
    #[serde(flatten)]
    place: Place,
    status: MissingStatus,
}

#[derive(Deserialize)]
struct MissingStatus {
    #[serde(default)]
    unresponsive: bool,
    #[serde(default)]
    considered_dead: bool,
}

/// A rank of a communicator, and the device that it uses.
#[derive(Deserialize)]
struct Place {
    /// Its rank in the communicator.
    rank: u32,
    host: String,
    pid: i64,
    cuda_dev: i64,
}

/// What identifies a rank in all communicators.
type Device<'a> = (&'a str, i64, i64);

impl Place {
    /// Returns the device, if RAS knew the process.
    fn device(&self) -> Option<Device<'_>> {
        (self.pid > 0 && self.host != "unknown").then_some((self.host.as_str(), self.pid, self.cuda_dev))
    }
}

impl Communicator {
    fn places(&self) -> impl Iterator<Item = &Place> {
        self.ranks.iter().map(|rank| &rank.place).chain(self.missing_ranks.iter().map(|missing| &missing.place))
    }
}

/// Numbers the ranks of the job by the communicator that all of them are in.
fn ras(communicators: &[Communicator]) -> Result<Counts, DumpError> {
    let devices: BTreeSet<Device<'_>> =
        communicators.iter().flat_map(Communicator::places).filter_map(Place::device).collect();
    let largest = communicators.iter().map(|communicator| communicator.size).max();
    let mut worlds =
        communicators.iter().filter(|communicator| Some(communicator.size) == largest).map(|communicator| {
            let places = communicator.places().filter_map(|place| Some((place.device()?, place.rank)));
            (communicator, places.collect::<HashMap<Device<'_>, u32>>())
        });
    let is_whole = |(communicator, numbers): &(&Communicator, HashMap<Device<'_>, u32>)| {
        numbers.len() == devices.len() && communicator.places().count() == communicator.size as usize
    };
    let Some((world, numbers)) =
        worlds.next().filter(is_whole).filter(|(_, first)| worlds.all(|(_, other)| other == *first))
    else {
        let reason = "no communicator has all ranks, so its numbers are not those of the job";
        return Err(DumpError::NotADump(reason.to_owned()));
    };
    let mut counts = Counts::default();
    for place in world.places() {
        counts.hosts.insert(place.rank, place.host.clone());
    }
    for missing in &world.missing_ranks {
        let reason = match &missing.status {
            MissingStatus { considered_dead: true, .. } => "NCCL considers it dead",
            MissingStatus { unresponsive: true, .. } => "NCCL gets no response from it",
            _ => "NCCL has no data of it",
        };
        counts.silent.insert(missing.place.rank, reason.to_owned());
    }
    for communicator in communicators {
        let mut members: BTreeMap<u32, u32> = BTreeMap::new();
        for place in communicator.places() {
            let is_world = std::ptr::eq(communicator, world);
            let number =
                if is_world { Some(place.rank) } else { place.device().and_then(|own| numbers.get(&own).copied()) };
            number.and_then(|number| members.insert(place.rank, number));
        }
        // Nothing is concluded from a group some of whose members are unknown.
        if members.len() != communicator.size as usize {
            continue;
        }
        let begun = communicator.ranks.iter().filter_map(|rank| {
            let last = rank.collective_counts.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
            let number = members.get(&rank.place.rank)?;
            Some((*number, Begun { last: Some(last), types: rank.collective_counts.clone() }))
        });
        counts.groups.push(CountedGroup {
            name: communicator.hash.clone(),
            description: format!("communicator {}", communicator.hash),
            begun: begun.collect(),
            members: members.into_values().collect(),
        });
    }
    Ok(counts)
}

impl Job {
    /// Adds counts: of ranks without a dump the reason, and, if no dump was added, what each rank
    /// has begun. A rank waits in the first operation that it has begun and another member has not.
    pub fn add_counts(&mut self, counts: &Counts) {
        for (rank, reason) in &counts.silent {
            self.add_unusable(*rank, reason.clone());
        }
        let has_dumps = !self.ranks.is_empty();
        for (rank, reason) in counts.without_dump.iter().filter(|_| has_dumps) {
            self.add_unusable(*rank, reason.clone());
        }
        for (rank, host) in &counts.hosts {
            match self.ranks.get_mut(rank) {
                Some(known) => drop(known.host.get_or_insert_with(|| host.clone())),
                None if has_dumps || counts.silent.contains_key(rank) => {}
                None => {
                    let counted = Rank { host: Some(host.clone()), has_finished: true, ..Rank::default() };
                    self.ranks.insert(*rank, counted);
                }
            }
        }
        self.advancing.extend(counts.advancing.iter().cloned());
        if !has_dumps {
            self.is_counted = true;
            counts.groups.iter().for_each(|group| self.add_group(group));
        }
    }

    fn add_group(&mut self, group: &CountedGroup) {
        let at = self.group(&group.name, &group.description, &group.members);
        let behind = |rank: &u32| group.begun.get(rank).and_then(|begun| begun.last);
        let least = group.members.iter().map(behind).min().flatten();
        let ahead = group.begun.values().filter_map(|begun| begun.last).filter(|last| Some(*last) > least);
        let next = ahead.min();
        let types: BTreeSet<&BTreeMap<String, u64>> =
            group.begun.values().filter(|begun| begun.last == least).map(|begun| &begun.types).collect();
        let base = types.first().copied().cloned().unwrap_or_default();
        for (rank, begun) in &group.begun {
            let Some(last) = begun.last else { continue };
            let waits_in = match next {
                // Members that have begun as many operations, but others.
                _ if types.len() > 1 && begun.last == least => Some((last, told(&begun.types))),
                Some(next) if last >= next => Some((next, ahead_in(&base, &begun.types).to_owned())),
                _ => None,
            };
            let name = waits_in.as_ref().map(|(_, name)| self.number(name));
            let element = self.number("");
            let Some(rank) = self.ranks.get_mut(rank) else { continue };
            rank.groups.insert(at);
            rank.progress.insert(at, Progress { enqueued: begun.last, completed: least });
            if let (Some((sequence, _)), Some(name)) = (waits_in, name) {
                let kind = Kind::Collective { sequence };
                let (elements_in, created_ns, started) = (None, None, false);
                rank.pending.push(Operation { group: at, name, kind, element, elements_in, created_ns, started });
            }
        }
    }
}

/// Returns the type of the operations that a rank has begun beyond these, if it is one.
fn ahead_in<'a>(base: &BTreeMap<String, u64>, types: &'a BTreeMap<String, u64>) -> &'a str {
    let mut ahead = types.iter().filter(|(name, count)| base.get(*name).unwrap_or(&0) < count);
    match (ahead.next(), ahead.next()) {
        (Some((name, _)), None) => name,
        _ => "operation",
    }
}

/// `11 AllReduce, 4 Broadcast`.
fn told(types: &BTreeMap<String, u64>) -> String {
    let counted = types.iter().filter(|(_, count)| **count > 0).map(|(name, count)| format!("{count} {name}"));
    counted.collect::<Vec<_>>().join(", ")
}
