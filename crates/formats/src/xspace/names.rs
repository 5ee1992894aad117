//! Recognises collectives and their kinds by event name.
//!
//! Each event name is checked once. XLA names host operations after themselves (`psum.7`,
//! `all-gather`) and kernels after the library (`ncclDevKernel_AllReduce_Sum_f32_RING_LL`). Fusions
//! that merely contain such a word (`broadcast_multiply_fusion`, `reduce_fusion`) are computations
//! of one device, so whole names are compared, not parts.

use crate::model::CollectiveKind;

/// The kind of a host operation or `hlo_op`, or `None` if it is not a collective.
///
/// Halves of asynchronous operations (`all-reduce-start`, `-done`) are `Unknown`: the first half
/// may end before another rank starts and the second may start long after the data came, so neither
/// imposes an order by itself.
pub(super) fn operation_kind(name: &str) -> Option<CollectiveKind> {
    let stem = name.trim_start_matches('%');
    let stem = stem.split_once('.').map_or(stem, |(stem, _)| stem).replace('_', "-");
    if let Some(whole) = stem.strip_suffix("-start").or_else(|| stem.strip_suffix("-done")) {
        return synchronous_kind(whole).map(|_| CollectiveKind::Unknown);
    }
    synchronous_kind(&stem)
}

/// The kind of a kernel on a device's line: the library's kernels by name, others by the operation
/// they belong to. A kernel runs the operation from start to end, so here a `-start` names the
/// complete operation.
pub(super) fn kernel_kind(name: &str, hlo_op: Option<&str>) -> Option<CollectiveKind> {
    let lower = name.to_ascii_lowercase();
    if lower.contains("nccl") || lower.contains("rccl") {
        return library_kind(&lower);
    }
    let copies = ["memcpy", "memset", "copy", "__amd_rocclr"];
    if copies.iter().any(|prefix| lower.starts_with(prefix)) {
        return None;
    }
    let operation = hlo_op?;
    let stem = operation.split_once('.').map_or(operation, |(stem, _)| stem).replace('_', "-");
    synchronous_kind(stem.strip_suffix("-start").unwrap_or(&stem))
}

/// The kind of a complete operation, by its stem with dashes.
fn synchronous_kind(stem: &str) -> Option<CollectiveKind> {
    if ALL_TO_ALL.contains(&stem) {
        return Some(CollectiveKind::AllToAll);
    }
    match stem {
        "ppermute" | "collective-permute" | "pshuffle" => {
            Some(CollectiveKind::PointToPoint { source: None, destination: None })
        }
        "collective-broadcast" | "pbroadcast" => Some(CollectiveKind::FromRoot(None)),
        // Some send nothing to some, and who does is in the data.
        "ragged-all-to-all" => Some(CollectiveKind::Unknown),
        _ => None,
    }
}

/// The kind of a kernel of NCCL or RCCL, by its name in lower case; helpers that move no data do
/// not count.
fn library_kind(lower: &str) -> Option<CollectiveKind> {
    let plain: String = lower.chars().filter(|letter| letter.is_ascii_alphanumeric()).collect();
    let has = |part: &str| plain.contains(part);
    if has("allreduce") || has("allgather") || has("reducescatter") || has("alltoall") {
        Some(CollectiveKind::AllToAll)
    } else if has("sendrecv") || has("send") || has("recv") {
        Some(CollectiveKind::PointToPoint { source: None, destination: None })
    } else if has("broadcast") {
        Some(CollectiveKind::FromRoot(None))
    } else if has("reduce") {
        Some(CollectiveKind::ToRoot(None))
    } else if has("kernel") || has("generic") {
        Some(CollectiveKind::Unknown)
    } else {
        None
    }
}

/// Operations of XLA, JAX's older spellings included, without their running number; `-` and `_` are
/// one.
const ALL_TO_ALL: [&str; 13] = [
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "psum",
    "pmean",
    "pmax",
    "pmin",
    "psum-scatter",
    "psum-invariant",
    "all-gather-invariant",
    "cross-replica-sum",
    "barrier",
];

#[cfg(test)]
mod tests {
    use super::*;

    const PAIRWISE: CollectiveKind = CollectiveKind::PointToPoint { source: None, destination: None };

    #[test]
    fn operations_are_told_from_computations() {
        let check = |name: &str, expected: Option<CollectiveKind>| assert_eq!(operation_kind(name), expected, "{name}");
        check("psum.7", Some(CollectiveKind::AllToAll));
        check("all-gather", Some(CollectiveKind::AllToAll));
        check("all_gather.7", Some(CollectiveKind::AllToAll));
        check("reduce-scatter.12.clone", Some(CollectiveKind::AllToAll));
        check("ppermute.3", Some(PAIRWISE));
        check("all-reduce-start.1", Some(CollectiveKind::Unknown));
        check("all-gather-done", Some(CollectiveKind::Unknown));
        check("end: psum.7", None);
        check("broadcast_multiply_fusion", None);
        check("reduce.5", None);
        check("gather", None);
    }

    #[test]
    fn kernels_are_told_by_library_or_operation() {
        let check = |name: &str, hlo_op: Option<&str>, expected: Option<CollectiveKind>| {
            assert_eq!(kernel_kind(name, hlo_op), expected, "{name}");
        };
        check("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", None, Some(CollectiveKind::AllToAll));
        check("ncclKernel_SendRecv_RING_SIMPLE", None, Some(PAIRWISE));
        check("ncclDevKernel_Broadcast_RING_LL", None, Some(CollectiveKind::FromRoot(None)));
        check("ncclDevKernel_Reduce_Sum_f32", None, Some(CollectiveKind::ToRoot(None)));
        check("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", None, Some(CollectiveKind::Unknown));
        check("AllReduceKernelEntry", Some("all-reduce-start.2"), Some(CollectiveKind::AllToAll));
        check("loop_reduce_fusion", Some("loop_reduce_fusion.1"), None);
        check("MemcpyD2D", Some("all-gather.1"), None);
    }
}
