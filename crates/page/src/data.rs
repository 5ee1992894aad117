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

/// The block.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Data {
    /// Of the layout of this block: raised when a field changes its meaning or goes.
    pub schema: u32,
    /// The node whose offset is zero.
    pub reference: Option<NodeId>,
    /// The wanted half-width of the 95 % interval, ns.
    pub target_ns: Option<f64>,
    /// Rounds of the run.
    pub rounds: usize,
    /// The last round, as `report.json` has it.
    pub nodes: Vec<NodeRow>,
    /// As `report.json` has it.
    pub truth: Option<TruthVerdict>,
    /// Over time.
    pub series: Series,
    /// Faults on the axis of time.
    pub marks: Vec<Mark>,
    /// Who probed whom.
    pub edges: EdgeMap,
    /// What the traces show.
    pub traces: Option<TraceData>,
}

/// Values over time. Every list has as many entries as `t`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Series {
    /// When, s.
    pub t: Vec<Number>,
    /// The nodes that are shown, those that are known worst first.
    pub nodes: Vec<NodeSeries>,
    /// The others together.
    pub others: Option<Others>,
    /// Each pair of columns stands for several rounds.
    pub thinned: bool,
}

/// One node over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct NodeSeries {
    /// The node.
    pub node: u32,
    /// How often its trend began: once more with every disturbance of its clock.
    pub trends: usize,
    /// The last trend at the run's first round, ns.
    pub trend_ns: f64,
    /// The trend's rate, ppm.
    pub trend_ppm: f64,
    /// Offset less its trend, ns.
    pub offset: Vec<Number>,
    /// The 95 % band less the trend, ns; empty: `offset` ∓ `half_width`.
    pub low: Vec<Number>,
    /// Its upper edge.
    pub high: Vec<Number>,
    /// The hard interval less the trend, ns.
    pub hard_low: Vec<Number>,
    /// Its upper edge.
    pub hard_high: Vec<Number>,
    /// Rate less the trend's, ppb; empty where the source states none.
    pub rate: Vec<Number>,
    /// Half-width of the 95 % interval, ns.
    pub half_width: Vec<Number>,
    /// Offset minus truth, ns; empty without truth.
    pub error: Vec<Number>,
}

/// Half-widths of nodes that have no series of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Others {
    /// How many nodes.
    pub nodes: usize,
    /// The widest of a column, ns.
    pub widest: Vec<Number>,
    /// The narrowest, ns.
    pub narrowest: Vec<Number>,
}

/// A fault on the axis of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Mark {
    /// When, s.
    pub t: Number,
    /// What, as files name it.
    pub kind: &'static str,
    /// The sentence.
    pub text: String,
    /// Faults that are told by this mark because they lie in one column; 1 where it stands for
    /// itself.
    pub count: usize,
}

/// JSON that may stand in a `script` element: nothing in it can end the element, begin a comment or
/// another element, or be a line's end to a script.
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

/// Of the layout of [`Data`].
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
