//! The ranks of a job, and their operations in report form.

use std::collections::BTreeSet;

use probe_sync_alignment::{Calibrated, CalibratedTrace};
use probe_sync_lateness::host::late_host;
use probe_sync_lateness::operation::Arrival;

use super::history::Held;
use super::report::{ArrivalLine, LateInstance};

/// Numbers and hosts of the ranks.
pub(super) struct Ranks {
    pub(super) numbers: Vec<u32>,
    pub(super) hosts: Vec<String>,
}

impl Ranks {
    pub(super) fn of(calibrated: &Calibrated, traces: &[&CalibratedTrace]) -> Self {
        let host = |of: &&CalibratedTrace| {
            let stated = of.trace.facts.identity.hostname.clone();
            let recorded = || calibrated.hosts.get(&of.trace.node).cloned();
            stated.or_else(recorded).unwrap_or_else(|| format!("node {}", of.trace.node))
        };
        Self { numbers: traces.iter().map(|of| of.trace.part).collect(), hosts: traces.iter().map(host).collect() }
    }

    pub(super) fn of_host(&self, host: &str) -> BTreeSet<usize> {
        (0..self.hosts.len()).filter(|rank| self.hosts[*rank] == host).collect()
    }

    pub(super) fn instance(&self, held: &Held) -> LateInstance {
        let Held { judged, arrivals, .. } = held;
        let number = |place: usize| self.numbers[arrivals[place].rank];
        let starts = || arrivals.iter().map(|arrival| arrival.start_ns);
        let late_host = self.late_host(held).filter(|late| late.is_certain);
        let line = |(arrival, wait_ns): (&Arrival, &i64)| ArrivalLine {
            rank: self.numbers[arrival.rank],
            arrival_ns: arrival.start_ns,
            sigma_ns: arrival.error.sigma_ns,
            launch_ns: arrival.launch_ns,
            end_ns: arrival.end_ns,
            wait_ns: *wait_ns,
        };
        LateInstance {
            name: held.name.clone(),
            instance: held.instance.clone(),
            evidence: held.evidence,
            waits: if held.waits.is_all() { "all" } else { "some" },
            step: held.step,
            last_rank: judged.named().map(number),
            latest_rank: judged.latest.map(number),
            missing: if judged.is_open { held.missing } else { 0 },
            tied_ranks: judged.tied.iter().map(|place| number(*place)).collect(),
            host_lead_ns: late_host.as_ref().map_or(0, |late| late.lead_ns),
            late_host: late_host.map(|late| late.host.to_owned()),
            first_arrival_ns: starts().min().unwrap_or(0),
            last_arrival_ns: judged.latest.map(|place| arrivals[place].start_ns).or(starts().max()).unwrap_or(0),
            lead_ns: judged.lead_ns,
            lead_sigma_ns: judged.lead_sigma_ns,
            spread_ns: judged.spread_ns,
            spread_sigma_ns: judged.spread_sigma_ns,
            transfer_ns: judged.transfer_ns,
            class: judged.class,
            late_in: judged.late_in,
            recorded_last_rank: self.numbers[held.recorded.0],
            recorded_spread_ns: held.recorded.1,
            arrivals: arrivals.iter().zip(&judged.waits_ns).map(line).collect(),
        }
    }

    /// Returns the host all of whose ranks, two or more, arrived after all others.
    pub(super) fn late_host(&self, held: &Held) -> Option<LateHost<'_>> {
        let late = late_host(&held.waits, &held.judged, &held.arrivals, |rank| &self.hosts[rank])?;
        let host = &self.hosts[held.arrivals[late.last].rank];
        Some(LateHost { host, lead_ns: late.lead_ns, lead_sigma_ns: late.lead_sigma_ns, is_certain: late.is_certain })
    }
}

/// A host that came last as a whole.
pub(super) struct LateHost<'a> {
    pub(super) host: &'a String,
    /// Time from the last arrival on another host to the first on this one, ns.
    pub(super) lead_ns: i64,
    /// Standard deviation of `lead_ns`, ns.
    pub(super) lead_sigma_ns: f64,
    /// True if no clock error within 3σ explains the lead.
    pub(super) is_certain: bool,
}
