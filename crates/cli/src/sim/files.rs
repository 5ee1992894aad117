//! `accuracy.csv` and `truth.csv` of `probe_sync sim --out`.
//!
//! Each file is written next to its destination and renamed, and it contains only data that the
//! seed determines. accuracy.csv has the rows `methods` of the document. truth.csv has a row per
//! seed, method, node and window; `at_ns` is on the reference clock.

use std::fmt::Write;
use std::path::Path;

use probe_sync_sim::accuracy::{Judgement, SeedRun};

use super::document::{MethodRow, csv};

/// Writes the files.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write(out: &Path, methods: &[MethodRow], truths: &Truths) -> anyhow::Result<()> {
    crate::output::write_whole(&out.join("accuracy.csv"), &csv(methods)?)?;
    if let Some(text) = &truths.text {
        crate::output::write_whole(&out.join("truth.csv"), text.as_bytes())?;
    }
    Ok(())
}

/// Collects the rows of truth.csv.
pub struct Truths {
    /// `None` if not requested.
    text: Option<String>,
}

impl Truths {
    /// Collects if `wanted`.
    pub fn new(wanted: bool) -> Self {
        let header = "cell,seed,method,node,window,at_ns,true_offset_ns,estimate_ns,error_ns,half_width_95_ns,\
                      hard_lo_ns,hard_hi_ns\n";
        Self { text: wanted.then(|| header.to_owned()) }
    }

    /// Adds the runs of one cell.
    pub fn add(&mut self, cell: &str, runs: &[SeedRun]) {
        let Some(text) = &mut self.text else { return };
        for run in runs {
            let own = run.methods.iter().map(|(method, judgements)| (method.as_str(), judgements));
            for (name, judgements) in own.chain([("probe_sync_between", &run.between)]) {
                for judgement in judgements {
                    row(text, cell, run.seed, name, judgement);
                }
            }
        }
    }
}

fn row(text: &mut String, cell: &str, seed: u64, method: &str, judgement: &Judgement) {
    let Judgement { node, window, at, truth_ns, estimate_ns, half_width_95_ns, hard_ns, rate_ppm: _ } = judgement;
    let field = |value: Option<f64>| value.filter(|v| v.is_finite()).map_or_else(String::new, |v| format!("{v:.3}"));
    let (estimate, error) = (field(*estimate_ns), field(judgement.error_ns()));
    let (width, low, high) = (field(*half_width_95_ns), field(hard_ns.map(|h| h[0])), field(hard_ns.map(|h| h[1])));
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{cell},{seed},{method},{node},{window},{},{truth_ns:.3},{estimate},{error},{width},{low},{high}",
        at.as_ns()
    );
}
