//! Collective operations and messages, with the names and arguments by which the parts of different
//! ranks are paired.
//!
//! `check` and other commands pair the parts of one operation by group and sequence number, and
//! infer its ordering guarantees from the name, which contains one of the words they look for. A
//! part is a scope from entering the operation to leaving it.

use crate::event::{OF_SITE, Scope};
use crate::kind::Kind;
use crate::site::Site;
use crate::value::{Listed, Value};

/// A collective operation or message.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Collective {
    /// All ranks receive the sum, or another reduction, of all data.
    AllReduce,
    /// All ranks receive the data of all.
    AllGather,
    /// Each rank receives a part of the reduction of all data.
    ReduceScatter,
    /// Each rank receives a part of each rank's data.
    AllToAll,
    /// All ranks wait for all.
    Barrier,
    /// All ranks receive the root's data.
    Broadcast,
    /// Each rank receives its part of the root's data.
    Scatter,
    /// The root receives the reduction of all data.
    Reduce,
    /// The root receives the data of all.
    Gather,
    /// A message is sent.
    Send,
    /// A message is received.
    Receive,
}

impl Collective {
    /// All operations, in the order of their numbers for C.
    pub const ALL: [Self; 11] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Barrier,
        Self::Broadcast,
        Self::Scatter,
        Self::Reduce,
        Self::Gather,
        Self::Send,
        Self::Receive,
    ];

    /// Returns its name in recordings and traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Scatter => "scatter",
            Self::Reduce => "reduce",
            Self::Gather => "gather",
            Self::Send => "send",
            Self::Receive => "recv",
        }
    }

    /// Returns the operation with a number in [`Collective::ALL`].
    pub fn of_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

/// A rank's part in an operation; unknown values are omitted.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Part<'a> {
    /// Name of the group.
    pub group: Option<&'a str>,
    /// Ranks of the group, in order, as a JSON list.
    pub ranks: Option<&'a str>,
    /// Number of ranks in the group.
    pub group_size: Option<u64>,
    /// Number of the operation in its group, equal on all its ranks.
    pub sequence: Option<u64>,
    /// Type of the elements.
    pub dtype: Option<&'a str>,
    /// Number of elements that this rank sends.
    pub sent: Option<u64>,
    /// Number of elements that this rank receives.
    pub received: Option<u64>,
    /// Rank of the root.
    pub root: Option<u64>,
    /// Rank that sends a message.
    pub source: Option<u64>,
    /// Rank that receives a message.
    pub destination: Option<u64>,
}

/// Returns the site of all parts of an operation that are recorded by [`enter`].
pub fn site_of(operation: Collective) -> &'static Site {
    &SITES[operation as usize]
}

/// Begins this rank's part, which ends with the scope.
pub fn enter(operation: Collective, part: &Part<'_>) -> Scope {
    let site = site_of(operation);
    if !crate::event::is_wanted(site) {
        return Scope::nowhere(site);
    }
    let (stated, count) = stated(part, operation.as_str());
    Scope::enter_with(site, &Listed(count, |at: usize| stated[at]))
}

/// Returns the known values in order, by places among [`KEYS`].
fn stated<'a>(part: &Part<'a>, operation: &'a str) -> ([(u32, Value<'a>); KEYS.len()], usize) {
    let number = |number: Option<u64>| number.map(Value::Unsigned);
    let all = [
        Some(Value::Text(operation)),
        part.group.map(Value::Text),
        part.ranks.map(Value::Json),
        number(part.group_size),
        number(part.sequence),
        part.dtype.map(Value::Text),
        number(part.sent),
        number(part.received),
        number(part.root),
        number(part.source),
        number(part.destination),
    ];
    let (mut found, mut count) = ([(0, Value::Boolean(false)); KEYS.len()], 0);
    for (place, value) in (0..).zip(all) {
        if let Some(value) = value {
            found[count] = (place | OF_SITE, value);
            count += 1;
        }
    }
    (found, count)
}

const KEYS: &[&str; 11] = &[
    super::keys::COLLECTIVE,
    super::keys::GROUP,
    super::keys::RANKS,
    super::keys::GROUP_SIZE,
    super::keys::SEQUENCE,
    super::keys::DTYPE,
    super::keys::SENT,
    super::keys::RECEIVED,
    super::keys::ROOT,
    super::keys::SOURCE,
    super::keys::DESTINATION,
];

const fn site(operation: Collective) -> Site {
    Site::new(operation.as_str(), Kind::Collective, "", 0, KEYS)
}

static SITES: [Site; Collective::ALL.len()] = [
    site(Collective::AllReduce),
    site(Collective::AllGather),
    site(Collective::ReduceScatter),
    site(Collective::AllToAll),
    site(Collective::Barrier),
    site(Collective::Broadcast),
    site(Collective::Scatter),
    site(Collective::Reduce),
    site(Collective::Gather),
    site(Collective::Send),
    site(Collective::Receive),
];

/// Opens this rank's part in an operation, until the end of the block: `let _reduce =
/// collective!(AllReduce, group = "dp", sequence = 9, sent = 1024, dtype = "bf16", shapes = ||
/// shapes_of(&x));`. The operation is one of [`Collective`](crate::typed::Collective); the
/// arguments that readers understand are those of [`keys`](crate::typed::keys).
#[macro_export]
macro_rules! collective {
    ($operation:ident $(, $($rest:tt)*)?) => {{
        $crate::__site!(
            SITE, $crate::Kind::Collective, $crate::typed::Collective::$operation.as_str();
            collective = 0 $(, $($rest)*)?
        );
        $crate::__scope!(
            SITE, 0, [], [];
            collective = $crate::typed::Collective::$operation.as_str() $(, $($rest)*)?
        )
    }};
}
