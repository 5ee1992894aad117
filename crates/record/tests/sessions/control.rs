//! Sessions that are asked from outside, by friends and others.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use probe_sync_record::control::{Request, ask, sockets};
use probe_sync_record::{Policy, Recorder, Recording, Session, scope};

use crate::support::{Stopping, expected, names, of_thread, place, whole_process};

const START: Request = Request::Start { window_ns: None };

fn on_demand(folder: &Path) -> Session {
    of_thread().on_demand().control(folder).rank(3).start().expect("ready")
}

fn said(socket: &Path, request: &Request) -> String {
    ask(socket, request).map(|_| ()).expect_err("refused").to_string()
}

#[test]
fn what_lies_between_start_and_stop_is_recorded() {
    let _place = place();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let session = on_demand(folder.path());
    let socket = sockets(folder.path()).expect("it listens").remove(0);
    assert_eq!(session.socket(), Some(socket.as_path()));
    let name = socket.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(name.starts_with("record.rank3.") && name.contains(&std::process::id().to_string()), "{name}");
    assert_eq!(std::fs::metadata(&socket).expect("there").permissions().mode() & 0o777, 0o600);
    drop(scope!("before"));
    let answer = ask(&socket, &START).expect("it begins");
    assert!(answer.standing.recording && answer.standing.facts.rank == Some(3));
    drop(scope!("between"));
    assert!(said(&socket, &START).contains("already recording"));
    let copy = ask(&socket, &Request::Snapshot { folder: None }).expect("room").saved.expect("a file");
    drop(scope!("later"));
    assert!(!ask(&socket, &Request::Stop).expect("it stops").standing.recording);
    assert!(said(&socket, &Request::Stop).contains("not recording"));
    drop(scope!("after"));
    ask(&socket, &START).expect("again");
    drop(scope!("again"));
    let recording = session.finish().expect("whole");
    assert_eq!(names(&recording), expected(&[("between", 0), ("later", 0), ("again", 0)]));
    assert_eq!(recording.windows().len(), 2);
    assert_eq!(names(&Recording::open(&copy).expect("sound")), expected(&[("between", 0)]));
    assert!(!socket.exists());
    assert!(said(&socket, &START).contains("is its process still running"));
    let none = sockets(folder.path()).expect_err("it is gone").to_string();
    assert!(none.contains("no session on this host listens here"), "{none}");
}

#[test]
fn a_flight_recorder_leaves_copies_while_it_goes_on() {
    let _place = place();
    let _one = whole_process();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let builder = Recorder::builder().policy(Policy::Flight { bytes: 1 << 20 }).control(folder.path());
    let session = builder.start().expect("ready");
    let socket = session.socket().expect("it listens").to_path_buf();
    let (ended, recording) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|threads| {
        let _stopping = Stopping(&ended);
        for _ in 0..2 {
            threads.spawn(|| {
                drop(scope!("scope", number = 0));
                recording.fetch_add(1, Ordering::Release);
                while !ended.load(Ordering::Acquire) {
                    drop(scope!("scope", number = 1));
                }
            });
        }
        let begun = Instant::now();
        while recording.load(Ordering::Acquire) < 2 {
            assert!(begun.elapsed() < Duration::from_secs(60), "no thread records");
            std::thread::sleep(Duration::from_millis(1));
        }
        let copies = folder.path().join("copies");
        std::fs::create_dir(&copies).expect("ours");
        let mut events = 0;
        for _ in 0..8 {
            let request = Request::Snapshot { folder: Some(copies.clone()) };
            let copy = ask(&socket, &request).expect("room").saved.expect("a file");
            let copy = Recording::open(&copy).expect("a copy is sound whatever is overwritten meanwhile");
            events += copy.threads().iter().map(|thread| thread.events).sum::<u64>();
        }
        // Threads that overwrite a MiB in less time than its copy takes leave nothing of one copy,
        // not of all.
        assert!(events > 0, "eight copies are empty");
        assert_eq!(std::fs::read_dir(&copies).expect("there").count(), 8, "nothing is left beside them");
    });
    let said = said(&socket, &Request::Snapshot { folder: Some(folder.path().join("no/such")) });
    assert!(said.contains("no/such"), "{said}");
}

#[test]
fn long_names_and_left_over_sockets_are_no_hindrance() {
    let _place = place();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let long = folder.path().join("x".repeat(200));
    std::fs::create_dir(&long).expect("ours");
    // As a process of this number has left it that was killed.
    let left = long.join(format!("record.rank3.{}.sock", std::process::id()));
    std::env::set_current_dir("/").expect("there");
    let opened = std::fs::File::open(&long).expect("there");
    let short = format!(
        "/proc/self/fd/{}/{}",
        std::os::fd::AsRawFd::as_raw_fd(&opened),
        left.file_name().expect("a name").to_string_lossy()
    );
    drop(std::os::unix::net::UnixListener::bind(short).expect("free"));
    let (first, second) = (on_demand(&long), on_demand(&long));
    assert_eq!(sockets(&long).expect("both").len(), 2, "two sessions of a process have two names");
    for session in [&first, &second] {
        ask(session.socket().expect("it listens"), &Request::Status).expect("an answer");
    }
}

#[test]
fn who_asks_badly_is_told_so_and_holds_up_nobody() {
    let _place = place();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let session = on_demand(folder.path());
    let socket = session.socket().expect("it listens");
    let silent: Vec<UnixStream> = (0..3).map(|_| UnixStream::connect(socket).expect("it listens")).collect();
    for (line, part) in [
        ("start\n", "not a valid request"),
        ("{\"verb\":\"erase\"}\n", "unknown variant"),
        ("{\"verb\":\"start\",\"window_ns\":[1]}\n", "not a valid request"),
        ("{\"verb\":\"start\",\"window_ns\":[2,1]}\n", "ends before it begins"),
        ("\n", "not a valid request"),
        ("\u{fffd}\n", "not a valid request"),
    ] {
        let mut stream = UnixStream::connect(socket).expect("it listens");
        stream.write_all(line.as_bytes()).expect("room");
        let mut told = String::new();
        stream.read_to_string(&mut told).expect("a text");
        assert!(told.starts_with("{\"error\":") && told.contains(part) && told.ends_with('\n'), "{line}: {told}");
    }
    let mut endless = UnixStream::connect(socket).expect("it listens");
    endless.set_write_timeout(Some(Duration::from_secs(10))).expect("a socket");
    // It is not read to its end.
    let _ = endless.write_all(&[b'x'; 1 << 20]);
    let _ = endless.read(&mut [0; 4096]);
    ask(socket, &Request::Status).expect("others are heard meanwhile");
    drop(silent);
    assert!(!session.is_recording());
}

#[test]
fn too_many_at_once_are_sent_away_and_later_ones_heard() {
    let _place = place();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let session = on_demand(folder.path());
    let socket = session.socket().expect("it listens");
    let silent: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(socket).expect("it listens")).collect();
    let deadline = Instant::now() + Duration::from_secs(120);
    // Silent ones are let go after their time.
    while ask(socket, &Request::Status).is_err() {
        assert!(Instant::now() < deadline, "it never hears again");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(silent);
}

#[test]
fn a_session_with_a_schedule_goes_by_it() {
    let _place = place();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let schedule = probe_sync_record::Schedule { active: 1, ..Default::default() };
    let session = of_thread().schedule(schedule).control(folder.path()).start().expect("ready");
    let socket = session.socket().expect("it listens");
    assert!(said(socket, &START).contains("follows its schedule"));
    assert!(ask(socket, &Request::Status).expect("an answer").standing.recording);
}

#[test]
fn what_listens_and_is_no_session_is_told_from_one() {
    let _place = place();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (socket, file) = (folder.path().join("any.sock"), folder.path().join("file"));
    std::fs::write(&file, "").expect("room");
    assert!(sockets(&file).expect_err("no socket").to_string().contains("neither a folder nor a socket"));
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    assert_eq!(sockets(&socket).expect("named itself"), std::slice::from_ref(&socket));
    for (answer, expected) in [("", "ended without answering"), ("{\"no\": 1}\n", "its answer is not valid")] {
        let told = std::thread::scope(|threads| {
            threads.spawn(|| {
                let (mut stream, _) = listener.accept().expect("somebody asks");
                let _ = stream.read(&mut [0; 4096]);
                stream.write_all(answer.as_bytes()).expect("it listens");
            });
            ask(&socket, &Request::Status).expect_err("no session").to_string()
        });
        assert!(told.contains(expected), "{told}");
    }
}

/// The file's mode keeps others out; where somebody has changed it, the system still says who asks.
#[test]
fn another_user_is_refused() {
    let _place = place();
    // SAFETY: asks who runs this.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
    let session = on_demand(folder.path());
    let socket = session.socket().expect("it listens").to_path_buf();
    let as_other = |socket: std::path::PathBuf| {
        let body = move || {
            // SAFETY: the call itself, not the C library's, changes this thread alone, which ends
            // with the test.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, -1_i32, NOBODY, -1_i32) } == 0;
            let mut told = String::new();
            let connected = UnixStream::connect(&socket).map(|mut stream| {
                let _ = stream.write_all(b"{\"verb\":\"start\"}\n");
                let _ = stream.read_to_string(&mut told);
            });
            (changed, connected.map_err(|error| error.kind()), told)
        };
        std::thread::spawn(body).join().expect("no panic")
    };
    let (changed, connected, _) = as_other(socket.clone());
    assert!(!changed || connected == Err(std::io::ErrorKind::PermissionDenied), "{connected:?}");
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).expect("ours");
    let (changed, connected, told) = as_other(socket);
    assert!(!changed || (connected == Ok(()) && told.contains("another user")), "{told}");
    assert!(!session.is_recording());
}

const NOBODY: u32 = 65_534;
