//! The README's picture: the collectives of one step of the job, as recorded and after `align`.
//!
//! The first run of `flow --record` produces it; nothing in it is drawn by hand. A row is a rank,
//! and a bar a collective on it. A red line is a violated happens-before edge: it leads from an end
//! to a start that came later according to the clocks, although no rank can leave such a collective
//! before all have entered. Both panels have the same scale.
//!
//! The printed counts are those of the bars in the picture.

use std::fmt::Write as _;

use super::outcome::{Instance, Outcome};

/// An SVG document.
pub fn svg(outcome: &Outcome) -> String {
    let [recorded, aligned] = &outcome.shown;
    let scale = Scale::of([recorded, aligned]);
    let ranks = recorded.first().map_or(0, |instance| instance.parts.len());
    let panel_height = HEADING + ranks as f64 * LANE + AXIS;
    let height = 2.0 * panel_height + LEGEND;
    let names = names(recorded);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>Collectives of {ranks} ranks before and after probe_sync align</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    panel(&mut text, 0.0, "as the ranks' clocks recorded them", recorded, &scale, &names);
    panel(&mut text, panel_height, "the same after probe_sync align", aligned, &scale, &names);
    legend(&mut text, 2.0 * panel_height, &names);
    text.push_str("</svg>\n");
    text
}

/// From times to places.
struct Scale {
    first_ns: f64,
    last_ns: f64,
}

impl Scale {
    /// One in which everything has room.
    fn of(panels: [&[Instance]; 2]) -> Self {
        let times = || panels.into_iter().flatten().flat_map(|instance| instance.parts.iter().flatten());
        let first_ns = times().copied().fold(f64::INFINITY, f64::min);
        let last_ns = times().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { first_ns, last_ns: last_ns.max(first_ns + 1.0) }
    }

    fn x(&self, time_ns: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (time_ns - self.first_ns) / (self.last_ns - self.first_ns)
    }
}

fn panel(text: &mut String, top: f64, what: &str, instances: &[Instance], scale: &Scale, names: &[&str]) {
    let broken: Vec<Broken> = instances.iter().flat_map(broken).collect();
    let edges: usize = instances.iter().map(|one| one.parts.len() * one.parts.len().saturating_sub(1)).sum();
    let (count, base) = (broken.len(), top + HEADING - 14.0);
    let _ = writeln!(
        text,
        "<text x=\"{LEFT}\" y=\"{base}\"><tspan font-weight=\"bold\">{what}</tspan>: \
         {count} of {edges} happens-before edges are broken</text>"
    );
    let lane = |rank: usize| top + HEADING + rank as f64 * LANE;
    let ranks = instances.first().map_or(0, |instance| instance.parts.len());
    for rank in 0..ranks {
        let middle = lane(rank) + LANE / 2.0;
        let _ = writeln!(text, "<text x=\"10\" y=\"{:.1}\">rank {rank}</text>", middle + 4.0);
        let (left, right) = (LEFT, WIDTH - RIGHT);
        let _ = writeln!(text, "<path d=\"M{left} {middle:.1}H{right}\" stroke=\"#dddddd\"/>");
    }
    for instance in instances {
        let colour = colour_of(&instance.name, names);
        for (rank, [start, end]) in instance.parts.iter().enumerate() {
            let (x, y) = (scale.x(*start), lane(rank) + (LANE - BAR) / 2.0);
            let width = (scale.x(*end) - x).max(1.0);
            let _ = writeln!(
                text,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\" \
                 stroke=\"#ffffff\" stroke-width=\"0.5\"/>"
            );
        }
    }
    for Broken { end_ns, ended, start_ns, started } in broken {
        let (from, to) = (lane(ended) + LANE / 2.0, lane(started) + LANE / 2.0);
        let (x_from, x_to) = (scale.x(end_ns), scale.x(start_ns));
        let _ = writeln!(
            text,
            "<path d=\"M{x_from:.1} {from:.1}L{x_to:.1} {to:.1}\" stroke=\"{RED}\" stroke-width=\"1\" stroke-opacity=\"0.8\"/>"
        );
    }
    axis(text, lane(ranks), scale);
}

fn axis(text: &mut String, y: f64, scale: &Scale) {
    for tick in 0..=TICKS_MAX {
        let since_ns = f64::from(tick) * TICK_NS;
        if scale.first_ns + since_ns > scale.last_ns {
            break;
        }
        let (x, low) = (scale.x(scale.first_ns + since_ns), y + 5.0);
        let unit = if tick == 0 { " ms" } else { "" };
        let _ = writeln!(text, "<path d=\"M{x:.1} {y:.1}V{low:.1}\" stroke=\"#777777\"/>");
        let (label, under) = (since_ns * 1e-6, y + 18.0);
        let _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{under:.1}\" text-anchor=\"middle\" fill=\"#555555\" font-size=\"11\">{label}{unit}</text>"
        );
    }
}

fn legend(text: &mut String, top: f64, names: &[&str]) {
    let mut x = LEFT;
    for name in names {
        let shown = plain(name);
        let (y, colour) = (top + 6.0, colour_of(name, names));
        let _ = writeln!(text, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
        let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\">{shown}</text>", x + 17.0, top + 17.0);
        x += 40.0 + 8.0 * shown.len() as f64;
    }
    let (y, end) = (top + 12.0, x + 22.0);
    let _ = writeln!(text, "<path d=\"M{x:.1} {y:.1}H{end:.1}\" stroke=\"{RED}\" stroke-width=\"1.5\"/>");
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\">broken: ended before the other began</text>",
        x + 28.0,
        top + 17.0
    );
}

/// An end that precedes a start that it must follow.
#[derive(Clone, Debug, PartialEq)]
struct Broken {
    end_ns: f64,
    ended: usize,
    start_ns: f64,
    started: usize,
}

fn broken(instance: &Instance) -> Vec<Broken> {
    let mut found = Vec::new();
    for (ended, [_, end_ns]) in instance.parts.iter().copied().enumerate() {
        for (started, [start_ns, _]) in instance.parts.iter().copied().enumerate() {
            if end_ns < start_ns {
                found.push(Broken { end_ns, ended, start_ns, started });
            }
        }
    }
    found
}

/// The collectives' names in the order in which they first occur.
fn names(instances: &[Instance]) -> Vec<&str> {
    let mut sorted: Vec<&Instance> = instances.iter().collect();
    let start = |instance: &Instance| instance.parts.first().map_or(0.0, |part| part[0]);
    sorted.sort_by(|a, b| start(a).total_cmp(&start(b)));
    let mut found: Vec<&str> = Vec::new();
    for instance in sorted {
        if !found.contains(&instance.name.as_str()) {
            found.push(&instance.name);
        }
    }
    found
}

/// `psum_invariant.7` is a `psum` to people.
fn plain(name: &str) -> &str {
    name.split('.').next().unwrap_or(name).trim_end_matches("_invariant")
}

fn colour_of(name: &str, names: &[&str]) -> &'static str {
    let index = names.iter().position(|one| *one == name).unwrap_or(0);
    COLOURS[index % COLOURS.len()]
}

const WIDTH: f64 = 980.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const HEADING: f64 = 34.0;
const LANE: f64 = 28.0;
const BAR: f64 = 18.0;
const AXIS: f64 = 28.0;
const LEGEND: f64 = 30.0;

const TICK_NS: f64 = 5e6;
const TICKS_MAX: u32 = 100;

/// Okabe and Ito's, which the colour-blind can tell apart; red is kept for what is broken.
const COLOURS: [&str; 6] = ["#0072b2", "#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#999999"];
const RED: &str = "#d00000";

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::good;
    use super::*;

    #[test]
    fn an_end_before_a_start_is_drawn_as_broken() {
        // Node 0 ends at 10 ms; as recorded node 1 begins at 12 ms, after align at 2 ms.
        let outcome = good();
        assert_eq!(broken(&outcome.shown[0][0]), [Broken { end_ns: 10e6, ended: 0, start_ns: 12e6, started: 1 }]);
        assert_eq!(broken(&outcome.shown[1][0]), []);
        let text = svg(&outcome);
        assert!(text.contains("recorded them</tspan>: 1 of 2 ") && text.contains("align</tspan>: 0 of 2 "), "{text}");
        // One line for the edge, one in the legend.
        assert_eq!(text.matches(RED).count(), 2);
        assert_eq!(text.matches("rank 1</text>").count(), 2);
    }

    #[test]
    fn the_scale_spans_both_panels_and_names_are_plain() {
        let outcome = good();
        let scale = Scale::of([&outcome.shown[0], &outcome.shown[1]]);
        assert_eq!((scale.x(0.0), scale.x(20e6)), (LEFT, WIDTH - RIGHT));
        assert_eq!((plain("psum_invariant.7"), plain("all-to-all")), ("psum", "all-to-all"));
        let _empty_is_no_panic = svg(&Outcome { shown: [Vec::new(), Vec::new()], ..outcome });
    }
}
