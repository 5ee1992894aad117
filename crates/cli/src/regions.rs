//! `probe_sync run --region`, which runs several regions and the run among their masters in one
//! command.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use probe_sync::collective::{Collective, Deadline, Frames};
use probe_sync::{Context, Error, Regions, RegionsReport};

use crate::launch::Ranks;
use crate::local::Connected;
use crate::signals::Starting;
use crate::{compose, output, progress};

/// Measures in regions and prints, on rank 0. Also returns which ranks hang until the end
/// ([`Ranks::leave`]).
///
/// # Errors
/// Errors of [`Regions`]; an error for regions missing from the combined offsets.
pub fn run(
    connected: Connected,
    (stop, starting): (Arc<AtomicBool>, Starting),
    json: bool,
) -> (anyhow::Result<()>, Vec<usize>) {
    let Connected { mut ranks, children, config } = connected;
    let mut progress = progress::RunProgress::new(starting);
    let context = Context { stop, towards_root: ranks.towards_root(), ..Context::default() };
    let met = Regions::meet(config, ranks.collective(), &context);
    let (met, mut world) = match met {
        Ok(met) => (Ok(met), ranks.met()),
        Err(error) => {
            abort(&mut ranks, &error);
            (Err(error), None)
        }
    };
    let result = met.and_then(|regions| regions.run(&mut progress));
    progress.finish();
    let result = match result {
        // Before the ranks part: mpirun may kill a stopped job while they do.
        Ok(Some(report)) => {
            let printed = print(&report, json);
            report.region.iter().chain(&report.masters).for_each(crate::report::at_end);
            printed
        }
        Ok(None) => Ok(()),
        Err(error) => {
            world.iter_mut().for_each(|ranks| abort(ranks, &error));
            Err(error.into())
        }
    };
    let parted = world.as_mut().map_or(Ok(()), |ranks| part(ranks.collective()));
    let hung = world.map(Ranks::leave).unwrap_or_default();
    if let Some(children) = children {
        children.finish();
    }
    (result.and(parted), hung)
}

/// Aborts the other ranks. A refusal has reached every rank; other errors they may not know yet.
fn abort(ranks: &mut Ranks, error: &Error) {
    if !matches!(error, Error::Refused { .. }) {
        ranks.collective().abort(&error.to_string());
    }
}

/// Over MPI: waits for the ranks of all regions, which end at different times.
fn part(world: &mut dyn Collective) -> anyhow::Result<()> {
    let deadline = Deadline::new(LAST, None);
    world.gather(&vec![true; world.size()], &[], &mut Frames::default(), &deadline)?;
    Ok(world.broadcast(&mut Vec::new(), &deadline.extended(ROOT_SPEAKS_FIRST))?)
}

fn print(report: &RegionsReport, json: bool) -> anyhow::Result<()> {
    let RegionsReport { out, composed, missing, .. } = report;
    for note in &composed.notes {
        tracing::warn!("{note}");
    }
    match json {
        true => output::json(&compose::document(composed))?,
        false => output::tell(&compose::summary(composed, out))?,
    }
    match &missing[..] {
        [] => Ok(()),
        missing => anyhow::bail!("{} lacks some regions: {}", out.display(), missing.join("; ")),
    }
}

/// Time that other regions and rank 0's composing may take after a rank's own run.
const LAST: Duration = Duration::from_secs(900);
/// Head start for rank 0, which names the missing ranks.
const ROOT_SPEAKS_FIRST: Duration = Duration::from_secs(5);
