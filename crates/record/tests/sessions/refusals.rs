//! What a recorder refuses: never by a panic, always with what to do.

use std::ffi::CString;
use std::path::Path;
use std::time::Duration;

use probe_sync_record::{Error, Kind, Policy, Recorder, Schedule, Session};

use crate::support::{every_place, of_thread, place, whole_process};

fn refused(result: Result<Session, Error>, parts: &[&str]) {
    let said = result.map(|_| ()).expect_err("refused").to_string();
    for part in parts {
        assert!(said.contains(part), "{said} lacks {part}");
    }
}

fn spilled(path: &Path, parts: &[&str]) {
    refused(of_thread().spill(path).start(), parts);
}

#[test]
fn already_recording_names_where() {
    let _place = place();
    let _one = whole_process();
    let line = line!() + 1;
    let _first = Recorder::builder().policy(Policy::Flight { bytes: 1 << 20 }).start().expect("the first");
    let here = format!("{}:{line}", file!());
    refused(Recorder::builder().start(), &["already recording", &here, "Reach::Thread"]);
    let prepared = Recorder::builder().prepare().map(|_| ()).expect_err("refused when it is prepared");
    assert!(matches!(prepared, Error::AlreadyRecording { .. }));
}

#[test]
fn what_was_prepared_is_refused_when_another_has_begun_since() {
    let _place = place();
    let _one = whole_process();
    let builder = || Recorder::builder().policy(Policy::Flight { bytes: 1 << 20 });
    let (first, second) = (builder().prepare().expect("free"), builder().prepare().expect("free"));
    let first = first.start().expect("the first");
    refused(second.start(), &["already recording", file!()]);
    drop(first);
    builder().start().expect("it is free again");
}

#[test]
fn more_sessions_than_a_thread_serves() {
    let _every = every_place();
    let mut open = Vec::new();
    let full = loop {
        match of_thread().policy(Policy::DropNewest { bytes: 512 << 10 }).start() {
            Ok(session) => open.push(session),
            Err(error) => break error,
        }
        assert!(open.len() <= 8, "there is a limit");
    };
    assert!(matches!(full, Error::TooManySessions { .. }) && full.to_string().contains("finish one first"), "{full}");
}

#[test]
fn no_kinds() {
    let _place = place();
    refused(of_thread().kinds(&[]).start(), &["no event kinds", "select at least one"]);
}

#[test]
fn on_demand_without_host_events() {
    let _place = place();
    let folder = tempfile::tempdir().expect("a temporary directory");
    refused(
        of_thread().kinds(&[Kind::Custom]).on_demand().control(folder.path()).start(),
        &["host events", "add a kind"],
    );
}

#[test]
fn on_demand_without_a_folder() {
    let _place = place();
    refused(of_thread().on_demand().start(), &["on_demand", "control", "spill"]);
}

#[test]
fn a_folder_in_which_no_socket_can_be() {
    let _place = place();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    refused(of_thread().on_demand().control(file.path().join("below")).start(), &["cannot create a socket", "control"]);
}

#[test]
fn settings_that_cannot_be() {
    let _place = place();
    let second = Duration::from_secs(1);
    for (builder, parts) in [
        (of_thread().one_in(0), ["one_in", "use 1"]),
        (of_thread().threads(0), ["threads", "give a number from 1"]),
        (of_thread().pair_period(Duration::from_millis(1)), ["pair_period", "longer"]),
        (of_thread().keep(second), ["keep", "flight"]),
        (of_thread().policy(Policy::Stream { bytes: 1 << 20, every: second }), ["policy", "spill"]),
        (of_thread().policy(Policy::DropNewest { bytes: 1000 }), ["policy", "is not a valid size"]),
        (of_thread().schedule(Schedule::default()), ["schedule", "give 1 or more"]),
        (of_thread().schedule(Schedule { active: 1, ..Schedule::default() }).on_demand(), ["schedule", "omit"]),
        (of_thread().window(1, 2), ["window", "reference"]),
        (of_thread().reference(|| Some(5)).window(1, 2), ["window", "before now"]),
    ] {
        refused(builder.start(), &parts);
    }
}

#[test]
fn not_recording() {
    let _place = place();
    let session = of_thread().start().expect("ready");
    let said = session.step().expect_err("it was given none").to_string();
    assert!(said.contains("schedule") && said.contains("pause"), "{said}");
}

#[test]
fn a_spill_that_is_there() {
    let _place = place();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    spilled(file.path(), &["cannot record into", "never overwritten", "choose another"]);
    assert_eq!(std::fs::metadata(file.path()).expect("there").len(), 0, "it is as it was");
}

#[test]
fn a_folder_in_place_of_a_spill() {
    let _place = place();
    let folder = tempfile::tempdir().expect("a temporary directory");
    spilled(folder.path(), &["cannot record into"]);
}

#[test]
fn a_spill_below_a_file() {
    let _place = place();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    spilled(&file.path().join("a.rec"), &["cannot create its folder"]);
}

/// A thread of root takes another user's rights on files for itself alone; others have none to a
/// folder of mode 500.
#[test]
fn a_spill_in_a_folder_without_rights() {
    use std::os::unix::fs::PermissionsExt as _;
    let _place = place();
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o555)).expect("ours");
    let path = folder.path().join("a.rec");
    let body = move || {
        // SAFETY: changes the calling thread alone, which ends with this test.
        unsafe { libc::setfsuid(NOBODY) };
        spilled(&path, &["cannot record into", "ermission denied"]);
    };
    std::thread::spawn(body).join().expect("refused");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
}

/// A file system of 256 KiB, which root can mount where only this thread sees it.
#[test]
fn a_full_disk() {
    let _place = place();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().to_path_buf();
    let body = move || {
        if !mount_small(&path) {
            // A unit test of `memory::region` reserves more than any disk has.
            return println!("skipped: this user may not mount a file system of its own");
        }
        spilled(&path.join("a.rec"), &["cannot record into", "free some"]);
        assert_eq!(std::fs::read_dir(&path).expect("there").count(), 0, "nothing is left of it");
    };
    std::thread::spawn(body).join().expect("refused");
}

fn mount_small(path: &Path) -> bool {
    let text = |text: &str| CString::new(text).expect("no zero in it");
    let (none, root, kind, size) = (text("none"), text("/"), text("tmpfs"), text("size=256k"));
    let place = text(path.to_str().expect("a UTF-8 path"));
    // SAFETY: all texts end in zero and outlive the calls, which change what this thread alone sees
    // of file systems.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                none.as_ptr(),
                root.as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::mount(none.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, size.as_ptr().cast()) == 0
    }
}

const NOBODY: u32 = 65_534;
