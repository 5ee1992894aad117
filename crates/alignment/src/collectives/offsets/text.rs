//! Offsets from collectives as text.

use super::{CollectiveOffsets, NodeOffset};
use crate::collectives::report::span;

impl CollectiveOffsets {
    /// One line per node with its offset and the width of its bounds in the window in the middle of
    /// the trace, and the bounds elsewhere.
    pub fn text(&self) -> String {
        let mut text = format!(
            "offsets from {} collective operations over {}",
            self.operations,
            span(self.span_ns[1] as f64 - self.span_ns[0] as f64),
        );
        let Some(middle) = self.windows.get(self.windows.len() / 2) else { return text };
        let several = if self.windows.len() > 1 {
            format!(" in {} windows; in the middle one", self.windows.len())
        } else {
            String::new()
        };
        text.push_str(&format!("{several}, at {} ns of node {}'s clock\n", middle.reference_time_ns, self.reference));
        for node in &middle.nodes {
            text.push_str(&self.sentence(node));
        }
        text.push_str(&self.elsewhere());
        if let Some(warning) = self.warning() {
            text.push_str(&format!("{warning}\n"));
        }
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text
    }

    /// The assumptions of the bounds that cannot be checked here, and what to do about them.
    pub fn warning(&self) -> Option<&'static str> {
        self.of_calls.then_some(OF_CALLS)
    }

    fn sentence(&self, offset: &NodeOffset) -> String {
        let NodeOffset { node, name, .. } = offset;
        if *node == self.reference {
            return format!("node {node} ({name}): the reference\n");
        }
        if !offset.reachable {
            return format!("node {node} ({name}): no operation connects it to the reference\n");
        }
        let bounds = match (offset.bound_lo_ns, offset.bound_hi_ns, offset.width_ns()) {
            (Some(low), Some(high), Some(width)) => {
                let within = if self.of_calls { "if every call waits, within" } else { "certainly within" };
                format!(
                    "{within} {} to {}, a width of {}, if no clock changed its rate by more than {} ppm within {} or stepped",
                    span(low),
                    span(high),
                    span(width),
                    self.max_rate_change_ppm,
                    span((self.span_ns[1] - self.span_ns[0]) as f64 / self.windows.len().max(1) as f64)
                )
            }
            _ => "without bounds".to_owned(),
        };
        let [low, high] = offset.drift_bounds_ppm;
        format!(
            "node {node} ({name}): offset {} ± {}, {bounds}; drift {:.1} ppm, within {low:.1} to {high:.1}\n",
            span(offset.offset_ns),
            span(offset.sigma_ns.unwrap_or(f64::INFINITY)),
            offset.drift_ppm,
        )
    }

    /// Width of the bounds in the worst window, if there are several.
    fn elsewhere(&self) -> String {
        if self.windows.len() < 2 {
            return String::new();
        }
        let all = || self.windows.iter().flat_map(|window| &window.nodes).filter(|node| node.reachable);
        let widest = all().filter_map(NodeOffset::width_ns).fold(0.0, f64::max);
        let without = all().filter(|node| node.width_ns().is_none()).count();
        let without =
            if without > 0 { format!("; {without} offsets of a node and window have none") } else { String::new() };
        format!("the widest bounds of any window are {} wide{without}\n", span(widest))
    }
}

const OF_CALLS: &str = "these offsets come from NCCL or RCCL calls; they and their bounds hold only if every call waits for its \
    operation, because a call that returns early shifts them undetectably; also trace kernels (--kernel-trace), or measure the clocks \
    with a run";
