//! What a simulated run is like: all numbers in one place, each with a default.

use probe_sync_probe::EndpointConfig;
use probe_sync_time::{Duration, StampSource};

/// A simulated run. The defaults are a quiet network of good clocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// How many nodes.
    pub nodes: u32,
    /// Undirected neighbours per node, as [`probe_sync_probe::topology::edges`] takes it.
    pub neighbors: u32,
    /// Gap between the exchanges that one node starts. The nodes' phases are spread evenly over it.
    pub gap: Duration,
    /// Time between the packets of a coded pair.
    pub spacing: Duration,
    /// After what time an exchange is given up.
    pub exchange_timeout: Duration,
    /// Mean of the exponential delay with which a node wakes up for a timer, ns.
    pub wakeup_ns_mean: f64,
    /// The clocks.
    pub clocks: Clocks,
    /// The network.
    pub network: Network,
    /// The stamps.
    pub stamps: Stamps,
}

/// How clocks differ from node 0's, which shows true time.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Clocks {
    /// Offsets at the start are uniform within ± this, ns.
    pub offset_ns_max: i64,
    /// Rates are uniform within ± this, ppm.
    pub skew_ppm_max: f64,
    /// Random walk of the rate: its standard deviation after one second, ppm.
    pub wander_ppm: f64,
}

/// What the network does to packets.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Network {
    /// Least one-way delay, ns.
    pub delay_ns: i64,
    /// Each direction of each pair has an additional constant delay, uniform in 0 to this, ns.
    pub asymmetry_ns_max: i64,
    /// Mean of the exponential queueing delay of each packet, ns. Packets overtake each other.
    pub queueing_ns_mean: f64,
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Probability that a packet comes twice.
    pub duplication: f64,
    /// Probability that a packet takes `straggling_ns` longer.
    pub straggling: f64,
    /// By how much stragglers are late, ns.
    pub straggling_ns: i64,
    /// Probability that a packet is followed by a datagram that is none of the node's business.
    pub foreign: f64,
}

/// What the nodes' stamps are like.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Stamps {
    /// Where they claim to be taken.
    pub source: StampSource,
    /// Error of each stamp, uniform within ± this, ns.
    pub noise_ns_max: i64,
    /// After what time a transmit stamp is reported, ns.
    pub report_ns: i64,
    /// Probability that a transmit stamp never comes.
    pub missing: f64,
    /// Probability that a packet cannot be sent.
    pub unsendable: f64,
}

impl Scenario {
    /// A run of `nodes` nodes with everything else by default.
    pub fn new(nodes: u32) -> Self {
        Self {
            nodes,
            neighbors: nodes.saturating_sub(1).min(10),
            gap: Duration::from_ms(2),
            spacing: EndpointConfig::SPACING,
            exchange_timeout: EndpointConfig::EXCHANGE_TIMEOUT,
            wakeup_ns_mean: 5_000.0,
            clocks: Clocks { offset_ns_max: 10_000_000, skew_ppm_max: 50.0, wander_ppm: 0.0 },
            network: Network {
                delay_ns: 10_000,
                asymmetry_ns_max: 0,
                queueing_ns_mean: 1_000.0,
                loss: 0.0,
                duplication: 0.0,
                straggling: 0.0,
                straggling_ns: 0,
                foreign: 0.0,
            },
            stamps: Stamps {
                source: StampSource::Kernel,
                noise_ns_max: 0,
                report_ns: 2_000,
                missing: 0.0,
                unsendable: 0.0,
            },
        }
    }
}
