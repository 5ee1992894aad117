//! The parameters of a simulated round, and its cost.

use serde::Deserialize;

use crate::Error;

/// A round to be simulated.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct RoundModel {
    /// How many ranks there are, 2 to 1 000 000.
    pub ranks: usize,
    /// How many ranks share a host, from 1 on. With several hosts a host is one node; on a single
    /// host every rank is a node.
    pub ranks_per_host: usize,
    /// Cores that a host's ranks have for this, from 1 on.
    pub cores: usize,
    /// Who sends to whom.
    pub topology: Topology,
    /// What is sent.
    pub mode: Mode,
    /// What messages cost.
    pub costs: Costs,
    /// What lies between hosts.
    pub network: Network,
    /// How large messages are.
    pub sizes: Sizes,
}

/// Who sends to whom.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Every rank and the root.
    Star,
    /// The TCP backend's tree: each passes on for at most so many others.
    Tree {
        /// That many, from 2 on.
        fan_out: usize,
    },
    /// Two levels: a star in every region, and a star of the regions' masters. A region solves
    /// itself, so its master sends one window.
    Regions {
        /// Ranks of a region, from 2 on.
        ranks: usize,
    },
    /// The MPI backend: ranks of a host by shared memory, leaders straight to the root, and a
    /// binomial tree of leaders back.
    Leaders,
}

/// What is sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Windows to the root, a decision to every rank.
    Master,
    /// All windows to all ranks.
    Timed,
}

/// What messages cost, µs of processor time each.
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Of a message between hosts.
    pub between_hosts: MessageCosts,
    /// Of a message within a host.
    pub within_host: MessageCosts,
    /// From a message's arrival at a rank that sleeps until that rank runs; no processor time.
    pub wake_us: f64,
}

/// What one message costs one of its ends, µs.
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageCosts {
    /// Where the rank has several at once, as the root does.
    pub many_us: f64,
    /// Where it has this one only, and has slept before.
    pub alone_us: f64,
    /// For every 1024 bytes besides.
    pub kibibyte_us: f64,
}

/// What lies between hosts.
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// From link to link, µs.
    pub latency_us: f64,
    /// Of a host's link, each way, Gbit/s.
    pub gigabits: f64,
    /// Share of messages that are delayed besides.
    pub tail_probability: f64,
    /// Mean of that delay, which is exponential, µs.
    pub tail_us: f64,
}

/// How large messages are, bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// A node's window.
    pub window: usize,
    /// An estimate of one node in a decision.
    pub estimate: usize,
    /// What every message has besides.
    pub header: usize,
    /// Estimates in all decisions of a round (ranks times nodes) above which a rank is told its own
    /// and the reference's only.
    pub shared_estimates_max: usize,
}

/// What a round has cost.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct RoundCost {
    /// From the moment at which all ranks begin to the one at which the last has the decision, µs.
    pub round_us: f64,
    /// Of that, until the root had everything, µs.
    pub gather_us: f64,
    /// Messages in all.
    pub messages: u64,
    /// Bytes in all, those within hosts included.
    pub bytes: u64,
    /// Messages that the root sends or receives.
    pub root_messages: u64,
    /// Bytes that the root sends or receives.
    pub root_bytes: u64,
    /// Processor time of the root, µs.
    pub root_cpu_us: f64,
    /// Processor time of all ranks, µs.
    pub cpu_us: f64,
    /// The longest way from the root to a rank, messages.
    pub hops: usize,
}

impl RoundModel {
    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        if self.ranks_per_host >= self.ranks { self.ranks } else { self.ranks.div_ceil(self.ranks_per_host) }
    }

    /// How many bytes a rank is told.
    pub fn told(&self) -> usize {
        let (nodes, sizes) = (self.nodes(), self.sizes);
        match self.mode {
            Mode::Timed => nodes * (sizes.window + FRAME),
            Mode::Master if self.ranks.saturating_mul(nodes) <= sizes.shared_estimates_max => nodes * sizes.estimate,
            Mode::Master => 2 * sizes.estimate,
        }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let whole = |field: &str, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(out_of_range(field, &value.to_string(), &least.to_string(), &most.to_string()))
        };
        whole("ranks", self.ranks, 2, RANKS_MAX)?;
        whole("ranks_per_host", self.ranks_per_host, 1, RANKS_MAX)?;
        whole("cores", self.cores, 1, RANKS_MAX)?;
        match self.topology {
            Topology::Tree { fan_out } => whole("fan_out", fan_out, 2, RANKS_MAX)?,
            Topology::Regions { ranks } => whole("regions.ranks", ranks, 2, RANKS_MAX)?,
            Topology::Star | Topology::Leaders => {}
        }
        let (between, within) = (self.costs.between_hosts, self.costs.within_host);
        let numbers = [
            ("between_hosts.many_us", between.many_us),
            ("between_hosts.alone_us", between.alone_us),
            ("between_hosts.kibibyte_us", between.kibibyte_us),
            ("within_host.many_us", within.many_us),
            ("within_host.alone_us", within.alone_us),
            ("within_host.kibibyte_us", within.kibibyte_us),
            ("wake_us", self.costs.wake_us),
            ("latency_us", self.network.latency_us),
            ("tail_us", self.network.tail_us),
        ];
        for (field, value) in numbers {
            if !(0.0..=MICROSECONDS_MAX).contains(&value) {
                return Err(out_of_range(field, &value.to_string(), "0", &MICROSECONDS_MAX.to_string()));
            }
        }
        if !(1e-3..=1e6).contains(&self.network.gigabits) {
            return Err(out_of_range("gigabits", &self.network.gigabits.to_string(), "0.001", "1000000"));
        }
        if !(0.0..=1.0).contains(&self.network.tail_probability) {
            return Err(out_of_range("tail_probability", &self.network.tail_probability.to_string(), "0", "1"));
        }
        for (field, bytes) in
            [("window", self.sizes.window), ("estimate", self.sizes.estimate), ("header", self.sizes.header)]
        {
            whole(field, bytes, 0, MESSAGE_MAX)?;
        }
        Ok(())
    }
}

fn out_of_range(field: &str, value: &str, least: &str, most: &str) -> Error {
    Error::Range { field: field.to_owned(), value: value.to_owned(), range: (least.to_owned(), most.to_owned()) }
}

/// Bytes that the length of each frame takes where several go in one message.
pub(super) const FRAME: usize = 8;

/// So that a plan fits into memory.
const RANKS_MAX: usize = 1_000_000;

/// A minute; longer is no cost of a message.
const MICROSECONDS_MAX: f64 = 6e7;

/// The largest part of a message.
const MESSAGE_MAX: usize = 1 << 24;
