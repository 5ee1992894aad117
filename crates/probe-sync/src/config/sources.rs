//! The sources of settings in increasing precedence: keys of the XLA distributed profiler in a
//! file, its variables, our keys in a file, `PROBE_SYNC_*`, flags. An old variable that is still
//! set somewhere therefore never overrides a setting made under our own names.
//!
//! [`super::Config::load`] checks the combined result. Every setting passes through
//! [`Config::set`]. One line reports each setting of the XLA profiler: how it was interpreted, or
//! that our own setting takes precedence.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::environment::{closest, is_of_others, is_reserved};
use super::xla::{self, Meaning, Report};
use super::{Config, Key};
use crate::Error;

/// One setting and its source.
struct Given {
    key: String,
    text: String,
    /// Description of the source, for errors.
    origin: String,
    /// Text for the log line of translated settings.
    shown: String,
    /// True for a variable of the XLA profiler.
    foreign: bool,
}

/// Collects the settings of all sources, unchecked.
///
/// # Errors
/// Names the source, the key and what is wrong with the value.
pub(super) fn gathered(
    file: Option<&Path>,
    environment: impl Iterator<Item = (OsString, OsString)>,
    flags: &[(String, String)],
) -> Result<Config, Error> {
    let mut report = Report::default();
    let variables = variables(environment, file, &mut report)?;
    let file = file.map(Path::to_owned).or(variables.file);
    let of_file = file.as_deref().map(of_file).transpose()?.unwrap_or_default();
    let (mut all, own): (Vec<Given>, _) =
        of_file.into_iter().partition(|given| xla::key(&given.key, &given.text).is_some());
    all.extend(variables.theirs);
    all.extend(own);
    all.extend(variables.ours);
    all.extend(flags.iter().map(|(key, text)| {
        let flag = format!("--{}", Key::named(key).map_or(key.as_str(), |key| key.flag));
        Given { key: key.clone(), text: text.clone(), shown: format!("{flag} {text}"), origin: flag, foreign: false }
    }));
    let config = set_all(&all, &mut report)?;
    for unknown in variables.unknown {
        tracing::warn!("{unknown}");
    }
    if let Some(line) = report.line() {
        tracing::info!("{line}");
    }
    Ok(config)
}

/// Applies the settings in order, and reports how those of the XLA profiler were interpreted.
fn set_all(all: &[Given], report: &mut Report) -> Result<Config, Error> {
    let mut config = Config::default();
    // By place in `all`: our key, and its value as the setting made it.
    let mut made: Vec<(usize, &'static Key, String)> = Vec::with_capacity(all.len());
    let mut translated = Vec::new();
    for (place, given) in all.iter().enumerate() {
        let wrong = |key: &str, reason| Error::Configuration { origin: given.origin.clone(), key: key.into(), reason };
        let asked = if given.foreign { xla::variable } else { xla::key };
        let meaning = asked(&given.key, &given.text).transpose().map_err(|reason| wrong(&given.key, reason))?;
        let (keys, text) = match &meaning {
            Some(Meaning::Done(why)) => {
                report.done(&given.shown, why);
                continue;
            }
            Some(Meaning::Set(keys, text)) => (keys.clone(), text.as_str()),
            None => (vec![given.key.as_str()], given.text.as_str()),
        };
        for key in keys {
            config.set(key, text, &given.origin)?;
            let Some(key) = Key::named(key) else { continue };
            if meaning.is_some() {
                translated.push((made.len(), text.to_owned()));
            }
            made.push((place, key, (key.write)(&config)));
        }
    }
    for (number, text) in translated {
        let (place, key, value) = &made[number];
        let last = made.iter().rev().find(|(_, other, _)| other.name == key.name);
        match last.filter(|(_, _, now)| now != value) {
            Some((winner, ..)) => report.beaten(&all[*place].shown, &all[*winner].shown),
            None => report.read(&all[*place].shown, &flag(key, &text)),
        }
    }
    Ok(config)
}

/// Formats a setting as it would appear on the command line.
fn flag(key: &Key, text: &str) -> String {
    if key.value_name.is_empty() { format!("--{}", key.flag) } else { format!("--{} {text}", key.flag) }
}

/// Environment variables that are settings.
struct Variables {
    /// Settings of the XLA profiler.
    theirs: Vec<Given>,
    /// Settings of probe_sync.
    ours: Vec<Given>,
    /// File named by the XLA profiler's variables, used if no other is given.
    file: Option<PathBuf>,
    /// Messages about unknown variables.
    unknown: Vec<String>,
}

/// Returns the message that a variable is not a setting, with the closest known one.
fn unknown_variable(key: &str) -> String {
    let closest = closest(key);
    format!("{ENVIRONMENT_PREFIX}{key} is not a setting; did you mean {ENVIRONMENT_PREFIX}{closest}?")
}

fn variables(
    environment: impl Iterator<Item = (OsString, OsString)>,
    file: Option<&Path>,
    report: &mut Report,
) -> Result<Variables, Error> {
    let mut found = Variables { theirs: Vec::new(), ours: Vec::new(), file: None, unknown: Vec::new() };
    for (name, value) in environment {
        // Other programs' variables may be anything; these are text.
        let Some(name) = name.to_str() else { continue };
        let text = value.to_string_lossy().into_owned();
        let (origin, shown) = (format!("environment variable {name}"), format!("{name}={text}"));
        if let Some(key) = name.strip_prefix(ENVIRONMENT_PREFIX) {
            let name = key.to_lowercase();
            if is_of_others(key, &text) || is_reserved(key) {
                continue;
            }
            if Key::named(&name).is_none() && xla::key(&name, &text).is_none() {
                found.unknown.push(unknown_variable(key));
                continue;
            }
            found.ours.push(Given { key: name, text, origin, shown, foreign: false });
        } else if name == xla::CONFIG {
            match file {
                Some(file) => report.beaten(&shown, &format!("--config {}", file.display())),
                None => {
                    report.read(&shown, &format!("--config {text}"));
                    found.file = Some(value.into());
                }
            }
        } else if let Some(meaning) = xla::variable(name, &text) {
            let key = name.to_owned();
            meaning.map_err(|reason| Error::Configuration {
                origin: "environment".into(),
                key: key.clone(),
                reason,
            })?;
            found.theirs.push(Given { key, text, origin, shown, foreign: true });
        }
    }
    // The environment has no order of its own.
    found.theirs.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(found)
}

/// Reads the settings of a file: TOML, or JSON if its name ends in that or it begins with a brace.
fn of_file(path: &Path) -> Result<Vec<Given>, Error> {
    let wrong = |reason: String| Error::ConfigurationFile { path: path.into(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let json = path.extension().is_some_and(|extension| extension == "json") || text.trim_start().starts_with('{');
    let table: serde_json::Map<String, serde_json::Value> = if json {
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?
    } else {
        toml::from_str(&text).map_err(|error| wrong(error.to_string()))?
    };
    let given = |(key, value): (String, serde_json::Value)| {
        let text = match value {
            serde_json::Value::String(text) => text,
            serde_json::Value::Number(number) => number.to_string(),
            serde_json::Value::Bool(flag) => flag.to_string(),
            // Lists of nodes, and what the XLA profiler has; their readers judge them.
            other if Key::named(&key).is_some_and(Key::is_list) || xla::key(&key, &other.to_string()).is_some() => {
                other.to_string()
            }
            other => return Err(wrong(format!("key {key}: expected a string, a number or true/false, found {other}"))),
        };
        let (origin, shown) = (path.display().to_string(), format!("{key} = {text} in {}", path.display()));
        Ok(Given { key, text, origin, shown, foreign: false })
    };
    table.into_iter().map(given).collect()
}

/// Prefix of the environment variables.
const ENVIRONMENT_PREFIX: &str = "PROBE_SYNC_";
