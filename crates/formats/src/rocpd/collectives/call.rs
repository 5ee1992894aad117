//! A call of NCCL or RCCL with its arguments.

use rusqlite::Row;

use super::row::{TEXT_MAX, bytes, integer, time};
use crate::model::{CollectiveEvent, Label, PS_PER_NS, Picoseconds, Recipients};

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

pub(super) fn part(label: Label, start: i64, end: i64) -> CollectiveEvent {
    let ps = |time: i64| Picoseconds::from(time) * PS_PER_NS;
    CollectiveEvent { label, number: 0, start_ps: ps(start), end_ps: ps(end), recipients: Recipients::All }
}

pub(super) fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Arguments of an event; calls have a dozen.
pub(super) const ARGUMENTS_MAX: i64 = 64;
