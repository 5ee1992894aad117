//! What a rank does while its rounds wait: it tells the root of its arrivals, or at the root finds
//! who is late.
//!
//! The round loop calls it between operations, and the backend while an operation waits for a rank
//! that hangs: who is waited for is to be known then. Words that are about something else are kept
//! for the round loop.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use probe_sync_collective::{Call, Rank, SideWork};
use probe_sync_files::OwnFolder;

use super::messages::Word;
use crate::late::{Said, Turn};
use crate::wire;

/// One rank's part in the detection of late ranks.
#[derive(Debug)]
pub(crate) struct Side {
    late: Mutex<Turn>,
    kept: Mutex<Vec<Call>>,
}

impl Side {
    /// Creates the part of a rank; the root writes to this folder.
    pub fn new(mut late: Turn, folder: Option<&OwnFolder>) -> Arc<Self> {
        folder.into_iter().for_each(|folder| late.lead(folder));
        Arc::new(Self { late: Mutex::new(late), kept: Mutex::new(Vec::new()) })
    }

    pub fn late(&self) -> MutexGuard<'_, Turn> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns other messages that arrived while an operation was waiting.
    pub fn kept(&self) -> Vec<Call> {
        std::mem::take(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SideWork for Side {
    fn turn(&self, heard: Vec<Call>) -> Vec<Vec<u8>> {
        let mut late: Vec<(Rank, Said)> = Vec::new();
        for (rank, bytes) in heard {
            match wire::decode(&bytes, rank) {
                Ok(Word::Arrivals(word)) => late.push((rank, Said::Arrivals(word))),
                Ok(Word::Late(word)) => late.push((rank, Said::Standing(word))),
                Ok(Word::HangRequest(number)) => late.push((rank, Said::HangRequest(number))),
                Ok(Word::HangAnswer(number, answer)) => late.push((rank, Said::HangAnswer(number, answer))),
                // Also what cannot be read: the round loop names the rank.
                _ => self.kept.lock().unwrap_or_else(PoisonError::into_inner).push((rank, bytes)),
            }
        }
        self.late().take(late).into_iter().map(|said| wire::encode(&Word::from(said))).collect()
    }
}

impl From<Said> for Word {
    fn from(said: Said) -> Self {
        match said {
            Said::Arrivals(word) => Self::Arrivals(word),
            Said::Standing(word) => Self::Late(word),
            Said::HangRequest(number) => Self::HangRequest(number),
            Said::HangAnswer(number, answer) => Self::HangAnswer(number, answer),
        }
    }
}
