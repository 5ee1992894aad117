//! Determines which events are a rank's part in a collective operation, and how to recognise the
//! other ranks' parts.
//!
//! An operation appears on several levels of a trace, and only one of them tells when data moved:
//!
//! | backend | level taken | levels left out, and why |
//! |---|---|---|
//! | gloo | `gloo:*` (user_annotation): the work itself, on a worker's thread | `c10d::*`: only hands the work over |
//! | any, by a recorder | annotations whose args state "Collective name": what the program itself says lasts as long as the operation | |
//! | NCCL, RCCL | kernels with nccl or rccl in the name | `c10d::*`, `record_param_comms`, `nccl:*`: only enqueue; gpu_user_annotation: the kernel again |
//!
//! Taking the enqueuing calls too would count operations twice and see broken causality where there
//! is none: they return before the operation has begun elsewhere. A gloo send or receive learns its
//! peer and tag from the `c10d::send` or `c10d::recv_` in which it begins. Sequence numbers of
//! point-to-point operations count per rank, not per pair, so those are only ordered. It does not
//! pair the parts of different ranks.
//!
//! Traces of PyTorch's profiler in any format have such events ([`Candidate`]): Kineto's JSON and
//! Perfetto's protobuf.

use std::borrow::Cow;
use std::collections::HashMap;

use memchr::memmem::Finder;

use crate::chunk::lossy;
use crate::model::parts::{CollectiveParts, Spill};
use crate::model::{
    CollectiveEvent, CollectiveKind, GroupKey, Instance, Label, Picoseconds, Recipients, Replicas, Steps,
};
use crate::stated::{Groups, Stated, is_exchange, kind_of};

/// Collectives found so far; times count from the file's base, which may not be known yet.
pub(crate) struct Collector {
    found: CollectiveParts,
    /// Messages waiting for the calls that name their peers and tags, which may come later in the
    /// file.
    messages: Vec<Message>,
    messages_left_out: u64,
    /// `record_param_comms` events: calls that enqueue.
    enqueued: u64,
    /// Kernels among the collectives.
    pub(crate) kernels: u64,
    /// The numbered steps.
    pub(crate) steps: Steps,
    /// When the host issued the operation with a number that it shares with its kernel.
    issues: HashMap<u64, Picoseconds>,
    /// Kernels waiting for that operation, which may come later in the file.
    issued: Vec<(u64, Picoseconds)>,
    tracks: HashMap<Vec<u8>, u64>,
    calls: Vec<Call>,
    groups: Groups,
    nccl: Finder<'static>,
    rccl: Finder<'static>,
}

/// A send or receive, and the track that it is on.
struct Message {
    event: CollectiveEvent,
    track: u64,
}

/// A `c10d::send` or `c10d::recv_`.
struct Call {
    track: u64,
    send: bool,
    start_ps: Picoseconds,
    end_ps: Picoseconds,
    /// Rank of the peer within the group.
    peer: u32,
    tag: String,
}

/// An event that may be part of an operation.
pub(crate) trait Candidate {
    /// What is wrong with one.
    type Fault;

    /// Returns its name, without quotes.
    fn name(&self) -> &[u8];

    /// Returns its category, in Kineto's present words.
    fn category(&self) -> &[u8];

    /// Returns a text that no event on another track has.
    fn track(&self) -> Vec<u8>;

    /// Returns true if its arguments name an operation.
    fn names_operation(&self) -> bool;

    /// Returns its arguments.
    fn params(&self) -> Result<Params<'_>, Self::Fault>;
}

/// The args of an event that say something about an operation.
#[derive(Default)]
pub(crate) struct Params<'a> {
    stated: Stated<'a>,
    dims: Cow<'a, str>,
    types: Cow<'a, str>,
    concrete: Cow<'a, str>,
    /// What a kernel and the call that issued it have in common.
    external: Cow<'a, str>,
}

impl<'a> Params<'a> {
    /// The names of these arguments. One that names an operation has the first.
    pub(crate) const NAMES: [&'static str; 18] = [
        "Collective name",
        "dtype",
        "In msg nelems",
        "Out msg nelems",
        "Process Group Name",
        "Process Group Ranks",
        "Process Group ID",
        "Group size",
        "Seq",
        "Src Rank",
        "Dst Rank",
        "Root Rank",
        "In split size",
        "Input Dims",
        "Input type",
        "Concrete Inputs",
        "External id",
        "external id",
    ];

    /// Takes in an argument; `value` returns its value as text, without quotes.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], value: impl FnOnce() -> Cow<'a, str>) {
        let whole = match key {
            b"Input Dims" => Some(&mut self.dims),
            b"Input type" => Some(&mut self.types),
            b"Concrete Inputs" => Some(&mut self.concrete),
            b"External id" | b"external id" => Some(&mut self.external),
            _ => None,
        };
        if let Some(whole) = whole {
            *whole = value();
            return;
        }
        let place = match key {
            b"Process Group ID" if self.stated.group.is_empty() => Some(&mut self.stated.group),
            _ => std::str::from_utf8(key).ok().and_then(|key| self.stated.place(key)),
        };
        if let Some(place) = place {
            *place = match value() {
                long if long.len() > TEXT_MAX => Cow::Owned(long.chars().take(TEXT_MAX).collect()),
                text => text,
            };
        }
    }
}

impl Collector {
    pub(crate) fn new(spill: &Spill) -> Collector {
        Collector {
            found: CollectiveParts::new(spill),
            messages: Vec::new(),
            messages_left_out: 0,
            enqueued: 0,
            kernels: 0,
            steps: Steps::default(),
            issues: HashMap::new(),
            issued: Vec::new(),
            tracks: HashMap::new(),
            calls: Vec::new(),
            groups: Groups::default(),
            nccl: Finder::new("nccl"),
            rccl: Finder::new("rccl"),
        }
    }

    /// Processes an event with a duration.
    #[inline]
    pub(crate) fn look<C: Candidate>(
        &mut self,
        event: &C,
        start_ps: Picoseconds,
        end_ps: Picoseconds,
    ) -> Result<(), C::Fault> {
        let name = event.name();
        match event.category() {
            b"kernel" if self.nccl.find(name).is_some() || self.rccl.find(name).is_some() => {
                self.kernel(event, start_ps, end_ps)
            }
            // Earlier versions have no other category for annotations.
            b"user_annotation" | b"cpu_op" if name.starts_with(b"gloo:") => self.gloo(event, start_ps, end_ps),
            b"user_annotation" if !name.starts_with(b"nccl:") && event.names_operation() => {
                self.stated(event, start_ps, end_ps)
            }
            b"cpu_op" if name.starts_with(b"c10d::send") || name == b"c10d::recv_" => {
                self.call(event, start_ps, end_ps)
            }
            b"cpu_op" if name == b"record_param_comms" => {
                self.enqueued += 1;
                self.issue(event, start_ps)
            }
            _ => Ok(()),
        }
    }

    /// Returns a note for the user if the trace only shows that operations were enqueued.
    pub(crate) fn only_enqueued(&self) -> Option<String> {
        let count = Some(self.enqueued).filter(|count| *count > 0 && self.kernels == 0)?;
        Some(format!("{count} record_param_comms events only enqueue collectives, and no kernel shows when they ran"))
    }

    /// Takes the kernels of another collector in place of its own, which has none: what the host did
    /// stays.
    pub(crate) fn take_kernels(&mut self, other: Collector) {
        let Collector { found, kernels, issued, groups, .. } = other;
        (self.found, self.kernels, self.issued, self.groups) = (found, kernels, issued, groups);
    }

    /// Returns all collectives on absolute times, and the groups that their events named.
    pub(crate) fn finish(
        mut self,
        base_ps: Picoseconds,
        rank: Option<u32>,
        listed: &[GroupKey],
    ) -> (CollectiveParts, Vec<GroupKey>, Steps) {
        for (number, start_ps) in self.issued {
            if let Some(issued_ps) = self.issues.get(&number) {
                self.steps.issue(start_ps, *issued_ps);
            }
        }
        self.steps.close(base_ps, self.kernels > 0);
        self.calls.sort_by_key(|call| (call.track, call.send, call.start_ps));
        for Message { mut event, track } in self.messages {
            if let CollectiveKind::PointToPoint { source, destination } = &mut event.label.kind {
                let send = event.label.name.ends_with("send");
                let own = if send { &mut *source } else { &mut *destination };
                *own = own.or(rank);
                let call = enclosing(&self.calls, track, send, event.start_ps);
                if let (Some(call), Instance::Order { signature, .. }) = (call, &mut event.label.instance) {
                    let peer = if send { destination } else { source };
                    *peer = peer.or(global_rank(call.peer, rank, listed));
                    signature.push_str(" tag ");
                    signature.push_str(&call.tag);
                }
            }
            self.found.push(event);
        }
        self.found.leave_out(self.messages_left_out);
        self.found.shift(base_ps);
        self.found.close();
        (self.found, self.groups.into_keys(), self.steps)
    }

    fn kernel<C: Candidate>(&mut self, candidate: &C, start: Picoseconds, end: Picoseconds) -> Result<(), C::Fault> {
        self.kernels += 1;
        let external = candidate.params()?.external;
        if let Some(number) = number(&external).filter(|_| self.issued.len() < ISSUES_MAX) {
            self.issued.push((number, start));
        }
        self.stated(candidate, start, end)
    }

    /// Notes when the host issued an operation.
    fn issue<C: Candidate>(&mut self, candidate: &C, start: Picoseconds) -> Result<(), C::Fault> {
        let external = candidate.params()?.external;
        if let Some(number) = number(&external).filter(|_| self.issues.len() < ISSUES_MAX) {
            self.issues.insert(number, start);
        }
        Ok(())
    }

    /// Keeps an event that is the operation itself, according to its args.
    fn stated<C: Candidate>(&mut self, candidate: &C, start: Picoseconds, end: Picoseconds) -> Result<(), C::Fault> {
        let stated = candidate.params()?.stated;
        let called = || kernel_name(&lossy(candidate.name()));
        let (label, number, recipients) = stated.part(called, &mut self.groups);
        let track = self.track(candidate);
        self.keep(CollectiveEvent { label, number, start_ps: start, end_ps: end, recipients }, track);
        Ok(())
    }

    fn gloo<C: Candidate>(&mut self, candidate: &C, start: Picoseconds, end: Picoseconds) -> Result<(), C::Fault> {
        let params = candidate.params()?;
        let name = lossy(candidate.name()).trim_start_matches("gloo:").to_owned();
        let kind = kind_of(&name);
        // Unlike the others these may differ between ranks: an uneven exchange, inputs on the root
        // alone.
        let uneven =
            name.contains("all_to_all") || matches!(kind, CollectiveKind::FromRoot(_)) && name.contains("scatter");
        let dims = if uneven { String::new() } else { packed(&params.dims) };
        let types = if uneven { String::new() } else { packed(&params.types) };
        let label = if matches!(kind, CollectiveKind::PointToPoint { .. }) { "p2p" } else { &name };
        let signature = format!("{label} {types} {dims}").trim_end().to_owned();
        let recipients = if is_exchange(&name) { list_recipients(&params.dims) } else { Recipients::All };
        let instance = Instance::Order { group: None, signature };
        let label = Label { name, kind, instance, replicas: Replicas::Absent, device: None };
        let track = self.track(candidate);
        self.keep(CollectiveEvent { label, number: 0, start_ps: start, end_ps: end, recipients }, track);
        Ok(())
    }

    fn call<C: Candidate>(&mut self, candidate: &C, start: Picoseconds, end: Picoseconds) -> Result<(), C::Fault> {
        if self.calls.len() >= CALLS_MAX {
            return Ok(());
        }
        let params = candidate.params()?;
        // Tensors, group, peer, tag.
        let Ok(inputs) = serde_json::from_str::<Vec<String>>(&params.concrete) else { return Ok(()) };
        if let [_, _, peer, tag, ..] = inputs.as_slice()
            && let Ok(peer) = peer.parse()
            && tag.len() < TEXT_MAX
        {
            let send = candidate.name().starts_with(b"c10d::send");
            let track = self.track(candidate);
            self.calls.push(Call { track, send, start_ps: start, end_ps: end, peer, tag: tag.clone() });
        }
        Ok(())
    }

    fn track<C: Candidate>(&mut self, candidate: &C) -> u64 {
        let next = self.tracks.len() as u64;
        *self.tracks.entry(candidate.track()).or_insert(next)
    }

    fn keep(&mut self, event: CollectiveEvent, track: u64) {
        if !matches!(event.label.kind, CollectiveKind::PointToPoint { .. }) {
            self.found.push(event);
        } else if self.messages.len() < MESSAGES_MAX {
            self.messages.push(Message { event, track });
        } else {
            self.messages_left_out += 1;
        }
    }
}

/// Recipients of an exchange of lists: one tensor for each rank, whose dimensions are given. A
/// single tensor is divided, and the trace does not contain the sizes.
fn list_recipients(dims: &str) -> Recipients {
    match serde_json::from_str::<Vec<Vec<u64>>>(dims) {
        Ok(tensors) if tensors.len() > 1 && tensors.iter().flatten().all(|size| *size > 0) => Recipients::All,
        _ => Recipients::Unknown,
    }
}

/// The call on this track and in this direction in which `start` falls.
fn enclosing(calls: &[Call], track: u64, send: bool, start: Picoseconds) -> Option<&Call> {
    let after = calls.partition_point(|call| (call.track, call.send, call.start_ps) <= (track, send, start));
    let call = calls[..after].last()?;
    (call.track == track && call.send == send && start <= call.end_ps).then_some(call)
}

/// The job's rank of a group's member, if all groups of this rank that are large enough agree on
/// it.
fn global_rank(member: u32, rank: Option<u32>, groups: &[GroupKey]) -> Option<u32> {
    let mut found = None;
    for group in groups {
        let Some(ranks) = &group.ranks else { return None };
        if rank.is_some_and(|rank| !ranks.contains(&rank)) {
            continue;
        }
        match (ranks.get(member as usize), found) {
            (Some(&global), Some(other)) if global != other => return None,
            (Some(&global), _) => found = Some(global),
            (None, _) => {}
        }
    }
    found
}

fn number(value: &str) -> Option<u64> {
    value.parse().ok()
}

/// A value without white space: files that were formatted again compare equal.
fn packed(value: &str) -> String {
    value.chars().filter(|letter| !letter.is_ascii_whitespace()).take(TEXT_MAX).collect()
}

/// The name of a kernel without its parameters.
fn kernel_name(full: &str) -> String {
    full.split('(').next().unwrap_or(full).to_owned()
}

/// Most sends and receives held until the end of the file; further ones are counted.
const MESSAGES_MAX: usize = 500_000;
/// Most operations whose times of issue are remembered.
const ISSUES_MAX: usize = 1 << 21;
/// Calls of send and receive that are remembered.
const CALLS_MAX: usize = 500_000;
/// Strings longer than this are no name of an operation or group.
const TEXT_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_of_lists_says_to_whom_it_sends() {
        use Recipients::{All, Unknown};
        assert_eq!(list_recipients("[[32], [32]]"), All);
        for dims in ["[[32], [0]]", "[[64]]", "[]", "", "[[[32], [32]], [[32], [32]]]"] {
            assert_eq!(list_recipients(dims), Unknown, "{dims}");
        }
    }

    #[test]
    fn the_named_arguments_are_taken() {
        for name in Params::NAMES {
            let mut params = Params::default();
            let mut is_taken = false;
            params.add(name.as_bytes(), || {
                is_taken = true;
                Cow::Borrowed("1")
            });
            assert!(is_taken, "{name}");
        }
    }

    #[test]
    fn a_member_is_global_where_groups_agree() {
        let group = |ranks: &[u32]| GroupKey {
            name: "g".into(),
            ranks: Some(ranks.to_vec()),
            size: None,
            is_from_making: false,
        };
        let groups = [group(&[0, 1, 2, 3]), group(&[0, 2])];
        assert_eq!(global_rank(3, Some(0), &groups), Some(3));
        assert_eq!(global_rank(1, Some(0), &groups), None, "1 in the first group, 2 in the second");
        assert_eq!(global_rank(1, Some(3), &groups), Some(1), "rank 3 is not in the second group");
        assert_eq!(global_rank(0, Some(0), &[]), None);
    }
}
