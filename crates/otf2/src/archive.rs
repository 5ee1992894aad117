//! An archive in progress, which checks the status of every library call.
//!
//! It is the crate's only handle. It owns all writers of the library, so that none outlives it. An
//! archive dropped without [`Archive::close`] is not closed, and its buffers stay until the process
//! ends: closing writes the buffered data, and if that fails, as on a full disk, libotf2 3.0.2
//! frees a buffer twice. The files left behind are not a valid archive.

use std::ffi::{CStr, CString};
use std::os::raw::c_void;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{NonNull, null_mut};

use crate::bindings as raw;
use crate::definitions::{CollectiveOperation, LocationGroup, LocationKind, Region, UNDEFINED};
use crate::errors;
use crate::memory::MEMORY;

/// Errors of the library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call failed.
    #[error("libotf2 cannot {what}: {reason}")]
    Library {
        /// The attempted operation.
        what: &'static str,
        /// Message of the library.
        reason: String,
    },
    /// The path of the folder or the name of the archive contains a NUL byte.
    #[error("the path of an OTF2 archive cannot hold a NUL byte")]
    Path,
    /// An event for a location that is not open.
    #[error("location {location} is not open")]
    Location {
        /// Its number.
        location: u64,
    },
}

/// The end of a collective operation on one location.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CollectiveEnd {
    /// Kind of operation.
    pub operation: CollectiveOperation,
    /// The communicator, by the location's own numbers ([`Archive::communicators_of`]).
    pub communicator: u32,
    /// Index of the root in the communicator; `None` if there is none or it is unknown.
    pub root: Option<u32>,
}

/// An archive being written.
#[derive(Debug)]
pub struct Archive {
    handle: NonNull<raw::OTF2_Archive>,
    definitions: NonNull<raw::OTF2_GlobalDefWriter>,
    /// By location: its writer while it is open.
    open: Vec<Option<NonNull<raw::OTF2_EvtWriter>>>,
}

// SAFETY: all handles are this value's own and are used through `&mut self` or `self` only; the
// library keeps its state in them.
unsafe impl Send for Archive {}

impl Archive {
    /// Begins the archive `name` in `folder`, which must exist.
    ///
    /// # Errors
    /// Returns an error if the library cannot create its files.
    pub fn create(folder: &Path, name: &str) -> Result<Self, Error> {
        errors::listen();
        let folder = CString::new(folder.as_os_str().as_bytes()).map_err(|_| Error::Path)?;
        let name = CString::new(name).map_err(|_| Error::Path)?;
        // SAFETY: both texts end in NUL and live through the call; the other arguments are values
        // of the header.
        let handle = unsafe {
            raw::OTF2_Archive_Open(
                folder.as_ptr(),
                name.as_ptr(),
                raw::OTF2_FILEMODE_WRITE as raw::OTF2_FileMode,
                CHUNK_BYTES,
                DEFINITIONS_BYTES,
                raw::OTF2_SUBSTRATE_POSIX as raw::OTF2_FileSubstrate,
                raw::OTF2_COMPRESSION_NONE as raw::OTF2_Compression,
            )
        };
        let handle = pointer(handle, "make the archive's files")?;
        Self::prepare(handle)
    }

    fn prepare(handle: NonNull<raw::OTF2_Archive>) -> Result<Self, Error> {
        let archive = handle.as_ptr();
        // SAFETY: the archive is open; the callbacks are static and ask for no data.
        unsafe {
            status(raw::OTF2_Archive_SetFlushCallbacks(archive, &FLUSH, null_mut()), "take flush callbacks")?;
            status(raw::OTF2_Archive_SetMemoryCallbacks(archive, &MEMORY, null_mut()), "take memory callbacks")?;
            status(raw::OTF2_Archive_SetSerialCollectiveCallbacks(archive), "write for one process")?;
            status(raw::OTF2_Archive_SetCreator(archive, CREATOR.as_ptr()), "name the creator")?;
            status(raw::OTF2_Archive_OpenEvtFiles(archive), "open files of events")?;
        }
        // SAFETY: as above.
        let definitions = unsafe { raw::OTF2_Archive_GetGlobalDefWriter(archive) };
        let definitions = pointer(definitions, "open the file of definitions")?;
        Ok(Self { handle, definitions, open: Vec::new() })
    }

    /// Sets a property of the whole archive; `name` is `PART::NAME` in capitals, digits and
    /// underscores.
    ///
    /// # Errors
    /// [`Error::Library`], as for all calls below.
    pub fn property(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let (name, value) = (text(name), text(value));
        // SAFETY: the archive is open; both texts end in NUL and are copied.
        let code = unsafe { raw::OTF2_Archive_SetProperty(self.handle.as_ptr(), name.as_ptr(), value.as_ptr(), true) };
        status(code, "set a property")
    }

    /// Opens a location; locations are numbered 0, 1, …, and each is opened once.
    ///
    /// # Errors
    /// Returns an error if the library has no memory for its buffer.
    pub fn open_location(&mut self) -> Result<u64, Error> {
        let location = self.open.len() as u64;
        // SAFETY: the archive is open, and its files of events are.
        let writer = unsafe { raw::OTF2_Archive_GetEvtWriter(self.handle.as_ptr(), location) };
        self.open.push(Some(pointer(writer, "open a location")?));
        Ok(location)
    }

    /// Closes a location: writes its events to its file and frees its memory.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn close_location(&mut self, location: u64) -> Result<(), Error> {
        let writer = self.writer(location)?;
        self.open[location as usize] = None;
        // SAFETY: the writer is of this archive and open, and was taken out of the list.
        status(unsafe { raw::OTF2_Archive_CloseEvtWriter(self.handle.as_ptr(), writer) }, "write events")
    }

    /// A region begins.
    ///
    /// # Errors
    /// Returns an error for a time before the last one of the location, or if the file cannot be
    /// written.
    #[inline]
    pub fn enter(&mut self, location: u64, time_ns: u64, region: u32) -> Result<(), Error> {
        let writer = self.writer(location)?;
        // SAFETY: the writer is open; no attributes.
        status(unsafe { raw::OTF2_EvtWriter_Enter(writer, null_mut(), time_ns, region) }, "write the start of a region")
    }

    /// A region ends.
    ///
    /// # Errors
    /// As [`Self::enter`].
    #[inline]
    pub fn leave(&mut self, location: u64, time_ns: u64, region: u32) -> Result<(), Error> {
        let writer = self.writer(location)?;
        // SAFETY: the writer is open; no attributes.
        status(unsafe { raw::OTF2_EvtWriter_Leave(writer, null_mut(), time_ns, region) }, "write the end of a region")
    }

    /// A collective operation begins.
    ///
    /// # Errors
    /// As [`Self::enter`].
    pub fn collective_begin(&mut self, location: u64, time_ns: u64) -> Result<(), Error> {
        let writer = self.writer(location)?;
        // SAFETY: the writer is open; no attributes.
        let code = unsafe { raw::OTF2_EvtWriter_MpiCollectiveBegin(writer, null_mut(), time_ns) };
        status(code, "write the start of a collective")
    }

    /// A collective operation ends. Its number of bytes is written as 0: the format cannot express
    /// an unknown number, and readers add up the values.
    ///
    /// # Errors
    /// As [`Self::enter`].
    pub fn collective_end(&mut self, location: u64, time_ns: u64, end: CollectiveEnd) -> Result<(), Error> {
        let writer = self.writer(location)?;
        let (operation, root) = (end.operation.value(), end.root.unwrap_or(UNDEFINED));
        // SAFETY: the writer is open; no attributes.
        let code = unsafe {
            raw::OTF2_EvtWriter_MpiCollectiveEnd(
                writer,
                null_mut(),
                time_ns,
                operation,
                end.communicator,
                root,
                NO_BYTES,
                NO_BYTES,
            )
        };
        status(code, "write the end of a collective")
    }

    /// A value of a metric with one member.
    ///
    /// # Errors
    /// As [`Self::enter`].
    pub fn metric(&mut self, location: u64, time_ns: u64, metric: u32, value: f64) -> Result<(), Error> {
        let writer = self.writer(location)?;
        let kind = raw::OTF2_TYPE_DOUBLE as raw::OTF2_Type;
        let value = raw::OTF2_MetricValue { floating_point: value };
        // SAFETY: the writer is open; both lists have the one entry that is announced.
        let code = unsafe { raw::OTF2_EvtWriter_Metric(writer, null_mut(), time_ns, metric, 1, &kind, &value) };
        status(code, "write a value")
    }

    /// Defines a text. A NUL in it becomes U+FFFD, since the library takes it for the end.
    ///
    /// # Errors
    /// [`Error::Library`].
    pub fn string(&mut self, string: u32, value: &str) -> Result<(), Error> {
        let value = text(value);
        // SAFETY: the writer is the archive's; the text ends in NUL and is copied.
        let code = unsafe { raw::OTF2_GlobalDefWriter_WriteString(self.definitions.as_ptr(), string, value.as_ptr()) };
        status(code, "define a text")
    }

    /// States that times are ns, and their span.
    ///
    /// # Errors
    /// [`Error::Library`].
    pub fn clock(&mut self, first_ns: u64, length_ns: u64) -> Result<(), Error> {
        let writer = self.definitions.as_ptr();
        // SAFETY: the writer is the archive's.
        let code = unsafe {
            raw::OTF2_GlobalDefWriter_WriteClockProperties(writer, NS_PER_S, first_ns, length_ns, UNDEFINED_TIME)
        };
        status(code, "define the clock")
    }

    /// Defines a node of the system tree: the machine, which has no parent, or a host below it.
    ///
    /// # Errors
    /// [`Error::Library`].
    pub fn system_tree_node(&mut self, node: u32, name: u32, class: u32, parent: Option<u32>) -> Result<(), Error> {
        let writer = self.definitions.as_ptr();
        let domain = match parent {
            None => raw::OTF2_SYSTEM_TREE_DOMAIN_MACHINE,
            Some(_) => raw::OTF2_SYSTEM_TREE_DOMAIN_SHARED_MEMORY,
        } as raw::OTF2_SystemTreeDomain;
        let parent = parent.unwrap_or(UNDEFINED);
        // SAFETY: the writer is the archive's.
        unsafe {
            let code = raw::OTF2_GlobalDefWriter_WriteSystemTreeNode(writer, node, name, class, parent);
            status(code, "define a node of the system tree")?;
            let code = raw::OTF2_GlobalDefWriter_WriteSystemTreeNodeDomain(writer, node, domain);
            status(code, "define a node of the system tree")
        }
    }

    /// Defines a process or device.
    ///
    /// # Errors
    /// [`Error::Library`].
    pub fn location_group(&mut self, number: u32, group: LocationGroup) -> Result<(), Error> {
        let LocationGroup { name, kind, node, creator } = group;
        let writer = self.definitions.as_ptr();
        // SAFETY: the writer is the archive's.
        let code =
            unsafe { raw::OTF2_GlobalDefWriter_WriteLocationGroup(writer, number, name, kind.value(), node, creator) };
        status(code, "define a group of locations")
    }

    /// Defines a location that was opened.
    ///
    /// # Errors
    /// [`Error::Library`].
    pub fn location(
        &mut self,
        location: u64,
        name: u32,
        kind: LocationKind,
        events: u64,
        group: u32,
    ) -> Result<(), Error> {
        let writer = self.definitions.as_ptr();
        // SAFETY: the writer is the archive's.
        let code =
            unsafe { raw::OTF2_GlobalDefWriter_WriteLocation(writer, location, name, kind.value(), events, group) };
        status(code, "define a location")
    }

    /// Defines a region.
    ///
    /// # Errors
    /// [`Error::Library`].
    pub fn region(&mut self, number: u32, region: Region) -> Result<(), Error> {
        let Region { name, description, role } = region;
        let writer = self.definitions.as_ptr();
        let paradigm = raw::OTF2_PARADIGM_UNKNOWN as raw::OTF2_Paradigm;
        let (role, no_file, no_flags, no_line) = (role.value(), UNDEFINED, 0, 0);
        // SAFETY: the writer is the archive's.
        let code = unsafe {
            raw::OTF2_GlobalDefWriter_WriteRegion(
                writer,
                number,
                name,
                name,
                description,
                role,
                paradigm,
                no_flags,
                no_file,
                no_line,
                no_line,
            )
        };
        status(code, "define a region")
    }

    /// Defines a metric with one member, whose values are doubles that hold from their time on;
    /// metric class and member have the same number.
    ///
    /// # Errors
    /// [`Error::Library`].
    pub fn metric_class(&mut self, number: u32, name: u32, description: u32, unit: u32) -> Result<(), Error> {
        let writer = self.definitions.as_ptr();
        // SAFETY: the writer is the archive's; the list has the one entry that is announced.
        unsafe {
            let code = raw::OTF2_GlobalDefWriter_WriteMetricMember(
                writer,
                number,
                name,
                description,
                raw::OTF2_METRIC_TYPE_OTHER as raw::OTF2_MetricType,
                raw::OTF2_METRIC_ABSOLUTE_NEXT as raw::OTF2_MetricMode,
                raw::OTF2_TYPE_DOUBLE as raw::OTF2_Type,
                raw::OTF2_BASE_DECIMAL as raw::OTF2_Base,
                0,
                unit,
            );
            status(code, "define a metric")?;
            let (occurrence, recorder) = (raw::OTF2_METRIC_ASYNCHRONOUS, raw::OTF2_RECORDER_KIND_UNKNOWN);
            let (occurrence, recorder) = (occurrence as raw::OTF2_MetricOccurrence, recorder as raw::OTF2_RecorderKind);
            let code = raw::OTF2_GlobalDefWriter_WriteMetricClass(writer, number, 1, &number, occurrence, recorder);
            status(code, "define a metric")
        }
    }

    /// Defines the group of all locations that take part in collectives; members of communicators
    /// are indices into it.
    ///
    /// # Errors
    /// [`Error::Library`].
    pub fn communicating(&mut self, group: u32, name: u32, locations: &[u64]) -> Result<(), Error> {
        self.group(group, name, raw::OTF2_GROUP_TYPE_COMM_LOCATIONS as raw::OTF2_GroupType, locations)
    }

    /// Defines a communicator, and its group of indices into the group of [`Self::communicating`].
    ///
    /// # Errors
    /// [`Error::Library`].
    pub fn communicator(&mut self, number: u32, name: u32, group: u32, places: &[u64]) -> Result<(), Error> {
        self.group(group, name, raw::OTF2_GROUP_TYPE_COMM_GROUP as raw::OTF2_GroupType, places)?;
        let writer = self.definitions.as_ptr();
        // SAFETY: the writer is the archive's.
        let code = unsafe { raw::OTF2_GlobalDefWriter_WriteComm(writer, number, name, group, UNDEFINED, 0) };
        status(code, "define a communicator")
    }

    fn group(&mut self, group: u32, name: u32, kind: raw::OTF2_GroupType, members: &[u64]) -> Result<(), Error> {
        let writer = self.definitions.as_ptr();
        let paradigm = raw::OTF2_PARADIGM_MPI as raw::OTF2_Paradigm;
        let count = u32::try_from(members.len())
            .map_err(|_| Error::Library { what: "define a group", reason: "it has more than 2^32 members".into() })?;
        // SAFETY: the writer is the archive's; the list has as many entries as are announced.
        let code = unsafe {
            raw::OTF2_GlobalDefWriter_WriteGroup(writer, group, name, kind, paradigm, 0, count, members.as_ptr())
        };
        status(code, "define a group")
    }

    /// Closes the files of events; the communicators of locations come after.
    ///
    /// # Errors
    /// Returns an error if a location is still open, or if files cannot be written.
    pub fn close_locations(&mut self) -> Result<(), Error> {
        for location in 0..self.open.len() {
            if self.open[location].is_some() {
                self.close_location(location as u64)?;
            }
        }
        let archive = self.handle.as_ptr();
        // SAFETY: the archive is open and no writer of events is.
        unsafe {
            status(raw::OTF2_Archive_CloseEvtFiles(archive), "close files of events")?;
            status(raw::OTF2_Archive_OpenDefFiles(archive), "open files of definitions")
        }
    }

    /// States which communicators the numbers 0, 1, … of a location's collectives are. Call it
    /// after [`Self::close_locations`], for every location, including those without collectives,
    /// whose file of definitions readers expect.
    ///
    /// # Errors
    /// [`Error::Library`].
    pub fn communicators_of(&mut self, location: u64, communicators: &[u64]) -> Result<(), Error> {
        let archive = self.handle.as_ptr();
        // SAFETY: the archive is open, and its files of definitions are.
        let writer = pointer(unsafe { raw::OTF2_Archive_GetDefWriter(archive, location) }, "open a location's file")?;
        // The library makes no table that changes no number, as of a location's one collective in
        // communicator 0.
        if (0..).zip(communicators).any(|(number, communicator)| number != *communicator) {
            // SAFETY: the list has as many entries as are announced; the library copies them.
            let map = unsafe {
                raw::OTF2_IdMap_CreateFromUint64Array(communicators.len() as u64, communicators.as_ptr(), true)
            };
            let map = pointer(map, "number a location's communicators")?.as_ptr();
            let kind = raw::OTF2_MAPPING_COMM as raw::OTF2_MappingType;
            // SAFETY: writer and map are open; the map is freed once.
            let code = unsafe {
                let code = raw::OTF2_DefWriter_WriteMappingTable(writer.as_ptr(), kind, map);
                raw::OTF2_IdMap_Free(map);
                code
            };
            status(code, "number a location's communicators")?;
        }
        // SAFETY: the writer is of this archive and open, and is not used after.
        let code = unsafe { raw::OTF2_Archive_CloseDefWriter(archive, writer.as_ptr()) };
        status(code, "write a location's definitions")
    }

    /// Writes the remaining data and the anchor file: the archive is complete then.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written; the archive is incomplete then.
    pub fn close(self) -> Result<(), Error> {
        let archive = self.handle.as_ptr();
        // SAFETY: the archive is open and, the value being taken, not used after.
        unsafe {
            status(raw::OTF2_Archive_CloseDefFiles(archive), "close files of definitions")?;
            status(raw::OTF2_Archive_Close(archive), "close the archive")
        }
    }

    fn writer(&self, location: u64) -> Result<*mut raw::OTF2_EvtWriter, Error> {
        let open = self.open.get(location as usize).copied().flatten();
        open.map(NonNull::as_ptr).ok_or(Error::Location { location })
    }
}

/// A full buffer goes to its file; without this the library would keep everything in memory.
extern "C" fn flush(
    _: *mut c_void,
    _: raw::OTF2_FileType,
    _: raw::OTF2_LocationRef,
    _: *mut c_void,
    _: bool,
) -> raw::OTF2_FlushType {
    raw::OTF2_FLUSH as raw::OTF2_FlushType
}

/// No callback after a flush: it would add an event that says when the trace was written.
static FLUSH: raw::OTF2_FlushCallbacks =
    raw::OTF2_FlushCallbacks { otf2_pre_flush: Some(flush), otf2_post_flush: None };

fn status(code: raw::OTF2_ErrorCode, what: &'static str) -> Result<(), Error> {
    match errors::first(code) {
        None => Ok(()),
        Some(reason) => Err(Error::Library { what, reason }),
    }
}

fn pointer<T>(pointer: *mut T, what: &'static str) -> Result<NonNull<T>, Error> {
    status(raw::OTF2_SUCCESS, what)?;
    NonNull::new(pointer).ok_or_else(|| Error::Library { what, reason: "no reason given".into() })
}

fn text(value: &str) -> CString {
    CString::new(value.replace('\0', "\u{FFFD}")).expect("no NUL is left")
}

/// A table of a location's collectives is one definition, and a definition must fit: a million of
/// them do.
const DEFINITIONS_BYTES: u64 = 4 << 20;
/// The smallest size that the library accepts.
const CHUNK_BYTES: u64 = 256 << 10;
const NS_PER_S: u64 = 1_000_000_000;
/// `OTF2_UNDEFINED_TIMESTAMP`.
const UNDEFINED_TIME: u64 = u64::MAX;
const NO_BYTES: u64 = 0;
const CREATOR: &CStr = c"probe_sync";
