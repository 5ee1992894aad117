//! Determines which handles of different processes are one communicator, from how each was created.
//!
//! `ncclCommInitRank` is itself a collective and blocks: it returns on no rank before all members
//! have called it. Two handles of one communicator therefore satisfy these conditions:
//!
//! - the sizes are equal and the ranks differ, and each rank is there once;
//! - the calls that made them overlap, where their times are on one clock;
//! - so they do where communicators that are certain already relate their clocks: there is an
//!   instant at which all members were in the call;
//! - neither was made before a communicator that the other was made after: of two communicators one
//!   comes first, on all processes that are in both;
//! - the collectives are the same one after the other, as far as both traces reach.
//!
//! Of these conditions [`assign`] removes candidates that no communicator can have, then searches
//! what is left for a second solution. Handles that hang together have one solution, and are
//! certain, or several, and none of them is. Leaving out a condition makes more of them uncertain,
//! never another certain. Where some rank has fewer handles of a size than others, handles are
//! missing, as those of a process that died without a trace. Then nothing follows from what is left
//! over, and only what was made after a certain communicator of the whole job is solved: from there
//! on all processes are here.
//!
//! Memory grows with the square of the handles of one size: 4 MB for 4096 of them. It does not
//! guess if several solutions exist.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use probe_sync_formats::model::Picoseconds;

/// A communicator as one process knows it.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    /// Its process.
    pub(super) process: usize,
    /// The process's rank in the job, unique among the processes of the communicator.
    pub(super) job_rank: u32,
    /// Rank of its process in it, and its number of ranks.
    pub(super) rank: u32,
    pub(super) size: u32,
    /// When it was created, on its process's own clock.
    pub(super) made: Option<(Picoseconds, Picoseconds)>,
    /// The same on a clock that is known by its number, widened by how far that may be off.
    pub(super) seen: Option<(u32, Picoseconds, Picoseconds)>,
    /// The first collectives in it, as numbers of kinds; `None` if some may be missing.
    pub(super) uses: Option<Rc<[u32]>>,
}

impl Handle {
    /// Whether nothing that is known of two handles alone says that they are not one communicator.
    fn fits(&self, other: &Handle) -> bool {
        let apart = self.size == other.size && self.rank != other.rank;
        let others = self.process != other.process && self.job_rank != other.job_rank;
        let overlap = match (self.seen, other.seen) {
            (Some((clock, from, until)), Some((same, start, end))) if clock == same => from <= end && start <= until,
            _ => true,
        };
        let alike = self.uses.as_ref().zip(other.uses.as_ref()).is_none_or(|(one, two)| {
            let shared = one.len().min(two.len());
            one[..shared] == two[..shared]
        });
        apart && others && overlap && alike
    }

    /// Whether it was made before another of its process.
    fn precedes(&self, other: &Handle) -> bool {
        self.made.zip(other.made).is_some_and(|((_, end), (start, _))| end <= start)
    }
}

/// Certain and uncertain assignments.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Assignment {
    /// Handles of one communicator, in order of rank, all of its ranks.
    pub(super) certain: Vec<Vec<usize>>,
    /// The others, those of one size together.
    pub(super) open: Vec<Vec<usize>>,
}

/// Determines the communicators of all handles.
pub(super) fn assign(handles: &[Handle]) -> Assignment {
    let all: Vec<usize> = (0..handles.len()).collect();
    let ranks = handles.iter().map(|handle| handle.job_rank).collect::<BTreeSet<_>>().len() as u32;
    let mut known = Known { handles, by_process: HashMap::new(), groups: Vec::new(), instants: Vec::new() };
    let mut classes = Class::all(handles, &all);
    if !classes.iter().all(Class::is_even) {
        let of_job = |handle: &usize| handles[*handle].size == ranks;
        classes = Class::all(handles, &all.iter().copied().filter(of_job).collect::<Vec<_>>());
        known.solve(&mut classes);
        let since = |group: &Vec<usize>| {
            let after = |handle: &usize| !of_job(handle) && known.is_since(*handle, group);
            all.iter().copied().filter(after).collect()
        };
        let latest: Option<Vec<usize>> = known.groups.iter().map(since).max_by_key(Vec::len);
        classes.extend(Class::all(handles, &latest.unwrap_or_default()).into_iter().filter(Class::is_even));
    }
    known.solve(&mut classes);
    let whole = |group: &&Vec<usize>| group.len() == handles[group[0]].size as usize;
    let certain: Vec<Vec<usize>> = known.groups.iter().filter(whole).cloned().collect();
    let mut left: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let done: BTreeSet<usize> = certain.iter().flatten().copied().collect();
    for handle in all.into_iter().filter(|handle| !done.contains(handle)) {
        left.entry(handles[handle].size).or_default().push(handle);
    }
    Assignment { certain, open: left.into_values().collect() }
}

/// Communicators that are certain so far.
struct Known<'a> {
    handles: &'a [Handle],
    /// By process: its handles with a certain communicator, and that communicator.
    by_process: HashMap<usize, Vec<(usize, usize)>>,
    groups: Vec<Vec<usize>>,
    /// For some of them, by clock: the interval in which all members were in the call that created
    /// it.
    instants: Vec<HashMap<u32, (Picoseconds, Picoseconds)>>,
}

impl Known<'_> {
    fn add(&mut self, group: Vec<usize>) {
        for handle in &group {
            let of_process = self.by_process.entry(self.handles[*handle].process).or_default();
            of_process.push((*handle, self.groups.len()));
        }
        let mut instants: HashMap<u32, (Picoseconds, Picoseconds)> = HashMap::new();
        for (clock, from, until) in group.iter().filter_map(|handle| self.handles[*handle].seen) {
            let known = instants.entry(clock).or_insert((from, until));
            *known = (known.0.max(from), known.1.min(until));
        }
        if instants.len() > 1 && self.instants.len() < INSTANTS_MAX {
            self.instants.push(instants);
        }
        self.groups.push(group);
    }

    /// Fixes everything that has one solution, until nothing changes.
    fn solve(&mut self, classes: &mut [Class<'_>]) {
        // Ends: each turn but the last makes a communicator certain.
        loop {
            let before = self.groups.len();
            classes.iter_mut().for_each(|class| class.narrow(self));
            classes.iter_mut().for_each(|class| class.solve(self));
            if self.groups.len() == before {
                return;
            }
        }
    }

    /// Whether a handle was made after a communicator of all its process's peers.
    fn is_since(&self, handle: usize, group: &[usize]) -> bool {
        let handles = self.handles;
        let own = |other: &&usize| handles[**other].process == handles[handle].process;
        group.iter().find(own).is_some_and(|own| handles[*own].precedes(&handles[handle]))
    }

    /// Whether two handles cannot be the same according to what certain communicators say about
    /// their clocks: the calls that created them ran at different times.
    fn are_apart(&self, one: usize, two: usize) -> bool {
        let (Some(one), Some(two)) = (self.handles[one].seen, self.handles[two].seen) else { return false };
        self.instants.iter().any(|instants| {
            let since = |(clock, from, until): (u32, Picoseconds, Picoseconds)| {
                let (earliest, latest) = instants.get(&clock)?;
                let wide = (from - latest).abs().max((until - earliest).abs()) / RATE;
                Some((from - latest - wide, until - earliest + wide))
            };
            since(one).zip(since(two)).is_some_and(|(one, two)| one.0 > two.1 || two.0 > one.1)
        })
    }

    /// Whether two handles cannot be the same: a communicator of both processes comes before one of
    /// them and after the other.
    fn crosses(&self, one: usize, two: usize) -> bool {
        let handles = self.handles;
        let of = |handle: usize| self.by_process.get(&handles[handle].process).into_iter().flatten();
        of(one).any(|(first, group)| {
            let same = of(two).filter(|(_, other)| other == group);
            same.into_iter().any(|(second, _)| crossed(handles, [one, two], [*first, *second]))
        })
    }
}

/// Whether of two pairs of handles, each of the same two processes, one is first on one process and
/// second on the other.
fn crossed(handles: &[Handle], [a, b]: [usize; 2], [c, d]: [usize; 2]) -> bool {
    let before = |one: usize, two: usize| handles[one].precedes(&handles[two]);
    before(a, c) && before(d, b) || before(c, a) && before(b, d)
}

/// All handles of one size.
struct Class<'a> {
    handles: &'a [Handle],
    /// In order of rank.
    members: Vec<usize>,
    ranks: Vec<u32>,
    size: u32,
    /// By place: bit set of the others that may share a communicator with it.
    fits: Vec<Vec<u64>>,
    /// By place: its communicator is certain.
    done: Vec<bool>,
}

impl<'a> Class<'a> {
    /// The classes of these handles.
    fn all(handles: &'a [Handle], some: &[usize]) -> Vec<Self> {
        let mut by_size: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for at in some.iter().copied() {
            by_size.entry(handles[at].size).or_default().push(at);
        }
        by_size.into_values().filter_map(|members| Class::new(handles, members)).collect()
    }

    /// Whether there are equally many of each rank.
    fn is_even(&self) -> bool {
        let everyone: Vec<usize> = (0..self.members.len()).collect();
        let by_rank = self.by_rank(&everyone);
        by_rank.iter().all(|places| places.len() == by_rank[0].len())
    }

    /// `None` if there are more handles than the limit.
    fn new(handles: &'a [Handle], mut members: Vec<usize>) -> Option<Self> {
        if members.len() > HANDLES_MAX {
            return None;
        }
        members.sort_by_key(|member| (handles[*member].rank, *member));
        let words = members.len().div_ceil(64);
        let row = |one: &usize| {
            let mut row = vec![0_u64; words];
            for (place, two) in members.iter().enumerate() {
                row[place / 64] |= u64::from(handles[*one].fits(&handles[*two])) << (place % 64);
            }
            row
        };
        let fits = members.iter().map(row).collect();
        let (ranks, size) = (members.iter().map(|member| handles[*member].rank).collect(), handles[members[0]].size);
        Some(Self { handles, ranks, size, fits, done: vec![false; members.len()], members })
    }

    fn has(&self, one: usize, two: usize) -> bool {
        self.fits[one][two / 64] >> (two % 64) & 1 == 1
    }

    fn part(&mut self, one: usize, two: usize) {
        self.fits[one][two / 64] &= !(1 << (two % 64));
        self.fits[two][one / 64] &= !(1 << (one % 64));
    }

    /// Places of a component, by rank.
    fn by_rank(&self, component: &[usize]) -> Vec<Vec<usize>> {
        let mut by_rank = vec![Vec::new(); self.size as usize];
        for place in component {
            by_rank[self.ranks[*place] as usize].push(*place);
        }
        by_rank
    }

    /// Removes pairs that the certain communicators forbid, and those that no third handle goes
    /// with.
    fn narrow(&mut self, known: &mut Known<'_>) {
        let count = self.members.len();
        for one in 0..count {
            for two in one + 1..count {
                let pair = [self.members[one], self.members[two]];
                if self.has(one, two) && (known.crosses(pair[0], pair[1]) || known.are_apart(pair[0], pair[1])) {
                    self.part(one, two);
                }
            }
        }
        // Each turn removes a pair, or is the last; what it costs is bounded all the same.
        let turns = (TURNS_COST / (count * count * count).max(1)).min(count);
        for _ in 0..turns {
            let mut moved = false;
            for component in self.components() {
                let by_rank = self.by_rank(&component);
                let most = by_rank.iter().map(Vec::len).max().unwrap_or(0);
                let whole: Vec<&Vec<usize>> = by_rank.iter().filter(|places| places.len() == most).collect();
                for one in component.iter().copied() {
                    for two in component.iter().copied().filter(|two| *two > one) {
                        let third = |places: &&Vec<usize>| {
                            places.iter().any(|place| {
                                [one, two].contains(place) || self.has(one, *place) && self.has(two, *place)
                            })
                        };
                        if self.has(one, two) && !whole.iter().all(third) {
                            self.part(one, two);
                            moved = true;
                        }
                    }
                }
            }
            if !moved {
                break;
            }
        }
    }

    /// Connected components of uncertain handles, in order of rank.
    fn components(&self) -> Vec<Vec<usize>> {
        let mut seen = self.done.clone();
        let mut found = Vec::new();
        for first in 0..self.members.len() {
            if seen[first] {
                continue;
            }
            seen[first] = true;
            let (mut component, mut next) = (vec![first], 0);
            while next < component.len() {
                let one = component[next];
                for (two, seen) in seen.iter_mut().enumerate() {
                    if !*seen && self.has(one, two) {
                        *seen = true;
                        component.push(two);
                    }
                }
                next += 1;
            }
            component.sort_unstable();
            found.push(component);
        }
        found
    }

    /// Fixes everything that has one solution.
    fn solve(&mut self, known: &mut Known<'_>) {
        for component in self.components() {
            let by_rank = self.by_rank(&component);
            let groups = by_rank.iter().map(Vec::len).max().unwrap_or(0);
            let mut search = Search {
                class: self,
                by_rank: &by_rank,
                groups: vec![Vec::new(); groups],
                by_process: vec![HashMap::new(); groups],
                found: Vec::new(),
                steps: 0,
            };
            search.rank(0, 0, &mut vec![false; groups]);
            let Search { found, steps, .. } = search;
            let [only] = &found[..] else { continue };
            if steps >= STEPS_MAX {
                continue;
            }
            // Where handles are missing, those that are here may be of others still: only times
            // tell then.
            let holes = by_rank.iter().any(|places| places.len() < groups);
            for group in only.iter() {
                if holes && !self.is_seen(group) {
                    continue;
                }
                group.iter().for_each(|place| self.done[*place] = true);
                known.add(group.iter().map(|place| self.members[*place]).collect());
            }
        }
    }

    /// Whether all members of a communicator were made on one clock, and all are here.
    fn is_seen(&self, group: &[usize]) -> bool {
        let mut clocks = group.iter().map(|place| self.handles[self.members[*place]].seen.map(|(clock, ..)| clock));
        let first = clocks.next().flatten();
        group.len() == self.size as usize && first.is_some() && clocks.all(|clock| clock == first)
    }
}

/// The search for solutions of one component, which ends with the second.
struct Search<'a, 'b> {
    class: &'a Class<'b>,
    by_rank: &'a [Vec<usize>],
    /// The communicators as filled so far.
    groups: Vec<Vec<usize>>,
    /// The same, as handle by process.
    by_process: Vec<HashMap<usize, usize>>,
    found: Vec<Vec<Vec<usize>>>,
    steps: usize,
}

impl Search<'_, '_> {
    /// Assigns the handles of a rank, from the `next` one on, to communicators without a member of
    /// this rank.
    fn rank(&mut self, rank: usize, next: usize, taken: &mut Vec<bool>) {
        self.steps += 1;
        if self.found.len() > 1 || self.steps > STEPS_MAX {
            return;
        }
        let Some(places) = self.by_rank.get(rank) else {
            let mut solution = self.groups.clone();
            solution.sort();
            if !self.found.contains(&solution) {
                self.found.push(solution);
            }
            return;
        };
        let Some(place) = places.get(next).copied() else {
            return self.rank(rank + 1, 0, &mut vec![false; self.groups.len()]);
        };
        let mut tried_empty = false;
        for group in 0..self.groups.len() {
            let is_empty = self.groups[group].is_empty();
            if taken[group] || is_empty && tried_empty || !self.goes(place, group) {
                continue;
            }
            // One that nobody is in yet is like another.
            tried_empty |= is_empty;
            taken[group] = true;
            self.groups[group].push(place);
            let process = self.process(place);
            self.by_process[group].insert(process, place);
            self.rank(rank, next + 1, taken);
            self.by_process[group].remove(&process);
            self.groups[group].pop();
            taken[group] = false;
        }
    }

    fn process(&self, place: usize) -> usize {
        self.class.handles[self.class.members[place]].process
    }

    /// Whether a handle can share a communicator with its present members, given the others as they
    /// are.
    fn goes(&self, place: usize, group: usize) -> bool {
        let Class { handles, members, .. } = self.class;
        if !self.groups[group].iter().all(|other| self.class.has(place, *other)) {
            return false;
        }
        let others = self.by_process.iter().enumerate().filter(|(other, _)| *other != group);
        others.into_iter().all(|(_, others)| {
            let Some(own) = others.get(&self.process(place)) else { return true };
            self.groups[group].iter().all(|member| {
                let counterpart = others.get(&self.process(*member));
                let pair = |one: usize, two: usize| [members[one], members[two]];
                counterpart.is_none_or(|other| !crossed(handles, pair(place, *member), pair(*own, *other)))
            })
        })
    }
}

/// Largest rate difference between clocks of two hosts, one part in this many: 500 ppm.
const RATE: Picoseconds = 2_000;
/// Communicators that relate clocks.
const INSTANTS_MAX: usize = 32;
/// Most handles of one size that are examined together.
const HANDLES_MAX: usize = 1 << 12;
/// Steps that narrowing may take, in handles cubed: some seconds.
const TURNS_COST: usize = 2_000_000_000;
/// Steps of a search. Several solutions show early; one that takes longer is not called certain.
const STEPS_MAX: usize = 200_000;

#[cfg(test)]
mod tests;
