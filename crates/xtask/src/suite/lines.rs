//! Reads `steps.txt`: sections of steps, of abbreviations and of virtual environments.

/// One line of `steps.txt`.
pub struct Job {
    /// Name, by which `--only` asks for it.
    pub name: &'static str,
    /// What it is judged by.
    pub judged: &'static str,
    /// What one would type.
    pub line: &'static str,
}

impl Job {
    /// Takes a line apart.
    pub fn new(line: &'static str) -> Self {
        let mut parts = line.splitn(3, " | ");
        let [name, judged, line] = [(); 3].map(|()| parts.next().expect("three parts, as a test of steps.txt checks"));
        Self { name, judged, line }
    }
}

/// The lines of a section.
pub fn lines(section: &str) -> impl Iterator<Item = &'static str> {
    let (_, rest) = STEPS.split_once(&format!("\n[{section}]\n")).expect("a section of steps.txt");
    let lines = rest.lines().take_while(|line| !line.starts_with('['));
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// What a section says about a word.
pub fn meaning(section: &str, word: &str) -> Option<&'static str> {
    lines(section).find_map(|line| line.strip_prefix(word)?.strip_prefix(" = "))
}

/// A line without abbreviations.
pub fn spelled_out(line: &str) -> String {
    let words = line.split(' ').map(|word| meaning("words", word).map_or_else(|| word.to_owned(), spelled_out));
    words.collect::<Vec<_>>().join(" ")
}

/// The whole file.
pub const STEPS: &str = include_str!("steps.txt");
