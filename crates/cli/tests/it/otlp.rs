//! Spans of a real run at a receiver of our own, which speaks HTTP and reads the protobuf of OTLP.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::Message;

use super::support::{complaint, output, probe_sync, text};

/// The part of `ExportTraceServiceRequest` that is checked
/// (opentelemetry/proto/collector/trace/v1).
#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
    #[prost(int64, optional, tag = "3")]
    number: Option<i64>,
}

/// Reads one request; its path and body.
fn request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        let mut more = [0; 4096];
        let read = stream.read(&mut more).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&more[..read]);
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"))?.trim().parse().ok()?;
    let mut body = bytes.split_off(end);
    while body.len() < length {
        let mut more = [0; 4096];
        let read = stream.read(&mut more).ok().filter(|read| *read > 0)?;
        body.extend_from_slice(&more[..read]);
    }
    Some((head.split(' ').nth(1)?.to_owned(), body))
}

#[test]
#[expect(clippy::too_many_lines, reason = "a run and all that it sends")]
fn the_parts_of_every_round_arrive_at_a_collector() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
    let (received, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let receiver = {
        let (received, over) = (Arc::clone(&received), Arc::clone(&over));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let mut stream = stream.expect("accepted");
                if let Some(request) = request(&mut stream) {
                    received.lock().expect("no panic").push(request);
                    let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
                    stream.write_all(answer.as_bytes()).expect("it reads");
                }
            }
        })
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let run = [
        "run",
        "--local",
        "3",
        "--per-rank",
        "--window",
        "300ms",
        "--fixed",
        "--duration",
        "1500ms",
        "--out",
        text(&out),
    ];
    let mut command = probe_sync(&run);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint);
    let ended = output(command);
    assert!(ended.status.success(), "{}", complaint(&ended));
    // Asked for spans or not, the log stays what it was.
    assert!(!complaint(&ended).contains("gather"), "{}", complaint(&ended));
    over.store(true, Ordering::SeqCst);
    drop(TcpStream::connect(endpoint.trim_start_matches("http://")));
    receiver.join().expect("no panic");

    let received = received.lock().expect("no panic");
    assert!(received.iter().all(|(path, _)| path == "/v1/traces"), "{received:?}");
    let decoded = received.iter().map(|(_, body)| Request::decode(&body[..]).expect("a request of OTLP"));
    let resources: Vec<ResourceSpans> = decoded.flat_map(|request| request.resource_spans).collect();
    let named = |resource: &Resource| {
        let service = resource.attributes.iter().find(|attribute| attribute.key == "service.name");
        service.and_then(|service| service.value.as_ref()?.text.clone()).as_deref() == Some("probe_sync")
    };
    assert!(resources.iter().all(|spans| spans.resource.as_ref().is_some_and(named)));
    let spans: Vec<&Span> =
        resources.iter().flat_map(|spans| &spans.scope_spans).flat_map(|scope| &scope.spans).collect();
    let names: BTreeSet<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    let parts = ["broadcast", "fit", "gather", "record", "solve", "wait"];
    assert!(parts.iter().chain(&["round"]).all(|part| names.contains(part)), "{names:?}");
    assert!(spans.iter().all(|span| span.start <= span.end && span.start > 0));
    let rounds: Vec<&&Span> = spans.iter().filter(|span| span.name == "round").collect();
    let number = |span: &Span, key: &str| {
        span.attributes
            .iter()
            .find(|attribute| attribute.key == key)
            .and_then(|attribute| attribute.value.as_ref()?.number)
    };
    for (key, expected) in [("round_id", 0..=3), ("rank", 0..=2)] {
        let found: BTreeSet<i64> = rounds.iter().filter_map(|span| number(span, key)).collect();
        assert!(expected.clone().all(|number| found.contains(&number)), "{key}: {found:?}");
    }
    // Every part is within its round.
    let ids: BTreeSet<&[u8]> = rounds.iter().map(|span| &span.span_id[..]).collect();
    assert!(
        spans
            .iter()
            .filter(|span| parts.contains(&span.name.as_str()))
            .all(|span| ids.contains(&span.parent_span_id[..]))
    );
}

#[test]
fn a_collector_that_is_away_ends_no_run() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let run = [
        "run",
        "--local",
        "2",
        "--per-rank",
        "--window",
        "200ms",
        "--fixed",
        "--duration",
        "600ms",
        "--out",
        text(&out),
    ];
    for endpoint in ["http://127.0.0.1:1", "https://127.0.0.1:1", "nonsense"] {
        let mut command = probe_sync(&run);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
        let ended = output(command);
        assert!(ended.status.success(), "{endpoint}: {}", complaint(&ended));
    }
}
