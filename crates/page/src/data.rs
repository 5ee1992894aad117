//! The data of the page's scripts: one block of JSON, and how it is embedded in HTML.
//!
//! The scripts of `assets` read it. Times are seconds since the midpoint of the first round on the
//! reference clock; clock differences are in ns, rates in ppb; unknown values are null.

use probe_sync::report::{NodeRow, TruthVerdict};
use probe_sync_time::NodeId;
use serde::Serialize;

use crate::edges::EdgeMap;
use crate::number::Number;
use crate::traces::TraceData;

/// Data of the page.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Data {
    /// Version of the layout of this data: incremented when a field changes its meaning or is
    /// removed.
    pub schema: u32,
    /// The node whose offset is zero.
    pub reference: Option<NodeId>,
    /// Target half-width of the 95 % interval, ns.
    pub target_ns: Option<f64>,
    /// Rounds of the run.
    pub rounds: usize,
    /// The last round, as in `report.json`.
    pub nodes: Vec<NodeRow>,
    /// As in `report.json`.
    pub truth: Option<TruthVerdict>,
    /// Values over time.
    pub series: Series,
    /// Faults on the time axis.
    pub marks: Vec<Mark>,
    /// Which nodes probed which.
    pub edges: EdgeMap,
    /// Results from the traces.
    pub traces: Option<TraceData>,
}

/// Values over time. Every list has as many entries as `t`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Series {
    /// Times, s.
    pub t: Vec<Number>,
    /// The nodes shown, least certain first.
    pub nodes: Vec<NodeSeries>,
    /// The other nodes together.
    pub others: Option<Others>,
    /// Each pair of columns stands for several rounds.
    pub thinned: bool,
}

/// One node over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct NodeSeries {
    /// Node number.
    pub node: u32,
    /// Number of trends: one more after every disturbance of its clock.
    pub trends: usize,
    /// Value of the last trend at the first round of the run, ns.
    pub trend_ns: f64,
    /// Rate of the trend, ppm.
    pub trend_ppm: f64,
    /// Offset minus its trend, ns.
    pub offset: Vec<Number>,
    /// Lower edge of the 95 % band minus the trend, ns; empty: `offset` ∓ `half_width`.
    pub low: Vec<Number>,
    /// Upper edge of it.
    pub high: Vec<Number>,
    /// Lower end of the hard interval minus the trend, ns.
    pub hard_low: Vec<Number>,
    /// Upper end of it.
    pub hard_high: Vec<Number>,
    /// Rate minus that of the trend, ppb; empty if the source states none.
    pub rate: Vec<Number>,
    /// Half-width of the 95 % interval, ns.
    pub half_width: Vec<Number>,
    /// Offset minus truth, ns; empty without truth.
    pub error: Vec<Number>,
}

/// Half-widths of nodes without a series of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Others {
    /// Number of nodes.
    pub nodes: usize,
    /// The largest of each column, ns.
    pub widest: Vec<Number>,
    /// The smallest, ns.
    pub narrowest: Vec<Number>,
}

/// A fault on the time axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Mark {
    /// Time, s.
    pub t: Number,
    /// Kind, as in the files.
    pub kind: &'static str,
    /// Description.
    pub text: String,
    /// Number of faults that this mark stands for because they are in one column; 1 if it stands
    /// for one.
    pub count: usize,
}

/// JSON that is safe in a `script` element: nothing in it can end the element, begin a comment or
/// another element, or be a line terminator in a script.
pub(crate) fn in_script(json: &str) -> String {
    let mut safe = String::with_capacity(json.len() + json.len() / 64);
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                safe.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            // Marks that reorder what is read, and what is not seen.
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
                safe.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            other => safe.push(other),
        }
    }
    safe
}

/// Version of the layout of [`Data`].
pub(crate) const SCHEMA: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_block_can_end_it() {
        let hostile = "</script><img src=x onerror=alert(1)><!-- ]]> & \u{202e}gpj\u{2028}\u{7f}";
        let safe = in_script(&serde_json::to_string(hostile).expect("text"));
        assert!(!safe.contains(['<', '>', '&', '\u{202e}', '\u{2028}', '\u{7f}']), "{safe}");
        assert_eq!(serde_json::from_str::<String>(&safe).expect("still JSON"), hostile);
    }
}
