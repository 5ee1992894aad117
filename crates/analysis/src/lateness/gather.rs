//! Receives the operations one by one as they are paired, and judges each.
//!
//! This is where times leave the traces' own timelines.

use std::collections::{BTreeSet, HashMap};

use crate::Error;
use probe_sync_alignment::collectives::{NodeCollectives, Operation, Order, instance_text};
use probe_sync_alignment::early_devices;
use probe_sync_formats::model::{Instance, Label, MappedTime, PS_PER_NS, Picoseconds, Replicas, nearest_ns};
use probe_sync_formats::words::counted;
use probe_sync_lateness::operation::{Arrival, ClockError, DEVIATIONS, judge};

use super::context::{Context, StepSpans};
use super::history::Held;
use super::waits::waits_of;

/// All operations, judged.
pub(super) struct Gathered {
    /// In order of their last arrivals.
    pub(super) held: Vec<Held>,
    pub(super) spans: StepSpans,
    /// Operations that ended before their last arrival: a clock is wrong.
    pub(super) impossible: usize,
    /// Notes on what was left out.
    pub(super) notes: Vec<String>,
}

/// Collects the judged operations.
pub(super) struct Gatherer<'a> {
    nodes: &'a [NodeCollectives<'a>],
    contexts: &'a [Context],
    held: Vec<Held>,
    parts: usize,
    /// By name, instance and devices: index of the label.
    labels: HashMap<(&'a str, &'a Instance, &'a Replicas), usize>,
    /// The ranks that the operations of a label join.
    joined: Vec<BTreeSet<Vec<usize>>>,
    /// The label of each held operation.
    of_label: Vec<usize>,
    /// Operations whose times do not fit 64 bits of ns.
    beyond: usize,
    /// Calls that returned before their operation had run.
    returned_early: usize,
}

impl<'a> Gatherer<'a> {
    pub(super) fn new(nodes: &'a [NodeCollectives<'a>], contexts: &'a [Context]) -> Self {
        let (labels, joined, of_label) = (HashMap::new(), Vec::new(), Vec::new());
        Self { nodes, contexts, held: Vec::new(), parts: 0, labels, joined, of_label, beyond: 0, returned_early: 0 }
    }

    pub(super) fn take(&mut self, operation: &Operation<'a>) {
        self.parts += operation.parts.len();
        if self.parts > PARTS_MAX {
            return;
        }
        let mut arrivals: Vec<Arrival> = Vec::new();
        let mut recorded: Vec<(i64, usize)> = Vec::new();
        for of_node in operation.parts.chunk_by(|a, b| a.node == b.node) {
            // A host has arrived when its last device has.
            let Some(last) = of_node.iter().max_by_key(|part| part.start_ps) else { continue };
            let first_end = of_node.iter().map(|part| part.end_ps).min().unwrap_or(last.end_ps);
            let end = of_node.iter().map(|part| part.end_ps).max().unwrap_or(last.end_ps);
            let Some(arrival) = self.arrival(last.node, last.start_ps, first_end, end) else {
                self.beyond += 1;
                return;
            };
            recorded.extend(nearest_ns(last.start_ps).map(|start| (start, last.node)));
            arrivals.push(arrival);
        }
        let step = self.step(operation);
        let waits = waits_of(&operation.order, &arrivals);
        let mut judged = judge(&waits, &arrivals);
        // A call may return before its operation has run.
        if judged.is_impossible && operation.parts.iter().any(|part| self.nodes[part.node].parts.of_calls()) {
            judged.is_impossible = false;
            self.returned_early += 1;
        }
        let spread = recorded.iter().max().zip(recorded.iter().min()).map(|(last, first)| (last.1, last.0 - first.0));
        let Some(part) = operation.parts.first() else { return };
        self.join(part.label, arrivals.iter().map(|arrival| arrival.rank).collect());
        self.held.push(Held {
            name: part.label.name.clone(),
            instance: instance_text(&part.label.instance, operation),
            evidence: operation.evidence,
            step,
            waits,
            arrivals,
            recorded: spread.unwrap_or_default(),
            judged,
            missing: if awaits_all(&operation.order) { operation.missing } else { 0 },
        });
    }

    /// Notes which ranks the next operation joins.
    fn join(&mut self, label: &'a Label, ranks: Vec<usize>) {
        let number = *self.labels.entry((&label.name, &label.instance, &label.replicas)).or_insert_with(|| {
            self.joined.push(BTreeSet::new());
            self.joined.len() - 1
        });
        self.of_label.push(number);
        let joined = &mut self.joined[number];
        if joined.len() < JOINED_MAX {
            joined.insert(ranks);
        }
    }

    /// Leaves out operations that lack a rank which others of their label join: it may have been
    /// the last. Returns how many there are.
    fn complete(&mut self) -> usize {
        let Self { held, joined, of_label, .. } = self;
        let count = held.len();
        let mut labels = of_label.iter();
        held.retain(|held| {
            let own: Vec<usize> = held.arrivals.iter().map(|arrival| arrival.rank).collect();
            let more = |ranks: &Vec<usize>| {
                ranks.len() > own.len() && own.iter().all(|rank| ranks.binary_search(rank).is_ok())
            };
            labels.next().is_none_or(|label| !joined[*label].iter().any(more))
        });
        count - held.len()
    }

    /// Names no rank if a rank without a trace may have been the last. It was not if the operation
    /// was over as soon after the last arrival as one of its kind that lacks no rank.
    fn missing(&mut self) {
        let mut quickest: HashMap<usize, i64> = HashMap::new();
        for (held, label) in self.held.iter().zip(&self.of_label).filter(|(held, _)| held.missing == 0) {
            let least = quickest.entry(*label).or_insert(i64::MAX);
            *least = (*least).min(held.judged.transfer_ns);
        }
        for (held, label) in self.held.iter_mut().zip(&self.of_label).filter(|(held, _)| held.missing > 0) {
            let least_ns = quickest.get(label).copied().unwrap_or(0);
            let most_ns = held.judged.transfer_ns as f64 + DEVIATIONS * held.judged.lead_sigma_ns;
            if most_ns > least_ns as f64 {
                held.judged.leave_open();
            }
        }
    }

    fn arrival(&self, node: usize, start: Picoseconds, first_end: Picoseconds, end: Picoseconds) -> Option<Arrival> {
        let of = &self.nodes[node];
        let mapped = |time: Picoseconds| nearest_ns((of.map)(time).at);
        let MappedTime { at, sigma_ns, own_sigma_ns, early_by_ns } = (of.map)(start);
        let launch = self.contexts[node].launch(start);
        // Of kernels alone: other parts have no launch to begin before.
        let early_by_ns = early_by_ns + self.contexts[node].before_launch.most_ns as f64;
        Some(Arrival {
            rank: node,
            start_ns: nearest_ns(at)?,
            first_end_ns: mapped(first_end)?,
            end_ns: mapped(end)?,
            launch_ns: launch.and_then(mapped),
            begun_ns: self.contexts[node].step(launch.unwrap_or(start)).and_then(|(_, begun)| mapped(begun)),
            error: ClockError { clock: of.clock, sigma_ns, own_sigma_ns, early_by_ns },
        })
    }

    /// The earliest step in which a rank began it: asynchronous work is never begun before it was
    /// requested. If no trace numbers its steps, the run of a compiled program, which
    /// [`number_runs`] numbers.
    fn step(&self, operation: &Operation<'_>) -> Option<i64> {
        if self.contexts.iter().all(|context| context.steps.is_empty()) {
            let mut instances = operation.parts.iter().map(|part| &part.label.instance);
            return instances.any(|instance| matches!(instance, Instance::Hlo { .. })).then_some(operation.number);
        }
        let step = |(node, start): (usize, Picoseconds)| {
            let context: &Context = &self.contexts[node];
            context.step(context.launch(start).unwrap_or(start)).map(|(number, _)| number)
        };
        operation.parts.iter().filter_map(|part| step((part.node, part.start_ps))).min()
    }

    /// The spans of the steps, from all ranks.
    fn spans(&self) -> StepSpans {
        let mut spans = StepSpans::new();
        let mut widen = |step: i64, start: i64, end: i64| {
            let span = spans.entry(step).or_insert((start, end));
            *span = (span.0.min(start), span.1.max(end));
        };
        for (node, context) in self.nodes.iter().zip(self.contexts) {
            let mapped = |time: i64| nearest_ns((node.map)(Picoseconds::from(time) * PS_PER_NS).at);
            for (start, end, number) in &context.steps {
                if let Some((start, end)) = mapped(*start).zip(mapped(*end)) {
                    widen(*number, start, end);
                }
            }
        }
        for held in &self.held {
            let Some(step) = held.step else { continue };
            held.arrivals.iter().for_each(|arrival| widen(step, arrival.start_ns, arrival.end_ns));
        }
        spans
    }

    /// Note about calls that returned before their operation had run.
    fn returned_early(&self) -> Option<String> {
        (self.returned_early > 0).then(|| {
            format!(
                "{} of {} operations ended on some rank before the last rank's call, because the calls only enqueue or a clock is \
                wrong; no rank is named for them; also trace kernels (--kernel-trace)",
                self.returned_early,
                self.held.len()
            )
        })
    }

    /// Smallest possible error of the times of devices.
    fn before_launch(&self) -> Option<String> {
        let of = |(node, context): (&NodeCollectives<'_>, &Context)| {
            (format!("rank {}", node.rank()), context.before_launch)
        };
        let found = self.nodes.iter().zip(self.contexts).map(of);
        early_devices::told(found, "leads of these ranks are less certain by the same amount")
    }

    /// Everything in order of time.
    ///
    /// # Errors
    /// [`Error::Request`]: there were more parts than are held.
    pub(super) fn finish(mut self) -> Result<Gathered, Error> {
        if self.parts > PARTS_MAX {
            let problem = format!(
                "{} parts of collectives exceed the limit of {PARTS_MAX}; give traces of fewer steps or ranks",
                self.parts
            );
            return Err(Error::Request { problem });
        }
        self.missing();
        let lacking = self.complete();
        let impossible = self.held.iter().filter(|held| held.judged.is_impossible).count();
        if impossible > 0 || self.returned_early > 0 {
            self.held.iter_mut().for_each(|held| held.judged.leave_open());
        }
        self.held.sort_by_key(|held| {
            (
                held.arrivals.iter().map(|arrival| arrival.start_ns).max(),
                held.arrivals.iter().map(|arrival| arrival.end_ns).max(),
            )
        });
        if self.contexts.iter().all(|context| context.steps.is_empty()) {
            number_runs(&mut self.held);
        }
        let spans = self.spans();
        let launches: u64 = self.contexts.iter().map(|context| context.launches_left_out).sum();
        let launches = (launches > 0).then(|| {
            format!("{launches} launches exceeded the limit; the report does not say where their kernels lost time")
        });
        let early = self.before_launch();
        let lacking = (lacking > 0).then(|| {
            format!(
                "ignored {}, because a rank that takes part in other such operations has no part in them and may have been last",
                counted(lacking, "operation")
            )
        });
        let returned_early = self.returned_early();
        let beyond = (self.beyond > 0)
            .then(|| format!("ignored {} operations with times that do not fit in 64 bits of ns", self.beyond));
        Ok(Gathered {
            held: self.held,
            spans,
            impossible,
            notes: early.into_iter().chain(returned_early).chain(launches).chain(lacking).chain(beyond).collect(),
        })
    }
}

/// Numbers the runs of compiled programs from 0 in order of time: XLA's own numbers begin anywhere.
fn number_runs(held: &mut [Held]) {
    let mut numbers: HashMap<i64, i64> = HashMap::new();
    for step in held.iter_mut().filter_map(|held| held.step.as_mut()) {
        let next = numbers.len() as i64;
        *step = *numbers.entry(*step).or_insert(next);
    }
}

/// Whether some rank waits in it for all others.
fn awaits_all(order: &Order) -> bool {
    matches!(order, Order::AllToAll | Order::To(_) | Order::Exchange(_))
}

/// Sets of ranks of a label that are compared.
const JOINED_MAX: usize = 1 << 8;
/// Most parts held at once: about 500 MB including results.
const PARTS_MAX: usize = 1 << 22;
