//! Session settings by name, as text, for the C functions and other external sources of settings.
//!
//! It does not check settings against each other; [`Builder::start`] does.

use std::time::Duration;

use super::builder::Builder;
use super::settings::Policy;
use crate::active::core::Reach;
use crate::clock::RecordClock;
use crate::error::Error;
use crate::kind::Kind;

impl Builder {
    /// Sets one setting from its text: `reach` (process, thread), `policy` (drop_newest, flight,
    /// stream), `bytes` (64MiB), `every` (200ms, how often a stream appends), `spill` (a path),
    /// `kinds` (user,collective), `one_in`, `longer_than`, `clock` (best, tsc, monotonic_raw),
    /// `pair_period`, `threads`, `keep`, `rank`, `devices` (cupti), `control` (a folder), and with
    /// true or false `details`, `shapes`, `stacks`, `modules`, `flops`, `memory`, `count_omitted`,
    /// `paused`, `on_demand`.
    ///
    /// # Errors
    /// [`Error::Setting`] names the setting and its valid values.
    pub fn set(self, key: &str, value: &str) -> Result<Self, Error> {
        let Some(name) = KEYS.into_iter().find(|known| *known == key) else {
            let reason = format!("`{key}` is not a setting; the settings are {}", KEYS.join(", "));
            return Err(Error::Setting { setting: "setting", reason });
        };
        let value = value.trim();
        let refused = |reason: String| Error::Setting { setting: name, reason };
        let span = || duration(value).map_err(refused);
        let number = || value.parse().map_err(|_| refused(format!("`{value}` is not a number; write for example 4")));
        let yes = || value.parse().map_err(|_| refused(format!("`{value}` is neither true nor false")));
        let one_of = |names: &str| refused(format!("`{value}` is not one of {names}"));
        Ok(match name {
            "reach" => self.reach(match value {
                "process" => Reach::Process,
                "thread" => Reach::Thread,
                _ => return Err(one_of("process, thread")),
            }),
            "policy" => {
                let bytes = self.present_policy().bytes();
                self.policy(match value {
                    "drop_newest" => Policy::DropNewest { bytes },
                    "flight" => Policy::Flight { bytes },
                    "stream" => Policy::Stream { bytes, every: STREAM_PERIOD },
                    _ => return Err(one_of("drop_newest, flight, stream")),
                })
            }
            "bytes" => {
                let policy = with_bytes(self.present_policy(), bytes(value).map_err(refused)?);
                self.policy(policy)
            }
            "every" => match self.present_policy() {
                Policy::Stream { bytes, .. } => self.policy(Policy::Stream { bytes, every: span()? }),
                _ => return Err(refused("only a stream appends; set policy to stream first".into())),
            },
            "spill" if value.is_empty() => return Err(refused("the file name is missing".into())),
            "spill" => self.spill(value),
            "kinds" => {
                let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
                self.kinds(&names.map(str::parse).collect::<Result<Vec<Kind>, String>>().map_err(refused)?)
            }
            "one_in" => self.one_in(number()?),
            "longer_than" => self.longer_than(span()?),
            "clock" => self.clock(match value {
                "best" => RecordClock::Best,
                "tsc" => RecordClock::Tsc,
                "monotonic_raw" => RecordClock::MonotonicRaw,
                _ => return Err(one_of("best, tsc, monotonic_raw")),
            }),
            "pair_period" => self.pair_period(span()?),
            "threads" => self.threads(number()? as usize),
            "keep" => self.keep(span()?),
            "details" => self.details(yes()?),
            "shapes" => self.shapes(yes()?),
            "stacks" => self.stacks(yes()?),
            "modules" => self.modules(yes()?),
            "flops" => self.flops(yes()?),
            "memory" => self.memory(yes()?),
            "count_omitted" => self.count_omitted(yes()?),
            "rank" => self.rank(number()?),
            "devices" => self.with_devices(value).map_err(refused)?,
            "paused" => self.paused_if(yes()?),
            "control" if value.is_empty() => return Err(refused("the folder name is missing".into())),
            "control" => self.control(value),
            // `on_demand`, the last of them.
            _ if yes()? => self.on_demand(),
            _ => self,
        })
    }

    /// Adds a backend of devices by its name.
    fn with_devices(self, name: &str) -> Result<Self, String> {
        match name {
            #[cfg(feature = "cupti")]
            "cupti" => Ok(self.backend(crate::backend::Cupti::new())),
            #[cfg(not(feature = "cupti"))]
            "cupti" => Err("this library was built without the feature cupti".into()),
            _ => Err(format!("`{name}` is not one of cupti")),
        }
    }
}

fn with_bytes(policy: Policy, bytes: usize) -> Policy {
    match policy {
        Policy::DropNewest { .. } => Policy::DropNewest { bytes },
        Policy::Flight { .. } => Policy::Flight { bytes },
        Policy::Stream { every, .. } => Policy::Stream { bytes, every },
    }
}

/// Splits a number from its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim()))
}

fn duration(text: &str) -> Result<Duration, String> {
    let unit = |unit: &str| UNITS_OF_TIME.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds);
    let seconds = split(text).and_then(|(number, name)| Some(number * unit(name)?));
    let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    span.ok_or_else(|| {
        format!("`{text}` is not a time; write a number with its unit, for example 200ms (ns, us, ms, s, min)")
    })
}

fn bytes(text: &str) -> Result<usize, String> {
    let unit = |unit: &str| UNITS_OF_BYTES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let bytes = split(text).and_then(|(number, name)| Some(number * unit(name)?.1));
    let bytes = bytes.filter(|bytes| *bytes <= crate::layout::BYTES_LIMIT as f64);
    bytes.map(|bytes| bytes as usize).ok_or_else(|| {
        format!("`{text}` is not a number of bytes up to 1 TiB; write for example 64MiB (KiB, MiB, GiB, kB, MB, GB)")
    })
}

const KEYS: [&str; 24] = [
    "reach",
    "policy",
    "bytes",
    "every",
    "spill",
    "kinds",
    "one_in",
    "longer_than",
    "clock",
    "pair_period",
    "threads",
    "keep",
    "details",
    "shapes",
    "stacks",
    "modules",
    "flops",
    "memory",
    "count_omitted",
    "rank",
    "devices",
    "paused",
    "control",
    "on_demand",
];

const UNITS_OF_TIME: [(&str, f64); 5] = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0)];
const UNITS_OF_BYTES: [(&str, f64); 8] = [
    ("", 1.0),
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
];

/// Default interval at which a stream appends.
const STREAM_PERIOD: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recorder;

    fn check(key: &str, value: &str, expected: &str) {
        let shown = match Recorder::builder().set(key, value) {
            Ok(builder) => format!("{builder:?}"),
            Err(error) => error.to_string(),
        };
        assert!(shown.contains(expected), "{key} = {value}: {shown}");
    }

    #[test]
    fn every_setting_has_a_text() {
        for (key, value, expected) in [
            ("reach", "thread", "reach: Thread"),
            ("reach", "process", "reach: Process"),
            ("policy", "flight", "policy: Flight { bytes: 67108864 }"),
            ("policy", "drop_newest", "policy: DropNewest"),
            ("policy", "stream", "every: 200ms"),
            ("bytes", "1.5 MiB", "bytes: 1572864"),
            ("bytes", "2mb", "bytes: 2000000"),
            ("spill", "a.rec", "spill: Some(\"a.rec\")"),
            ("kinds", "user, io,", "kinds: Kinds(36)"),
            ("kinds", "", "kinds: Kinds(0)"),
            ("one_in", "7", "every: 7"),
            ("longer_than", "20us", "longer_than: 20µs"),
            ("clock", "best", "clock: Best"),
            ("clock", "tsc", "clock: Tsc"),
            ("clock", "monotonic_raw", "clock: MonotonicRaw"),
            ("pair_period", "0.5s", "pair_period: 500ms"),
            ("threads", "9", "threads: 9"),
            ("keep", "2min", "keep: Some(120s)"),
            ("details", "false", "details: Details(0)"),
            ("shapes", "false", "details: Details(30)"),
            ("stacks", "false", "details: Details(29)"),
            ("modules", "false", "details: Details(27)"),
            ("flops", "false", "details: Details(23)"),
            ("memory", "false", "kinds: Kinds(191)"),
            ("count_omitted", "true", "counts_omitted: true"),
            ("rank", "3", "rank: Some(3)"),
            #[cfg(feature = "cupti")]
            ("devices", "cupti", "backends: [Backend]"),
            #[cfg(not(feature = "cupti"))]
            ("devices", "cupti", "devices: this library was built without the feature cupti"),
            ("devices", "tpu", "devices: `tpu` is not one of cupti"),
            ("paused", "true", "paused: true"),
            ("control", "sockets", "control: Some(\"sockets\")"),
            ("control", "", "control: the folder name is missing"),
            ("on_demand", "true", "on_demand: true"),
            ("on_demand", "false", "on_demand: false"),
            ("window", "1s", "`window` is not a setting; the settings are reach, policy"),
            ("reach", "cluster", "reach: `cluster` is not one of process, thread"),
            ("policy", "ring", "policy: `ring` is not one of drop_newest"),
            ("bytes", "many", "bytes: `many` is not a number of bytes"),
            ("bytes", "2000GiB", "up to 1 TiB"),
            ("every", "1s", "every: only a stream appends"),
            ("spill", "", "spill: the file name is missing"),
            ("kinds", "steps", "`steps` is not an event kind; use one of function"),
            ("one_in", "-1", "one_in: `-1` is not a number"),
            ("keep", "5", "keep: `5` is not a time"),
            ("keep", "..s", "keep: `..s` is not a time"),
            ("clock", "hpet", "not one of best, tsc, monotonic_raw"),
            ("details", "1", "details: `1` is neither true nor false"),
        ] {
            check(key, value, expected);
        }
    }

    #[test]
    fn a_policy_keeps_what_was_set_of_it() {
        let set = |builder: Builder, key, value| builder.set(key, value).expect("right");
        let mut builder = Recorder::builder();
        for (key, value) in [("bytes", "1MiB"), ("policy", "stream"), ("every", "5ms"), ("bytes", "2MiB")] {
            builder = set(builder, key, value);
        }
        let expected = Policy::Stream { bytes: 2 << 20, every: Duration::from_millis(5) };
        assert_eq!(builder.present_policy(), expected);
        assert_eq!(
            set(Recorder::builder().policy(Policy::Flight { bytes: 1 }), "bytes", "9").present_policy().bytes(),
            9
        );
    }
}
