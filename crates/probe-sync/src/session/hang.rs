//! Collects the evidence of a hang from all ranks of a run in progress, at the root's socket.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration as StdDuration;

use probe_sync_files::OwnFolder;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::late::HangRequests;
use crate::store::write_whole;

/// What the root's socket needs to collect evidence.
#[derive(Clone, Debug)]
pub(crate) struct HangSource {
    requests: HangRequests,
    /// Host of each rank.
    hosts: Vec<String>,
    /// Held while ranks are asked: one client after the other.
    turn: Arc<Mutex<()>>,
}

/// Collected evidence.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Collected {
    /// Its folder in the run's directory.
    pub folder: String,
    /// Number of ranks that were asked.
    pub ranks: usize,
}

impl HangSource {
    pub fn new(requests: HangRequests, hosts: Vec<String>) -> Self {
        Self { requests, hosts, turn: Arc::default() }
    }

    /// Asks all ranks, writes who has answered and how far all are, and returns the folder.
    pub(super) fn collect(&self, directory: &OwnFolder) -> Result<Collected, Error> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.requests.ask();
        let name = format!("{HANG_FOLDER}/{number}");
        let made = directory.make_folder(HANG_FOLDER).and_then(|folder| folder.make_folder(number.to_string()));
        made.map_err(Error::file(&directory.path_of(&name), "create"))?;
        let record = self.requests.collect(number, &self.hosts, LIMIT);
        let path = directory.path_of(&name).join(ARRIVALS);
        let record = serde_json::to_vec(&record).map_err(std::io::Error::other).map_err(Error::file(&path, "write"))?;
        write_whole(&path, &record)?;
        Ok(Collected { folder: name, ranks: self.hosts.len() })
    }
}

/// The request's line at the socket.
pub(super) const LINE: &str = "hang";
/// Answer of a socket that reaches no ranks.
pub(super) const NOT_HERE: &str = "the ranks of this job are divided into regions; give the directory of one region, such as RUN/regions/NAME; its ranks count from 0";
/// Folder of evidence in the run's directory.
pub(super) const HANG_FOLDER: &str = "hang";
/// How far each rank is.
pub(super) const ARRIVALS: &str = "arrivals.json";
/// Longest wait for the ranks.
const LIMIT: StdDuration = StdDuration::from_millis(4500);
