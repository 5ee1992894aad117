//! A call of NCCL or RCCL with its arguments, and what operation its name states.

use rusqlite::Row;

use super::row::{TEXT_MAX, bytes, integer, time};
use crate::model::{CollectiveEvent, CollectiveKind, Label, PS_PER_NS, Picoseconds, Recipients};

/// A call with its arguments.
#[derive(Default)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) track: (i64, i64),
    pub(super) start: Option<i64>,
    pub(super) end: Option<i64>,
    pub(super) count: Vec<u8>,
    pub(super) datatype: Vec<u8>,
    pub(super) communicator: Vec<u8>,
    pub(super) root: Option<u32>,
    pub(super) peer: Option<u32>,
    pub(super) size: Option<u32>,
    pub(super) rank: Option<u32>,
    /// Rows of arguments that its event has.
    pub(super) arguments: i64,
    /// Its row in the table of regions.
    pub(super) row: i64,
}

impl Call {
    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Call> {
        let track = (integer(row, 0)?.unwrap_or(0), integer(row, 1)?.unwrap_or(0));
        let name = String::from_utf8_lossy(&bytes(row, 4)?).chars().take(TEXT_MAX).collect();
        let arguments = integer(row, 12)?.unwrap_or(0);
        let (start, end) = (time(row, 2)?, time(row, 3)?);
        let number_of_row = integer(row, 13)?.unwrap_or(0);
        let call = Call { name, track, start, end, arguments, row: number_of_row, ..Call::default() };
        if arguments > ARGUMENTS_MAX {
            return Ok(call);
        }
        Ok(Call {
            count: bytes(row, 5)?,
            datatype: bytes(row, 6)?,
            communicator: bytes(row, 7)?,
            root: number(&bytes(row, 8)?),
            peer: number(&bytes(row, 9)?),
            size: number(&bytes(row, 10)?),
            rank: number(&bytes(row, 11)?),
            ..call
        })
    }
}

/// A call's name without the library's.
pub(super) fn bare(name: &str) -> &str {
    name.trim_start_matches("nccl").trim_start_matches("rccl")
}

/// The order imposed by a call; `None` for calls that are not operations.
pub(super) fn kind_of(bare: &str, call: &Call) -> Option<(CollectiveKind, Recipients)> {
    let kind = match bare {
        "AllReduce" | "AllGather" | "ReduceScatter" | "AllToAll" | "AlltoAll" => CollectiveKind::AllToAll,
        "AllToAllv" | "AlltoAllv" => return Some((CollectiveKind::AllToAll, Recipients::Unknown)),
        "Broadcast" | "Bcast" | "Scatter" => CollectiveKind::FromRoot(call.root),
        "Reduce" | "Gather" => CollectiveKind::ToRoot(call.root),
        "Send" => CollectiveKind::PointToPoint { source: None, destination: call.peer },
        "Recv" => CollectiveKind::PointToPoint { source: call.peer, destination: None },
        _ => return None,
    };
    Some((kind, Recipients::All))
}

/// The order imposed by a kernel, as far as its name tells; it does not contain roots and peers.
pub(super) fn kind_of_kernel(name: &str) -> CollectiveKind {
    let has = |part: &str| name.contains(part);
    if has("AllReduce") || has("AllGather") || has("ReduceScatter") {
        CollectiveKind::AllToAll
    } else if has("Broadcast") {
        CollectiveKind::FromRoot(None)
    } else if has("Reduce") {
        CollectiveKind::ToRoot(None)
    } else {
        CollectiveKind::Unknown
    }
}

pub(super) fn part(label: Label, start: i64, end: i64) -> CollectiveEvent {
    let ps = |time: i64| Picoseconds::from(time) * PS_PER_NS;
    CollectiveEvent { label, number: 0, start_ps: ps(start), end_ps: ps(end), recipients: Recipients::All }
}

pub(super) fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Arguments of an event; calls have a dozen.
pub(super) const ARGUMENTS_MAX: i64 = 64;
