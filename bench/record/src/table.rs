//! The printed table, with each case's figure, its comparison and its target.

use std::fmt::Write as _;

/// Rows.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Row>,
}

/// One case.
#[derive(Debug)]
struct Row {
    name: String,
    figure: String,
    ratio: Option<(f64, &'static str)>,
    ask: Option<f64>,
}

impl Table {
    /// A case that took `ns`, and its ratio to something else; `ask`: the largest ratio allowed.
    pub fn ratio(&mut self, name: &str, ns: f64, other: f64, of: &'static str, ask: Option<f64>) {
        let ratio = Some((ns / other, of));
        self.rows.push(Row { name: name.into(), figure: format!("{ns:.1} ns"), ratio, ask });
    }

    /// A case that took `ns`, and the largest time allowed.
    pub fn absolute(&mut self, name: &str, ns: f64, ask: Option<f64>) {
        self.rows.push(Row { name: name.into(), figure: format!("{ns:.2} ns"), ratio: Some((ns, "ns")), ask });
    }

    /// How much slower something is, in percent.
    pub fn percent(&mut self, name: &str, percent: f64, ask: f64) {
        let figure = format!("{percent:+.2} %");
        self.rows.push(Row { name: name.into(), figure, ratio: Some((percent, "percent")), ask: Some(ask) });
    }

    /// The part that `ns` is of `whole`, in percent of it.
    pub fn percent_of(&mut self, name: &str, ns: f64, whole: f64, of: &str, ask: f64) {
        let percent = 100.0 * ns / whole;
        let figure = format!("{ns:+.0} ns, {percent:+.1} % of {of}");
        self.rows.push(Row { name: name.into(), figure, ratio: Some((percent, "percent")), ask: Some(ask) });
    }

    /// A case that was not measured.
    pub fn skipped(&mut self, name: &str, reason: &str) {
        self.rows.push(Row { name: name.into(), figure: format!("skipped: {reason}"), ratio: None, ask: None });
    }

    /// All rows, as Markdown.
    pub fn text(&self) -> String {
        let mut text = String::from("| case | median | compared | ask | |\n|---|---:|---:|---:|---|\n");
        for row in &self.rows {
            let (ratio, verdict) = match (row.ratio, row.ask) {
                (None, _) => (String::new(), ""),
                (Some((ratio, of)), Some(ask)) => (shown(ratio, of), if ratio <= ask { "holds" } else { "missed" }),
                (Some((ratio, of)), None) => (shown(ratio, of), ""),
            };
            let ask = row.ask.map_or_else(String::new, |ask| format!("≤ {ask}"));
            // Writing into a text cannot fail.
            let _ = writeln!(text, "| {} | {} | {ratio} | {ask} | {verdict} |", row.name, row.figure);
        }
        text
    }
}

fn shown(ratio: f64, of: &str) -> String {
    match of {
        "ns" | "percent" => String::new(),
        _ => format!("{ratio:.3} × {of}"),
    }
}
