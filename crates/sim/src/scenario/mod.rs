//! The description of a simulated run: all numbers in one place, each with a default, read from
//! TOML.
//!
//! A [`Scenario`] comes from a file of `bench/scenarios` or from code; [`crate::Simulation::new`]
//! checks and runs it. Keys carry their units, and every key is optional; an unknown key is an
//! error that states the key and its line.

mod check;
pub(crate) mod faults;

use probe_sync_probe::EndpointConfig;
use probe_sync_time::{Duration, NodeId, StampSource};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::scenario::faults::Fault;

/// A simulated run. The defaults are a quiet network of good clocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// What it shows, for readers.
    pub description: String,
    /// Number of nodes.
    pub nodes: u32,
    /// Undirected neighbours per node, as in [`probe_sync_probe::topology::edges`].
    pub neighbors: u32,
    /// The node whose offset is zero. It affects neither clocks nor packets: those are the same for
    /// any reference.
    pub reference: NodeId,
    /// Length of the run, s. For callers of the simulator: its own functions take the time as an
    /// argument.
    pub duration_s: f64,
    /// Length of a window, s; also for callers of the simulator.
    pub window_s: f64,
    /// Gap between the exchanges that one node starts. The nodes' phases are spread evenly over it.
    #[serde(rename = "gap_us", with = "micros")]
    pub gap: Duration,
    /// Coded pairs per second on each edge in each direction; overrides `gap`: a node with k
    /// out-edges then starts an exchange every 1/(k · this) seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs_per_second: Option<f64>,
    /// Time between the packets of a coded pair.
    #[serde(rename = "spacing_us", with = "micros")]
    pub spacing: Duration,
    /// Time after which an exchange is given up.
    #[serde(rename = "exchange_timeout_us", with = "micros")]
    pub exchange_timeout: Duration,
    /// Mean of the exponential delay with which a node wakes up for a timer, ns.
    pub wakeup_ns_mean: f64,
    /// Whether nodes notice steps and slews of their own clock. The clock of a virtual machine may
    /// be moved unnoticed.
    pub clock_watch: bool,
    /// The clocks.
    pub clocks: Clocks,
    /// The network.
    pub network: Network,
    /// The timestamps.
    pub stamps: Stamps,
    /// Recorded errors added to clocks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replays: Vec<Replay>,
    /// Simulated faults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

/// How clocks differ from true time.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clocks {
    /// Offsets at the start are uniform within ± this, ns.
    pub offset_ns_max: i64,
    /// Rates are uniform within ± this, ppm.
    pub skew_ppm_max: f64,
    /// Random walk of the rate: its standard deviation after one second, ppm.
    pub wander_ppm: f64,
    /// Whether node 0's clock has a rate error and wanders like the others. Otherwise it shows true
    /// time.
    pub reference_wanders: bool,
    /// Sudden changes of temperature.
    pub thermal: Thermal,
    /// A daemon that slews the clock.
    pub slews: Slews,
    /// A regular wave.
    pub wave: Waves,
}

/// Changes of temperature: at random instants the rate starts to approach another value
/// exponentially.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thermal {
    /// Mean time between changes (Poisson), s; 0: never.
    pub every_s: f64,
    /// Standard deviation of a change (normal), ppm.
    pub sd_ppm: f64,
    /// Time constant of the approach, s; 0: at once.
    pub tau_s: f64,
}

/// Slews as made by NTP daemons: at random instants the rate changes for some time, then changes
/// back.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Slews {
    /// Mean time between slews (Poisson), s; 0: never.
    pub every_s: f64,
    /// The change of rate is uniform within ± this, ppm.
    pub ppm_max: f64,
    /// Length of a slew, s.
    pub for_s: f64,
}

/// A sinusoid in every clock's error but node 0's, with a random phase.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Waves {
    /// The amplitude is uniform in 0 to this, ns.
    pub amplitude_ns_max: f64,
    /// Period, s.
    pub period_s: f64,
}

/// A recorded series of a clock's error, added to the clock of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// The node.
    pub node: NodeId,
    /// Time since the start in s, and the error at that time in ns, linear in between; constant
    /// before and after.
    pub points: Vec<(f64, f64)>,
}

/// Effects of the network on packets.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// Least one-way delay, ns.
    pub delay_ns: i64,
    /// Each pair of nodes has an additional delay, the same in both directions, uniform in 0 to
    /// this, ns.
    pub delay_spread_ns: i64,
    /// Each direction of each pair has an additional constant delay, uniform in 0 to this, ns.
    pub asymmetry_ns_max: i64,
    /// The directions of each pair differ by ±b, b normal with this standard deviation, ns: theta
    /// of the pair is wrong by b.
    pub asymmetry_sd_ns: f64,
    /// Share of the time that each direction is busy with bursts of other traffic, below 1; 0: no
    /// bursts.
    pub load: f64,
    /// The load of each direction is uniform within `load` ± this.
    pub load_spread: f64,
    /// Mean time after which a direction draws another load (Poisson), s; 0: never.
    pub load_change_s: f64,
    /// Mean time that a burst takes on the wire (exponential), ns.
    pub burst_ns_mean: f64,
    /// Mean of each packet's own exponential delay, ns. It lets packets overtake each other.
    pub queueing_ns_mean: f64,
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Probability that a packet is duplicated.
    pub duplication: f64,
    /// Probability that a packet takes `straggling_ns` longer.
    pub straggling: f64,
    /// Additional delay of stragglers, ns.
    pub straggling_ns: i64,
    /// Probability that a packet is followed by a datagram not meant for the node.
    pub foreign: f64,
}

/// Properties of the nodes' timestamps. All errors add up.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stamps {
    /// Where they claim to be taken.
    pub source: StampSource,
    /// Error of each timestamp, uniform within ± this, ns.
    pub noise_ns_max: i64,
    /// Error of each timestamp, normal with this standard deviation, ns.
    pub noise_sd_ns: f64,
    /// Software is never in time: transmit timestamps are early and receive timestamps late by an
    /// exponential time with this mean, ns.
    pub late_ns_mean: f64,
    /// Probability that an interrupt intervenes: the timestamp is earlier or later still.
    pub spike: f64,
    /// Mean of the exponential time that an interrupt takes, ns.
    pub spike_ns_mean: f64,
    /// Resolution of the clock, ns: it shows integer multiples of this.
    pub tick_ns: i64,
    /// Time after which a transmit timestamp is reported, ns.
    pub report_ns: i64,
    /// Probability that a transmit timestamp never arrives.
    pub missing: f64,
    /// Probability that a packet cannot be sent.
    pub unsendable: f64,
}

impl Scenario {
    /// A run of `nodes` nodes with defaults for everything else.
    pub fn new(nodes: u32) -> Self {
        Self { nodes, neighbors: nodes.saturating_sub(1).min(10), ..Self::default() }
    }

    /// Parses the text of a scenario file and checks it.
    ///
    /// # Errors
    /// Returns an error if the text is not TOML, if a key is unknown or of the wrong type (key and
    /// line are named), or if a value is out of range.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        let scenario: Self =
            toml::from_str(text).map_err(|error| Error::Toml(error.to_string().trim_end().to_owned()))?;
        scenario.check()?;
        Ok(scenario)
    }

    /// `duration_s` as a duration.
    pub fn duration(&self) -> Duration {
        Duration::from_ns_f64(self.duration_s * 1e9)
    }

    /// `window_s` as a duration.
    pub fn window(&self) -> Duration {
        Duration::from_ns_f64(self.window_s * 1e9)
    }

    /// The gap between the exchanges that a node with `out_degree` out-edges starts.
    pub fn gap_of(&self, out_degree: usize) -> Duration {
        match self.pairs_per_second {
            Some(rate) => Duration::from_ns_f64(1e9 / (rate * out_degree.max(1) as f64)),
            None => self.gap,
        }
    }
}

impl Stamps {
    /// Timestamps of a network interface: 8 ns of noise.
    pub fn hardware() -> Self {
        Self { source: StampSource::Hardware, noise_sd_ns: 8.0, ..Self::default() }
    }

    /// Timestamps of a kernel: 0.5 µs off on average, and 20 µs more when an interrupt intervenes.
    pub fn software() -> Self {
        Self { late_ns_mean: 500.0, spike: 0.002, spike_ns_mean: 20_000.0, ..Self::default() }
    }
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            description: String::new(),
            nodes: 16,
            neighbors: 10,
            reference: NodeId(0),
            duration_s: 64.0,
            window_s: 4.0,
            gap: Duration::from_ms(2),
            pairs_per_second: None,
            spacing: EndpointConfig::SPACING,
            exchange_timeout: EndpointConfig::EXCHANGE_TIMEOUT,
            wakeup_ns_mean: 5_000.0,
            clock_watch: true,
            clocks: Clocks::default(),
            network: Network::default(),
            stamps: Stamps::default(),
            replays: Vec::new(),
            faults: Vec::new(),
        }
    }
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            offset_ns_max: 10_000_000,
            skew_ppm_max: 50.0,
            wander_ppm: 0.0,
            reference_wanders: false,
            thermal: Thermal::default(),
            slews: Slews::default(),
            wave: Waves::default(),
        }
    }
}

impl Default for Thermal {
    fn default() -> Self {
        Self { every_s: 0.0, sd_ppm: 0.02, tau_s: 20.0 }
    }
}

impl Default for Slews {
    fn default() -> Self {
        Self { every_s: 0.0, ppm_max: 10.0, for_s: 5.0 }
    }
}

impl Default for Waves {
    fn default() -> Self {
        Self { amplitude_ns_max: 0.0, period_s: 60.0 }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            delay_ns: 10_000,
            delay_spread_ns: 0,
            asymmetry_ns_max: 0,
            asymmetry_sd_ns: 0.0,
            load: 0.0,
            load_spread: 0.0,
            load_change_s: 0.0,
            burst_ns_mean: 20_000.0,
            queueing_ns_mean: 1_000.0,
            loss: 0.0,
            duplication: 0.0,
            straggling: 0.0,
            straggling_ns: 0,
            foreign: 0.0,
        }
    }
}

impl Default for Stamps {
    fn default() -> Self {
        Self {
            source: StampSource::Kernel,
            noise_ns_max: 0,
            noise_sd_ns: 0.0,
            late_ns_mean: 0.0,
            spike: 0.0,
            spike_ns_mean: 20_000.0,
            tick_ns: 1,
            report_ns: 2_000,
            missing: 0.0,
            unsendable: 0.0,
        }
    }
}

/// A duration as a number of microseconds, integer or not.
mod micros {
    use probe_sync_time::Duration;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        (value.as_ns_f64() * 1e-3).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Ok(Duration::from_ns_f64(f64::deserialize(deserializer)? * 1e3))
    }
}
