//! The times of the program's steps on the reference clock.
//!
//! A step of all ranks begins when the first rank begins it and ends when the last one ends it. Its
//! number comes from the name of a host event (a pattern) or from the run of a compiled program in
//! which a collective took part, as in `lateness`.

use std::collections::BTreeMap;

use crate::Error;
use probe_sync_formats::ChunkOptions;
use probe_sync_formats::model::{Instance, TraceFacts};

use super::clock::Clock;
use super::wanted::Steps;
use crate::calibrated::CalibratedTrace;
use crate::step_names::StepNames;

/// Start and end of the wanted steps, ns.
///
/// # Errors
/// [`Error::Request`] where the first or the last of them is in no trace; a trace that cannot be
/// read.
pub(super) fn span(traces: &[CalibratedTrace], wanted: &Steps, names: &StepNames) -> Result<[i64; 2], Error> {
    let mut spans: BTreeMap<i64, [i64; 2]> = BTreeMap::new();
    for of in traces {
        read(of, names, &mut |number, start, end| {
            if spans.len() < STEPS_MAX || spans.contains_key(&number) {
                let span = spans.entry(number).or_insert([start, end]);
                *span = [span[0].min(start), span[1].max(end)];
            }
        })?;
    }
    let (first, last) = (*wanted.0.start(), *wanted.0.end());
    let absent = [first, last].into_iter().find(|step| !spans.contains_key(step));
    if let Some(step) = absent {
        let there = match (spans.keys().next(), spans.keys().next_back()) {
            (Some(first), Some(last)) => format!("the traces have steps {first} to {last}"),
            _ => format!("no event name matches {}; set --step-name", names.pattern),
        };
        return Err(Error::Request { problem: format!("--steps {wanted}: no trace has a step {step}; {there}") });
    }
    let of_wanted = spans.range(first..=last).map(|(_, span)| *span);
    let joined = of_wanted.reduce(|all, span| [all[0].min(span[0]), all[1].max(span[1])]);
    Ok(joined.unwrap_or_default())
}

/// Passes on number, start and end of each step of a trace, ns on the reference clock.
fn read(of: &CalibratedTrace, names: &StepNames, step: &mut dyn FnMut(i64, i64, i64)) -> Result<(), Error> {
    let clock = Clock::of(of);
    let parts = &of.trace.facts.collectives;
    let is_run = |label: u32| matches!(parts.label(label).instance, Instance::Hlo { .. });
    let runs: Vec<u32> = parts.labels().map(|(number, ..)| number).filter(|number| is_run(*number)).collect();
    let mut cursor = parts.cursor(&runs);
    for part in cursor.by_ref() {
        if let Some((start, end)) = clock.ns(part.start_ps).zip(clock.ns(part.end_ps)) {
            step(part.number, start, end);
        }
    }
    if !runs.is_empty() {
        return Ok(());
    }
    let mut map = |time| clock.ps(time);
    let TraceFacts { reach, base_ns, .. } = of.trace.facts;
    let options = ChunkOptions { reach, base_ns, ..ChunkOptions::default() };
    of.trace.format.read_chunks(&of.trace.path, &options, &mut map, &mut |chunk| {
        let slices = &chunk.slices;
        for row in 0..slices.track.len() {
            // The copy of an annotation on a device's timeline begins when the device got there.
            if let Some(number) = names.number(chunk.strings.text(slices.name[row]))
                && chunk.strings.text(slices.category[row]) != "gpu_user_annotation"
            {
                step(number, slices.start_ns[row], slices.end_ns[row]);
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Most steps held: more than any program runs while it is traced.
const STEPS_MAX: usize = 1 << 20;
