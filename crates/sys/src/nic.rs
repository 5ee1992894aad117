//! The timestamping capabilities of a network interface, and the activation of its hardware stamps.
//!
//! References: `include/uapi/linux/ethtool.h` (`ETHTOOL_GET_TS_INFO`),
//! `include/uapi/linux/net_tstamp.h` (`SIOCSHWTSTAMP`, needs `CAP_NET_ADMIN`).
//!
//! It does not turn hardware stamps off again, because other programs may rely on them by then.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsRawFd;

use serde::Serialize;
use socket2::{Domain, Socket, Type};

use crate::Error;

/// Which timestamps an interface's driver offers.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct TimestampingOffer {
    /// The driver passes packets to the kernel's timestamping as it sends them.
    pub(crate) kernel_transmit: bool,
    /// The kernel timestamps received packets.
    pub(crate) kernel_receive: bool,
    /// The interface timestamps packets that it sends.
    pub(crate) hardware_transmit: bool,
    /// The interface timestamps all packets that it receives, not only those of PTP.
    pub(crate) hardware_receive: bool,
    /// The interface's clock, `/dev/ptpN`.
    pub(crate) phc_index: Option<u32>,
}

impl TimestampingOffer {
    /// True if hardware timestamps in both directions can be converted to the system clock.
    pub(crate) fn hardware_complete(&self) -> bool {
        self.hardware_transmit && self.hardware_receive && self.phc_index.is_some()
    }
}

/// Queries the driver of `interface` (`ETHTOOL_GET_TS_INFO`).
///
/// # Errors
/// Returns an error if there is no such interface or its driver cannot be queried.
pub(crate) fn timestamping_offer(interface: &str) -> Result<TimestampingOffer, Error> {
    let mut info = TsInfo { command: ETHTOOL_GET_TS_INFO, ..TsInfo::default() };
    request(interface, libc::SIOCETHTOOL, &mut info).map_err(Error::system("query the interface's timestamping"))?;
    let has = |flags: u32| info.so_timestamping & flags == flags;
    let transmits = |kind: u32| info.tx_types & (1 << kind) != 0;
    let receives = |filter: u32| info.rx_filters & (1 << filter) != 0;
    Ok(TimestampingOffer {
        kernel_transmit: has(libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE),
        kernel_receive: has(libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE),
        hardware_transmit: has(libc::SOF_TIMESTAMPING_TX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE)
            && transmits(libc::HWTSTAMP_TX_ON),
        hardware_receive: has(libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE)
            && receives(libc::HWTSTAMP_FILTER_ALL),
        phc_index: u32::try_from(info.phc_index).ok(),
    })
}

/// Makes the interface timestamp every packet in both directions, if it does not already.
///
/// # Errors
/// Returns an error without `CAP_NET_ADMIN`, or if the driver refuses.
pub(crate) fn enable_hardware_stamps(interface: &str) -> Result<(), Error> {
    let wanted = |config: &libc::hwtstamp_config| {
        config.tx_type == libc::HWTSTAMP_TX_ON as libc::c_int
            && config.rx_filter == libc::HWTSTAMP_FILTER_ALL as libc::c_int
    };
    let mut config = libc::hwtstamp_config { flags: 0, tx_type: 0, rx_filter: 0 };
    if request(interface, libc::SIOCGHWTSTAMP, &mut config).is_ok() && wanted(&config) {
        return Ok(());
    }
    config = libc::hwtstamp_config {
        flags: 0,
        tx_type: libc::HWTSTAMP_TX_ON as libc::c_int,
        rx_filter: libc::HWTSTAMP_FILTER_ALL as libc::c_int,
    };
    let refuse = |reason| Error::Stamps { kind: "hardware", interface: Some(interface.to_owned()), reason };
    request(interface, libc::SIOCSHWTSTAMP, &mut config)
        .map_err(|error| refuse(format!("SIOCSHWTSTAMP: {error}; it needs CAP_NET_ADMIN")))?;
    // The driver writes back what it really does.
    if wanted(&config) { Ok(()) } else { Err(refuse("the driver timestamps only some packets".into())) }
}

/// `struct ethtool_ts_info`.
#[repr(C)]
#[derive(Default)]
struct TsInfo {
    command: u32,
    so_timestamping: u32,
    phc_index: i32,
    tx_types: u32,
    tx_reserved: [u32; 3],
    rx_filters: u32,
    rx_reserved: [u32; 3],
}

/// Plain data for which every bit pattern is valid and which the named requests read and write
/// completely, not beyond.
///
/// # Safety
/// The size and layout must be those of the kernel's structure for the requests it is used with.
unsafe trait Payload {}
// SAFETY: the layout is that of `struct ethtool_ts_info`, 11 words.
unsafe impl Payload for TsInfo {}
// SAFETY: `libc` mirrors the kernel's structure, three words.
unsafe impl Payload for libc::hwtstamp_config {}

/// Issues a request about an interface by its name.
fn request<T: Payload>(interface: &str, request: libc::c_ulong, payload: &mut T) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM.cloexec(), None)?;
    // SAFETY: `ifreq` is plain data for which all zeroes is a valid value.
    let mut message: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= message.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in message.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    message.ifr_ifru.ifru_data = (payload as *mut T).cast::<c_void>().cast();
    // SAFETY: `message` and the payload it points to live through the call, and `Payload` promises
    // that the payload is what the kernel expects for the request.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut message) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const ETHTOOL_GET_TS_INFO: u32 = 0x41;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_interface_is_an_error() {
        for name in ["no-such-if0", "", "a-name-that-is-much-longer-than-an-interface-name"] {
            let error = timestamping_offer(name).expect_err("there is no such interface").to_string();
            assert!(error.contains("query the interface"), "{error}");
        }
    }

    #[test]
    fn hardware_counts_only_when_complete() {
        let all = TimestampingOffer {
            kernel_transmit: true,
            kernel_receive: true,
            hardware_transmit: true,
            hardware_receive: true,
            phc_index: Some(0),
        };
        assert!(all.hardware_complete());
        assert!(!TimestampingOffer { hardware_transmit: false, ..all }.hardware_complete());
        assert!(!TimestampingOffer { hardware_receive: false, ..all }.hardware_complete());
        assert!(!TimestampingOffer { phc_index: None, ..all }.hardware_complete());
    }
}
