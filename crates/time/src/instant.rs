//! Timestamps, durations and rates: the arithmetic of one clock.
//!
//! A [`Timestamp`] belongs to a [`Domain`], the timeline it was read on. Two timestamps of one
//! domain differ by a [`Duration`]; timestamps of different domains do not mix without an explicit,
//! named conversion. Two nodes' system clocks share the domain [`System`] but not a clock:
//! [`Timestamp::ahead_of`] names the difference across them, and `-` is for two readings of one
//! clock. Arithmetic saturates: a corrupt stamp near `i64::MAX` gives a huge difference, which
//! later stages reject, and never a panic.
//!
//! Converting a node's time into reference time requires an estimate and is the task of crate
//! `estimate`. The reference node alone needs none: [`Timestamp::on_reference`].

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Add, AddAssign, Neg, Sub};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A timeline that a [`Timestamp`] can belong to.
pub trait Domain: Copy + Clone + fmt::Debug + 'static {
    /// Name of the timeline in messages.
    const NAME: &'static str;
}

macro_rules! domain {
    ($(#[$doc:meta])* $name:ident, $text:literal) => {
        $(#[$doc])*
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {}
        impl Domain for $name {
            const NAME: &'static str = $text;
        }
    };
}

domain!(
    /// S: the system clock of the node, `CLOCK_REALTIME`. Kernel packet stamps are on it.
    System,
    "system"
);
domain!(
    /// S0: the system clock of the reference node (node 0 unless configured).
    Reference,
    "reference"
);
domain!(
    /// R: the clock of the node's profiler.
    Tracer,
    "tracer"
);
domain!(
    /// `CLOCK_MONOTONIC_RAW`: neither stepped nor slewed.
    Raw,
    "monotonic_raw"
);
domain!(
    /// Counter of a host's global clock: `CLOCK_MONOTONIC_RAW`, or the processor's time-stamp
    /// counter times a constant.
    Counter,
    "counter"
);
domain!(
    /// `CLOCK_MONOTONIC`: for timers and schedules only, shared by all processes of a host.
    Monotonic,
    "monotonic"
);
domain!(
    /// `CLOCK_BOOTTIME`: monotonic, and includes suspended time.
    Boot,
    "boottime"
);

/// A point on timeline `D`, in nanoseconds since that timeline's epoch.
///
/// ```
/// use probe_sync_time::{Duration, System, Timestamp};
///
/// let begin = Timestamp::<System>::from_ns(1_795_187_183_227_565_825);
/// let end = begin + Duration::from_us(3);
/// assert_eq!((end - begin).as_ns(), 3000);
/// assert_eq!((begin - end).as_ns(), -3000);
/// assert!(end > begin);
/// ```
///
/// Timestamps of two timelines cannot be subtracted:
///
/// ```compile_fail,E0308
/// # use probe_sync_time::{Monotonic, System, Timestamp};
/// let (system, monotonic) = (Timestamp::<System>::from_ns(1), Timestamp::<Monotonic>::from_ns(1));
/// let _ = system - monotonic;
/// ```
pub struct Timestamp<D: Domain> {
    ns: i64,
    domain: PhantomData<D>,
}

impl<D: Domain> Timestamp<D> {
    /// Returns the point `ns` nanoseconds after the timeline's epoch.
    pub const fn from_ns(ns: i64) -> Self {
        Self { ns, domain: PhantomData }
    }

    /// Returns the nanoseconds since the timeline's epoch.
    pub const fn as_ns(self) -> i64 {
        self.ns
    }

    /// Returns the point halfway between two points of one timeline.
    pub const fn midpoint(self, other: Self) -> Self {
        Self::from_ns(self.ns.midpoint(other.ns))
    }
}

impl Timestamp<System> {
    /// Returns this reading minus the reading `other` of another node's system clock: `S_i − S_j`.
    ///
    /// This is not a span of time but the difference of the two clocks plus the time between the
    /// two readings, with sign. For a packet from i to j, `u = recv_j.ahead_of(send_i) = offset_j −
    /// offset_i + delay`. For two readings of one clock use `-`, which gives the time that passed.
    ///
    /// ```
    /// # use probe_sync_time::{Duration, System, Timestamp};
    /// // Node j is 1000 ns ahead of node i; a packet takes 200 ns each way.
    /// let sent_by_i = Timestamp::<System>::from_ns(0);
    /// let received_by_j = Timestamp::<System>::from_ns(1200);
    /// assert_eq!(received_by_j.ahead_of(sent_by_i), Duration::from_ns(1000 + 200));
    ///
    /// let sent_by_j = Timestamp::<System>::from_ns(2000);
    /// let received_by_i = Timestamp::<System>::from_ns(1200);
    /// assert_eq!(sent_by_j.ahead_of(received_by_i), Duration::from_ns(1000 - 200));
    /// ```
    #[must_use]
    pub const fn ahead_of(self, other: Self) -> Duration {
        Duration::from_ns(self.ns.saturating_sub(other.ns))
    }

    /// Returns this reading as reference time, if the node that took it is the reference, whose
    /// system clock is the reference clock. No other node's reading may be converted this way.
    #[must_use]
    pub const fn on_reference(self) -> Timestamp<Reference> {
        Timestamp::from_ns(self.ns)
    }
}

impl Timestamp<Reference> {
    /// Returns the reference node's own system time at this reference time: the inverse of
    /// [`Timestamp::on_reference`].
    #[must_use]
    pub const fn of_reference_node(self) -> Timestamp<System> {
        Timestamp::from_ns(self.ns)
    }
}

impl<D: Domain> Copy for Timestamp<D> {}
impl<D: Domain> Clone for Timestamp<D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Domain> PartialEq for Timestamp<D> {
    fn eq(&self, other: &Self) -> bool {
        self.ns == other.ns
    }
}
impl<D: Domain> Eq for Timestamp<D> {}
impl<D: Domain> PartialOrd for Timestamp<D> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<D: Domain> Ord for Timestamp<D> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.ns.cmp(&other.ns)
    }
}
impl<D: Domain> std::hash::Hash for Timestamp<D> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.ns.hash(state);
    }
}
impl<D: Domain> fmt::Debug for Timestamp<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} ns", D::NAME, self.ns)
    }
}

/// Serialised as the plain number of nanoseconds: fields are named `…_ns`.
impl<D: Domain> Serialize for Timestamp<D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.ns)
    }
}
impl<'de, D: Domain> Deserialize<'de> for Timestamp<D> {
    fn deserialize<S: Deserializer<'de>>(deserializer: S) -> Result<Self, S::Error> {
        i64::deserialize(deserializer).map(Self::from_ns)
    }
}

impl<D: Domain> Sub for Timestamp<D> {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_ns(self.ns.saturating_sub(earlier.ns))
    }
}
impl<D: Domain> Add<Duration> for Timestamp<D> {
    type Output = Self;
    fn add(self, later: Duration) -> Self {
        Self::from_ns(self.ns.saturating_add(later.ns))
    }
}
impl<D: Domain> AddAssign<Duration> for Timestamp<D> {
    fn add_assign(&mut self, later: Duration) {
        *self = *self + later;
    }
}
impl<D: Domain> Sub<Duration> for Timestamp<D> {
    type Output = Self;
    fn sub(self, earlier: Duration) -> Self {
        Self::from_ns(self.ns.saturating_sub(earlier.ns))
    }
}

/// A signed span of time in nanoseconds.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Duration {
    ns: i64,
}

impl Duration {
    /// Zero length.
    pub const ZERO: Self = Self::from_ns(0);

    /// Returns a span of `ns` nanoseconds.
    pub const fn from_ns(ns: i64) -> Self {
        Self { ns }
    }

    /// Returns a span of `us` microseconds, saturating.
    pub const fn from_us(us: i64) -> Self {
        Self::from_ns(us.saturating_mul(1_000))
    }

    /// Returns a span of `ms` milliseconds, saturating.
    pub const fn from_ms(ms: i64) -> Self {
        Self::from_ns(ms.saturating_mul(1_000_000))
    }

    /// Rounds to the nearest whole nanosecond; NaN becomes zero, and values out of range saturate.
    pub fn from_ns_f64(ns: f64) -> Self {
        Self::from_ns(ns.round() as i64)
    }

    /// Returns nanoseconds.
    pub const fn as_ns(self) -> i64 {
        self.ns
    }

    /// Returns nanoseconds as `f64`: exact up to 2^53 ns, which is 104 days.
    pub const fn as_ns_f64(self) -> f64 {
        self.ns as f64
    }

    /// Returns seconds.
    pub const fn as_secs_f64(self) -> f64 {
        self.ns as f64 * 1e-9
    }

    /// Converts to a duration of the standard library; a negative one becomes zero.
    ///
    /// ```
    /// use probe_sync_time::Duration;
    ///
    /// assert_eq!(Duration::from_us(3).to_std(), core::time::Duration::from_micros(3));
    /// assert_eq!(Duration::from_ns(-3).to_std(), core::time::Duration::ZERO);
    /// ```
    pub const fn to_std(self) -> core::time::Duration {
        let ns = if self.ns < 0 { 0 } else { self.ns };
        core::time::Duration::from_nanos(ns.unsigned_abs())
    }

    /// Converts a duration of the standard library, saturating at 292 years.
    pub fn from_std(span: core::time::Duration) -> Self {
        Self::from_ns(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.ns)
    }
}
impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::from_ns(self.ns.saturating_add(other.ns))
    }
}
impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
impl Sub for Duration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::from_ns(self.ns.saturating_sub(other.ns))
    }
}
impl Neg for Duration {
    type Output = Self;
    fn neg(self) -> Self {
        Self::from_ns(self.ns.saturating_neg())
    }
}

/// The rate of a clock relative to another: nanoseconds gained per nanosecond. `1 ppm = 1e-6`.
#[derive(Copy, Clone, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Skew(f64);

impl Skew {
    /// Equal rates.
    pub const ZERO: Self = Self(0.0);

    /// Converts from parts per million.
    pub const fn from_ppm(ppm: f64) -> Self {
        Self(ppm * 1e-6)
    }

    /// Returns parts per million.
    pub const fn as_ppm(self) -> f64 {
        self.0 * 1e6
    }

    /// Returns the nanoseconds gained over a span.
    pub const fn over_ns(self, span: Duration) -> f64 {
        self.0 * span.as_ns_f64()
    }
}

impl fmt::Debug for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ppm", self.as_ppm())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn corrupt_stamps_saturate_instead_of_panicking() {
        let far = Timestamp::<System>::from_ns(i64::MAX);
        let past = Timestamp::<System>::from_ns(i64::MIN);
        assert_eq!((far - past).as_ns(), i64::MAX);
        assert_eq!((far + Duration::from_ns(1)).as_ns(), i64::MAX);
        assert_eq!((-Duration::from_ns(i64::MIN)).as_ns(), i64::MAX);
        assert_eq!(Duration::from_ns_f64(f64::NAN), Duration::ZERO);
    }

    #[test]
    fn the_difference_across_clocks_has_a_sign_and_saturates() {
        let at = Timestamp::<System>::from_ns;
        assert_eq!(at(1200).ahead_of(at(0)).as_ns(), 1200);
        assert_eq!(at(800).ahead_of(at(1200)).as_ns(), -400);
        assert_eq!(at(i64::MAX).ahead_of(at(i64::MIN)).as_ns(), i64::MAX);
    }

    #[test]
    fn the_reference_node_changes_domain_and_no_nanosecond() {
        let read = Timestamp::<System>::from_ns(1_795_187_183_227_565_825);
        assert_eq!(read.on_reference().as_ns(), read.as_ns());
        assert_eq!(read.on_reference().of_reference_node(), read);
    }

    #[test]
    fn json_holds_bare_nanoseconds() {
        let at = Timestamp::<Reference>::from_ns(1_795_187_183_227_565_824);
        let text = serde_json::to_string(&at).expect("a number");
        assert_eq!(text, "1795187183227565824");
        assert_eq!(serde_json::from_str::<Timestamp<Reference>>(&text).expect("a number"), at);
    }

    proptest! {
        #[test]
        fn adding_a_difference_returns_the_later_point(a in -1i64 << 62..1i64 << 62, b in -1i64 << 62..1i64 << 62) {
            let (a, b) = (Timestamp::<System>::from_ns(a), Timestamp::<System>::from_ns(b));
            prop_assert_eq!(a + (b - a), b);
            prop_assert_eq!(b - (b - a), a);
        }
    }
}
