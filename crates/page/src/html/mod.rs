//! A page as HTML, from the template `templates/page.html`.
//!
//! The template escapes its output, after characters that reorder text or are invisible have been
//! made visible. Styles and scripts are inline, and the page's policy names their hashes: nothing
//! else runs, and nothing is fetched.

use askama::Template;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use probe_sync::report::NodeRow;
use sha2::{Digest as _, Sha256};

use crate::Error;
use crate::data::in_script;
use crate::number::Number;
use crate::page::Page;
use crate::quantity::{signed, unsigned};
use crate::verdict::Mood;

#[derive(Template)]
#[template(path = "page.html")]
struct Document<'a> {
    page: &'a Page,
    policy: String,
    styles: [&'static str; 2],
    scripts: [&'static str; 5],
    data: String,
    nodes: Vec<NodeLine<'a>>,
    has_truth: bool,
    target: Option<String>,
    faults: Vec<&'a str>,
    faults_left_out: usize,
    late: Vec<&'a str>,
    late_left_out: usize,
    edges: Vec<EdgeLine>,
    has_rates: bool,
    has_errors: bool,
}

/// A node as a row of text.
struct NodeLine<'a> {
    row: &'a NodeRow,
    offset: String,
    rate: String,
    half_width: String,
    hard: String,
    error: String,
    held: &'static str,
    state: &'static str,
    is_reference: bool,
    misses_target: bool,
}

struct EdgeLine {
    edge: String,
    residual: String,
    margin: String,
    loss: String,
}

impl Page {
    /// The page as HTML: the same page gives the same bytes.
    ///
    /// # Errors
    /// [`Error::Print`], which no content of the page can cause.
    pub fn html(&self) -> Result<String, Error> {
        print(self)
    }
}

fn print(page: &Page) -> Result<String, Error> {
    let data = &page.data;
    let json = serde_json::to_string(data).map_err(|error| Error::Print(error.to_string()))?;
    let document = Document {
        policy: policy(),
        styles: STYLES,
        scripts: SCRIPTS,
        data: in_script(&json),
        nodes: data.nodes.iter().map(|row| node(page, row)).collect(),
        has_truth: data.truth.is_some(),
        target: data.target_ns.map(unsigned),
        faults: page.faults.iter().take(FAULTS_MAX).map(String::as_str).collect(),
        faults_left_out: page.faults.len().saturating_sub(FAULTS_MAX),
        late: page.late.iter().take(FAULTS_MAX).map(String::as_str).collect(),
        late_left_out: page.late.len().saturating_sub(FAULTS_MAX),
        edges: data.edges.worst(EDGES_MAX).into_iter().map(edge).collect(),
        has_rates: data.series.nodes.iter().any(|node| !node.rate.is_empty()),
        has_errors: data.series.nodes.iter().any(|node| !node.error.is_empty()),
        page,
    };
    document.render().map_err(|error| Error::Print(error.to_string()))
}

/// The content security policy: allows the page's own styles and scripts, and nothing else.
fn policy() -> String {
    let hashes =
        |texts: &[&str]| texts.iter().map(|text| format!("'sha256-{}'", hash(text))).collect::<Vec<_>>().join(" ");
    let (styles, scripts) = (hashes(&STYLES), hashes(&SCRIPTS));
    format!("default-src 'none'; style-src {styles}; script-src {scripts}; base-uri 'none'; form-action 'none'")
}

fn hash(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

fn node<'a>(page: &Page, row: &'a NodeRow) -> NodeLine<'a> {
    let is_reference = page.data.reference == Some(row.node_id);
    let or_unknown = |text: String| if row.reachable { text } else { String::new() };
    let sides = row.hard_interval_ns.map(|bound| bound.map_or(f64::INFINITY, |bound| bound - row.offset_ns));
    let below = row.hard_interval_ns[0].map_or(f64::NEG_INFINITY, |_| sides[0]);
    NodeLine {
        row,
        offset: or_unknown(signed(row.offset_ns)),
        rate: or_unknown(if row.drift_ppm.is_finite() { format!("{:+.4}", row.drift_ppm) } else { String::new() }),
        half_width: or_unknown(unsigned(row.half_width_95_ns)),
        hard: or_unknown(format!("{} to {}", signed(below), signed(sides[1]))),
        error: row.error_ns.map(signed).unwrap_or_default(),
        held: row.bounds_held.map_or("", |held| if held { "yes" } else { "NO" }),
        state: match row {
            _ if is_reference => "reference",
            row if !row.reachable => "unreachable",
            row if row.clock_disturbed => "disturbed",
            _ => "ok",
        },
        is_reference,
        misses_target: page.data.target_ns.is_some_and(|target| row.half_width_95_ns > target),
    }
}

fn edge(edge: &crate::edges::EdgeCell) -> EdgeLine {
    let or_none = |value: Number, text: fn(f64) -> String| if value.0.is_nan() { "none".into() } else { text(value.0) };
    EdgeLine {
        edge: format!("{} → {}", edge.src, edge.dst),
        residual: or_none(edge.residual_ns, signed),
        margin: or_none(edge.margin_ns, unsigned),
        loss: or_none(edge.loss, |share| format!("{:.3} %", 100.0 * share)),
    }
}

mod filters {
    use askama::Values;

    /// Makes an untrusted name safe to show in a line: characters that reorder text or are
    /// invisible become their numbers, and long names are cut.
    #[askama::filter_fn]
    pub(super) fn shown(text: &str, _: &dyn Values) -> askama::Result<String> {
        let mut shown = String::new();
        for (place, character) in text.chars().enumerate() {
            if place == LETTERS_MAX {
                shown.push('…');
                break;
            }
            match character {
                '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => {
                    shown.push_str(&format!("\\u{{{:x}}}", u32::from(character)));
                }
                control if control.is_control() => shown.push_str(&format!("\\u{{{:x}}}", u32::from(control))),
                other => shown.push(other),
            }
        }
        Ok(shown)
    }

    const LETTERS_MAX: usize = 400;
}

const UPLOT: &str = include_str!("../../assets/uplot/uPlot.iife.min.js");
const STYLES: [&str; 2] = [include_str!("../../assets/uplot/uPlot.min.css"), include_str!("../../assets/page.css")];
/// In order of dependence.
const SCRIPTS: [&str; 5] = [
    UPLOT,
    include_str!("../../assets/common.js"),
    include_str!("../../assets/time.js"),
    include_str!("../../assets/maps.js"),
    include_str!("../../assets/page.js"),
];
const FAULTS_MAX: usize = 500;
const EDGES_MAX: usize = 40;

#[cfg(test)]
mod tests;
