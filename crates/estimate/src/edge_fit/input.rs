//! The data to fit, and the assumptions the fit may make.

use probe_sync_time::{Edge, Exchange, StampSource, System, Timestamp};

/// The exchanges of one edge in one window.
#[derive(Copy, Clone, Debug)]
pub struct EdgeWindow<'a> {
    /// The edge; exchanges of other edges are skipped and counted.
    pub edge: Edge,
    /// Time of x = 0 on the source's clock.
    pub midpoint: Timestamp<System>,
    /// Finished exchanges, in any order.
    pub exchanges: &'a [Exchange],
    /// Exchanges started but not finished.
    pub lost: u32,
    /// Largest error of all stamps of the source and of the destination from the conversion of an
    /// interface's clock, in a common or a varying direction, ns; 0 for stamps taken on the system
    /// clock.
    pub stamp_errors_ns: [f64; 2],
}

impl EdgeWindow<'_> {
    /// Returns the tolerance of g for these errors, ns: theta of any packet may be wrong by the sum
    /// in either direction, and g has two sides.
    pub(super) fn conversion_allowance(&self) -> f64 {
        2.0 * (self.stamp_errors_ns[0] + self.stamp_errors_ns[1])
    }
}

/// Method of choosing the line.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum FitMethod {
    /// The line with the largest vertical margin.
    #[default]
    Hull,
    /// A linear soft-margin support vector machine, C = 1: a baseline.
    Svm,
    /// The exchange with the smallest round trip, as in NTP: a baseline.
    MinRtt,
}

/// Standard deviation of one stamp by source, ns. It only widens the hard bounds.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct StampNoise {
    /// Stamps of a network interface, whose clock has a resolution of 8 ns and is itself
    /// disciplined. Errors from their conversion to the system clock are not noise and are stated
    /// per window, see [`EdgeWindow::stamp_errors_ns`].
    pub hardware_ns: f64,
    /// Kernel stamps: late on reception, early on transmission, so that only rounding remains.
    pub kernel_ns: f64,
    /// Stamps around system calls, treated like kernel stamps.
    pub user_ns: f64,
}

/// Assumptions of the fit.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct FitOptions {
    /// Method of choosing the line.
    pub method: FitMethod,
    /// Standard deviation of the stamps.
    pub stamp_noise: StampNoise,
    /// Resolution of the stamps, ns.
    pub tick_ns: f64,
    /// Largest |alpha| that a pair of clocks can have, ns per ns: it keeps bounds finite if there
    /// are few packets. If the packets show a larger one, the bounds are withdrawn.
    pub max_skew: f64,
    /// Largest change of alpha that packets may prove within a window, ppm per second; 0 always
    /// fits a line.
    pub max_bend_ppm_per_s: f64,
    /// Range within which alpha stays in a window, with any shape, ppm. The hard bounds assume it;
    /// the default is what the clock watches of both ends may miss.
    pub rate_range_ppm: f64,
    /// Fewest finished exchanges of a window for a fit.
    pub min_pairs: u32,
    /// Largest ratio of lost to finished exchanges of a window for a fit.
    pub max_loss_ratio: f64,
}

impl Default for FitOptions {
    fn default() -> Self {
        let stamp_noise = StampNoise { hardware_ns: 8.0, kernel_ns: 1.0, user_ns: 1.0 };
        Self {
            method: FitMethod::Hull,
            stamp_noise,
            tick_ns: 1.0,
            max_skew: MAX_SKEW,
            max_bend_ppm_per_s: 20.0,
            rate_range_ppm: 2.0 * WATCH_LIMIT_PPM,
            min_pairs: 0,
            max_loss_ratio: f64::INFINITY,
        }
    }
}

impl FitOptions {
    /// Returns true if a fit with this many exchanges and losses is used.
    pub fn wants(&self, pairs: u32, lost: u32) -> bool {
        pairs >= self.min_pairs && f64::from(lost) <= self.max_loss_ratio * f64::from(pairs)
    }
}

impl StampNoise {
    pub(super) fn of(&self, source: StampSource) -> f64 {
        match source {
            StampSource::Hardware => self.hardware_ns,
            StampSource::Kernel => self.kernel_ns,
            StampSource::User => self.user_ns,
        }
    }
}

/// Returns the tolerance of g for stamps with this standard deviation, ns: √2 because a point has
/// two stamps, times three standard deviations, on both sides of g.
pub(super) fn allowance(noise_ns: f64) -> f64 {
    2.0 * 3.0 * std::f64::consts::SQRT_2 * noise_ns
}

/// Largest rate difference of two clocks that bounds allow for; the kernel slews one clock by no
/// more.
pub(crate) const MAX_SKEW: f64 = 500e-6;

/// Range over which the rate of one clock may vary within a window, ppm. The clock watch of
/// `probe_sync_sys` supports it: it reports changes above its `SLEW_LIMIT_PPM` (2 ppm) and the
/// uncertainty of a rate there (at most 1 ppm).
pub(crate) const WATCH_LIMIT_PPM: f64 = 3.0;
