//! The TCP backend as its root: a peer greets properly and then sends arbitrary frames or brings
//! arbitrary files, or a foreign connection sends anything.
//!
//! Real sockets on loopback. The peer closes its side when its bytes are sent, so nobody waits for
//! a deadline.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use probe_sync_collective::{
    Admission, Collective as _, Deadline, FanOut, FaultTolerance, FilePlaces, FileSender, Frames, JobKey, Tcp,
    TcpOptions, bind,
};
use probe_sync_files::OwnFolder;

/// Rank 1 sends `data` where frames are due, in a star or a tree: as bytes, or as frames with their
/// seals, each four bytes of kind, sequence and length and as many as that says. The root gets a
/// payload or an error, and never more than was sent.
pub fn frames(data: &[u8]) {
    let Some((listener, address)) = listener() else { return };
    let Some((mode, data)) = data.split_first() else { return };
    let fan_out = if mode & 1 == 0 { FanOut::Star } else { FanOut::Tree(2) };
    let options = TcpOptions { fan_out, ..TcpOptions::default() };
    std::thread::scope(|scope| {
        let root = scope.spawn(move || Tcp::host_with(listener, RANKS, job(), options, &deadline()));
        let joined = Tcp::join_any(&[address.to_string()], 1, RANKS, job(), options, &deadline());
        let (Ok(mut peer), Ok(Ok(mut root))) = (joined, root.join()) else { return };
        if mode & 2 == 0 {
            peer.say_frames(&cut(data));
            // It hangs up.
            drop(peer);
        } else if let Some(mut peer) = peer.into_streams().pop() {
            // A peer that is refused in the middle of its bytes is no failure.
            let _ = peer.write_all(data).and_then(|()| peer.shutdown(Shutdown::Write));
        }
        let mut frames = Frames::default();
        for _ in 0..MAX_ROUNDS {
            let words: usize = root.calls().map_or(0, |words| words.iter().map(|(_, word)| word.len()).sum());
            // A rank that is ahead is waited for.
            let soon = Deadline::new(Duration::from_millis(20), None);
            if root.gather(&[true; RANKS], b"own", &mut frames, &soon).is_err() {
                return;
            }
            let received: usize = frames.iter().map(<[u8]>::len).sum();
            assert!(received + words <= data.len() + b"own".len(), "{received} and {words} bytes of {}", data.len());
        }
    });
}

/// Frames, bundles and trees without sockets: what was said comes as it was said, and nothing else.
pub fn parsers(data: &[u8]) {
    probe_sync_collective::parse_peer_bytes(data);
}

/// Kind, sequence and payload of each frame.
fn cut(mut data: &[u8]) -> Vec<(u8, u8, &[u8])> {
    let mut frames = Vec::new();
    while let Some(([kind, sequence, low, high], rest)) = data.split_first_chunk() {
        let (payload, after) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes([*low, *high]))));
        frames.push((*kind, *sequence, payload));
        data = after;
    }
    frames
}

/// A foreign connection sends `data` to the open port; then the real rank 1 comes, and must be let
/// in.
pub fn rendezvous(data: &[u8]) {
    let Some((listener, address)) = listener() else { return };
    std::thread::scope(|scope| {
        let root = scope.spawn(|| Tcp::host(listener, RANKS, job(), &deadline()));
        if let Ok(mut foreign) = TcpStream::connect(address) {
            let _ = foreign.write_all(data).and_then(|()| foreign.shutdown(Shutdown::Write));
        }
        let joined = Tcp::join(&address.to_string(), 1, RANKS, job(), &deadline());
        let root = root.join().expect("the root does not panic");
        match (root, joined) {
            (Ok(root), Ok(joined)) => assert_eq!((root.size(), joined.rank()), (RANKS, 1)),
            (root, joined) => panic!("a foreign connection kept rank 1 out: {:?}, {:?}", root.err(), joined.err()),
        }
    });
}

/// Rank 1 brings a file: as many bytes as the first one says are what it announces, the rest is one
/// piece, both under their seals. The root has the whole file where it was announced, or nothing.
pub fn files(data: &[u8]) {
    let Some((listener, address)) = listener() else { return };
    let Ok(folder) = tempfile::tempdir() else { return };
    let Some((first, said)) = data.split_first() else { return };
    let (announcement, piece) = said.split_at(usize::from(*first).min(said.len()));
    std::thread::scope(|scope| {
        let root = scope.spawn(|| Tcp::host(listener, RANKS, job(), &deadline()));
        let Some(_peer) = greeted(address) else { return };
        let Ok(Ok(mut root)) = root.join() else { return };
        root.receive_files(Arc::new(Folder(folder.path().to_owned())));
        if root.continue_without_lost(Vec::new()).is_ok() {
            FileSender::new(vec![address.to_string()], 1, RANKS, job()).say(&[announcement, piece], &deadline());
        }
    });
    let mut found = Vec::new();
    files_below(folder.path(), &mut found);
    let length = announcement.split_first_chunk().map(|(length, _)| u64::from_le_bytes(*length));
    assert!(found.len() <= 1, "{found:?}");
    for path in found {
        let name = path.strip_prefix(folder.path()).ok().and_then(Path::to_str).unwrap_or_default();
        assert!(announcement.ends_with(name.as_bytes()), "{name}");
        let content = std::fs::read(&path).expect("it is there");
        assert_eq!(Some(content.len() as u64), length, "{name}");
        // An empty file is whole before its piece.
        assert!(content.is_empty() || content == piece, "{name}");
    }
}

/// Takes every file.
#[derive(Debug)]
struct Folder(PathBuf);

impl FilePlaces for Folder {
    fn place(&self, _: usize, name: &str) -> Result<Option<(OwnFolder, String)>, String> {
        let folder = OwnFolder::open(&self.0).map_err(|error| error.to_string())?;
        Ok(Some((folder, name.to_owned())))
    }
}

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() { files_below(&entry.path(), found) } else { found.push(entry.path()) }
    }
}

fn listener() -> Option<(TcpListener, SocketAddr)> {
    let listener = bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).ok()?;
    let address = listener.local_addr().ok()?;
    Some((listener, address))
}

/// The connection of a rank 1 that has been let in.
fn greeted(address: SocketAddr) -> Option<TcpStream> {
    let joined = Tcp::join(&address.to_string(), 1, RANKS, job(), &deadline()).ok()?;
    joined.into_streams().pop()
}

fn job() -> JobKey {
    JobKey::of(b"fuzz")
}

fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(5), None)
}

const RANKS: usize = 2;
const MAX_ROUNDS: usize = 100;
