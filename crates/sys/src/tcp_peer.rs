//! Whose process is at the other end of a TCP connection within this host.
//!
//! Place in the flow: ranks that know each other by a name that others can guess ask before they believe (`collective`). Unix-domain sockets have
//! `SO_PEERCRED`; of TCP the kernel's table of connections says who opened the other end.
//!
//! What it does not do: know anything of other hosts, or of other network namespaces.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The user of the socket whose own address is `own` and which is connected to `other`. None where this host has no such socket.
pub fn user_of(own: SocketAddr, other: SocketAddr) -> Option<u32> {
    let wanted = [own, other].map(canonical);
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|path| {
        let lines = BufReader::new(File::open(path).ok()?).lines().map_while(Result::ok);
        lines.filter_map(|line| entry(&line)).find(|(ends, _)| *ends == wanted).map(|(_, user)| user)
    })
}

/// Both ends of a connection that stands, and its user: `sl local remote state queues timer retransmits uid …`.
fn entry(line: &str) -> Option<([SocketAddr; 2], u32)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let ends = [address(words.next()?)?, address(words.next()?)?];
    let stands = words.next()? == ESTABLISHED;
    let user = words.nth(3)?.parse().ok()?;
    stands.then_some((ends, user))
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

/// An address of IPv4 as such, also on a socket of both families.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

const ESTABLISHED: &str = "01";

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
                assert_eq!(user_of(ends[0], ends[1]), Some(own), "{address}");
            }
            let free = SocketAddr::new(one.local_addr().expect("connected").ip(), 1);
            assert_eq!(user_of(free, free), None);
        }
    }

    #[test]
    fn a_line_of_the_kernels_table_is_read() {
        let line = "   2: 0100007F:1F90 0200007F:D431 01 00000000:00000000 00:00000000 00000000  1001        0 4711 1 0 20 4 30 10 -1";
        let ends = ["127.0.0.1:8080", "127.0.0.2:54321"].map(|end| end.parse::<SocketAddr>().expect("an address"));
        assert_eq!(entry(line), Some((ends, 1001)).filter(|_| cfg!(target_endian = "little")));
        for other in ["", "  sl  local_address rem_address   st", &line.replace(" 01 ", " 06 "), &line.replace(':', "")]
        {
            assert_eq!(entry(other), None, "{other}");
        }
    }
}
