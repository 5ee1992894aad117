//! `baseTimeNanoseconds`, the origin of the times of a file, before and after rewriting.
//!
//! `rewrite` needs the base before the first event, but many files state it after the last. It is
//! therefore guessed (exactly if the head states it, otherwise from the file's tail) and verified
//! while the file is rewritten. Kineto's own base is the start of a quarter of 7 889 238 s, which
//! keeps times short.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::decimal;
use super::document::{Document, Item};
use crate::Error;
use crate::model::Picoseconds;

/// Reads the value of the key.
pub(super) fn parse(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// The base that Kineto would choose for a file whose first event is at this time, ns.
pub(super) fn quarter_before(time_ps: Picoseconds) -> i64 {
    let time_ns = i64::try_from(time_ps.div_euclid(1000)).unwrap_or(if time_ps < 0 { i64::MIN } else { i64::MAX });
    quarter_before_ns(time_ns)
}

/// The start of the quarter of 7 889 238 s in which a time lies, an hour before it: the base of
/// Kineto's own times.
pub fn quarter_before_ns(time_ns: i64) -> i64 {
    time_ns.saturating_sub(LEEWAY_NS).div_euclid(QUARTER_NS).saturating_mul(QUARTER_NS)
}

/// Finds a file's base; a result from the file's tail is a guess.
pub(super) fn find(path: &Path) -> Result<Option<i64>, Error> {
    let mut document = Document::open(path, &[BASE_KEY])?;
    let mut tail_searched = document.is_gzip();
    loop {
        let time = match document.next()? {
            Item::End => return Ok(None),
            Item::Asked(value) => match parse(value) {
                // What is wrong with it, and where, is said by whoever reads the file in earnest.
                None => return Ok(None),
                found => return Ok(found),
            },
            Item::Event(event) => decimal::parse(event.spans.ts.of(event.bytes)),
            _ => None,
        };
        let Some(time) = time else { continue };
        if time.ps >= ABSOLUTE_FROM_PS {
            return Ok(None);
        }
        if !tail_searched {
            tail_searched = true;
            if let Some(found) = search_tail(path)? {
                return Ok(Some(found));
            }
        }
    }
}

/// The last place in a plain file that looks like the key and a number.
fn search_tail(path: &Path) -> Result<Option<i64>, Error> {
    let mut file = File::open(path).map_err(Error::io(path, "open"))?;
    let length = file.metadata().map_err(Error::io(path, "read"))?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES))).map_err(Error::io(path, "read"))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail).map_err(Error::io(path, "read"))?;
    let Some(at) = memchr::memmem::rfind(&tail, b"\"baseTimeNanoseconds\"") else { return Ok(None) };
    // A member of a nested object has its brace before it; one of the root has the end of the events.
    if tail[..at].iter().rev().find(|byte| b"{}[]".contains(byte)) == Some(&b'{') {
        return Ok(None);
    }
    let rest = &tail[at + BASE_KEY.len() + 2..];
    let begin = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b':')).unwrap_or(rest.len());
    let digits = rest[begin..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'-').count();
    Ok(parse(&rest[begin..begin + digits]))
}

/// The key.
pub(super) const BASE_KEY: &[u8] = b"baseTimeNanoseconds";
/// How much of a file's end is searched for the base.
const TAIL_BYTES: u64 = 1 << 20;
/// Times from here on (2001, in µs) are taken as absolute; relative ones reach a quarter of a year.
const ABSOLUTE_FROM_PS: Picoseconds = 1_000_000_000_000_000_000_000;

/// Kineto's quarter of a year, ns.
const QUARTER_NS: i64 = 7_889_238_000_000_000;
/// Time before the first event that may be needed, ns: metadata, or events out of order.
const LEEWAY_NS: i64 = 3_600_000_000_000;
