//! What ranks record of themselves, and processes that record a window which all have agreed on.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use probe_sync::GlobalClock;
use probe_sync_record::read::{ArgumentValue, Event, What};
use probe_sync_record::{Policy, Reach, Recorder, Recording, scope};

use crate::support::{complaint, output, probe_sync, text, wait, wait_for_lines};

/// An event that went on: from when to when in ticks, its number, what the reference showed within.
type Seen = (u64, u64, u64, Option<i64>);

fn visit(recording: &Recording, mut each: impl FnMut(u32, &Event<'_>)) {
    for thread in recording.threads() {
        let take = |event: &Event<'_>| {
            each(thread.serial, event);
            Ok::<(), probe_sync_record::Error>(())
        };
        recording.visit(thread.serial, take).expect("sound");
    }
}

/// How many events of each name there are.
fn names(recording: &Recording) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    visit(recording, |_, event| *found.entry(event.name().to_owned()).or_insert(0) += 1);
    found
}

#[test]
fn every_rank_records_its_rounds() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (out, records) = (folder.path().join("out"), folder.path().join("records"));
    let arguments = ["run", "--local", "4", "--window", "300ms", "--duration", "1500ms", "--out", text(&out)];
    let run = || {
        let mut run = probe_sync(&arguments);
        run.args(["--fixed", "--record", text(&records)]);
        output(run)
    };
    let ended = run();
    assert!(ended.status.success(), "{}", complaint(&ended));
    for node in 0..4 {
        let recording = Recording::open(&records.join(format!("node{node}.rec"))).expect("it is there");
        assert!(recording.status().finished);
        assert_eq!(recording.facts().rank, Some(node));
        let found = names(&recording);
        let count = |name: &str| found.get(name).copied().unwrap_or(0);
        assert!(count("round") >= 5, "{found:?}");
        for part in ["window", "fit", "gather", "broadcast"] {
            assert!(count(part) >= 5, "node {node}: {part}: {found:?}");
        }
        assert_eq!(count("solve") >= 5, node == 0, "{found:?}");
        assert_eq!(count("record") >= 5, node == 0, "{found:?}");
        // By these `check` pairs the parts of ranks.
        let mut rounds = Vec::new();
        visit(&recording, |_, event| {
            let arguments: BTreeMap<&str, ArgumentValue> = event.arguments().collect();
            if event.name() == "gather" {
                assert_eq!(arguments["group"], ArgumentValue::Text("probe_sync".into()));
                assert_eq!(arguments["group_size"], ArgumentValue::Unsigned(4));
                assert_eq!(arguments["root"], ArgumentValue::Unsigned(0));
                let ArgumentValue::Unsigned(round) = arguments["sequence"] else { panic!("{arguments:?}") };
                rounds.push(round);
            }
        });
        assert!(rounds.iter().copied().eq(0..rounds.len() as u64), "{rounds:?}");
    }
    assert_eq!(std::fs::read_dir(&records).expect("there").count(), 4, "sockets are gone");
    // Recordings are never replaced.
    let again = run();
    assert!(!again.status.success());
    assert!(complaint(&again).contains("choose another"), "{}", complaint(&again));
}

/// The guide's lines, but for the run's length: its own gathers and broadcasts break as each node's
/// clock shows them, and hold on the reference clock.
#[test]
fn rounds_of_a_run_are_collectives_that_check_judges() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let run = |line: &str, ends: i32| {
        let program = Path::new(env!("CARGO_BIN_EXE_probe_sync")).parent().expect("a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(folder.path()).env("PATH", format!("{}:{path}", program.display()));
        let done = output(command);
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert_eq!(done.status.code(), Some(ends), "{line}: {said} {}", complaint(&done));
        said
    };
    let guide =
        include_str!("../../../../docs/guide/record.md").lines().skip_while(|line| !line.starts_with(GUIDE_RUN));
    // Two blocks, since the first one ends with a check that fails.
    let block: Vec<&str> = guide.filter(|line| line.starts_with("probe_sync ")).collect();
    assert_eq!(block.len(), 5, "{block:?}");
    for (line, ends) in block.iter().zip([0, 0, 3, 0, 0]) {
        run(&line.replace("--duration 10s", "--fixed --window 300ms --duration 2s"), ends);
    }
    let all = |folder: &str, ending: &str| {
        let each = (0..4).map(|node| format!("{folder}/node{node}{ending}"));
        each.collect::<Vec<_>>().join(" ")
    };
    let records = all("records", ".rec");
    for (format, ending) in [("kineto", ".pt.trace.json.gz"), ("xspace", ".xplane.pb")] {
        let [raw, once, later] = ["raw", "once", "later"].map(|kind| format!("{kind}_{format}"));
        let (traces, aligned) = (all(&raw, ending), all(&later, ending));
        run(&format!("probe_sync record convert -f {format} -o {raw} {records}"), 0);
        let said = run(&format!("probe_sync check --traces {traces}"), 3);
        let number = |at: usize| -> u64 {
            let line = said.lines().find(|line| line.contains(" edges are broken")).unwrap_or_else(|| panic!("{said}"));
            line.split(' ').nth(at).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line}"))
        };
        // A gather has one edge, a broadcast three, and there are at least 6 rounds.
        let (broken, edges) = (number(0), number(2));
        assert!(broken >= 6 && edges >= 4 * 6, "{said}");
        let said = run(&format!("probe_sync check --run-dir out --traces {traces}"), 0);
        assert!(said.contains(&format!("causality holds on all {edges} edges")), "{said}");
        // At once or later: the same bytes, and nothing is broken in them.
        run(&format!("probe_sync record convert -f {format} --run-dir out -o {once} {records}"), 0);
        run(&format!("probe_sync align --run-dir out --output {later} --traces {traces}"), 0);
        run(&format!("probe_sync check --traces {aligned}"), 0);
        for node in 0..4 {
            let bytes =
                |kind: &str| std::fs::read(folder.path().join(format!("{kind}/node{node}{ending}"))).expect("there");
            assert!(bytes(&once) == bytes(&later), "{format}, node {node}");
        }
    }
}

#[test]
fn a_run_that_is_stopped_leaves_whole_recordings_and_is_asked_for_copies_before() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (out, records, copies) =
        (folder.path().join("out"), folder.path().join("records"), folder.path().join("copies"));
    let mut run = probe_sync(&["run", "--local", "2", "--fixed", "--window", "200ms", "--out", text(&out)]);
    let run = run.args(["--record", text(&records)]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let run = run.expect("the command starts");
    wait_for_lines(&out.join("offsets.jsonl"), 5);
    let asked = output(probe_sync(&["record", "snapshot", "--out", text(&copies), text(&records)]));
    assert!(asked.status.success(), "{}", complaint(&asked));
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert!(said.lines().count() == 2 && said.contains("rank 0, probe_sync ") && said.contains("rank 1, "), "{said}");
    for copy in std::fs::read_dir(&copies).expect("there") {
        let copy = Recording::open(&copy.expect("readable").path()).expect("a copy is sound");
        assert!(copy.status().copy && names(&copy).get("gather").is_some_and(|count| *count > 0));
    }
    let pid = rustix::process::Pid::from_raw(run.id() as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("our own child");
    let ended = wait(run);
    assert!(ended.status.success(), "{}", complaint(&ended));
    for node in 0..2 {
        let recording = Recording::open(&records.join(format!("node{node}.rec"))).expect("it is there");
        assert!(recording.status().finished && names(&recording)["round"] > 0);
    }
    let asked = output(probe_sync(&["record", "stop", text(&records)]));
    assert!(
        !asked.status.success() && complaint(&asked).contains("no session on this host listens here"),
        "{}",
        complaint(&asked)
    );
}

/// Waits, bounded, until `found` finds something.
fn wait_until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One of the processes that record; does nothing unless [`agreed_on`] has started it.
///
/// [`agreed_on`]: eight_processes_record_the_window_that_they_agreed_on
#[test]
fn a_process_that_records() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let rank: u32 = std::env::var("RANK").ok().and_then(|rank| rank.parse().ok()).expect("the parent gives it");
    let clock = GlobalClock::open(&folder.join("clock")).expect("a run keeps it");
    let reference = {
        let clock = clock.clone();
        move || clock.now_ns()
    };
    let longer = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 16 << 20 });
    let longer = longer.spill(folder.join(format!("longer{rank}.rec"))).start().expect("room");
    let session = Recorder::builder().policy(Policy::Flight { bytes: 4 << 20 }).reference(reference).on_demand();
    let session = session.spill(folder.join(format!("window{rank}.rec"))).start().expect("room");
    let deadline = Instant::now() + Duration::from_secs(90);
    while !folder.join("stop").exists() && Instant::now() < deadline {
        for _ in 0..50 {
            let _around = scope!("around");
            let _scope = scope!("scope", at = clock.now_ns().unwrap_or(0));
            std::thread::sleep(Duration::from_micros(300));
        }
    }
    drop((session, longer));
}

fn start_process(folder: &Path, rank: u32) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "recorder::a_process_that_records", "--test-threads", "1"]);
    command.env(FOLDER, folder).env("RANK", rank.to_string()).env("WORLD_SIZE", PROCESSES.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// The events of one thread.
fn seen(recording: &Recording, of: Option<u32>) -> Vec<Seen> {
    let mut found = Vec::new();
    visit(recording, |serial, event| {
        let What::Scope { start, end, id, .. } = event.what else { return };
        let at = event.arguments().find_map(|(key, value)| match value {
            ArgumentValue::Integer(at) if key == "at" => Some(at),
            _ => None,
        });
        if of.is_none_or(|of| of == serial) {
            found.push((start, end, id, at));
        }
    });
    found
}

#[test]
fn eight_processes_record_the_window_that_they_agreed_on() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let folder = folder.path();
    let (out, page) = (folder.join("out"), folder.join("clock"));
    let mut run = probe_sync(&["run", "--local", "8", "--fixed", "--window", "500ms", "--cadence", "4ms"]);
    run.args(["--clock-page", text(&page), "--out", text(&out)]).stdout(Stdio::null()).stderr(Stdio::piped());
    let run = run.spawn().expect("the command starts");
    let clock = wait_until("no clock", || GlobalClock::open(&page).ok().filter(|clock| clock.now_ns().is_some()));
    let processes: Vec<Child> = (0..PROCESSES).map(|rank| start_process(folder, rank)).collect();
    wait_until("not all listen", || {
        let sockets = probe_sync_record::control::sockets(folder).ok()?;
        (sockets.len() == PROCESSES as usize).then_some(())
    });
    let said = output(probe_sync(&["record", "start", "--at", "+2s", "--for", "200ms", "--json", text(folder)]));
    assert!(said.status.success(), "{}", complaint(&said));
    let answers: Vec<serde_json::Value> = String::from_utf8_lossy(&said.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("--json prints JSON"))
        .collect();
    let number = |at: usize| answers[0]["answer"]["window_ns"][at].as_i64().expect("a time");
    let [from, to] = [number(0), number(1)];
    assert_eq!((answers.len(), to - from), (PROCESSES as usize, 200_000_000));
    assert!(answers.iter().all(|answer| answer["answer"]["window_ns"] == answers[0]["answer"]["window_ns"]));
    wait_until("the window never ends", || clock.now_ns().filter(|now| *now > to + 500_000_000));
    std::fs::write(folder.join("stop"), "").expect("ours");
    for process in processes {
        let ended = wait(process);
        assert!(ended.status.success(), "{}", complaint(&ended));
    }
    let pid = rustix::process::Pid::from_raw(run.id() as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("our own child");
    wait(run);
    (0..PROCESSES).for_each(|rank| check_rank(folder, rank, [from, to]));
}

/// No event lies outside of the window, none is missing that the longer recording has, by ticks and
/// by what the reference showed.
fn check_rank(folder: &Path, rank: u32, asked: [i64; 2]) {
    let open = |name: &str| Recording::open(&folder.join(format!("{name}{rank}.rec"))).expect("sound");
    let (recording, longer) = (open("window"), open("longer"));
    assert_eq!(recording.windows().len(), 1, "rank {rank}");
    let window = recording.windows()[0];
    assert_eq!((window.asked_ns, window.late), (Some(asked), false), "rank {rank}");
    let [begin, end] = [window.from, window.to.expect("it is over")];
    let serial = longer.threads()[0].serial;
    let (short, long) = (seen(&recording, Some(serial)), seen(&longer, Some(serial)));
    assert!(seen(&recording, None).iter().all(|(start, stop, ..)| *start >= begin && *stop <= end), "rank {rank}");
    let inside: Vec<Seen> = long.iter().copied().filter(|(start, stop, ..)| *start >= begin && *stop <= end).collect();
    assert!(inside.len() > 20, "rank {rank}: {} events", inside.len());
    assert_eq!(short, inside, "rank {rank}");
    // The reference is a straight line against the counter for the few ms between two readings, but
    // where a new estimate changes its rate.
    let [first, last] = [asked[0] - TOLERANCE_NS, asked[1] + TOLERANCE_NS];
    assert!(short.iter().filter_map(|seen| seen.3).all(|at| (first..=last).contains(&at)), "rank {rank}");
    let well_inside = |seen: &&Seen| seen.3.is_some_and(|at| at > asked[0] + MARGIN_NS && at < asked[1] - MARGIN_NS);
    // One of a tenth of the window, where its thread was not scheduled, may reach out of it all the
    // same.
    let short_lived = |seen: &&Seen| seen.1 - seen.0 < (end - begin) / 10;
    let mut certain = long.iter().filter(well_inside).filter(short_lived);
    assert!(certain.clone().count() > 10 && certain.all(|seen| short.contains(seen)), "rank {rank}");
}

/// The first of the guide's lines.
const GUIDE_RUN: &str = "probe_sync run --local 4 --inject-skew 5 --duration 10s --record records";
const FOLDER: &str = "PROBE_SYNC_TEST_FOLDER";
const PROCESSES: u32 = 8;
const TOLERANCE_NS: i64 = 20_000;
const MARGIN_NS: i64 = 20_000_000;
