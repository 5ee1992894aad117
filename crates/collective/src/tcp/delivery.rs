//! The messages between a rank and the root when the rank sends a file.
//!
//! `sending` implements the rank's side and `receiving` the root's, on a separate connection after
//! a greeting (`greeting`). All numbers are little-endian:
//!
//! | from | content |
//! |---|---|
//! | rank | bytes of the file: u64, bytes of its name: u32, the name |
//! | root | verdict: u32, 0 for yes; bytes of a text: u32, the text: why not |
//! | rank | the file, in pieces of 1 MiB of which the last is shorter; each is a message |
//! | root | as before: the file is whole, and has its name |
//!
//! The root may say no at any time, and then it is the end. Every message is followed by its seal,
//! 32 bytes: the keyed hash of who speaks, the number of the message and its bytes. So nobody on
//! the way can change, leave out or repeat a piece.
//!
//! It does not encrypt or compress, and it does not resume a file after a broken connection.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use blake3::{Hash, Hasher};
use rustix::event::PollFlags;

use super::sockets::{keep_alive, poll_sockets};
use crate::Wait;

/// One side of such a connection.
pub(super) struct Talk {
    stream: TcpStream,
    key: [u8; 32],
    own: Side,
    /// Messages so far, by the side that said them.
    messages: [u64; 2],
    /// What has been heard of the message under way.
    hearing: Option<Hasher>,
    /// The longest that the other side may neither send nor take anything.
    silence: Duration,
}

/// The sending side.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Rank = 0,
    Root = 1,
}

/// Why a message has not been delivered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The connection, or its time, is over.
    Off(String),
    /// The other side sent something before this one had finished.
    Interjected,
}

/// Yes, or the reason why not.
pub(super) type Answer = Result<(), String>;

impl Talk {
    /// On a connection that is non-blocking; `seal` is what the greeting has made.
    pub fn new(stream: TcpStream, seal: Hash, own: Side) -> Self {
        keep_alive(&stream);
        Self { stream, key: seal.into(), own, messages: [0; 2], hearing: None, silence: SILENCE }
    }

    /// The root's answer, however long it is silent before: to what the rank announces as long as
    /// other ranks' files take, to the last piece as long as its disk does.
    ///
    /// # Errors
    /// [`Broken::Off`].
    pub fn wait_for_answer(&mut self, wait: &mut Wait<'_>) -> Result<Answer, Broken> {
        self.silence = Duration::MAX;
        let answer = self.hear_answer(wait);
        self.silence = SILENCE;
        answer
    }

    /// Sends one message; stops if the other side interrupts it.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn say(&mut self, parts: &[&[u8]], wait: &mut Wait<'_>) -> Result<(), Broken> {
        // A socket that always takes bytes is never waited for. The root's answers are short, and
        // worth knowing at the end too.
        if self.own == Side::Rank {
            check_time(wait)?;
        }
        let mut hasher = self.hasher(self.own);
        for part in parts {
            hasher.update(part);
        }
        self.messages[self.own as usize] += 1;
        let seal = hasher.finalize();
        parts.iter().copied().chain([seal.as_bytes().as_slice()]).try_for_each(|part| self.write(part, wait))
    }

    /// Receives the next bytes of a message.
    ///
    /// # Errors
    /// [`Broken::Off`].
    pub fn hear(&mut self, bytes: &mut [u8], wait: &mut Wait<'_>) -> Result<(), Broken> {
        self.read(bytes, wait)?;
        let hasher = self.hasher(self.own.other());
        self.hearing.get_or_insert(hasher).update(bytes);
        Ok(())
    }

    /// Receives the seal at the end of a message.
    ///
    /// # Errors
    /// [`Broken::Off`], also if the seal does not match the message.
    pub fn hear_seal(&mut self, wait: &mut Wait<'_>) -> Result<(), Broken> {
        // A socket that always has bytes is never waited for.
        check_time(wait)?;
        let mut seal = [0; 32];
        self.read(&mut seal, wait)?;
        let expected = self.hearing.take().unwrap_or_else(|| self.hasher(self.own.other())).finalize();
        self.messages[self.own.other() as usize] += 1;
        // The comparison takes the same time wherever the two differ.
        if expected == Hash::from_bytes(seal) { Ok(()) } else { Err(off("the data was modified in transit")) }
    }

    /// Receives the root's answer.
    ///
    /// # Errors
    /// [`Broken::Off`].
    pub fn hear_answer(&mut self, wait: &mut Wait<'_>) -> Result<Answer, Broken> {
        let [mut verdict, mut length] = [[0; 4]; 2];
        self.hear(&mut verdict, wait)?;
        self.hear(&mut length, wait)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > TEXT_MAX {
            return Err(off(&format!("an answer of {length} bytes; at most {TEXT_MAX} are allowed")));
        }
        let mut text = vec![0; length];
        self.hear(&mut text, wait)?;
        self.hear_seal(wait)?;
        Ok(if verdict == [0; 4] { Ok(()) } else { Err(String::from_utf8_lossy(&text).into_owned()) })
    }

    /// Sends yes, or the reason why not. After a refusal the connection is over: what the rank
    /// still sends is read and dropped for a moment, so that a reset does not overtake the answer.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn answer(&mut self, answer: &Answer, wait: &mut Wait<'_>) -> Result<(), Broken> {
        let text = answer.as_ref().err().map_or(&b""[..], |text| &text.as_bytes()[..text.len().min(TEXT_MAX)]);
        let verdict = u32::from(answer.is_err()).to_le_bytes();
        self.say(&[&verdict, &(text.len() as u32).to_le_bytes(), text], wait)?;
        if answer.is_err() {
            let _ = self.stream.shutdown(std::net::Shutdown::Write);
            self.silence = FAREWELL;
            let begun = Instant::now();
            let mut dropped = [0; 16 << 10];
            while begun.elapsed() < FAREWELL && matches!(self.read_some(&mut dropped, wait), Ok(1..)) {}
        }
        Ok(())
    }

    /// Sends nothing more, and waits until the other side has finished too.
    #[cfg(feature = "suite")]
    pub fn hang_up(&mut self, wait: &mut Wait<'_>) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        while matches!(self.read_some(&mut [0; 4096], wait), Ok(1..)) {}
    }

    fn hasher(&self, speaker: Side) -> Hasher {
        let mut hasher = Hasher::new_keyed(&self.key);
        hasher.update(&[speaker as u8]).update(&self.messages[speaker as usize].to_le_bytes());
        hasher
    }

    fn read(&mut self, bytes: &mut [u8], wait: &mut Wait<'_>) -> Result<(), Broken> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.read_some(&mut bytes[filled..], wait)? {
                0 => return Err(off("the other side closed the connection")),
                count => filled += count,
            }
        }
        Ok(())
    }

    /// Waits until something is available; returns 0 at the end.
    fn read_some(&mut self, bytes: &mut [u8], wait: &mut Wait<'_>) -> Result<usize, Broken> {
        let begun = Instant::now();
        loop {
            match self.stream.read(bytes) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(off(&error.to_string())),
            }
            self.sleep(PollFlags::IN, wait, begun)?;
        }
    }

    fn write(&mut self, bytes: &[u8], wait: &mut Wait<'_>) -> Result<(), Broken> {
        let (mut written, mut begun) = (0, Instant::now());
        while written < bytes.len() {
            match self.stream.write(&bytes[written..]) {
                Ok(count) => (written, begun) = (written + count, Instant::now()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_to_write(wait, begun)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What it said before it hung up may still be there to read.
                Err(_) if self.own == Side::Rank => return Err(Broken::Interjected),
                Err(error) => return Err(off(&error.to_string())),
            }
        }
        Ok(())
    }

    fn wait_to_write(&self, wait: &mut Wait<'_>, begun: Instant) -> Result<(), Broken> {
        if self.own == Side::Root {
            return self.sleep(PollFlags::OUT, wait, begun);
        }
        self.sleep(PollFlags::OUT | PollFlags::IN, wait, begun)?;
        let said = poll_sockets(&[(self.stream.as_fd(), PollFlags::IN)], Duration::ZERO, OPERATION);
        if said.is_ok_and(|said| said == [true]) { Err(Broken::Interjected) } else { Ok(()) }
    }

    /// Sleeps until the socket may be ready.
    fn sleep(&self, wanted: PollFlags, wait: &mut Wait<'_>, begun: Instant) -> Result<(), Broken> {
        if begun.elapsed() >= self.silence {
            return Err(off(&format!("the other side sent nothing for {:?}", self.silence)));
        }
        let slice = check_time(wait)?;
        let slept = poll_sockets(&[(self.stream.as_fd(), wanted)], slice.min(self.silence), OPERATION);
        slept.map(drop).map_err(|error| off(&error.to_string()))
    }
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Rank => Self::Root,
            Self::Root => Self::Rank,
        }
    }
}

/// Returns the longest time to sleep, while there is time and the end was not requested.
fn check_time(wait: &mut Wait<'_>) -> Result<Duration, Broken> {
    wait.slice().ok_or_else(|| {
        let why = if wait.interrupted() { "a stop was requested" } else { "the time limit expired" };
        off(&format!("{why} after {:.1?}", wait.elapsed()))
    })
}

/// Returns the first message of a rank: the length and the name of the file.
pub(super) fn announce(length: u64, name: &str) -> Vec<u8> {
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
    bytes.extend_from_slice(name.as_bytes());
    bytes
}

/// Parses the first message, at the root. The name is one that [`check_name`] accepts.
///
/// # Errors
/// [`Broken::Off`]; problems of the name are returned as an answer.
pub(super) fn hear_announcement(talk: &mut Talk, wait: &mut Wait<'_>) -> Result<Result<(u64, String), String>, Broken> {
    let (mut length, mut name_length) = ([0; 8], [0; 4]);
    talk.hear(&mut length, wait)?;
    talk.hear(&mut name_length, wait)?;
    let name_length = u32::from_le_bytes(name_length) as usize;
    if name_length > NAME_MAX {
        return Ok(Err(format!("its name has {name_length} bytes; at most {NAME_MAX} are allowed")));
    }
    let mut name = vec![0; name_length];
    talk.hear(&mut name, wait)?;
    talk.hear_seal(wait)?;
    let length = u64::from_le_bytes(length);
    let Ok(name) = String::from_utf8(name) else { return Ok(Err("its name is not UTF-8".to_owned())) };
    Ok(check_name(&name).map(|()| (length, name)))
}

/// Accepts names of files below a folder: parts separated by `/`, none of which leads elsewhere.
///
/// # Errors
/// States what is wrong with it.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("the name {name:?} {what}; give a relative path such as traces/rank1.json"));
    if name.is_empty() || name.len() > NAME_MAX {
        return wrong(&format!("has {} bytes; 1 to {NAME_MAX} are allowed", name.len()));
    }
    if name.chars().any(|letter| letter.is_control() || letter == '\\') {
        return wrong("contains a control character");
    }
    if name.split('/').count() > DEPTH_MAX {
        return wrong(&format!("has more than {DEPTH_MAX} parts"));
    }
    if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return wrong("points outside the folder");
    }
    Ok(())
}

fn off(reason: &str) -> Broken {
    Broken::Off(reason.to_owned())
}

/// Name of the operation in errors of the system.
pub(super) const OPERATION: &str = "sending a file to rank 0";

/// Bytes of a file in one message: what either side holds at a time.
pub(super) const PIECE: usize = 1 << 20;

/// Longest name of a file, bytes.
pub(super) const NAME_MAX: usize = 512;

/// Most folders in a name, including the file.
const DEPTH_MAX: usize = 8;

/// Longest text of an answer, bytes.
const TEXT_MAX: usize = 4096;

/// Longest time for which either side may neither send nor accept anything.
const SILENCE: Duration = Duration::from_secs(30);

/// How long the root continues to read after a refusal.
const FAREWELL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;

    use super::*;
    use crate::Deadline;

    /// A root that receives the messages of a peer after its greeting.
    fn root_hears(bytes: &[u8]) -> Result<Result<(u64, String), String>, Broken> {
        root_hears_until(bytes, &Deadline::new(Duration::from_secs(60), None))
    }

    fn root_hears_until(bytes: &[u8], deadline: &Deadline) -> Result<Result<(u64, String), String>, Broken> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let mut peer = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (root, _) = listener.accept().expect("it connects");
        root.set_nonblocking(true).expect("a socket");
        peer.write_all(bytes).expect("it fits the buffer");
        drop(peer);
        let mut talk = Talk::new(root, Hash::from_bytes([7; 32]), Side::Root);
        hear_announcement(&mut talk, &mut Wait::begin(OPERATION, deadline))
    }

    fn sealed(message: &[u8], number: u64, key: [u8; 32]) -> Vec<u8> {
        let mut hasher = Hasher::new_keyed(&key);
        hasher.update(&[0]).update(&number.to_le_bytes()).update(message);
        [message, hasher.finalize().as_bytes()].concat()
    }

    #[test]
    fn an_announcement_is_heard_as_it_was_said_and_under_its_own_seal_only() {
        let said = announce(5, "a/b");
        assert_eq!(root_hears(&sealed(&said, 0, [7; 32])), Ok(Ok((5, "a/b".to_owned()))));
        for changed in [sealed(&said, 1, [7; 32]), sealed(&said, 0, [8; 32])] {
            assert_eq!(root_hears(&changed), Err(off("the data was modified in transit")));
        }
        assert_eq!(root_hears(&said), Err(off("the other side closed the connection")));
        let long = announce(5, &"n".repeat(NAME_MAX + 1));
        assert!(root_hears(&sealed(&long, 0, [7; 32])).is_ok_and(|heard| heard.is_err()));
    }

    #[test]
    fn the_end_is_seen_where_the_socket_is_always_ready() {
        let said = sealed(&announce(5, "a/b"), 0, [7; 32]);
        let interrupt = Some(Arc::new(AtomicBool::new(true)));
        let ended = Deadline { grace: Duration::ZERO, ..Deadline::new(Duration::from_secs(60), interrupt) };
        let late = Deadline::new(Duration::ZERO, None);
        for (deadline, part) in [(&ended, "a stop was requested"), (&late, "the time limit expired")] {
            let told = |result: Result<(), Broken>| match result {
                Err(Broken::Off(reason)) => assert!(reason.starts_with(part), "{reason}"),
                other => panic!("{other:?}"),
            };
            // All of it is there to read.
            told(root_hears_until(&said, deadline).map(drop));
            let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
            let rank = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
            rank.set_nonblocking(true).expect("a socket");
            let mut talk = Talk::new(rank, Hash::from_bytes([7; 32]), Side::Rank);
            told(talk.say(&[b"it fits the buffer"], &mut Wait::begin(OPERATION, deadline)));
        }
    }

    #[test]
    fn a_name_stays_below_its_folder() {
        for good in ["a", "rank1.0.pt.trace.json.gz", "plugins/profile/s/host-1.xplane.pb", "..a/b..", ".hidden"] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        let deep = "a/".repeat(8) + "b";
        let long = "a".repeat(NAME_MAX + 1);
        for bad in
            ["", "..", "../a", "a/../../b", "/etc/passwd", "a//b", "a/", "./a", "a\0b", "a\nb", "a\\b", &deep, &long]
        {
            let reason = check_name(bad).expect_err(bad);
            assert!(reason.contains("give a relative path"), "{reason}");
        }
    }

    proptest! {
        #[test]
        fn no_name_leads_out(name in "[a./\\\\]{0,24}") {
            if check_name(&name).is_ok() {
                let path = std::path::Path::new("/folder").join(&name);
                prop_assert!(path.components().all(|part| part != std::path::Component::ParentDir));
                prop_assert!(path.starts_with("/folder") && path != std::path::Path::new("/folder"));
            }
        }

        #[test]
        fn arbitrary_bytes_are_no_announcement(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!matches!(root_hears(&bytes), Ok(Ok(_))), "only what is sealed counts");
        }

        #[test]
        fn sealed_bytes_are_an_announcement_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Ok((length, name))) = root_hears(&sealed(&bytes, 0, [7; 32])) {
                prop_assert_eq!(announce(length, &name), bytes);
            }
        }
    }
}
