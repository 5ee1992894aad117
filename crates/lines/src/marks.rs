//! Marks: events that a process puts into its own trace, each between two readings of the system
//! clock.
//!
//! The process reads the system clock, enters an event named [`mark_name`], which its profiler
//! stamps, and reads the clock again. The trace holds the stamp R, and the run's folder
//! [`MARKS_FOLDER`] the two readings: when the stamp was R, the system clock showed a value between
//! them. Alignment joins both by the process's [`MarkToken`] and the mark's number.
//!
//! A file is one process's: its name and its first line ([`MarksHeader`]) hold the token that all
//! its marks bear in the trace, so that no readings of another process, nor of an earlier life of
//! the same rank, can be taken for a trace's.

use std::fmt::{self, Display};

use probe_sync_time::{NodeId, System, TimeNamespace, Timestamp};
use serde::{Deserialize, Serialize};

/// Folder of a run in which its processes write their marks.
pub const MARKS_FOLDER: &str = "marks";

/// Distinguishes one process's marks from all others: drawn at random when the process begins. As
/// text, 16 hexadecimal digits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MarkToken(pub u64);

impl MarkToken {
    /// Parses a token of 16 digits; `None` for any other text.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let text = Some(text).filter(|text| text.len() == TOKEN_DIGITS && text.iter().all(digit))?;
        u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok().map(Self)
    }
}

impl Display for MarkToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl TryFrom<String> for MarkToken {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(text.as_bytes()).ok_or("a token has 16 hexadecimal digits")
    }
}

impl From<MarkToken> for String {
    fn from(token: MarkToken) -> Self {
        token.to_string()
    }
}

/// Header line of a file of marks: the process that wrote them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarksHeader {
    /// Token of the process.
    pub token: MarkToken,
    /// Rank of the process in the run's session.
    pub rank: u32,
    /// Number of ranks in the session.
    pub world_size: u32,
    /// The rank's node, or the node that it follows, whose clock the readings are from.
    pub node_id: NodeId,
    /// Host name.
    #[serde(deserialize_with = "crate::names::read_plain_name")]
    pub hostname: String,
    /// Boot id of the host.
    pub boot_id: String,
    /// Process id on the host.
    pub pid: u32,
    /// Offsets of its time namespace in the clocks that count from boot; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_namespace: Option<TimeNamespace>,
}

/// Any other line: one mark.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkRecord {
    /// Number of the mark, unique in the process.
    pub mark: u64,
    /// System clock of the node before the event was entered.
    #[serde(rename = "before_ns")]
    pub before: Timestamp<System>,
    /// System clock of the node after the event was entered.
    #[serde(rename = "after_ns")]
    pub after: Timestamp<System>,
}

/// Returns the name of a mark's event: `probe_sync.mark#0123456789abcdef.17`.
pub fn mark_name(token: MarkToken, number: u64) -> String {
    format!("{MARK_PREFIX}{token}.{number}")
}

/// Parses token and number from an event's name, if it has the exact form of [`mark_name`].
pub fn parse_mark_name(name: &[u8]) -> Option<(MarkToken, u64)> {
    let rest = name.strip_prefix(MARK_PREFIX.as_bytes())?;
    let (token, rest) = rest.split_at_checked(TOKEN_DIGITS)?;
    let [b'.', digits @ ..] = rest else { return None };
    let plain = digits.iter().all(u8::is_ascii_digit) && (digits.len() == 1 || digits.first() != Some(&b'0'));
    let number = std::str::from_utf8(digits).ok().filter(|_| plain)?.parse().ok()?;
    Some((MarkToken::parse(token)?, number))
}

/// Returns the name of a process's file in [`MARKS_FOLDER`]: `rank3-0123456789abcdef.jsonl`. The
/// rank is for human readers.
pub fn marks_file(rank: u32, token: MarkToken) -> String {
    format!("rank{rank}-{token}{FILE_ENDING}")
}

/// Returns the token in the name of a file of marks.
pub fn token_of_file(name: &str) -> Option<MarkToken> {
    let (rank, token) = name.strip_prefix("rank")?.strip_suffix(FILE_ENDING)?.split_once('-')?;
    let digits = !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit());
    MarkToken::parse(token.as_bytes()).filter(|_| digits)
}

const MARK_PREFIX: &str = "probe_sync.mark#";
const TOKEN_DIGITS: usize = 16;
const FILE_ENDING: &str = ".jsonl";

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: MarkToken = MarkToken(0x0123_4567_89ab_cdef);

    #[test]
    fn a_name_states_the_token_and_the_number() {
        for number in [0, 17, u64::MAX] {
            let name = mark_name(TOKEN, number);
            assert_eq!(parse_mark_name(name.as_bytes()), Some((TOKEN, number)), "{name}");
        }
        assert_eq!(mark_name(TOKEN, 17), "probe_sync.mark#0123456789abcdef.17");
        for other in [
            "",
            "probe_sync.mark#",
            "probe_sync.mark#0123456789abcdef",
            "probe_sync.mark#0123456789abcdef.",
            "probe_sync.mark#0123456789abcdef.-1",
            "probe_sync.mark#0123456789abcdef.+1",
            "probe_sync.mark#0123456789abcdef.01",
            "probe_sync.mark#0123456789abcdef.1 ",
            "probe_sync.mark#0123456789abcdef.18446744073709551616",
            "probe_sync.mark#0123456789ABCDEF.1",
            "probe_sync.mark#+123456789abcdef.1",
            "probe_sync.mark#0123456789abcde.11",
            "probe_sync.mark#0123456789abcdef0.1",
            "probe_sync.clock#0123456789abcdef.1",
            "probe_sync.mark#é23456789abcdef0.1",
        ] {
            assert_eq!(parse_mark_name(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_file_is_named_by_rank_and_token() {
        assert_eq!(marks_file(3, TOKEN), "rank3-0123456789abcdef.jsonl");
        assert_eq!(token_of_file(&marks_file(u32::MAX, TOKEN)), Some(TOKEN));
        for other in ["rank3.jsonl", "rank-0123456789abcdef.jsonl", "node3-0123456789abcdef.jsonl", "rank3-0123.jsonl"]
        {
            assert_eq!(token_of_file(other), None, "{other}");
        }
    }

    #[test]
    fn lines_are_as_the_documents_say() {
        let header = MarksHeader {
            token: TOKEN,
            rank: 3,
            world_size: 8,
            node_id: NodeId(1),
            hostname: "gpu-07".into(),
            boot_id: "b".into(),
            pid: 42,
            time_namespace: None,
        };
        let line = r#"{"token":"0123456789abcdef","rank":3,"world_size":8,"node_id":1,"hostname":"gpu-07","boot_id":"b","pid":42}"#;
        assert_eq!(serde_json::to_string(&header).expect("our own type"), line);
        assert_eq!(serde_json::from_str::<MarksHeader>(line).expect("our own line"), header);
        let mark = MarkRecord { mark: 17, before: Timestamp::from_ns(1000), after: Timestamp::from_ns(1450) };
        let line = r#"{"mark":17,"before_ns":1000,"after_ns":1450}"#;
        assert_eq!(serde_json::to_string(&mark).expect("our own type"), line);
        assert_eq!(serde_json::from_str::<MarkRecord>(line).expect("our own line"), mark);
        for other in ["0123456789ABCDEF", "0x23456789abcdef", "", "0123456789abcdef0"] {
            assert!(serde_json::from_str::<MarkToken>(&format!("\"{other}\"")).is_err(), "{other}");
        }
    }
}
