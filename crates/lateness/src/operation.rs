//! The last rank of one operation, its lead, and how certain both are.
//!
//! The crate's page derives the formulas.

use serde::Serialize;

/// One rank's part in an operation, on the reference clock.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Arrival {
    /// Index in the list of ranks.
    pub rank: usize,
    /// Start of the rank's part, ns; the latest start if several devices take part.
    pub start_ns: i64,
    /// End on the first device to finish, ns.
    pub first_end_ns: i64,
    /// End on the last device to finish, ns.
    pub end_ns: i64,
    /// Launch by the host, ns, if the operation ran on a device and the trace records it.
    pub launch_ns: Option<i64>,
    /// Start of the rank's current step, ns, if steps are known.
    pub begun_ns: Option<i64>,
    /// Uncertainty of `start_ns`.
    pub error: ClockError,
}

/// Uncertainty of a mapped time, split into the part that ranks of one clock share and the trace's
/// own.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct ClockError {
    /// Clock of the trace; ranks of one node share it.
    pub clock: u32,
    /// Standard deviation on the reference clock, ns.
    pub sigma_ns: f64,
    /// Part of `sigma_ns` that is the trace's own, ns.
    pub own_sigma_ns: f64,
    /// Additional amount by which the time may be early, ns.
    pub early_by_ns: f64,
}

impl ClockError {
    /// Returns the standard deviation of the difference of two ranks' times, ns.
    pub fn with(self, other: Self) -> f64 {
        let sigma = |error: Self| if self.clock == other.clock { error.own_sigma_ns } else { error.sigma_ns };
        // A delay that may be anything from 0 to E has the variance E²/12.
        let delay = |error: Self| error.early_by_ns * UNIFORM_SIGMA;
        let squares = [sigma(self), sigma(other), delay(self), delay(other)].map(|sigma| sigma * sigma);
        squares.iter().sum::<f64>().sqrt()
    }
}

/// Which arrivals wait for which, as indices into a list of arrivals.
#[derive(Clone, Debug, PartialEq)]
pub enum Waits {
    /// All wait for all.
    All,
    /// For each arrival, those that it waits for, including itself if it waits.
    Of(Vec<Vec<usize>>),
}

impl Waits {
    /// Returns true if all members wait for each other.
    pub fn is_all(&self) -> bool {
        *self == Self::All
    }

    /// Returns the arrivals whose start the end of this one must follow, including itself;
    /// `arrivals` is the number of arrivals.
    pub fn on(&self, place: usize, arrivals: usize) -> Vec<usize> {
        match self {
            Self::All => (0..arrivals).collect(),
            Self::Of(of) => of[place].clone(),
        }
    }
}

/// What dominates an operation's time.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The transfer takes more than twice the spread.
    Transfer,
    /// Waiting for the late ranks takes more than twice the transfer.
    Skew,
    /// Both contribute.
    Mixed,
    /// Clock errors are too large to tell.
    Undecided,
}

/// Where the last rank became late.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LateIn {
    /// Its host launched the operation late.
    Cpu,
    /// The launch was in time, but the device was still busy.
    Gpu,
    /// Both the host and the device were late.
    Both,
}

/// Verdict on one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Index of the latest arrival that others waited for; `None` if no rank waited.
    pub latest: Option<usize>,
    /// Arrivals that may have been last instead; if empty, the latest is named unless the verdict
    /// is open.
    pub tied: Vec<usize>,
    /// True if no rank is named because a rank with a missing trace may have been last, or a clock
    /// is wrong.
    pub is_open: bool,
    /// True if the operation ended before its last arrival by more than uncertainty explains, so a
    /// clock is wrong.
    pub is_impossible: bool,
    /// Time from the second-latest to the latest arrival, ns: how much earlier all would have begun
    /// without the last.
    pub lead_ns: i64,
    /// Standard deviation of `lead_ns`, ns.
    pub lead_sigma_ns: f64,
    /// Time from the first to the last arrival, ns; for rooted operations and messages the longest
    /// wait.
    pub spread_ns: i64,
    /// Standard deviation of `spread_ns`, ns.
    pub spread_sigma_ns: f64,
    /// Time from the last arrival to the first end, ns.
    pub transfer_ns: i64,
    /// What dominates the time; only for operations in which all wait for all.
    pub class: Option<Class>,
    /// Waiting time of each arrival, ns, in the order of the arrivals.
    pub waits_ns: Vec<i64>,
    /// Where the last rank became late.
    pub late_in: Option<LateIn>,
}

impl Judged {
    /// Returns true if the arrival at this index may have been the last.
    pub fn may_be_last(&self, place: usize) -> bool {
        self.latest == Some(place) || self.tied.contains(&place)
    }

    /// Returns the index of the rank that is named.
    pub fn named(&self) -> Option<usize> {
        self.latest.filter(|_| self.tied.is_empty() && !self.is_open)
    }

    /// Makes the verdict open: no rank is named.
    pub fn leave_open(&mut self) {
        self.is_open = self.latest.is_some();
        self.late_in = None;
        self.class = self.class.map(|_| Class::Undecided);
    }
}

/// Judges one operation.
pub fn judge(waits: &Waits, arrivals: &[Arrival]) -> Judged {
    let mut judged = Judged {
        latest: None,
        tied: Vec::new(),
        is_open: false,
        is_impossible: false,
        lead_ns: 0,
        lead_sigma_ns: 0.0,
        spread_ns: 0,
        spread_sigma_ns: 0.0,
        transfer_ns: 0,
        class: None,
        waits_ns: vec![0; arrivals.len()],
        late_in: None,
    };
    let everybody: Vec<usize> = (0..arrivals.len()).collect();
    let sets: Vec<(&[usize], &[usize])> = match waits {
        Waits::All => vec![(&everybody, &everybody)],
        Waits::Of(of) => of.iter().enumerate().map(|(own, on)| (&everybody[own..=own], &on[..])).collect(),
    };
    for (who, on) in sets {
        let Some(verdict) = verdict(who, on, arrivals, &mut judged.waits_ns) else { continue };
        if judged.latest.is_none() || verdict.lead_ns > judged.lead_ns {
            let waits_ns = std::mem::take(&mut judged.waits_ns);
            judged = Judged { waits_ns, ..verdict };
        }
    }
    if waits.is_all() && judged.latest.is_some() {
        judged.class = Some(class(&judged, arrivals));
    }
    judged.late_in = judged.named().and_then(|last| late_in(last, arrivals));
    judged
}

/// Returns the verdict for the arrivals `who`, which wait for the latest of `on`; `None` if none
/// waits for another.
fn verdict(who: &[usize], on: &[usize], arrivals: &[Arrival], waits_ns: &mut [i64]) -> Option<Judged> {
    let start = |place: usize| arrivals[place].start_ns;
    let latest = on.iter().copied().max_by_key(|place| (start(*place), std::cmp::Reverse(*place)))?;
    let others = || on.iter().copied().filter(|place| *place != latest);
    let waiting = || who.iter().copied().filter(|place| *place != latest);
    waiting().for_each(|place| waits_ns[place] = start(latest) - start(place));
    let first = waiting().min_by_key(|place| start(*place))?;
    let second = others().max_by_key(|place| (start(*place), std::cmp::Reverse(*place)))?;
    let sigma = |place: usize| arrivals[latest].error.with(arrivals[place].error);
    let explained = |place: &usize| (start(latest) - start(*place)) as f64 <= DEVIATIONS * sigma(*place);
    let (first_end, ended) = who.iter().map(|place| (arrivals[*place].first_end_ns, *place)).min()?;
    let transfer_ns = first_end - start(latest);
    let explained_ns = DEVIATIONS * sigma(ended) + arrivals[ended].error.early_by_ns;
    Some(Judged {
        latest: Some(latest),
        tied: others().filter(explained).collect(),
        is_open: false,
        is_impossible: ended != latest && (transfer_ns as f64) < -explained_ns,
        lead_ns: start(latest) - start(second),
        lead_sigma_ns: sigma(second),
        spread_ns: start(latest) - start(first),
        spread_sigma_ns: sigma(first),
        transfer_ns,
        class: None,
        waits_ns: Vec::new(),
        late_in: None,
    })
}

/// Returns which of spread and transfer is certainly more than twice the other.
fn class(judged: &Judged, arrivals: &[Arrival]) -> Class {
    let ends_first = arrivals.iter().min_by_key(|arrival| arrival.first_end_ns);
    let sigma = judged.latest.zip(ends_first).map_or(0.0, |(last, first)| arrivals[last].error.with(first.error));
    let around = |value: i64, sigma: f64| [value as f64 - DEVIATIONS * sigma, value as f64 + DEVIATIONS * sigma];
    let [spread_min, spread_max] = around(judged.spread_ns, judged.spread_sigma_ns);
    let [transfer_min, transfer_max] = around(judged.transfer_ns, sigma);
    match () {
        () if spread_min > 2.0 * transfer_max => Class::Skew,
        () if transfer_min > 2.0 * spread_max => Class::Transfer,
        () if spread_max <= 2.0 * transfer_min && transfer_max <= 2.0 * spread_min => Class::Mixed,
        () => Class::Undecided,
    }
}

/// Compares how late the last rank's launch was, relative to the median launch, with how late it
/// arrived.
fn late_in(last: usize, arrivals: &[Arrival]) -> Option<LateIn> {
    let launches: Option<Vec<i64>> = arrivals.iter().map(|arrival| arrival.launch_ns).collect();
    let launches = launches?;
    let launched = launches[last];
    let launched_late = launched - median(launches)?;
    let late = arrivals[last].start_ns - median(arrivals.iter().map(|arrival| arrival.start_ns).collect())?;
    match () {
        () if late <= 0 => None,
        () if 3 * launched_late >= 2 * late => Some(LateIn::Cpu),
        () if 3 * launched_late <= late => Some(LateIn::Gpu),
        () => Some(LateIn::Both),
    }
}

/// Returns the median of some values (the lower of the two middle ones), or `None` if there are
/// none.
pub fn median<T: Ord + Copy>(mut values: Vec<T>) -> Option<T> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(middle).1)
}

/// Differences within this many standard deviations are not evidence, as in `check`.
pub const DEVIATIONS: f64 = 3.0;
/// √(1/12).
const UNIFORM_SIGMA: f64 = 0.288_675_134_594_812_9;
