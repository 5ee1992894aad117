//! The operations of NCCL and RCCL, by the names of their calls and kernels.

use crate::model::{CollectiveKind, Recipients};

/// A call's name without the library's.
pub(crate) fn bare(name: &str) -> &str {
    name.trim_start_matches("nccl").trim_start_matches("rccl")
}

/// The order imposed by a call of this bare name, with the root or the peer that it states; `None`
/// for calls that are not operations.
pub(crate) fn kind_of(bare: &str, root: Option<u32>, peer: Option<u32>) -> Option<(CollectiveKind, Recipients)> {
    let kind = match bare {
        "AllReduce" | "AllGather" | "ReduceScatter" | "AllToAll" | "AlltoAll" => CollectiveKind::AllToAll,
        "AllToAllv" | "AlltoAllv" => return Some((CollectiveKind::AllToAll, Recipients::Unknown)),
        "Broadcast" | "Bcast" | "Scatter" => CollectiveKind::FromRoot(root),
        "Reduce" | "Gather" => CollectiveKind::ToRoot(root),
        "Send" => CollectiveKind::PointToPoint { source: None, destination: peer },
        "Recv" => CollectiveKind::PointToPoint { source: peer, destination: None },
        _ => return None,
    };
    Some((kind, Recipients::All))
}

/// The order imposed by a kernel, as far as its name tells; it does not contain roots and peers.
pub(crate) fn kind_of_kernel(name: &str) -> CollectiveKind {
    let has = |part: &str| name.contains(part);
    if has("AllReduce") || has("AllGather") || has("ReduceScatter") {
        CollectiveKind::AllToAll
    } else if has("Broadcast") {
        CollectiveKind::FromRoot(None)
    } else if has("Reduce") {
        CollectiveKind::ToRoot(None)
    } else {
        CollectiveKind::Unknown
    }
}
