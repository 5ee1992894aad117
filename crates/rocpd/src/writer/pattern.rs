//! The expansion of rocprofv3's keys in the output name.
//!
//! The keys and the sources of their values are those of rocprofv3 (`--output-file`,
//! `--output-directory`): rank and size come from the launcher's variables, and `%nid%` is the rank
//! or, without one, the pid. It does not support keys of the command line (`%argv%`, `%tag%`) or of
//! the launch time, because they make files hard to find again.

use std::path::{Path, PathBuf};

use super::error::Error;
use super::process::Process;

/// Returns the path with all keys replaced.
pub(super) fn expand(output: &Path, process: &Process) -> Result<PathBuf, Error> {
    let refused = |problem: String| Error::Pattern { pattern: output.display().to_string(), problem, known: KNOWN };
    let mut rest = output.to_str().ok_or_else(|| refused("is not UTF-8".to_owned()))?;
    let mut path = String::new();
    while let Some(at) = rest.find(['%', '{']) {
        path += &rest[..at];
        rest = &rest[at..];
        let (value, length) = next_key(rest, process).map_err(refused)?;
        path += &value;
        rest = &rest[length..];
    }
    path += rest;
    Ok(PathBuf::from(path))
}

/// Returns the value of the key at the start of a text, and the length of the key.
fn next_key(text: &str, process: &Process) -> Result<(String, usize), String> {
    if let Some(variable) = text.strip_prefix("%env{") {
        let (name, _) = variable.split_once("}%").ok_or_else(|| format!("{text} does not end with }}%"))?;
        let value = std::env::var(name).map_err(|_| format!("the variable {name} is not set"))?;
        return Ok((value, "%env{}%".len() + name.len()));
    }
    let close = if text.starts_with('{') { '}' } else { '%' };
    if let Some((key, _)) = text[1..].split_once(close)
        && let Some(value) = value_of(key, process)
    {
        return Ok((value, key.len() + 2));
    }
    let short = text.strip_prefix('%').and_then(|rest| rest.chars().next());
    let long = short.and_then(|short| SHORT.iter().find(|(known, _)| *known == short));
    match long.and_then(|(_, key)| value_of(key, process)) {
        Some(value) => Ok((value, 2)),
        None => Err(format!("{text:?} does not begin with a known key")),
    }
}

fn value_of(key: &str, process: &Process) -> Option<String> {
    let rank = || process.variable(&RANK);
    Some(match key {
        "hostname" => process.hostname.clone(),
        "pid" => process.pid.to_string(),
        "ppid" => process.parent_pid.to_string(),
        "pgid" => rustix::process::getpgrp().as_raw_nonzero().to_string(),
        "job" => process.variable(&["SLURM_JOB_ID"]).unwrap_or_else(|| "0".to_owned()),
        "rank" => rank().unwrap_or_else(|| "0".to_owned()),
        "size" => process.variable(&SIZE).unwrap_or_else(|| "1".to_owned()),
        "nid" => rank().unwrap_or_else(|| process.pid.to_string()),
        _ => return None,
    })
}

const KNOWN: &str = "%hostname% %pid% %ppid% %pgid% %rank% %size% %job% %nid% %env{NAME}%, and %h %p %r %s %j";

const SHORT: [(char, &str); 5] = [('h', "hostname"), ('p', "pid"), ('j', "job"), ('r', "rank"), ('s', "size")];

const RANK: [&str; 6] =
    ["SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "RANK"];
const SIZE: [&str; 5] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS", "WORLD_SIZE"];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Process, expand};

    fn process() -> Process {
        let environment = [("SLURM_PROCID", "3"), ("WORLD_SIZE", "8")];
        Process {
            hostname: "node7".to_owned(),
            pid: 41,
            parent_pid: 40,
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..Process::default()
        }
    }

    #[test]
    fn keys_are_those_of_rocprofv3() {
        for (pattern, expected) in [
            ("%hostname%/%pid%_results.db", "node7/41_results.db"),
            ("{hostname}/{pid}.db", "node7/41.db"),
            ("%h-%p-%r-%s-%j.db", "node7-41-3-8-0.db"),
            ("%ppid%.%nid%.%rank%.%size%", "40.3.3.8"),
            ("plain.db", "plain.db"),
        ] {
            assert_eq!(expand(Path::new(pattern), &process()).expect("a path"), Path::new(expected));
        }
        let alone = Process { environment: Default::default(), ..process() };
        assert_eq!(expand(Path::new("%nid%"), &alone).expect("a path"), Path::new("41"));
    }

    #[test]
    fn unknown_keys_are_refused() {
        for pattern in ["%hots%.db", "100%", "%env{PROBE_SYNC_SURELY_UNSET}%.db", "%env{HOME", "{pi}"] {
            let refused = expand(Path::new(pattern), &process()).expect_err("refused").to_string();
            assert!(refused.contains(pattern) && refused.contains("%hostname%"), "{refused}");
        }
    }
}
