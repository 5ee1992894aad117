//! Regions that state their operation, as a recorder's do.
//!
//! `formats::stated` defines the meaning of their arguments. It does not use the names of regions.

use super::row::{bytes, integer, time};
use super::statements::{stated, states};
use crate::Error;
use crate::rocpd::catalog::Writer;
use crate::rocpd::cpu_clock;
use crate::rocpd::reading::{Database, REGION};
use crate::stated::Stated;

/// A region that states its operation.
pub(super) struct StatedRow<'a> {
    pub(super) stated: Stated<'static>,
    /// Start and end, ns.
    pub(super) start: Option<i64>,
    pub(super) end: Option<i64>,
    /// Its table and its number there.
    pub(super) place: (&'a str, i64),
}

/// Passes on the regions that state their operation.
///
/// # Errors
/// A table cannot be read.
pub(super) fn read(
    database: &Database<'_>,
    writer: &Writer,
    by_ns: Option<i64>,
    take: &mut dyn FnMut(&StatedRow<'_>),
) -> Result<(), Error> {
    let (Some(region), Some(arg)) = (database.table(writer, REGION), database.table(writer, "rocpd_arg")) else {
        return Ok(());
    };
    let mut any = false;
    database.each(&arg.name, &states(arg), &mut |_| {
        any = true;
        Ok(())
    })?;
    if !any {
        return Ok(());
    }
    let behind = cpu_clock::behind((database.catalog, "main"), database.path, region, by_ns)?;
    database.each(&region.name, &stated(region, arg, behind.as_ref(), &Stated::NAMES), &mut |row| {
        let mut of_row = Stated::default();
        for (name, at) in Stated::NAMES.iter().zip(3..) {
            let text = String::from_utf8_lossy(&bytes(row, at)?).into_owned();
            if let Some(place) = of_row.place(name) {
                *place = text.into();
            }
        }
        let place = (region.name.as_str(), integer(row, 2)?.unwrap_or(0));
        take(&StatedRow { stated: of_row, start: time(row, 0)?, end: time(row, 1)?, place });
        Ok(())
    })
}
