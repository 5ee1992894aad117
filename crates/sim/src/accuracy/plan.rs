//! The methods, the plan of a comparison, and the results of an evaluated run.

use probe_sync_lines::NodeWindow;
use probe_sync_time::{Duration, NodeId, Reference, Timestamp};

/// A method of estimating offsets. A plus marks a baseline with the parameters most favourable in
/// the twelve cells.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Smallest round trip per window, summed along a tree.
    Ntp,
    /// The same, interpolated between windows.
    NtpPlus,
    /// Hard coded-probe filter, soft-margin classifier with C = 1, minimum-norm loop correction.
    Huygens,
    /// The same with the best units.
    HuygensPlus,
    /// Soft-margin classifier with C = 1 on all packets, least squares.
    Svm,
    /// The same with the best units.
    SvmPlus,
    /// Mean offset of all exchanges, least squares.
    Mean,
    /// Ours for one window: robust hull and graph.
    Hull,
    /// Ours round by round, from the past only, as in the files of a live run.
    Live,
    /// Ours over the run, from the rounds alone, as computed by `probe_sync solve --windows`.
    Smooth,
    /// Ours over the run, from all packets, as computed by `probe_sync solve --probes`.
    Ours,
}

impl Method {
    /// All methods, in the order of tables.
    pub const ALL: [Self; 11] = [
        Self::Ntp,
        Self::NtpPlus,
        Self::Huygens,
        Self::HuygensPlus,
        Self::Svm,
        Self::SvmPlus,
        Self::Mean,
        Self::Hull,
        Self::Live,
        Self::Smooth,
        Self::Ours,
    ];

    /// The name on the command line and in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ntp => "ntp",
            Self::NtpPlus => "ntp+",
            Self::Huygens => "huygens",
            Self::HuygensPlus => "huygens+",
            Self::Svm => "svm",
            Self::SvmPlus => "svm+",
            Self::Mean => "mean",
            Self::Hull => "hull",
            Self::Live => "live",
            Self::Smooth => "smooth",
            Self::Ours => "probe_sync",
        }
    }

    /// Returns the method of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }
}

/// What to judge, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Length of the run.
    pub duration: Duration,
    /// Length of a window.
    pub window: Duration,
    /// The methods, each once.
    pub methods: Vec<Method>,
}

/// One estimate with the truth.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The node.
    pub node: NodeId,
    /// The window.
    pub window: usize,
    /// Time of the estimate.
    pub at: Timestamp<Reference>,
    /// True offset, ns.
    pub truth_ns: f64,
    /// Estimated offset, ns; `None` if the method has none.
    pub estimate_ns: Option<f64>,
    /// Half-width of the 95 % interval, ns, if the method states one.
    pub half_width_95_ns: Option<f64>,
    /// Hard interval, ns, if the method states one.
    pub hard_ns: Option<[f64; 2]>,
    /// Rate of its clock relative to the reference, ppm, if the method states one.
    pub rate_ppm: Option<f64>,
}

impl Judgement {
    /// Estimate minus truth, ns.
    pub fn error_ns(&self) -> Option<f64> {
        self.estimate_ns.map(|estimate| estimate - self.truth_ns)
    }
}

/// One judged run.
#[derive(Clone, Debug, PartialEq)]
pub struct SeedRun {
    /// The seed.
    pub seed: u64,
    /// By method, in the order of the plan: every node but the reference in every window.
    pub methods: Vec<(Method, Vec<Judgement>)>,
    /// Ours between the midpoints of the windows; empty unless the plan contains [`Method::Ours`].
    pub between: Vec<Judgement>,
    /// |error| that path asymmetry alone causes, per node but the reference, ns.
    pub floor_ns: Vec<f64>,
    /// Packets sent.
    pub packets: u64,
    /// Edges probed.
    pub edges: usize,
    /// Fits of the nodes in the last windows, in order: at least one window, at most 20 000 fits of
    /// edges.
    pub windows: Vec<NodeWindow>,
    /// Lost exchanges on each node's out-edges.
    pub lost: Vec<u64>,
}

/// Fits of edges kept of a run: some megabytes.
pub(super) const FITS_KEPT: usize = 20_000;
