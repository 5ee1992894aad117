//! What `probe_sync demo` prints.

use std::fmt::Write as _;
use std::path::Path;

use probe_sync::RunReport;
use probe_sync_alignment::Verdict;
use probe_sync_analysis::Lateness;
use probe_sync_formats::words::counted;

use crate::table::{signed, unsigned};

/// Distance of aligned times from the true ones.
#[derive(Clone, Copy, Debug)]
pub struct TimeError {
    /// Times compared.
    pub times: usize,
    /// Median distance, ns.
    pub median_ns: i64,
    /// Largest distance, ns.
    pub worst_ns: i64,
}

/// Input of the second half of the text.
pub struct Shown<'a> {
    /// The check, before and after.
    pub verdict: &'a Verdict<'a>,
    /// Result of the lateness analysis.
    pub late: &'a Lateness,
    /// Distance of aligned times from the true ones.
    pub error: TimeError,
    /// Directory of the demo.
    pub folder: &'a Path,
    /// The report page.
    pub page: &'a Path,
}

/// Announces what is about to happen.
pub fn opening(seconds: u32) -> String {
    format!(
        "Four ranks on this machine measure each other for {seconds} s. Their clocks are deliberately wrong,\nby up to 10 ms and 50 \
        ppm, so that every result can be compared with the truth.\n\n"
    )
}

/// Errors of the measured offsets.
pub fn clocks(report: &RunReport) -> String {
    let mut text = String::from("1. THE CLOCKS\n\n");
    let _ =
        writeln!(text, "{:>6}{:>17}{:>17}{:>12}{:>18}", "rank", "true offset", "measured", "error", "95 % interval");
    for node in report.nodes.iter().filter(|node| node.node_id != report.reference) {
        let or_unknown = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), signed);
        let _ = writeln!(
            text,
            "{:>6}{:>17}{:>17}{:>12}{:>18}",
            node.rank,
            or_unknown(node.true_offset_ns),
            if node.reachable { signed(node.offset_ns) } else { "unreachable".to_owned() },
            or_unknown(node.error_ns),
            format!("±{}", unsigned(node.half_width_95_ns)),
        );
    }
    if let Some(truth) = &report.truth {
        let _ = writeln!(
            text,
            "\n   Over {} the worst error was {}, the median {}.\n   The hard interval contained the truth in {} of {}.\n",
            counted(truth.judged, "estimate"),
            unsigned(truth.worst_error_ns),
            unsigned(truth.median_error_ns),
            truth.judged - truth.outside_hard_interval,
            truth.judged
        );
    }
    text
}

/// Results for the traces, late ranks, and the next commands to try.
pub fn traces(shown: &Shown<'_>) -> String {
    let mut text = String::from("2. THE TRACES of a recorded PyTorch job, timestamped with these clocks\n\n");
    let Shown { verdict, late, error, folder, page } = shown;
    let broken = |count: usize, edges: usize, worst_ns: f64| match count {
        0 => format!("0 of {edges} happens-before edges are broken"),
        _ => format!("{count} of {edges} happens-before edges are broken, by up to {}", unsigned(worst_ns)),
    };
    if let Some(before) = &verdict.before {
        let _ = writeln!(text, "   as recorded   {}", broken(before.broken, before.edges, before.worst_ns));
    }
    let after = &verdict.result;
    let _ = writeln!(text, "   aligned       {}", broken(after.broken, after.edges, after.worst_ns));
    let _ = writeln!(
        text,
        "   the truth     {} event times: median error {} ns, worst {} ns\n",
        error.times, error.median_ns, error.worst_ns
    );
    text.push_str(&stragglers(late));
    let _ = writeln!(text, "Report page: {}", page.display());
    let _ = writeln!(text, "Timeline for https://ui.perfetto.dev: {}\n", folder.join("one_clock.pftrace").display());
    text.push_str("Next:\n");
    text.push_str(if cfg!(feature = "mpi") { NEXT_MPI } else { NEXT_TCP });
    text
}

/// The rank that was last, and the one that the recorded times would have blamed.
fn stragglers(late: &Lateness) -> String {
    let mut text = String::from("3. WHICH RANKS WERE LATE to the collectives\n\n");
    for line in &late.ranks {
        let _ = writeln!(
            text,
            "   rank {:<3} last in {:>5} of {}, costing the others {}",
            line.rank,
            line.last_range(),
            line.instances,
            unsigned(line.lost_ns as f64)
        );
    }
    for straggler in late.stragglers.iter().filter_map(|straggler| straggler.rank.map(|rank| (rank, straggler))) {
        let (rank, found) = straggler;
        let _ = writeln!(text, "   Rank {rank} is a straggler: last in {} of {}.", found.times, found.of);
    }
    if late.stragglers.is_empty() {
        text.push_str("   No rank is late more often than chance would explain.\n");
    }
    let recorded = &late.as_recorded;
    if let Some(rank) = recorded.rank {
        let _ = writeln!(
            text,
            "   The recorded times would blame rank {rank} for {} of {}, and the wrong rank for {}.",
            recorded.times, recorded.of, recorded.wrong
        );
    }
    text.push('\n');
    text
}

const NEXT_MPI: &str = "  probe_sync doctor                                  # what this machine supports
  mpirun -n 2 --host gpu-01,gpu-02 probe_sync -o run # alongside a job, until Ctrl-C
  probe_sync merge traces/ --run-dir run -o one_clock.pftrace
";
/// The second line is needed on each host, since this build has no MPI.
const NEXT_TCP: &str = "  probe_sync doctor    # what this machine supports
  RANK=0 WORLD_SIZE=2 MASTER_ADDR=gpu-01 MASTER_PORT=29511 probe_sync -o run    # alongside a job; RANK=1 on gpu-02
  probe_sync merge traces/ --run-dir run -o one_clock.pftrace
";
