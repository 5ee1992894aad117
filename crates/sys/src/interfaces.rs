//! The network interfaces of this host, their addresses, and the default route.
//!
//! It does not watch for changes.

use std::ffi::CStr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::Error;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// It is up.
    pub up: bool,
    /// It leads only to this host itself.
    pub loopback: bool,
    /// Addresses.
    pub addresses: Vec<InterfaceAddress>,
}

/// An address of an interface, with the network reachable through it without a router.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// Address.
    pub ip: IpAddr,
    /// Leading bits shared by all addresses of the network.
    pub prefix_length: u8,
    /// The interface index if the address is link-local, which alone does not tell where it leads;
    /// otherwise 0.
    pub scope_id: u32,
}

/// Returns all interfaces, in the system's order.
///
/// # Errors
/// Returns an error if the system refuses.
pub fn interfaces() -> Result<Vec<Interface>, Error> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: on success `first` points to a list that stays valid until `freeifaddrs`.
    if unsafe { libc::getifaddrs(&raw mut first) } < 0 {
        return Err(Error::last_os("list the network interfaces"));
    }
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: `next` is an element of the list, not freed yet; its name is a C string.
        let (entry, name) = unsafe { (&*next, CStr::from_ptr((*next).ifa_name)) };
        let name = name.to_string_lossy();
        // SAFETY: `ifa_addr` is null or points to an address of the family that it names.
        let address = unsafe { address_of(entry.ifa_addr) };
        // SAFETY: as `ifa_addr`.
        let mask = unsafe { address_of(entry.ifa_netmask) };
        let index = interfaces.iter().position(|known| known.name == name).unwrap_or_else(|| {
            let has = |flag: libc::c_int| entry.ifa_flags & flag as libc::c_uint != 0;
            interfaces.push(Interface {
                name: name.into_owned(),
                up: has(libc::IFF_UP),
                loopback: has(libc::IFF_LOOPBACK),
                addresses: Vec::new(),
            });
            interfaces.len() - 1
        });
        let prefix_length =
            |ip: IpAddr| mask.map_or(if ip.is_ipv4() { 32 } else { 128 }, |(mask, _)| leading_ones(mask));
        let with_prefix = |(ip, scope_id)| InterfaceAddress { ip, prefix_length: prefix_length(ip), scope_id };
        interfaces[index].addresses.extend(address.map(with_prefix));
        next = entry.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs`, is freed once, and nothing borrowed from it is left.
    unsafe { libc::freeifaddrs(first) };
    Ok(interfaces)
}

/// Returns the interface of the default route with the smallest metric, IPv4 before IPv6.
pub fn default_interface() -> Option<String> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    default_route_v4(&read("/proc/net/route")).or_else(|| default_route_v6(&read("/proc/net/ipv6_route")))
}

/// Returns the addresses at which others may reach this host: those of interfaces that are up, the
/// one of the default route first. Link-local addresses are omitted, since they mean nothing
/// elsewhere; loopback addresses count only if there are no others.
///
/// # Errors
/// Returns an error if the system refuses.
pub fn own_addresses() -> Result<Vec<IpAddr>, Error> {
    let mut all = interfaces()?;
    all.retain(|interface| interface.up);
    let first = default_interface();
    all.sort_by_key(|interface| Some(&interface.name) != first.as_ref());
    let of = |loopback: bool| {
        let wanted = all.iter().filter(move |interface| interface.loopback == loopback);
        let addresses = wanted.flat_map(|interface| &interface.addresses).filter(|address| address.scope_id == 0);
        addresses.map(|address| address.ip).collect::<Vec<IpAddr>>()
    };
    let outward = of(false);
    Ok(if outward.is_empty() { of(true) } else { outward })
}

/// Returns the source address of packets from this host to `to`, according to its routes. Nothing
/// is sent.
///
/// # Errors
/// Returns an error if no route leads there.
pub fn address_towards(to: SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

/// Leading ones of a network mask.
fn leading_ones(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    ones as u8
}

/// # Safety
/// `address` must be null or point to an address of the family that it names. The number is the
/// scope of a link-local address.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<(IpAddr, u32)> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, and every address begins with its family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a `sockaddr_in`; read unaligned, as nothing
            // promises alignment.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some((Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into(), 0))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a `sockaddr_in6`; read unaligned, as nothing
            // promises alignment.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some((Ipv6Addr::from(v6.sin6_addr.s6_addr).into(), v6.sin6_scope_id))
        }
        _ => None,
    }
}

/// `/proc/net/route`: interface, destination, gateway, flags, references, use, metric (decimal),
/// mask, …; hexadecimal.
fn default_route_v4(table: &str) -> Option<String> {
    let routes = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [interface, destination, _, flags, _, _, metric, mask, ..] = fields[..] else { return None };
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let is_default = destination == "00000000" && mask == "00000000";
        usable_route(is_default, flags, interface).then(|| Some((metric.parse::<u32>().ok()?, interface.to_owned())))?
    });
    routes.min_by_key(|(metric, _)| *metric).map(|(_, interface)| interface)
}

/// `/proc/net/ipv6_route`: destination, its prefix length, source, its prefix length, next hop,
/// metric, references, use, flags, interface; all hexadecimal.
fn default_route_v6(table: &str) -> Option<String> {
    let routes = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [destination, prefix, _, _, _, metric, _, _, flags, interface] = fields[..] else { return None };
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let is_default = prefix == "00" && destination.bytes().all(|digit| digit == b'0');
        usable_route(is_default, flags, interface)
            .then(|| Some((u32::from_str_radix(metric, 16).ok()?, interface.to_owned())))?
    });
    routes.min_by_key(|(metric, _)| *metric).map(|(_, interface)| interface)
}

fn usable_route(is_default: bool, flags: u32, interface: &str) -> bool {
    is_default && flags & ROUTE_UP != 0 && flags & ROUTE_REJECT == 0 && interface != "lo"
}

const ROUTE_UP: u32 = 0x1;
const ROUTE_REJECT: u32 = 0x200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_route_with_the_least_metric_counts() {
        let head = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n";
        let route = |name: &str, destination: &str, flags: &str, metric: u32, mask: &str| {
            format!("{name} {destination} 010200C0 {flags} 0 0 {metric} {mask} 0 0 0\n")
        };
        let check = |routes: &[String], expected: Option<&str>| {
            assert_eq!(default_route_v4(&(head.to_owned() + &routes.concat())).as_deref(), expected);
        };
        let wifi = route("wlan0", "00000000", "0003", 600, "00000000");
        let wire = route("eth0", "00000000", "0003", 100, "00000000");
        let local = route("eth1", "0000A8C0", "0001", 0, "00FFFFFF");
        check(&[], None);
        check(&[local.clone(), wifi.clone(), wire], Some("eth0"));
        check(&[wifi.clone(), local], Some("wlan0"));
        check(&[route("down0", "00000000", "0002", 1, "00000000"), wifi.clone()], Some("wlan0"));
        check(&[route("bad0", "00000000", "0203", 1, "00000000"), wifi], Some("wlan0"));
        check(&["garbage\n".to_owned()], None);
    }

    #[test]
    fn the_ipv6_default_route_is_not_the_reject_route_of_loopback() {
        let zeros = "0".repeat(32);
        let line = |metric: &str, flags: &str, name: &str| {
            format!(
                "{zeros} 00 {zeros} 00 fd000000000000000000000000000001 {metric} 00000002 00000000 {flags} {name}\n"
            )
        };
        let reject = line("ffffffff", "00200200", "lo");
        let good = line("00000400", "00000003", "eth0");
        assert_eq!(default_route_v6(&format!("{reject}{good}")).as_deref(), Some("eth0"));
        assert_eq!(default_route_v6(&reject), None);
    }

    #[test]
    fn masks_are_counted() {
        let check = |mask: &str, expected| assert_eq!(leading_ones(mask.parse().expect("a mask")), expected, "{mask}");
        check("255.255.240.0", 20);
        check("255.255.255.255", 32);
        check("0.0.0.0", 0);
        check("ffff:ffff:ffff:ffff::", 64);
    }

    #[test]
    fn this_host_has_a_loopback_and_a_route_to_it() {
        let interfaces = interfaces().expect("the system lists them");
        let loopback = interfaces.iter().find(|interface| interface.loopback).expect("a loopback");
        let own = InterfaceAddress { ip: Ipv4Addr::LOCALHOST.into(), prefix_length: 8, scope_id: 0 };
        assert!(loopback.up && loopback.addresses.contains(&own), "{interfaces:?}");
        let towards = |to: &str| address_towards(to.parse().expect("an address")).expect("a route");
        assert_eq!(towards("127.0.0.9:9"), own.ip);
    }
}
