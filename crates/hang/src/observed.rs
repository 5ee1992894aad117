//! A dump of operations that were recorded by other means than the Flight Recorder.

use crate::dump::{Dump, Entry, Group, Members, Shape, Text, Types};

/// An operation that a rank has begun.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Name of the operation, such as `all_reduce`.
    pub operation: String,
    /// Name of the group.
    pub group: String,
    /// Ranks of the group, in its order; empty if they are not known.
    pub members: Vec<u32>,
    /// Number of the operation in its group.
    pub sequence: u64,
    /// Number of elements that the rank contributes, if known.
    pub elements: Option<u64>,
    /// Type of the elements, if known.
    pub element_type: Option<String>,
    /// Start on the system clock of the rank's host, ns since 1970, if known.
    pub at_ns: Option<i64>,
    /// True if the rank has left the operation.
    pub is_finished: bool,
}

impl Dump {
    /// Creates the dump of a rank from its last operations, in the order in which it began them.
    ///
    /// # Examples
    /// ```
    /// use probe_sync_hang::{Clocks, Dump, Job, Observed};
    ///
    /// let barrier = Observed { operation: "barrier".into(), group: "world".into(), sequence: 7, ..Observed::default() };
    /// let before = Observed { sequence: 6, is_finished: true, ..barrier.clone() };
    /// let mut job = Job::new();
    /// job.add(0, &Dump::of_observed(None, vec![before.clone(), barrier]))?;
    /// job.add(1, &Dump::of_observed(None, vec![before]))?;
    /// assert_eq!(job.judge(&Clocks::default()).causes[0].ranks, [1]);
    /// # Ok::<(), probe_sync_hang::DumpError>(())
    /// ```
    pub fn of_observed(host: Option<String>, operations: Vec<Observed>) -> Self {
        let mut dump = Self { host_name: host, ..Self::default() };
        for (number, observed) in (0..).zip(operations) {
            if !observed.members.is_empty() {
                let group = Group { desc: Some(observed.group.clone()), ranks: Members(observed.members) };
                dump.pg_config.insert(observed.group.clone(), group);
            }
            dump.entries.push(Entry {
                record_id: number,
                process_group: (Text(observed.group.clone()), Text(observed.group)),
                collective_seq_id: observed.sequence,
                profiling_name: observed.operation,
                time_created_ns: observed.at_ns,
                input_sizes: Shape(observed.elements.map(|elements| vec![vec![elements]])),
                input_dtypes: observed.element_type.map(|name| Types(vec![name])),
                state: observed.is_finished.then(|| "completed".to_owned()),
                ..Entry::default()
            });
        }
        dump
    }
}
