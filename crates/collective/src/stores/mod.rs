//! Where rank 0 leaves its id for the other ranks: a shared file or torch's key-value store.
//!
//! It serves start-ups in which the address of rank 0 is not known in advance. Rank 0 opens a
//! [`Meeting`] and [`publish`]es its id; the others [`join_by`] the id they find. An entry may stem
//! from an earlier job: it names its job, and a rank stops trying an address that does not answer
//! as soon as the entry changes.
//!
//! What is stored is text: `probe_sync rendezvous 1`, `job NAME`, `id` and 256 hexadecimal digits,
//! one to a line. Whoever reads it can take a rank's place. It does not remove the entry
//! afterwards, because a returning rank finds rank 0 through it.

mod file;
mod kept;
mod torch;

pub use file::FileStore;
pub use kept::Store;
pub use torch::TorchStore;

use std::time::Duration;

use crate::{Deadline, EarlierRun, Error, JobKey, Meeting, ROOT, Rank, Tcp, UniqueId, Wait, random_bytes};

/// Returns the store named by `text`: `file:PATH` or `tcpstore:HOST:PORT[/KEY]`.
///
/// # Errors
/// [`Error::Setup`] lists the valid forms.
pub fn store(text: &str) -> Result<Box<dyn Store>, Error> {
    let refused = || Error::Setup {
        what: format!("the rendezvous \"{text}\""),
        reason: "use file:PATH, tcpstore:HOST:PORT or tcpstore:HOST:PORT/KEY".to_owned(),
    };
    match text.trim().split_once(':') {
        Some(("file", path)) if !path.is_empty() => Ok(Box::new(FileStore::new(path.into()))),
        Some(("tcpstore", place)) => {
            let (address, key) = place.split_once('/').unwrap_or((place, DEFAULT_KEY));
            let port =
                address.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then(|| port.parse::<u16>()));
            match port {
                Some(Ok(1..)) if !key.is_empty() => Ok(Box::new(TorchStore::new(address.to_owned(), key.to_owned()))),
                _ => Err(refused()),
            }
        }
        _ => Err(refused()),
    }
}

/// Stores rank 0's id where the others look for it. `job` names the job, equal on all its ranks and
/// a single line.
///
/// # Errors
/// [`Error::Setup`] names the place and states what to do.
pub fn publish(store: &mut dyn Store, job: &str, meeting: &Meeting, deadline: &Deadline) -> Result<(), Error> {
    let text = format!("{HEADING}\njob {}\nid {:x}\n", one_line(job), meeting.id());
    store.put(text.as_bytes(), deadline)
}

/// Joins by the stored id, as `rank` of `size`, polling until the deadline. Rank 0's meeting uses
/// the same `key` ([`Meeting::keyed_by`]), so that if the key is a secret, access to the store is
/// not enough to impersonate a rank.
///
/// # Errors
/// [`Error::Setup`] states what was found last, and why it was not usable. [`Error::Late`] if the
/// wait was interrupted.
pub fn join_by(
    store: &mut dyn Store,
    job: &str,
    key: JobKey,
    rank: Rank,
    size: usize,
    earlier: &EarlierRun,
    deadline: &Deadline,
) -> Result<Tcp, Error> {
    let mut wait = Wait::begin("rendezvous", deadline);
    let mut pause = RETRY_FIRST;
    loop {
        let failure = match store.find(deadline)? {
            None => "rank 0 has not published anything there yet".to_owned(),
            Some(value) => match read(&value, job) {
                Err(reason) => reason,
                Ok(id) => {
                    // What is there may be of an earlier run, whose address answers no more.
                    let mut attempt = deadline.clone();
                    attempt.at = attempt.at.min(std::time::Instant::now() + ATTEMPT);
                    match id.keyed_by(key).join_or_return(rank, size, earlier, &attempt) {
                        Ok(group) => return Ok(group),
                        Err(error @ Error::Late { .. }) => return Err(error),
                        Err(error) => error.to_string(),
                    }
                }
            },
        };
        let Some(slice) = wait.slice() else {
            if wait.interrupted() {
                return Err(wait.late(vec![ROOT]));
            }
            let what = format!("cannot find rank 0 through {} within {:.1?}", store.name(), wait.elapsed());
            let advice = "is rank 0 running with the same PROBE_SYNC_RENDEZVOUS?";
            return Err(Error::Setup { what, reason: format!("{failure}; {advice}") });
        };
        let [drawn] = random_bytes()?;
        std::thread::sleep(slice.min(pause.mul_f64(0.5 + 0.5 * f64::from(drawn) / 255.0)));
        pause = (pause * 2).min(RETRY_LAST);
    }
}

/// Parses a stored id, if it is of this job.
fn read(value: &[u8], job: &str) -> Result<UniqueId, String> {
    let text = std::str::from_utf8(value).map_err(|_| "its content is not text".to_owned())?;
    let mut lines = text.lines();
    if lines.next() != Some(HEADING) {
        return Err("its content is from another program or version".to_owned());
    }
    let field = |line: Option<&str>, name: &str| line?.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
    let (found, id) = (field(lines.next(), "job"), field(lines.next(), "id"));
    match found {
        Some(found) if found == one_line(job) => {}
        Some(found) => {
            return Err(format!("its content is from job \"{found}\", but this job is \"{}\"", one_line(job)));
        }
        None => return Err("its content is damaged".to_owned()),
    }
    id.unwrap_or_default().parse().map_err(|error: Error| error.to_string())
}

fn one_line(job: &str) -> String {
    job.chars().filter(|character| !character.is_control()).take(JOB_MAX).collect()
}

const HEADING: &str = "probe_sync rendezvous 1";

/// Default key in torch's store.
const DEFAULT_KEY: &str = "probe_sync";

/// Longest name of a job, characters.
const JOB_MAX: usize = 256;

/// How long a stored id is tried before the store is read again.
const ATTEMPT: Duration = Duration::from_secs(2);

/// First pause between polls, doubled each time.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_LAST: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn places_are_told_apart() {
        for text in ["file:/a/b", "file:relative", "tcpstore:host:29500", "tcpstore:[::1]:29500/key/of/mine"] {
            assert!(store(text).is_ok(), "{text}");
        }
        for text in
            ["", "file:", "/a/b", "tcpstore:host", "tcpstore::1", "tcpstore:host:0", "tcpstore:h:1/", "etcd:h:1"]
        {
            let error = store(text).expect_err(text).to_string();
            assert!(error.contains("file:PATH"), "{error}");
        }
    }

    #[test]
    fn what_is_left_there_is_read_by_its_job_only() {
        let loopback = [IpAddr::from([127, 0, 0, 1])];
        let meeting = Meeting::open(&loopback).expect("loopback");
        let text = format!("{HEADING}\njob 7\nid {:x}\n", meeting.id());
        assert!(read(text.as_bytes(), "7").expect("our own") == *meeting.id());
        let check = |text: &str, part: &str| {
            let reason = read(text.as_bytes(), "7").expect_err(part);
            assert!(reason.contains(part), "{reason}");
        };
        check(&text.replace("job 7", "job 8"), "from job \"8\"");
        check(&text.replace("vous 1", "vous 2"), "from another program or version");
        check(&text[..text.len() - 9], "128 bytes");
        check("", "another program or version");
        check(HEADING, "damaged");
    }
}
