//! SVG plots of `probe_sync sim --out`, which show the error of each method.
//!
//! `p99.svg` has a group of bars per cell, one bar per method, and the asymmetry floor as a line
//! across each group. `cdf.svg` has a small diagram per cell with the cumulative distribution of
//! |error|. The ns axis is logarithmic in both. The SVG is written by hand and consists only of
//! axes, bars and lines, and equal input gives identical bytes.
//!
//! It uses no style sheets, scripts or fonts, so any viewer can show it.

use std::fmt::Write;
use std::path::Path;

use probe_sync_sim::accuracy::cells::Outcome;
use probe_sync_sim::accuracy::{Method, Pool, quantile};

/// Writes both plots.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write(out: &Path, named: &[(String, Outcome)]) -> anyhow::Result<()> {
    crate::output::write_whole(&out.join("p99.svg"), bars(named).as_bytes())?;
    crate::output::write_whole(&out.join("cdf.svg"), distributions(named).as_bytes())?;
    Ok(())
}

/// Bars of p99 per cell and method.
fn bars(named: &[(String, Outcome)]) -> String {
    let values = named.iter().flat_map(|(_, outcome)| outcome.methods.iter().map(|(_, pool)| pool.summary().p99_ns));
    let floors = named.iter().map(|(_, outcome)| outcome.floor()[1]);
    let axis = LogAxis::around(values.chain(floors));
    let methods = methods(named);
    let group = BAR * methods.len() as f64 + BAR;
    let (width, height) = (MARGIN + group * named.len() as f64 + MARGIN, 420.0);
    let (top, bottom) = (50.0, height - 60.0);
    let mut svg = Svg::new(width, height);
    svg.text(width / 2.0, 20.0, "middle", "p99 of |error| in ns; dashed: the floor that path asymmetry sets");
    svg.legend(&methods, 38.0);
    let y = |ns: f64| bottom - axis.place(ns) * (bottom - top);
    for decade in axis.decades() {
        svg.line([MARGIN, y(decade)], [width - MARGIN, y(decade)], "#ddd", "");
        svg.text(MARGIN - 6.0, y(decade) + 4.0, "end", &ns_text(decade));
    }
    for (index, (name, outcome)) in named.iter().enumerate() {
        let left = MARGIN + group * index as f64;
        for (place, method) in methods.iter().enumerate() {
            if let Some(summary) = outcome.summary(*method).filter(|summary| summary.count > 0) {
                let x = left + BAR * (place as f64 + 0.5);
                svg.bar(x, y(summary.p99_ns), BAR * 0.9, bottom, color(*method));
            }
        }
        let floor = y(outcome.floor()[1]);
        svg.line([left, floor], [left + group - BAR / 2.0, floor], "#000", "4 3");
        svg.text(left + group / 2.0, bottom + 18.0, "middle", name);
    }
    svg.line([MARGIN, bottom], [width - MARGIN, bottom], "#000", "");
    svg.finish()
}

/// A small diagram of the cumulative distribution per cell, three in a row.
fn distributions(named: &[(String, Outcome)]) -> String {
    let methods = methods(named);
    let sorted: Vec<Vec<(Method, Vec<f64>)>> = named
        .iter()
        .map(|(_, outcome)| {
            outcome.methods.iter().map(|(method, pool)| (*method, Pool::sorted_errors_ns(pool))).collect()
        })
        .collect();
    let ends = sorted.iter().flatten().flat_map(|(_, errors)| [quantile(errors, 0.02), quantile(errors, 1.0)]);
    let axis = LogAxis::around(ends);
    let columns = named.len().clamp(1, COLUMNS);
    let rows = named.len().div_ceil(columns);
    let (width, top) = (PANEL[0] * columns as f64 + MARGIN, 50.0);
    let mut svg = Svg::new(width, top + PANEL[1] * rows as f64 + 20.0);
    svg.text(width / 2.0, 20.0, "middle", "share of |error| below x ns");
    svg.legend(&methods, 38.0);
    for (index, ((name, _), curves)) in named.iter().zip(&sorted).enumerate() {
        let origin = [MARGIN + PANEL[0] * (index % columns) as f64, top + PANEL[1] * (index / columns) as f64];
        let size = [PANEL[0] - 60.0, PANEL[1] - 60.0];
        let x = |ns: f64| origin[0] + axis.place(ns) * size[0];
        let y = |share: f64| origin[1] + 20.0 + (1.0 - share) * size[1];
        svg.text(origin[0] + size[0] / 2.0, origin[1] + 14.0, "middle", name);
        for decade in axis.decades() {
            svg.line([x(decade), y(0.0)], [x(decade), y(1.0)], "#ddd", "");
            svg.text(x(decade), y(0.0) + 14.0, "middle", &ns_text(decade));
        }
        for share in [0.0, 0.5, 0.95, 1.0] {
            svg.line([x(axis.low), y(share)], [x(axis.high), y(share)], "#ddd", "");
            svg.text(origin[0] - 4.0, y(share) + 4.0, "end", &format!("{share}"));
        }
        for (method, errors) in curves.iter().filter(|(_, errors)| !errors.is_empty()) {
            let shares = (0..=CURVE_POINTS).map(|k| f64::from(k) / f64::from(CURVE_POINTS));
            let points: Vec<[f64; 2]> = shares.map(|share| [x(quantile(errors, share)), y(share)]).collect();
            svg.curve(&points, color(*method));
        }
    }
    svg.finish()
}

/// The methods that occur, in the order of the tables.
fn methods(named: &[(String, Outcome)]) -> Vec<Method> {
    let occurs = |method: &Method| named.iter().any(|(_, outcome)| outcome.summary(*method).is_some());
    Method::ALL.into_iter().filter(occurs).collect()
}

/// Colours that are distinguishable with colour blindness (Okabe and Ito).
fn color(method: Method) -> &'static str {
    match method {
        Method::Ntp => "#999999",
        Method::NtpPlus => "#555555",
        Method::Huygens => "#e69f00",
        Method::HuygensPlus => "#a06f00",
        Method::Svm => "#56b4e9",
        Method::SvmPlus => "#0072b2",
        Method::Mean => "#cc79a7",
        Method::Hull => "#8fd3bd",
        Method::Live => "#f0e442",
        Method::Smooth => "#009e73",
        Method::Ours => "#d55e00",
    }
}

/// Whole decades around positive values.
struct LogAxis {
    low: f64,
    high: f64,
}

impl LogAxis {
    fn around(values: impl Iterator<Item = f64>) -> Self {
        let finite = values.filter(|value| *value > 0.0 && value.is_finite());
        let (low, high) = finite.fold((f64::INFINITY, 0f64), |(low, high), value| (low.min(value), high.max(value)));
        if high == 0.0 {
            return Self { low: 1.0, high: 10.0 };
        }
        let low = 10f64.powf(low.max(NS_MIN).log10().floor());
        Self { low, high: 10f64.powf(high.max(NS_MIN).log10().ceil()).max(10.0 * low) }
    }

    /// 0 at the low end, 1 at the high end; values outside are clamped.
    fn place(&self, ns: f64) -> f64 {
        ((ns.max(self.low) / self.low).ln() / (self.high / self.low).ln()).min(1.0)
    }

    fn decades(&self) -> impl Iterator<Item = f64> {
        let count = (self.high / self.low).log10().round() as i32;
        let low = self.low;
        (0..=count).map(move |step| low * 10f64.powi(step))
    }
}

fn ns_text(ns: f64) -> String {
    match ns {
        ns if ns < 0.95 => format!("{ns:.1}"),
        ns if ns < 1e3 => format!("{ns:.0}"),
        ns if ns < 1e6 => format!("{:.0}k", ns / 1e3),
        ns => format!("{:.0}M", ns / 1e6),
    }
}

/// An SVG document under construction.
struct Svg {
    text: String,
}

impl Svg {
    fn new(width: f64, height: f64) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        Self { text }
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, words: &str) {
        let words = words.replace('&', "&amp;").replace('<', "&lt;");
        self.push(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"));
    }

    fn line(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], color: &str, dashes: &str) {
        let ends = format!("x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"");
        self.push(&format!("<line {ends} stroke=\"{color}\" stroke-dasharray=\"{dashes}\"/>"));
    }

    fn bar(&mut self, middle: f64, top: f64, width: f64, bottom: f64, color: &str) {
        let (x, height) = (middle - width / 2.0, (bottom - top).max(0.0));
        let place = format!("x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"");
        self.push(&format!("<rect {place} fill=\"{color}\"/>"));
    }

    fn curve(&mut self, points: &[[f64; 2]], color: &str) {
        let list: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        self.push(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>",
            list.join(" ")
        ));
    }

    fn legend(&mut self, methods: &[Method], y: f64) {
        for (index, method) in methods.iter().enumerate() {
            let x = MARGIN + 80.0 * index as f64;
            self.bar(x + 5.0, y - 8.0, 10.0, y, color(*method));
            self.text(x + 14.0, y, "start", method.as_str());
        }
    }

    fn push(&mut self, element: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{element}");
    }

    fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

const MARGIN: f64 = 60.0;

/// Width of a bar with its gap.
const BAR: f64 = 13.0;

/// Width and height of one small diagram.
const PANEL: [f64; 2] = [300.0, 240.0];

const COLUMNS: usize = 3;

const CURVE_POINTS: u32 = 200;

/// Lowest start of the axis; errors of a picosecond are rounding.
const NS_MIN: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f64], ends: [f64; 2]) {
        let axis = LogAxis::around(values.iter().copied());
        assert!((axis.low / ends[0] - 1.0).abs() < 1e-9 && (axis.high / ends[1] - 1.0).abs() < 1e-9, "{values:?}");
        assert_eq!((axis.place(0.0), axis.place(f64::INFINITY)), (0.0, 1.0));
        assert!((axis.decades().last().expect("two ends") / ends[1] - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_axis_holds_whole_decades() {
        check(&[], [1.0, 10.0]);
        check(&[0.0, f64::NAN, f64::INFINITY], [1.0, 10.0]);
        check(&[3.0, 250.0], [1.0, 1000.0]);
        check(&[100.0], [100.0, 1000.0]);
        check(&[1e-9, 5.0], [0.1, 10.0]);
    }

    #[test]
    fn an_empty_plot_is_still_a_document() {
        for svg in [bars(&[]), distributions(&[]), bars(&[("a<b".into(), Outcome::default())])] {
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
        }
    }
}
