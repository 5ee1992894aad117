//! Determines which parts of one execution are one turn of a loop.
//!
//! It applies to operations that state a module and a run. If the traces distinguish the devices,
//! the k-th part of each device is the k-th turn, because a device performs one turn after the
//! other. If they do not, the number of devices is inferred from overlaps: parts of one turn
//! overlap, because each ends after all have begun, but parts of one device never do. The largest
//! equal division of a node's parts in which the parts of every piece overlap is therefore its
//! number of devices. It does not use another node's times.

use super::operation::{Part, same_node};

/// The parts of each turn, in order of node; or why they cannot be determined.
pub(super) fn turns<'a>(parts: &[Part<'a>]) -> Result<Vec<Vec<Part<'a>>>, &'static str> {
    let mut streams: Vec<(usize, Vec<Part<'a>>)> = Vec::new();
    let numbered = parts.iter().all(|part| part.label.device.is_some());
    for of_node in parts.chunk_by(same_node) {
        if numbered {
            let mut of_node = of_node.to_vec();
            of_node.sort_by_key(|part| (part.label.device, part.start_ps, part.end_ps, part.ordinal));
            let of_devices = of_node.chunk_by(|a, b| a.label.device == b.label.device);
            streams.extend(of_devices.map(|of_device| (1, of_device.to_vec())));
        } else {
            let mut of_node = of_node.to_vec();
            of_node.sort_by_key(|part| (part.start_ps, part.end_ps, part.ordinal));
            streams.push((devices(&of_node), of_node));
        }
    }
    let count = |(size, of_stream): &(usize, Vec<Part<'a>>)| of_stream.len() / size;
    let turns = streams.first().map_or(0, count);
    if streams.iter().any(|stream| count(stream) != turns) {
        return Err("its number of turns differs between nodes");
    }
    let turn = |turn: usize| {
        let pieces = streams.iter().map(|(size, of_stream)| &of_stream[turn * size..(turn + 1) * size]);
        pieces.flatten().copied().collect()
    };
    Ok((0..turns).map(turn).collect())
}

/// How many of a node's parts, in order of start, make one turn.
fn devices(parts: &[Part<'_>]) -> usize {
    let divides = |size: &usize| parts.len().is_multiple_of(*size);
    let mut sizes = (2..=parts.len()).rev().filter(divides).take(DIVISORS_MAX);
    sizes.find(|&size| parts.chunks(size).all(overlap)).unwrap_or(1)
}

/// Whether there is an instant common to all.
pub(super) fn overlap(parts: &[Part<'_>]) -> bool {
    let latest = parts.iter().map(|part| part.start_ps).max();
    parts.len() < 2 || latest < parts.iter().map(|part| part.end_ps).min()
}

/// Divisors tried for the number of devices; no number of parts that fits into memory has more.
const DIVISORS_MAX: usize = 4096;
