//! Conversion of ticks to the system clock, by the recording's clock pairs.
//!
//! It is made once per recording, and every event passes through it. The arithmetic is that of
//! `trace::clocks` (`map_of_pairs`), which makes the map of every trace with pairs: a smooth curve
//! through the brackets, with a separate piece between each two steps of the system clock, never a
//! single line. Before that, ticks are multiplied by a constant to give approximate ps; the
//! constant need not be exact, because the curve describes the difference.
//!
//! It knows no clock but this machine's.

use std::cell::Cell;

use probe_sync_alignment::clocks::{PairMap, Residuals, map_of_pairs};
use probe_sync_formats::model::{ClockPair as Pair, PairKind};

use probe_sync_estimate::series::Break;
use probe_sync_estimate::series::{Cursor, Place, TimeMap};

use super::error::ExportError;
use crate::clock::{self, ClockPair, Ticks};
use crate::layout;
use crate::read::Recording;
use crate::session::Facts;

/// Map from a recording's ticks to the system clock.
#[derive(Clone, Debug)]
pub struct SystemClock {
    scale: Scale,
    map: TimeMap,
    residuals: Residuals,
    /// Pairs between which the system clock was stepped, on the scale, ps.
    steps: Vec<[i128; 2]>,
    /// Ticks from which the counter was no longer usable as a clock.
    failed: u64,
}

/// Reason why a time may be wrong.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// Nothing.
    #[default]
    None,
    /// The time is before the first or after the last clock pair.
    Outside,
    /// The system clock was set between the pairs before and after it; the error may be as large as
    /// that step.
    Step,
    /// The counter was no longer usable as a clock.
    Failed,
}

impl Doubt {
    /// Returns the text in a trace; `None` without doubt.
    pub fn text(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Outside => Some("outside the clock pairs"),
            Self::Step => Some("near a step of the system clock"),
            Self::Failed => Some("the counter was unusable as a clock"),
        }
    }
}

/// Ticks to ps, by an integer over a power of two.
#[derive(Copy, Clone, Debug)]
struct Scale {
    /// Origin in ticks, and its ps.
    ticks: u64,
    ps: i128,
    factor: i128,
}

impl Scale {
    fn ps(&self, ticks: u64) -> i128 {
        let since = i128::from(ticks) - i128::from(self.ticks);
        self.ps + ((since * self.factor) >> FACTOR_BITS)
    }
}

impl SystemClock {
    /// Creates the map through a recording's pairs.
    ///
    /// # Errors
    /// [`ExportError::Clock`]: it has no pairs, or one, and was made elsewhere or before the
    /// machine's last start.
    pub fn of(recording: &Recording) -> Result<Self, ExportError> {
        let status = recording.status();
        let mut pairs = recording.pairs().to_vec();
        if status.counter && pairs.len() == 1 {
            pairs.extend(pair_of_now(recording.facts()));
        }
        Self::through(&pairs, status.counter, status.clock_failed)
    }

    /// Creates the map through other pairs.
    pub(super) fn by(recording: &Recording, pairs: &[ClockPair]) -> Result<Self, ExportError> {
        let status = recording.status();
        Self::through(pairs, status.counter, status.clock_failed)
    }

    fn through(pairs: &[ClockPair], counter: bool, failed: u64) -> Result<Self, ExportError> {
        let unknown = |reason: &str| ExportError::Clock { reason: reason.into() };
        let first = pairs.first().ok_or_else(|| unknown(NO_PAIRS))?;
        let factor = if counter { factor(pairs).ok_or_else(|| unknown(ONE_PAIR))? } else { NANOSECOND };
        let scale = Scale { ticks: first.ticks, ps: i128::from(first.system_ns) * 1000, factor };
        let width_ns = |ticks: u64| ((i128::from(ticks) * factor) >> FACTOR_BITS) as f64 * 1e-3;
        let pairs: Vec<Pair> = pairs
            .iter()
            .map(|pair| Pair {
                tracer_ps: scale.ps(pair.ticks),
                system_ns: pair.system_ns,
                kind: PairKind::Bracketed(width_ns(pair.bracket_ticks)),
            })
            .collect();
        let unusable = |error: probe_sync_estimate::Error| ExportError::Clock { reason: error.to_string() };
        let PairMap { map, residuals } = map_of_pairs(&pairs).map_err(unusable)?.ok_or_else(|| unknown(NO_PAIRS))?;
        let steps = map.breaks().iter().map(|step| [step.last_before_ps, step.first_after_ps]).collect();
        let failed = if failed == 0 { u64::MAX } else { failed };
        Ok(Self { scale, map, residuals, steps, failed })
    }

    /// Returns the residuals of the pairs.
    pub fn residuals(&self) -> &Residuals {
        &self.residuals
    }

    /// Returns a time and its standard deviation, ns.
    pub fn at(&self, ticks: u64) -> (i64, f64) {
        let mapped = self.map.map(self.scale.ps(ticks));
        (nearest_ns(mapped.time_ps), mapped.sigma_ns)
    }

    /// Returns when the system clock was set, on itself after that, and by how much, ns.
    pub(super) fn steps(&self) -> Vec<(i64, i64)> {
        let step = |step: &Break| (nearest_ns(self.map.map(step.at_ps).time_ps), nearest_ns(-step.jump_ps));
        self.map.breaks().iter().map(step).collect()
    }

    /// Returns a reader for the times of one thread.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { clock: self, cursor: self.map.cursor(), doubt: Cell::default() }
    }
}

/// The system clock → `CLOCK_BOOTTIME`, which goes at its rate and is never set.
#[derive(Clone, Debug)]
pub(super) struct BootClock {
    ahead_ns: i64,
    /// When the system clock was stepped, ns on itself, and by how much, latest last.
    steps: Vec<(i64, i64)>,
}

impl BootClock {
    pub fn of(clock: &SystemClock, ahead_ns: i64) -> Self {
        Self { ahead_ns, steps: clock.steps() }
    }

    pub fn of_system(&self, ns: i64) -> i64 {
        let set: i64 = self.steps.iter().filter(|(at, _)| *at <= ns).map(|(_, by)| by).sum();
        ns.saturating_sub(self.ahead_ns).saturating_sub(set)
    }

    /// The system clock at a time on the boot clock, ps.
    pub fn to_system(&self, ps: i128) -> i128 {
        let mut system = ps + i128::from(self.ahead_ns) * 1000;
        for (at, by) in &self.steps {
            // The steps are on the system clock, which shows `at` after them.
            if system + i128::from(*by) * 1000 >= i128::from(*at) * 1000 {
                system += i128::from(*by) * 1000;
            }
        }
        system
    }
}

/// Maps times one after the other, and remembers doubts about them.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    clock: &'a SystemClock,
    cursor: Cursor<'a>,
    doubt: Cell<Doubt>,
}

impl Reader<'_> {
    /// Returns the time of a count, ns.
    #[inline]
    pub fn ns(&mut self, ticks: u64) -> i64 {
        let at = self.clock.scale.ps(ticks);
        let mapped = self.cursor.map(at);
        if mapped.place != Place::Inside {
            self.doubt(Doubt::Outside);
        }
        if !self.clock.steps.is_empty() && self.clock.steps.iter().any(|[from, until]| *from < at && at < *until) {
            self.doubt(Doubt::Step);
        }
        if ticks >= self.clock.failed {
            self.doubt(Doubt::Failed);
        }
        nearest_ns(mapped.time_ps)
    }

    #[cold]
    fn doubt(&self, more: Doubt) {
        self.doubt.set(self.doubt.get().max(more));
    }
}

/// Returns the worst doubt of all times since the last call.
pub(super) fn take_doubt(reader: &Reader<'_>) -> Doubt {
    reader.doubt.take()
}

/// Rounds to the nearest ns; monotone. Uses 64 bits if they suffice, as for all times of these
/// centuries.
#[inline]
fn nearest_ns(ps: i128) -> i64 {
    let from_base = ps.saturating_sub(BASE_PS - 500);
    match i64::try_from(from_base) {
        Ok(near) => (BASE_PS / 1000) as i64 + near.div_euclid(1000),
        Err(_) => {
            i64::try_from(ps.saturating_add(500).div_euclid(1000)).unwrap_or(if ps < 0 { i64::MIN } else { i64::MAX })
        }
    }
}

/// Ps per tick, from the median over neighbouring pairs: a step of the system clock affects only
/// one of them.
fn factor(pairs: &[ClockPair]) -> Option<i128> {
    let ratio = |pair: &[ClockPair]| {
        let ticks = i128::from(pair[1].ticks) - i128::from(pair[0].ticks);
        let ps = (i128::from(pair[1].system_ns) - i128::from(pair[0].system_ns)) * 1000;
        (ticks > 0 && ps > 0).then(|| (ps << FACTOR_BITS) / ticks)
    };
    let mut ratios: Vec<i128> = pairs.windows(2).filter_map(ratio).collect();
    ratios.sort_unstable();
    ratios.get(ratios.len() / 2).copied().filter(|factor| (1..=FACTOR_MAX).contains(factor))
}

/// A pair taken now, if the counter is that of the recording: on the same machine, since the same
/// boot.
fn pair_of_now(facts: &Facts) -> Option<ClockPair> {
    let here = Facts::of_process();
    let same = !facts.boot_id.is_empty() && facts.boot_id == here.boot_id;
    let virtual_clock = facts.virtual_clock.clone().unwrap_or_default();
    match Ticks::of_number(layout::clock::TSC) {
        ticks @ Ticks::Tsc(_) if same => Some(clock::pair_on(ticks, &virtual_clock)),
        _ => None,
    }
}

/// Bits of a factor below 1 ps.
const FACTOR_BITS: u32 = 32;
/// A tick of a nanosecond.
const NANOSECOND: i128 = 1000 << FACTOR_BITS;
/// A tick of 1 µs is no counter's.
const FACTOR_MAX: i128 = 1_000_000 << FACTOR_BITS;
/// 2026-11-25, from which 64 bits of ps reach 106 days either way; a multiple of 1000.
const BASE_PS: i128 = 1_795_564_800_000_000_000_000;
const NO_PAIRS: &str = "the recording has no clock pairs, because its process was killed at the start";
const ONE_PAIR: &str = "the recording has only one clock pair, so the length of a tick is unknown: its process was killed immediately \
    after the start; read it on the machine that recorded it, before the next reboot";

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs one second apart of a counter of 2.6 GHz that is `ppm` fast, with the system clock set
    /// by `step_ns` after the sixth.
    fn pairs(count: u64, ppm: f64, step_ns: i64) -> Vec<ClockPair> {
        (0..count)
            .map(|k| ClockPair {
                ticks: 7_000_000_000 + (k as f64 * 2.6e9 * (1.0 + ppm * 1e-6)) as u64,
                system_ns: 1_795_600_000_000_000_000 + k as i64 * 1_000_000_000 + if k >= 6 { step_ns } else { 0 },
                bracket_ticks: 80,
            })
            .collect()
    }

    fn clock(pairs: &[ClockPair]) -> SystemClock {
        SystemClock::through(pairs, true, 0).expect("pairs")
    }

    #[test]
    fn the_boot_clock_and_back_is_the_same_time_across_steps() {
        let boot = BootClock { ahead_ns: 1000, steps: vec![(5000, 300), (9000, -200)] };
        for (system, on_boot) in [(4000, 3000), (5000, 3700), (6000, 4700), (8900, 7600), (9000, 7900), (9500, 8400)] {
            assert_eq!(boot.of_system(system), on_boot);
            assert_eq!(boot.to_system(i128::from(on_boot) * 1000), i128::from(system) * 1000, "{system}");
        }
    }

    #[test]
    fn times_between_pairs_are_on_the_system_clock() {
        for ppm in [0.0, 37.0, -120.0] {
            let pairs = pairs(10, ppm, 0);
            let clock = clock(&pairs);
            let mut reader = clock.reader();
            for two in pairs.windows(2) {
                let middle = u64::midpoint(two[0].ticks, two[1].ticks);
                let off = reader.ns(middle) - i64::midpoint(two[0].system_ns, two[1].system_ns);
                assert!(off.abs() <= 2, "{off} ns at {ppm} ppm");
                assert_eq!(take_doubt(&reader), Doubt::None);
            }
            reader.ns(pairs[0].ticks - 5000);
            assert_eq!(take_doubt(&reader), Doubt::Outside);
            reader.ns(pairs[9].ticks + 5000);
            assert_eq!((take_doubt(&reader), take_doubt(&reader)), (Doubt::Outside, Doubt::None));
        }
    }

    #[test]
    fn one_by_one_and_by_a_reader_times_are_the_same() {
        for slow in [1, 1000] {
            let mut pairs = pairs(10, 37.0, 0);
            let first = pairs[0].system_ns;
            pairs.iter_mut().for_each(|pair| pair.system_ns = first + (pair.system_ns - first) / slow);
            let clock = clock(&pairs);
            let mut reader = clock.reader();
            let (mut random, mut last) = (1_u64, i64::MIN);
            for step in 0..200_000_u64 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Mostly onward, and back as to the beginning of a scope.
                let ticks = pairs[0].ticks + step * 117_000;
                assert_eq!(reader.ns(ticks), clock.at(ticks).0, "at {ticks}");
                assert!(last <= clock.at(ticks).0, "back at {ticks}");
                last = clock.at(ticks).0;
                let back = ticks - (random >> 40);
                assert_eq!(reader.ns(back), clock.at(back).0, "at {back}");
            }
        }
    }

    #[test]
    fn a_step_of_the_system_clock_is_a_break_and_no_slope() {
        let pairs = pairs(12, 5.0, 5_000_000);
        let clock = clock(&pairs);
        assert_eq!(clock.steps.len(), 1, "{:?}", clock.residuals);
        let mut reader = clock.reader();
        for (k, pair) in pairs.iter().enumerate() {
            let off = reader.ns(pair.ticks + 1_000_000) - (pair.system_ns + 384_613);
            let doubt = take_doubt(&reader);
            let near = k == 5;
            assert!(off.abs() < 30 || near, "{off} ns after pair {k}");
            assert_eq!(doubt == Doubt::Step, near, "{doubt:?} after pair {k}");
        }
    }

    #[test]
    fn without_pairs_no_time_is_made_up() {
        let said = |pairs: &[ClockPair], counter| {
            SystemClock::through(pairs, counter, 0).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(said(&[], true).contains("no clock pairs"));
        assert!(said(&pairs(1, 0.0, 0), true).contains("one clock pair"));
        assert_eq!(said(&pairs(1, 0.0, 0), false), "", "a tick of a nanosecond is known");
        let failing = SystemClock::through(&pairs(4, 0.0, 0), true, 9_000_000_000).expect("pairs");
        let mut reader = failing.reader();
        reader.ns(9_000_000_001);
        assert_eq!(take_doubt(&reader), Doubt::Failed);
    }

    #[test]
    fn rounding_keeps_the_order_and_reaches_every_time() {
        for base in [0, BASE_PS - i128::from(i64::MAX), BASE_PS, BASE_PS + i128::from(i64::MAX)] {
            let around: Vec<i64> = (-2000..2000).map(|ps| nearest_ns(base + ps)).collect();
            assert!(around.is_sorted(), "{base}");
            assert_eq!(i128::from(nearest_ns(base)), (base + 500).div_euclid(1000));
        }
        assert_eq!((nearest_ns(i128::MAX), nearest_ns(i128::MIN)), (i64::MAX, i64::MIN));
    }
}
