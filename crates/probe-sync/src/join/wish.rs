//! The network interfaces that the job's other libraries were configured to use.
//!
//! `offer` uses it when neither `--bind` nor `--interface` is given. On a cluster whose hosts have
//! several networks, NCCL, Gloo or Open MPI have already been configured; their variables have the
//! same meaning here:
//!
//! | variable | value |
//! |---|---|
//! | `NCCL_SOCKET_IFNAME` | beginnings of names; after `=` whole names; after `^` or `^=` those to leave out; a `:port` behind a name does not count |
//! | `GLOO_SOCKET_IFNAME` | whole names |
//! | `OMPI_MCA_btl_tcp_if_include`, `…_exclude` | whole names, or networks as in `10.1.0.0/16` |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The interfaces that a variable selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// The variable with its value, for display.
    pub text: String,
    leave_out: bool,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Beginning(String),
    Name(String),
    Network(IpAddr, u8),
}

impl Wish {
    /// Returns the wish of the first variable that is set and not empty.
    pub fn stated(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        VARIABLES.iter().find_map(|(name, read)| {
            let value = variable(name).filter(|value| !value.trim().is_empty())?;
            let (leave_out, parts) = read(value.trim());
            Some(Self { text: format!("{name}={}", value.trim()), leave_out, parts })
        })
    }

    /// Returns true if the variable admits this address of this interface.
    pub fn admits(&self, interface: &str, ip: IpAddr) -> bool {
        let meant = self.parts.iter().any(|part| match part {
            Part::Beginning(beginning) => interface.starts_with(beginning.as_str()),
            Part::Name(name) => interface == name,
            Part::Network(network, length) => same_network(*network, ip, *length),
        });
        meant != self.leave_out
    }
}

/// Returns true if both addresses have the same first `length` bits.
pub(super) fn same_network(one: IpAddr, other: IpAddr, length: u8) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (one.to_bits() ^ other.to_bits()).checked_shr(32 - u32::from(length.min(32))).unwrap_or(0) == 0
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            (one.to_bits() ^ other.to_bits()).checked_shr(128 - u32::from(length.min(128))).unwrap_or(0) == 0
        }
        _ => false,
    }
}

fn nccl(value: &str) -> (bool, Vec<Part>) {
    let (leave_out, rest) = value.strip_prefix('^').map_or((false, value), |rest| (true, rest));
    let (exact, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
    let part = |name: &str| {
        let name = name.split(':').next().unwrap_or(name).to_owned();
        if exact { Part::Name(name) } else { Part::Beginning(name) }
    };
    (leave_out, list(rest).map(part).collect())
}

fn gloo(value: &str) -> (bool, Vec<Part>) {
    (false, list(value).map(|name| Part::Name(name.to_owned())).collect())
}

fn open_mpi(value: &str) -> Vec<Part> {
    list(value).map(|entry| network(entry).unwrap_or_else(|| Part::Name(entry.to_owned()))).collect()
}

/// Parses `10.1.0.0/16`, also with trailing bytes missing (`10.1/16`), or the IPv6 equivalent.
fn network(text: &str) -> Option<Part> {
    let (address, length) = text.split_once('/')?;
    let length: u8 = length.parse().ok()?;
    if let Ok(six) = address.parse::<Ipv6Addr>() {
        return (length <= 128).then_some(Part::Network(six.into(), length));
    }
    let mut bytes = [0; 4];
    let mut given = address.split('.');
    for (byte, given) in bytes.iter_mut().zip(&mut given) {
        *byte = given.parse().ok()?;
    }
    (given.next().is_none() && length <= 32).then_some(Part::Network(Ipv4Addr::from(bytes).into(), length))
}

fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

type Read = fn(&str) -> (bool, Vec<Part>);

/// Variables in order of precedence: the library that moves the job's gradients knows the network
/// best.
const VARIABLES: [(&str, Read); 4] = [
    ("NCCL_SOCKET_IFNAME", nccl),
    ("GLOO_SOCKET_IFNAME", gloo),
    ("OMPI_MCA_btl_tcp_if_include", |value| (false, open_mpi(value))),
    ("OMPI_MCA_btl_tcp_if_exclude", |value| (true, open_mpi(value))),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks which of some interfaces a variable admits.
    fn check(name: &str, value: &str, expected: &[&str]) {
        let there = [("eth0", "10.1.0.5"), ("eth01", "10.2.0.5"), ("ib0", "10.1.200.5"), ("docker0", "fd00::5")];
        let wish = Wish::stated(|asked| (asked == name).then(|| value.to_owned())).expect("set");
        let admitted = there.iter().filter(|(interface, ip)| wish.admits(interface, ip.parse().expect("an address")));
        let admitted: Vec<_> = admitted.map(|(interface, _)| *interface).collect();
        assert_eq!(admitted, expected, "{name}={value}");
    }

    #[test]
    fn variables_mean_what_they_mean_to_their_libraries() {
        let nccl = "NCCL_SOCKET_IFNAME";
        check(nccl, "eth", &["eth0", "eth01"]);
        check(nccl, "=eth0", &["eth0"]);
        check(nccl, " ib,docker ", &["ib0", "docker0"]);
        check(nccl, "^docker,ib", &["eth0", "eth01"]);
        check(nccl, "^=eth0", &["eth01", "ib0", "docker0"]);
        check(nccl, "=ib0:1", &["ib0"]);
        check("GLOO_SOCKET_IFNAME", "eth0,ib0", &["eth0", "ib0"]);
        check("GLOO_SOCKET_IFNAME", "eth", &[]);
        let include = "OMPI_MCA_btl_tcp_if_include";
        check(include, "ib0,10.2.0.0/16", &["eth01", "ib0"]);
        check(include, "10.1/16", &["eth0", "ib0"]);
        check(include, "10.1.200.0/21", &["ib0"]);
        check(include, "fd00::/8", &["docker0"]);
        check(include, "0.0.0.0/0", &["eth0", "eth01", "ib0"]);
        check(include, "10.1.0.0.0/16,10.1.0.0/99,300.1/8", &[]);
        check("OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8,docker0", &["eth0", "eth01", "ib0"]);
    }

    #[test]
    fn the_first_that_is_set_counts() {
        let set = |names: &'static [&'static str]| {
            Wish::stated(move |asked| names.contains(&asked).then(|| "eth0".to_owned())).map(|wish| wish.text)
        };
        assert_eq!(set(&[]), None);
        assert_eq!(
            set(&["OMPI_MCA_btl_tcp_if_include", "GLOO_SOCKET_IFNAME"]).as_deref(),
            Some("GLOO_SOCKET_IFNAME=eth0")
        );
        assert_eq!(Wish::stated(|_| Some(" ".to_owned())), None);
    }
}
