//! Conversion of a run's directory into a page.
//!
//! `documents` reads the files written once, `recording` the rounds, and `late` who was late while
//! the job ran; `edges` handles the files of edge fits. A directory whose run was killed or is still in progress has no report. The last
//! round in `offsets.jsonl` then takes its place, and the page states this. It does not query a run
//! in progress.

mod documents;
mod late;
mod recording;

use std::path::Path;

use crate::data::{Data, SCHEMA};
use crate::edges;
use crate::limit::Limit;
use crate::page::{Page, marks, worst_rows};
use crate::series::Survey;
use crate::{Error, verdict};
use documents::Documents;
use probe_sync_lines::Fault;
use recording::Recording;

/// Returns the page of a run, from its directory.
///
/// # Errors
/// [`Error::Run`] if the directory contains no run; [`Error::File`] naming a file that cannot be
/// read; [`Error::TooLong`].
pub fn page_of_run(directory: &Path, limit: Limit) -> Result<Page, Error> {
    probe_sync::standing::expect_run(directory)?;
    let recording = Recording::of(directory);
    recording.refuse_longer(limit)?;
    let documents = Documents::read(directory)?;
    let source = recording.with_truth(documents.truth.as_ref());
    let survey = Survey::of(&source)?;
    let reference = documents.reference();
    let faults = documents.faults(directory)?;
    let wanted = faults.iter().flat_map(|fault| [fault.began.0, fault.round.0]).collect();
    let (series, times) = survey.series(&source, reference, &wanted)?;
    let all = documents.rows(&survey);
    let (report, target_ns, rounds) = (&documents.report, documents.target_ns(), survey.rounds);
    let stated = report.as_ref().map_or(0, |report| report.rounds as usize);
    let seen = verdict::Seen { report, nodes: &all, reference, target_ns, faults: &faults, rounds: rounds.max(stated) };
    let mut verdict = verdict::of_run(&seen);
    let (late, late_verdict) = late::while_it_ran(directory);
    verdict.extend(late_verdict);
    let nodes = worst_rows(all);
    let names: Vec<_> = nodes.iter().map(|row| row.node_id).collect();
    let data = Data {
        schema: SCHEMA,
        reference,
        target_ns,
        rounds,
        edges: edges::map(directory, &names, &survey.latest, documents.report.as_ref()),
        nodes,
        truth: documents.report.as_ref().and_then(|report| report.truth.clone()),
        marks: marks(&faults, &times, &series),
        series,
        traces: None,
    };
    let mut page = Page {
        title: "probe_sync run".to_owned(),
        facts: documents.facts(&survey),
        verdict,
        notes: documents.notes.clone(),
        faults: faults.iter().map(Fault::to_string).collect(),
        late,
        tables: documents.tables(),
        data,
        traces: None,
        hang: None,
    };
    if stated > rounds {
        page.notes.push(format!("The run's files contain {rounds} of its {stated} rounds; charts show only these."));
    }
    page.note_reading(&survey);
    Ok(page)
}
