//! The exit statuses of every command, and the line that gives the reason.
//!
//! `main` ends with a [`Status`]; `--help` and docs/reference/commands.md take the meanings from
//! here. A library error is a failure unless it reports an invalid command line or configuration.

use std::io::ErrorKind;
use std::process::ExitCode;

use probe_sync_alignment::Error as AlignmentError;
use probe_sync_analysis::Error as AnalysisError;

use crate::output::Usage;

/// Exit status of a command.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The command did what was requested.
    Done = 0,
    /// The command failed.
    Failed = 1,
    /// The request is invalid: nothing was begun.
    Usage = 2,
    /// The check found violations.
    Violations = 3,
    /// The check found no violation, but had nothing to judge, or could not judge everything.
    Unjudged = 4,
}

/// Violations were found; everything was printed.
#[derive(Copy, Clone, Debug)]
pub struct Violations(pub usize);

impl std::fmt::Display for Violations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} happens-before edges are broken by more than the clocks' uncertainty", self.0)
    }
}

impl std::error::Error for Violations {}

/// Hosts are unfit for a job; everything was printed.
#[derive(Copy, Clone, Debug)]
pub struct Unfit(pub usize);

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} host(s) would degrade a measurement", self.0)
    }
}

impl std::error::Error for Unfit {}

/// No violation was found, but nothing or not everything could be judged; everything was printed.
#[derive(Clone, Debug)]
pub struct Unjudged(pub String);

impl std::fmt::Display for Unjudged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unjudged {}

impl Status {
    /// All statuses, in order.
    pub const ALL: [Self; 5] = [Self::Done, Self::Failed, Self::Usage, Self::Violations, Self::Unjudged];

    /// Description for users.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Usage => "invalid command line or configuration; nothing was started",
            Self::Violations => "violations found",
            Self::Unjudged => "nothing could be checked, or only part of it",
        }
    }

    /// Returns the status for an error.
    pub fn of(error: &anyhow::Error) -> Self {
        use probe_sync::Error::{Configuration, ConfigurationFile, Refused};
        match error.downcast_ref::<probe_sync::Error>() {
            Some(Configuration { .. } | ConfigurationFile { .. } | Refused { .. }) => Self::Usage,
            _ if is_refused_request(error) => Self::Usage,
            _ if error.downcast_ref::<Usage>().is_some() => Self::Usage,
            _ if error.downcast_ref::<Violations>().is_some() || error.downcast_ref::<Unfit>().is_some() => {
                Self::Violations
            }
            _ if error.downcast_ref::<Unjudged>().is_some() => Self::Unjudged,
            _ => Self::Failed,
        }
    }
}

/// Returns true if a request about traces is inconsistent.
fn is_refused_request(error: &anyhow::Error) -> bool {
    use probe_sync_formats::Error as TraceError;
    let of_trace = |error: &TraceError| matches!(error, TraceError::Request { .. });
    let of_alignment = |error: &AlignmentError| match error {
        AlignmentError::Request { .. } => true,
        AlignmentError::Trace(error) => of_trace(error),
        _ => false,
    };
    error.downcast_ref().is_some_and(of_trace)
        || error.downcast_ref().is_some_and(of_alignment)
        || error.downcast_ref().is_some_and(|error: &AnalysisError| match error {
            AnalysisError::Request { .. } => true,
            AnalysisError::Trace(error) => of_trace(error),
            AnalysisError::Alignment(error) => of_alignment(error),
            _ => false,
        })
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status as u8)
    }
}

/// The line in `--help`.
pub fn help() -> String {
    let each: Vec<String> =
        Status::ALL.iter().map(|status| format!("{} {}", *status as u8, status.meaning())).collect();
    format!("EXIT STATUS  {}.", each.join("; "))
}

/// An error in one line. Errors of some libraries already include their cause: no cause is printed
/// twice.
pub fn told(error: &anyhow::Error) -> String {
    let hint = Usage.to_string();
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| *cause != hint) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    if error.downcast_ref::<Usage>().is_some() { format!("{text} ({hint})") } else { text }
}

/// Whether a word is a pattern that the shell passed on unexpanded; a question ends with its mark.
fn is_pattern(word: &str) -> bool {
    word.trim_end_matches(['?', ':', ',', ')']).contains(['*', '?'])
}

/// A hint for an error of the system, if the message contains none.
pub fn remedy(error: &anyhow::Error, told: &str) -> Option<String> {
    let kind = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>()).map(std::io::Error::kind)?;
    match kind {
        // A message that says what to do has more than one clause.
        _ if told.contains("; ") => None,
        ErrorKind::NotFound if told.split_whitespace().any(is_pattern) => {
            Some("no file matches this pattern; check it with ls".to_owned())
        }
        ErrorKind::NotFound => {
            let from = std::env::current_dir().map_or_else(|_| "here".to_owned(), |path| path.display().to_string());
            Some(format!("check the path, which is relative to {from}"))
        }
        ErrorKind::PermissionDenied => Some("check its owner and mode with ls -l, or choose another path".to_owned()),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Some("free some space, or write elsewhere; TMPDIR sets the place of temporary files".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn every_kind_of_error_has_its_status() {
        let check = |error: anyhow::Error, expected: Status| assert_eq!(Status::of(&error), expected, "{error:#}");
        let refused = || probe_sync::Error::Refused { reason: "r".into() };
        check(anyhow::anyhow!("x"), Status::Failed);
        check(anyhow::anyhow!("x").context(Usage), Status::Usage);
        check(refused().into(), Status::Usage);
        check(anyhow::Error::from(refused()).context("more"), Status::Usage);
        check(probe_sync_formats::Error::Request { problem: "r".into() }.into(), Status::Usage);
        let request = || AlignmentError::Request { problem: "r".into() };
        check(request().into(), Status::Usage);
        check(AnalysisError::from(request()).into(), Status::Usage);
        check(AlignmentError::Nodes { problem: "r".into() }.into(), Status::Failed);
        check(probe_sync::Error::NothingToSolve { files: "f".into() }.into(), Status::Failed);
        check(Violations(3).into(), Status::Violations);
        check(Unjudged("nothing".into()).into(), Status::Unjudged);
        assert!(Status::ALL.iter().enumerate().all(|(code, status)| *status as usize == code));
    }

    #[test]
    fn a_cause_is_told_once() {
        let check = |error: anyhow::Error, expected: &str| assert_eq!(told(&error), expected);
        let gone = || std::io::Error::new(ErrorKind::NotFound, "gone");
        let file = probe_sync::Error::File { path: "f".into(), action: "read", source: gone() };
        check(file.into(), "cannot read f: gone");
        check(anyhow::Error::from(gone()).context("cannot read f"), "cannot read f: gone");
        check(
            anyhow::Error::from(gone()).context("--scenario f").context(Usage),
            "--scenario f: gone (see probe_sync --help)",
        );
        let request = probe_sync_alignment::Request { traces: vec!["no/such/file".into()], ..Default::default() };
        let text = told(&probe_sync_alignment::calibrate(&request).expect_err("no file").into());
        assert_eq!(text.matches("No such file").count(), 1, "{text}");
        let nested: Result<(), _> = Err(gone()).context("one").context("two");
        check(nested.expect_err("an error"), "two: one: gone");
    }

    #[test]
    fn what_the_system_said_comes_with_a_remedy() {
        let check = |kind: ErrorKind, context: &'static str, part: &str| {
            let error = anyhow::Error::from(std::io::Error::from(kind)).context(context);
            let said = remedy(&error, &told(&error)).unwrap_or_default();
            assert!(said.contains(part) && said.is_empty() == part.is_empty(), "{context}: {said}");
        };
        check(ErrorKind::NotFound, "cannot read f", "check the path");
        check(ErrorKind::NotFound, "cannot read rank*.json", "no file matches");
        check(ErrorKind::PermissionDenied, "cannot read f", "ls -l");
        check(ErrorKind::StorageFull, "cannot write f", "free some space");
        check(ErrorKind::NotFound, "no run is here; give another directory", "");
        check(ErrorKind::BrokenPipe, "cannot write f", "");
    }

    #[test]
    fn the_reference_tells_the_statuses_as_the_help_does() {
        let reference =
            include_str!("../../../docs/reference/commands.md").split_whitespace().collect::<Vec<_>>().join(" ");
        for status in Status::ALL {
            let row = format!("| {} | {} |", status as u8, status.meaning());
            assert!(reference.contains(&row), "commands.md lacks: {row}");
        }
    }
}
