//! The kernel's neighbour table, which maps addresses of the local network to hardware addresses.
//!
//! `doctor` shows it, and a start with missing ranks uses it for its error message. A host that
//! talks to more neighbours than `net.ipv4.neigh.default.gc_thresh3` (1024 by default) cannot reach
//! some of them: connections hang, and the kernel's log says "neighbour table overflow". All
//! network namespaces of a kernel share the table and the limit.
//!
//! It does not raise the limit.

use std::fs;

use crate::host::read_line;

/// The table of IPv4 neighbours.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct NeighbourTable {
    /// Neighbours in it.
    pub entries: u64,
    /// Neighbours that did not fit since the machine started.
    pub overflows: u64,
    /// Capacity.
    pub limit: u64,
}

impl NeighbourTable {
    /// Queries the kernel; `None` in a network namespace, from which the table is invisible.
    pub(crate) fn read() -> Option<Self> {
        let limit = read_line("/proc/sys/net/ipv4/neigh/default/gc_thresh3")?.parse().ok()?;
        let (entries, overflows) = parse(&fs::read_to_string("/proc/net/stat/arp_cache").ok()?)?;
        Some(Self { entries, overflows, limit })
    }
}

/// What to check if hosts do not answer, as the end of a sentence.
pub fn advice() -> String {
    let raise =
        "raise it on every host with `sysctl -w net.ipv4.neigh.default.gc_thresh3=65536`, and gc_thresh2 to half of it";
    match NeighbourTable::read() {
        Some(NeighbourTable { entries, overflows: 1.., limit }) => format!(
            "the kernel's neighbour table overflowed on this host: it has {entries} entries and net.ipv4.neigh.default.gc_thresh3 is \
            {limit}; {raise}"
        ),
        Some(NeighbourTable { limit, .. }) => format!(
            "check for a firewall between the hosts; more than {limit} hosts in one network need a higher \
            net.ipv4.neigh.default.gc_thresh3: {raise}"
        ),
        None => format!(
            "check for a firewall between the hosts; network namespaces share their machine's limit \
            net.ipv4.neigh.default.gc_thresh3, and n communicating namespaces need n times n entries: {raise}"
        ),
    }
}

/// Entries and overflows of `/proc/net/stat/arp_cache`: names in the first line, then one line per
/// CPU, hexadecimal. Entries are counted once, overflows by each CPU.
fn parse(text: &str) -> Option<(u64, u64)> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next()?.split_whitespace().collect();
    let column = |name| names.iter().position(|known| *known == name);
    let (entries, overflows) = (column("entries")?, column("table_fulls")?);
    let mut found = None;
    for line in lines {
        let numbers: Option<Vec<u64>> =
            line.split_whitespace().map(|number| u64::from_str_radix(number, 16).ok()).collect();
        let numbers = numbers?;
        let before = found.map_or(0, |(_, overflows)| overflows);
        found = Some((*numbers.get(entries)?, before + numbers.get(overflows)?));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_columns_are_found_by_name() {
        let check = |text: &str, expected| assert_eq!(parse(text), expected, "{text:?}");
        let head = "entries  allocs destroys table_fulls\n";
        check(
            &format!("{head}0000000a  00000011 00000007 00000002\n0000000a  00000000 00000000 00000010\n"),
            Some((10, 18)),
        );
        check(head, None);
        check("", None);
        check("entries allocs\n1 2\n", None);
        check(&format!("{head}0000000a\n"), None);
        check(&format!("{head}x y z w\n"), None);
    }

    #[test]
    fn the_advice_names_the_limit() {
        assert!(advice().contains("net.ipv4.neigh.default.gc_thresh3"), "{}", advice());
    }
}
