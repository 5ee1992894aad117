//! The event-by-event simulation of a round.
//!
//! It turns a `Plan` into a [`RoundCost`]. An event is a task that a core has completed, or a
//! message that has reached a host or rank.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::model::{MessageCosts, RoundCost, RoundModel};
use super::plan::Plan;
use crate::world::random::{Draws, Purpose};

/// Simulates the round of a plan.
pub(super) fn happen(model: &RoundModel, plan: &Plan, seed: u64) -> RoundCost {
    let hosts = model.ranks.div_ceil(model.ranks_per_host);
    let mut round = CostRound {
        model,
        plan,
        draws: Draws::new(seed, Purpose::Messages, 0),
        now: 0.0,
        order: 0,
        events: BinaryHeap::new(),
        ranks: plan.gather_from.iter().map(|&waits_for| Rank { waits_for, ..Rank::default() }).collect(),
        hosts: (0..hosts).map(|_| Host { cores: model.cores, ..Host::default() }).collect(),
        told: 0,
        cost: RoundCost { hops: plan.hops(), ..RoundCost::default() },
    };
    (0..model.ranks).filter(|&rank| plan.gather_from[rank] == 0).for_each(|rank| round.has_all(rank));
    while let Some(Reverse((Time(at), _, event))) = round.events.pop() {
        round.now = at;
        match event {
            Event::Done(rank, task) => round.done(rank, task),
            Event::AtLink(message) => round.at_link(message),
            Event::Arrived(message) => round.arrived(message),
            Event::Ready(rank) => round.ready(rank),
        }
    }
    round.cost
}

struct CostRound<'m> {
    model: &'m RoundModel,
    plan: &'m Plan,
    draws: Draws,
    now: f64,
    /// Events at the same time happen in the order in which they were scheduled.
    order: u64,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    ranks: Vec<Rank>,
    hosts: Vec<Host>,
    /// Number of ranks that have the decision.
    told: usize,
    cost: RoundCost,
}

#[derive(Default)]
struct Rank {
    /// Parts that have not arrived.
    waits_for: usize,
    tasks: VecDeque<Task>,
    /// It runs, or waits for a core.
    awake: bool,
}

#[derive(Default)]
struct Host {
    /// Free cores.
    cores: usize,
    /// Ranks that have work and no core.
    ready: VecDeque<usize>,
    /// Time until which the link is busy with queued messages, µs.
    sends_until: f64,
    receives_until: f64,
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Done(usize, Task),
    AtLink(Message),
    Arrived(Message),
    Ready(usize),
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Send(Message),
    Receive(Message),
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Message {
    from: usize,
    to: usize,
    bytes: usize,
    gathers: bool,
}

impl CostRound<'_> {
    /// A rank has the parts of all ranks below it.
    fn has_all(&mut self, rank: usize) {
        if rank == 0 {
            self.cost.gather_us = self.now;
            return self.decided(0);
        }
        let (to, bytes) = (self.plan.gather_to[rank], self.plan.gather_bytes[rank]);
        if to != rank {
            self.give(rank, Task::Send(Message { from: rank, to, bytes, gathers: true }), 0.0);
        }
    }

    /// A rank has the decision.
    fn decided(&mut self, rank: usize) {
        self.told += 1;
        if self.told == self.model.ranks {
            self.cost.round_us = self.now;
        }
        for &to in &self.plan.deliver_to[rank] {
            let bytes = self.plan.deliver_bytes[to];
            self.give(rank, Task::Send(Message { from: rank, to, bytes, gathers: false }), 0.0);
        }
    }

    fn done(&mut self, rank: usize, task: Task) {
        match task {
            Task::Send(message) => {
                self.cost.messages += 1;
                self.cost.bytes += message.bytes as u64;
                if message.from == 0 || message.to == 0 {
                    self.cost.root_messages += 1;
                    self.cost.root_bytes += message.bytes as u64;
                }
                self.leaves(message);
            }
            Task::Receive(message) if message.gathers => {
                self.ranks[rank].waits_for -= 1;
                if self.ranks[rank].waits_for == 0 {
                    self.has_all(rank);
                }
            }
            Task::Receive(_) => self.decided(rank),
        }
        let host = self.host(rank);
        self.hosts[host].cores += 1;
        self.ranks[rank].awake = false;
        if !self.ranks[rank].tasks.is_empty() {
            self.ready(rank);
        }
        self.dispatch(host);
    }

    fn leaves(&mut self, message: Message) {
        let (from, to) = (self.host(message.from), self.host(message.to));
        if from == to {
            return self.arrived(message);
        }
        let network = self.model.network;
        let sent = self.now.max(self.hosts[from].sends_until) + self.on_link_us(message);
        self.hosts[from].sends_until = sent;
        let mut at = sent + network.latency_us;
        if network.tail_probability > 0.0 && self.draws.unit() < network.tail_probability {
            at -= network.tail_us * (1.0 - self.draws.unit()).ln();
        }
        self.set(at, Event::AtLink(message));
    }

    /// The last bit could arrive now, unless the link is still busy with others.
    fn at_link(&mut self, message: Message) {
        let (to, takes) = (self.host(message.to), self.on_link_us(message));
        let at = self.now.max(self.hosts[to].receives_until + takes);
        self.hosts[to].receives_until = at;
        self.set(at, Event::Arrived(message));
    }

    fn arrived(&mut self, message: Message) {
        self.give(message.to, Task::Receive(message), self.model.costs.wake_us);
    }

    /// Gives a rank work; if it sleeps it wakes after `wake_us`.
    fn give(&mut self, rank: usize, task: Task, wake_us: f64) {
        self.ranks[rank].tasks.push_back(task);
        if !self.ranks[rank].awake {
            self.ranks[rank].awake = true;
            self.set(self.now + wake_us, Event::Ready(rank));
        }
    }

    fn ready(&mut self, rank: usize) {
        let host = self.host(rank);
        self.ranks[rank].awake = true;
        self.hosts[host].ready.push_back(rank);
        self.dispatch(host);
    }

    fn dispatch(&mut self, host: usize) {
        while self.hosts[host].cores > 0 {
            let Some(rank) = self.hosts[host].ready.pop_front() else { return };
            let Some(task) = self.ranks[rank].tasks.pop_front() else { continue };
            self.hosts[host].cores -= 1;
            let us = self.task_us(rank, task);
            self.cost.cpu_us += us;
            if rank == 0 {
                self.cost.root_cpu_us += us;
            }
            self.set(self.now + us, Event::Done(rank, task));
        }
    }

    fn task_us(&self, rank: usize, task: Task) -> f64 {
        let (Task::Send(message) | Task::Receive(message)) = task;
        let costs = self.model.costs;
        let MessageCosts { many_us, alone_us, kibibyte_us } =
            if self.host(message.from) == self.host(message.to) { costs.within_host } else { costs.between_hosts };
        // Those on the root's side of a message have several of them.
        let many = match task {
            Task::Receive(_) => message.gathers && self.plan.gather_from[rank] > 1,
            Task::Send(_) => !message.gathers && self.plan.deliver_to[rank].len() > 1,
        };
        (if many { many_us } else { alone_us }) + kibibyte_us * message.bytes as f64 / 1024.0
    }

    fn on_link_us(&self, message: Message) -> f64 {
        message.bytes as f64 * 8e-3 / self.model.network.gigabits
    }

    fn host(&self, rank: usize) -> usize {
        rank / self.model.ranks_per_host
    }

    fn set(&mut self, at: f64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((Time(at), self.order, event)));
    }
}

/// A time that is not NaN, µs.
#[derive(Copy, Clone)]
struct Time(f64);

impl PartialEq for Time {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
