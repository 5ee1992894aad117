//! Parses lists of nodes, the textual form of [`Request::nodes`](crate::Request::nodes).

use std::str::FromStr;

/// Nodes as `3`, `0,1,2,3` or `0-3`, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeList(Vec<u32>);

impl NodeList {
    /// Returns the nodes of several lists.
    pub fn joined(lists: &[Self]) -> Vec<u32> {
        lists.iter().flat_map(|list| list.0.iter().copied()).collect()
    }
}

impl FromStr for NodeList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last && last - first < NODES_MAX).then_some(first..=last)
        };
        let ranges = text.split(',').map(part).collect::<Option<Vec<_>>>();
        let nodes = ranges.map(|ranges| Self(ranges.into_iter().flatten().collect()));
        nodes.ok_or_else(|| format!("{text:?} is not a list of nodes, such as 0,1,2,3 or 0-3"))
    }
}

/// Longest range of nodes.
const NODES_MAX: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_numbers_lists_and_ranges() {
        let read = |text: &str| text.parse::<NodeList>().map(|list| list.0);
        assert_eq!(read("3"), Ok(vec![3]));
        assert_eq!(read("3,0-2"), Ok(vec![3, 0, 1, 2]));
        for wrong in ["", "a", "3-1", "0,,1", "0-4294967295", "-1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
