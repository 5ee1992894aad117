//! Jobs with tensor, pipeline, data and expert parallelism, in which something goes wrong at a
//! known rank. The simulator knows programs, devices and clocks; it shares nothing with the reader
//! but the format of a dump, which it writes as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use probe_sync_hang::{Certainty, Clocks, Dump, Job, Verdict};

/// Splitmix64.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// What goes wrong at a rank.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its program stops: an endless loop, a locked interpreter.
    Loop,
    /// It is killed: no dump.
    Killed,
    /// Its dump is cut off, and its program stopped before.
    Truncated,
    /// Its device stops; its program continues to enqueue until it has to wait.
    Device,
    /// It leaves one collective out.
    Skips,
    /// It passes another size.
    Size,
    /// It exchanges two operations of different groups.
    Order,
    /// It receives a message that nobody sends.
    Receive,
}

pub const FAULTS: [Fault; 8] = [
    Fault::Loop,
    Fault::Killed,
    Fault::Truncated,
    Fault::Device,
    Fault::Skips,
    Fault::Size,
    Fault::Order,
    Fault::Receive,
];

#[derive(Copy, Clone, Debug, PartialEq)]
enum Act {
    Collective {
        group: usize,
        name: &'static str,
        elements: u64,
    },
    Send {
        group: usize,
        to: usize,
    },
    Receive {
        group: usize,
        from: usize,
    },
    /// The program waits until its device has finished everything.
    Wait,
}

/// A rank, and a place in its queue.
type Places = Vec<(usize, usize)>;

#[derive(Clone, Debug)]
struct Group {
    description: &'static str,
    members: Vec<usize>,
}

/// An enqueued operation.
#[derive(Clone, Debug)]
struct Enqueued {
    act: Act,
    sequence: u64,
    created: u64,
    finished: bool,
}

#[derive(Clone, Debug, Default)]
struct Process {
    program: Vec<Act>,
    at: usize,
    now: u64,
    queue: Vec<Enqueued>,
    /// Everything before it is finished.
    head: usize,
    sequences: BTreeMap<usize, u64>,
    /// Where the program stops.
    stops_at: Option<usize>,
    /// From which operation on the device does nothing.
    device_stops_at: Option<usize>,
}

/// One job that has come to a stop.
pub struct Simulated {
    pub guilty: BTreeSet<u32>,
    pub fault: Fault,
    pub layout: [usize; 3],
    groups: Vec<Group>,
    processes: Vec<Process>,
    /// Whether all processes wait for their device after every operation, as with gloo.
    pub blocking: bool,
    /// Whether an innocent rank's dump is lost.
    pub lost: Option<u32>,
}

impl Simulated {
    /// Runs a job until nothing moves.
    pub fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let layout =
            random.pick(&[[2, 2, 4], [4, 2, 2], [1, 4, 4], [2, 4, 4], [8, 2, 4], [4, 1, 8], [8, 4, 8], [8, 8, 16]]);
        let [tensor, pipeline, data] = layout;
        let world = tensor * pipeline * data;
        let groups = groups(tensor, pipeline, data);
        let blocking = random.below(2) == 0;
        let program = |rank: usize| program(rank, &groups, [tensor, pipeline, data], blocking);
        let mut processes: Vec<Process> =
            (0..world).map(|rank| Process { program: program(rank), ..Process::default() }).collect();
        for process in &mut processes {
            process.now = random.next() % 50_000;
        }
        let fault = random.pick(&FAULTS);
        let mut guilty = BTreeSet::new();
        for _ in 0..if random.below(4) == 0 { 2 } else { 1 } {
            let rank = random.below(world);
            if guilty.insert(rank as u32) {
                damage(&mut processes[rank], fault, rank, &groups, &mut random);
            }
        }
        let lost = (random.below(8) == 0).then(|| random.below(world) as u32).filter(|rank| !guilty.contains(rank));
        let mut job = Self { guilty, fault, layout, groups, processes, blocking, lost };
        job.run(&mut random);
        job
    }

    fn run(&mut self, random: &mut Random) {
        let mut moved = true;
        while moved {
            moved = false;
            for rank in 0..self.processes.len() {
                moved |= self.advance_program(rank, random);
            }
            moved |= self.advance_devices();
        }
    }

    /// Enqueues what the program of a rank may enqueue.
    fn advance_program(&mut self, rank: usize, random: &mut Random) -> bool {
        let process = &mut self.processes[rank];
        let before = process.at;
        while process.at < process.program.len() && process.stops_at != Some(process.at) {
            let act = process.program[process.at];
            if act == Act::Wait {
                if process.head < process.queue.len() {
                    break;
                }
                process.at += 1;
                continue;
            }
            process.now += 100_000 + random.next() % 30_000;
            let group = match act {
                Act::Collective { group, .. } => group,
                Act::Send { group, .. } | Act::Receive { group, .. } => group + MESSAGES,
                Act::Wait => unreachable!("handled above"),
            };
            let sequence = process.sequences.entry(group).or_default();
            *sequence += 1;
            let enqueued = Enqueued { act, sequence: *sequence, created: process.now, finished: false };
            process.queue.push(enqueued);
            process.at += 1;
        }
        process.at != before
    }

    /// Finishes every operation that all members have reached. A device works through its queue in
    /// order, except for receives, which others may overtake.
    fn advance_devices(&mut self) -> bool {
        let mut ready: BTreeMap<(usize, u64), Vec<(usize, usize)>> = BTreeMap::new();
        let mut messages: BTreeMap<(usize, usize, usize), [Places; 2]> = BTreeMap::new();
        for (rank, process) in self.processes.iter().enumerate() {
            for (place, enqueued) in process.queue.iter().enumerate().skip(process.head) {
                if process.device_stops_at.is_some_and(|stop| place >= stop) {
                    break;
                }
                if enqueued.finished {
                    continue;
                }
                match enqueued.act {
                    Act::Collective { group, .. } => {
                        ready.entry((group, enqueued.sequence)).or_default().push((rank, place));
                        break;
                    }
                    Act::Send { group, to } => {
                        messages.entry((group, rank, to)).or_default()[0].push((rank, place));
                        break;
                    }
                    Act::Receive { group, from } => {
                        messages.entry((group, from, rank)).or_default()[1].push((rank, place));
                        if self.blocking {
                            break;
                        }
                    }
                    Act::Wait => {}
                }
            }
        }
        let mut done: Vec<(usize, usize)> = Vec::new();
        for ((group, _), at) in ready {
            let acts: BTreeSet<String> =
                at.iter().map(|(rank, place)| format!("{:?}", self.processes[*rank].queue[*place].act)).collect();
            if at.len() == self.groups[group].members.len() && acts.len() == 1 {
                done.extend(at);
            }
        }
        for [sends, receives] in messages.into_values() {
            done.extend(sends.iter().zip(&receives).flat_map(|(send, receive)| [*send, *receive]));
        }
        // A member's device that stops while it takes part lets the others finish.
        for (rank, place) in &done {
            self.processes[*rank].queue[*place].finished = true;
        }
        let mut last = self.release_members_of_stopped_devices();
        last |= !done.is_empty();
        for process in &mut self.processes {
            while process.queue.get(process.head).is_some_and(|enqueued| enqueued.finished) {
                process.head += 1;
            }
        }
        last
    }

    /// Lets the other members finish the operation in which a device stops.
    fn release_members_of_stopped_devices(&mut self) -> bool {
        let mut moved = false;
        for rank in 0..self.processes.len() {
            let process = &self.processes[rank];
            let Some(stop) = process.device_stops_at.filter(|stop| process.head == *stop) else { continue };
            let Some(enqueued) = process.queue.get(stop).cloned() else { continue };
            let Act::Collective { group, .. } = enqueued.act else { continue };
            let members = self.groups[group].members.clone();
            let at = |other: usize| {
                let process = &self.processes[other];
                process
                    .queue
                    .get(process.head)
                    .filter(|own| own.act == enqueued.act && own.sequence == enqueued.sequence)
                    .map(|_| process.head)
            };
            let places: Vec<Option<usize>> = members.iter().map(|other| at(*other)).collect();
            if places.iter().any(Option::is_none) {
                continue;
            }
            for (other, place) in members.into_iter().zip(places) {
                if other != rank
                    && let Some(place) = place
                {
                    self.processes[other].queue[place].finished = true;
                    moved = true;
                }
            }
        }
        moved
    }

    /// Returns true if some innocent rank cannot finish its program.
    pub fn is_stopped(&self) -> bool {
        let stuck = |(rank, process): (usize, &Process)| {
            !self.guilty.contains(&(rank as u32)) && process.head < process.queue.len()
        };
        self.processes.iter().enumerate().any(stuck)
    }

    /// Judges the job from its dumps; clocks differ by up to `skew_ns` and are known to `known_ns`.
    pub fn judge(&self, skew_ns: i64, known_ns: Option<i64>) -> Verdict {
        let mut random = Random(self.processes.len() as u64);
        let mut job = Job::new();
        let mut clocks = Clocks::default();
        let mut skews: BTreeMap<usize, i64> = BTreeMap::new();
        for rank in 0..self.processes.len() {
            let host = rank / 8;
            let skew =
                *skews.entry(host).or_insert_with(|| if skew_ns == 0 { 0 } else { random.next() as i64 % skew_ns });
            clocks.set_host(rank as u32, &format!("host-{host}"));
            if let Some(known) = known_ns {
                clocks.set(rank as u32, skew + random.next() as i64 % known.max(1), known);
            }
            let guilty = self.guilty.contains(&(rank as u32));
            match self.fault {
                Fault::Killed if guilty => continue,
                _ if self.lost == Some(rank as u32) => continue,
                _ => {}
            }
            let text = self.dump(rank, skew);
            let cut = if guilty && self.fault == Fault::Truncated { text.len() / 2 } else { text.len() };
            match Dump::read(&text.as_bytes()[..cut]) {
                Ok(dump) => job.add(rank as u32, &dump).expect("a rank of the job"),
                Err(error) => job.add_unusable(rank as u32, error.to_string()),
            }
        }
        job.judge(&clocks)
    }

    fn dump(&self, rank: usize, skew_ns: i64) -> String {
        let process = &self.processes[rank];
        let own: Vec<usize> =
            (0..self.groups.len()).filter(|group| self.groups[*group].members.contains(&rank)).collect();
        let mut text = String::from("{\"version\": \"2.10\", \"pg_config\": {");
        for (number, group) in own.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            let _ = write!(
                text,
                "{separator}\"{group}\": {{\"desc\": \"{}\", \"ranks\": \"{:?}\"}}",
                self.groups[*group].description, self.groups[*group].members
            );
        }
        text.push_str("}, \"entries\": [");
        let from = process.queue.len().saturating_sub(RING);
        for (place, enqueued) in process.queue.iter().enumerate().skip(from) {
            let separator = if place == from { "" } else { ", " };
            let (group, name, elements) = match enqueued.act {
                Act::Collective { group, name, elements } => (group, name.to_owned(), elements),
                Act::Send { group, to } => (group, self.message("send", "->", group, rank, to), 64),
                Act::Receive { group, from } => (group, self.message("recv", "<-", group, rank, from), 64),
                Act::Wait => continue,
            };
            let message = matches!(enqueued.act, Act::Send { .. } | Act::Receive { .. });
            let (collective, sent) = if message { (0, enqueued.sequence) } else { (enqueued.sequence, 0) };
            let state = if enqueued.finished { "completed" } else { "scheduled" };
            let created = 1_700_000_000_000_000_000 + enqueued.created as i64 + skew_ns;
            let _ = write!(
                text,
                "{separator}{{\"record_id\": {place}, \"pg_id\": {group}, \"process_group\": [\"{group}\", \"{}\"], \"collective_seq_id\": {collective}, \"p2p_seq_id\": {sent}, \"profiling_name\": \"nccl:{name}\", \"time_created_ns\": {created}, \"input_sizes\": [[{elements}]], \"input_dtypes\": [\"Float\"], \"state\": \"{state}\", \"is_p2p\": {message}}}",
                self.groups[group].description
            );
        }
        text.push_str("]}");
        text
    }

    fn message(&self, verb: &str, arrow: &str, group: usize, own: usize, other: usize) -> String {
        let place = |rank| self.groups[group].members.iter().position(|member| *member == rank).expect("a member");
        format!("{verb} {}{arrow}{}", place(own), place(other))
    }
}

fn groups(tensor: usize, pipeline: usize, data: usize) -> Vec<Group> {
    let rank = |t: usize, p: usize, d: usize| (p * data + d) * tensor + t;
    let world = tensor * pipeline * data;
    let mut groups = vec![Group { description: "default_pg", members: (0..world).collect() }];
    let mut add = |description, members: Vec<usize>| groups.push(Group { description, members });
    for p in 0..pipeline {
        for d in 0..data {
            add("TENSOR", (0..tensor).map(|t| rank(t, p, d)).collect());
        }
        for t in 0..tensor {
            add("DATA", (0..data).map(|d| rank(t, p, d)).collect());
        }
        add("EXPERT", (0..data).flat_map(|d| (0..tensor).map(move |t| (t, d))).map(|(t, d)| rank(t, p, d)).collect());
    }
    for d in 0..data {
        for t in 0..tensor {
            add("PIPELINE", (0..pipeline).map(|p| rank(t, p, d)).collect());
        }
    }
    groups
}

/// Steps of a pipeline with receives that are posted ahead.
fn program(rank: usize, groups: &[Group], [tensor, pipeline, data]: [usize; 3], blocking: bool) -> Vec<Act> {
    let own = |description: &str| {
        let is_own = |group: &Group| group.description == description && group.members.contains(&rank);
        groups.iter().position(is_own).expect("every rank has one")
    };
    let (tensor_group, data_group, expert, line) = (own("TENSOR"), own("DATA"), own("EXPERT"), own("PIPELINE"));
    let stage = rank / (tensor * data);
    let next = rank + tensor * data;
    let mut acts = Vec::new();
    let collective = |group: usize, name, elements| Act::Collective { group, name, elements };
    for step in 0..STEPS {
        for _ in 0..MICRO_BATCHES {
            if stage > 0 {
                acts.push(Act::Receive { group: line, from: rank - tensor * data });
            }
            if tensor > 1 {
                acts.push(collective(tensor_group, "_all_gather_base", 4096));
                acts.push(collective(tensor_group, "_reduce_scatter_base", 8192));
            }
            acts.push(collective(expert, "all_to_all", 0));
            if stage + 1 < pipeline {
                acts.push(Act::Send { group: line, to: next });
            }
        }
        if data > 1 {
            acts.push(collective(data_group, "all_reduce", 1 << 20));
        }
        if step % 2 == 1 {
            acts.push(collective(0, "all_reduce", 1));
        }
        acts.push(Act::Wait);
    }
    if blocking {
        acts = acts.into_iter().flat_map(|act| [act, Act::Wait]).collect();
    }
    acts
}

fn damage(process: &mut Process, fault: Fault, rank: usize, groups: &[Group], random: &mut Random) {
    let length = process.program.len();
    let from = length / 4 + random.below(length / 2);
    let collectives: Vec<usize> = (from..length)
        .filter(|at| matches!(process.program[*at], Act::Collective { group, .. } if groups[group].members.len() > 1))
        .collect();
    let at = collectives[0];
    match fault {
        Fault::Loop | Fault::Killed | Fault::Truncated => process.stops_at = Some(at),
        Fault::Device => {
            let before = process.program[..at].iter().filter(|act| **act != Act::Wait).count();
            process.device_stops_at = Some(before);
        }
        Fault::Skips => drop(process.program.remove(at)),
        Fault::Size => {
            let sized = |act: &Act| matches!(act, Act::Collective { group, name, .. } if *name != "all_to_all" && groups[*group].members.len() > 1);
            let at = (from..length).find(|at| sized(&process.program[*at]));
            let at = at
                .or_else(|| (0..length).rev().find(|at| sized(&process.program[*at])))
                .expect("every program has one");
            if let Act::Collective { elements, .. } = &mut process.program[at] {
                *elements += 1;
            }
        }
        Fault::Order => {
            let group_of = |at: usize| match process.program[at] {
                Act::Collective { group, .. } => group,
                _ => usize::MAX,
            };
            let other = collectives.iter().copied().find(|other| group_of(*other) != group_of(at)).unwrap_or(at);
            process.program.swap(at, other);
        }
        Fault::Receive => {
            let line = groups
                .iter()
                .position(|group| group.members.contains(&rank) && group.members.len() > 1)
                .expect("the world");
            let members = &groups[line].members;
            let other = members.iter().copied().find(|member| *member != rank).expect("another");
            process.program.insert(at, Act::Receive { group: line, from: other });
        }
    }
}

/// How often named ranks are guilty, and how often the guilty are named.
#[derive(Clone, Debug, Default)]
struct Score {
    jobs: usize,
    named: usize,
    right: usize,
    guilty: usize,
    /// Guilty ranks that are named, or among the candidates of an undecided cause.
    shown: usize,
    found: usize,
}

fn score(jobs: u64, skew_ns: i64, known_ns: Option<i64>) -> Score {
    let mut total = Score::default();
    let mut by_fault: BTreeMap<String, Score> = BTreeMap::new();
    for seed in 0..jobs {
        let job = Simulated::new(seed);
        if !job.is_stopped() {
            continue;
        }
        let verdict = job.judge(skew_ns, known_ns);
        let decided = verdict.causes.iter().filter(|cause| cause.certainty != Certainty::Undecided);
        let named: BTreeSet<u32> = decided.flat_map(|cause| cause.ranks.iter().copied()).collect();
        let shown: BTreeSet<u32> = verdict.causes.iter().flat_map(|cause| cause.ranks.iter().copied()).collect();
        let wrong: Vec<&u32> = named.difference(&job.guilty).collect();
        if !wrong.is_empty() {
            println!(
                "seed {seed} {:?} {:?} blocking {} lost {:?}: guilty {:?}\n{}",
                job.fault,
                job.layout,
                job.blocking,
                job.lost,
                job.guilty,
                verdict.text()
            );
        }
        for score in [&mut total, by_fault.entry(format!("{:?} {}", job.fault, job.blocking)).or_default()] {
            score.jobs += 1;
            score.named += named.len();
            score.right += named.intersection(&job.guilty).count();
            score.guilty += job.guilty.len();
            score.shown += shown.intersection(&job.guilty).count();
            score.found += usize::from(!verdict.causes.is_empty());
        }
    }
    for (fault, score) in &by_fault {
        println!("{fault:20} {score:?}");
    }
    println!("all {total:?}");
    total
}

fn check(jobs: u64, known: &[Option<i64>]) {
    let skew_ns = 50_000_000;
    for known_ns in known.iter().copied() {
        println!("clocks off by up to {skew_ns} ns, known to {known_ns:?} ns");
        let score = score(jobs, skew_ns, known_ns);
        assert!(score.right as f64 >= 0.99 * score.named as f64, "precision: {score:?}");
        assert!(score.right as f64 >= 0.5 * score.guilty as f64, "recall: {score:?}");
    }
}

#[test]
fn those_who_are_named_are_guilty() {
    check(30, &[Some(1_000), None]);
}

#[test]
#[ignore = "long: 500 simulated jobs of up to 1024 ranks"]
fn those_who_are_named_are_guilty_in_500_jobs() {
    check(500, &[Some(1_000), Some(1_000_000), None]);
}

/// Sequence numbers of messages are counted apart.
const MESSAGES: usize = 1 << 20;
const RING: usize = 2000;
const STEPS: usize = 4;
const MICRO_BATCHES: usize = 3;
