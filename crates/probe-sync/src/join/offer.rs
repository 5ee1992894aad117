//! The addresses at which a rank can be probed.
//!
//! Every rank offers them in its hello, because no rank knows the others' addresses before that;
//! `choice` selects one per node. `--bind` and `--interface` leave no choice; settings for NCCL,
//! Gloo or Open MPI (`wish`) restrict the offer.
//!
//! It does not know which of them others can reach.

use std::net::IpAddr;

use probe_sync_sys::interfaces::Interface;
use serde::{Deserialize, Serialize};

use super::wish::Wish;
use crate::Config;

/// An address of a rank that peers may be able to reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Interface with the address; empty if no interface has the address given by `--bind`.
    pub interface: String,
    /// The address.
    pub ip: IpAddr,
    /// Length of the network prefix, bits.
    pub prefix_length: u8,
    /// Index of the interface, if the address is link-local.
    pub scope_id: u32,
    /// True if the default route uses this interface.
    pub default_route: bool,
    /// True if the connection to rank 0 uses this address (at rank 0: if the others' connections
    /// do).
    pub towards_root: bool,
}

/// Everything that a rank offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Flag or variable that restricts the offer.
    pub restricted_by: Option<String>,
    /// True if the rank's configuration names the interface or the address, so that no others are
    /// considered.
    pub named: bool,
    /// Network namespace of the rank, equal on ranks that share their interfaces.
    pub network: String,
    /// The candidates, best first.
    pub candidates: Vec<Candidate>,
    /// Rejected addresses, with reasons.
    pub passed_over: Vec<String>,
}

/// Facts from which an offer is made.
pub(super) struct Surroundings {
    /// Interfaces of the host.
    pub interfaces: Vec<Interface>,
    /// Interface of the default route.
    pub default_interface: Option<String>,
    /// Local address of the connection to rank 0, if known.
    pub towards_root: Option<IpAddr>,
    /// Setting of another library of the job.
    pub wish: Option<Wish>,
    /// Name of the network namespace.
    pub network: String,
}

impl Offer {
    /// Creates a rank's offer.
    ///
    /// # Errors
    /// Returns an error if `--interface` does not name an interface with an address; it lists those
    /// that have one.
    pub(super) fn of(config: &Config, around: &Surroundings) -> Result<Self, String> {
        let mut offer = Self {
            restricted_by: None,
            named: config.bind.is_some() || config.interface.is_some(),
            network: around.network.clone(),
            candidates: Vec::new(),
            passed_over: Vec::new(),
        };
        for interface in &around.interfaces {
            offer.consider(interface, config, around);
        }
        match (config.bind, &config.interface) {
            (Some(ip), _) => {
                offer.restricted_by = Some(format!("--bind {ip}"));
                if offer.candidates.is_empty() {
                    // Its socket will say why it cannot be bound.
                    offer.candidates.push(candidate("", ip, if ip.is_ipv4() { 32 } else { 128 }, 0, around));
                }
            }
            (None, Some(name)) => {
                offer.restricted_by = Some(format!("--interface {name}"));
                if offer.candidates.is_empty() {
                    let there = around.interfaces.iter().map(|interface| interface.name.as_str());
                    let there = there.collect::<Vec<_>>().join(", ");
                    return Err(format!(
                        "interface {name} does not exist or has no address; this host has {there}; see `ip addr`"
                    ));
                }
            }
            (None, None) => offer.restricted_by = around.wish.as_ref().map(|wish| wish.text.clone()),
        }
        // Stable: the system's order otherwise.
        offer.candidates.sort_by_key(Candidate::order);
        offer.candidates.truncate(CANDIDATES_MAX);
        offer.passed_over.truncate(CANDIDATES_MAX);
        Ok(offer)
    }

    /// Adds the addresses of an interface, or notes why not.
    fn consider(&mut self, interface: &Interface, config: &Config, around: &Surroundings) {
        let name = interface.name.as_str();
        if !interface.up || interface.addresses.is_empty() {
            let reason = if interface.up { "no address" } else { "down" };
            return self.passed_over.push(format!("{name} ({reason})"));
        }
        for own in &interface.addresses {
            let reason = match (config.bind, &config.interface, &around.wish) {
                (Some(bind), _, _) => (bind != own.ip).then(|| "not the address given by --bind".to_owned()),
                (None, Some(wanted), _) => (wanted != name).then(|| format!("not {wanted}")),
                _ if own.ip.is_loopback() => Some("loopback".to_owned()),
                (None, None, Some(wish)) if !wish.admits(name, own.ip) => Some(format!("not in {}", wish.text)),
                _ => None,
            };
            match reason {
                Some(reason) => self.passed_over.push(format!("{name} {} ({reason})", own.ip)),
                None => self.candidates.push(candidate(name, own.ip, own.prefix_length, own.scope_id, around)),
            }
        }
    }

    /// Describes the candidates.
    pub(super) fn listed(&self) -> String {
        let listed = |all: Vec<String>| all.join(", ");
        let own = self.candidates.iter().map(|own| format!("{} {}/{}", own.interface, own.ip, own.prefix_length));
        let restricted = self.restricted_by.as_ref().map_or_else(String::new, |by| format!(" ({by})"));
        match (self.candidates.is_empty(), self.passed_over.is_empty()) {
            (false, _) => listed(own.collect()) + &restricted,
            (true, false) => format!("no usable address{restricted}; rejected: {}", self.passed_over.join(", ")),
            (true, true) => format!("no network interface{restricted}"),
        }
    }
}

impl Candidate {
    /// Returns the sort key, smaller is better: addresses that are usually local to the host come
    /// last, then those that need a scope; IPv4 comes before IPv6, and the default route first.
    fn order(&self) -> (bool, bool, bool, bool) {
        let of_host = self.interface == "lo" || OF_HOST.iter().any(|name| self.interface.starts_with(name));
        (of_host, self.link_local(), self.ip.is_ipv6(), !self.default_route)
    }

    /// Returns true if the address is valid on its own wire only, so that addresses of two hosts do
    /// not show a common network.
    pub(super) fn link_local(&self) -> bool {
        match self.ip {
            IpAddr::V4(four) => four.is_link_local(),
            IpAddr::V6(six) => six.is_unicast_link_local(),
        }
    }
}

fn candidate(name: &str, ip: IpAddr, prefix_length: u8, scope_id: u32, around: &Surroundings) -> Candidate {
    Candidate {
        interface: name.to_owned(),
        ip,
        prefix_length,
        scope_id,
        default_route: around.default_interface.as_deref() == Some(name),
        towards_root: around.towards_root == Some(ip),
    }
}

/// Prefixes of bridges to containers and virtual machines within a host. NCCL also excludes the
/// first two.
const OF_HOST: [&str; 6] = ["docker", "virbr", "br-", "podman", "cni", "lxc"];

/// Most candidates; the hello of every rank carries them.
const CANDIDATES_MAX: usize = 32;

#[cfg(test)]
pub(super) mod tests {
    use probe_sync_sys::interfaces::InterfaceAddress;

    use super::*;

    /// Parses interfaces from `eth0 10.0.0.1/24, eth1 down`: a name, then an address with its
    /// prefix, or a state.
    pub fn interfaces(text: &str) -> Vec<Interface> {
        let mut all: Vec<Interface> = Vec::new();
        for (name, what) in text.split(", ").filter_map(|entry| entry.split_once(' ')) {
            let place = all.iter().position(|known| known.name == name).unwrap_or_else(|| {
                let (up, loopback) = (what != "down", name == "lo");
                all.push(Interface { name: name.to_owned(), up, loopback, addresses: Vec::new() });
                all.len() - 1
            });
            if let Some((ip, length)) = what.split_once('/') {
                let ip: IpAddr = ip.parse().expect("an address");
                let scope_id = if ip.to_string().starts_with("fe80") { place as u32 + 1 } else { 0 };
                let own = InterfaceAddress { ip, prefix_length: length.parse().expect("a length"), scope_id };
                all[place].addresses.push(own);
            }
        }
        all
    }

    /// The offer of a host with these interfaces. `default` has the default route.
    pub fn offer(
        text: &str,
        config: &Config,
        default: Option<&str>,
        wish: Option<(&str, &str)>,
    ) -> Result<Offer, String> {
        let wish = wish.and_then(|(name, value)| Wish::stated(|asked| (asked == name).then(|| value.to_owned())));
        let around = Surroundings {
            interfaces: interfaces(text),
            default_interface: default.map(str::to_owned),
            towards_root: None,
            wish,
            network: text.to_owned(),
        };
        Offer::of(config, &around)
    }

    fn check(config: &Config, wish: Option<(&str, &str)>, expected: &str) {
        const HOST: &str = "lo 127.0.0.1/8, lo 10.255.0.1/32, docker0 172.17.0.1/16, eth1 fe80::1/64, eth1 10.1.0.1/24, \
                            eth1 fd00::1/64, eth0 10.0.0.1/24, eth2 down";
        let offer = offer(HOST, config, Some("eth0"), wish).expect("an offer");
        let order: Vec<String> = offer.candidates.iter().map(|own| own.ip.to_string()).collect();
        assert_eq!(order.join(" "), expected, "{config:?} {wish:?}: {}", offer.listed());
        assert!(offer.passed_over.iter().any(|text| text == "eth2 (down)"), "{offer:?}");
    }

    #[test]
    fn candidates_come_best_first() {
        let any = Config::default();
        check(&any, None, "10.0.0.1 10.1.0.1 fd00::1 fe80::1 10.255.0.1 172.17.0.1");
        check(&any, Some(("NCCL_SOCKET_IFNAME", "eth1")), "10.1.0.1 fd00::1 fe80::1");
        check(&any, Some(("GLOO_SOCKET_IFNAME", "ib0")), "");
        let on = |name: &str| Config { interface: Some(name.into()), ..Config::default() };
        check(&on("eth1"), Some(("NCCL_SOCKET_IFNAME", "eth0")), "10.1.0.1 fd00::1 fe80::1");
        check(&on("lo"), None, "127.0.0.1 10.255.0.1");
        let at = |ip: &str| Config { bind: ip.parse().ok(), ..Config::default() };
        check(&at("127.0.0.1"), None, "127.0.0.1");
        check(&at("10.9.9.9"), Some(("NCCL_SOCKET_IFNAME", "eth0")), "10.9.9.9");
    }

    #[test]
    fn what_is_no_candidate_is_told_with_its_reason() {
        let on = |name: &str| Config { interface: Some(name.into()), ..Config::default() };
        let host = "lo 127.0.0.1/8, eth0 10.0.0.1/24, eth1 -";
        for name in ["eth7", "eth1"] {
            let refusal = offer(host, &on(name), None, None).expect_err("no address");
            assert!(refusal.contains(name) && refusal.contains("lo, eth0, eth1"), "{refusal}");
        }
        let told =
            offer(host, &Config::default(), None, Some(("GLOO_SOCKET_IFNAME", "ib0"))).expect("an offer").listed();
        for part in ["GLOO_SOCKET_IFNAME=ib0", "lo 127.0.0.1 (loopback)", "eth0 10.0.0.1 (not in", "eth1 (no address)"]
        {
            assert!(told.contains(part), "{told} lacks {part}");
        }
    }
}
