//! The numbered steps that a trace states, and the steps in which its operations were issued.
//!
//! A series consists of all events whose names differ only in their number, such as
//! `ProfilerStep#12` or `train_step#3`. It does not choose the series that the user considers a
//! step; `StepNames` does.

use std::collections::BTreeMap;

use super::time::{PS_PER_NS, Picoseconds, nearest_ns};

/// The steps of one trace, on its own timeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    /// By name without the number, in order of start.
    series: BTreeMap<String, Vec<Step>>,
    /// When the host issued the operation that begins on a device at a time, ns.
    issued: BTreeMap<i64, i64>,
    /// The operations run on a device, which lags behind the host: only the time of issue tells
    /// their step.
    on_device: bool,
}

/// One step.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    start_ps: Picoseconds,
    end_ps: Picoseconds,
    number: i64,
}

impl Steps {
    /// Without any.
    #[cfg(any(test, feature = "testing"))]
    pub const NONE: &'static Self = &Self { series: BTreeMap::new(), issued: BTreeMap::new(), on_device: false };

    /// Takes in an event if its name is that of a step.
    pub fn look(&mut self, name: &[u8], start_ps: Picoseconds, end_ps: Picoseconds) {
        let Some((series, number)) = parse(name) else { return };
        let known = self.series.len();
        let steps = match self.series.get_mut(series) {
            Some(steps) => steps,
            None if known < SERIES_MAX => self.series.entry(series.to_owned()).or_default(),
            None => return,
        };
        if steps.len() < STEPS_MAX {
            steps.push(Step { start_ps, end_ps, number });
        }
    }

    /// Notes when what begins on a device was issued.
    pub(crate) fn issue(&mut self, start_ps: Picoseconds, issued_ps: Picoseconds) {
        if let Some((start, issued)) = nearest_ns(start_ps).zip(nearest_ns(issued_ps)) {
            self.issued.insert(start, issued);
        }
    }

    /// Ends adding: shifts all times by `base_ps`, and drops what is not a series of steps. Steps
    /// follow each other, and each has a higher number than the one before.
    pub fn close(&mut self, base_ps: Picoseconds, on_device: bool) {
        self.on_device = on_device;
        self.keep_series();
        let steps = self.series.values_mut().flatten();
        steps.for_each(|step| (step.start_ps, step.end_ps) = (step.start_ps + base_ps, step.end_ps + base_ps));
        let base_ns = i64::try_from(base_ps / PS_PER_NS).unwrap_or_default();
        let issued = std::mem::take(&mut self.issued).into_iter();
        self.issued =
            issued.map(|(start, issued)| (start.saturating_add(base_ns), issued.saturating_add(base_ns))).collect();
    }

    /// The steps of traces that follow each other. A series that begins again, as after a restart,
    /// is dropped.
    pub fn joined<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut joined = Self::default();
        for Self { series, issued, on_device } in all {
            for (name, steps) in series {
                joined.series.entry(name.clone()).or_default().extend(steps);
            }
            joined.issued.extend(issued);
            joined.on_device |= on_device;
        }
        joined.keep_series();
        joined
    }

    fn keep_series(&mut self) {
        self.series.retain(|_, steps| {
            steps.sort_unstable();
            steps.dedup();
            steps.windows(2).all(|pair| pair[0].end_ps <= pair[1].start_ps && pair[0].number < pair[1].number)
        });
    }

    /// The names of the series.
    pub fn series(&self) -> impl Iterator<Item = &str> {
        self.series.keys().map(String::as_str)
    }

    /// The number of the step of a series to which an operation surely belongs.
    pub fn number(&self, series: &str, start_ps: Picoseconds, end_ps: Picoseconds) -> Option<i64> {
        let (from_ps, until_ps) = if self.on_device {
            let issued = *self.issued.get(&nearest_ns(start_ps)?)?;
            (Picoseconds::from(issued) * PS_PER_NS, Picoseconds::from(issued) * PS_PER_NS)
        } else {
            (start_ps, end_ps)
        };
        let steps = self.series.get(series)?;
        let begun = steps.partition_point(|step| step.start_ps <= from_ps);
        let step = steps[begun.checked_sub(1)?];
        (until_ps <= step.end_ps).then_some(step.number)
    }
}

/// The series and the number that a name states: `train_step#3`, `step 3`.
fn parse(name: &[u8]) -> Option<(&str, i64)> {
    if !name.last()?.is_ascii_digit() || name.len() > NAME_MAX {
        return None;
    }
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (series, number) = name.split_at(name.len() - digits);
    let (_, b'#' | b' ' | b'_' | b':' | b'=') = series.split_last().map(|(last, rest)| (rest, *last))? else {
        return None;
    };
    let lower = series.to_ascii_lowercase();
    let is_step = ["step", "iter"].iter().any(|word| memchr::memmem::find(&lower, word.as_bytes()).is_some());
    let number = std::str::from_utf8(number).ok()?.parse().ok()?;
    Some((std::str::from_utf8(series).ok().filter(|_| is_step)?, number))
}

/// Series of a trace that are kept.
const SERIES_MAX: usize = 16;
/// Steps of a series that are kept.
const STEPS_MAX: usize = 1 << 20;
/// A longer name is no step's.
const NAME_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_state_a_series_and_a_number() {
        for (name, expected) in [
            ("ProfilerStep#12", Some(("ProfilerStep#", 12))),
            ("train_step#3", Some(("train_step#", 3))),
            ("step 0", Some(("step ", 0))),
            ("Iteration_7", Some(("Iteration_", 7))),
            ("Optimizer.step#SGD.step", None),
            ("layer#3", None),
            ("step3", None),
            ("step#99999999999999999999", None),
            ("", None),
        ] {
            assert_eq!(parse(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn an_operation_is_of_the_step_that_holds_it_or_its_issue() {
        let mut steps = Steps::default();
        for (number, start) in [(3, 0), (4, 100)] {
            steps.look(format!("step#{number}").as_bytes(), start * 1000, (start + 90) * 1000);
            steps.look(b"iter#1", start * 1000, start * 1000);
        }
        steps.issue(150_000, 50_000);
        let host = {
            let mut host = steps.clone();
            host.close(0, false);
            host
        };
        assert_eq!(host.series().collect::<Vec<_>>(), ["step#"], "numbers of a series rise");
        let check = |steps: &Steps, start: i128, end: i128, expected: Option<i64>| {
            assert_eq!(steps.number("step#", start * 1000, end * 1000), expected, "{start} to {end}");
        };
        check(&host, 10, 20, Some(3));
        check(&host, 80, 95, None);
        check(&host, 150, 160, Some(4));
        steps.close(1000, true);
        check(&steps, 151, 161, Some(3));
        check(&steps, 11, 21, None);
    }
}
