//! Completions are taken by the shells that they are for, pages by the reader of manual pages; each
//! that is not installed is named.

use std::path::Path;
use std::process::Command;

use crate::support::{output, probe_sync};

fn printed(arguments: &[&str]) -> String {
    let output = output(probe_sync(arguments));
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The output of a program; `None`, with a message, if it is not installed.
fn said_by(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => {
            let all = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
            assert!(output.status.success(), "{program}: {all}");
            Some(all)
        }
        Err(error) => {
            println!("skipped: {program}: {error}; Debian: apt-get install {program}");
            None
        }
    }
}

fn check(shell: &str, script: &str, expected: &[&str]) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("completions");
    std::fs::write(&path, printed(&["completions", shell])).expect("room");
    let free = match shell {
        "bash" => "--norc",
        "zsh" => "-f",
        _ => "--no-config",
    };
    let script = script.replace("FILE", &path.to_string_lossy());
    let Some(said) = said_by(shell, &[free, "-c", &script]) else { return };
    for text in expected {
        assert!(said.contains(text), "{shell} lacks {text}: {said}");
    }
}

#[test]
fn bash_completes_commands_and_flags() {
    let ask = |words: &str, at: usize| {
        format!(
            "source FILE; COMP_WORDS=({words}); COMP_CWORD={at}; _probe_sync probe_sync; echo \"${{COMPREPLY[@]}}\""
        )
    };
    check("bash", &ask("probe_sync al", 1), &["align"]);
    check("bash", &ask("probe_sync merge --", 2), &["--run-dir", "--validate"]);
    check("bash", &ask("probe_sync record r", 2), &["recover"]);
}

#[test]
fn zsh_and_fish_load_them() {
    check("zsh", "autoload -U compinit; compinit -u; source FILE; echo $_comps[probe_sync]", &["_probe_sync"]);
    check(
        "fish",
        "source FILE; complete -C 'probe_sync al'; complete -C 'probe_sync align --tr'",
        &["align", "--trace"],
    );
}

#[test]
fn every_command_has_a_page_and_the_reader_of_pages_finds_no_fault() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let pages = folder.path().join("man");
    printed(&["man", "--output", &pages.to_string_lossy()]);
    let page = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(page("probe_sync.1"), printed(&["man"]));
    assert!(
        page("probe_sync-align.1").contains(".SH \"WHICH NODE WROTE A TRACE\"\n.nf\nprobe_sync uses the host name")
    );
    assert!(page("probe_sync-clock.1").contains(".SH \"EXIT STATUS\""));
    let names = files(&pages);
    for command in ["run", "solve", "merge", "check", "sim", "doctor", "completions", "ctl-pause", "record-convert"] {
        assert!(names.contains(&format!("probe_sync-{command}.1")), "{command} is not among {names:?}");
    }
    let paths: Vec<String> = names.iter().map(|name| pages.join(name).to_string_lossy().into_owned()).collect();
    let arguments: Vec<&str> =
        ["-T", "lint", "-W", "warning"].into_iter().chain(paths.iter().map(String::as_str)).collect();
    assert_eq!(said_by("mandoc", &arguments).unwrap_or_default(), "");
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}
