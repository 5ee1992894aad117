//! Files that ranks bring to the root of a group under way: what arrives whole, what is refused,
//! and what does not disturb.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use probe_sync_files::OwnFolder;
use probe_sync_sys::tcp_peer::Peer;

use super::delivery::{Broken, NAME_MAX, OPERATION, PIECE, Side, Talk, announce};
use super::greeting::{Errand, Hello};
use super::joining::attempt;
use super::newcomers::untrusted_peer;
use super::receiving::{WAITING_MAX, WORKERS};
use super::{FileSender, JobKey, Tcp, TcpOptions, bind};
use crate::{
    Admission, Collective as _, Deadline, Error, FaultTolerance, FilePlaces, Frames, Rank, Wait, random_bytes,
};

fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(60), None)
}

fn job() -> JobKey {
    JobKey::of(b"7")
}

/// A folder for each rank.
#[derive(Debug)]
struct Folders(PathBuf);

impl FilePlaces for Folders {
    fn place(&self, rank: Rank, name: &str) -> Result<Option<(OwnFolder, String)>, String> {
        match name {
            "unwanted" => Err("nobody wants it".to_owned()),
            "there already" => Ok(None),
            _ => Ok(Some((OwnFolder::open(&self.0).map_err(|error| error.to_string())?, format!("rank{rank}/{name}")))),
        }
    }
}

/// A group under way whose root takes files.
struct Group {
    root: Tcp,
    others: Vec<Tcp>,
    address: String,
    folder: tempfile::TempDir,
}

impl Group {
    fn new(size: usize) -> Self {
        Self::with_files_in(tempfile::tempdir().unwrap(), size)
    }

    fn with_files_in(folder: tempfile::TempDir, size: usize) -> Self {
        let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (root, others) = std::thread::scope(|scope| {
            let join = |rank| Tcp::join(&address, rank, size, job(), &deadline()).unwrap();
            let joining: Vec<_> = (1..size).map(|rank| scope.spawn(move || join(rank))).collect();
            let mut root = Tcp::host(listener, size, job(), &deadline()).unwrap();
            root.receive_files(Arc::new(Folders(folder.path().to_owned())));
            root.continue_without_lost(Vec::new()).unwrap();
            (root, joining.into_iter().map(|thread| thread.join().unwrap()).collect())
        });
        Self { root, others, address, folder }
    }

    fn sender(&self, rank: Rank) -> FileSender {
        FileSender::new(vec![self.address.clone()], rank, self.root.size(), job())
    }

    /// Brings these bytes.
    fn send(&self, rank: Rank, name: &str, content: &[u8]) -> Result<(), Error> {
        let source = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(source.path(), content).unwrap();
        self.sender(rank).send(source.path(), name, &deadline())
    }

    /// A connection of a rank that has proven who it is, to say on it whatever one likes.
    fn talk(&self, rank: Rank) -> Talk {
        let deadline = deadline();
        let hello = Hello::new(rank, self.root.size(), Errand::File, random_bytes().unwrap());
        let greeted = attempt(
            std::slice::from_ref(&self.address),
            &hello,
            job(),
            &TcpOptions::default(),
            &mut Wait::begin(OPERATION, &deadline),
        );
        let Ok(greeted) = greeted else { panic!("not greeted") };
        Talk::new(greeted.stream, greeted.seal, Side::Rank)
    }

    /// What has arrived of a rank, whole or not.
    fn files(&self, rank: Rank) -> Vec<PathBuf> {
        fn below(folder: &Path) -> Vec<PathBuf> {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
            entries.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect()
        }
        below(&self.folder.path().join(format!("rank{rank}")))
    }

    /// Waits until nothing of a rank is there.
    fn wait_until_nothing(&self, rank: Rank) {
        let begun = Instant::now();
        while !self.files(rank).is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", self.files(rank));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A round of all ranks.
    fn round(&mut self) {
        let everyone = vec![true; self.root.size()];
        for other in &mut self.others {
            other.gather(&everyone, b"here", &mut Frames::default(), &deadline()).unwrap();
        }
        let mut frames = Frames::default();
        self.root.gather(&everyone, b"root", &mut frames, &deadline()).unwrap();
        assert!(frames.iter().all(|frame| !frame.is_empty()));
        self.root.broadcast(&mut b"word".to_vec(), &deadline()).unwrap();
        for other in &mut self.others {
            other.broadcast(&mut Vec::new(), &deadline()).unwrap();
        }
        assert!(self.root.attendance().left.is_empty());
    }
}

/// What the root answers to bytes that are sealed as they should be.
fn answer_to(group: &Group, message: &[u8]) -> Result<Result<(), String>, Broken> {
    let deadline = deadline();
    let mut wait = Wait::begin(OPERATION, &deadline);
    let mut talk = group.talk(1);
    talk.say(&[message], &mut wait).unwrap();
    talk.hear_answer(&mut wait)
}

fn check_refused(group: &Group, message: &[u8], part: &str) {
    let reason = answer_to(group, message).expect("an answer").expect_err("a refusal");
    assert!(reason.contains(part), "{reason}");
}

#[test]
fn files_of_all_lengths_and_ranks_arrive_whole_beside_the_rounds() {
    let mut group = Group::new(8);
    let content = |rank: Rank, length: usize| -> Vec<u8> { (0..length).map(|at| (at * rank % 251) as u8).collect() };
    let lengths = [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5];
    let senders: Vec<FileSender> = (1..8).map(|rank| group.sender(rank)).collect();
    std::thread::scope(|scope| {
        let sending: Vec<_> = senders
            .iter()
            .map(|sender| {
                scope.spawn(move || {
                    let source = tempfile::NamedTempFile::new().unwrap();
                    for length in lengths {
                        std::fs::write(source.path(), content(sender.rank(), length)).unwrap();
                        sender.send(source.path(), &format!("a/{length}"), &deadline()).unwrap();
                    }
                })
            })
            .collect();
        while sending.iter().any(|thread| !thread.is_finished()) {
            group.round();
        }
    });
    for rank in 1..8 {
        assert_eq!(group.files(rank).len(), lengths.len(), "{:?}", group.files(rank));
        for length in lengths {
            let path = group.folder.path().join(format!("rank{rank}/a/{length}"));
            assert!(std::fs::read(&path).unwrap() == content(rank, length), "{}", path.display());
        }
    }
    group.send(1, "a/1", b"later").unwrap();
    assert_eq!(std::fs::read(group.folder.path().join("rank1/a/1")).unwrap(), b"later");
}

#[test]
fn threads_of_one_rank_take_turns() {
    let group = Group::new(2);
    let sender = group.sender(1);
    let source = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(source.path(), vec![5; 8 * PIECE]).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (sender, path) = (sender.clone(), source.path());
            scope.spawn(move || {
                for file in 0..4 {
                    sender.send(path, &format!("{thread}/{file}"), &deadline()).unwrap();
                }
            });
        }
    });
    assert_eq!(group.files(1).len(), 12);
    // One that holds its turn: the other waits as long as it has time.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let sender = FileSender::new(vec![silent.local_addr().unwrap().to_string()], 1, 2, job());
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let limit =
            Deadline { grace: Duration::ZERO, ..Deadline::new(Duration::from_secs(60), Some(Arc::clone(&stop))) };
        let (first, path) = (sender.clone(), source.path());
        let held = scope.spawn(move || first.send(path, "a", &limit));
        let _connected = silent.accept().unwrap();
        let late = Deadline::new(Duration::from_millis(100), None);
        let error = sender.send(path, "b", &late).unwrap_err().to_string();
        assert!(error.contains("another file of this rank was being sent"), "{error}");
        stop.store(true, Ordering::Relaxed);
        held.join().unwrap().unwrap_err();
    });
}

#[test]
fn what_is_not_allowed_is_refused_with_the_reason() {
    let group = Group::new(2);
    for name in ["../out", "/etc/passwd", "a/../../b"] {
        check_refused(&group, &announce(1, name), "points outside the folder");
        let error = group.send(1, name, b"x").unwrap_err().to_string();
        assert!(error.starts_with("rank 1: ") && error.contains("points outside the folder"), "{error}");
    }
    check_refused(&group, &announce(1, &"n".repeat(NAME_MAX + 1)), "at most 512");
    check_refused(&group, &announce(u64::MAX, "long"), "copy it by hand");
    check_refused(&group, &announce(1 << 40, "longer than the disk has room"), "free some space there");
    check_refused(&group, &announce(1, "unwanted"), "nobody wants it");
    group.send(1, "there already", &vec![1; PIECE + 1]).expect("it is heard and dropped");
    assert!(group.files(1).is_empty());
}

#[test]
fn a_file_that_cannot_be_written_or_read_is_an_error_at_its_rank() {
    let group = Group::new(2);
    group.send(1, "a", b"a file, and no folder").unwrap();
    let error = group.send(1, "a/b", &vec![7; 3 * PIECE]).unwrap_err().to_string();
    assert!(error.contains("rank 1: a/b did not reach rank 0: rank 0 rejected it: rank 0 cannot write"), "{error}");
    std::fs::create_dir(group.folder.path().join("rank1/folder")).unwrap();
    let error = group.send(1, "folder", b"x").unwrap_err().to_string();
    assert!(error.contains("cannot write"), "{error}");
    for path in ["/nowhere/at/all", "/", "/dev/zero"] {
        let error = group.sender(1).send(Path::new(path), "x", &deadline()).unwrap_err().to_string();
        assert!(error.contains(&format!("cannot read {path}")), "{error}");
    }
    assert_eq!(group.files(1).len(), 1);
}

#[test]
fn without_the_key_or_to_nobody_is_an_error_that_names_the_rank() {
    let group = Group::new(3);
    let source = tempfile::NamedTempFile::new().unwrap();
    let check = |sender: FileSender, part: &str| {
        let error = sender.send(source.path(), "x", &deadline()).unwrap_err().to_string();
        assert!(error.contains("x did not reach rank 0") && error.contains(part), "{error}");
    };
    let address = || vec![group.address.clone()];
    check(FileSender::new(address(), 2, 3, JobKey::of(b"8")), "rank 2: ");
    check(FileSender::new(address(), 2, 3, JobKey::of(b"8")), "another job");
    check(FileSender::new(address(), 2, 4, job()), "another number of ranks");
    check(FileSender::new(address(), 0, 3, job()), "no such rank");
    // Nobody listens at port 1.
    check(FileSender::new(vec!["127.0.0.1:1".into()], 1, 3, job()), "did rank 0 end its run");
}

#[test]
fn a_group_that_takes_no_files_says_so() {
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let sender = FileSender::new(vec![address.clone()], 1, 2, job());
    let send = || sender.send(Path::new("/proc/self/exe"), "x", &deadline()).unwrap_err().to_string();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| Tcp::host(listener, 2, job(), &deadline()).unwrap());
        assert!(send().contains("accepts no files"), "the ranks still meet");
        let _joined = Tcp::join(&address, 1, 2, job(), &deadline()).unwrap();
        let mut root = host.join().unwrap();
        root.continue_without_lost(Vec::new()).unwrap();
        assert!(send().contains("accepts no files"));
    });
}

#[test]
fn more_ranks_than_may_wait_come_again_and_lose_nothing() {
    let few = WORKERS + WAITING_MAX;
    let group = Group::new(few + 3);
    let silent: Vec<Talk> = (1..=WORKERS).map(|rank| half_a_file(&group, rank)).collect();
    let waiting: Vec<Talk> = (WORKERS + 1..=few).map(|rank| group.talk(rank)).collect();
    let source = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(source.path(), b"in the end").unwrap();
    std::thread::scope(|scope| {
        let impatient = group.sender(few + 1);
        let limit = Deadline::new(Duration::from_secs(2), None);
        let error = impatient.send(source.path(), "a", &limit).unwrap_err().to_string();
        assert!(error.contains("is receiving files from other ranks first, until the time limit expired"), "{error}");
        let (sender, path) = (group.sender(few + 2), source.path());
        let patient = scope.spawn(move || sender.send(path, "a", &deadline()));
        // One that waits already and comes again is not turned away.
        drop(group.talk(WORKERS + 1));
        drop((silent, waiting));
        patient.join().unwrap().unwrap();
    });
    assert_eq!(std::fs::read(group.folder.path().join(format!("rank{}/a", few + 2))).unwrap(), b"in the end");
}

/// Half a file, and then nothing.
fn half_a_file(group: &Group, rank: Rank) -> Talk {
    let deadline = deadline();
    let mut wait = Wait::begin(OPERATION, &deadline);
    let mut talk = group.talk(rank);
    talk.say(&[&announce(2 * PIECE as u64, "half")], &mut wait).unwrap();
    assert_eq!(talk.wait_for_answer(&mut wait), Ok(Ok(())));
    talk.say(&[&vec![1; PIECE]], &mut wait).unwrap();
    talk
}

#[test]
fn a_rank_that_is_killed_in_the_middle_leaves_nothing_whole() {
    let mut group = Group::new(2);
    let talk = half_a_file(&group, 1);
    assert!(!group.folder.path().join("rank1/half").exists());
    drop(talk);
    group.wait_until_nothing(1);
    group.round();
}

#[test]
fn a_rank_that_comes_again_has_lost_its_earlier_connection() {
    let group = Group::new(2);
    let _silent = half_a_file(&group, 1);
    group.send(1, "half", b"whole").unwrap();
    assert_eq!(group.files(1), [group.folder.path().join("rank1/half")]);
    assert_eq!(std::fs::read(group.folder.path().join("rank1/half")).unwrap(), b"whole");
}

#[test]
fn silent_ranks_hold_up_neither_the_rounds_nor_the_end() {
    let mut group = Group::new(8);
    // All places are taken; the others wait for their turn.
    let silent: Vec<Talk> = (1..5).map(|rank| half_a_file(&group, rank)).collect();
    let sender = group.sender(6);
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let limit = Deadline::new(Duration::from_secs(60), Some(Arc::clone(&stop)));
        let waiting = scope.spawn(move || sender.send(Path::new("/proc/self/exe"), "x", &limit));
        (0..20).for_each(|_| group.round());
        assert!(!waiting.is_finished());
        stop.store(true, Ordering::Relaxed);
        let error = waiting.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("stop was requested"), "{error}");
    });
    group.root.end_admission();
    for (rank, mut talk) in (1..5).zip(silent) {
        let deadline = deadline();
        assert!(matches!(talk.hear_answer(&mut Wait::begin(OPERATION, &deadline)), Err(Broken::Off(_))));
        assert!(group.files(rank).is_empty());
    }
    let error = group.send(5, "x", b"x").unwrap_err().to_string();
    assert!(error.contains("did rank 0 end its run"), "{error}");
}

#[test]
fn a_piece_that_comes_byte_by_byte_is_heard() {
    let group = Group::new(2);
    let between = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let sender = FileSender::new(vec![between.local_addr().unwrap().to_string()], 1, 2, job());
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let source = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(source.path(), [9; 300]).unwrap();
            sender.send(source.path(), "slow", &deadline())
        });
        pass_on(&between, &group.address, 1, |_, byte| byte);
        sending.join().unwrap().unwrap();
    });
    assert_eq!(std::fs::read(group.folder.path().join("rank1/slow")).unwrap(), [9; 300]);
}

#[test]
fn what_was_changed_on_the_way_is_not_taken() {
    let group = Group::new(2);
    let between = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let sender = FileSender::new(vec![between.local_addr().unwrap().to_string()], 1, 2, job());
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let source = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(source.path(), [9; 300]).unwrap();
            sender.send(source.path(), "changed", &deadline())
        });
        // After the greeting's 88 bytes and the announcement's 51, in the middle of the file; the
        // second attempt as well.
        for _ in 0..2 {
            pass_on(&between, &group.address, 64, |at, byte| if at == 240 { byte ^ 1 } else { byte });
        }
        let error = sending.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("changed did not reach rank 0"), "{error}");
    });
    assert!(group.files(1).is_empty());
}

/// Passes the bytes of one connection on, `step` at a time, those of the rank as `change` makes
/// them.
fn pass_on(between: &TcpListener, root: &str, step: usize, change: impl Fn(usize, u8) -> u8) {
    let (mut rank, mut root) = (between.accept().unwrap().0, TcpStream::connect(root).unwrap());
    rank.set_nodelay(true).unwrap();
    root.set_nodelay(true).unwrap();
    let (mut back, mut from_root) = (rank.try_clone().unwrap(), root.try_clone().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = std::io::copy(&mut from_root, &mut back);
            let _ = back.shutdown(std::net::Shutdown::Both);
        });
        let (mut buffer, mut at) = (vec![0; step], 0);
        while let Ok(count @ 1..) = rank.read(&mut buffer) {
            for byte in &mut buffer[..count] {
                *byte = change(at, *byte);
                at += 1;
            }
            if root.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = root.shutdown(std::net::Shutdown::Write);
    });
}

#[test]
fn foreign_connections_do_not_disturb_files() {
    let mut group = Group::new(2);
    let mut held: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&group.address).unwrap()).collect();
    for (stream, bytes) in held.iter_mut().zip([&b"GET / HTTP/1.1\r\n\r\n"[..], b"prbsync\x01", &[0; 4096]]) {
        stream.write_all(bytes).unwrap();
    }
    group.send(1, "x", &vec![3; PIECE + 7]).unwrap();
    // Proven, and then garbage: a length and a name that are none, and a seal that is none.
    let deadline = deadline();
    let mut wait = Wait::begin(OPERATION, &deadline);
    for garbage in [&[0xff; 12][..], &[0; 64], &announce(7, "a")] {
        let mut talk = group.talk(1);
        let _ = talk.say(&[&garbage[..garbage.len() / 2], b"?"], &mut wait);
        drop(talk);
    }
    group.round();
    assert_eq!(group.files(1).len(), 1);
}

/// A root and two ranks with these choices about Unix-domain sockets.
fn group_of(local: [bool; 3]) -> Vec<Tcp> {
    let options = local.map(|local| TcpOptions { local, ..TcpOptions::default() });
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = [listener.local_addr().unwrap().to_string()];
    std::thread::scope(|scope| {
        let join = |rank: Rank| Tcp::join_any(&address, rank, 3, job(), options[rank], &deadline()).unwrap();
        let joining = [1, 2].map(|rank| scope.spawn(move || join(rank)));
        let mut group = vec![Tcp::host_with(listener, 3, job(), options[0], &deadline()).unwrap()];
        group.extend(joining.map(|thread| thread.join().unwrap()));
        group
    })
}

/// Rounds with frames of many lengths, more than a socket's buffer holds among them, and words
/// between them, every byte checked.
fn rounds_with_words(group: &mut [Tcp]) {
    let lengths = [0, 1000, 3_000_000, 17, 200_000, 5];
    std::thread::scope(|scope| {
        for rank in group {
            scope.spawn(move || {
                let (own, mut frames, mut heard) = (rank.rank() as u8, Frames::default(), Vec::new());
                for (round, length) in lengths.into_iter().enumerate() {
                    rank.call(&[own, round as u8]).unwrap();
                    rank.gather(&[true; 3], &vec![own; length], &mut frames, &deadline()).unwrap();
                    let mut told = if own == 0 { vec![9; length] } else { Vec::new() };
                    rank.broadcast(&mut told, &deadline()).unwrap();
                    assert!(told.len() == length && told.iter().all(|byte| *byte == 9), "round {round}");
                    let expected: Vec<u8> = if own == 0 { vec![0, 1, 2] } else { Vec::new() };
                    assert_eq!(frames.len(), expected.len());
                    let right =
                        |(frame, of): (&[u8], &u8)| frame.len() == length && frame.iter().all(|byte| byte == of);
                    assert!(frames.iter().zip(&expected).all(right), "round {round}");
                    heard.extend(rank.calls().unwrap());
                }
                for of in if own == 0 { vec![1, 2] } else { vec![0] } {
                    let words = heard.iter().filter(|(rank, _)| *rank == of).map(|(_, word)| word.clone());
                    assert_eq!(
                        words.collect::<Vec<_>>(),
                        (0..6).map(|round| vec![of as u8, round]).collect::<Vec<_>>()
                    );
                }
            });
        }
    });
}

#[test]
fn frames_of_one_host_move_where_both_sides_want_it_and_nothing_is_lost_on_the_way() {
    for local in [[true; 3], [true, false, true], [false, true, true]] {
        let mut group = group_of(local);
        rounds_with_words(&mut group);
        rounds_with_words(&mut group);
        for rank in [1, 2] {
            let expected = [local[0] && local[rank]; 2];
            assert_eq!(
                group[0].group_mut().peers.at(rank - 1).map(|peer| peer.has_moved()),
                Some(expected),
                "{local:?}"
            );
            assert_eq!(group[rank].group_mut().peers.at(0).map(|peer| peer.has_moved()), Some(expected), "{local:?}");
        }
        // An end is seen and a dismissal heard there too.
        group[0].continue_without_lost(Vec::new()).unwrap();
        drop(group.pop());
        let (rank, mut root) = (group.pop().unwrap(), group.pop().unwrap());
        let mut frames = Frames::default();
        root.gather(&[true; 3], b"", &mut frames, &Deadline::new(Duration::from_millis(300), None)).unwrap();
        let left: Vec<Rank> = root.attendance().left.into_iter().map(|(rank, _)| rank).collect();
        assert_eq!(left, [2, 1]);
        let told = { rank }.broadcast(&mut Vec::new(), &deadline()).unwrap_err();
        assert!(matches!(&told, Error::Dismissed { .. }), "{told}");
    }
}

/// A small disk that is unmounted in the end.
struct Disk(tempfile::TempDir);

impl Disk {
    /// `None`, with the reason on standard output, if this process may not mount one.
    fn mount(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(folder.path())
            .output();
        if mount.is_ok_and(|done| done.status.success()) {
            return Some(Self(folder));
        }
        println!("skipped: only root can mount a small disk");
        None
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Whoever has guessed the job's key brings files as long as they are taken.
#[test]
fn forged_deliveries_leave_room_on_the_disk_for_the_run() {
    // Room for 8 MiB and many names, then for many MiB and 40 names, beyond what is left to the
    // run.
    for (options, length) in [("size=72m,nr_inodes=8000", 1 << 20), ("size=500m,nr_inodes=4140", 1)] {
        let Some(disk) = Disk::mount(options) else { return };
        let mut group = Group::with_files_in(tempfile::tempdir_in(disk.0.path()).unwrap(), 2);
        let content = vec![b'x'; length];
        let refusal = (0..200).find_map(|number| group.send(1, &format!("folder{number}/a"), &content).err());
        let refusal = refusal.expect("the disk is not filled").to_string();
        assert!(refusal.contains("free some space there"), "{refusal}");
        let left = rustix::fs::statvfs(disk.0.path()).unwrap();
        let (bytes, files) = (left.f_bavail * left.f_frsize, left.f_favail);
        assert!(bytes >= 63 << 20 && files >= 4090, "{bytes} bytes and {files} files are left");
        group.round();
    }
}

/// As root, another user connects by bash; without root only the user's own connection is checked.
#[test]
fn another_user_of_the_host_is_told_from_this_one() {
    use std::os::unix::process::CommandExt as _;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let own = TcpStream::connect(address).unwrap();
    let accepted = listener.accept().unwrap().0;
    assert_eq!(untrusted_peer(&accepted), None);
    drop(own);
    assert_eq!(untrusted_peer(&accepted), Some(Peer::Gone), "nobody knows whose it was");
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can start a process of another user");
        return;
    }
    // It closes its end before it is looked at, and what it has said can still be read.
    for (after, expected) in [("read -u 3 line", Peer::User(54_321)), ("exec 3>&-", Peer::Gone)] {
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{}; echo said >&3; {after}", address.port());
        let mut other =
            std::process::Command::new("/bin/bash").args(["-c", &script]).current_dir("/").uid(54_321).spawn().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut said = [0; 5];
        stream.read_exact(&mut said).unwrap();
        if expected == Peer::Gone {
            assert_eq!(stream.read(&mut said).unwrap(), 0, "the end");
        }
        assert_eq!(untrusted_peer(&stream), Some(expected));
        drop(stream);
        other.wait().unwrap();
    }
}
