//! The survey of `doctor --peers` as text: a line per host, then the problems and their remedies.

use comfy_table::{ContentArrangement, Table, TableStyle};
use probe_sync_sys::doctor::{Fact, Level};

use super::survey::{HostRow, Reached, Survey};
use crate::table::unsigned;

/// The survey as text.
pub(super) fn readable(survey: &Survey) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "node",
        "host",
        "reaches",
        "reached by",
        "lost out",
        "lost in",
        "delay",
        "asymmetry",
        "stamps",
        "clock source",
        "time sync",
    ]);
    survey.hosts.iter().for_each(|host| {
        table.add_row(line(host));
    });
    // Whom it reaches is what was asked.
    let mut text = crate::table::fitted(table, &[9, 7, 8, 10]);
    text += "delay: half the smallest round trip, median of the node's edges; asymmetry: the largest disagreement of an edge with the \
        solved offsets\n";
    text.extend(survey.findings.iter().map(told));
    if survey.findings.is_empty() {
        text += "every tested pair of hosts can communicate in both directions\n";
    }
    text
}

fn line(host: &HostRow) -> [String; 11] {
    let of = |Reached { reached, of }: Reached| format!("{reached}/{of}");
    let share = |share: f64| format!("{:.1} %", 100.0 * share);
    let time = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), unsigned);
    [
        host.node_id.to_string(),
        host.host.clone(),
        of(host.reaches),
        of(host.reached_by),
        share(host.lost[0]),
        share(host.lost[1]),
        time(host.delay_ns),
        time(host.asymmetry_ns),
        host.stamp.to_owned(),
        host.clock_source.clone().unwrap_or_else(|| "unknown".to_owned()),
        host.time_sync.to_string(),
    ]
}

fn told(fact: &Fact) -> String {
    let level = if fact.level == Level::Fail { "FAIL" } else { "warn" };
    let advice = fact.advice.as_ref().map_or_else(String::new, |advice| format!("\n      → {advice}"));
    format!("{level}  {}: {}{advice}\n", fact.topic, fact.finding)
}

#[cfg(test)]
mod tests {
    use super::super::survey::tests::survey;
    use super::*;

    #[test]
    fn the_table_has_a_line_per_host_and_ends_with_advice() {
        let text = readable(&survey(&[(0, 1, 100, 100), (1, 0, 100, 90), (2, 1, 50, 0), (0, 2, 9, 9)]));
        for part in [
            "host0",
            "2/2",
            "0/1",
            "10.0 %",
            "more columns with --wide: asymmetry, stamps, clock source, time sync",
            "FAIL  reachability",
            "→ check the firewalls",
        ] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
        assert!(text.find("FAIL") < text.find("warn"), "worst first: {text}");
    }
}
