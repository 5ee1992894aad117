//! The identity of this host, and the CPUs near its network interfaces.
//!
//! It is determined once at the start of a run and stored in `run.json`. The probe thread is pinned
//! to the CPUs that the interface is attached to.
//!
//! It changes nothing but the calling thread's affinity.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use probe_sync_time::TimeNamespace;
use rustix::thread::CpuSet;
use serde::Serialize;

use crate::Error;
use crate::interfaces::interfaces;

/// Identity of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Host name.
    pub hostname: String,
    /// A random number of this boot: equal on two ranks means that they share a kernel and its
    /// clocks.
    pub boot_id: String,
    /// Architecture: `x86_64`, `aarch64`.
    pub machine: String,
    /// Kernel version.
    pub kernel: String,
}

impl Host {
    /// Returns this host.
    pub fn detect() -> Self {
        let name = rustix::system::uname();
        let text = |part: &CStr| part.to_string_lossy().into_owned();
        Self {
            hostname: text(name.nodename()),
            // Without /proc the name must do: no two hosts of a run should share it.
            boot_id: read_line("/proc/sys/kernel/random/boot_id").unwrap_or_else(|| text(name.nodename())),
            machine: text(name.machine()),
            kernel: text(name.release()),
        }
    }
}

/// Returns the offset of this process's time namespace for clocks that count from boot; zero on a
/// kernel without such namespaces. A restored container and `unshare --time` have a namespace of
/// their own, which the boot id does not show.
pub fn time_namespace() -> TimeNamespace {
    // The file is of the namespace of the children, which differs only between an unshare(2) and
    // the next fork.
    let initial = fs::read_link("/proc/self/ns/time").is_ok_and(|link| link.as_os_str() == INITIAL_TIME_NAMESPACE);
    let stated = || TimeNamespace::parse(&fs::read_to_string("/proc/self/timens_offsets").ok()?);
    if initial { TimeNamespace::default() } else { stated().unwrap_or_default() }
}

/// Returns the interface that has `address`; `None` for an unspecified or a foreign address.
pub fn interface_of_address(address: IpAddr) -> Option<String> {
    let found =
        interfaces().ok()?.into_iter().find(|interface| interface.addresses.iter().any(|own| own.ip == address))?;
    Some(found.name)
}

/// Returns the CPUs that `interface` is attached to and that this thread may use. `None` if the
/// system does not tell (a virtual interface) or none is allowed.
pub fn local_cpus(interface: &str) -> Option<Vec<usize>> {
    // The name becomes part of a path.
    if interface.is_empty() || interface.contains(['/', '\0']) || interface.starts_with('.') {
        return None;
    }
    let text = read_line(Path::new("/sys/class/net").join(interface).join("device/local_cpulist"))?;
    let near = parse_cpu_list(&text).ok()?;
    let allowed = allowed_cpus().ok()?;
    let cpus: Vec<usize> = near.into_iter().filter(|cpu| allowed.contains(cpu)).collect();
    (!cpus.is_empty()).then_some(cpus)
}

/// Returns the CPUs that the calling thread may use.
///
/// # Errors
/// Returns an error if the system refuses.
pub(crate) fn allowed_cpus() -> Result<Vec<usize>, Error> {
    let set = rustix::thread::sched_getaffinity(None).map_err(Error::system("read the thread's CPUs"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Restricts the calling thread to `cpus`.
///
/// # Errors
/// Returns an error if the list is empty, or if none of it may be used.
pub fn pin_thread(cpus: &[usize]) -> Result<(), Error> {
    let refuse = |reason: &str| Error::Cpus { list: format!("{cpus:?}"), reason: reason.to_owned() };
    if cpus.is_empty() {
        return Err(refuse("it is empty"));
    }
    if cpus.iter().any(|&cpu| cpu >= CpuSet::MAX_CPU) {
        return Err(refuse("a number in it is too large"));
    }
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| refuse(&format!("this machine has no such CPUs ({error})")))
}

/// Parses a list in the kernel's format: `0-3,8,10-11`.
///
/// # Errors
/// Returns an error if it is not such a list.
pub(crate) fn parse_cpu_list(text: &str) -> Result<Vec<usize>, Error> {
    let refuse = |reason| Error::Cpus { list: text.to_owned(), reason };
    let number = |part: &str| match part.trim().parse::<usize>() {
        Ok(cpu) if cpu < CpuSet::MAX_CPU => Ok(cpu),
        _ => Err(refuse(format!("{part:?} is not a CPU number"))),
    };
    let mut cpus = BTreeSet::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(refuse(format!("{range:?} is reversed")));
        }
        cpus.extend(first..=last);
    }
    Ok(cpus.into_iter().collect())
}

/// Returns the first line of a small system file, trimmed; `None` if it cannot be read or is empty.
pub(crate) fn read_line(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// `PROC_TIME_INIT_INO` of the kernel.
const INITIAL_TIME_NAMESPACE: &str = "time:[4026531834]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        let check = |text: &str, expected: Option<&[usize]>| {
            assert_eq!(parse_cpu_list(text).ok().as_deref(), expected, "{text:?}");
        };
        check("0-3,8", Some(&[0, 1, 2, 3, 8]));
        check("5\n", Some(&[5]));
        check("2,1,2", Some(&[1, 2]));
        check("", Some(&[]));
        check("3-1", None);
        check("a", None);
        check("-1", None);
        check("0-99999999999", None);
    }

    #[test]
    fn this_host_has_a_name_and_a_cpu() {
        let host = Host::detect();
        assert!(!host.hostname.is_empty() && !host.boot_id.is_empty());
        let allowed = allowed_cpus().expect("the system says");
        pin_thread(&allowed[..1]).expect("a CPU that is allowed");
        assert_eq!(allowed_cpus().expect("the system says"), allowed[..1]);
        assert!(pin_thread(&[]).is_err());
        assert!(pin_thread(&[usize::MAX]).is_err());
        assert_eq!(local_cpus("../../etc"), None);
    }
}
