//! The table of `bench/LOG.md`: the runs of the flow by clocks and load.
//!
//! Runs in one row share clocks and load; a range goes from the smallest to the largest run, and a
//! worst figure is the worst of all runs. Below the table are the requirements that each run
//! missed, and the runs that did not finish. It omits no run.

use super::case::Case;
use super::outcome::{Outcome, milliseconds};

/// One run, or why it did not come to its end.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its conditions.
    pub case: Case,
    /// The outcome.
    pub outcome: Result<Outcome, String>,
}

impl Run {
    /// Required results that are missing.
    pub fn problems(&self) -> Vec<String> {
        match &self.outcome {
            Ok(outcome) => outcome.problems(),
            Err(reason) => vec![reason.lines().next().unwrap_or("failed").to_owned()],
        }
    }
}

/// One row per clocks and load, in the order of the runs, and what was missed.
pub fn table(runs: &[Run]) -> String {
    let mut text = HEAD.to_owned();
    let mut rest = runs;
    while let Some(first) = rest.first() {
        let alike = |run: &&Run| (run.case.model, run.case.loaded) == (first.case.model, first.case.loaded);
        let (of_row, others) = rest.split_at(rest.iter().take_while(alike).count());
        text.push_str(&row(first.case, of_row));
        rest = others;
    }
    for run in runs {
        for problem in run.problems() {
            let Case { model, loaded, seed, .. } = run.case;
            text.push_str(&format!(
                "\nMissed by {} clocks, {}, seed {seed}: {problem}.\n",
                model.name(),
                machine(loaded)
            ));
        }
    }
    text
}

fn row(case: Case, runs: &[Run]) -> String {
    let ended: Vec<&Outcome> = runs.iter().filter_map(|run| run.outcome.as_ref().ok()).collect();
    let range = |value: fn(&Outcome) -> u64| {
        let least = ended.iter().map(|run| value(run)).min().unwrap_or(0);
        let most = ended.iter().map(|run| value(run)).max().unwrap_or(0);
        if least == most { format!("{least}") } else { format!("{least}–{most}") }
    };
    let worst = |value: fn(&Outcome) -> f64| ended.iter().map(|run| value(run)).fold(0.0, f64::max);
    let sum = |value: fn(&Outcome) -> u64| ended.iter().map(|run| value(run)).sum::<u64>();
    let good = runs.iter().filter(|run| run.problems().is_empty()).count();
    let [clocks, machine] = [case.model.name(), machine(case.loaded)];
    let [broken, edges] = [range(|run| run.recorded.broken), range(|run| run.recorded.edges)];
    let by = milliseconds(worst(|run| run.recorded.worst_ns));
    let [aligned, violations] = [sum(|run| run.aligned.broken), sum(|run| run.through_run.violations())];
    let [times, outside] = [sum(|run| run.times), sum(|run| run.outside)];
    let [median, p99, most] = [worst(|run| run.median_ns), worst(|run| run.p99_ns), worst(|run| run.worst_ns)];
    let (bar, stated) = (case.model.bar_ns(), worst(|run| run.stated_ns.unwrap_or(f64::INFINITY)));
    format!(
        "| {clocks} | {machine} | {broken} of {edges} by up to {by} | {aligned} | {violations} | {times} | \
         {median:.0} / {p99:.0} / {most:.0} ns | {bar:.0} ns | {stated:.0} ns | {outside} | {good} of {} |\n",
        runs.len()
    )
}

fn machine(loaded: bool) -> &'static str {
    if loaded { "all cores busy" } else { "as it was" }
}

const HEAD: &str = "\
| clocks | machine | edges broken as recorded | after `align` | violations by `check --run-dir` | times judged | error: median / p99 / worst | \
worst allowed | stated sigma, largest | outside 4 × stated + 100 ns | runs as they must be |
|---|---|---|---|---|---|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::{CASE, good};
    use super::*;

    fn run(outcome: Outcome) -> Run {
        Run { case: outcome.case, outcome: Ok(outcome) }
    }

    #[test]
    fn runs_of_one_kind_share_a_row_and_the_worst_counts() {
        let bad = Outcome { worst_ns: 140.0, outside: 2, ..good() };
        let loaded = Outcome { case: Case { loaded: true, ..CASE }, ..good() };
        let failed = Run { case: loaded.case, outcome: Err("job0 ended\nmore".to_owned()) };
        let text = table(&[run(good()), run(bad), run(loaded), failed]);
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        let columns =
            |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        assert_eq!(rows.len(), 4, "{text}");
        assert_eq!(columns(rows[0]).len(), columns(rows[2]).len());
        assert_eq!(
            rows[2],
            "| constant | as it was | 7 of 24 by up to 2.0 ms | 0 | 0 | 400 | 5 / 20 / 140 ns | 100 ns | 30 ns | 2 | 1 of 2 |"
        );
        assert!(rows[3].contains("all cores busy") && rows[3].ends_with("1 of 2 |"), "{text}");
        let missed: Vec<&str> = text.lines().filter(|line| line.starts_with("Missed")).collect();
        assert_eq!(missed.len(), 3, "{text}");
        assert_eq!(missed[2], "Missed by constant clocks, all cores busy, seed 1: job0 ended.");
    }
}
