//! The job at the moment at which its ranks wrote their dumps: which operations each rank has
//! enqueued and not finished, and how far it is in each group.
//!
//! Operations of a group are matched by group and sequence number. A group is identified by name
//! and members, because processes may give one number to different groups. Point-to-point
//! operations have numbers that count differently in each process, so they are matched by their
//! order among the unfinished ones of the pair.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::dump::{DEFAULT_GROUP, Dump, DumpError, Entry};
use crate::recent::Recent;

/// Everything known about a job that has stopped.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Job {
    pub(crate) groups: Vec<Group>,
    pub(crate) ranks: BTreeMap<u32, Rank>,
    /// Ranks without a usable dump that were added as such, with the reason.
    pub(crate) unusable: BTreeMap<u32, String>,
    /// True if only the numbers of operations are known, not the operations.
    pub(crate) is_counted: bool,
    /// Groups in which ranks began operations while they were asked.
    pub(crate) advancing: Vec<String>,
    names: Names,
    by_identity: HashMap<(String, Vec<u32>), u32>,
}

/// A process group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub name: String,
    pub description: String,
    /// Global ranks, in the order of the group's own ranks.
    pub members: Vec<u32>,
    /// True if some member has a point-to-point operation in it.
    pub point_to_point: bool,
}

/// What one rank's dump says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rank {
    pub host: Option<String>,
    /// Unfinished operations, in the order of their enqueues.
    pub pending: Vec<Operation>,
    pub progress: BTreeMap<u32, Progress>,
    /// CLOCK_REALTIME of the last enqueue, ns.
    pub last_enqueue_ns: Option<i64>,
    /// Number of entries in the dump.
    pub entries: usize,
    /// True if the dump holds finished operations as well as unfinished ones.
    pub has_finished: bool,
    /// Location in the program where the last operation was enqueued.
    pub last_frame: Option<String>,
    /// The last operation, if it has ended and nothing shows whether it succeeded: gloo's dumps do
    /// not tell a failure from a success.
    pub ended_last: Option<Operation>,
    /// The groups that this rank states.
    pub groups: BTreeSet<u32>,
    pub recent: Recent,
}

/// Progress of a rank in the collectives of a group.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Progress {
    pub enqueued: Option<u64>,
    pub completed: Option<u64>,
}

/// An unfinished operation of one rank.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Operation {
    pub group: u32,
    /// The operation's name, interned.
    pub name: u32,
    pub kind: Kind,
    /// Tensor type, interned.
    pub element: u32,
    pub elements_in: Option<u64>,
    pub created_ns: Option<i64>,
    /// True if the device was seen to have begun it.
    pub started: bool,
}

/// How an operation is matched.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An operation of the whole group.
    Collective { sequence: u64 },
    /// A message to another rank, given by its global number.
    Send { to: u32, sequence: u64 },
    /// A message from another rank.
    Receive { from: u32, sequence: u64 },
    /// Messages in one call, whose partners are not stated.
    Unmatched,
}

/// Frequent texts, each stored once.
#[derive(Clone, Debug, Default)]
struct Names {
    texts: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Job {
    /// Creates a job without ranks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the dump of a rank.
    ///
    /// # Errors
    /// Returns [`DumpError::NotADump`] if the dump's groups do not have this rank as a member, or
    /// if the rank was added before.
    pub fn add(&mut self, rank: u32, dump: &Dump) -> Result<(), DumpError> {
        if self.ranks.contains_key(&rank) {
            return Err(DumpError::NotADump(format!("there is another dump of rank {rank}")));
        }
        dump.refuse_other_rank(rank)?;
        let mut found = Rank { host: dump.host_name.clone(), entries: dump.entries.len(), ..Rank::default() };
        let mut numbers: BTreeMap<u64, u32> = BTreeMap::new();
        for (name, group) in dump.stated_groups() {
            let at = self.group(name, group.desc.as_deref().unwrap_or_default(), &group.ranks.0);
            found.groups.insert(at);
        }
        let mut by_name: HashMap<&str, u32> = HashMap::new();
        for entry in &dump.entries {
            let (name, description) = (entry.process_group.0.0.as_str(), &entry.process_group.1.0);
            let group = match by_name.get(name) {
                Some(known) => *known,
                None => self.group(name, description, dump.members(name)),
            };
            if by_name.insert(name, group).is_none() {
                found.groups.insert(group);
            }
            numbers.insert(entry.pg_id, group);
            self.add_entry(&mut found, rank, group, entry);
        }
        found.last_enqueue_ns = dump.entries.iter().filter_map(|entry| entry.time_created_ns).max();
        found.last_frame = dump.entries.last().and_then(|entry| entry.frames.0.clone());
        self.add_status(&mut found, dump, &numbers);
        self.unusable.remove(&rank);
        self.ranks.insert(rank, found);
        Ok(())
    }

    /// Returns true if the dump of this rank was added.
    pub fn has(&self, rank: u32) -> bool {
        self.ranks.contains_key(&rank)
    }

    /// Adds a rank whose dump could not be used, with the reason.
    pub fn add_unusable(&mut self, rank: u32, reason: String) {
        if !self.ranks.contains_key(&rank) {
            self.unusable.insert(rank, reason);
        }
    }

    /// Returns each rank's last enqueue, ns of its own CLOCK_REALTIME.
    pub fn last_enqueues(&self) -> impl Iterator<Item = (u32, i64)> {
        self.ranks.iter().filter_map(|(rank, state)| Some((*rank, state.last_enqueue_ns?)))
    }

    /// Returns the members of each group.
    ///
    /// If dumps do not state them, they are the ranks that have used the group, and those of the
    /// job that left no dump, which may be members. All ranks are in torch's default group.
    pub(crate) fn members(&self) -> Vec<Vec<u32>> {
        let missing = self.missing();
        let mut used: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (rank, state) in &self.ranks {
            state.groups.iter().for_each(|group| used.entry(*group).or_default().push(*rank));
        }
        let mut members = |(at, group): (usize, &Group)| match group.members.is_empty() {
            false => group.members.clone(),
            true if group.description == DEFAULT_GROUP => self.ranks.keys().chain(missing.keys()).copied().collect(),
            true => used.remove(&(at as u32)).unwrap_or_default().into_iter().chain(missing.keys().copied()).collect(),
        };
        self.groups.iter().enumerate().map(&mut members).collect()
    }

    /// Returns the ranks of the job that have no usable dump, with the reason.
    pub(crate) fn missing(&self) -> BTreeMap<u32, String> {
        let members = self.groups.iter().flat_map(|group| &group.members).copied();
        let last = self.ranks.keys().chain(self.unusable.keys()).max().copied().unwrap_or(0);
        let unstated = self.groups.iter().any(|group| group.members.is_empty());
        // The number of a file's name may be anything.
        let numbered = (0..=last.min(LAST_RANK)).filter(|_| unstated);
        let all: BTreeSet<u32> = members.chain(numbered).chain(self.unusable.keys().copied()).collect();
        let absent = all.into_iter().filter(|rank| !self.ranks.contains_key(rank));
        absent.map(|rank| (rank, self.unusable.get(&rank).cloned().unwrap_or_else(|| "no dump".to_owned()))).collect()
    }

    /// Returns an interned name.
    pub(crate) fn text(&self, number: u32) -> &str {
        self.names.texts.get(number as usize).map_or("", String::as_str)
    }

    fn add_entry(&mut self, rank: &mut Rank, own: u32, group: u32, entry: &Entry) {
        let name = entry.name();
        let kind = self.kind(own, group, name, entry);
        self.groups[group as usize].point_to_point |= entry.is_p2p;
        let completed = entry.is_finished();
        let interned = self.names.number(name);
        rank.recent.push(entry, interned, group, completed);
        if let Kind::Collective { sequence } = kind {
            let progress = rank.progress.entry(group).or_default();
            progress.enqueued = progress.enqueued.max(Some(sequence));
            if completed {
                progress.completed = progress.completed.max(Some(sequence));
            }
        }
        if completed {
            (rank.has_finished, rank.ended_last) = (true, None);
            if entry.has_succeeded() || entry.is_p2p || !rank.pending.is_empty() {
                return;
            }
        }
        // The pair is in the kind; the rest of a message's name is its direction.
        let name = name.split(' ').next().filter(|_| entry.is_p2p);
        let operation = Operation {
            group,
            name: name.map_or(interned, |name| self.names.number(name)),
            kind,
            element: self
                .names
                .number(entry.input_dtypes.as_ref().and_then(|types| types.0.first()).map_or("", String::as_str)),
            elements_in: entry.input_sizes.elements(),
            created_ns: entry.time_created_ns,
            started: entry.state.as_deref() == Some("started"),
        };
        if completed {
            rank.ended_last = Some(operation);
        } else {
            rank.ended_last = None;
            rank.pending.push(operation);
        }
    }

    /// Takes who sends to whom from the operation's name, such as `send 0->3` or `recv 3<-0`.
    fn kind(&self, own: u32, group: u32, name: &str, entry: &Entry) -> Kind {
        let sequence = entry.sequence();
        if !entry.is_p2p {
            return Kind::Collective { sequence };
        }
        let members = &self.groups[group as usize].members;
        let global = |text: &str| {
            let number: u32 = text.trim().parse().ok()?;
            members.get(number as usize).copied()
        };
        let pair = |separator: &str| {
            let (_, pair) = name.split_once(' ')?;
            let (near, far) = pair.split_once(separator)?;
            Some((global(near)?, global(far)?))
        };
        match (pair("->"), pair("<-")) {
            (Some((_, to)), _) if to != own => Kind::Send { to, sequence },
            (_, Some((_, from))) if from != own => Kind::Receive { from, sequence },
            _ => Kind::Unmatched,
        }
    }

    /// Takes progress from `pg_status`, whose keys are the process's own numbers of its groups.
    ///
    /// A process numbers its groups in the order in which it makes them, and their names count all
    /// groups of the job in that order. Where the entries do not say which number belongs to which
    /// name, both are put in order; if that contradicts an entry, the rest is left out. The status
    /// of a group counts collectives and messages alike, so it serves only groups without messages.
    fn add_status(&self, rank: &mut Rank, dump: &Dump, numbers: &BTreeMap<u64, u32>) {
        let mut names: Vec<(u64, u32)> = Vec::new();
        for (name, group) in &dump.pg_config {
            let identity = (name.clone(), group.ranks.0.clone());
            if let (Ok(number), Some(at)) = (name.parse(), self.by_identity.get(&identity)) {
                names.push((number, *at));
            }
        }
        names.sort_unstable();
        let mut status: Vec<(u64, crate::dump::Status)> =
            dump.pg_status.iter().filter_map(|(number, status)| Some((number.parse().ok()?, *status))).collect();
        status.sort_unstable_by_key(|(number, _)| *number);
        let in_order = names.len() == status.len() && names.len() == dump.pg_config.len();
        let agrees = |number: &u64, at: u32| numbers.get(number).is_none_or(|known| *known == at);
        let in_order = in_order && status.iter().zip(&names).all(|((number, _), (_, at))| agrees(number, *at));
        for (place, (number, status)) in status.iter().enumerate() {
            let known = numbers.get(number).copied().or_else(|| in_order.then(|| names[place].1));
            let Some(group) = known.filter(|group| !self.groups[*group as usize].point_to_point) else { continue };
            let progress = rank.progress.entry(group).or_default();
            progress.enqueued = progress.enqueued.max(status.last_enqueued_collective.0);
            progress.completed = progress.completed.max(status.last_completed_collective.0);
        }
    }

    /// Returns the number of a name, which is interned.
    pub(crate) fn number(&mut self, text: &str) -> u32 {
        self.names.number(text)
    }

    /// Returns the number of a group, which is added if it is new.
    pub(crate) fn group(&mut self, name: &str, description: &str, members: &[u32]) -> u32 {
        let identity = (name.to_owned(), members.to_vec());
        if let Some(at) = self.by_identity.get(&identity) {
            return *at;
        }
        let at = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        self.groups.push(Group {
            name: name.to_owned(),
            description: description.to_owned(),
            members: members.to_vec(),
            point_to_point: false,
        });
        self.by_identity.insert(identity, at);
        at
    }
}

impl Rank {
    /// Returns the unfinished collective of this number.
    pub fn pending_collective(&self, group: u32, sequence: u64) -> Option<&Operation> {
        let wanted = Kind::Collective { sequence };
        self.pending.iter().find(|operation| operation.group == group && operation.kind == wanted)
    }

    /// Returns true if the rank has enqueued the collective; `None` if its dump does not say.
    pub fn has_enqueued(&self, group: u32, sequence: u64) -> Option<bool> {
        match self.progress.get(&group).and_then(|progress| progress.enqueued) {
            Some(enqueued) => Some(enqueued >= sequence),
            // The ring holds the last operations, and this one is younger than what it waits for.
            None => (self.has_finished || self.entries == 0).then_some(false),
        }
    }

    /// Returns true if the rank has finished the collective.
    pub fn has_completed(&self, group: u32, sequence: u64) -> bool {
        self.has_enqueued(group, sequence) == Some(true)
            && self.pending_collective(group, sequence).is_none()
            && self.progress.get(&group).and_then(|progress| progress.completed).is_none_or(|last| last >= sequence)
    }
}

impl Names {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

/// Higher ranks are not taken for ranks without a dump if dumps do not state the members of groups.
const LAST_RANK: u32 = 65_535;
