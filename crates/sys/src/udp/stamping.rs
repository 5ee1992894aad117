//! Asking the kernel for timestamps, the best kind that is to be had.
//!
//! Place in the flow: `TimestampedUdp` starts it at bind and has every control message read by it.
//! The interface's stamps are on the interface's own clock; `phc` puts them on the system clock, and without that
//! conversion they are not used.
//!
//! What it does not do: reset what it set on the interface (`SIOCSHWTSTAMP`): others may use it by then.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use probe_sync_time::{Stamp, StampSource};

use super::message::{self, Batch, Control};
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
    /// Asks for stamps of the kind that `options` wants.
    pub(super) fn start(socket: BorrowedFd<'_>, options: &UdpOptions) -> Result<Self, Error> {
        let interface = options.interface.clone().or_else(|| interface_of_address(options.bind.ip()));
        let mut stamping = Self { source: StampSource::User, phc: None, notes: Vec::new() };
        match options.timestamps {
            TimestampMode::User => {}
            TimestampMode::Kernel => stamping.start_kernel(socket)?,
            TimestampMode::Hardware => stamping.start_hardware(socket, interface.as_deref())?,
            TimestampMode::Auto => stamping.start_best(socket, interface.as_deref()),
        }
        Ok(stamping)
    }

    pub(super) fn source(&self) -> StampSource {
        self.source
    }

    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The best stamp in a control message, at most as good as [`Self::source`].
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
        // Granted before with the same rights, so neither can fail; if they did, stamps would count as unmatched.
        let _ = set_flags(socket, flags & !libc::SOF_TIMESTAMPING_OPT_ID);
        let _ = set_flags(socket, flags);
    }

    /// To the next poorer kind of stamps.
    pub(super) fn step_down(&mut self, socket: BorrowedFd<'_>) {
        let before = self.source;
        self.phc = None;
        self.source = if before == StampSource::Hardware { StampSource::Kernel } else { StampSource::User };
        let flags = if self.source == StampSource::User { 0 } else { self.flags() };
        if set_flags(socket, flags).is_err() {
            self.source = StampSource::User;
        }
        let (before, now) = (before.as_str(), self.source.as_str());
        self.notes.push(format!("no {before} transmit stamp came: using {now} stamps"));
    }

    fn flags(&self) -> u32 {
        if self.source == StampSource::Hardware { HARDWARE_FLAGS } else { KERNEL_FLAGS }
    }

    fn start_best(&mut self, socket: BorrowedFd<'_>, interface: Option<&str>) {
        if let Err(error) = self.start_hardware(socket, interface) {
            self.notes.push(error.to_string());
        }
        if self.source == StampSource::Hardware {
            return;
        }
        // A driver that never takes software transmit stamps says so. One that says nothing is tried.
        let offer = interface.and_then(|name| nic::timestamping_offer(name).ok());
        if offer.is_some_and(|offer| !offer.kernel_transmit) {
            let name = interface.unwrap_or("?");
            self.notes.push(format!("the driver of {name} takes no software transmit stamps"));
        } else if let Err(error) = self.start_kernel(socket) {
            self.notes.push(error.to_string());
        }
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
        let name = interface.ok_or_else(|| refuse("no interface known: name it with --interface".into()))?;
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

/// The first socket on a host that wants receive stamps makes the kernel patch its own code to take them, in the
/// background: for some milliseconds packets still arrive without. Waits until a packet on loopback is stamped, at most
/// [`SETTLE_ATTEMPTS`] milliseconds; where loopback is down, that long.
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
        TimestampingOffer { hardware_transmit: false, .. } => "it does not stamp what it sends",
        TimestampingOffer { hardware_receive: false, .. } => "it does not stamp all that it receives",
        _ => "it names no clock device (/dev/ptp…), so its stamps cannot be put on the system clock",
    }
}

/// About a millisecond each.
const SETTLE_ATTEMPTS: usize = 50;

/// `OPT_TSONLY`: the stamp comes without a copy of the packet. `OPT_CMSG`: and with the control messages that say whose.
const COMMON_FLAGS: u32 =
    libc::SOF_TIMESTAMPING_OPT_ID | libc::SOF_TIMESTAMPING_OPT_TSONLY | libc::SOF_TIMESTAMPING_OPT_CMSG;

const KERNEL_FLAGS: u32 = COMMON_FLAGS
    | libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_RX_SOFTWARE
    | libc::SOF_TIMESTAMPING_TX_SOFTWARE;

/// The kernel's receive stamps too, for packets that the interface did not stamp.
const HARDWARE_FLAGS: u32 = COMMON_FLAGS
    | libc::SOF_TIMESTAMPING_RAW_HARDWARE
    | libc::SOF_TIMESTAMPING_RX_HARDWARE
    | libc::SOF_TIMESTAMPING_TX_HARDWARE
    | libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_RX_SOFTWARE;
