//! The times in a bundle of events that the kernel recorded (ftrace).
//!
//! Reference: `ftrace_event_bundle.proto`, and `FtraceTokenizer` of trace processor. Events state
//! their times on the bundle's clock: BOOTTIME unless it names another. Of ftrace's own clocks a
//! bundle states a reading together with one of BOOTTIME; the last one before a time converts it,
//! which an earlier bundle may have. Both readings move by the same amount, so that it does not
//! matter which one a reader takes. Switches between threads stand in columns, whose times count from
//! the one before.

use std::collections::BTreeMap;

use super::clocks::{BOOTTIME, Clocks, MONOTONIC_RAW, OnWanted};
use super::edits::Edits;
use super::fields as field;
use super::packet::inside;
use crate::protobuf::{Fault, Field, Fields, Value, put_varint, varint};

/// What earlier bundles state.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    /// By clock of ftrace: readings, and BOOTTIME minus that clock, ns.
    ahead: BTreeMap<u64, Vec<(i128, i128)>>,
}

/// Returns the new time, ns, of one on the wanted clock, which may be unknown; the second argument
/// is true if it is an event's. `None`: it stays.
pub(super) type MapOfKernel<'a> = dyn FnMut(Option<i64>, bool) -> Option<i64> + 'a;

/// The clock of a bundle.
#[derive(Copy, Clone)]
enum BundleClock {
    /// A clock that the trace knows.
    Shared(u32),
    /// A clock of ftrace, by its number.
    OfFtrace(u64),
    /// One that nothing relates to others.
    Unknown,
}

impl Kernel {
    /// Passes every time on the wanted clock to `map` and returns the new bundle; `None` if nothing
    /// changes.
    ///
    /// # Errors
    /// Returns an error if the bundle cannot be read, or if a new time is before its clock's zero.
    pub(super) fn restate(
        &mut self,
        bundle: &[u8],
        clocks: &Clocks,
        map: &mut MapOfKernel<'_>,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let (mut clock, mut global, mut boot) = (BundleClock::Shared(BOOTTIME), None, None);
        for found in Fields::of(bundle) {
            let found = found?;
            match found.number {
                field::BUNDLE_CLOCK => clock = BundleClock::of(found.number("ftrace_clock")?),
                field::BUNDLE_GLOBAL_TIME => global = Some(i128::from(found.number("ftrace_timestamp")?)),
                field::BUNDLE_BOOT_TIME => boot = Some(i128::from(found.number("boot_timestamp")?)),
                _ => {}
            }
        }
        let new_boot = boot.map(|boot| {
            let on_wanted = clocks.on_wanted(BOOTTIME, boot);
            let new = on_wanted.and_then(|on_wanted| Some(on_wanted.restated(map(Some(on_wanted.time_ns), false)?)));
            new.unwrap_or(boot)
        });
        if let (BundleClock::OfFtrace(number), Some(global), Some(boot)) = (clock, global, boot) {
            let known = self.ahead.entry(number).or_default();
            if known.len() >= READINGS_MAX {
                known.pop();
            }
            known.push((global, boot - global));
        }
        if let BundleClock::OfFtrace(RAW) = clock
            && !self.ahead.contains_key(&RAW)
        {
            clock = BundleClock::Shared(MONOTONIC_RAW);
        }
        let mut times = Times { clock, kernel: self, clocks, map };
        let mut edits = Edits::default();
        for found in Fields::of(bundle) {
            let found = found?;
            match found.number {
                field::BUNDLE_EVENT | field::BUNDLE_ERROR => times.event(&found, &mut edits)?,
                field::BUNDLE_SWITCHES => times.switches(&found, &mut edits)?,
                field::BUNDLE_LAST_READ | field::BUNDLE_PREVIOUS_END => {
                    let old = found.number("timestamp")?;
                    edits.number(&found, times.time(old, false)?);
                }
                field::BUNDLE_BOOT_TIME | field::BUNDLE_GLOBAL_TIME => {
                    let moved = new_boot.zip(boot).map_or(0, |(new, boot)| new - boot);
                    edits.number(&found, number(i128::from(found.number("timestamp")?) + moved)?);
                }
                _ => {}
            }
        }
        Ok(edits.apply(bundle))
    }
}

impl BundleClock {
    /// As `FtraceClock` numbers it.
    fn of(number: u64) -> BundleClock {
        match number {
            0 => BundleClock::Shared(BOOTTIME),
            GLOBAL | LOCAL | RAW => BundleClock::OfFtrace(number),
            _ => BundleClock::Unknown,
        }
    }
}

/// The clock of a bundle and the map of its times.
struct Times<'a, 'b> {
    clock: BundleClock,
    kernel: &'a Kernel,
    clocks: &'a Clocks,
    map: &'a mut MapOfKernel<'b>,
}

impl Times<'_, '_> {
    /// Changes the time of an event, which is its first field.
    fn event(&mut self, event: &Field<'_>, edits: &mut Edits) -> Result<(), Fault> {
        for found in inside(event) {
            let found = found.map_err(|fault| fault.within(event.value_at))?;
            if found.number == field::KERNEL_EVENT_TIME {
                let (old, mut inner) = (found.number("timestamp")?, Edits::default());
                inner.number(&found, self.time(old, true)?);
                edits.message(event, inner);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Changes the columns of times of switches and wake-ups.
    fn switches(&mut self, columns: &Field<'_>, edits: &mut Edits) -> Result<(), Fault> {
        let mut inner = Edits::default();
        for found in inside(columns) {
            let found = found.map_err(|fault| fault.within(columns.value_at))?;
            if !matches!(found.number, field::SWITCH_TIMES | field::WAKING_TIMES) {
                continue;
            }
            let Value::Bytes(mut rest) = found.value else {
                return Err(Fault::new("times of switches are not packed"));
            };
            let (mut old, mut new, mut column) = (0_u64, 0_u64, Vec::with_capacity(rest.len() + 8));
            let mut is_changed = false;
            while !rest.is_empty() {
                let Some((step, width)) = varint(rest) else { return Err(Fault::new("a time of a switch is cut off")) };
                rest = &rest[width..];
                old = old.wrapping_add(step);
                let moved = self.time(old, true)?;
                put_varint(&mut column, moved.wrapping_sub(new));
                new = moved;
                is_changed |= moved != old;
            }
            if is_changed {
                inner.bytes(&found, &column);
            }
        }
        edits.message(columns, inner);
        Ok(())
    }

    /// The number for a time, of an event or of something else.
    fn time(&mut self, old: u64, is_event: bool) -> Result<u64, Fault> {
        let located = self.on_wanted(old);
        let old_ns = located.map(|(on_wanted, _)| on_wanted.time_ns);
        let new_ns = (self.map)(old_ns, is_event).filter(|new_ns| Some(*new_ns) != old_ns);
        let Some(((on_wanted, ahead), new_ns)) = located.zip(new_ns) else { return Ok(old) };
        number(on_wanted.restated(new_ns) - ahead)
    }

    /// A time on the wanted clock, and how far the shared clock is ahead of the bundle's, ns.
    fn on_wanted(&self, time: u64) -> Option<(OnWanted, i128)> {
        let time = i128::from(time);
        match self.clock {
            BundleClock::Shared(clock) => Some((self.clocks.on_wanted(clock, time)?, 0)),
            BundleClock::OfFtrace(number) => {
                let known = self.kernel.ahead.get(&number)?;
                let after = known.partition_point(|(reading, _)| *reading <= time);
                let (_, ahead) = *known.get(after.saturating_sub(1))?;
                Some((self.clocks.on_wanted(BOOTTIME, time + ahead)?, ahead))
            }
            BundleClock::Unknown => None,
        }
    }
}

fn number(time: i128) -> Result<u64, Fault> {
    u64::try_from(time).map_err(|_| Fault::new("a time of the kernel would be before its clock's zero"))
}

/// Readings of a clock of ftrace that are kept.
const READINGS_MAX: usize = 1 << 22;
/// Clocks of `FtraceClock`: of all processors, of one, and CLOCK_MONOTONIC_RAW, which a snapshot may
/// relate to others too.
const GLOBAL: u64 = 2;
const LOCAL: u64 = 3;
const RAW: u64 = 4;
