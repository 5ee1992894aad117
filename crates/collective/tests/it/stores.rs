//! Ranks that find rank 0 by a shared file, or by a real store of torch's.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use probe_sync_collective::{Collective as _, Deadline, EarlierRun, JobKey, Meeting, Tcp, join_by, publish, store};

const LOOPBACK: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)];

fn deadline() -> Deadline {
    Deadline::new(Duration::from_secs(60), None)
}

fn key() -> JobKey {
    JobKey::of(b"7")
}

fn join(place: &str, job: &str, rank: usize, deadline: &Deadline) -> Result<Tcp, String> {
    let mut store = store(place).unwrap();
    join_by(store.as_mut(), job, key(), rank, 3, &EarlierRun::default(), deadline).map_err(|error| error.to_string())
}

/// Three ranks meet; the others look before rank 0 has left anything, or while something of an
/// earlier job is there.
fn check_meeting(place: &str) {
    std::thread::scope(|scope| {
        let joining = [1, 2].map(|rank| scope.spawn(move || join(place, "job 7", rank, &deadline()).unwrap()));
        std::thread::sleep(Duration::from_millis(100));
        let meeting = Meeting::open(&LOOPBACK).unwrap();
        publish(store(place).unwrap().as_mut(), "job 7", &meeting, &deadline()).unwrap();
        let mut root = meeting.keyed_by(key()).host(3, &deadline()).unwrap();
        root.broadcast(&mut b"met".to_vec(), &deadline()).unwrap();
        for joined in joining {
            let mut heard = Vec::new();
            joined.join().unwrap().broadcast(&mut heard, &deadline()).unwrap();
            assert_eq!(heard, b"met");
        }
    });
}

fn place(path: &Path) -> String {
    format!("file:{}", path.display())
}

#[test]
fn ranks_meet_by_a_file_whatever_an_earlier_job_has_left_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rendezvous");
    let place = place(&path);
    check_meeting(&place);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // The same job's file of an earlier start, whose address answers no more.
    check_meeting(&place);
    // Another job's, whose rank 0 still listens.
    let other = Meeting::open(&LOOPBACK).unwrap();
    publish(store(&place).unwrap().as_mut(), "job 6", &other, &deadline()).unwrap();
    check_meeting(&place);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn a_file_that_does_not_do_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rendezvous");
    let place = place(&path);
    let short = || Deadline::new(Duration::from_millis(300), None);
    let check = |part: &str| {
        let error = join(&place, "job 7", 1, &short()).unwrap_err();
        assert!(error.contains(part) && error.contains("rendezvous"), "{error}");
    };
    check("has not published anything there yet");
    let meeting = Meeting::open(&LOOPBACK).unwrap();
    publish(store(&place).unwrap().as_mut(), "job 6", &meeting, &deadline()).unwrap();
    check("is from job \"job 6\"");
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    check("mode 600");
    let nowhere = publish(store("file:/no/such/folder/x").unwrap().as_mut(), "", &meeting, &deadline()).unwrap_err();
    assert!(nowhere.to_string().contains("/no/such/folder/x"), "{nowhere}");
}

/// A store in a process of its own.
struct TorchServer(Child, u16);

impl TorchServer {
    fn start(python: &str, uv: bool) -> Self {
        let program = format!(
            "import torch.distributed as d, sys, datetime\n\
             s = d.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False, use_libuv={})\n\
             print(s.port, flush=True)\n\
             sys.stdin.readline()\n\
             print(s.get('meet/here').decode().splitlines()[1], flush=True)\n",
            if uv { "True" } else { "False" }
        );
        let mut server = Command::new(python);
        server.args(["-c", &program]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = server.spawn().expect("TORCH_PYTHON starts");
        let mut line = String::new();
        BufReader::new(server.stdout.as_mut().expect("piped")).read_line(&mut line).unwrap();
        let port = line.trim().parse().expect("the store's port");
        Self(server, port)
    }
}

impl Drop for TorchServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn ranks_meet_by_a_real_store_of_torchs() {
    let Ok(python) = std::env::var("TORCH_PYTHON") else {
        println!("skipped: TORCH_PYTHON names no Python with torch; cargo xtask flow --torch installs one");
        return;
    };
    for uv in [true, false] {
        let mut server = TorchServer::start(&python, uv);
        let place = format!("tcpstore:127.0.0.1:{}/meet/here", server.1);
        check_meeting(&place);
        check_meeting(&place);
        // Torch's own client reads what was left there.
        drop(server.0.stdin.take());
        let mut line = String::new();
        BufReader::new(server.0.stdout.as_mut().expect("piped")).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "job job 7");
    }
    let nobody = Deadline::new(Duration::from_millis(300), None);
    let error = join("tcpstore:127.0.0.1:1/x", "job 7", 1, &nobody).unwrap_err();
    assert!(error.contains("the torch store at 127.0.0.1:1, key x"), "{error}");
}
