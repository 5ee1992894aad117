//! What a merge must know about an input before its first byte is written.
//!
//! The reader of facts finds it in its own pass if it is asked to ([`crate::FactOptions::merging`]);
//! otherwise [`survey`] reads the file once more.

use std::path::Path;
use std::time::SystemTime;

use super::base::{self, BASE_KEY};
use super::document::{Document, Item};
use super::event::Event;
use super::kept::Kept;
use super::timing::{Timing, is_metadata};
use super::tracks::{Args, EventFault, ProcessNames};
use crate::Error;
use crate::model::{Picoseconds, Reach};

/// What must be known about an input.
#[derive(Clone, Debug)]
pub(super) struct Survey {
    pub(super) base_ns: Option<i64>,
    /// The first instant, absolute.
    pub(super) first_ps: Option<Picoseconds>,
    pub(super) largest_id: u64,
    /// Position of the largest id.
    pub(super) at: u64,
    /// Names of its processes.
    pub(super) names: ProcessNames,
    /// State of the file when the survey began.
    state: Option<FileState>,
}

/// Length of a file, and when it was last written to.
type FileState = (u64, SystemTime);

fn state(path: &Path) -> Option<FileState> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

impl Survey {
    /// Returns true if the file has certainly not been written to since the survey.
    pub(super) fn still_holds(&self, path: &Path) -> bool {
        self.state.is_some() && self.state == state(path)
    }
}

/// A survey in progress.
pub(super) struct Surveyor {
    state: Option<FileState>,
    /// From the base of the file.
    first_ps: Option<Picoseconds>,
    largest_id: u64,
    at: u64,
    names: ProcessNames,
    args: Args,
}

impl Surveyor {
    /// Must be called before the file is read.
    pub(super) fn begin(path: &Path) -> Surveyor {
        Surveyor {
            state: state(path),
            first_ps: None,
            largest_id: 0,
            at: 0,
            names: ProcessNames::default(),
            args: Args::default(),
        }
    }

    /// Processes an event.
    #[inline]
    pub(super) fn look(&mut self, event: &Event<'_>) -> Result<(), EventFault> {
        let (bytes, spans) = (event.bytes, event.spans);
        self.names.look(bytes, spans);
        if let Some(id) = self.args.largest_id(event)?.filter(|id| *id > self.largest_id) {
            (self.largest_id, self.at) = (id, event.offset);
        }
        if !is_metadata(bytes, spans) {
            let start = Timing::read(bytes, spans).ok().flatten().map(|timing| timing.ts.ps);
            self.first_ps = self.first_ps.into_iter().chain(start).min();
        }
        Ok(())
    }

    /// Must be called at the end of the file; `reach` is absolute.
    pub(super) fn finish(self, base_ns: Option<i64>, reach: Option<Reach>) -> Survey {
        let base_ps = i128::from(base_ns.unwrap_or(0)) * 1000;
        let stated = self.first_ps.map(|first: Picoseconds| first + base_ps);
        // A reach may be known at its end only.
        let first_ps = reach.map(|reach| reach.first_ps).max(stated);
        Survey {
            base_ns,
            first_ps,
            largest_id: self.largest_id,
            at: self.at,
            names: self.names.close(),
            state: self.state,
        }
    }
}

/// Surveys a file, also for the launches of collectives that `kept` needs.
///
/// # Errors
/// Returns an error for anything wrong with the input, with its offset.
pub(super) fn survey(path: &Path, reach: Option<Reach>, mut kept: Option<&mut Kept<'_>>) -> Result<Survey, Error> {
    let (mut surveyor, mut stated) = (Surveyor::begin(path), None);
    let mut document = Document::open(path, &[BASE_KEY])?;
    loop {
        match document.next()? {
            Item::End => return Ok(surveyor.finish(stated, reach)),
            Item::Asked(value) => {
                let base_ns = base::parse(value);
                let problem = match (base_ns, stated) {
                    (None, _) => Some("baseTimeNanoseconds is not a whole number"),
                    (_, Some(_)) => Some("baseTimeNanoseconds occurs twice"),
                    _ => None,
                };
                stated = base_ns;
                if let Some(problem) = problem {
                    return Err(document.malformed(document.position(), 0, problem));
                }
            }
            Item::Event(event) => {
                let offset = event.offset;
                if let Some(kept) = &mut kept {
                    kept.look(event.bytes, event.spans);
                }
                if let Err((at, problem)) = surveyor.look(&event) {
                    return Err(document.malformed(offset, at, problem));
                }
            }
            _ => {}
        }
    }
}
