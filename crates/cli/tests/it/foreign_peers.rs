//! A run whose every open port has foreign peers: probe packets that nobody sent, and 500 silent
//! connections at each listener.

use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::Value;

use crate::faults::{rank, signal, wait_for_round, written_report};
use crate::support::{complaint, free_port, output, probe_sync, text, wait};

const CONNECTIONS: usize = 500;
/// Packets per second, if the machine can send so many.
const RATE: u32 = 100_000;
const BURST: u32 = 100;

/// Sends what looks like a run's packets to these addresses, and other bytes, until the end; how
/// many.
fn forge(addresses: &[String], over: &AtomicBool) -> u64 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let packet = |kind: u8| {
        let mut bytes = [kind; 80];
        bytes[..6].copy_from_slice(&[b'p', b'S', b'y', b'n', 2, kind]);
        bytes.to_vec()
    };
    let shapes: Vec<Vec<u8>> = (1..=6).map(packet).chain([Vec::new(), vec![0; 80], vec![7; 1400]]).collect();
    let (begun, mut sent) = (Instant::now(), 0);
    while !over.load(Ordering::Relaxed) {
        for shape in shapes.iter().cycle().take(BURST as usize) {
            // A full buffer takes none.
            sent += addresses.iter().filter(|address| socket.send_to(shape, address).is_ok()).count() as u64;
        }
        let due = begun + Duration::from_secs(1) * u32::try_from(sent).expect("a short run") / RATE;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    sent
}

#[test]
fn a_run_measures_among_forged_packets_and_500_foreign_connections_at_every_listener() {
    let most = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: most.maximum.map_or(Some(8192), |most| Some(most.min(8192))), ..most };
    setrlimit(Resource::Nofile, wanted).expect("below the hard limit");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let [port, metrics] = [free_port(), free_port()].map(|port| (port, format!("127.0.0.1:{port}")));
    let settings = ["run", "--window", "500ms", "--fixed", "--inject-skew", "3", "--metrics-listen", &metrics.1];
    let settings = [&settings[..], &["--out", text(&out)]].concat();
    let ranks: Vec<_> = (0..3).map(|number| rank(port.0, number, 3, &settings).spawn().expect("starts")).collect();
    wait_for_round(&out, 1);
    let run: Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).expect("a run")).expect("JSON");
    let nodes = run["nodes"].as_array().expect("nodes").iter();
    let addresses: Vec<String> = nodes.map(|node| node["address"].as_str().expect("an address").to_owned()).collect();
    let before = std::fs::read_to_string(out.join("global_windows.jsonl")).expect("rounds").lines().count();

    let over = AtomicBool::new(false);
    let (sent, held) = std::thread::scope(|scope| {
        let forging = scope.spawn(|| forge(&addresses, &over));
        let connect = |address: &str| -> Vec<TcpStream> {
            (0..CONNECTIONS).filter_map(|_| TcpStream::connect(address).ok()).collect()
        };
        let held = (connect(&port.1), connect(&metrics.1));
        let control: Vec<UnixStream> =
            (0..CONNECTIONS).filter_map(|_| UnixStream::connect(out.join("control.sock")).ok()).collect();
        wait_for_round(&out, before + 8);
        // Who may ask is answered among them.
        let status = output(probe_sync(&["status", "--json", text(&out)]));
        assert!(status.status.success(), "{}", complaint(&status));
        over.store(true, Ordering::Relaxed);
        (forging.join().expect("no panic"), (held, control))
    });
    signal(&ranks[0], Signal::TERM);
    for (number, ended) in ranks.into_iter().map(wait).enumerate() {
        assert!(ended.status.success(), "rank {number}: {}", complaint(&ended));
    }
    drop(held);
    let report = written_report(&out);
    for node in report["nodes"].as_array().expect("nodes") {
        assert_eq!(node["reachable"], true, "{node}");
        let [low, high] = [0, 1].map(|end| node["hard_interval_ns"][end].as_f64().expect("a bound"));
        let truth = node["true_offset_ns"].as_f64().expect("a virtual clock");
        assert!(low <= truth && truth <= high, "{node}");
    }
    let metrics = std::fs::read_to_string(out.join("metrics.prom")).expect("metrics");
    let foreign =
        metrics.lines().find_map(|line| line.strip_prefix("probe_sync_events_total{kind=\"packets_foreign\"} "));
    let foreign: u64 = foreign.and_then(|count| count.parse().ok()).expect("a count");
    assert!(foreign > 0, "{sent} were sent: {metrics}");
    println!("{sent} forged packets, {foreign} counted");
}
