//! Somebody without the key who hears everything, says it again, and leads ranks elsewhere.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use probe_sync_collective::{
    Admission, Collective as _, Deadline, EarlierRun, Error, FaultTolerance, Frames, JobKey, Rank, Succession, Tcp,
    TcpOptions, bind,
};

use crate::backends::{NOWHERE, tcp_group};

const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
const REFUSED_KEY: u8 = 2;

fn within(seconds: u64) -> Deadline {
    Deadline::new(Duration::from_secs(seconds), None)
}

fn job() -> JobKey {
    JobKey::of(b"7")
}

/// Passes connections on and keeps what each client has sent.
struct Eavesdropper {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Eavesdropper {
    fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(ANY).unwrap();
        let (address, heard) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<Vec<u8>>>>::default());
        let shared = Arc::clone(&heard);
        std::thread::spawn(move || {
            for rank in listener.incoming().map_while(Result::ok) {
                let Ok(root) = TcpStream::connect(target) else { continue };
                let (of, to) = (rank.try_clone().unwrap(), root.try_clone().unwrap());
                let place = {
                    shared.lock().unwrap().push(Vec::new());
                    shared.lock().unwrap().len() - 1
                };
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    pass_on(of, to, |said| shared.lock().unwrap()[place].extend_from_slice(said));
                });
                std::thread::spawn(move || pass_on(root, rank, |_| ()));
            }
        });
        Self { address, heard }
    }

    /// The data of connections with more than a greeting.
    fn heard(&self) -> Vec<Vec<u8>> {
        self.heard.lock().unwrap().iter().filter(|said| said.len() > GREETING).cloned().collect()
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, hear: impl Fn(&[u8])) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        hear(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Says all of it again, and checks that the proof in it is refused.
fn check_replay_is_refused(said: &[u8], address: SocketAddr) {
    let mut replay = TcpStream::connect(address).unwrap();
    let mut answers = [0; 96];
    for (part, answer) in [&said[..HELLO], &said[HELLO..GREETING]].iter().zip(answers.chunks_mut(48)) {
        replay.write_all(part).unwrap();
        replay.read_exact(answer).unwrap();
    }
    // The frames: nobody reads them any more.
    let _ = replay.write_all(&said[GREETING..]);
    assert_eq!((answers[12], answers[48 + 12]), (0, REFUSED_KEY), "heard, and refused");
}

/// The root and rank 1, which reaches it through somebody who listens.
fn overheard_pair() -> (Tcp, Tcp, SocketAddr, Eavesdropper) {
    let listener = bind(ANY.into()).unwrap();
    let root = listener.local_addr().unwrap();
    let between = Eavesdropper::before(root);
    let address = between.address.to_string();
    let rank = std::thread::spawn(move || Tcp::join(&address, 1, 2, job(), &within(60)).unwrap());
    let mut host = Tcp::host(listener, 2, job(), &within(60)).unwrap();
    let rank = rank.join().unwrap();
    host.continue_without_lost(b"notice".to_vec()).unwrap();
    (host, rank, root, between)
}

/// A gather and a broadcast; whose frames came.
fn round(host: &mut Tcp, rank: &mut Tcp) -> usize {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            rank.gather(&[true; 2], b"window", &mut Frames::default(), &within(60)).unwrap();
            rank.broadcast(&mut Vec::new(), &within(60)).unwrap();
        });
        let mut frames = Frames::default();
        host.gather(&[true; 2], b"own", &mut frames, &within(60)).unwrap();
        host.broadcast(&mut b"decided".to_vec(), &within(60)).unwrap();
        other.join().unwrap();
        frames.iter().filter(|frame| !frame.is_empty()).count()
    })
}

#[test]
fn what_was_overheard_brings_nobody_back_through_the_door() {
    let (mut host, mut rank, root, between) = overheard_pair();
    assert_eq!(round(&mut host, &mut rank), 2);
    drop(rank);
    let heard = between.heard();
    assert_eq!(heard.len(), 1, "the greeting, the proof and frames");
    check_replay_is_refused(&heard[0], root);
    let attendance = host.attendance();
    assert!(attendance.back.is_empty(), "{attendance:?}");
    // The place stays free for who has the key.
    let again = std::thread::spawn(move || {
        let mut again = Tcp::join(&root.to_string(), 1, 2, job(), &within(60)).unwrap();
        again.rejoin(b"statement", &within(60)).unwrap();
        again
    });
    while host.attendance().back.is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(host.admit(1, Ok(())));
    assert_eq!(round(&mut host, &mut again.join().unwrap()), 2);
}

/// Four ranks, of which ranks 1 and 2 may take rank 0's place, and where they are found.
fn lined_up() -> (Vec<Tcp>, Vec<(Rank, Vec<SocketAddr>)>) {
    let mut ranks = tcp_group(4);
    let line: Vec<_> = [1, 2].map(|rank| (rank, ranks[rank].stand_by().unwrap())).into();
    ranks.iter_mut().for_each(|rank| rank.set_successors(&line));
    (ranks, line)
}

/// These ranks meet anew, where `there` took part last.
fn meet_anew(ranks: Vec<Tcp>, there: [bool; 4], expected: Rank) -> Vec<Tcp> {
    std::thread::scope(|scope| {
        let meet = |mut rank: Tcp| {
            scope.spawn(move || {
                assert_eq!(rank.succeed(&there, Duration::from_secs(5), &within(60)).unwrap(), expected);
                rank
            })
        };
        let threads: Vec<_> = ranks.into_iter().map(meet).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn what_was_overheard_is_no_voice_where_ranks_meet_anew() {
    // Where rank 2 is heard first, rank 1 needs no voice of rank 3.
    let overheard = (0..ATTEMPTS_MAX).find_map(|_| {
        let (mut ranks, line) = lined_up();
        let between = Eavesdropper::before(line[0].1[0]);
        ranks[3].set_successors(&[(1, vec![between.address]), line[1].clone()]);
        drop(ranks.remove(0));
        meet_anew(ranks, [true; 4], 1);
        between.heard().pop()
    });
    let heard = overheard.expect("rank 3's way to rank 1");
    // The next job with this key, and rank 3 is lost, too: rank 1 alone is no majority of three,
    // whatever is said again.
    let (mut ranks, line) = lined_up();
    let mut alone = ranks.remove(1);
    drop(ranks);
    std::thread::scope(|scope| {
        let there = [true, true, false, true];
        let outcome = scope.spawn(move || alone.succeed(&there, Duration::from_secs(1), &within(4)));
        check_replay_is_refused(&heard, line[0].1[0]);
        let error = outcome.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Minority { present: 1, of: 3, .. }), "{error:?}");
    });
}

/// Rank 0 is lost and rank 2 leads. Who controls the way to rank 1, whose place nobody has any
/// more, leads ranks to rank 2 instead.
#[test]
fn who_is_led_to_another_listener_of_its_job_takes_no_other_ranks_place() {
    let (mut ranks, line) = lined_up();
    drop(ranks.drain(..2));
    let mut ranks = meet_anew(ranks, [true, false, true, true], 2);
    ranks[0].continue_without_lost(b"notice".to_vec()).unwrap();
    let led = |to| EarlierRun { run: 7, successors: vec![(to, line[1].1.clone())], kept_in: None };
    let options = TcpOptions::default();
    // Rank 0 with rank 1's label would be rank 1 there.
    let returned = Tcp::return_as_rank_0(&led(1), 4, job(), options, &within(20)).unwrap();
    assert!(returned.is_none(), "{returned:?}");
    // Rank 1 would believe that rank 3 leads.
    let error =
        Tcp::join_or_return(&[NOWHERE.to_owned()], &led(3), 1, 4, job(), options, &within(2)).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("cannot reach rank 0"), "{error}");
    let attendance = ranks[0].attendance();
    assert!(attendance.back.is_empty(), "{attendance:?}");
}

/// As root: a process of another user of the host, who has guessed the job's key, comes first.
#[test]
fn another_user_with_the_guessed_key_is_no_rank() {
    use std::os::unix::process::CommandExt as _;
    const ADDRESS: &str = "PROBE_SYNC_TEST_OF_ANOTHER_USER";
    let options = TcpOptions { same_user: true, ..TcpOptions::default() };
    if let Ok(address) = std::env::var(ADDRESS) {
        // It stays until the root has ended.
        let joined = Tcp::join_any(&[address], 1, 2, job(), TcpOptions::default(), &within(20));
        println!("joined: {}", joined.is_ok());
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can start a process of another user");
        return;
    }
    let listener = bind(ANY.into()).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.path().join("it");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut other = std::process::Command::new(program);
    other.args(["--exact", "attackers::another_user_with_the_guessed_key_is_no_rank", "--nocapture"]);
    other.env(ADDRESS, &address).current_dir("/").uid(54_321).gid(54_321).stdout(std::process::Stdio::piped());
    let other = other.spawn().unwrap();
    let error = Tcp::host_with(listener, 2, job(), options, &within(3)).unwrap_err();
    assert!(matches!(&error, Error::Late { missing, .. } if missing == &[1]), "{error}");
    let said = other.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&said.stdout).contains("joined: false"), "{said:?}");
    // This user's own rank is one.
    let listener = bind(ANY.into()).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let own = std::thread::spawn(move || Tcp::join_any(&[address], 1, 2, job(), options, &within(60)).map(|_| ()));
    let _root = Tcp::host_with(listener, 2, job(), options, &within(60)).unwrap();
    own.join().unwrap().unwrap();
}

/// What a rank says first, and that with its proof.
const HELLO: usize = 84;
const GREETING: usize = HELLO + 32;
/// One in three does not speak.
const ATTEMPTS_MAX: usize = 30;
