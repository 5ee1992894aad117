//! `stragglers`, which reports the ranks that were late to collectives as text, JSON and CSV.
//!
//! If `--json` or `--csv` goes to standard output, nothing else is printed there.

use std::path::Path;

use probe_sync_analysis::{Lateness, lateness};

use crate::output::{Usage, is_standard_output, print, refuse_trace, tell};
use crate::progress::Reading;
use crate::status::{Unjudged, Violations};
use crate::telling::telling;
use crate::trace_args::StragglersArgs;
use crate::traces::{NOTHING_TO_JUDGE, request};

/// Finds and prints late ranks.
///
/// # Errors
/// Names the trace, or the output; [`Unjudged`] if there is no collective to judge, [`Violations`]
/// if a clock is wrong.
pub fn run(arguments: &StragglersArgs) -> anyhow::Result<()> {
    let outputs: Vec<&Path> =
        [&arguments.json, &arguments.csv].into_iter().flatten().map(|path| path.as_path()).collect();
    let on_stdout = outputs.iter().filter(|path| is_standard_output(path)).count();
    if on_stdout > 1 || (outputs.len() > 1 && outputs[0] == outputs[1]) {
        return Err(
            anyhow::anyhow!("--json and --csv cannot share an output; give one of them another file").context(Usage)
        );
    }
    if let Some(path) =
        arguments.json.as_ref().filter(|path| !is_standard_output(path) && arguments.input.are_positional())
    {
        refuse_trace(path, "--json")?;
    }
    let settings = arguments.steps.settings()?;
    let files: Vec<_> =
        outputs.iter().filter(|path| !is_standard_output(path)).map(|path| path.to_path_buf()).collect();
    let request = request(&arguments.input, &files)?;
    let progress = Reading::begin("stragglers", &request);
    let calibrated = crate::traces::calibrated(&request)?;
    calibrated.refuse_overwriting(&files)?;
    let text_of_offsets = calibrated.collectives.as_ref().map(probe_sync_alignment::CollectiveOffsets::text);
    crate::traces::tell(&calibrated);
    let found = lateness(&calibrated, &settings)?;
    drop(progress);
    if let Some(path) = &arguments.json {
        write(path, format!("{}\n", serde_json::to_string_pretty(&found)?).as_bytes())?;
    }
    if let Some(path) = &arguments.csv {
        write(path, &csv(&found)?)?;
    }
    if on_stdout == 0 {
        tell(&text_of_offsets.unwrap_or_default())?;
        tell(&if telling().verbose { found.text() } else { found.brief() })?;
    }
    if found.instances.is_empty() {
        return Err(Unjudged(NOTHING_TO_JUDGE.to_owned()).into());
    }
    match found.impossible_instances {
        0 => Ok(()),
        count => Err(Violations(count).into()),
    }
}

fn csv(found: &Lateness) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    found.write_csv(&mut bytes)?;
    Ok(bytes)
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    match is_standard_output(path) {
        true => print(std::str::from_utf8(bytes)?),
        false => crate::output::write_whole(path, bytes),
    }
}
