//! The parameters of a cell of the table: who probes whom and how often, over which paths, with
//! which clocks.
//!
//! Every figure is stated here, so that a row of a table can be understood without the code.

use probe_sync_time::{Edge, StampSource};

/// One row of a table.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Cell {
    /// Name in tables.
    pub name: &'static str,
    /// Number of nodes.
    pub nodes: u32,
    /// Which nodes probe which.
    pub shape: Shape,
    /// Exchanges per second on each edge.
    pub pace_hz: f64,
    /// Length of a window, s.
    pub window_s: f64,
    /// Number of windows.
    pub windows: usize,
    /// Queueing delays of packets.
    pub queue: Queue,
    /// Standard deviation of half the difference between the two directions of a pair of nodes, ns.
    pub pair_asymmetry_ns: f64,
    /// Half the difference between a host's transmit path and its receive path.
    pub host: HostAsymmetry,
    /// Behaviour of the clocks.
    pub clock: ClockKind,
    /// Where timestamps are taken.
    pub stamps: StampSource,
}

/// Which nodes probe which.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every pair of nodes.
    All,
    /// The reference and every other node.
    Star,
    /// Each node and the next.
    Ring,
}

/// Delay of a packet beyond the shortest delay.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Queue {
    /// Exponential with this mean, ns.
    Exponential(f64),
    /// Lomax (Pareto from zero) with this scale in ns and exponent 1.5: its variance is infinite.
    Pareto(f64),
}

/// Asymmetry of a host, as a share of the shortest delay.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum HostAsymmetry {
    /// None, and the estimator is told so, as for ranks of one host.
    None,
    /// Each host's asymmetry has this standard deviation.
    Deviation(f64),
    /// The standard deviation in a run is uniform between zero and this.
    UpTo(f64),
}

/// Behaviour of a clock.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum ClockKind {
    /// A constant rate, with a random walk of 2 ppb per second.
    Quiet,
    /// A servo sets a new rate each second, with this standard deviation, ppm.
    Steered(f64),
    /// Quiet until a moment within the run, when warming by this many ppm begins, with a time
    /// constant of 5 s.
    Onset(f64),
}

impl Cell {
    /// Eight nodes, all connected, 20 exchanges per second and edge in ten windows of 4 s, a
    /// shortest delay of 5 µs and a mean queueing delay of 1 µs: the baseline for the others.
    pub const PLAIN: Self = Self {
        name: "plain",
        nodes: 8,
        shape: Shape::All,
        pace_hz: 20.0,
        window_s: 4.0,
        windows: 10,
        queue: Queue::Exponential(1_000.0),
        pair_asymmetry_ns: 30.0,
        host: HostAsymmetry::None,
        clock: ClockKind::Quiet,
        stamps: StampSource::Kernel,
    };

    /// Benefit of choosing windows at the end of a run: steered clocks at a hundred exchanges per
    /// second, then few exchanges, then quiet clocks.
    pub const WINDOWS: [Self; 7] = [
        Self { name: "steered 0.2 ppm", pace_hz: 100.0, clock: ClockKind::Steered(0.2), ..Self::PLAIN },
        Self { name: "2 per window", pace_hz: 0.5, windows: 30, ..Self::PLAIN },
        Self { name: "1 per window", pace_hz: 0.25, windows: 30, ..Self::PLAIN },
        Self { name: "quiet, 1 s", window_s: 1.0, windows: 40, ..Self::PLAIN },
        Self { name: "quiet, 2 s", window_s: 2.0, windows: 20, ..Self::PLAIN },
        Self { name: "quiet, 4 s", ..Self::PLAIN },
        Self { name: "quiet, 8 s", window_s: 8.0, windows: 5, ..Self::PLAIN },
    ];

    /// Cells in which 95 % intervals are judged. Paths without loops have the asymmetry that is
    /// assumed for them, 3 % of the delay.
    pub const COVERAGE: [Self; 22] = [
        Self::PLAIN,
        Self { name: "host 0.2 %", host: HostAsymmetry::Deviation(0.002), ..Self::PLAIN },
        Self { name: "host 0.4 %", host: HostAsymmetry::Deviation(0.004), ..Self::PLAIN },
        Self { name: "host 1 %", host: HostAsymmetry::Deviation(0.01), ..Self::PLAIN },
        Self { name: "host 2 %", host: HostAsymmetry::Deviation(0.02), ..Self::PLAIN },
        Self { name: "host 0-2 %", host: HostAsymmetry::UpTo(0.02), ..Self::PLAIN },
        Self { name: "pair 0", pair_asymmetry_ns: 0.0, ..Self::PLAIN },
        Self { name: "pair 100 ns", pair_asymmetry_ns: 100.0, ..Self::PLAIN },
        Self { name: "4 single", pace_hz: 0.25, windows: 4, pair_asymmetry_ns: 50.0, ..Self::PLAIN },
        Self { name: "1 per window", pace_hz: 0.25, windows: 15, pair_asymmetry_ns: 50.0, ..Self::PLAIN },
        Self { name: "2 per window", pace_hz: 0.5, windows: 15, pair_asymmetry_ns: 50.0, ..Self::PLAIN },
        Self { name: "4 per window", pace_hz: 1.0, windows: 15, pair_asymmetry_ns: 50.0, ..Self::PLAIN },
        Self { name: "steered 0.05", clock: ClockKind::Steered(0.05), ..Self::PLAIN },
        Self { name: "steered 0.2", clock: ClockKind::Steered(0.2), ..Self::PLAIN },
        Self { name: "steered 1", clock: ClockKind::Steered(1.0), ..Self::PLAIN },
        Self { name: "user, loaded", stamps: StampSource::User, ..Self::PLAIN },
        Self { name: "star", shape: Shape::Star, pair_asymmetry_ns: 150.0, ..Self::PLAIN },
        Self { name: "ring", shape: Shape::Ring, pair_asymmetry_ns: 150.0, ..Self::PLAIN },
        Self { name: "two nodes", nodes: 2, shape: Shape::Star, pair_asymmetry_ns: 150.0, ..Self::PLAIN },
        Self { name: "Pareto", queue: Queue::Pareto(1_000.0), ..Self::PLAIN },
        Self { name: "onset 0.2 ppm", clock: ClockKind::Onset(0.2), ..Self::PLAIN },
        Self { name: "onset 1 ppm", clock: ClockKind::Onset(1.0), ..Self::PLAIN },
    ];

    /// Length of a run, s.
    pub fn seconds(&self) -> f64 {
        self.window_s * self.windows as f64
    }

    pub(super) fn edges(&self) -> Vec<Edge> {
        let nodes = self.nodes;
        match self.shape {
            // The lower one of a pair probes where their sum is even, so that all nodes probe some.
            Shape::All => (0..nodes)
                .flat_map(|a| {
                    (a + 1..nodes).map(move |b| if (a + b) % 2 == 0 { Edge::new(a, b) } else { Edge::new(b, a) })
                })
                .collect(),
            Shape::Star => (1..nodes).map(|node| Edge::new(0, node)).collect(),
            Shape::Ring => (0..nodes).map(|node| Edge::new(node, (node + 1) % nodes)).collect(),
        }
    }
}

/// Shortest one-way delay, ns.
pub(super) const DELAY_NS: f64 = 5_000.0;
