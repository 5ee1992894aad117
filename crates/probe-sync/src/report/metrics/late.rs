//! Metrics of ranks that are late, in runs whose ranks say where they arrive.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::{Registry, Unit};

use super::families::{self, Count, Families, Value, labels};
use crate::late::Totals;

/// A growing number of seconds.
type Seconds = Counter<f64, AtomicU64>;

/// Metrics of late ranks.
#[derive(Debug)]
pub(super) struct LateMetrics {
    lost: Families<Seconds>,
    leads: Families<Value>,
    waiting: Families<Value>,
    arrivals: Count,
    operations: Count,
    dropped: Count,
}

impl LateMetrics {
    pub fn register(r: &mut Registry) -> Self {
        let lost = Families::<Seconds>::default();
        let help = "Sum of the times by which a rank was later than all others, by group";
        r.register_with_unit("late", help, Unit::Seconds, lost.clone());
        Self {
            lost,
            leads: families::seconds_by(r, "lead", "Median time by which a rank that is late now is later than others"),
            waiting: families::seconds_by(r, "waiting", "How long a group has waited for ranks that have not arrived"),
            arrivals: families::count(r, "arrivals", "Arrivals of ranks at operations that were reported"),
            operations: families::count(r, "arrival_operations", "Operations at which all members have arrived"),
            dropped: families::count(r, "arrivals_dropped", "Arrivals that ranks dropped, because there were too many"),
        }
    }

    pub fn set(&self, totals: &Totals) {
        for (group, rank, seconds) in &totals.lost_s {
            let counter = self.lost.get_or_create(&labels(&[("rank", &rank.to_string()), ("group", group)]));
            counter.inc_by((seconds - counter.get()).max(0.0));
        }
        self.leads.clear();
        for (group, rank, seconds) in &totals.lead_s {
            self.leads.get_or_create(&labels(&[("rank", &rank.to_string()), ("group", group)])).set(*seconds);
        }
        self.waiting.clear();
        for (group, seconds) in &totals.waiting_s {
            self.waiting.get_or_create(&labels(&[("group", group)])).set(*seconds);
        }
        let counts = &totals.counts;
        for (metric, now) in
            [(&self.arrivals, counts.arrivals), (&self.operations, counts.operations), (&self.dropped, counts.dropped)]
        {
            metric.inc_by(now.saturating_sub(metric.get()));
        }
    }
}
