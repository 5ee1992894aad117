//! The global clock against the truth: node 0 has no virtual clock, so reference time is this
//! machine's system clock.

use std::path::Path;
use std::time::{Duration as StdDuration, Instant};

use probe_sync::clock::{Reading, Status};
use probe_sync::collective::Meeting;
use probe_sync::{Config, GlobalClock, Session};
use probe_sync_sys::{BootClock, RawClock, SystemClock};
use probe_sync_time::{Clock, Reference, System, Timestamp};

const LONG: StdDuration = StdDuration::from_secs(60);

fn sessions(out: &Path, ranks: usize, settings: &[(&str, &str)]) -> Vec<Session> {
    let mut config = Config { out: out.join("out"), ..Config::default() };
    for (key, text) in [("window", "250ms"), ("tracer_clock", "none")].iter().chain(settings) {
        config.set(key, text, "test").expect("a key");
    }
    let meeting = Meeting::open(&["127.0.0.1".parse().expect("an address")]).expect("loopback");
    let id = meeting.id().clone();
    let zero = Session::builder(config.clone()).host(meeting, ranks).start();
    let joined = (1..ranks).map(|rank| Session::builder(config.clone()).join(id.clone(), rank, ranks).start());
    std::iter::once(zero).chain(joined).map(|started| started.expect("a thread")).collect()
}

fn stop(sessions: Vec<Session>) {
    let ending: Vec<_> = sessions.into_iter().map(|session| std::thread::spawn(move || session.stop())).collect();
    ending.into_iter().for_each(|end| _ = end.join().expect("no panic").expect("in order"));
}

/// A reading between two of the truth.
fn read(clock: &GlobalClock) -> ([Timestamp<Reference>; 2], Reading) {
    let before = SystemClock.now().on_reference();
    let reading = clock.now().expect("it is known");
    ([before, SystemClock.now().on_reference()], reading)
}

/// Reads all clocks for this long and checks that the hard interval always holds, the 95 % interval
/// mostly, and that no clock goes backwards.
fn check(clocks: &[GlobalClock], span: StdDuration) {
    let begun = Instant::now();
    let mut last: Vec<Option<Timestamp<Reference>>> = vec![None; clocks.len()];
    let (mut reads, mut within) = (0_u32, 0_u32);
    while begun.elapsed() < span {
        for (clock, last) in clocks.iter().zip(&mut last) {
            let ([before, after], reading) = read(clock);
            assert!(reading.earliest <= after && reading.latest >= before, "{before:?} {after:?} {reading:?}");
            assert!(last.is_none_or(|last| last <= reading.time), "{last:?} {reading:?}");
            *last = Some(reading.time);
            reads += 1;
            within += u32::from(reading.time - reading.bound95 <= after && reading.time + reading.bound95 >= before);
        }
        std::thread::sleep(StdDuration::from_micros(300));
    }
    assert!(within * 10 >= reads * 9, "the 95 % interval held in {within} of {reads}");
}

#[test]
fn every_clock_shows_the_reference_within_its_bounds() {
    for model in ["constant", "sinusoid"] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let sessions = sessions(folder.path(), 3, &[("inject_skew", "11"), ("skew_model", model)]);
        let clocks: Vec<_> = sessions.iter().map(Session::clock).collect();
        clocks.iter().for_each(|clock| clock.wait_until_known(LONG).expect("soon"));
        check(&clocks, StdDuration::from_secs(3));
        assert!(clocks.iter().all(|clock| clock.status() == Status::Synchronised));
        stop(sessions);
        assert!(clocks.iter().all(|clock| clock.status() == Status::Holdover));
        // It goes on, and its bounds grow.
        check(&clocks, StdDuration::from_millis(300));
    }
}

#[test]
fn a_clock_by_the_time_stamp_counter_does_the_same_or_is_refused() {
    let usable = probe_sync_sys::clock::tsc_is_the_clocksource();
    for model in ["constant", "sinusoid"] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("clock");
        let page = path.to_str().expect("UTF-8");
        let settings = [("inject_skew", "11"), ("skew_model", model), ("clock_counter", "tsc"), ("clock_page", page)];
        let sessions = sessions(folder.path(), 3, &settings);
        if let Err(reason) = &usable {
            for session in sessions {
                let refused = session.stop().expect_err("it cannot be had").to_string();
                assert!(refused.contains(reason) && refused.contains("set clock_counter=raw"), "{refused}");
            }
            continue;
        }
        let mut clocks: Vec<_> = sessions.iter().map(Session::clock).collect();
        clocks.iter().for_each(|clock| clock.wait_until_known(LONG).expect("soon"));
        let of_file = GlobalClock::open(&path).expect("it is kept");
        of_file.wait_until_known(LONG).expect("soon");
        clocks.push(of_file);
        check(&clocks, StdDuration::from_secs(3));
        assert!(clocks.iter().all(|clock| clock.status() == Status::Synchronised));
        converted(&clocks[0]);
        stop(sessions);
        assert!(clocks.iter().all(|clock| clock.status() == Status::Holdover));
        check(&clocks, StdDuration::from_millis(300));
    }
}

/// Checks that conversions of all clocks of this host agree.
fn converted(clock: &GlobalClock) {
    let (before, raw, boot, after) = (SystemClock.now(), RawClock.now(), BootClock.now(), SystemClock.now());
    let of_system = clock.of_system(before).expect("nobody has set it");
    let of_raw = clock.of_raw(raw).expect("known");
    let of_boot = clock.of_boot(boot).expect("nobody has suspended the host");
    for found in [of_system, of_raw, of_boot] {
        // Node 0 is the reference: its system clock is reference time.
        let (before, after) = (before.on_reference(), after.on_reference());
        assert!(found.earliest <= after && before <= found.latest, "{before:?} {after:?} {found:?}");
        assert!(found.bound95.as_ns() < 20_000, "{found:?}");
    }
    // Long ago, and its rate is known.
    let ago = probe_sync_time::Duration::from_ms(1_000);
    let past = clock.of_raw(raw - ago).expect("known");
    assert!(((of_raw.time - past.time) - ago).as_ns().abs() < 20_000, "{past:?} {of_raw:?}");
}

#[test]
fn a_step_of_the_nodes_own_clock_moves_nothing() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let step = [("inject_skew", "3"), ("inject_step", "1@2s:5ms"), ("duration", "6s"), ("fixed", "true")];
    let sessions = sessions(folder.path(), 2, &step);
    let clock = sessions[1].clock();
    clock.wait_until_known(LONG).expect("soon");
    let begun = Instant::now();
    let mut worst = 0;
    while begun.elapsed() < StdDuration::from_secs(4) {
        let ([before, after], reading) = read(&clock);
        assert!(reading.earliest <= after && reading.latest >= before, "{before:?} {after:?} {reading:?}");
        // A preempted reading says nothing.
        if (after - before).as_ns() < 1_000 {
            worst = worst.max((reading.time - before.midpoint(after)).as_ns().abs());
        }
        std::thread::sleep(StdDuration::from_millis(1));
    }
    assert!(worst < 1_000, "off by {worst} ns");
    stop(sessions);
}

#[test]
fn other_processes_read_it_by_its_path_and_times_of_other_clocks_are_converted() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("clock");
    let missing = GlobalClock::open(&path).expect_err("nobody keeps it yet");
    assert!(missing.to_string().contains("clock"), "{missing}");
    let settings = [("inject_skew", "3"), ("clock_page", path.to_str().expect("UTF-8"))];
    let sessions = sessions(folder.path(), 2, &settings);
    sessions[0].clock().wait_until_known(LONG).expect("soon");
    let clock = GlobalClock::open(&path).expect("it is kept");
    clock.wait_until_known(LONG).expect("soon");
    check(std::slice::from_ref(&clock), StdDuration::from_secs(1));
    let (node, reference) = clock.nodes().expect("known");
    assert_eq!((node.0, reference.0), (0, 0), "the first rank of the host keeps it");

    let (system, raw) = (SystemClock.now(), RawClock.now());
    let of_system = clock.of_system(system).expect("nobody has set it");
    let of_raw = clock.of_raw(raw).expect("known");
    // Node 0 is the reference: its system clock is reference time.
    assert!(of_system.earliest <= system.on_reference() && system.on_reference() <= of_system.latest, "{of_system:?}");
    assert!((of_raw.time - of_system.time).as_ns().abs() < 1_000_000);
    assert!(clock.after(of_system.earliest) && !clock.before(of_system.earliest));
    assert_eq!(clock.of_system(Timestamp::<System>::from_ns(1)), None, "before anything was known");

    let soon = clock.now().expect("known").time + probe_sync_time::Duration::from_ms(30);
    clock.wait_until(soon, LONG).expect("it comes");
    assert!(clock.now().expect("known").time >= soon);
    let late = clock.wait_until(soon + probe_sync_time::Duration::from_ms(50), StdDuration::ZERO).expect_err("too far");
    assert!(late.to_string().contains("ahead"), "{late}");
    stop(sessions);
    std::fs::remove_file(&path).expect("it is there");
    std::fs::write(&path, [7_u8; 5_000]).expect("a file");
    let foreign = GlobalClock::open(&path).expect_err("not ours");
    assert!(foreign.to_string().contains("clock_page"), "{foreign}");
}
