//! A configuration file with all settings and their defaults, as a starting point.
//!
//! `probe_sync config --example` prints it. It is generated from the table, so no key is missing
//! and every default is the effective one; loading it unchanged has no effect.

use super::{Config, KEYS, Key, Section};

/// Returns all settings as TOML, with their meanings and defaults. A key without a default that can
/// be written is commented out with `#`.
pub fn example() -> String {
    let mut text = String::from(
        "# Settings of probe_sync with their defaults: probe_sync run --config FILE.\n# A variable (PROBE_SYNC_ and the key in upper case) overrides the file,\n# a flag overrides both.\n",
    );
    let mut section: Option<Section> = None;
    for key in KEYS {
        if section.replace(key.section) != Some(key.section) {
            text += &format!("\n# {}\n", key.section.title());
        }
        text.push('\n');
        for line in wrapped(key.own_help(), WIDTH - 2) {
            text += &format!("# {line}\n");
        }
        match default(key) {
            Some(value) => text += &format!("{} = {value}\n", key.name),
            None => text += &format!("#{} = \n", key.name),
        }
    }
    text
}

/// Returns the default as a TOML value, if reading that gives the default again.
fn default(key: &Key) -> Option<String> {
    let written = (key.write)(&Config::default());
    let mut read = Config::default();
    (key.read)(&mut read, &written).ok()?;
    let plain = written.parse::<i64>().is_ok() || written.parse::<bool>().is_ok();
    (read == Config::default()).then(|| if plain { written } else { format!("{written:?}") })
}

/// Wraps words into lines of at most `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

const WIDTH: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_names_every_key_and_is_the_defaults() {
        let folder = tempfile::tempdir().expect("a folder");
        let (text, path) = (example(), folder.path().join("example.toml"));
        std::fs::write(&path, &text).expect("written");
        assert_eq!(
            Config::load(Some(&path), std::iter::empty(), &[]).expect("it is read"),
            Config::load(None, std::iter::empty(), &[]).expect("defaults")
        );
        for key in KEYS {
            let lines =
                text.lines().filter(|line| line.trim_start_matches('#').starts_with(&format!("{} =", key.name)));
            assert_eq!(lines.count(), 1, "{}", key.name);
        }
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        // A key behind a # could hide a default that is no longer read.
        let hidden: Vec<&str> = text.lines().filter(|line| line.starts_with('#') && line.ends_with("= ")).collect();
        assert!(hidden.len() < KEYS.len() / 2, "{hidden:?}");
    }
}
