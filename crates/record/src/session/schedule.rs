//! The schedule of recorded steps: skip some, then repeatedly wait, warm up and record.
//!
//! The terms and their meaning are those of `torch.profiler.schedule`. Warm-up steps are recorded,
//! so that memory and caches are as warm as they will be, but are left out when the recording is
//! read; `repeat` 0 repeats until the session ends. The active steps of each repetition form one
//! window of the recording (`Recording::windows`, `Recording::window`).

/// A schedule by numbers of steps. Step 0 begins with the session, the next one with each
/// `Session::step`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Steps skipped once, at the beginning.
    pub skip_first: u64,
    /// Steps to wait in each repetition.
    pub wait: u64,
    /// Steps of warm-up after that.
    pub warmup: u64,
    /// Steps recorded after that; at least 1.
    pub active: u64,
    /// Number of repetitions; 0: until the session ends.
    pub repeat: u64,
}

/// Kind of a step.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not recorded.
    #[default]
    Idle,
    /// Recorded, but omitted.
    WarmUp,
    /// Recorded.
    Active,
}

/// A step that begins.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Number of the step; the first after the session's start is 1.
    pub number: u64,
    /// Kind of the step.
    pub phase: Phase,
    /// Its repetition, counted from 0.
    pub repetition: Option<u64>,
    /// The repetition whose last active step has just ended, so that its window is complete.
    pub completed: Option<u64>,
}

impl Schedule {
    /// Returns what is wrong with the schedule, if anything.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let parts = [self.skip_first, self.wait, self.warmup, self.active, self.repeat];
        if self.active == 0 {
            return Err("nothing would be recorded without active steps; give 1 or more");
        }
        if parts.iter().any(|part| *part > STEPS_MAX) {
            return Err("too many steps; give at most 10^12");
        }
        Ok(())
    }

    /// Returns a step by its number.
    pub(super) fn step(&self, number: u64) -> Step {
        let (phase, repetition) = self.phase(number);
        let before = number.checked_sub(1).map(|before| self.phase(before));
        let ended =
            |(was, of): &(Phase, Option<u64>)| *was == Phase::Active && (phase != Phase::Active || *of != repetition);
        let completed = before.filter(ended).and_then(|(_, repetition)| repetition);
        Step { number, phase, repetition, completed }
    }

    fn phase(&self, number: u64) -> (Phase, Option<u64>) {
        let Some(at) = number.checked_sub(self.skip_first) else { return (Phase::Idle, None) };
        let length = self.wait + self.warmup + self.active;
        let (repetition, at) = (at / length, at % length);
        if self.repeat > 0 && repetition >= self.repeat {
            return (Phase::Idle, None);
        }
        let phase = if at < self.wait {
            Phase::Idle
        } else if at < self.wait + self.warmup {
            Phase::WarmUp
        } else {
            Phase::Active
        };
        (phase, Some(repetition))
    }
}

/// Limit that keeps sums and products of steps far below overflow.
const STEPS_MAX: u64 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Characters: `-` idle, `w` warm-up, `A` active, `|` before a step that completes a
    /// repetition.
    fn check(schedule: Schedule, expected: &str) {
        let mut said = String::new();
        for number in 0..expected.chars().filter(|letter| *letter != '|').count() as u64 {
            let step = schedule.step(number);
            if step.completed.is_some() {
                said.push('|');
            }
            said.push(match step.phase {
                Phase::Idle => '-',
                Phase::WarmUp => 'w',
                Phase::Active => 'A',
            });
        }
        assert_eq!(said, expected, "{schedule:?}");
    }

    #[test]
    fn steps_are_those_of_torch() {
        let schedule = |skip_first, wait, warmup, active, repeat| Schedule { skip_first, wait, warmup, active, repeat };
        check(schedule(0, 1, 1, 2, 2), "-wAA|-wAA|-----");
        check(schedule(3, 1, 1, 1, 1), "----wA|---");
        check(schedule(0, 0, 0, 1, 0), "A|A|A|A");
        check(schedule(2, 0, 0, 3, 0), "--AAA|AAA|A");
        check(schedule(0, 0, 2, 1, 0), "wwA|wwA|ww");
        check(schedule(1, 0, 0, 2, 1), "-AA|--");
        check(schedule(0, 2, 0, 1, 2), "--A|--A|----");
    }

    #[test]
    fn repetitions_count_from_zero() {
        let schedule = Schedule { wait: 1, active: 2, ..Schedule::default() };
        let said: Vec<_> =
            (0..7).map(|number| (schedule.step(number).repetition, schedule.step(number).completed)).collect();
        let (first, second, third) = (Some(0), Some(1), Some(2));
        let expected = [
            (first, None),
            (first, None),
            (first, None),
            (second, first),
            (second, None),
            (second, None),
            (third, second),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn a_schedule_without_active_steps_is_refused() {
        assert!(Schedule::default().check().is_err_and(|reason| reason.contains("give 1 or more")));
        let endless = Schedule { active: 1, wait: u64::MAX, ..Schedule::default() };
        assert!(endless.check().is_err_and(|reason| reason.contains("10^12")));
        assert!(Schedule { active: 1, ..Schedule::default() }.check().is_ok());
    }
}
