//! A dump of operations that were recorded by other means than the Flight Recorder.

use crate::dump::{Dump, Entry, Group, Members, Shape, Text, Types};

/// An operation that a rank has begun.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
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
    /// use probe_sync_hang::{Clocks, Dump, Job, Recorded};
    ///
    /// let barrier = Recorded { operation: "barrier".into(), group: "world".into(), sequence: 7, ..Recorded::default() };
    /// let before = Recorded { sequence: 6, is_finished: true, ..barrier.clone() };
    /// let mut job = Job::new();
    /// job.add(0, &Dump::of_recorded(None, vec![before.clone(), barrier]))?;
    /// job.add(1, &Dump::of_recorded(None, vec![before]))?;
    /// assert_eq!(job.judge(&Clocks::default()).causes[0].ranks, [1]);
    /// # Ok::<(), probe_sync_hang::DumpError>(())
    /// ```
    pub fn of_recorded(host: Option<String>, operations: Vec<Recorded>) -> Self {
        let mut dump = Self { host_name: host, ..Self::default() };
        for (number, recorded) in (0..).zip(operations) {
            if !recorded.members.is_empty() {
                let group = Group { desc: Some(recorded.group.clone()), ranks: Members(recorded.members) };
                dump.pg_config.insert(recorded.group.clone(), group);
            }
            dump.entries.push(Entry {
                record_id: number,
                process_group: (Text(recorded.group.clone()), Text(recorded.group)),
                collective_seq_id: recorded.sequence,
                profiling_name: recorded.operation,
                time_created_ns: recorded.at_ns,
                input_sizes: Shape(recorded.elements),
                input_dtypes: recorded.element_type.map(|name| Types(Some(name))),
                state: recorded.is_finished.then(|| "completed".to_owned()),
                ..Entry::default()
            });
        }
        dump
    }
}
