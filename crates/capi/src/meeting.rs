//! A meeting that rank 0 opens so that the other ranks can find it, and its 128-byte id, which the
//! launcher distributes.

use std::ffi::c_char;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use probe_sync::collective::{Meeting, UniqueId};
use probe_sync_sys::interfaces;

use crate::pointers::{Out, borrowed, optional_text, taken_back, text};
use crate::status::{Failure, guard, ps_status};
use ps_status::*;

/// Identifies a meeting: lets the other ranks find rank 0 and authenticates them. Anyone who has it
/// can impersonate a rank, so keep it secret.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ps_unique_id {
    /// Opaque; send them to the other ranks unchanged.
    pub bytes: [u8; 128],
}

const _: () = assert!(UniqueId::BYTES == 128);

/// The place where a group's ranks meet; rank 0 listens there.
#[derive(Debug)]
pub struct ps_meeting {
    /// None once a session was started with it.
    waiting: Mutex<Option<Meeting>>,
    id: UniqueId,
}

/// Opens a meeting at rank 0; call it before sending the id to the other ranks. addresses lists the
/// addresses of this machine at which they can reach it, for example "10.0.0.1,fd00::1"; NULL means
/// all addresses. Free the meeting with ps_meeting_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_meeting_open(addresses: *const c_char, meeting: *mut *mut ps_meeting) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let meeting = unsafe { Out::new(meeting, "meeting") }?;
        // SAFETY: the rule of the crate.
        let addresses = match unsafe { optional_text(addresses) } {
            // SAFETY: the rule of the crate.
            Some(_) => unsafe { text(addresses, "addresses") }?.split(',').map(address).collect::<Result<_, _>>()?,
            None => interfaces::own_addresses().map_err(Failure::of(PS_ERROR_SYSTEM))?,
        };
        let opened = Meeting::open(&addresses)?;
        let id = opened.id().clone();
        meeting.hand_over(ps_meeting { waiting: Mutex::new(Some(opened)), id });
        Ok(())
    })
}

/// Gets the id of a meeting, to be sent to the other ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_meeting_id(meeting: *const ps_meeting, id: *mut ps_unique_id) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (meeting, id) = unsafe { (borrowed(meeting, "meeting")?, Out::new(id, "id")?) };
        id.set(ps_unique_id { bytes: *meeting.id.as_bytes() });
        Ok(())
    })
}

/// Frees the meeting (NULL is a no-op). A session started with it continues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_meeting_free(meeting: *mut ps_meeting) {
    guard(|| {
        // SAFETY: the rule of the crate.
        drop(unsafe { taken_back(meeting) });
        Ok(())
    });
}

impl ps_meeting {
    /// Removes and returns the meeting, once.
    pub(crate) fn take(&self) -> Result<Meeting, Failure> {
        let taken = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| {
            let text = "this meeting was already used to start a session; open another with ps_meeting_open()";
            Failure::new(PS_ERROR_STARTED, text)
        })
    }
}

fn address(text: &str) -> Result<IpAddr, Failure> {
    let text = text.trim();
    let wrong = |_| {
        let example = "give addresses of this machine, separated by commas, for example 10.0.0.1 or fd00::1";
        Failure::new(PS_ERROR_MEETING, format!("\"{text}\" is not an address; {example}"))
    };
    text.parse().map_err(wrong)
}
