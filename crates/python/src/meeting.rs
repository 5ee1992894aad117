//! How ranks find each other from Python: a meeting that rank 0 opens, and its 128-byte id.
//!
//! The adapters in `probe_sync/launch.py` distribute the id by the launcher's means, or derive it
//! on all ranks from an address, a port and shared knowledge of the ranks.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use probe_sync::collective::{self, UniqueId};
use probe_sync_sys::interfaces;
use pyo3::prelude::*;

use crate::errors::Failure;

/// The place where a group's ranks meet; rank 0 creates it and listens from then on.
#[pyclass(frozen, module = "probe_sync._native")]
#[derive(Debug)]
pub struct Meeting {
    waiting: Mutex<Option<collective::Meeting>>,
    id: UniqueId,
}

#[pymethods]
impl Meeting {
    #[new]
    #[pyo3(signature = (addresses=None, *, port=None, known=None))]
    fn new(addresses: Option<Vec<IpAddr>>, port: Option<u16>, known: Option<&[u8]>) -> PyResult<Self> {
        let own = || interfaces::own_addresses().map_err(|error| Failure::failed(error.to_string()));
        let addresses = addresses.map_or_else(own, Ok)?;
        let meeting = match (port, known) {
            (None, None) => collective::Meeting::open(&addresses),
            (Some(port), Some(known)) => collective::Meeting::at(&addresses, port, known),
            _ => {
                return Err(Failure::config(
                    "port and known must be given together: all ranks derive the id from both",
                )
                .into());
            }
        };
        let meeting = meeting.map_err(|error| Failure::of_meeting(&error))?;
        let id = meeting.id().clone();
        Ok(Self { waiting: Mutex::new(Some(meeting)), id })
    }

    /// The 128 bytes with which the other ranks join. Anyone who has them can impersonate a rank.
    #[getter]
    fn unique_id(&self) -> &[u8] {
        self.id.as_bytes()
    }
}

impl Meeting {
    /// Removes and returns the meeting, once.
    pub fn take(&self) -> Option<collective::Meeting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Derives the id from rank 0's addresses, its port, and a secret known to all ranks.
#[pyfunction]
#[pyo3(signature = (addresses, *, port, known))]
#[expect(clippy::needless_pass_by_value, reason = "Python's arguments are made for the call")]
pub fn agreed_id(addresses: Vec<IpAddr>, port: u16, known: &[u8]) -> PyResult<[u8; UniqueId::BYTES]> {
    let id = UniqueId::agreed(&addresses, port, known).map_err(|error| Failure::of_meeting(&error))?;
    Ok(*id.as_bytes())
}
