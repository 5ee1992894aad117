//! The host's packages, cores and memory nodes, for `run.json`.
//!
//! It is read once at the start of a run. With feature `hwloc`, libhwloc does the counting and
//! includes caches; without it, or if libhwloc fails, the kernel's own files under
//! `/sys/devices/system` are used.
//!
//! It does not choose CPUs. `host::local_cpus` returns those near an interface; libhwloc would read
//! the same file.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::host::{parse_cpu_list, read_line};

/// Topology of the host. A count that the system does not tell is 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// Source: `"hwloc"` or `"sysfs"`.
    pub source: &'static str,
    /// Processor packages.
    pub packages: usize,
    /// Cores.
    pub cores: usize,
    /// Logical CPUs that are online.
    pub logical_cpus: usize,
    /// NUMA nodes.
    pub numa_nodes: usize,
    /// Levels from the outside in, each with its count, for example `"Package ×1"`; caches only
    /// with hwloc.
    pub levels: Vec<String>,
}

impl Topology {
    /// Detects the topology of this host.
    pub fn detect() -> Self {
        let counted = Self::from_sysfs(Path::new("/sys/devices/system"));
        #[cfg(feature = "hwloc")]
        if let Some(better) = with_hwloc(counted.numa_nodes) {
            return better;
        }
        counted
    }

    fn from_sysfs(system: &Path) -> Self {
        let online = |what: &str| {
            let text = read_line(system.join(what).join("online"))?;
            parse_cpu_list(&text).ok()
        };
        // Kernels without memory nodes have no such folder; the host then is one node.
        let numa_nodes = online("node").map_or(1, |nodes| nodes.len().max(1));
        let cpus = online("cpu").unwrap_or_default();
        let (mut packages, mut cores) = (BTreeSet::new(), BTreeSet::new());
        for cpu in &cpus {
            let topology = system.join(format!("cpu/cpu{cpu}/topology"));
            let read = |file: &str| fs::read_to_string(topology.join(file)).ok()?.trim().parse::<i64>().ok();
            let package = read("physical_package_id");
            packages.extend(package);
            // Cores are numbered anew in each die of each package.
            cores.extend(read("core_id").map(|core| (package, read("die_id"), core)));
        }
        let (packages, cores, logical_cpus) = (packages.len(), cores.len(), cpus.len());
        let levels = [("Package", packages), ("NUMANode", numa_nodes), ("Core", cores), ("PU", logical_cpus)];
        let levels = levels.iter().map(|(name, count)| format!("{name} ×{count}")).collect();
        Self { source: "sysfs", packages, cores, logical_cpus, numa_nodes, levels }
    }
}

/// libhwloc's counts; NUMA nodes are not a level of its tree, so the kernel's count is used for
/// them.
#[cfg(feature = "hwloc")]
fn with_hwloc(numa_nodes: usize) -> Option<Topology> {
    use hwloc2::ObjectType;

    // Where the system refuses this call, as under a strict seccomp filter, libhwloc makes it again
    // and again without end.
    crate::host::allowed_cpus().ok()?;
    let topology = hwloc2::Topology::new()?;
    // Asked by type, never "which type is at this depth": a newer libhwloc may answer with a type
    // that the binding does not know.
    let count =
        |kind: ObjectType| topology.depth_for_type(&kind).map_or(0, |depth| topology.size_at_depth(depth) as usize);
    let levels = [
        ("Package", ObjectType::Package),
        ("L3Cache", ObjectType::L3Cache),
        ("L2Cache", ObjectType::L2Cache),
        ("L1Cache", ObjectType::L1Cache),
        ("Core", ObjectType::Core),
        ("PU", ObjectType::PU),
    ]
    .map(|(name, kind)| (name, count(kind)));
    let of = |wanted: &str| levels.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, count)| *count);
    let (packages, cores, logical_cpus) = (of("Package"), of("Core"), of("PU"));
    let levels =
        levels.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} ×{count}")).collect();
    (logical_cpus > 0).then_some(Topology { source: "hwloc", packages, cores, logical_cpus, numa_nodes, levels })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy of the kernel's files: for each CPU its package, die and core.
    fn check(cpus: &[(u32, u32, u32)], nodes: Option<&str>, expected: (usize, usize, usize, usize)) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let write = |path: String, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("may be created");
            fs::write(path, text).expect("may be written");
        };
        write("cpu/online".into(), &format!("0-{}\n", cpus.len() - 1));
        for (index, (package, die, core)) in cpus.iter().enumerate() {
            write(format!("cpu/cpu{index}/topology/physical_package_id"), &format!("{package}\n"));
            write(format!("cpu/cpu{index}/topology/die_id"), &format!("{die}\n"));
            write(format!("cpu/cpu{index}/topology/core_id"), &format!("{core}\n"));
        }
        if let Some(nodes) = nodes {
            write("node/online".into(), nodes);
        }
        let found = Topology::from_sysfs(folder.path());
        assert_eq!((found.packages, found.cores, found.logical_cpus, found.numa_nodes), expected);
    }

    #[test]
    fn packages_cores_and_threads_are_counted() {
        check(&[(0, 0, 0), (0, 0, 1)], Some("0\n"), (1, 2, 2, 1));
        // Two threads per core, two packages, a memory node each.
        check(&[(0, 0, 0), (0, 0, 0), (1, 0, 0), (1, 0, 0)], Some("0-1\n"), (2, 2, 4, 2));
        // Equal core numbers in two dies of one package.
        check(&[(0, 0, 0), (0, 1, 0)], None, (1, 2, 2, 1));
    }

    #[test]
    fn no_files_no_counts() {
        let found = Topology::from_sysfs(Path::new("/nonexistent"));
        assert_eq!((found.packages, found.cores, found.logical_cpus), (0, 0, 0));
    }

    #[test]
    fn this_host_has_a_cpu() {
        let found = Topology::detect();
        assert!(found.logical_cpus > 0, "{found:?}");
        #[cfg(feature = "hwloc")]
        assert_eq!(found.source, "hwloc");
    }
}
