//! Requests timestamps from the kernel, of the best available kind.
//!
//! `TimestampedUdp` sets it up at bind and passes every control message to it. The interface's
//! stamps are on the interface's own clock; `phc` converts them to the system clock, and without
//! that conversion they are not used. In mode `auto` each kind must pass a `self_test` before it is
//! chosen.
//!
//! It does not undo its settings on the interface (`SIOCSHWTSTAMP`), because other programs may
//! rely on them by then.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use probe_sync_time::{Duration, Stamp, StampSource};

use super::message::{self, Batch, Control};
use super::self_test::{Promise, self_test};
use super::{TimestampMode, UdpOptions};
use crate::Error;
use crate::host::interface_of_address;
use crate::nic::{self, TimestampingOffer};
use crate::phc::Phc;

pub(super) struct Stamping {
    source: StampSource,
    phc: Option<Phc>,
    notes: Vec<String>,
}

impl Stamping {
    /// Requests timestamps of the kind in `options`.
    pub(super) fn start(socket: BorrowedFd<'_>, options: &UdpOptions) -> Result<Self, Error> {
        let interface = options.interface.clone().or_else(|| interface_of_address(options.bind.ip()));
        let mut stamping = Self { source: StampSource::User, phc: None, notes: Vec::new() };
        match options.timestamps {
            TimestampMode::User => {}
            TimestampMode::Kernel => stamping.start_kernel(socket)?,
            TimestampMode::Hardware => stamping.start_hardware(socket, interface.as_deref())?,
            TimestampMode::Auto => {
                stamping.start_best(socket, interface.as_deref(), |stamping| {
                    stamping.tested(options, interface.as_deref())
                });
            }
        }
        Ok(stamping)
    }

    /// Largest error of every timestamp due to the conversion from the interface's clock; zero for
    /// other timestamps.
    pub(super) fn conversion_error(&self) -> Duration {
        self.phc.as_ref().map_or(Duration::ZERO, Phc::error_limit)
    }

    pub(super) fn source(&self) -> StampSource {
        self.source
    }

    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The best timestamp in a control message, at most as good as [`Self::source`].
    pub(super) fn stamp(&self, control: Control) -> Option<Stamp> {
        let converted = |phc: &Phc| control.hardware_ns.and_then(|raw| phc.to_system(raw));
        if let Some(at) = self.phc.as_ref().and_then(converted) {
            return Some(Stamp { at, source: StampSource::Hardware });
        }
        control.kernel.map(|at| Stamp { at, source: StampSource::Kernel })
    }

    /// Keeps the conversion from the interface's clock fresh. Costs nothing without one.
    pub(super) fn refresh(&mut self) {
        if let Some(phc) = &mut self.phc {
            phc.refresh();
        }
    }

    /// Makes the kernel count packets from zero again.
    pub(super) fn restart_ids(&self, socket: BorrowedFd<'_>) {
        let flags = self.flags();
        // Granted before with the same rights, so neither can fail; if they did, stamps would count
        // as unmatched.
        let _ = set_flags(socket, flags & !libc::SOF_TIMESTAMPING_OPT_ID);
        let _ = set_flags(socket, flags);
    }

    /// Steps down to the next worse kind of timestamps.
    pub(super) fn step_down(&mut self, socket: BorrowedFd<'_>) {
        let before = self.source;
        self.phc = None;
        self.source = if before == StampSource::Hardware { StampSource::Kernel } else { StampSource::User };
        let flags = if self.source == StampSource::User { 0 } else { self.flags() };
        if set_flags(socket, flags).is_err() {
            self.source = StampSource::User;
        }
        let (before, now) = (before.as_str(), self.source.as_str());
        self.notes.push(format!("no {before} transmit timestamp arrived: using {now} timestamps"));
    }

    fn flags(&self) -> u32 {
        if self.source == StampSource::Hardware { HARDWARE_FLAGS } else { KERNEL_FLAGS }
    }

    /// The best kind that passes `test`; why better ones did not is in the notes.
    fn start_best(
        &mut self,
        socket: BorrowedFd<'_>,
        interface: Option<&str>,
        test: impl Fn(&Self) -> Result<Option<String>, String>,
    ) {
        match self.start_hardware(socket, interface) {
            Ok(()) => self.keep_if_proven(socket, &test),
            Err(error) => self.notes.push(error.to_string()),
        }
        if self.source == StampSource::Hardware {
            return;
        }
        // What the driver says of itself (ETHTOOL_GET_TS_INFO) is not asked: a bridge, a tunnel or
        // a team says that it takes none, and the device below it does.
        match self.start_kernel(socket) {
            Ok(()) => self.keep_if_proven(socket, &test),
            Err(error) => self.notes.push(error.to_string()),
        }
    }

    /// Falls back to user timestamps, with a note, unless `test` is passed.
    fn keep_if_proven(&mut self, socket: BorrowedFd<'_>, test: &impl Fn(&Self) -> Result<Option<String>, String>) {
        match test(self) {
            Ok(note) => self.notes.extend(note),
            Err(reason) => {
                let kind = self.source.as_str();
                self.notes.push(format!("{kind} timestamps failed their self-test: {reason}"));
                (self.source, self.phc) = (StampSource::User, None);
                // Stamps that came all the same would be ignored.
                let _ = set_flags(socket, 0);
            }
        }
    }

    fn tested(&self, options: &UdpOptions, interface: Option<&str>) -> Result<Option<String>, String> {
        let promise = Promise {
            source: self.source,
            error_limit: self.conversion_error(),
            stamp: &|control| self.stamp(control),
            ask: &|socket| set_flags(socket, self.flags()),
        };
        self_test(options, interface, &promise)
    }

    fn start_kernel(&mut self, socket: BorrowedFd<'_>) -> Result<(), Error> {
        set_flags(socket, KERNEL_FLAGS).map_err(|error| Error::Stamps {
            kind: "kernel",
            interface: None,
            reason: format!("SO_TIMESTAMPING: {error}; use --timestamps user"),
        })?;
        self.source = StampSource::Kernel;
        await_receive_stamps();
        Ok(())
    }

    fn start_hardware(&mut self, socket: BorrowedFd<'_>, interface: Option<&str>) -> Result<(), Error> {
        let refuse =
            |reason: String| Error::Stamps { kind: "hardware", interface: interface.map(str::to_owned), reason };
        let name = interface.ok_or_else(|| refuse("the interface is unknown: choose it with --interface".into()))?;
        let offer = nic::timestamping_offer(name)?;
        let Some(index) = offer.phc_index.filter(|_| offer.hardware_complete()) else {
            return Err(refuse(missing_hardware(&offer).into()));
        };
        // First what needs no change to the interface.
        let phc = Phc::open(index)?;
        nic::enable_hardware_stamps(name)?;
        set_flags(socket, HARDWARE_FLAGS).map_err(|error| refuse(format!("SO_TIMESTAMPING: {error}")))?;
        (self.source, self.phc) = (StampSource::Hardware, Some(phc));
        await_receive_stamps();
        Ok(())
    }
}

/// The first socket on a host that requests receive timestamps makes the kernel patch its own code
/// to take them, in the background: for some milliseconds packets still arrive without. Waits until
/// a packet on loopback has a timestamp, at most [`SETTLE_ATTEMPTS`] milliseconds; if loopback is
/// down, that long.
fn await_receive_stamps() {
    let stamped = || -> io::Result<bool> {
        let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
        let name = socket2::SockAddr::from(socket.local_addr()?);
        set_flags(socket.as_fd(), libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_RX_SOFTWARE)?;
        message::send(socket.as_fd(), &[(&[], name, true)], None)?;
        let mut batch = Batch::new();
        batch.fetch(socket.as_fd(), 0, 1)?;
        Ok(batch.pop().is_some_and(|message| message.control.kernel.is_some()))
    };
    for _ in 0..SETTLE_ATTEMPTS {
        if stamped().unwrap_or(false) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// `setsockopt` of an `int`.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes from `value`, which lives through the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set_flags(socket: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags as libc::c_int)
}

fn missing_hardware(offer: &TimestampingOffer) -> &'static str {
    match offer {
        TimestampingOffer { hardware_transmit: false, .. } => "it does not timestamp sent packets",
        TimestampingOffer { hardware_receive: false, .. } => "it does not timestamp all received packets",
        _ => "it reports no clock device (/dev/ptp…), so its timestamps cannot be converted to the system clock",
    }
}

/// About a millisecond each.
const SETTLE_ATTEMPTS: usize = 50;

/// `OPT_TSONLY`: the timestamp comes without a copy of the packet. `OPT_CMSG`: and with the control
/// messages that identify it.
const COMMON_FLAGS: u32 =
    libc::SOF_TIMESTAMPING_OPT_ID | libc::SOF_TIMESTAMPING_OPT_TSONLY | libc::SOF_TIMESTAMPING_OPT_CMSG;

const KERNEL_FLAGS: u32 = COMMON_FLAGS
    | libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_RX_SOFTWARE
    | libc::SOF_TIMESTAMPING_TX_SOFTWARE;

/// Also the kernel's receive timestamps, for packets that the interface did not timestamp.
const HARDWARE_FLAGS: u32 = COMMON_FLAGS
    | libc::SOF_TIMESTAMPING_RAW_HARDWARE
    | libc::SOF_TIMESTAMPING_RX_HARDWARE
    | libc::SOF_TIMESTAMPING_TX_HARDWARE
    | libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_RX_SOFTWARE;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::MonotonicClock;
    use probe_sync_time::Clock;

    fn options() -> UdpOptions {
        UdpOptions::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    fn socket() -> std::net::UdpSocket {
        std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has room")
    }

    fn nothing() -> Stamping {
        Stamping { source: StampSource::User, phc: None, notes: Vec::new() }
    }

    #[test]
    fn auto_keeps_what_passes_its_self_test() {
        let (mut stamping, socket) = (nothing(), socket());
        stamping.start_best(socket.as_fd(), Some("lo"), |stamping| stamping.tested(&options(), Some("lo")));
        assert_eq!(stamping.source(), StampSource::Kernel, "{:?}", stamping.notes);
        assert_eq!(
            (stamping.notes.len(), stamping.conversion_error()),
            (1, Duration::ZERO),
            "lo has no clock of its own"
        );
    }

    #[test]
    fn auto_falls_back_with_a_note_from_stamps_that_fail_their_self_test() {
        let (mut stamping, socket) = (nothing(), socket());
        stamping.start_best(socket.as_fd(), Some("lo"), |_| Err("they are an hour late".into()));
        assert_eq!(stamping.source(), StampSource::User);
        assert_eq!(
            stamping.notes.last().map(String::as_str),
            Some("kernel timestamps failed their self-test: they are an hour late")
        );
        // A real test of stamps that nobody asked for: none comes.
        let silent = Promise {
            source: StampSource::Kernel,
            error_limit: Duration::ZERO,
            stamp: &|control| nothing().stamp(control),
            ask: &|_| Ok(()),
        };
        let reason = self_test(&options(), Some("lo"), &silent).expect_err("nobody asked for stamps");
        assert!(reason.contains("packets to itself: no kernel transmit timestamp arrived"), "{reason}");
        let late = Promise {
            stamp: &|control| {
                control.kernel.map(|at| Stamp { at: at + Duration::from_ms(3_600_000), source: StampSource::Kernel })
            },
            ask: &|socket| set_flags(socket, KERNEL_FLAGS),
            ..silent
        };
        let reason = self_test(&options(), Some("lo"), &late).expect_err("an hour late");
        assert!(reason.contains("transmit timestamp is"), "{reason}");
    }

    /// The outward half with real packets, if this host has an interface other than loopback.
    #[test]
    fn the_outward_interface_is_tried_with_packets_that_leave_it() {
        let named = crate::interfaces::default_interface();
        let all = crate::interfaces::interfaces().unwrap_or_default();
        let outward = all.into_iter().find(|interface| Some(&interface.name) == named.as_ref());
        let Some(address) = outward.and_then(|interface| interface.addresses.first().map(|address| address.ip)) else {
            println!("skipped: no interface but loopback");
            return;
        };
        let options = UdpOptions::new(SocketAddr::new(address, 0));
        let interface = interface_of_address(address);
        let (mut stamping, socket) = (nothing(), socket());
        stamping.start_kernel(socket.as_fd()).expect("kernel stamps");
        let tested = stamping.tested(&options, interface.as_deref());
        println!("{interface:?}: {tested:?}");
        let offer = interface.as_deref().and_then(|name| nic::timestamping_offer(name).ok());
        assert!(tested.is_ok() || offer.is_none_or(|offer| !offer.kernel_transmit), "{tested:?}");
    }

    #[test]
    fn hardware_stamps_bear_the_error_of_their_conversion() {
        let phc = Phc::start(Box::new(|| {
            let now = MonotonicClock.now().as_ns();
            Ok(vec![[now - 400, now, now + 400]])
        }));
        let mut stamping = Stamping { source: StampSource::Hardware, phc: phc.ok(), notes: Vec::new() };
        assert!(stamping.conversion_error() > Duration::from_ns(2 * 400), "{:?}", stamping.conversion_error());
        // On a busy machine the reading may be old when the stamp is taken.
        let given = (0..1000).any(|_| {
            stamping.refresh();
            let raw = Control { hardware_ns: Some(MonotonicClock.now().as_ns()), ..Control::default() };
            stamping.stamp(raw).is_some_and(|stamp| stamp.source == StampSource::Hardware)
        });
        assert!(given);
        // No promise can be kept for a stamp far from every point: none of the interface's kind is
        // given.
        let old = Control { hardware_ns: Some(MonotonicClock.now().as_ns() - 1_500_000_000), ..Control::default() };
        assert_eq!(stamping.stamp(old), None);
    }
}
