//! CUPTI and the driver as simulated by `tests/tools/cupti_tool.c` and `cuda_tool.c`, whose devices
//! know when work truly ran. Libraries are loaded once per process, so each scenario runs in this
//! program started again.

mod gpu;

use std::ffi::{CString, c_int};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use probe_sync_sys::Library;

use super::api::Api;
use super::functions::functions;
use super::{CudaEvents, Cupti, driver};
use crate::backend::{BackendState, DevicePair};
use crate::read::{ArgumentValue, Event, Recording, What};
use crate::{Builder, Error, Kind, Policy, Reach, Recorder, Session, scope};

functions! {
    /// By `cupti_tool.c`.
    Devices {
        launch = c"tool_launch"(u32, u32, u32, *const std::ffi::c_char, u64, *mut [u64; 2]);
        wait = c"tool_wait"(u64);
        hold = c"tool_hold"(c_int);
        enabled = c"tool_enabled"();
        ids = c"tool_ids"();
    }
}

functions! {
    /// By `cuda_tool.c`.
    Streams {
        set_context = c"tool_set_context"(usize);
        live = c"tool_live"();
        work = c"tool_work"(driver::Handle, u64, *mut [u64; 2]);
        capture = c"tool_capture"(driver::Handle, c_int);
        synchronize = c"tool_synchronize"(driver::Handle);
    }
}

impl Devices {
    fn load() -> Self {
        Self::of(Library::open(&[c"libcupti.so.13"]).expect("it was built")).expect("it has all of them")
    }

    /// Launches a kernel, or a copy of `ns` bytes without a name; returns when it truly runs.
    fn launch(&self, [device, context, stream]: [u32; 3], name: Option<&str>, ns: u64) -> [u64; 2] {
        let name = name.map(|name| CString::new(name).expect("no zero byte"));
        let (name, mut truth) = (name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr()), [0; 2]);
        // SAFETY: by the tool's source.
        unsafe { (self.launch)(device, context, stream, name, ns, &raw mut truth) };
        truth
    }

    /// Waits until a true time.
    fn wait(&self, truth: u64) {
        // SAFETY: by the tool's source.
        unsafe { (self.wait)(truth) };
    }

    fn hold(&self, on: bool) {
        // SAFETY: by the tool's source.
        unsafe { (self.hold)(c_int::from(on)) };
    }
}

/// An event on a device, as recorded.
#[derive(Debug)]
struct Seen {
    device: String,
    queue: String,
    name: String,
    id: u64,
    span: [u64; 2],
    arguments: Vec<(String, ArgumentValue)>,
}

fn seen(recording: &Recording) -> Vec<Seen> {
    let mut found = Vec::new();
    for thread in recording.threads() {
        let Some(track) = &thread.device else { continue };
        assert!(track.placed, "{track:?}");
        let visit = |event: &Event<'_>| {
            if let What::Scope { start, end, id, .. } = event.what {
                let arguments = event.arguments().map(|(key, value)| (key.to_owned(), value)).collect();
                let (device, queue) = (track.device.clone(), track.queue.clone());
                found.push(Seen { device, queue, name: event.name().to_owned(), id, span: [start, end], arguments });
            }
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, visit).expect("sound");
    }
    found
}

/// Ids of the host's scopes of this name.
fn ids(recording: &Recording, name: &str) -> Vec<u64> {
    let mut found = Vec::new();
    for thread in recording.threads().iter().filter(|thread| thread.device.is_none()) {
        let visit = |event: &Event<'_>| {
            if let (What::Scope { id, .. }, true) = (event.what, event.name() == name) {
                found.push(id);
            }
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, visit).expect("sound");
    }
    found
}

/// The tools' true time is `CLOCK_MONOTONIC_RAW`.
fn builder() -> Builder {
    let policy = Policy::DropNewest { bytes: 16 << 20 };
    Recorder::builder().policy(policy).clock(crate::RecordClock::MonotonicRaw).pair_period(Duration::from_millis(10))
}

fn start(builder: Builder) -> Session {
    let session = builder.start().expect("nothing else records this process");
    assert_eq!(session.backends()[0].state, BackendState::Running, "{:?}", session.choices());
    session
}

/// Largest error of a time: half a bracket, and rounding.
fn bound(recording: &Recording) -> u64 {
    let device = recording.devices().next().expect("there is one");
    assert!(device.pairs.len() >= 2, "{device:?}");
    device.pairs.iter().map(|DevicePair { bracket_ticks, .. }| bracket_ticks / 2).max().unwrap_or(0) + 1_000
}

fn assert_near(span: [u64; 2], truth: [u64; 2], bound: u64) {
    let errors = [span[0].abs_diff(truth[0]), span[1].abs_diff(truth[1])];
    assert!(errors.iter().all(|error| *error <= bound), "{span:?} instead of {truth:?}: more than {bound} ns");
}

/// Work of two threads on two devices: where and when it ran, and who launched it.
fn work_is_placed_and_linked() {
    let devices = Devices::load();
    let session = start(builder().backend(Cupti::new()));
    let launch = |thread: u32| {
        let mut launched = Vec::new();
        for step in 0..20 {
            let _outer = scope!("step");
            let link = scope!(Kind::Runtime, "launch");
            for stream in [1, 2] {
                let name = format!("kernel {thread} {step} {stream}");
                let truth = devices.launch([thread, 1, stream], Some(&name), 2_000_000);
                launched.push((name, format!("GPU {thread}"), format!("stream {stream}"), link.id(), truth));
            }
        }
        launched
    };
    let mut launched = std::thread::scope(|threads| {
        let other = threads.spawn(|| launch(1));
        let mut launched = launch(0);
        launched.extend(other.join().expect("no panic"));
        launched
    });
    let copy = devices.launch([0, 1, 3], None, 4096);
    launched.push(("Memcpy HtoD".into(), "GPU 0".into(), "stream 3".into(), 0, copy));
    let second = devices.launch([0, 2, 3], Some("of another context"), 10_000);
    launched.push(("of another context".into(), "GPU 0".into(), "stream 3 of context 2".into(), 0, second));
    devices.wait(launched.iter().map(|(.., truth)| truth[1]).max().expect("some were launched"));
    let recording = session.finish().expect("whole");
    let (events, bound, scopes) = (seen(&recording), bound(&recording), ids(&recording, "launch"));
    assert_eq!((events.len(), scopes.len()), (launched.len(), 40));
    for (name, device, queue, id, truth) in launched {
        let event = events.iter().find(|event| event.name == name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!((&event.device, &event.queue, event.id), (&device, &queue, id), "{name}");
        assert!(id == 0 || scopes.contains(&id));
        assert_near(event.span, truth, bound);
        let expected = match name.as_str() {
            "Memcpy HtoD" => vec![("bytes".to_owned(), ArgumentValue::Unsigned(4096))],
            _ => [("grid", "[1,2,3]"), ("block", "[4,5,6]")]
                .map(|(key, value)| (key.to_owned(), ArgumentValue::Json(value.to_owned())))
                .to_vec(),
        };
        assert_eq!(event.arguments, expected);
    }
    assert_eq!(recording.notes(), ["backend cupti: stopped"]);
    // SAFETY: by the tool's source.
    assert_eq!(unsafe { ((devices.enabled)(), (devices.ids)()) }, (0, 0), "nothing is left behind");
}

/// 64 MiB hold 1024 kernels of 64 KiB; no buffer is returned before all have ended.
fn overflow_is_counted() {
    let devices = Devices::load();
    let session = start(builder().backend(Cupti::new().linked_to(&[])));
    devices.hold(true);
    let ends = (0..1500).map(|_| devices.launch([0, 1, 1], Some("kernel"), 10)[1]);
    devices.wait(ends.max().expect("some were launched"));
    devices.hold(false);
    let recording = session.finish().expect("whole");
    let (found, lost) = (seen(&recording).len() as u64, recording.status().lost.events);
    assert_eq!((found, lost), (1024, 476));
    let notes = recording.notes().join("\n");
    assert!(notes.contains("backend cupti: 476 records were dropped because no buffer was free"), "{notes}");
}

/// Buffers that come back after the session has ended are freed unread, and the next session is
/// whole.
fn buffers_in_flight_outlive_their_session() {
    let devices = Devices::load();
    let builder = builder().backend(Cupti::new());
    let session = start(builder.clone());
    devices.launch([0, 1, 1], Some("held back"), 10);
    devices.hold(true);
    devices.launch([0, 1, 1], Some("in progress"), 3_600_000_000_000);
    let recording = session.finish().expect("whole");
    assert!(seen(&recording).is_empty());
    let session = start(builder);
    devices.hold(false);
    devices.launch([0, 1, 1], Some("in progress"), 3_600_000_000_000);
    devices.wait(devices.launch([0, 1, 2], Some("later"), 10)[1]);
    let recording = session.finish().expect("whole");
    let names: Vec<_> = seen(&recording).into_iter().map(|event| event.name).collect();
    assert_eq!(names, ["later"]);
    let notes = recording.notes().join("\n");
    assert!(notes.contains("1 records have no times"), "{notes}");
}

fn refusal_is_said() {
    let session = builder().backend(Cupti::new()).start().expect("the host is recorded");
    let BackendState::Failed(reason) = session.backends()[0].state.clone() else { panic!("{:?}", session.choices()) };
    for part in ["MULTIPLE_SUBSCRIBERS", "Nsight", "CudaEvents"] {
        assert!(reason.contains(part), "{reason} lacks {part}");
    }
    drop(scope!("the host"));
    let recording = session.finish().expect("whole");
    assert_eq!(recording.threads().iter().map(|thread| thread.events).sum::<u64>(), 1);
    assert!(recording.notes().join("\n").contains("MULTIPLE_SUBSCRIBERS"));
}

/// Checks that the session continues without CUPTI, and that its notes give a reason with these parts.
fn absence_is_said(parts: &[&str]) {
    let session = builder().backend(Cupti::new()).start().expect("the host is recorded");
    let BackendState::Absent(reason) = session.backends()[0].state.clone() else { panic!("{:?}", session.choices()) };
    assert!(parts.iter().all(|part| reason.contains(part)), "{reason} lacks one of {parts:?}");
    assert_eq!(Cupti::check(), Err(reason.clone()));
    let recording = session.finish().expect("whole");
    assert!(recording.notes().join("\n").contains(&reason));
}

/// Every function exists in NVIDIA's own library, which refuses to record without a GPU.
fn a_real_library_without_a_device_is_refused() {
    let refused = match Api::load() {
        Ok(api) => {
            assert!(api.now().expect("it needs no device") > 0);
            super::KINDS.iter().try_for_each(|kind| api.enable(*kind)).expect_err("there is no device")
        }
        // CUPTI 13 needs a driver even for its version.
        Err(reason) => reason,
    };
    println!("{SAID}{refused}");
    assert!(refused.contains("CUPTI_ERROR_NOT_INITIALIZED") || refused.contains("cuptiGetVersion: "), "{refused}");
}

/// Ranges on two streams, nested on one, while the device works on.
fn ranges_are_placed_and_linked() {
    let streams = Streams::of(Library::open(&[driver::NAME]).expect("it was built")).expect("it has all of them");
    // SAFETY: by the tool's source.
    let call = || unsafe { (streams.set_context)(7) };
    call();
    let mut own = [0_u64; 2];
    let stream: driver::Handle = (&raw mut own).cast();
    let work = |stream: driver::Handle, ns: u64| {
        let mut truth = [0; 2];
        // SAFETY: by the tool's source.
        unsafe { (streams.work)(stream, ns, &raw mut truth) };
        truth
    };
    let events = CudaEvents::new();
    // SAFETY: streams of the tool, which live until the end.
    let begin = |stream, name: &str, id| unsafe { events.begin(stream, name, id) };
    drop(begin(stream, "before", 0));
    let session = start(builder().backend(events.clone()));
    let launch = scope!(Kind::Runtime, "launch");
    let mut expected = Vec::new();
    // On an idle stream a range begins before its work is launched.
    for stream in [stream, std::ptr::null_mut()] {
        work(stream, 200_000_000);
    }
    for _ in 0..20 {
        let outer = begin(stream, "outer", launch.id());
        let first = work(stream, 100_000);
        let inner = begin(stream, "inner", 0);
        let second = work(stream, 200_000);
        drop(inner);
        drop(outer);
        expected.push(("outer", 0, launch.id(), [first[0], second[1]]));
        expected.push(("inner", 0, 0, second));
    }
    let other = begin(std::ptr::null_mut(), "other", 0);
    expected.push(("other", 1, 0, work(std::ptr::null_mut(), 1_000)));
    drop(other);
    // SAFETY: by the tool's source.
    unsafe {
        (streams.capture)(stream, 1);
        drop(begin(stream, "captured", 0));
        (streams.capture)(stream, 0);
        (streams.set_context)(8);
        drop(begin(stream, "elsewhere", 0));
        (streams.set_context)(7);
        (streams.synchronize)(stream);
    }
    let id = launch.id();
    drop(launch);
    let late = begin(stream, "unfinished", 0);
    work(stream, 3_600_000_000_000);
    drop(late);
    let recording = session.finish().expect("whole");
    drop(begin(stream, "after", 0));
    let (found, bound) = (seen(&recording), bound(&recording));
    assert_eq!(ids(&recording, "launch"), [id]);
    assert_eq!(found.len(), expected.len());
    for (name, stream, id, truth) in expected {
        let queue = format!("stream {stream}, event pairs");
        let near = |event: &&Seen| event.name == name && event.span[0].abs_diff(truth[0]) < 50_000;
        let event = found.iter().find(near).unwrap_or_else(|| panic!("{name} at {truth:?}: {found:?}"));
        assert_eq!((event.device.as_str(), &event.queue, event.id), ("GPU 0", &queue, id));
        assert_near(event.span, truth, bound);
    }
    let notes = recording.notes().join("\n");
    for part in [
        "1 ranges are missing: their stream was being captured",
        "1 ranges are missing: their thread",
        "1 ranges are missing: the device had not reached",
    ] {
        assert!(notes.contains(part), "{notes} lacks {part}");
    }
    // SAFETY: by the tool's source.
    assert_eq!(unsafe { (streams.live)() }, 0, "no event is left");
}

#[test]
fn child() {
    match std::env::var(SCENARIO).unwrap_or_default().as_str() {
        "" => {}
        "placed" => work_is_placed_and_linked(),
        "overflow" => overflow_is_counted(),
        "in flight" => buffers_in_flight_outlive_their_session(),
        "refused" => refusal_is_said(),
        "absent" => absence_is_said(&["/nowhere/libcupti.so", "PROBE_SYNC_CUPTI", "CudaEvents"]),
        "version" => absence_is_said(&["API version is 999", "28", "CudaEvents"]),
        "no driver" => absence_is_said(&["no NVIDIA driver", "libcuda.so.1"]),
        "real" => a_real_library_without_a_device_is_refused(),
        "ranges" => ranges_are_placed_and_linked(),
        "gpu" => gpu::a_real_gpu_is_recorded(),
        other => panic!("{other}"),
    }
}

/// Runs a scenario in a child that finds the tools.
fn check(scenario: &str, variables: &[(&str, &str)]) {
    check_with(scenario, variables, Some(tools().path()));
}

/// Runs a scenario in a child that finds libraries in this folder; without one, those of the
/// machine.
fn check_with(scenario: &str, variables: &[(&str, &str)], libraries: Option<&Path>) {
    let mut command = Command::new(std::env::current_exe().expect("there is one"));
    command.args(["--exact", "backend::cupti::tests::child", "--nocapture"]).env(SCENARIO, scenario);
    if let Some(libraries) = libraries {
        command.env("LD_LIBRARY_PATH", libraries).env_remove("PROBE_SYNC_CUPTI").env_remove("CUDA_HOME");
    }
    let ran = command.envs(variables.iter().copied()).output().expect("it is this program");
    let [said, errors] = [&ran.stdout, &ran.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(ran.status.success(), "{scenario}: {}\n{said}\n{errors}", ran.status);
    said.lines().filter(|line| line.starts_with(SAID)).for_each(|line| println!("{line}"));
}

/// Builds both libraries into a folder, by the compiler that has built the crates.
fn tools() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tools");
    for (source, library) in [("cuda_tool.c", "libcuda.so.1"), ("cupti_tool.c", "libcupti.so.13")] {
        let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
        let (library, source) = (folder.path().join(library), sources.join(source));
        compiler.args(["-shared", "-fPIC", "-pthread", "-o"]).arg(library).arg(source);
        assert!(compiler.status().expect("it has built the crate's own C").success());
    }
    folder
}

#[test]
fn work_of_the_devices_is_placed_and_linked_to_its_launch() {
    check("placed", &[]);
}

/// Work is held until the id of its launch must have come.
#[test]
fn ids_of_launches_may_come_in_a_later_buffer() {
    check("placed", &[("TOOL_LATE", "1")]);
}

#[test]
fn records_without_a_buffer_are_counted_and_said() {
    check("overflow", &[("TOOL_RECORD", "65536")]);
}

#[test]
fn buffers_that_are_returned_after_the_session_are_not_read() {
    check("in flight", &[]);
}

#[test]
fn what_cupti_refuses_is_said_with_the_fallback() {
    check("refused", &[("TOOL_REFUSE", "39")]);
}

#[test]
fn a_missing_library_is_said_with_the_fallback() {
    check("absent", &[("PROBE_SYNC_CUPTI", "/nowhere/libcupti.so")]);
}

#[test]
fn an_unknown_version_is_refused() {
    check("version", &[("TOOL_VERSION", "999")]);
}

#[test]
fn a_missing_driver_is_said() {
    if Library::open(&[driver::NAME]).is_ok() {
        println!("skipped: this machine has a driver");
        return;
    }
    let empty = tempfile::tempdir().expect("a temporary directory");
    check_with("no driver", &[], Some(empty.path()));
}

/// `PROBE_SYNC_TEST_CUPTI`: paths of libraries, as in the wheels `nvidia-cuda-cupti-cu12`,
/// separated by colons.
#[test]
fn nvidias_own_library_without_a_device_is_refused() {
    let libraries = std::env::var("PROBE_SYNC_TEST_CUPTI").unwrap_or_default();
    if libraries.is_empty() || Library::open(&[driver::NAME]).is_ok() {
        println!("skipped: PROBE_SYNC_TEST_CUPTI names no library, or this machine has a driver");
        return;
    }
    let empty = tempfile::tempdir().expect("a temporary directory");
    libraries.split(':').for_each(|library| check_with("real", &[("PROBE_SYNC_CUPTI", library)], Some(empty.path())));
}

#[test]
fn ranges_between_events_are_placed_and_linked() {
    check("ranges", &[]);
}

#[test]
fn devices_are_recorded_with_the_process_only() {
    for refused in [
        Recorder::builder().reach(Reach::Thread).backend(Cupti::new()).start(),
        Recorder::builder().reach(Reach::Thread).backend(CudaEvents::new()).start(),
    ] {
        assert!(refused.expect_err("a device serves all threads").to_string().contains("record the process"));
    }
}

#[test]
fn a_real_gpu_is_recorded() {
    check_with("gpu", &[], None);
}

/// Begins lines of a child that are for the user.
const SAID: &str = "child: ";
/// Names the scenario of a child.
const SCENARIO: &str = "RECORD_CUPTI_SCENARIO";
