//! The report of what a filter left out, for users and for statistics.

use probe_sync_formats::words::{counted, joined};
use serde::Serialize;

/// Events and traces removed by a filter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FilterReport {
    /// The rule, as the flags that request it.
    pub rule: String,
    /// Names of traces that are not in the output.
    pub traces_left_out: Vec<String>,
    /// Interval kept, ns on the reference clock; null for an end that was not requested.
    pub span_ns: [Option<i64>; 2],
    /// Events with a time in the other traces.
    pub events: u64,
    /// Events that are not in the output: the sum of the following counts.
    pub left_out: u64,
    /// Events entirely outside the interval.
    pub outside: u64,
    /// Events of other kinds.
    pub of_other_kinds: u64,
    /// Events too short for the size limit.
    pub too_short: u64,
    /// Ends of flows whose other end, or whose event, is not in the output.
    pub half_flows: u64,
    /// Begin or end events whose counterpart's time is unknown, so that no filter can judge them.
    pub unjudged: u64,
    /// Events shorter than this were removed, ns; null if the size limit removed none.
    pub shortest_ns: Option<i64>,
    /// Size limit, bytes.
    pub bytes_max: Option<u64>,
    /// Size of the output before compression, bytes.
    pub bytes: u64,
}

impl FilterReport {
    /// Returns what was removed as lines of text; empty if nothing was.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.traces_left_out.is_empty() {
            let left_out = &self.traces_left_out;
            let names = joined(left_out.iter().take(NAMED).cloned(), left_out.len());
            text += &format!("omitted {}: {names}\n", counted(left_out.len(), "trace"));
        }
        if self.left_out > 0 {
            let shorter = self.shortest_ns.map_or_else(String::new, |ns| format!(" (all shorter than {ns} ns)"));
            let parts = [
                (self.outside, "outside the interval".to_owned()),
                (self.of_other_kinds, "of other kinds".to_owned()),
                (self.too_short, format!("too short for the size limit{shorter}")),
                (self.half_flows, "flow ends whose other end was filtered out".to_owned()),
                (self.unjudged, "without a duration".to_owned()),
            ];
            let parts: Vec<String> = parts
                .into_iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, what)| format!("{} {what}", grouped(count)))
                .collect();
            text += &format!(
                "omitted {} of {} events ({}): {}\n",
                grouped(self.left_out),
                grouped(self.events),
                self.rule,
                parts.join(", ")
            );
        }
        text
    }
}

/// Formats a number with a space between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Most traces named in a message.
const NAMED: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_said_with_its_reason() {
        let report = FilterReport {
            rule: "--max-size 400000000".into(),
            events: 2_000_000,
            left_out: 1_234_567,
            outside: 567,
            too_short: 1_234_000,
            shortest_ns: Some(900),
            ..FilterReport::default()
        };
        assert_eq!(
            report.text(),
            "omitted 1 234 567 of 2 000 000 events (--max-size 400000000): 567 outside the interval, 1 234 000 too short for the size limit (all shorter than 900 ns)\n"
        );
        assert_eq!(FilterReport::default().text(), "");
    }
}
