//! The first reading of a log: what its process, its communicators and its faults are.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;

use super::lines::Lines;
use super::operation::{Fault, Operation, Refused};
use crate::Error;
use crate::model::{Reach, Spread};
use crate::words::counted;

/// What a log says as a whole.
pub(super) struct Survey {
    pub(super) host: String,
    pub(super) pid: u64,
    pub(super) reach: Option<Reach>,
    communicators: HashMap<String, Communicator>,
}

/// What is known of a communicator.
struct Communicator {
    rank: u32,
    n_ranks: u32,
    /// All lines state these.
    is_one: bool,
}

/// Lines that were left out, by fault: how many, and the first of them.
#[derive(Default)]
pub(super) struct Ignored(BTreeMap<Fault, (u64, u64, Option<String>)>);

impl Survey {
    /// Reads a log.
    ///
    /// # Errors
    /// Names the file and the byte; refuses logs without any time and logs of several processes.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let mut spread = Spread::default();
        let mut process: Option<(String, u64)> = None;
        let mut communicators: HashMap<String, Communicator> = HashMap::new();
        let ignored = for_each(path, |operation, offset| {
            let (host, pid) = process.get_or_insert_with(|| (operation.host.to_string(), operation.pid));
            if *host != operation.host || *pid != operation.pid {
                let problem = format!(
                    "a line of process {} on {} in a log of process {pid} on {host}; give the log of each process",
                    operation.pid, operation.host
                );
                return Err(Error::malformed(path, offset, problem));
            }
            let (start_ps, end_ps) = operation.span_ps();
            spread.add(start_ps, end_ps);
            let header = &operation.header;
            let stated = Communicator { rank: header.rank, n_ranks: header.n_ranks, is_one: true };
            let count = communicators.len();
            match communicators.get_mut(&*header.id) {
                Some(known) => known.is_one &= (known.rank, known.n_ranks) == (stated.rank, stated.n_ranks),
                None if count == COMMUNICATORS_MAX => {
                    let problem = format!("more than {COMMUNICATORS_MAX} communicators");
                    return Err(Error::malformed(path, offset, problem));
                }
                None => {
                    communicators.insert(header.id.to_string(), stated);
                }
            }
            Ok(None)
        })?;
        let Some((host, pid)) = process else { return Err(ignored.refusal(path)) };
        Ok(Self { host, pid, reach: spread.reach(), communicators })
    }

    /// Returns true if the log is that of one rank of this communicator. The parts of several ranks
    /// of one process cannot be told apart by those of other processes.
    pub(super) fn is_of_one_rank(&self, operation: &Operation<'_>) -> bool {
        self.communicators.get(&*operation.header.id).is_some_and(|communicator| communicator.is_one)
    }

    /// The rank in the job. A log does not state it; the rank in the process's only communicator
    /// stands for it, and says nothing about the node. Of several communicators any may be a part of
    /// the job in an order of its own.
    pub(super) fn rank(&self) -> Option<u32> {
        let mut all = self.communicators.values();
        let only = all.next().filter(|only| only.is_one)?;
        all.next().is_none().then_some(only.rank)
    }

    /// Communicators of which the log has several ranks or sizes, for a note.
    pub(super) fn shared(&self) -> Option<String> {
        let shared = self.communicators.values().filter(|communicator| !communicator.is_one).count();
        let what = counted(shared, "communicator");
        let text = format!("{what} of several ranks of this process, whose collectives are not compared with others");
        (shared > 0).then_some(text)
    }
}

/// Passes each operation of a log and the byte at which its line begins to `take`, which may find a
/// fault in it; returns what was left out.
///
/// # Errors
/// Names the file and the byte; also returns errors of `take`.
pub(super) fn for_each(
    path: &Path,
    mut take: impl FnMut(Operation<'_>, u64) -> Result<Option<Fault>, Error>,
) -> Result<Ignored, Error> {
    let file = File::open(path).map_err(Error::io(path, "open"))?;
    let mut lines = Lines::open(file).map_err(Error::io(path, "read"))?;
    let mut ignored = Ignored::default();
    while let Some(line) = lines.next().map_err(Error::io(path, "read"))? {
        match Operation::read(&line) {
            Ok(operation) => {
                if let Some(fault) = take(operation, line.offset)? {
                    ignored.add(fault, line.number, None);
                }
            }
            Err(Refused::File(problem)) => {
                return Err(Error::malformed(path, line.offset, format!("line {}: {problem}", line.number)));
            }
            Err(Refused::Line(fault, problem)) => ignored.add(fault, line.number, problem),
        }
    }
    Ok(ignored)
}

impl Ignored {
    fn add(&mut self, fault: Fault, number: u64, problem: Option<String>) {
        self.0.entry(fault).or_insert((0, number, problem)).0 += 1;
    }

    /// Number of lines for each reason.
    pub(super) fn by_reason(&self) -> Vec<(&'static str, u64)> {
        self.0.iter().map(|(fault, (count, ..))| (fault.text(), *count)).collect()
    }

    /// Number of lines.
    pub(super) fn lines(&self) -> u64 {
        self.0.values().map(|(count, ..)| count).sum()
    }

    /// Number of lines that say nothing about times, as opposed to those whose times are wrong.
    pub(super) fn untimed(&self) -> u64 {
        self.0.get(&Fault::NotVerbose).map_or(0, |(count, ..)| *count)
    }

    /// A warning for the user; `None` if no line was left out.
    pub(super) fn note(&self) -> Option<String> {
        let reasons: Vec<String> = self.0.iter().map(reason).collect();
        (!reasons.is_empty()).then(|| format!("ignored {} ({})", counted(self.lines(), "line"), reasons.join("; ")))
    }

    /// Says why a log has no operation with a known time.
    fn refusal(&self, path: &Path) -> Error {
        let problem = match self.untimed() {
            0 => "no line of this log of the NCCL Inspector has usable times",
            _ => {
                "this log of the NCCL Inspector states durations, but not when an operation was; set \
                NCCL_INSPECTOR_DUMP_VERBOSE=1 in the job"
            }
        };
        let ignored = self.note().map_or_else(String::new, |note| format!("; {note}"));
        Error::malformed(path, 0, format!("{problem}{ignored}"))
    }
}

/// The lines of one fault, in words.
fn reason((fault, (count, first, problem)): (&Fault, &(u64, u64, Option<String>))) -> String {
    let problem = problem.as_ref().map_or_else(String::new, |problem| format!(": {problem}"));
    let place = if *count == 1 { "line" } else { "first line" };
    format!("{count} {}, {place} {first}{problem}", fault.text())
}

/// Communicators of a process that are remembered.
const COMMUNICATORS_MAX: usize = 10_000;
