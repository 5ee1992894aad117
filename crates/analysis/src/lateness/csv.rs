//! Every rank's part in every operation as CSV: one row per part, which repeats the operation's
//! values.
//!
//! Times are in ns on the reference clock. Totals are only in the JSON.

use std::io::{self, Write};

use probe_sync_formats::words::is_formula;

use super::report::Lateness;

impl Lateness {
    /// Writes all rows. Unknown cells are empty; a text that a spreadsheet could take for a formula
    /// begins with an apostrophe.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{HEADER}")?;
        for (number, instance) in self.instances.iter().enumerate() {
            let optional = |value: Option<u32>| value.map_or_else(String::new, |value| value.to_string());
            let of_all = format!(
                "{number},{},{},{},{},{},{},{},{:.1},{},{}",
                quoted(&instance.name),
                quoted(&instance.instance),
                instance.waits,
                instance.step.map_or_else(String::new, |step| step.to_string()),
                optional(instance.last_rank),
                quoted(instance.late_host.as_deref().unwrap_or_default()),
                instance.lead_ns,
                instance.lead_sigma_ns,
                instance.spread_ns,
                instance.transfer_ns,
            );
            for arrival in &instance.arrivals {
                let launch = arrival.launch_ns.map_or_else(String::new, |launch| launch.to_string());
                let is = |rank: Option<u32>| rank == Some(arrival.rank);
                let is_tied = !instance.tied_ranks.is_empty() && is(instance.latest_rank);
                let state = match () {
                    () if is(instance.last_rank) => "last",
                    () if is_tied || instance.tied_ranks.contains(&arrival.rank) => "tied",
                    () => "",
                };
                writeln!(
                    out,
                    "{of_all},{},{},{:.1},{launch},{},{},{state}",
                    arrival.rank, arrival.arrival_ns, arrival.sigma_ns, arrival.end_ns, arrival.wait_ns
                )?;
            }
        }
        Ok(())
    }
}

/// A text as a cell.
fn quoted(text: &str) -> String {
    let guard = if is_formula(text.as_bytes()) { "'" } else { "" };
    if guard.is_empty() && !text.contains([',', '"', '\n', '\r']) {
        return text.to_owned();
    }
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

const HEADER: &str = "operation,name,instance,waits,step,last_rank,late_host,lead_ns,lead_sigma_ns,spread_ns,transfer_ns,\
                      rank,arrival_ns,sigma_ns,launch_ns,end_ns,wait_ns,state";
