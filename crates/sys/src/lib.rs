//! Everything that asks the operating system: clocks, timers, timestamped UDP, and facts about the
//! host.
//!
//! The node (crate `probe-sync`) reads clocks here, moves the bytes of the `probe` state machines
//! through [`udp`], and watches its own clock with [`discipline`]. Nothing here knows the meaning
//! of a packet.
//!
//! | module | holds |
//! |---|---|
//! | [`clock`] | reads of the host's clocks, bracketed reads of two |
//! | [`tracer`], `tracer_callback`, `tracer_choice` | the clocks of profilers by name, handed in by the caller, and which to take |
//! | [`udp`] | the probe socket with its timestamps |
//! | [`timer`] | a timer of nanosecond resolution for a tokio task |
//! | [`discipline`] | was the system clock stepped or slewed, who steers it |
//! | [`host`], [`topology`] | which host this is, its CPUs |
//! | [`interfaces`], `nic` | its network interfaces, their addresses, and what they can stamp |
//! | [`neighbours`] | the kernel's table of neighbours and its limit |
//! | [`doctor`] | all of it as a list of facts with advice |
//! | [`process`], [`fork`] | ties of a process to its parent, and what its children must not keep |
//! | [`private_socket`] | a socket at which this user and root are heard |
//! | [`tcp_peer`] | the user at the other end of a TCP connection within the host |
//! | `library`, `library_path` | libraries loaded at run time, and folders that they must not come from |
//! | `shared_page` | memory that several processes see |
//! | `virtual_table` (feature `virtual-tables`) | tables of SQLite whose rows a program hands out |
//!
//! Runs without privileges; with them (`CAP_NET_ADMIN`) it gets larger buffers and hardware stamps.
//! 64-bit Linux ≥ 5.10.

pub mod clock;
mod clock_watch;
pub mod discipline;
pub mod doctor;
mod error;
pub mod fork;
pub mod host;
pub mod interfaces;
mod library;
mod library_path;
pub mod neighbours;
mod nic;
mod phc;
pub mod private_socket;
pub mod process;
mod shared_page;
pub mod tcp_peer;
pub mod timer;
pub mod topology;
pub mod tracer;
mod tracer_callback;
mod tracer_choice;
pub mod udp;
#[cfg(feature = "virtual-tables")]
pub mod virtual_table;

pub use clock::{BootClock, MonotonicClock, NARROW_BRACKET, Pair, RawClock, SystemClock, Tsc, read_pair};
pub use error::Error;
pub use library::Library;
pub use shared_page::{PAGE_WORDS, SharedPage, reserve};
pub use timer::Timer;
pub use tracer::{TracerClock, TracerClockName, TracerPair};
pub use tracer_callback::ReadTracerClock;
pub use udp::{AsyncUdp, Outgoing, SendError, SendToken, TimestampMode, TimestampedUdp, UdpOptions, Wake, wait};
