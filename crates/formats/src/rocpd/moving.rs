//! The rule by which the times of a row are moved: 0 and NULL mean that a time is not set, and stay.
//!
//! Rows that are behind the others are shifted to their clock first, and an implausible time becomes
//! 0, which means unknown.

use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::reading::Behind;
use crate::MapFunction;
use crate::model::{PS_PER_NS, Picoseconds, Reach, nearest_ns};
use crate::sqlite::copy::{MoveRow, WrongRow};
use crate::sqlite::table::Table;

/// The rule for the rows of one table.
pub(super) struct Moving<'a, 'b> {
    pub(super) behind: Option<Behind>,
    /// Range of plausible times; `None`: all.
    pub(super) reach: Option<Reach>,
    pub(super) map: &'a mut MapFunction<'b>,
}

impl MoveRow for Moving<'_, '_> {
    fn asks(&self) -> Option<&str> {
        self.behind.as_ref().map(|behind| behind.is_behind.as_str())
    }

    fn take(
        &mut self,
        row: &Row<'_>,
        table: &Table,
        times: &mut Vec<(i64, i64)>,
    ) -> rusqlite::Result<Result<bool, WrongRow>> {
        let Some(by_ns) = self.behind_by(row, table)? else {
            return Ok(Err(WrongRow { column: None, problem: NO_CATEGORY.to_owned() }));
        };
        let mut is_timed = false;
        for (number, at) in table.times.iter().enumerate() {
            let value = row.get_ref(number + 1)?;
            match value {
                ValueRef::Integer(0) => times.push((0, 0)),
                ValueRef::Integer(old) if self.is_away(old) => {
                    is_timed = true;
                    times.push((old, 0));
                }
                _ => match moved(value, by_ns, self.map) {
                    Ok(moved) => {
                        is_timed |= moved.is_some();
                        times.extend(moved);
                    }
                    Err(problem) => return Ok(Err(WrongRow { column: Some(*at), problem })),
                },
            }
        }
        Ok(Ok(is_timed))
    }
}

impl Moving<'_, '_> {
    fn is_away(&self, ns: i64) -> bool {
        let time_ps = Picoseconds::from(ns) * PS_PER_NS;
        self.reach.is_some_and(|reach| !reach.holds(time_ps, time_ps))
    }

    /// How far the times of a row are behind those of the others, ns; `None` if nothing tells
    /// whether they are.
    fn behind_by(&self, row: &Row<'_>, table: &Table) -> rusqlite::Result<Option<i64>> {
        let Some(Behind { by_ns, .. }) = self.behind else { return Ok(Some(0)) };
        Ok(match row.get_ref(table.times.len() + 1)? {
            ValueRef::Integer(is_behind) => Some(is_behind * by_ns),
            _ => None,
        })
    }
}

/// A cell's time, old and new, `by_ns` added before it is mapped; `None` if it is not set.
pub(super) fn moved(value: ValueRef<'_>, by_ns: i64, map: &mut MapFunction<'_>) -> Result<Option<(i64, i64)>, String> {
    let Some(old) = time(value)? else { return Ok(None) };
    // Zero would say that it is not set.
    let new = nearest_ns(map((Picoseconds::from(old) + Picoseconds::from(by_ns)) * PS_PER_NS)).filter(|new| *new != 0);
    let new = new.ok_or_else(|| format!("{old} ns exceeds the range of times on the common clock"))?;
    Ok(Some((old, new)))
}

/// A time that is set, ns; 0 and NULL mean that it is not.
fn time(value: ValueRef<'_>) -> Result<Option<i64>, String> {
    match value {
        ValueRef::Integer(0) | ValueRef::Null => Ok(None),
        ValueRef::Integer(time) => Ok(Some(time)),
        other => Err(format!("contains {} instead of a time in ns", other.data_type().to_string().to_lowercase())),
    }
}

const NO_CATEGORY: &str = "has no category to determine its clock (--cpu-clock); remove it in a copy of the file";
