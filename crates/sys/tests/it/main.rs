//! Real sockets on loopback, IPv4 and IPv6. No test asserts how long anything took; where one
//! waits, the limit only turns a hang into a failure.

mod forked_writer;
mod udp;
mod waiting;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Loopback addresses of the families that this machine has, port 0.
fn loopbacks() -> Vec<SocketAddr> {
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    if UdpSocket::bind(v6).is_ok() {
        return vec![v4, v6];
    }
    println!("skipped for IPv6: this machine has no ::1");
    vec![v4]
}
