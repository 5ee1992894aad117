//! Translation of command lines of the XLA distributed profiler's tools (`graph_calc_main`,
//! `trace_combiner.py`, `validate_collectives.py`) into ours.
//!
//! This runs before arguments are parsed. A flag with an equivalent is rewritten in our spelling,
//! and one line reports it; a flag without an equivalent is an error that names the alternatives.
//! Both `--flag value` and `--flag=value` are accepted. Our own flags are left unchanged.

use std::ffi::OsString;

/// The translation of one of their flags.
enum Becomes {
    /// A flag of ours, with the same values.
    Flag(&'static str),
    /// A flag of ours with repeated values, which theirs separates by commas.
    List(&'static str),
    /// Nothing: it is the default behaviour.
    Done(&'static str),
    /// An error that says what to do.
    Refused(&'static str),
}

/// One of their flags: the commands that take it, its name without dashes and with `_`, and its
/// translation.
struct Old(&'static [&'static str], &'static str, Becomes);

/// Translates their arguments to ours, and returns the line that reports the translation;
/// `arguments` begin with the name of the program.
///
/// # Errors
/// Names the flag, and what to use instead.
pub fn translate(arguments: Vec<OsString>) -> Result<(Vec<OsString>, Option<String>), String> {
    let command = arguments.get(1).and_then(|command| command.to_str()).unwrap_or_default().to_owned();
    let mut ours: Vec<OsString> = Vec::with_capacity(arguments.len());
    let mut said: Vec<String> = Vec::new();
    let mut rest = arguments.into_iter();
    // Bounded: the arguments.
    while let Some(argument) = rest.next() {
        if argument == "--" {
            ours.push(argument);
            ours.extend(rest);
            break;
        }
        let Some((name, value, old)) = argument.to_str().and_then(|text| known(&command, text)) else {
            ours.push(argument);
            continue;
        };
        match old.2 {
            Becomes::Refused(reason) => return Err(format!("--{name}: {reason}")),
            Becomes::Done(why) => said.push(format!("--{name} accepted ({why})")),
            Becomes::Flag(flag) => {
                said.push(format!("--{name} read as --{flag}"));
                ours.push(format!("--{flag}").into());
                ours.extend(value.map(OsString::from));
            }
            Becomes::List(flag) => {
                let values = value.map(OsString::from).or_else(|| rest.next());
                let values = values.as_ref().and_then(|values| values.to_str());
                let values =
                    values.ok_or_else(|| format!("--{name} needs files; the new flag is --{flag} FILE FILE"))?;
                said.push(format!("--{name} read as --{flag} {}", values.replace(',', " ")));
                ours.push(format!("--{flag}").into());
                ours.extend(values.split(',').map(OsString::from));
            }
        }
    }
    let line = (!said.is_empty()).then(|| format!("flags of the XLA distributed profiler: {}", said.join(", ")));
    Ok((ours, line))
}

/// The flag of theirs in an argument: its name as written, its value after `=`, and its entry in
/// the table.
fn known<'a>(command: &str, argument: &'a str) -> Option<(&'a str, Option<&'a str>, &'static Old)> {
    let flag = argument.strip_prefix("--")?;
    let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
    let plain = name.replace('-', "_");
    let old = OLD.iter().find(|Old(commands, old, _)| commands.contains(&command) && *old == plain)?;
    // Our own spelling needs no translation.
    let own = matches!(old.2, Becomes::Flag(ours) if ours == name);
    (!own).then_some((name, value, old))
}

const TRACES: &[&str] = &["align", "merge", "convert", "check", "stragglers", "query"];

const OLD: &[Old] = &[
    Old(&["solve"], "input_files", Becomes::List("windows")),
    Old(&["solve"], "output_offsets", Becomes::Flag("out")),
    Old(&["solve"], "reference_node", Becomes::Flag("reference")),
    Old(&["solve"], "min_pairs", Becomes::Flag("min-pairs")),
    Old(&["solve"], "max_loss_ratio", Becomes::Flag("max-loss-ratio")),
    Old(
        &["solve"],
        "smoothing_factor",
        Becomes::Refused(
            "the whole run is smoothed at once, according to how the clocks wander, and there is no factor to set; omit it",
        ),
    ),
    Old(&["solve"], "num_nodes", Becomes::Refused("the nodes are those in the files; omit it")),
    Old(TRACES, "snapshot_pairs", Becomes::Flag("snapshots")),
    Old(TRACES, "run_dir", Becomes::Flag("run-dir")),
    Old(TRACES, "auto_discover", Becomes::Done("--run-dir finds traces, offsets and snapshots")),
    Old(TRACES, "run_metadata", Becomes::Refused("the new flag --run-dir DIR finds run.json")),
    Old(&["merge", "convert", "query"], "no_correction", Becomes::Flag("no-correction")),
    Old(
        &["align"],
        "no_correction",
        Becomes::Refused("align only corrects times; use merge --no-correction to merge traces as they are"),
    ),
    Old(
        &["check"],
        "no_correction",
        Becomes::Refused("traces are checked as they are unless --offsets or --run-dir is given; omit it"),
    ),
    Old(
        &["merge"],
        "plane_prefix",
        Becomes::Refused("the new flag is --plane-layout, with xprof or gpu-tracks; other layouts are not supported"),
    ),
    Old(
        TRACES,
        "print_events",
        Becomes::Refused(
            "events are not printed; use align or merge with --annotate to keep each event's correction in the output",
        ),
    ),
    Old(
        TRACES,
        "print_collectives",
        Becomes::Refused("collectives are not printed; use check --json FILE to write the checked operations"),
    ),
    Old(&["check"], "output", Becomes::Flag("json")),
    Old(
        &["check"],
        "csv",
        Becomes::Refused("there is no table of start gaps; --json FILE lists every broken edge with its times"),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &str, expected: Result<(&str, Option<&str>), &str>) {
        let given = arguments.split(' ').map(OsString::from).collect();
        match (translate(given), expected) {
            (Ok((ours, line)), Ok((expected, said))) => {
                assert_eq!(ours.join(&OsString::from(" ")).to_str(), Some(expected));
                let said = said.map(|said| format!("flags of the XLA distributed profiler: {said}"));
                assert_eq!(line, said, "{arguments}");
            }
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn flags_that_mean_the_same_are_put_in_our_spelling() {
        check("p solve --windows a --out b", Ok(("p solve --windows a --out b", None)));
        check(
            "p solve --input_files=a.jsonl,b.jsonl --output_offsets o --reference_node=1",
            Ok((
                "p solve --windows a.jsonl b.jsonl --out o --reference 1",
                Some(
                    "--input_files read as --windows a.jsonl b.jsonl, --output_offsets read as --out, --reference_node read as --reference",
                ),
            )),
        );
        check("p solve --min-pairs 3", Ok(("p solve --min-pairs 3", None)));
        check("p solve --min_pairs 3", Ok(("p solve --min-pairs 3", Some("--min_pairs read as --min-pairs"))));
        check(
            "p align --snapshot_pairs a b",
            Ok(("p align --snapshots a b", Some("--snapshot_pairs read as --snapshots"))),
        );
        for command in TRACES {
            let ours = format!("p {command} --snapshots a --run-dir d");
            let said = "--snapshot_pairs read as --snapshots, --run_dir read as --run-dir";
            check(&format!("p {command} --snapshot_pairs a --run_dir d"), Ok((&ours, Some(said))));
        }
        check("p check --output x.json", Ok(("p check --json x.json", Some("--output read as --json"))));
        check("p align --output x --run-dir d", Ok(("p align --output x --run-dir d", None)));
        check(
            "p merge --no_correction",
            Ok(("p merge --no-correction", Some("--no_correction read as --no-correction"))),
        );
        check("p merge --no-correction", Ok(("p merge --no-correction", None)));
        check("p run --output x -- --csv", Ok(("p run --output x -- --csv", None)));
        check(
            "p merge --run_dir d --auto_discover",
            Ok((
                "p merge --run-dir d",
                Some(
                    "--run_dir read as --run-dir, --auto_discover accepted (--run-dir finds traces, offsets and snapshots)",
                ),
            )),
        );
    }

    #[test]
    fn the_page_lists_every_flag() {
        let page = include_str!("../../../docs/xla.md");
        for Old(_, name, becomes) in OLD {
            assert!(page.contains(&format!("`--{name}")), "docs/xla.md lacks --{name}");
            if let Becomes::Flag(flag) | Becomes::List(flag) = becomes {
                assert!(page.contains(flag), "docs/xla.md lacks --{flag}");
            }
        }
    }

    #[test]
    fn others_name_what_there_is() {
        check("p solve --smoothing_factor=0.5", Err("--smoothing_factor: the whole run is smoothed at once"));
        check("p solve --num_nodes 4", Err("omit it"));
        check("p solve --input_files", Err("--windows FILE"));
        check("p align --no-correction", Err("merge --no-correction"));
        check("p check --csv gaps.csv", Err("--json FILE"));
        check("p merge --print_events", Err("--annotate"));
    }
}
