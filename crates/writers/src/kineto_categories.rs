//! Maps a slice's category in a chunk to the category that Kineto's readers know.
//!
//! Viewers and HolisticTraceAnalysis know `cpu_op`, `cuda_runtime`, `kernel` and a few more; chunks
//! come from Kineto's own files, from databases of rocprofiler (`HIP_RUNTIME_API`,
//! `KERNEL_DISPATCH`), from a recorder (`function`, `runtime`) and from formats without categories.
//! Other categories stay unchanged. It does not use event names.

use probe_sync_formats::chunk::{Chunk, StringId};

/// A category as it is written.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Category {
    /// One of Kineto's.
    Known(&'static str),
    /// A backward call, which Kineto calls `cpu_op` like any other.
    Backward,
    /// The chunk's own.
    Own,
}

impl Category {
    /// Its text.
    #[inline]
    pub(super) fn text(self, chunk: &Chunk, own: StringId) -> &str {
        match self {
            Self::Known(text) => text,
            Self::Backward => CPU_OP,
            Self::Own => chunk.strings.text(own),
        }
    }
}

/// The categories of a chunk that were looked up: it has few, and most events share one.
#[derive(Debug, Default)]
pub(super) struct Categories {
    found: Vec<(StringId, bool, Category)>,
}

impl Categories {
    /// Forgets the previous chunk.
    pub(super) fn clear(&mut self) {
        self.found.clear();
    }

    /// The category of an event, on a device or on the host.
    #[inline]
    pub(super) fn of(&mut self, chunk: &Chunk, id: StringId, on_device: bool) -> Category {
        if let Some(found) = self.found.iter().find(|found| (found.0, found.1) == (id, on_device)) {
            return found.2;
        }
        let category = category(chunk.strings.text(id), on_device);
        if self.found.len() < REMEMBERED_MAX {
            self.found.push((id, on_device, category));
        }
        category
    }
}

fn category(stated: &str, on_device: bool) -> Category {
    let lower = stated.to_ascii_lowercase();
    let has = |part: &str| lower.contains(part);
    Category::Known(match lower.as_str() {
        "" if on_device => "kernel",
        "" | "function" | "io" | "memory" => CPU_OP,
        "backward" => return Category::Backward,
        "user" | "collective" | "custom" => "user_annotation",
        "runtime" => RUNTIME,
        _ if has("kernel_dispatch") => "kernel",
        _ if has("memory_copy") => "gpu_memcpy",
        _ if has("marker") => "user_annotation",
        _ if has("hip_runtime") || has("hip_api") || has("hsa_api") || (has("hip_") || has("hsa_")) && has("_api") => {
            RUNTIME
        }
        _ => return Category::Own,
    })
}

const CPU_OP: &str = "cpu_op";
/// Kineto's word for the calls of any device's runtime, HIP's included.
const RUNTIME: &str = "cuda_runtime";
/// Most categories of a chunk remembered; others are looked up each time.
const REMEMBERED_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_of_all_sources_become_those_that_viewers_know() {
        let check = |stated: &str, on_device: bool, expected: &str| {
            let mut chunk = Chunk::default();
            let id = chunk.strings.intern(stated);
            let found = Categories::default().of(&chunk, id, on_device);
            assert_eq!(found.text(&chunk, id), expected, "{stated}");
        };
        check("", true, "kernel");
        check("", false, "cpu_op");
        check("cpu_op", false, "cpu_op");
        check("gpu_memset", true, "gpu_memset");
        check("backward", false, "cpu_op");
        check("collective", false, "user_annotation");
        check("runtime", false, "cuda_runtime");
        check("HIP_RUNTIME_API_EXT", false, "cuda_runtime");
        check("rocm_hip_api", false, "cuda_runtime");
        check("HSA_CORE_API", false, "cuda_runtime");
        check("rocm_kernel_dispatch", true, "kernel");
        check("MEMORY_COPY", true, "gpu_memcpy");
        check("rocm_marker_api", false, "user_annotation");
        check("nccl", false, "nccl");
    }
}
