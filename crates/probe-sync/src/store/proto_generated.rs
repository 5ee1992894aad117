//! The messages of `proto/probe_sync.proto`, written by `cargo xtask codegen`: @generated, do not
//! edit.
//!
//! Fields, units and signs are explained in the schema and repeated here.

/// One directed edge of the probing graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Edge {
    /// The node that starts the exchanges.
    #[prost(uint32, tag = "1")]
    pub src_node_id: u32,
    /// The node that answers.
    #[prost(uint32, tag = "2")]
    pub dst_node_id: u32,
}
/// One finished exchange: six packets on an edge, eight timestamps kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Exchange {
    /// The node that started the exchange.
    #[prost(uint32, tag = "1")]
    pub src_node_id: u32,
    /// The node that answered.
    #[prost(uint32, tag = "2")]
    pub dst_node_id: u32,
    /// Counts the exchanges of this edge in this run.
    #[prost(uint32, tag = "3")]
    pub seq: u32,
    /// The poorer of both sides' stamp sources.
    #[prost(enumeration = "StampSource", tag = "4")]
    pub stamp: i32,
    /// First forward packet leaves, ns on the source's clock.
    #[prost(sfixed64, tag = "5")]
    pub pt1_tx_ns: i64,
    /// First forward packet arrives, ns on the destination's clock.
    #[prost(sfixed64, tag = "6")]
    pub pt1_rx_ns: i64,
    /// Second forward packet leaves, ns on the source's clock.
    #[prost(sfixed64, tag = "7")]
    pub pt2_tx_ns: i64,
    /// Second forward packet arrives, ns on the destination's clock.
    #[prost(sfixed64, tag = "8")]
    pub pt2_rx_ns: i64,
    /// First reverse packet leaves, ns on the destination's clock.
    #[prost(sfixed64, tag = "9")]
    pub pr1_tx_ns: i64,
    /// First reverse packet arrives, ns on the source's clock.
    #[prost(sfixed64, tag = "10")]
    pub pr1_rx_ns: i64,
    /// Second reverse packet leaves, ns on the destination's clock.
    #[prost(sfixed64, tag = "11")]
    pub pr2_tx_ns: i64,
    /// Second reverse packet arrives, ns on the source's clock.
    #[prost(sfixed64, tag = "12")]
    pub pr2_rx_ns: i64,
    /// The round in whose window the exchange finished.
    #[prost(uint64, tag = "13")]
    pub round_id: u64,
}
/// Variances and covariance of an edge's fitted line, of the random error alone (no path asymmetry).
#[derive(Clone, Copy, PartialEq, ::prost::Message)]
pub struct LineCovariance {
    /// Var(beta), ns².
    #[prost(double, tag = "1")]
    pub beta_beta: f64,
    /// Cov(beta, alpha), ns.
    #[prost(double, tag = "2")]
    pub beta_alpha: f64,
    /// Var(alpha), a pure number.
    #[prost(double, tag = "3")]
    pub alpha_alpha: f64,
}
/// The fitted line of one edge over one window: theta(x) = alpha·x + beta, x in ns since midpoint_ns.
#[derive(Clone, Copy, PartialEq, ::prost::Message)]
pub struct EdgeAlphaBeta {
    /// The node that probed.
    #[prost(uint32, tag = "1")]
    pub src_node_id: u32,
    /// The node that answered.
    #[prost(uint32, tag = "2")]
    pub dst_node_id: u32,
    /// Where x = 0 is, ns on the source's clock.
    #[prost(sfixed64, tag = "3")]
    pub midpoint_ns: i64,
    /// Rate of the destination's clock against the source's, ns per ns of the source's clock.
    #[prost(double, tag = "4")]
    pub alpha: f64,
    /// offset_dst − offset_src at the midpoint, ns.
    #[prost(double, tag = "5")]
    pub beta: f64,
    /// Finished exchanges that the fit used.
    #[prost(uint32, tag = "6")]
    pub pairs_count: u32,
    /// Exchanges started and not finished.
    #[prost(uint32, tag = "7")]
    pub lost_count: u32,
    /// How sure the line is.
    #[prost(message, optional, tag = "8")]
    pub covariance: ::core::option::Option<LineCovariance>,
    /// Half the vertical gap between forward and reverse points, ns: the one-way delay floor if the path is symmetric.
    /// Negative: no line separates the points.
    #[prost(double, tag = "9")]
    pub margin_ns: f64,
    /// Smallest feasible theta at the midpoint, ns; absent where the packets do not bound it.
    #[prost(double, optional, tag = "10")]
    pub bound_lo_ns: ::core::option::Option<f64>,
    /// Largest feasible theta at the midpoint, ns; absent where the packets do not bound it.
    #[prost(double, optional, tag = "11")]
    pub bound_hi_ns: ::core::option::Option<f64>,
    /// Smallest feasible alpha; absent where the packets do not bound it.
    #[prost(double, optional, tag = "12")]
    pub alpha_lo: ::core::option::Option<f64>,
    /// Largest feasible alpha; absent where the packets do not bound it.
    #[prost(double, optional, tag = "13")]
    pub alpha_hi: ::core::option::Option<f64>,
    /// False when no line at all satisfies the packets: a clock stepped or a stamp is wrong.
    #[prost(bool, tag = "14")]
    pub feasible: bool,
    /// Mean purity weight of the coded pairs, 0 to 1.
    #[prost(double, tag = "15")]
    pub purity: f64,
    /// Where the stamps were taken.
    #[prost(enumeration = "StampSource", tag = "16")]
    pub stamp: i32,
    /// What all stamps of the source may be wrong by because they were converted from an interface's clock, ns.
    #[prost(double, tag = "17")]
    pub src_stamp_error_ns: f64,
    /// The same of the destination's stamps, ns.
    #[prost(double, tag = "18")]
    pub dst_stamp_error_ns: f64,
}
/// A disturbance of a node's system clock, seen against CLOCK_MONOTONIC_RAW.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ClockEvent {
    /// The sudden change, ns; 0 when the clock only changed its rate.
    #[prost(sint64, tag = "1")]
    pub step_ns: i64,
    /// The change of rate within the window, parts per million.
    #[prost(double, tag = "2")]
    pub slew_ppm: f64,
    /// When it was seen, ns on the node's clock.
    #[prost(sfixed64, tag = "3")]
    pub at_ns: i64,
    /// Between which readings of the node's clock the step was, ns: the last before it and the first after it.
    #[prost(sfixed64, repeated, tag = "4")]
    pub step_between_ns: ::prost::alloc::vec::Vec<i64>,
}
/// What one node contributes to a round.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct NodeWindowData {
    /// The node.
    #[prost(uint32, tag = "1")]
    pub node_id: u32,
    /// The window, counted from 0.
    #[prost(uint64, tag = "2")]
    pub window_id: u64,
    /// The round, counted from 0.
    #[prost(uint64, tag = "3")]
    pub round_id: u64,
    /// The window's start, ns on this node's clock.
    #[prost(sfixed64, tag = "4")]
    pub window_start_ns: i64,
    /// The window's end, ns on this node's clock.
    #[prost(sfixed64, tag = "5")]
    pub window_end_ns: i64,
    /// This node's out-edges that have a fit.
    #[prost(message, repeated, tag = "6")]
    pub edges: ::prost::alloc::vec::Vec<EdgeAlphaBeta>,
    /// Present when the node's clock was stepped or slewed during the window.
    #[prost(message, optional, tag = "7")]
    pub clock_event: ::core::option::Option<ClockEvent>,
    /// Someone asked this node to end the run.
    #[prost(bool, tag = "8")]
    pub stop_requested: bool,
    /// Packets by peer. Empty: they were not counted.
    #[prost(message, repeated, tag = "9")]
    pub packets: ::prost::alloc::vec::Vec<PeerPackets>,
    /// Exchanges lost on this node's out-edges that have no fit.
    #[prost(message, repeated, tag = "10")]
    pub unfitted: ::prost::alloc::vec::Vec<LostExchanges>,
    /// How the node kept to the times of the round; empty in files of earlier versions.
    #[prost(message, optional, tag = "11")]
    pub punctuality: ::core::option::Option<Punctuality>,
}
/// How a node kept to the times of a round.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Punctuality {
    /// How long after its planned end the window was cut, ns on this node's clock. Absent where the node knew no end yet, or was asked to stop.
    #[prost(sint64, optional, tag = "1")]
    pub end_late_ns: ::core::option::Option<i64>,
    /// When the decision about this window reached the node, ns on this node's clock. Absent in the first window of a process.
    #[prost(sfixed64, optional, tag = "2")]
    pub decision_at_ns: ::core::option::Option<i64>,
    /// The most commands that waited for the probe thread at once, since the window before was cut.
    #[prost(uint32, tag = "3")]
    pub commands_waiting: u32,
    /// Exchanges that finished, by where their stamps were taken.
    #[prost(message, repeated, tag = "4")]
    pub exchanges: ::prost::alloc::vec::Vec<StampedExchanges>,
    /// Files of the node that are not written, because the disk is full, say.
    #[prost(uint32, tag = "5")]
    pub files_stopped: u32,
    /// Connections and messages to other ranks that the node's process has tried again, since it began.
    #[prost(uint64, tag = "6")]
    pub control_retries: u64,
    /// Its snapshot pairs, since it began; absent in files of earlier versions.
    #[prost(message, optional, tag = "7")]
    pub snapshots: ::core::option::Option<SnapshotCounts>,
}
/// What became of a node's snapshot pairs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SnapshotCounts {
    /// Pairs taken.
    #[prost(uint64, tag = "1")]
    pub taken: u64,
    /// Pairs not taken because the tracer clock could not be read.
    #[prost(uint64, tag = "2")]
    pub failed: u64,
    /// Periods that passed without a pair, because the thread did not get to run.
    #[prost(uint64, tag = "3")]
    pub missed_deadline: u64,
    /// Pairs that left the full ring and are in the JSON lines only.
    #[prost(uint64, tag = "4")]
    pub dropped: u64,
    /// Pairs whose bracket was 5 us or wider in every attempt.
    #[prost(uint64, tag = "5")]
    pub wide: u64,
}
/// Exchanges whose stamps were taken in one place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct StampedExchanges {
    /// Where.
    #[prost(enumeration = "StampSource", tag = "1")]
    pub stamp: i32,
    /// How many.
    #[prost(uint32, tag = "2")]
    pub count: u32,
}
/// Packets that passed between a node and one peer during a window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct PeerPackets {
    /// The peer.
    #[prost(uint32, tag = "1")]
    pub peer: u32,
    /// Sent to it, also those that the system refused to send.
    #[prost(uint64, tag = "2")]
    pub sent: u64,
    /// Received from it, duplicates not counted.
    #[prost(uint64, tag = "3")]
    pub received: u64,
}
/// Exchanges of one out-edge that were given up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct LostExchanges {
    /// The edge's destination.
    #[prost(uint32, tag = "1")]
    pub dst: u32,
    /// How many.
    #[prost(uint32, tag = "2")]
    pub lost: u32,
}
/// The estimate for one node in one round.
#[derive(Clone, Copy, PartialEq, ::prost::Message)]
pub struct NodeEstimate {
    /// The node.
    #[prost(uint32, tag = "1")]
    pub node_id: u32,
    /// This clock minus the reference clock at the window's middle, ns. Meaningless unless reachable.
    #[prost(double, tag = "2")]
    pub offset_ns: f64,
    /// Rate of this clock against the reference's, parts per million.
    #[prost(double, tag = "3")]
    pub drift_ppm: f64,
    /// Weighted root mean square residual of the node's edges, ns.
    #[prost(double, tag = "4")]
    pub residual_ns: f64,
    /// Some chain of fitted edges joins the node to the reference.
    #[prost(bool, tag = "5")]
    pub reachable: bool,
    /// The robust reweighting settled.
    #[prost(bool, tag = "6")]
    pub converged: bool,
    /// Standard deviation of offset_ns, path asymmetry included, ns; absent unless reachable.
    #[prost(double, optional, tag = "7")]
    pub sigma_ns: ::core::option::Option<f64>,
    /// Standard deviation of drift_ppm, parts per million; absent unless reachable.
    #[prost(double, optional, tag = "8")]
    pub drift_sigma_ppm: ::core::option::Option<f64>,
    /// Lower end of the hard interval of the offset, ns; absent where nothing bounds it.
    #[prost(double, optional, tag = "9")]
    pub bound_lo_ns: ::core::option::Option<f64>,
    /// Upper end of the hard interval of the offset, ns; absent where nothing bounds it.
    #[prost(double, optional, tag = "10")]
    pub bound_hi_ns: ::core::option::Option<f64>,
    /// Edges of this node that took part.
    #[prost(uint32, tag = "11")]
    pub edges_used: u32,
    /// Edges of this node left out as outliers or as proven faulty.
    #[prost(uint32, tag = "12")]
    pub edges_excluded: u32,
    /// The part of sigma_ns that path asymmetry causes and no amount of probing reduces, ns; 0 where it is not told apart.
    #[prost(double, tag = "13")]
    pub asymmetry_sigma_ns: f64,
}
/// An edge that was left out of the solution.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ExcludedEdge {
    /// The edge.
    #[prost(message, optional, tag = "1")]
    pub edge: ::core::option::Option<Edge>,
    /// Why, in words.
    #[prost(string, tag = "2")]
    pub reason: ::prost::alloc::string::String,
}
/// The edge that agrees least with the solution.
#[derive(Clone, Copy, PartialEq, ::prost::Message)]
pub struct WorstEdge {
    /// The edge.
    #[prost(message, optional, tag = "1")]
    pub edge: ::core::option::Option<Edge>,
    /// Its residual, ns.
    #[prost(double, tag = "2")]
    pub residual_ns: f64,
}
/// A node whose system clock was disturbed during the window.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct NodeClockEvent {
    /// The node.
    #[prost(uint32, tag = "1")]
    pub node_id: u32,
    /// What happened.
    #[prost(message, optional, tag = "2")]
    pub event: ::core::option::Option<ClockEvent>,
}
/// Edges that form a cycle.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Cycle {
    /// In no particular order.
    #[prost(message, repeated, tag = "1")]
    pub edges: ::prost::alloc::vec::Vec<Edge>,
}
/// What the rounds so far say of clocks and paths that went wrong.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Verdict {
    /// Faults that have become sure.
    #[prost(message, repeated, tag = "1")]
    pub faults: ::prost::alloc::vec::Vec<Fault>,
    /// Where clocks do not continue, in this round or one of the two before.
    #[prost(message, repeated, tag = "2")]
    pub breaks: ::prost::alloc::vec::Vec<Break>,
    /// Edges that say nothing in a round, this one or one of the two before.
    #[prost(message, repeated, tag = "3")]
    pub left_out: ::prost::alloc::vec::Vec<LeftOut>,
    /// Nodes whose estimates of this round must not be used; the reference: nobody's.
    #[prost(uint32, repeated, tag = "4")]
    pub invalid: ::prost::alloc::vec::Vec<u32>,
}
/// A fault, named once, when it is sure.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Fault {
    /// What happened, as the JSON files name it: step, restart, loss and so on.
    #[prost(string, tag = "1")]
    pub kind: ::prost::alloc::string::String,
    /// How much: ns for times, ppm for rates, a share for losses, else a count.
    #[prost(double, tag = "6")]
    pub size: f64,
    /// The first round that shows it.
    #[prost(uint64, tag = "7")]
    pub began: u64,
    /// The round in which it was named.
    #[prost(uint64, tag = "8")]
    pub round: u64,
    /// Who it happened to.
    #[prost(oneof = "fault::Culprit", tags = "2, 3, 4, 5")]
    pub culprit: ::core::option::Option<fault::Culprit>,
}
/// Nested message and enum types in `Fault`.
pub mod fault {
    /// Who it happened to.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
    pub enum Culprit {
        /// A node.
        #[prost(uint32, tag = "2")]
        Node(u32),
        /// Several nodes together; with a step, a change of rate or a glitch, one of two.
        #[prost(message, tag = "3")]
        Nodes(super::Nodes),
        /// An edge; where a direction matters it runs from source to destination.
        #[prost(message, tag = "4")]
        Edge(super::Edge),
        /// The network as a whole; always true.
        #[prost(bool, tag = "5")]
        Everyone(bool),
    }
}
/// Some nodes.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Nodes {
    /// In order.
    #[prost(uint32, repeated, tag = "1")]
    pub node_ids: ::prost::alloc::vec::Vec<u32>,
}
/// A node's clock does not continue from the round before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Break {
    /// The node.
    #[prost(uint32, tag = "1")]
    pub node_id: u32,
    /// The first round after the break.
    #[prost(uint64, tag = "2")]
    pub round: u64,
}
/// An edge that says nothing in a round.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct LeftOut {
    /// The round.
    #[prost(uint64, tag = "1")]
    pub round: u64,
    /// The edge.
    #[prost(message, optional, tag = "2")]
    pub edge: ::core::option::Option<Edge>,
}
/// The master's decision about the next round.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Decision {
    /// When the next window ends, ns on the reference clock.
    #[prost(sfixed64, tag = "1")]
    pub next_window_end_ns: i64,
    /// Length of the next window, ns.
    #[prost(int64, tag = "2")]
    pub next_window_ns: i64,
    /// Gap between exchanges started by one host, ns.
    #[prost(int64, tag = "3")]
    pub cadence_ns: i64,
    /// The run is over.
    #[prost(bool, tag = "4")]
    pub stop: bool,
    /// Edges probed besides the run's own, by adaptive probing.
    #[prost(message, repeated, tag = "5")]
    pub extra_edges: ::prost::alloc::vec::Vec<Edge>,
    /// The run was asked to end, and the next window is the last one.
    #[prost(bool, tag = "6")]
    pub closing: bool,
    /// Nobody starts exchanges in the next window: all nodes were asked to pause.
    #[prost(bool, tag = "7")]
    pub paused: bool,
    /// What the next window is part of, as whoever leads the experiment calls it.
    #[prost(string, optional, tag = "8")]
    pub phase: ::core::option::Option<::prost::alloc::string::String>,
}
/// One solved round, as the master broadcasts it.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct GlobalWindowData {
    /// The window.
    #[prost(uint64, tag = "1")]
    pub window_id: u64,
    /// The round.
    #[prost(uint64, tag = "2")]
    pub round_id: u64,
    /// Counts the master's broadcasts; a gap means that a decision was missed.
    #[prost(uint64, tag = "3")]
    pub sequence_number: u64,
    /// The window's start, ns on the reference clock.
    #[prost(sfixed64, tag = "4")]
    pub window_start_ns: i64,
    /// The window's end, ns on the reference clock. The offsets hold at the middle.
    #[prost(sfixed64, tag = "5")]
    pub window_end_ns: i64,
    /// Every node of the run, in order of node_id.
    #[prost(message, repeated, tag = "6")]
    pub all_nodes: ::prost::alloc::vec::Vec<NodeEstimate>,
    /// Edges left out, each with the reason.
    #[prost(message, repeated, tag = "7")]
    pub excluded_edges: ::prost::alloc::vec::Vec<ExcludedEdge>,
    /// Absent when there is no edge.
    #[prost(message, optional, tag = "8")]
    pub worst_edge: ::core::option::Option<WorstEdge>,
    /// Nodes whose system clock was disturbed during the window.
    #[prost(message, repeated, tag = "9")]
    pub clock_events: ::prost::alloc::vec::Vec<NodeClockEvent>,
    /// What happens next.
    #[prost(message, optional, tag = "10")]
    pub decision: ::core::option::Option<Decision>,
    /// Standard deviation of the paths' asymmetry as the graph's loops show it, for an edge of median margin, ns.
    #[prost(double, tag = "11")]
    pub asymmetry_sd_ns: f64,
    /// Independent loops of the graph.
    #[prost(uint32, tag = "12")]
    pub loops: u32,
    /// Root mean square of what theta sums to around them, ns.
    #[prost(double, tag = "13")]
    pub loop_rms_ns: f64,
    /// Nodes whose estimate was moved into its hard interval.
    #[prost(uint32, tag = "14")]
    pub clamped: u32,
    /// Cycles of edges whose hard bounds contradict each other: a clock stepped or a stamp is wrong.
    #[prost(message, repeated, tag = "15")]
    pub contradictions: ::prost::alloc::vec::Vec<Cycle>,
    /// The node whose offset is zero.
    #[prost(uint32, tag = "16")]
    pub reference: u32,
    /// What the rounds so far say of clocks and paths that went wrong.
    #[prost(message, optional, tag = "17")]
    pub watch: ::core::option::Option<Verdict>,
    /// The reference was gone before this round: its timeline goes on by the clock of this node.
    #[prost(uint32, optional, tag = "18")]
    pub carried_by: ::core::option::Option<u32>,
}
/// One instant on a node's system clock and on its profiler's clock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SnapshotPair {
    /// System clock, ns.
    #[prost(int64, tag = "1")]
    pub sys_clock_ns: i64,
    /// Profiler's clock, ns.
    #[prost(int64, tag = "2")]
    pub tracer_clock_ns: i64,
    /// Time between the two readings of the system clock around that of the profiler's clock, ns: the pair's error is at most half of it.
    #[prost(int64, tag = "3")]
    pub bracket_ns: i64,
}
/// Pairs that a node took of one profiler's clock: the content of snapshots/nodeN.snapshot_pairs.pb. Other programs that write such files know the first two
/// fields of both messages.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct SnapshotPairs {
    /// The pairs, in order of time.
    #[prost(message, repeated, tag = "1")]
    pub pairs: ::prost::alloc::vec::Vec<SnapshotPair>,
    /// Requested period, ns.
    #[prost(int64, tag = "2")]
    pub sampling_period_ns: i64,
    /// Name of the profiler's clock in the configuration.
    #[prost(string, tag = "3")]
    pub tracer_clock: ::prost::alloc::string::String,
    /// Why that clock was chosen.
    #[prost(string, tag = "4")]
    pub tracer_clock_reason: ::prost::alloc::string::String,
    /// Offset of the sampler's time namespace in the profiler's clock, ns.
    #[prost(int64, tag = "5")]
    pub namespace_ns: i64,
    /// The node; absent in its own file, whose name states it.
    #[prost(uint32, optional, tag = "6")]
    pub node_id: ::core::option::Option<u32>,
}
/// A whole run in one message.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct RunExport {
    /// The text of run.json: configuration, hosts, topology, versions, seed.
    #[prost(string, tag = "1")]
    pub run_json: ::prost::alloc::string::String,
    /// Every solved round, in order of round_id.
    #[prost(message, repeated, tag = "2")]
    pub rounds: ::prost::alloc::vec::Vec<GlobalWindowData>,
    /// What the nodes contributed, in order of round_id and node_id.
    #[prost(message, repeated, tag = "3")]
    pub windows: ::prost::alloc::vec::Vec<NodeWindowData>,
    /// Raw exchanges, where the run kept them.
    #[prost(message, repeated, tag = "4")]
    pub exchanges: ::prost::alloc::vec::Vec<Exchange>,
    /// Snapshot pairs, in order of node_id and time; nodes that keep their files on their own hosts are missing.
    #[prost(message, repeated, tag = "5")]
    pub snapshots: ::prost::alloc::vec::Vec<SnapshotPairs>,
}
/// Where a packet's timestamps were taken. Never mixed within one fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum StampSource {
    /// Not stated; not written by this program.
    Unspecified = 0,
    /// By the network interface.
    Hardware = 1,
    /// By the kernel, software timestamps of SO_TIMESTAMPING.
    Kernel = 2,
    /// By the program around its system calls.
    User = 3,
}
impl StampSource {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::Unspecified => "STAMP_SOURCE_UNSPECIFIED",
            Self::Hardware => "STAMP_SOURCE_HARDWARE",
            Self::Kernel => "STAMP_SOURCE_KERNEL",
            Self::User => "STAMP_SOURCE_USER",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "STAMP_SOURCE_UNSPECIFIED" => Some(Self::Unspecified),
            "STAMP_SOURCE_HARDWARE" => Some(Self::Hardware),
            "STAMP_SOURCE_KERNEL" => Some(Self::Kernel),
            "STAMP_SOURCE_USER" => Some(Self::User),
            _ => None,
        }
    }
}
