//! Metrics over HTTP, from a real run.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::support::{probe_sync, text, wait};

/// Asks for `/metrics`; the head and the body of what is answered.
fn scrape(address: &str, path: &str, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("the run listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers and closes");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a response");
    (head.to_owned(), body.to_owned())
}

fn sample(metrics: &str, series: &str) -> f64 {
    let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {series} in {metrics}"))
}

#[test]
fn metrics_are_served_and_idle_clients_delay_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let arguments = [
        "run",
        "--local",
        "3",
        "--per-rank",
        "--window",
        "300ms",
        "--fixed",
        "--metrics-listen",
        "127.0.0.1:0",
        "--out",
        text(&out),
    ];
    let mut command = probe_sync(&arguments);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    let log = BufReader::new(run.stderr.take().expect("piped"));
    let mut lines = log.lines().map_while(Result::ok);
    let said = lines.find_map(|line| Some(line.split_once("metrics at http://")?.1.to_owned())).expect("it says where");
    let address = said.trim_end_matches("/metrics").to_owned();
    // The pipe must not fill.
    let rest = std::thread::spawn(move || lines.collect::<Vec<_>>().join("\n"));

    let rounds_after = |count: f64| {
        let deadline = Instant::now() + LIMIT;
        loop {
            let (_, body) = scrape(&address, "/metrics", "*/*");
            let solved = if body.contains("rounds_total ") { sample(&body, "probe_sync_rounds_total") } else { 0.0 };
            if solved >= count {
                return body;
            }
            assert!(Instant::now() < deadline, "{count} rounds do not come: {body}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let before = sample(&rounds_after(2.0), "probe_sync_rounds_total");
    let idle: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect(&address).expect("accepted")).collect();
    let body = rounds_after(before + 3.0);
    for series in
        ["probe_sync_sequence_skew_seconds", "probe_sync_last_round_age_seconds", "probe_sync_process_open_fds"]
    {
        assert!(sample(&body, series) >= 0.0);
    }
    // The idle ones are closed, oldest first, so that they take no descriptors from the run.
    assert!(sample(&body, "probe_sync_process_open_fds") < 200.0, "{body}");
    drop(idle);

    let (head, body) = scrape(&address, "/metrics", "application/openmetrics-text; version=1.0.0");
    assert!(head.contains("application/openmetrics-text") && body.ends_with("# EOF\n"), "{head}");
    assert!(body.contains("# UNIT probe_sync_offset_seconds seconds"), "{body}");
    assert!(body.contains("probe_sync_round_start_latency_seconds_count"), "{body}");
    let (head, body) = scrape(&address, "/other", "*/*");
    assert!(head.starts_with("HTTP/1.1 404") && body.contains("/metrics"), "{head}");

    let id = Pid::from_raw(i32::try_from(run.id()).expect("a process id")).expect("not zero");
    kill_process(id, Signal::TERM).expect("it runs");
    let output = wait(run);
    let said = rest.join().expect("the log is read");
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("lost rank"), "{said}");
}

#[test]
fn an_address_that_is_taken_refuses_the_run() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = taken.local_addr().expect("bound").to_string();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let arguments =
        ["run", "--local", "2", "--per-rank", "--duration", "1s", "--metrics-listen", &address, "--out", text(&out)];
    let output = super::support::output(probe_sync(&arguments));
    let said = super::support::complaint(&output);
    assert!(!output.status.success() && said.contains("--metrics-listen") && said.contains(&address), "{said}");
}

const LIMIT: Duration = Duration::from_secs(60);
