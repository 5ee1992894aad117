//! The parameters of a simulated round, and its cost.

use serde::Deserialize;

use crate::Error;

/// Model of a round.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct RoundModel {
    /// Number of ranks, 2 to 1 000 000.
    pub ranks: usize,
    /// Ranks per host, at least 1. With several hosts a host is one node; on a single host every
    /// rank is a node.
    pub ranks_per_host: usize,
    /// Cores available to a host's ranks, at least 1.
    pub cores: usize,
    /// Which ranks send to which.
    pub topology: Topology,
    /// What is sent.
    pub mode: Mode,
    /// Cost of messages.
    pub costs: Costs,
    /// Network between hosts.
    pub network: Network,
    /// Size of messages.
    pub sizes: Sizes,
}

/// Which ranks send to which.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Every rank and the root.
    Star,
    /// The tree of the TCP backend, with a limited number of children.
    Tree {
        /// Most children of a rank, at least 2.
        fan_out: usize,
    },
    /// Two levels: a star in every region, and a star of the regions' masters. A region solves
    /// itself, so its master sends one window.
    Regions {
        /// Ranks of a region, at least 2.
        ranks: usize,
    },
    /// The MPI backend: ranks of a host over shared memory, leaders directly to the root, and a
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

/// Cost of messages, µs of processor time each.
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// For a message between hosts.
    pub between_hosts: MessageCosts,
    /// For a message within a host.
    pub within_host: MessageCosts,
    /// Time from the arrival of a message at a sleeping rank until that rank runs; no processor
    /// time.
    pub wake_us: f64,
}

/// Cost of one message at one of its ends, µs.
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageCosts {
    /// If the rank handles several at once, as the root does.
    pub many_us: f64,
    /// If the rank handles only this one, and has slept before.
    pub alone_us: f64,
    /// In addition for every 1024 bytes.
    pub kibibyte_us: f64,
}

/// Network between hosts.
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Latency from link to link, µs.
    pub latency_us: f64,
    /// Bandwidth of a host's link, each way, Gbit/s.
    pub gigabits: f64,
    /// Share of messages with an additional delay.
    pub tail_probability: f64,
    /// Mean of that delay, which is exponential, µs.
    pub tail_us: f64,
}

/// Size of messages, bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// A node's window.
    pub window: usize,
    /// An estimate of one node in a decision.
    pub estimate: usize,
    /// Header of every message.
    pub header: usize,
    /// Number of estimates in all decisions of a round (ranks times nodes) above which a rank
    /// receives only its own and the reference's.
    pub shared_estimates_max: usize,
}

/// Cost of a round.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct RoundCost {
    /// Time from the common start of all ranks until the last has the decision, µs.
    pub round_us: f64,
    /// Part of that until the root had everything, µs.
    pub gather_us: f64,
    /// Total messages.
    pub messages: u64,
    /// Total bytes, including those within hosts.
    pub bytes: u64,
    /// Messages that the root sends or receives.
    pub root_messages: u64,
    /// Bytes that the root sends or receives.
    pub root_bytes: u64,
    /// Processor time of the root, µs.
    pub root_cpu_us: f64,
    /// Processor time of all ranks, µs.
    pub cpu_us: f64,
    /// The longest path from the root to a rank, messages.
    pub hops: usize,
}

impl RoundModel {
    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        if self.ranks_per_host >= self.ranks { self.ranks } else { self.ranks.div_ceil(self.ranks_per_host) }
    }

    /// Number of bytes that a rank receives.
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

/// Size of the length of each frame if several share one message, bytes.
pub(super) const FRAME: usize = 8;

/// Limits the memory of a plan.
const RANKS_MAX: usize = 1_000_000;

/// A minute; no message costs more.
const MICROSECONDS_MAX: f64 = 6e7;

/// The largest part of a message.
const MESSAGE_MAX: usize = 1 << 24;
