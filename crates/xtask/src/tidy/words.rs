//! Words that this project no longer uses, and what it says instead.
//!
//! Place in the flow: a rule of `cargo xtask tidy`. The reader is an engineer of this field whose first language may not be
//! English, so figures of speech gave way to the field's terms (`docs/glossary.md`). Texts are split into words, and
//! identifiers into their parts (`snake_case`, `CamelCase`); an entry is a sequence of such words, in any case.
//! What it does not do: know what a word means. Words with a plain meaning beside the retired one are matched only
//! together with a neighbour, or as an identifier.

use std::collections::BTreeSet;

use super::source::Source;

/// Whether the rule holds for that file. The changelog tells what things were called.
pub fn applies(name: &str) -> bool {
    name == "README.md" || FOLDERS.iter().any(|folder| name.starts_with(folder))
}

/// Complaints about one file; `name` is its path from the root, which is read as well.
pub fn check(name: &str, text: &str) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (index, line) in std::iter::once(name).chain(text.lines()).enumerate() {
        found.extend(retired(line).into_iter().map(|hit| (index.max(1), hit)));
    }
    if name.ends_with(".rs") {
        for (index, line) in Source::new(text).code().lines().enumerate() {
            let words = identifiers(line).into_iter().filter(|parts| parts.len() == 1).flatten();
            found.extend(words.filter_map(|word| Some((index + 1, retired_identifier(&word)?))));
        }
    }
    found.iter().map(|(line, (word, instead))| format!("{name}:{line}: retired word \"{word}\": {instead}")).collect()
}

/// The entry and what to say instead.
type Hit = (&'static str, &'static str);

fn retired(line: &str) -> Vec<Hit> {
    let identifiers = identifiers(line);
    // A test's name is a sentence, in which a point may lie between others.
    let of_several = identifiers.iter().filter(|parts| (2..SENTENCE).contains(&parts.len())).flatten();
    let mut hits: Vec<Hit> = of_several.filter_map(|part| retired_identifier(part)).collect();
    let words: Vec<&str> = identifiers.iter().flatten().map(String::as_str).collect();
    hits.extend(RETIRED.iter().filter(|(sequence, _)| holds(&words, sequence)));
    hits
}

/// Words that are fine in a sentence and retired as an identifier or a part of one.
fn retired_identifier(word: &str) -> Option<Hit> {
    RETIRED_IDENTIFIERS.into_iter().find(|(retired, _)| *retired == word)
}

/// Whether the words of `sequence`, joined by blanks, stand among `words` one after another.
fn holds(words: &[&str], sequence: &str) -> bool {
    let sequence: Vec<&str> = sequence.split(' ').collect();
    words.windows(sequence.len()).enumerate().any(|(at, window)| {
        let common_phrase = at > 0 && COMMON.contains(&(words[at - 1], sequence[0]));
        window == sequence && !common_phrase
    })
}

/// The identifiers and words of a line, each as its parts in lower case.
fn identifiers(line: &str) -> Vec<Vec<String>> {
    let whole = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    let parts = whole.map(|word| word.split('_').flat_map(humps).map(str::to_lowercase).collect::<Vec<_>>());
    parts.filter(|parts| !parts.is_empty()).collect()
}

/// `EdgeFit` at its capitals, `RTTMargin` before the last of several.
fn humps(word: &str) -> Vec<&str> {
    let letters: Vec<(usize, char)> = word.char_indices().collect();
    let starts_hump = |at: usize| {
        let (before, here) = (letters[at - 1].1, letters[at].1);
        let next_is_small = letters.get(at + 1).is_some_and(|(_, next)| next.is_lowercase());
        here.is_uppercase() && (!before.is_uppercase() || next_is_small)
    };
    let mut found = Vec::new();
    let mut from = 0;
    for at in (1..letters.len()).filter(|at| starts_hump(*at)) {
        found.push(&word[from..letters[at].0]);
        from = letters[at].0;
    }
    found.push(&word[from..]);
    found.retain(|part| !part.is_empty());
    found
}

const FOLDERS: [&str; 6] = ["crates/", "docs/", "proto/", "bench/", "mpi-tests/", "fuzz/"];

/// Every retired word with its successor; split, so that this file does not complain about itself.
const RETIRED: [Hit; 41] = [
    (concat!("li", "ar"), "falseticker"),
    (concat!("li", "ars"), "falseticker"),
    (concat!("a l", "ie"), INCONSISTENT),
    (concat!("constant li", "e"), INCONSISTENT),
    (concat!("li", "es to"), INCONSISTENT),
    (concat!("li", "e to"), INCONSISTENT),
    (concat!("li", "es told"), INCONSISTENT),
    (concat!("telling li", "es"), INCONSISTENT),
    (concat!("stamp li", "es"), INCONSISTENT),
    (concat!("stamps li", "e"), INCONSISTENT),
    (concat!("who li", "es"), INCONSISTENT),
    (concat!("spo", "ilt"), "invalid"),
    (concat!("cou", "rse"), "prediction or history"),
    (concat!("cou", "rses"), "prediction or history"),
    (concat!("bo", "nd"), "node pair"),
    (concat!("bo", "nds"), "node pair"),
    (concat!("gr", "ip"), "weight sum"),
    (concat!("to", "rn"), "gap at step"),
    (concat!("par", "cel"), "packet in flight"),
    (concat!("par", "cels"), "packet in flight"),
    (concat!("led", "ger"), "ground truth counters"),
    (concat!("led", "gers"), "ground truth counters"),
    (concat!("str", "ange"), "gate; of packets and connections: foreign"),
    (concat!("stra", "nger"), "gate; of packets and connections: foreign"),
    (concat!("stra", "ngers"), "gate; of packets and connections: foreign"),
    (concat!("dou", "bted"), "pending outlier"),
    (concat!("ob", "ey"), "handle_command"),
    (concat!("ob", "eys"), "handle_command"),
    (concat!("obe", "yed"), "handle_command"),
    (concat!("sign of li", "fe"), "liveness"),
    (concat!("signs of li", "fe"), "liveness"),
    (concat!("introd", "uction"), "hello"),
    (concat!("introd", "uctions"), "hello"),
    (concat!("pres", "ence"), "ready (hand-shake) or membership (faults)"),
    (concat!("pati", "ence"), "deadline"),
    (concat!("outl", "asted"), "extended"),
    (concat!("out", "look"), "error budget or what-if covariance"),
    (concat!("outl", "ooks"), "error budget or what-if covariance"),
    (concat!("pros", "pect"), "error budget or what-if covariance"),
    (concat!("pros", "pects"), "error budget or what-if covariance"),
    (concat!("no sc", "hedule"), "invalid"),
];

/// Retired in code, and plain English in sentences: points lie between others, and weights may pull.
const RETIRED_IDENTIFIERS: [Hit; 5] = [
    (concat!("l", "ie"), INCONSISTENT),
    (concat!("li", "es"), INCONSISTENT),
    (concat!("li", "ed"), INCONSISTENT),
    (concat!("pu", "ll"), "weighted residual sum"),
    (concat!("pu", "lls"), "weighted residual sum"),
];

/// So many parts make an identifier a sentence.
const SENTENCE: usize = 4;

/// A word before another that makes a common phrase of both.
const COMMON: [(&str, &str); 1] = [("of", concat!("cou", "rse"))];

const INCONSISTENT: &str = "is wrong by, or inconsistent";

#[cfg(test)]
mod tests {
    /// Lines with a complaint, and the words that it is about.
    fn check(name: &str, text: &str, expected: &[(usize, &str)]) {
        let complaints = super::check(name, text);
        assert_eq!(complaints.len(), expected.len(), "{complaints:?}");
        for (complaint, (line, word)) in complaints.iter().zip(expected) {
            assert!(complaint.starts_with(&format!("{name}:{line}: retired word \"{word}\"")), "{complaint}");
        }
    }

    #[test]
    fn whole_words_are_matched_in_any_case_and_inside_identifiers() {
        let (noun, verb) = (concat!("li", "ar"), concat!("obe", "y"));
        check(
            "docs/a.md",
            &format!("fine\nA {noun}, and {}S.\n", noun.to_uppercase()),
            &[(2, noun), (2, &format!("{noun}s"))],
        );
        check("docs/a.md", &format!("fami{noun} {noun}d\n"), &[]);
        check("crates/a/src/a.rs", &format!("fn {verb}_it() {{}}\nstruct Im{verb} {{}}\n"), &[(1, verb)]);
        check("crates/a/src/a.rs", &format!("let x = RTT{}State;\n", concat!("Obe", "y")), &[(1, verb)]);
        check(
            "crates/a/src/a.rs",
            &format!("// sign {}, sign_{}\n", "of the times", concat!("of_li", "fe")),
            &[(1, concat!("sign of li", "fe"))],
        );
        check(&format!("bench/{noun}_ramp.toml"), "fine\n", &[(1, noun)]);
    }

    #[test]
    fn plain_words_remain() {
        let (word, noun) = (concat!("cou", "rse"), concat!("li", "e"));
        check("docs/a.md", &format!("Of {word} the {word} is lost.\n"), &[(1, word)]);
        check("docs/a.md", &format!("Of {word}.\n"), &[]);
        check("docs/a.md", "The point lies between both; files lie in a folder. Weights pull.\n", &[]);
        check("docs/a.md", concat!("A node that li", "es to its peers.\n"), &[(1, concat!("li", "es to"))]);
        check(
            "crates/a/src/a.rs",
            &format!("let {noun}s = 1; // where it lies\nfn {noun}_ns() {{}}\n"),
            &[(1, &format!("{noun}s")), (2, noun)],
        );
        check("docs/a.md", concat!("`Li", "eStamps`\n"), &[(1, noun)]);
        check("crates/a/src/a.rs", "fn truth_lies_inside_the_bounds() {}\n", &[]);
    }
}
