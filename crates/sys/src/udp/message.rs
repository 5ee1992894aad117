//! Sends and receives batches of datagrams, with the control messages that carry timestamps.
//!
//! These are the only system calls of the probe socket. The layouts are the kernel's
//! (`include/uapi/linux/{socket,errqueue,net_tstamp}.h`). They are read from byte slices, so that a
//! malformed message yields `None` and never an out-of-bounds read.

use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use probe_sync_time::{System, Timestamp};

/// A datagram to send: its bytes, its destination, and whether its transmit timestamp is wanted.
pub(super) type Datagram<'a> = (&'a [u8], socket2::SockAddr, bool);

/// Sends up to [`BATCH`] datagrams with one system call, and returns how many were sent; an error
/// is that of the first. `first_id` identifies those with wanted timestamps to the error queue,
/// counting up (Linux ≥ 6.13; `EINVAL` before).
pub(super) fn send(socket: BorrowedFd<'_>, datagrams: &[Datagram<'_>], first_id: Option<u32>) -> io::Result<usize> {
    let count = datagrams.len().min(BATCH);
    // SAFETY: `mmsghdr` and `iovec` are plain data for which all zeroes is a valid value.
    let (mut headers, mut vectors): ([libc::mmsghdr; BATCH], [libc::iovec; BATCH]) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let mut controls = [const { Aligned([0u8; SEND_CONTROL_SPACE]) }; BATCH];
    let mut id = first_id;
    for (((bytes, to, stamped), header), (vector, control)) in
        datagrams.iter().zip(&mut headers).zip(vectors.iter_mut().zip(&mut controls))
    {
        *vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let header = &mut header.msg_hdr;
        header.msg_name = to.as_ptr().cast_mut().cast();
        header.msg_namelen = to.len();
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        let said = match (stamped, &mut id) {
            (false, _) => Some((SCM_TIMESTAMPING, 0)),
            (true, Some(id)) => Some((SCM_TS_OPT_ID, std::mem::replace(id, id.wrapping_add(1)))),
            (true, None) => None,
        };
        if let Some((kind, value)) = said {
            put_control(&mut control.0, kind, value);
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = SEND_CONTROL_SPACE as _;
        }
    }
    // SAFETY: the first `count` headers point to memory that outlives the call, with the lengths
    // given beside it; the kernel only reads through them.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Adds one control message of the socket level with a 32-bit word. [`SCM_TIMESTAMPING`] with 0
/// (Linux ≥ 4.6) requests no transmit timestamps: it applies to this packet alone, and saves the
/// kernel a copy and the reader a message.
fn put_control(control: &mut [u8; SEND_CONTROL_SPACE], kind: libc::c_int, value: u32) {
    let length = CONTROL_HEADER + size_of::<u32>();
    control[..8].copy_from_slice(&length.to_ne_bytes());
    control[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    control[12..16].copy_from_slice(&kind.to_ne_bytes());
    control[16..20].copy_from_slice(&value.to_ne_bytes());
}

/// Control data that the kernel returned with a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Control {
    /// The kernel's own timestamp.
    pub(super) kernel: Option<Timestamp<System>>,
    /// The interface's timestamp, ns on the interface's clock.
    pub(super) hardware_ns: Option<i64>,
    /// Datagrams dropped because the receive buffer was full since the socket was created, modulo
    /// 2^32.
    pub(super) dropped: Option<u32>,
    /// The subject of an error-queue message.
    pub(super) error: Option<ExtendedError>,
}

/// `struct sock_extended_err`: why a message is on the error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExtendedError {
    /// The error number; `ENOMSG` for a timestamp.
    pub(super) errno: i32,
    /// Origin: `SO_EE_ORIGIN_…`.
    pub(super) origin: u8,
    /// For a timestamp its kind, `SCM_TSTAMP_…`.
    pub(super) info: u32,
    /// For a timestamp the packet's id.
    pub(super) data: u32,
}

impl ExtendedError {
    /// True for a transmit timestamp taken when the packet left, as opposed to scheduled or
    /// acknowledged.
    pub(super) fn is_transmit_stamp(&self) -> bool {
        self.origin == libc::SO_EE_ORIGIN_TIMESTAMPING && self.errno == libc::ENOMSG && self.info == SCM_TSTAMP_SND
    }
}

/// One datagram of a [`Batch`].
pub(super) struct Message<'a> {
    pub(super) bytes: &'a [u8],
    /// The datagram was longer than a slot.
    pub(super) truncated: bool,
    /// The sender; on the error queue the destination of the packet that failed.
    pub(super) peer: Option<SocketAddr>,
    pub(super) control: Control,
}

/// Space for some datagrams fetched by one system call.
pub(super) struct Batch {
    slots: Box<[Slot; BATCH]>,
    filled: usize,
    next: usize,
    /// The last call left the queue empty: it returned fewer datagrams than there was room for.
    emptied: bool,
    /// The caller was told so.
    told: bool,
}

impl Batch {
    pub(super) fn new() -> Self {
        let slots = std::array::from_fn(|_| Slot::EMPTY);
        Self { slots: Box::new(slots), filled: 0, next: 0, emptied: false, told: true }
    }

    /// The next datagram fetched before.
    pub(super) fn pop(&mut self) -> Option<Message<'_>> {
        if self.next == self.filled {
            return None;
        }
        self.next += 1;
        Some(self.slots[self.next - 1].message())
    }

    /// True once after a fetch that emptied the queue, so that no call is wasted on asking again.
    pub(super) fn tell_emptied(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true) && self.emptied
    }

    /// True if nothing is left here and the queue was empty after the last fetch: only then will a
    /// readiness edge announce the next datagram.
    pub(super) fn exhausted(&self) -> bool {
        self.next == self.filled && self.emptied
    }

    /// Fetches up to `limit` datagrams without waiting; `flags` selects the queue. Returns how many
    /// were fetched.
    pub(super) fn fetch(&mut self, socket: BorrowedFd<'_>, flags: libc::c_int, limit: usize) -> io::Result<usize> {
        let limit = limit.min(BATCH);
        // SAFETY: `mmsghdr` and `iovec` are plain data for which all zeroes is a valid value.
        let (mut headers, mut vectors): ([libc::mmsghdr; BATCH], [libc::iovec; BATCH]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        for ((slot, header), vector) in self.slots.iter_mut().zip(&mut headers).zip(&mut vectors).take(limit) {
            vector.iov_base = slot.bytes.as_mut_ptr().cast();
            vector.iov_len = slot.bytes.len();
            header.msg_hdr.msg_name = slot.name.0.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = slot.name.0.len() as _;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = slot.control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = slot.control.0.len() as _;
        }
        (self.filled, self.next, self.emptied, self.told) = (0, 0, false, true);
        // SAFETY: the first `limit` headers point to the slots' buffers and to `vectors`, all alive
        // during the call and borrowed mutably by it alone, with their true lengths.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                limit as libc::c_uint,
                flags | libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let Ok(received) = usize::try_from(received) else {
            let error = io::Error::last_os_error();
            self.emptied = error.kind() == io::ErrorKind::WouldBlock;
            return Err(error);
        };
        for (slot, header) in self.slots.iter_mut().zip(&headers).take(received) {
            slot.length = (header.msg_len as usize).min(slot.bytes.len());
            slot.name_length = (header.msg_hdr.msg_namelen as usize).min(slot.name.0.len());
            slot.control_length = header.msg_hdr.msg_controllen.min(slot.control.0.len());
            slot.truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        }
        self.filled = received;
        self.emptied = received < limit;
        self.told = !self.emptied;
        Ok(received)
    }
}

#[repr(C, align(16))]
struct Aligned<const N: usize>([u8; N]);

struct Slot {
    bytes: [u8; DATAGRAM_MAX],
    name: Aligned<NAME_SPACE>,
    control: Aligned<CONTROL_SPACE>,
    length: usize,
    name_length: usize,
    control_length: usize,
    truncated: bool,
}

impl Slot {
    const EMPTY: Self = Self {
        bytes: [0; DATAGRAM_MAX],
        name: Aligned([0; NAME_SPACE]),
        control: Aligned([0; CONTROL_SPACE]),
        length: 0,
        name_length: 0,
        control_length: 0,
        truncated: false,
    };

    fn message(&self) -> Message<'_> {
        Message {
            bytes: &self.bytes[..self.length],
            truncated: self.truncated,
            peer: parse_address(&self.name.0[..self.name_length]),
            control: parse_control(&self.control.0[..self.control_length]),
        }
    }
}

/// Parses a `struct sockaddr_in` or `sockaddr_in6`.
fn parse_address(name: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(array(name, 0)?);
    let port = u16::from_be_bytes(array(name, 2)?);
    match i32::from(family) {
        libc::AF_INET => Some(SocketAddrV4::new(Ipv4Addr::from(array::<4>(name, 4)?), port).into()),
        libc::AF_INET6 => {
            let flow = u32::from_ne_bytes(array(name, 4)?);
            let scope = u32::from_ne_bytes(array(name, 24)?);
            Some(SocketAddrV6::new(Ipv6Addr::from(array::<16>(name, 8)?), port, flow, scope).into())
        }
        _ => None,
    }
}

/// Walks a chain of `struct cmsghdr`.
fn parse_control(mut rest: &[u8]) -> Control {
    let mut control = Control::default();
    while let (Some(length), Some(level), Some(kind)) = (array(rest, 0), array(rest, 8), array(rest, 12)) {
        let length = usize::from_ne_bytes(length);
        let Some(data) = rest.get(CONTROL_HEADER..length) else { break };
        parse_control_message(i32::from_ne_bytes(level), i32::from_ne_bytes(kind), data, &mut control);
        // The next header is aligned to the size of a word.
        rest = rest.get(length.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
    }
    control
}

fn parse_control_message(level: i32, kind: i32, data: &[u8], control: &mut Control) {
    match (level, kind) {
        (libc::SOL_SOCKET, SCM_TIMESTAMPING) => {
            // Three stamps: the kernel's, one that is no longer used, the interface's.
            control.kernel = parse_timespec(data, 0).map(Timestamp::from_ns);
            control.hardware_ns = parse_timespec(data, 32);
        }
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => control.dropped = array(data, 0).map(u32::from_ne_bytes),
        (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR) => {
            control.error = parse_extended_error(data);
        }
        _ => {}
    }
}

/// A timestamp of zero means that there is none.
fn parse_timespec(data: &[u8], at: usize) -> Option<i64> {
    let seconds = i64::from_ne_bytes(array(data, at)?);
    let nanoseconds = i64::from_ne_bytes(array(data, at + 8)?);
    let ns = seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)?;
    (ns != 0).then_some(ns)
}

fn parse_extended_error(data: &[u8]) -> Option<ExtendedError> {
    Some(ExtendedError {
        errno: u32::from_ne_bytes(array(data, 0)?) as i32,
        origin: *data.get(4)?,
        info: u32::from_ne_bytes(array(data, 8)?),
        data: u32::from_ne_bytes(array(data, 12)?),
    })
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

// `struct timespec` and `cmsg_len` are read as 64-bit fields above.
const _: () = assert!(size_of::<libc::timespec>() == 16 && size_of::<usize>() == 8, "64-bit Linux only");

/// Datagrams sent or fetched by one call.
pub(super) const BATCH: usize = 32;

/// Longest datagram that is received completely, bytes; a probe packet has fewer than a hundred.
pub(super) const DATAGRAM_MAX: usize = 512;

const NAME_SPACE: usize = size_of::<libc::sockaddr_storage>();
/// Timestamps 64, extended error with an IPv6 offender 64, drop counter 24; rounded up.
const CONTROL_SPACE: usize = 256;
const CONTROL_HEADER: usize = 16;
const SEND_CONTROL_SPACE: usize = 24;

/// `include/uapi/asm-generic/socket.h`, since Linux 6.13; `libc` has no name for it.
const SCM_TS_OPT_ID: libc::c_int = 81;
/// `include/uapi/linux/errqueue.h`: the timestamp was taken as the packet was passed to the
/// interface.
const SCM_TSTAMP_SND: u32 = 0;
const SCM_TIMESTAMPING: libc::c_int = libc::SO_TIMESTAMPING;

#[cfg(test)]
mod tests {
    use super::*;

    fn control_message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (CONTROL_HEADER + data.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0xAA);
        bytes
    }

    fn stamps(kernel: [i64; 2], hardware: [i64; 2]) -> Vec<u8> {
        let words = [kernel, [0, 0], hardware].concat();
        let data: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        control_message(libc::SOL_SOCKET, SCM_TIMESTAMPING, &data)
    }

    fn extended_error(level: i32, kind: i32, errno: i32, origin: u8, data: u32) -> Vec<u8> {
        let mut bytes = errno.to_ne_bytes().to_vec();
        bytes.extend([origin, 0, 0, 0]);
        bytes.extend(SCM_TSTAMP_SND.to_ne_bytes());
        bytes.extend(data.to_ne_bytes());
        bytes.extend([0; 16]);
        control_message(level, kind, &bytes)
    }

    #[test]
    fn control_messages_are_read_in_any_order() {
        let stamp = Control { kernel: Some(Timestamp::from_ns(5_000_000_007)), ..Control::default() };
        let error = ExtendedError { errno: libc::ENOMSG, origin: 4, info: 0, data: 9 };
        let stamp_bytes = stamps([5, 7], [0, 0]);
        let error_bytes = extended_error(libc::SOL_IPV6, libc::IPV6_RECVERR, libc::ENOMSG, 4, 9);
        let dropped = control_message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &3u32.to_ne_bytes());
        let check = |bytes: &[&[u8]], expected: Control| assert_eq!(parse_control(&bytes.concat()), expected);
        check(&[], Control::default());
        check(&[&stamp_bytes], stamp);
        check(&[&stamp_bytes, &error_bytes], Control { error: Some(error), ..stamp });
        check(&[&error_bytes, &stamp_bytes], Control { error: Some(error), ..stamp });
        check(&[&dropped, &stamp_bytes], Control { dropped: Some(3), ..stamp });
        check(&[&stamps([0, 0], [2, 1])], Control { hardware_ns: Some(2_000_000_001), ..Control::default() });
        assert!(error.is_transmit_stamp());
        assert!(!ExtendedError { origin: 2, ..error }.is_transmit_stamp());
    }

    #[test]
    fn damaged_control_messages_end_the_walk() {
        let whole = stamps([5, 7], [0, 0]);
        for length in 0..whole.len() {
            assert_eq!(parse_control(&whole[..length]), Control::default(), "cut to {length} bytes");
        }
        for claimed in [0usize, 1, 15, usize::MAX, usize::MAX - 8] {
            let mut bytes = whole.clone();
            bytes[..8].copy_from_slice(&claimed.to_ne_bytes());
            assert_eq!(parse_control(&bytes), Control::default(), "claims {claimed} bytes");
        }
    }

    #[test]
    fn addresses_of_both_families_are_read() {
        let check = |text: &str| {
            let address: SocketAddr = text.parse().expect("an address");
            let name = socket2::SockAddr::from(address);
            // SAFETY: the storage is initialised for at least `len` bytes.
            let bytes = unsafe { std::slice::from_raw_parts(name.as_ptr().cast::<u8>(), name.len() as usize) };
            assert_eq!(parse_address(bytes), Some(address));
            assert_eq!(parse_address(&bytes[..7]), None);
        };
        check("10.77.1.2:4123");
        check("[2001:db8::17]:65535");
        check("[fe80::1%3]:1");
        assert_eq!(parse_address(&[0; 28]), None);
    }
}
