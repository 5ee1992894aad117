//! Matches the communicators of different processes, each of which knows them only by local
//! handles.
//!
//! This happens after all traces are read and before any operation is matched. A profiler of NCCL
//! calls records the communicator as an address, which distinguishes communicators only within its
//! process. If the traces of all ranks contain the calls that created them, these calls show which
//! are the same (`assignment`). Otherwise the available facts are a communicator's number of ranks
//! and the process's rank in it (if the trace contains the call that created it), and the
//! operations performed in it. Communicators of two processes are then matched only if no other
//! assignment is possible:
//!
//! - **All ranks of the job.** A communicator as large as the job has every rank in it. Where each
//!   process has one such communicator in which the same was done, these are one.
//! - **Some ranks.** Where the traces of all ranks are here, and of the communicators of one size
//!   in which the same was done each place (0, 1, …) is taken by exactly one process, these are
//!   one. Two pairs of ranks that did the same are not told apart, and one in which nothing was
//!   done leaves all of its size open: a trace may have lost what was.
//! - **Counts confirm, and never tell apart.** A trace may end early, or begin late: it then has
//!   fewer of a kind than the others of its communicator, or none of it, and may so have as many as
//!   another communicator. So of the communicators of one size each must have a kind that no other
//!   has. One that has none leaves itself and all that share a kind with it open. One of unknown
//!   size counts with all sizes below the job's.
//! - **Unknown size**, since a trace begins later: where every process has one communicator and all
//!   did the same in it, down to a root as high as the number of processes allows, it has at least
//!   as many ranks as there are processes, and these are one. Who has which rank in it is then
//!   known only where all processes state their rank of the job; else its roots are nobody's.
//!
//! "The same" is each kind of collective, with type, number of elements and root, equally often.
//! Messages are left out of it: one rank's send is another's receive. Where the size of the job is
//! not stated, the processes that used any communicator count as all. All else stays
//! [`Instance::Communicator`], and `matching` says so of it. It does not use times.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use probe_sync_formats::model::parts::CollectiveParts;
use probe_sync_formats::model::{CollectiveKind, Communicator, GroupKey, Instance, Label, Picoseconds};

use super::assignment::{Assignment, Handle, assign};

/// Input from one process.
pub(crate) struct Process<'a> {
    /// Its rank in the job, or what distinguishes it from the others.
    pub(crate) rank: u32,
    /// The rank is a fact, not an index in a list.
    pub(crate) is_known: bool,
    /// Ranks in the job, if stated.
    pub(crate) world_size: Option<u32>,
    /// Its knowledge about its communicators.
    pub(crate) communicators: &'a mut [Communicator],
    /// A time of its trace on a clock that it shares with others, by that clock's number, and its
    /// possible error there; `None` if no such clock is known.
    pub(crate) clock: Box<Shared<'a>>,
    /// The operations in them.
    pub(crate) parts: &'a mut CollectiveParts,
}

/// The way to a shared clock.
pub(crate) type Shared<'a> = dyn Fn(Picoseconds) -> Option<(u32, Picoseconds, Picoseconds)> + 'a;

/// Gives communicators that are certainly the same a common name in the labels of all processes;
/// returns which groups stay open, in words.
pub(crate) fn join(processes: &mut [Process<'_>]) -> Vec<String> {
    let open = join_as_made(processes);
    join_by_use(processes);
    open
}

/// Joins communicators by their creation.
fn join_as_made(processes: &mut [Process<'_>]) -> Vec<String> {
    let handles_of = |process: &Process<'_>| process.communicators.iter().any(|known| known.joined.is_none());
    let users: Vec<usize> = (0..processes.len()).filter(|place| handles_of(&processes[*place])).collect();
    let stated: BTreeSet<Option<u32>> = users.iter().map(|place| processes[*place].world_size).collect();
    let ranks: BTreeSet<u32> = users.iter().map(|place| processes[*place].rank).collect();
    let (Some(Some(size)), 1) = (stated.first().copied(), stated.len()) else { return Vec::new() };
    let all = users.iter().flat_map(|place| processes[*place].communicators.iter());
    let lacks = |known: &Communicator| !known.named || known.size.is_none() || known.rank.is_none();
    // What was made before a trace began, or otherwise, may be anything; so may be what ranks have
    // that are not here.
    let known = users.iter().all(|place| processes[*place].is_known);
    if !known || all.clone().any(lacks) || !ranks.iter().copied().eq(0..size) {
        return Vec::new();
    }
    if is_contradicted(processes) {
        return Vec::new();
    }
    let mut kinds = HashMap::new();
    let (mut handles, mut owners) = (Vec::new(), Vec::new());
    for place in users {
        let Process { rank: job_rank, communicators, parts, clock, .. } = &processes[place];
        let mut uses = uses(parts, &mut kinds);
        for (number, known) in (0..).zip(communicators.iter()).filter(|(_, known)| known.joined.is_none()) {
            let (Some(size), Some(rank)) = (known.size, known.rank) else { continue };
            if rank >= size || size < 2 {
                continue;
            }
            let seen = known.made.and_then(|(start, end)| {
                let ((number, from, off), (_, until, more)) = (clock(start)?, clock(end)?);
                Some((number, from.saturating_sub(off), until.saturating_add(more)))
            });
            let uses = uses.as_mut().map(|uses| Rc::from(uses.remove(&number).unwrap_or_default()));
            let made = known.made;
            handles.push(Handle { process: place, job_rank: *job_rank, rank, size, made, seen, uses });
            owners.push((place, number));
        }
    }
    let Assignment { certain, open } = assign(&handles);
    let joined = joined(processes, &handles, &owners, &certain);
    name(processes, &joined);
    open.iter().map(|group| told(group, &handles)).collect()
}

/// The communicators that are certain, by process and number of each of their handles; `owners` are
/// these, in the order of the handles.
fn joined(
    processes: &[Process<'_>],
    handles: &[Handle],
    owners: &[(usize, u32)],
    certain: &[Vec<usize>],
) -> BTreeMap<(usize, u32), Joined> {
    let mut joined = BTreeMap::new();
    for group in certain {
        let ranks: Vec<u32> = group.iter().map(|handle| handles[*handle].job_rank).collect();
        let (first, number) = owners[group[0]];
        let name = format!("communicator {number} of rank {} of {} ranks", processes[first].rank, ranks.len());
        let size = u32::try_from(ranks.len()).ok();
        let members: Vec<(usize, u32)> = group.iter().map(|handle| owners[*handle]).collect();
        let key = GroupKey { name, size, ranks: Some(ranks), is_from_making: begins_with_making(processes, &members) };
        for handle in group {
            joined.insert(owners[*handle], Joined { key: key.clone(), own: Some(handles[*handle].rank) });
        }
    }
    joined
}

/// Whether a certain communicator was created at different times, according to the clocks as now
/// known: then one of them is wrong, and they distinguish nothing.
fn is_contradicted(processes: &[Process<'_>]) -> bool {
    let mut all: BTreeMap<(usize, u32), (Picoseconds, Picoseconds)> = BTreeMap::new();
    processes.iter().flat_map(|process| process.communicators.iter().map(move |known| (known, &process.clock))).any(
        |(known, clock)| {
            let Some((joined, (start, end))) = known.joined.zip(known.made) else { return false };
            let Some(((number, from, off), (_, until, more))) = clock(start).zip(clock(end)) else { return false };
            let (from, until) = (from.saturating_sub(off), until.saturating_add(more));
            let common = all.entry((joined, number)).or_insert((from, until));
            *common = (common.0.max(from), common.1.min(until));
            common.0 > common.1
        },
    )
}

/// Message about handles that nothing assigns to common communicators.
fn told(group: &[usize], handles: &[Handle]) -> String {
    let ranks: BTreeSet<u32> = group.iter().map(|handle| handles[*handle].job_rank).collect();
    let some: Vec<String> = ranks.iter().take(RANKS_TOLD).map(u32::to_string).collect();
    let more = if ranks.len() > some.len() { format!(" and {} more", ranks.len() - some.len()) } else { String::new() };
    format!(
        "communicators of {} ranks (at least {}), created by ranks {}{more}, cannot be distinguished, so their operations are not checked",
        handles[group[0]].size,
        group.len().div_ceil(handles[group[0]].size as usize),
        some.join(", ")
    )
}

/// The first collectives in each communicator, without messages; `None` if some may be missing.
fn uses(parts: &CollectiveParts, kinds: &mut HashMap<Kind, u32>) -> Option<HashMap<u32, Vec<u32>>> {
    if parts.left_out() > 0 || parts.reversed() > 0 {
        return None;
    }
    let mut labels = Vec::new();
    let mut of_label = HashMap::new();
    for (place, label, _) in parts.labels() {
        let Instance::Communicator { number, signature } = &label.instance else { continue };
        if !matches!(label.kind, CollectiveKind::PointToPoint { .. }) {
            let next = kinds.len() as u32;
            let kind = (label.name.clone(), label.kind.clone(), signature.clone());
            of_label.insert(place, (*number, *kinds.entry(kind).or_insert(next)));
            labels.push(place);
        }
    }
    let mut found: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut cursor = parts.cursor(&labels);
    for part in cursor.by_ref() {
        let Some((number, kind)) = of_label.get(&part.label) else { continue };
        let uses = found.entry(*number).or_default();
        if uses.len() < USES_MAX {
            uses.push(*kind);
        }
    }
    (cursor.unread() == 0).then_some(found)
}

/// Joins communicators by their operations.
fn join_by_use(processes: &mut [Process<'_>]) {
    let users: Vec<usize> = (0..processes.len()).filter(|place| !processes[*place].communicators.is_empty()).collect();
    let Some(job) = Job::of(processes, &users) else { return };
    let mut candidates: Classes = BTreeMap::new();
    let mut unnamed = false;
    for place in users {
        let Process { communicators, parts, .. } = &processes[place];
        let mut profiles = profiles(parts);
        for (number, communicator) in (0..).zip(communicators.iter()) {
            unnamed |= !communicator.named;
            if communicator.joined.is_some() {
                continue;
            }
            let profile = profiles.remove(&number).unwrap_or_default();
            let member = Member { place, number, rank: communicator.rank, only: communicators.len() == 1 };
            candidates.entry((communicator.size, profile)).or_default().push(member);
        }
    }
    // Operations that name no communicator may be of any.
    if unnamed {
        return;
    }
    let doubtful = doubtful(&candidates, job.size);
    let unused: BTreeSet<u32> =
        candidates.keys().filter(|(_, profile)| profile.is_empty()).filter_map(|(size, _)| *size).collect();
    let mut joined: BTreeMap<(usize, u32), Joined> = BTreeMap::new();
    for ((count, ((size, profile), members)), doubtful) in candidates.into_iter().enumerate().zip(doubtful) {
        let open = doubtful || size.is_some_and(|size| size < job.size && unused.contains(&size));
        let Some(ranks) = job.one(processes, size, &profile, &members).filter(|_| !open) else { continue };
        let name = format!("communicator {count} of {} ranks", ranks.len());
        let known = size.is_some() || members.iter().all(|member| processes[member.place].is_known);
        let of_processes: Vec<(usize, u32)> = members.iter().map(|member| (member.place, member.number)).collect();
        let is_from_making = begins_with_making(processes, &of_processes);
        let of_group = u32::try_from(ranks.len()).ok();
        let key = GroupKey { name, size: of_group, ranks: Some(ranks).filter(|_| known), is_from_making };
        for member in members {
            let rank = processes[member.place].rank;
            let own = key.ranks.iter().flatten().position(|of_job| *of_job == rank);
            joined.insert((member.place, member.number), Joined { key: key.clone(), own: own.map(|own| own as u32) });
        }
    }
    name(processes, &joined);
}

/// Whether the traces contain the operations of a communicator from its creation on. A trace that
/// contains the creation is not sufficient: a profiler may have been paused after it, on each rank
/// for a different time. All members leave the creation nearly together, as they leave every
/// operation. So the same time has to pass from the creation to the first operation on all of them,
/// and no other operation of one may fit the first of another better.
fn begins_with_making(processes: &[Process<'_>], members: &[(usize, u32)]) -> bool {
    let ends = |(place, number): &(usize, u32)| -> Option<Vec<Picoseconds>> {
        let Process { communicators, parts, .. } = &processes[*place];
        let (_, made) = communicators[*number as usize].made?;
        let is_of =
            |label: &Label| matches!(&label.instance, Instance::Communicator { number: of, .. } if of == number);
        let is_message = |label: &Label| matches!(label.kind, CollectiveKind::PointToPoint { .. });
        let labels = parts.labels().filter(|(_, label, _)| is_of(label) && !is_message(label));
        let labels: Vec<u32> = labels.map(|(label, ..)| label).collect();
        let mut cursor = parts.cursor(&labels);
        Some(std::iter::from_fn(|| cursor.next()).take(AFTER_MAKING).map(|part| part.end_ps - made).collect())
    };
    let Some(ends) = members.iter().map(ends).collect::<Option<Vec<_>>>() else { return false };
    let mut used = ends.iter().filter_map(|ends| Some((ends.first()?, ends)));
    let Some((first, all)) = used.next() else { return true };
    used.all(|(other, others)| {
        let apart = (other - first).abs();
        let nearer = |end: &Picoseconds, first: &Picoseconds| (end - first).abs() < apart;
        !(others.iter().any(|end| nearer(end, first)) || all.iter().any(|end| nearer(end, other)))
    })
}

/// Names communicators in the labels of their processes, by process and number.
fn name(processes: &mut [Process<'_>], joined: &BTreeMap<(usize, u32), Joined>) {
    let before = processes.iter().flat_map(|process| process.communicators.iter());
    let before = before.filter(|known| known.joined.is_some()).count();
    let keys: BTreeSet<&GroupKey> = joined.values().map(|joined| &joined.key).collect();
    let number_of: BTreeMap<&GroupKey, usize> = keys.into_iter().zip(before..).collect();
    for (place, process) in processes.iter_mut().enumerate() {
        for (number, known) in (0..).zip(process.communicators.iter_mut()) {
            let number = joined.get(&(place, number)).map(|joined| number_of[&joined.key]);
            known.joined = known.joined.or(number);
        }
        process.parts.relabel(|label| {
            let Instance::Communicator { number, .. } = &label.instance else { return };
            if let Some(found) = joined.get(&(place, *number)) {
                found.name(label);
            }
        });
    }
}

/// Communicators that may be the same: by size and operations.
type Classes = BTreeMap<(Option<u32>, Profile), Vec<Member>>;
/// Number of collectives of each kind.
type Profile = BTreeMap<Kind, u64>;
/// A kind of collective: name, kind and signature.
type Kind = (String, CollectiveKind, String);

/// A process's communicator.
struct Member {
    place: usize,
    number: u32,
    rank: Option<u32>,
    /// It is the only one of its process.
    only: bool,
}

/// A communicator of all its members.
struct Joined {
    key: GroupKey,
    /// Rank of the process in it.
    own: Option<u32>,
}

impl Joined {
    fn name(&self, label: &mut Label) {
        match &mut label.kind {
            // The peer is stated, and the other end is the process itself.
            CollectiveKind::PointToPoint { source, destination } => {
                let own = if source.is_none() { source } else { destination };
                *own = own.or(self.own);
            }
            CollectiveKind::FromRoot(root) | CollectiveKind::ToRoot(root) if self.key.ranks.is_none() => *root = None,
            _ => {}
        }
        let Instance::Communicator { signature, .. } = &mut label.instance else { return };
        label.instance = Instance::Order { group: Some(self.key.clone()), signature: std::mem::take(signature) };
    }
}

/// The job's ranks, as far as the traces cover them.
struct Job {
    size: u32,
    /// Its size is stated, not counted.
    stated: bool,
    /// The traces of all ranks are present, each once.
    whole: bool,
    users: usize,
}

impl Job {
    /// `None` if the processes do not agree on its size, or if two of them have the same rank: then
    /// nothing is certain.
    fn of(processes: &[Process<'_>], users: &[usize]) -> Option<Job> {
        let sizes: BTreeSet<u32> = users.iter().filter_map(|place| processes[*place].world_size).collect();
        let ranks: BTreeSet<u32> = users.iter().map(|place| processes[*place].rank).collect();
        if sizes.len() > 1 || ranks.len() < users.len() || users.len() < 2 {
            return None;
        }
        let size = sizes.first().copied().unwrap_or(u32::try_from(users.len()).ok()?);
        let whole = size as usize == users.len() && ranks.last().is_some_and(|last| *last < size);
        Some(Job { size, stated: !sizes.is_empty(), whole, users: users.len() })
    }

    /// The job's ranks of a communicator in the order of its own ranks, if the members are
    /// certainly all that are present.
    fn one(
        &self,
        processes: &[Process<'_>],
        size: Option<u32>,
        profile: &Profile,
        members: &[Member],
    ) -> Option<Vec<u32>> {
        let places: BTreeSet<usize> = members.iter().map(|member| member.place).collect();
        if places.len() < members.len() || members.len() < 2 {
            return None;
        }
        // A file may state any number, and each member would have a list of as many ranks.
        if size.unwrap_or(self.size) > RANKS_MAX {
            return None;
        }
        let Some(size) = size else {
            // Nobody says who has which rank in it: the job's numbers are all there is.
            let reaches = highest(profile).is_some_and(|rank| rank.checked_add(1) == Some(self.size));
            let certain =
                self.whole && reaches && members.len() == self.users && members.iter().all(|member| member.only);
            return certain.then(|| (0..self.size).collect());
        };
        let mut ranks = BTreeMap::new();
        for member in members {
            let own = member.rank.filter(|rank| *rank < size)?;
            if ranks.insert(own, processes[member.place].rank).is_some() {
                return None;
            }
        }
        let all = ranks.len() == size as usize;
        match (size == self.size, all) {
            (true, true) => Some(ranks.into_values().collect()),
            // Whoever is not here has the rank that is left, where all others have that of the job.
            (true, false) => {
                let same =
                    self.stated && members.len() == self.users && ranks.iter().all(|(own, of_job)| own == of_job);
                same.then(|| (0..size).collect())
            }
            (false, true) => (self.stated && self.whole).then(|| ranks.into_values().collect()),
            (false, false) => None,
        }
    }
}

/// Which classes, in their order, may be another one with lost collectives: if they, or one that
/// shares a kind with them, have no kind of their own among those of their size. Comparing pairs of
/// classes would take quadratic time.
fn doubtful(classes: &Classes, job_size: u32) -> Vec<bool> {
    let mut of_size: BTreeMap<(Option<u32>, &Kind), usize> = BTreeMap::new();
    let mut of_any: BTreeMap<&Kind, usize> = BTreeMap::new();
    for (size, profile) in classes.keys() {
        for kind in profile.keys() {
            *of_size.entry((*size, kind)).or_default() += 1;
            *of_any.entry(kind).or_default() += 1;
        }
    }
    let in_part = |size: &Option<u32>| size.is_some_and(|size| size < job_size);
    let among = |size: &Option<u32>, kind| {
        let unknown = if in_part(size) { of_size.get(&(None, kind)).copied().unwrap_or(0) } else { 0 };
        let alike = if size.is_none() { &of_any[kind] } else { &of_size[&(*size, kind)] };
        alike + unknown
    };
    let mut shared: BTreeSet<(Option<u32>, &Kind)> = BTreeSet::new();
    for (size, profile) in classes.keys() {
        if profile.keys().all(|kind| among(size, kind) > 1) {
            shared.extend(profile.keys().map(|kind| (*size, kind)));
        }
    }
    let is_shared = |(size, profile): &(Option<u32>, Profile)| {
        profile.keys().any(|kind| shared.contains(&(*size, kind)) || in_part(size) && shared.contains(&(None, kind)))
    };
    classes.keys().map(is_shared).collect()
}

/// The highest root that a profile names.
fn highest(profile: &Profile) -> Option<u32> {
    let root = |kind: &CollectiveKind| match kind {
        CollectiveKind::FromRoot(root) | CollectiveKind::ToRoot(root) => *root,
        _ => None,
    };
    profile.keys().filter_map(|(_, kind, _)| root(kind)).max()
}

/// The operations in each communicator of a process, without messages.
fn profiles(parts: &CollectiveParts) -> BTreeMap<u32, Profile> {
    let mut found: BTreeMap<u32, Profile> = BTreeMap::new();
    for (_, label, count) in parts.labels() {
        let Instance::Communicator { number, signature } = &label.instance else { continue };
        if !matches!(label.kind, CollectiveKind::PointToPoint { .. }) {
            let key = (label.name.clone(), label.kind.clone(), signature.clone());
            *found.entry(*number).or_default().entry(key).or_default() += count;
        }
    }
    found
}

/// Operations after the making of a communicator that may be the first of another rank.
const AFTER_MAKING: usize = 256;
/// Collectives of a communicator that are compared.
const USES_MAX: usize = 1 << 12;
/// Ranks of the largest job whose members are listed; runs have no more either.
const RANKS_MAX: u32 = 1 << 16;
/// Ranks that are named of a group that stays open.
const RANKS_TOLD: usize = 16;
