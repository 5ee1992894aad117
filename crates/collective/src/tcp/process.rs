//! The number of a rank's process, whose last bits count the connections of the process.
//!
//! Ranks state it in their greeting, and the `door` uses it to recognise a process.

use crate::{Error, random_bytes};

/// Draws a number for a process that has not connected yet.
pub(super) fn new_process() -> Result<u64, Error> {
    Ok(u64::from_le_bytes(random_bytes()?) & !CONNECTIONS)
}

/// Returns the number of the same process for its next connection.
pub(super) fn next_connection(process: u64) -> Result<u64, Error> {
    // After so many it is as good as another process, whose earlier one the root finds gone.
    if process & CONNECTIONS == CONNECTIONS { new_process() } else { Ok(process + 1) }
}

/// Returns true if the connection with the number `later` is from the process of `earlier`, which
/// has given that one up.
pub(super) fn replaces(later: u64, earlier: u64) -> bool {
    later & !CONNECTIONS == earlier & !CONNECTIONS && later > earlier
}

/// Part of a process's number that counts its connections.
const CONNECTIONS: u64 = 0xffff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_connection_replaces_an_earlier_one_of_its_own_process_only() {
        let (one, other) = (0x5000_0000_0000_0000, 0x6000_0000_0000_0000);
        assert!(replaces(one + 1, one) && replaces(one + CONNECTIONS, one + 7));
        assert!(!replaces(one, one) && !replaces(one, one + 1) && !replaces(other + 1, one));
        let last = next_connection(one | CONNECTIONS).expect("random bytes");
        assert!(!replaces(last, one | CONNECTIONS), "{last:x}");
    }
}
