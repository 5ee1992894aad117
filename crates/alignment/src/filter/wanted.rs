//! The caller's selection of events, and its textual form.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use regex::Regex;

use crate::step_names::StepNames;
use crate::window::Bound;

/// What the output shall contain; everything by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterSettings {
    /// Ranks whose traces are wanted.
    pub ranks: Option<Ranks>,
    /// Start, on the reference clock.
    pub from: Bound,
    /// End.
    pub to: Bound,
    /// Steps of the program; combined with times, the intersection of both.
    pub steps: Option<Steps>,
    /// Which events are steps.
    pub step_names: StepNames,
    /// Kinds of events.
    pub only: Kinds,
    /// Largest size of the output before compression, bytes.
    pub bytes_max: Option<u64>,
}

impl FilterSettings {
    /// Whether anything is to be omitted.
    pub fn is_asked(&self) -> bool {
        self.ranks.is_some() || self.flag().is_some()
    }

    /// The first flag by which events are left out.
    pub(crate) fn flag(&self) -> Option<&'static str> {
        let asked = [
            (self.steps.is_some(), "--steps"),
            (self.from != Bound::Open, "--from"),
            (self.to != Bound::Open, "--to"),
            (!self.only.is_everything(), "--only"),
            (self.bytes_max.is_some(), "--max-size"),
        ];
        asked.into_iter().find_map(|(asked, flag)| asked.then_some(flag))
    }
}

/// As the flags that say the same.
impl fmt::Display for FilterSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, from, to, steps, step_names: _, only, bytes_max } = self;
        let bound = |bound: &Bound| (*bound != Bound::Open).then(|| bound.to_string());
        let all = [
            ("--ranks", ranks.as_ref().map(ToString::to_string)),
            ("--steps", steps.as_ref().map(ToString::to_string)),
            ("--from", bound(from)),
            ("--to", bound(to)),
            ("--only", (!only.is_everything()).then(|| only.to_string())),
            ("--max-size", bytes_max.map(|bytes| bytes.to_string())),
        ];
        let said = all.into_iter().filter_map(|(flag, value)| Some(format!("{flag} {}", value?)));
        f.write_str(&said.collect::<Vec<_>>().join(" "))
    }
}

/// Ranks: `0-7,12`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranks(Vec<RangeInclusive<u32>>);

impl Ranks {
    /// Whether a rank is included.
    pub fn contains(&self, rank: u32) -> bool {
        self.0.iter().any(|range| range.contains(&rank))
    }

    /// Number of ranks.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|range| 1 + u64::from(*range.end()) - u64::from(*range.start())).sum()
    }

    /// The ranges that contain none of these ranks.
    pub(crate) fn without_any(&self, ranks: &[u32]) -> Vec<String> {
        let absent = self.0.iter().filter(|range| !ranks.iter().any(|rank| range.contains(rank)));
        absent.map(text_of).collect()
    }
}

impl FromStr for Ranks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is not a list of ranks, such as 0-7,12");
        let range = |part: &str| -> Option<RangeInclusive<u32>> {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = first.trim().parse().ok()?..=last.trim().parse().ok()?;
            (!range.is_empty()).then_some(range)
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        ranges.map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(text_of).collect::<Vec<_>>().join(","))
    }
}

fn text_of(range: &RangeInclusive<u32>) -> String {
    let (first, last) = (range.start(), range.end());
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// Range of steps, both ends included: `10..12` are three.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps(pub RangeInclusive<i64>);

impl FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let last = last.strip_prefix('=').unwrap_or(last);
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self(first..=last)),
            (Ok(_), Ok(_)) => Err(format!("{text} ends before it begins")),
            _ => Err(format!("{text} is not a range of steps, such as 10..12 (three steps) or 10")),
        }
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.0.start(), self.0.end())
    }
}

/// Kinds of events; an event of any of them is kept. None set: all.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// Parts of collective operations.
    pub collectives: bool,
    /// Events on devices.
    pub gpu: bool,
    /// Events on hosts.
    pub cpu: bool,
    /// Steps of the program.
    pub steps: bool,
    /// Events with these names.
    pub names: Vec<Regex>,
}

impl Kinds {
    /// Adds `collectives`, `gpu`, `cpu`, `steps`, several of them (`gpu,steps`), or a pattern of
    /// names.
    ///
    /// # Errors
    /// States what is wrong with the pattern.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let mut known = self.clone();
        if text.split(',').all(|kind| known.add_kind(kind)) {
            *self = known;
            return Ok(());
        }
        self.names.push(Regex::new(text).map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Adds a kind by its name; whether it is one.
    fn add_kind(&mut self, name: &str) -> bool {
        let kind = match name {
            "collectives" => &mut self.collectives,
            "gpu" => &mut self.gpu,
            "cpu" => &mut self.cpu,
            "steps" => &mut self.steps,
            _ => return false,
        };
        *kind = true;
        true
    }

    /// Whether no event is omitted because of its kind.
    pub fn is_everything(&self) -> bool {
        let Self { collectives, gpu, cpu, steps, names } = self;
        !(*collectives || *gpu || *cpu || *steps) && names.is_empty()
    }
}

/// Compares the text of the patterns.
impl PartialEq for Kinds {
    fn eq(&self, other: &Self) -> bool {
        let key = |kinds: &Self| (kinds.collectives, kinds.gpu, kinds.cpu, kinds.steps);
        key(self) == key(other) && self.names.iter().map(Regex::as_str).eq(other.names.iter().map(Regex::as_str))
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [(self.collectives, "collectives"), (self.gpu, "gpu"), (self.cpu, "cpu"), (self.steps, "steps")];
        let named = named.into_iter().filter_map(|(wanted, name)| wanted.then_some(name));
        f.write_str(&named.chain(self.names.iter().map(Regex::as_str)).collect::<Vec<_>>().join(", "))
    }
}
