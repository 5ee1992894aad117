//! The names of the events that are steps of the program.

use std::str::FromStr;

use regex::Regex;

/// Which events are steps of the program, and which step each of them is.
#[derive(Clone, Debug)]
pub struct StepNames {
    /// Matches the names of steps: its group named `step`, or else its first, is the number.
    pub pattern: Regex,
}

impl StepNames {
    /// Returns the number of the step that an event of this name is.
    pub fn number(&self, name: &str) -> Option<i64> {
        let captures = self.pattern.captures(name)?;
        captures.name("step").or(captures.get(1))?.as_str().parse().ok()
    }
}

impl FromStr for StepNames {
    type Err = String;

    fn from_str(pattern: &str) -> Result<Self, String> {
        let compiled = Regex::new(pattern).map_err(|error| error.to_string())?;
        if compiled.captures_len() < 2 {
            return Err(format!("{pattern} has no group for the number, as in train_step#(?<step>\\d+)"));
        }
        Ok(Self { pattern: compiled })
    }
}

/// Compares the patterns' texts.
impl PartialEq for StepNames {
    fn eq(&self, other: &Self) -> bool {
        self.pattern.as_str() == other.pattern.as_str()
    }
}

impl Eq for StepNames {}

impl Default for StepNames {
    fn default() -> Self {
        Self { pattern: Regex::new(STEP_PATTERN).expect("the pattern is well-formed") }
    }
}

/// The steps of PyTorch's profiler.
pub const STEP_PATTERN: &str = r"^ProfilerStep#(?<step>\d+)$";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_states_its_step() {
        let check = |pattern: &str, name: &str, expected: Option<i64>| {
            assert_eq!(pattern.parse::<StepNames>().expect("a pattern").number(name), expected, "{name}");
        };
        check(STEP_PATTERN, "ProfilerStep#12", Some(12));
        check(STEP_PATTERN, "ProfilerStep", None);
        check(STEP_PATTERN, "my ProfilerStep#1", None);
        check(r"^train_step#(?<step>\d+)$", "train_step#3", Some(3));
        check(r"^step (\d+)", "step 99999999999999999999", None);
    }
}
