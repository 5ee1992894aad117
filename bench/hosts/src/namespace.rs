//! Network namespaces that act as hosts, each with one TUN device. They are always removed.
//!
//! Programs run inside the namespaces through `ip netns exec`. Each device is created in this
//! program's own namespace and then moved: a TUN device keeps its file descriptor when it changes
//! namespace, so none of our threads has to enter one. Names contain this process's id, and the
//! next start removes the leftovers of a killed predecessor. It never touches an interface or
//! address outside the namespaces it has created.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use tun_rs::{DeviceBuilder, SyncDevice};

/// Hosts that vanish when this is dropped.
pub(crate) struct Namespaces {
    hosts: Vec<Host>,
}

/// One namespace.
pub(crate) struct Host {
    /// Its name, for `ip netns exec`.
    pub(crate) name: String,
    /// Its only address beside loopback.
    pub(crate) address: Ipv4Addr,
    /// The other end of its only interface.
    pub(crate) device: SyncDevice,
}

/// This machine or user may not make namespaces.
#[derive(Debug)]
pub(crate) struct NotPermitted(String);

impl fmt::Display for NotPermitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network namespaces are not permitted here: {}", self.0)
    }
}

impl std::error::Error for NotPermitted {}

impl Namespaces {
    /// Makes `count` hosts with addresses 10.77.0.1 and up.
    ///
    /// # Errors
    /// [`NotPermitted`] where namespaces or TUN devices cannot be had; anything else is a failure.
    pub(crate) fn new(count: u8) -> Result<Self> {
        permitted()?;
        remove_stale();
        let mut made = Self { hosts: Vec::new() };
        // Each host enters the list before it is complete, so that an error half-way removes it,
        // too.
        for index in 0..count {
            let name = format!("{PREFIX}{}-{index}", std::process::id());
            let device = tun(&name)?;
            made.hosts.push(Host { name, address: Ipv4Addr::new(10, 77, 0, index + 1), device });
            made.hosts[usize::from(index)].configure()?;
        }
        Ok(made)
    }

    /// The hosts in order of their addresses.
    pub(crate) fn hosts(&self) -> &[Host] {
        &self.hosts
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for host in &self.hosts {
            // There is nobody left to tell; a remainder goes at the next start.
            let _gone_or_stale = ip(&["netns", "delete", &host.name]);
        }
    }
}

impl Host {
    fn configure(&self) -> Result<()> {
        let name = self.name.as_str();
        let address = format!("{}/24", self.address);
        ip(&["netns", "add", name])?;
        ip(&["link", "set", "dev", name, "netns", name])?;
        ip(&["-n", name, "link", "set", "dev", name, "name", INTERFACE])?;
        ip(&["-n", name, "link", "set", "dev", "lo", "up"])?;
        // Without IPv6 the kernel sends nothing on its own, and every packet is one of the
        // program's.
        let off = "net.ipv6.conf.all.disable_ipv6=1";
        run(Command::new("ip").args(["netns", "exec", name, "sysctl", "-q", "-w", off]))?;
        ip(&["-n", name, "address", "add", &address, "dev", INTERFACE])?;
        // The emulator may be off the processor for milliseconds; nothing may be lost here
        // meanwhile.
        ip(&["-n", name, "link", "set", "dev", INTERFACE, "txqueuelen", "20000", "up"])?;
        Ok(())
    }

    /// A command that runs `program` inside.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Packets that the device lost because its queue was full.
    ///
    /// # Errors
    /// The interface's statistics cannot be read.
    pub(crate) fn device_drops(&self) -> Result<u64> {
        let path = format!("/sys/class/net/{INTERFACE}/statistics/tx_dropped");
        let output = self.command(Path::new("cat")).arg(path).output().context("reading the interface's statistics")?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().with_context(|| format!("{}: no statistics of {INTERFACE}: {text:?}", self.name))
    }

    /// Packets that a full socket lost, from `/proc/net/snmp` (UDP, RcvbufErrors), and that found
    /// no socket (NoPorts).
    ///
    /// # Errors
    /// The statistics cannot be read.
    pub(crate) fn socket_drops(&self) -> Result<(u64, u64)> {
        let output = self.command(Path::new("cat")).arg("/proc/net/snmp").output().context("reading /proc/net/snmp")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let field = |name| udp_statistic(&text, name).with_context(|| format!("/proc/net/snmp has no Udp {name}"));
        Ok((field("RcvbufErrors")?, field("NoPorts")?))
    }
}

/// A column of the two `Udp:` lines, names above numbers.
fn udp_statistic(snmp: &str, name: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter(|line| line.starts_with("Udp:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let column = names.split_whitespace().position(|word| word == name)?;
    numbers.split_whitespace().nth(column)?.parse().ok()
}

fn tun(name: &str) -> Result<SyncDevice> {
    // It stays down until it is in its namespace.
    let device = DeviceBuilder::new().name(name).enable(false).build_sync();
    let device = device.map_err(|error| NotPermitted(format!("TUN device {name}: {error}")))?;
    device.set_nonblocking(true).context("making a TUN device non-blocking")?;
    Ok(device)
}

/// Finds out by trying, because capabilities, containers and security modules forbid it each in its
/// own way.
fn permitted() -> Result<()> {
    if !Path::new("/dev/net/tun").exists() {
        bail!(NotPermitted("there is no /dev/net/tun".to_owned()));
    }
    let name = format!("{PREFIX}{}-try", std::process::id());
    ip(&["netns", "add", &name]).map_err(|error| NotPermitted(format!("{error:#}")))?;
    ip(&["netns", "delete", &name])
}

/// Removes namespaces of processes that no longer are.
fn remove_stale() {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')).map(|(pid, _)| pid);
        let stale = owner
            .is_some_and(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()) && !Path::new("/proc").join(pid).exists());
        if stale {
            let _gone_meanwhile = ip(&["netns", "delete", &name]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    run(Command::new("ip").args(arguments))
}

fn run(command: &mut Command) -> Result<()> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let shown = words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("starting {shown} (package iproute2)"))?;
    if output.status.success() {
        return Ok(());
    }
    bail!("{shown}: {}", String::from_utf8_lossy(&output.stderr).trim())
}

/// Names of namespaces and, at first, of devices: 15 characters are the limit.
const PREFIX: &str = "psync";

/// The interface's name inside every namespace.
const INTERFACE: &str = "link0";

#[cfg(test)]
mod tests {
    use super::udp_statistic;

    fn check(name: &str, expected: Option<u64>) {
        let snmp =
            "Ip: A B\nIp: 1 2\nUdp: InDatagrams NoPorts RcvbufErrors\nUdp: 10 3 7\nUdpLite: NoPorts\nUdpLite: 99\n";
        assert_eq!(udp_statistic(snmp, name), expected, "{name}");
    }

    #[test]
    fn statistics_are_found_by_column() {
        check("NoPorts", Some(3));
        check("RcvbufErrors", Some(7));
        check("Absent", None);
    }
}
