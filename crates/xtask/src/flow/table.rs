//! The table of `docs/RESULTS.md`: the runs of the flow by clocks and load.
//!
//! Place in the flow: last step of `flow --record`. Runs of one row share clocks and load; a range is from the least to the largest run, a worst
//! figure the worst of all runs. What it does not do: hide runs that miss what they must show.

use super::outcome::{Outcome, milliseconds};

/// One row per clocks and load, in the order of the runs.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = HEAD.to_owned();
    let mut rest = outcomes;
    while let Some(first) = rest.first() {
        let alike = |one: &&Outcome| (one.case.model, one.case.loaded) == (first.case.model, first.case.loaded);
        let count = rest.iter().take_while(alike).count();
        let (runs, others) = rest.split_at(count);
        text.push_str(&row(first, runs));
        rest = others;
    }
    text
}

fn row(first: &Outcome, runs: &[Outcome]) -> String {
    let range = |value: fn(&Outcome) -> u64| {
        let least = runs.iter().map(value).min().unwrap_or(0);
        let most = runs.iter().map(value).max().unwrap_or(0);
        if least == most { format!("{least}") } else { format!("{least}–{most}") }
    };
    let worst = |value: fn(&Outcome) -> f64| runs.iter().map(value).fold(0.0, f64::max);
    let sum = |value: fn(&Outcome) -> u64| runs.iter().map(value).sum::<u64>();
    let good = runs.iter().filter(|run| run.problems().is_empty()).count();
    let stated = worst(|run| run.stated_ns.unwrap_or(f64::INFINITY));
    format!(
        "| {} | {} | {} | {} of {} by up to {} | {} | {} | {:.0} / {:.0} / {:.0} ns | {:.0} ns | {stated:.0} ns | {} | {} |\n",
        first.case.model.name(),
        if first.case.loaded { "all cores busy" } else { "as it was" },
        runs.len(),
        range(|run| run.recorded.broken),
        range(|run| run.recorded.edges),
        milliseconds(worst(|run| run.recorded.worst_ns)),
        sum(|run| run.aligned.broken),
        sum(|run| run.times),
        worst(|run| run.median_ns),
        worst(|run| run.p99_ns),
        worst(|run| run.worst_ns),
        first.case.model.bar_ns(),
        sum(|run| run.outside),
        format_args!("{good} of {}", runs.len()),
    )
}

const HEAD: &str = "\
| clocks | machine | runs | edges broken as recorded | after `align` | times judged | error: median / p99 / worst | worst allowed | \
stated sigma, largest | outside 4 × stated + 100 ns | runs as they must be |
|---|---|---|---|---|---|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::super::case::Case;
    use super::super::outcome::tests::{CASE, good};
    use super::*;

    #[test]
    fn runs_of_one_kind_share_a_row_and_the_worst_counts() {
        let bad = Outcome { worst_ns: 140.0, outside: 2, ..good() };
        let loaded = Outcome { case: Case { loaded: true, ..CASE }, ..good() };
        let text = table(&[good(), bad, loaded]);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(rows.len(), 2, "{text}");
        let columns =
            |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        assert_eq!(
            columns(rows[0]),
            [
                "constant",
                "as it was",
                "2",
                "7 of 24 by up to 2.0 ms",
                "0",
                "400",
                "5 / 20 / 140 ns",
                "100 ns",
                "30 ns",
                "2",
                "1 of 2"
            ]
        );
        assert_eq!(columns(rows[1])[1], "all cores busy");
        let heads = columns(text.lines().next().expect("a head"));
        assert_eq!(heads.len(), columns(rows[0]).len());
    }
}
