//! The owner of the process at the other end of a TCP connection within this host.
//!
//! Ranks that know each other only by a guessable name check it before they trust a peer
//! (`collective`). Unix-domain sockets have `SO_PEERCRED`; for TCP, the kernel's connection table
//! states who opened the other end.
//!
//! It cannot identify peers on other hosts or in other network namespaces.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::interfaces::address_towards;

/// The other end of a TCP connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this host, whose socket belongs to this user.
    User(u32),
    /// A process of this host that has closed its end. The kernel no longer knows its user,
    /// although what it sent can still be read.
    Gone,
    /// Another host or network namespace, or one that the kernel's table does not show.
    Elsewhere,
}

/// Returns the owner of the socket whose own address is `peer` and which is connected to `own`, the
/// address of this process's end.
pub fn at(peer: SocketAddr, own: SocketAddr) -> Peer {
    let [wanted, reversed] = [[peer, own], [own, peer]].map(|ends| ends.map(canonical));
    let mut is_listed = false;
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Ok(file) = File::open(path) else { continue };
        for (ends, owner) in BufReader::new(file).lines().map_while(Result::ok).filter_map(|line| entry(&line)) {
            if ends == wanted {
                return owner.map_or(Peer::Gone, Peer::User);
            }
            is_listed |= ends == reversed;
        }
    }
    if is_listed && is_of_this_host(wanted[0]) { Peer::Gone } else { Peer::Elsewhere }
}

/// Both ends of a connection, and the user of its socket: `sl local remote state queues timer
/// retransmits uid timeouts inode …`.
fn entry(line: &str) -> Option<([SocketAddr; 2], Option<u32>)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let ends = [address(words.next()?)?, address(words.next()?)?];
    let user = words.nth(4)?.parse().ok()?;
    // A connection whose process has closed it is shown as root's, without an inode.
    let owned = words.nth(1)? != "0";
    Some((ends, owned.then_some(user)))
}

/// Packets to an address of this host leave from that address.
fn is_of_this_host(address: SocketAddr) -> bool {
    address.ip().is_loopback() || address_towards(address).is_ok_and(|from| from == address.ip())
}

/// `0100007F:1F90`: words in the machine's byte order.
fn address(text: &str) -> Option<SocketAddr> {
    let (digits, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(digits.get(8 * at..8 * at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match digits.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?))
        }
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, port)))
}

/// An IPv4 address as such, also on a socket of both families.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn both_ends_of_a_connection_are_found_and_no_other() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                println!("skipped: there is no {address}");
                continue;
            };
            let one = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
            let (other, _) = listener.accept().expect("it connects");
            let own = rustix::process::geteuid().as_raw();
            for stream in [&one, &other] {
                let ends = [stream.peer_addr(), stream.local_addr()].map(|end| end.expect("connected"));
                assert_eq!(at(ends[0], ends[1]), Peer::User(own), "{address}");
            }
            let free = SocketAddr::new(one.local_addr().expect("connected").ip(), 1);
            assert_eq!(at(free, free), Peer::Elsewhere);
        }
    }

    #[test]
    fn who_has_closed_its_end_is_known_to_have_gone() {
        use std::io::{Read as _, Write as _};
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let connect = || {
            let one = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
            (one, listener.accept().expect("it connects").0)
        };
        let peer =
            |stream: &TcpStream| at(stream.peer_addr().expect("connected"), stream.local_addr().expect("connected"));
        let (mut one, mut other) = connect();
        one.write_all(b"said before").expect("there is room");
        one.shutdown(std::net::Shutdown::Write).expect("connected");
        other.read_exact(&mut [0; 11]).expect("it was said");
        assert_eq!(other.read(&mut [0]).expect("the end"), 0);
        assert_eq!(peer(&other), Peer::User(rustix::process::geteuid().as_raw()), "half of it is still there");
        drop(one);
        assert_eq!(peer(&other), Peer::Gone);
    }

    #[test]
    fn a_line_of_the_kernels_table_is_read() {
        let line = "   2: 0100007F:1F90 0200007F:D431 01 00000000:00000000 00:00000000 00000000  1001        0 4711 1 0 20 4 30 10 -1";
        let ends = ["127.0.0.1:8080", "127.0.0.2:54321"].map(|end| end.parse::<SocketAddr>().expect("an address"));
        let little = |user| Some((ends, user)).filter(|_| cfg!(target_endian = "little"));
        assert_eq!(entry(line), little(Some(1001)));
        assert_eq!(entry(&line.replace(" 01 ", " 05 ")), little(Some(1001)), "half closed");
        assert_eq!(entry(&line.replace("1001        0 4711", "   0        0 0")), little(None), "nobody's any more");
        for other in ["", "  sl  local_address rem_address   st", &line.replace(':', "")] {
            assert_eq!(entry(other), None, "{other}");
        }
    }
}
