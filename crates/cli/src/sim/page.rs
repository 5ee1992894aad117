//! `report.html` of `probe_sync sim --out`, which shows the simulated run over time against the
//! truth and compares the methods.
//!
//! The charts over time show the first seed of the first scenario, by the method of a live run if
//! that was judged, otherwise by the last method that provides an estimate.

use std::path::Path;

use probe_sync_page::{REPORT_PAGE, Sample, Simulated, Table, unsigned};
use probe_sync_sim::accuracy::cells::{Demand, Outcome};
use probe_sync_sim::accuracy::{Cost, Judgement, Method, SeedRun, Summary};
use probe_sync_time::{NodeId, StampSource};
use serde::Serialize;

use super::document::csv;

/// Content of the page.
pub struct Simulation<'a> {
    /// What was simulated: name and value.
    pub facts: Vec<(&'static str, String)>,
    /// The node whose offset is zero.
    pub reference: NodeId,
    /// The run shown over time.
    pub first: Option<&'a SeedRun>,
    /// By cell.
    pub named: &'a [(String, Outcome)],
    /// Requirements on the methods.
    pub demands: &'a [Demand],
    /// Cost per host.
    pub cost: Option<Cost>,
}

/// Writes the page.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write(out: &Path, simulation: &Simulation<'_>) -> anyhow::Result<()> {
    let shown = simulation.first.and_then(shown);
    let mut facts: Vec<(String, String)> =
        simulation.facts.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    if let Some((run, (method, _))) = simulation.first.zip(shown) {
        facts.push(("shown over time".into(), format!("seed {}, method {}", run.seed, method.as_str())));
    }
    let simulated = Simulated {
        title: "probe_sync simulation".into(),
        facts,
        reference: simulation.reference,
        stamp: StampSource::Kernel,
        samples: shown.into_iter().flat_map(|(_, judgements)| judgements).map(sample).collect(),
        windows: simulation.first.map_or_else(Vec::new, |run| run.windows.clone()),
        lost: simulation.first.map_or_else(Vec::new, |run| run.lost.clone()),
        demands: said(simulation.demands),
        tables: [Some(methods(simulation.named)), simulation.cost.as_ref().map(cost)].into_iter().flatten().collect(),
    };
    crate::output::write_whole(&out.join(REPORT_PAGE), simulated.page()?.html()?.as_bytes())
}

/// Writes the rows of a simulation without a run to show over time: `NAME.csv` and a page.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write_rows<T: Serialize>(out: &Path, name: &str, rows: &[T], demands: &[Demand]) -> anyhow::Result<()> {
    let csv = csv(rows)?;
    crate::output::write_whole(&out.join(format!("{name}.csv")), &csv)?;
    let mut lines = csv::ReaderBuilder::new().has_headers(false).from_reader(csv.as_slice()).into_deserialize();
    let header = lines.next().transpose()?.unwrap_or_default();
    let simulated = Simulated {
        title: format!("probe_sync simulation: {name}"),
        facts: Vec::new(),
        reference: NodeId(0),
        stamp: StampSource::Kernel,
        samples: Vec::new(),
        windows: Vec::new(),
        lost: Vec::new(),
        demands: said(demands),
        tables: vec![Table { caption: format!("{name}.csv"), header, rows: lines.collect::<Result<_, _>>()? }],
    };
    crate::output::write_whole(&out.join(REPORT_PAGE), simulated.page()?.html()?.as_bytes())
}

fn said(demands: &[Demand]) -> Vec<(bool, String)> {
    demands.iter().map(|of| (of.reached, format!("{}: {}", of.what, of.found))).collect()
}

fn shown(run: &SeedRun) -> Option<(Method, &Vec<Judgement>)> {
    let live = run.methods.iter().find(|(method, _)| *method == Method::Live);
    live.or(run.methods.last()).map(|(method, judgements)| (*method, judgements))
}

fn sample(judgement: &Judgement) -> Sample {
    let Judgement { node, window, at, truth_ns, estimate_ns, half_width_95_ns, hard_ns, rate_ppm } = *judgement;
    Sample {
        node,
        window: window as u64,
        at_ns: at.as_ns(),
        truth_ns,
        offset_ns: estimate_ns,
        half_width_95_ns,
        hard_ns,
        rate_ppm,
    }
}

fn methods(named: &[(String, Outcome)]) -> Table {
    let header = ["scenario", "method", "error p50", "p95", "p99", "max", "±95 % (mean)", "covers", "missing"];
    let mut table = Table::new("|error| by method, all seeds", &header);
    for (name, outcome) in named {
        for (method, pool) in &outcome.methods {
            let Summary { p50_ns, p95_ns, p99_ns, max_ns, interval, missing, .. } = pool.summary();
            let mut row = vec![name.clone(), method.as_str().to_owned()];
            row.extend([p50_ns, p95_ns, p99_ns, max_ns].map(unsigned));
            row.push(interval.as_ref().map_or_else(|| "none".into(), |of| unsigned(of.half_width_ns)));
            row.push(interval.as_ref().map_or_else(|| "none".into(), |of| format!("{:.1} %", 100.0 * of.share())));
            row.push(missing.to_string());
            table.rows.push(row);
        }
    }
    table
}

fn cost(cost: &Cost) -> Table {
    let Cost { packets_per_second, bytes_per_second, cpu_share } = cost;
    let mut table = Table::new("Cost to a host", &["what", "value"]);
    table.rows = [
        ("packets sent", format!("{packets_per_second:.0} a second")),
        ("bytes sent and received", format!("{bytes_per_second:.0} a second")),
        ("processor", format!("{:.2} % of one core", 100.0 * cpu_share)),
    ]
    .map(|(what, value)| vec![what.to_owned(), value])
    .to_vec();
    table
}
