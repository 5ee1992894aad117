//! One line over a socket, with limits on length and time.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Reads the other end's line, without its end, within `limit` however slowly it arrives. The
/// connection may stay open after it.
pub(crate) fn read(mut stream: &UnixStream, limit: Duration) -> std::io::Result<String> {
    let until = Instant::now() + limit;
    let mut line = Vec::new();
    let mut part = [0; 512];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let read = stream.read(&mut part)?;
        line.extend_from_slice(&part[..read]);
        let end = line.iter().position(|byte| *byte == b'\n');
        if end.unwrap_or(line.len()) > LINE_MAX {
            return Err(std::io::Error::other(format!("a line of more than {LINE_MAX} bytes")));
        }
        if read == 0 || end.is_some() {
            line.truncate(end.unwrap_or(line.len()));
            return String::from_utf8(line).map_err(std::io::Error::other);
        }
    }
}

/// Writes a line, within `limit`.
pub(crate) fn write(mut stream: &UnixStream, value: &impl serde::Serialize, limit: Duration) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value).map_err(std::io::Error::other)?;
    line.push(b'\n');
    stream.set_write_timeout(Some(limit))?;
    stream.write_all(&line)
}

/// The longest line, bytes.
pub const LINE_MAX: usize = 16 << 10;
