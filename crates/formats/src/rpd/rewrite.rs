//! Writes a trace with its times on another clock: `start` and `end` of every row are where the map
//! puts them. Views are kept, because queries of the tracer's users read them.

use std::path::Path;

use super::catalog::Catalog;
use super::reading::bounds;
use crate::Error;
use crate::sqlite::rewrite::{MovePlausible, Rewriting};
use crate::{MapFunction, RewriteOptions, RewriteStats};

/// Writes `input` to `output`.
///
/// # Errors
/// Names file, table and row.
pub(super) fn rewrite(
    input: &Path,
    output: &Path,
    options: &RewriteOptions<'_>,
    map: &mut MapFunction<'_>,
) -> Result<RewriteStats, Error> {
    let mut rewriting = Rewriting::begin(input, output, options)?;
    let catalog = Catalog::read(rewriting.connection(), "src", input)?;
    catalog.aligned.refuse_second(input, options.metadata, "the trace that the tracer wrote")?;
    let mut moving = MovePlausible::new((0, 0), bounds(options.reach), map);
    let stats = rewriting.copy(&catalog.tables, &catalog.indexes, &mut moving)?;
    catalog.views.iter().try_for_each(|view| rewriting.view(view))?;
    let (mut stats, ()) = rewriting.finish(stats, |_| Ok(()))?;
    stats.notes.extend(catalog.note());
    Ok(stats)
}
