//! What appears under a name and when; what stays as it is; what is removed.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use super::*;

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn partial(name: &str) -> String {
    format!("{name}.{}.partial", std::process::id())
}

/// A pipe with a name; its reader gathers all that comes until its writers are gone.
fn pipe(path: &Path) -> std::thread::JoinHandle<Vec<u8>> {
    assert!(Command::new("mkfifo").arg(path).status().expect("coreutils").success());
    let path = path.to_owned();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        fs::File::open(path).expect("a pipe").read_to_end(&mut all).expect("readable");
        all
    })
}

#[test]
fn a_file_appears_whole_and_replaces_the_earlier_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out");
    fs::write(&path, "earlier").expect("writable");
    let mut file = AtomicFile::create(&path).expect("created");
    file.write_all(b"later").expect("written");
    assert_eq!(names(folder.path()), ["out".to_owned(), partial("out")]);
    assert_eq!(fs::read(&path).expect("the file"), b"earlier");
    file.commit_without_sync().expect("renamed");
    assert_eq!(names(folder.path()), ["out"]);
    assert_eq!(fs::read(&path).expect("the file"), b"later");
    write_whole(&path, b"last").expect("written");
    assert_eq!(fs::read(&path).expect("the file"), b"last");
}

#[test]
fn a_dropped_file_leaves_the_earlier_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out");
    fs::write(&path, "earlier").expect("writable");
    let mut file = AtomicFile::create(&path).expect("created");
    file.write_all(b"later").expect("written");
    drop(file);
    assert_eq!(names(folder.path()), ["out"]);
    assert_eq!(fs::read(&path).expect("the file"), b"earlier");
}

#[test]
fn what_is_no_place_for_a_file_is_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |path: &Path, part: &str| {
        let error = AtomicFile::create(path).expect_err("no place for a file").to_string();
        assert!(error.contains(part), "{error}");
    };
    let taken = folder.path().join("taken");
    fs::create_dir(&taken).expect("a folder in the way");
    refused(&taken, "directory");
    refused(Path::new("/"), "no file name");
    let socket = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    refused(&socket, "socket");
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    std::os::unix::fs::symlink(&one, &two).expect("a link");
    std::os::unix::fs::symlink(&two, &one).expect("a link");
    assert!(AtomicFile::create(&one).is_err(), "links in a circle");
    assert_eq!(names(folder.path()), ["one", "socket", "taken", "two"]);
}

#[test]
fn a_file_that_cannot_be_renamed_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out");
    let file = AtomicFile::create(&path).expect("created");
    fs::create_dir_all(path.join("not empty")).expect("a folder comes in the way");
    assert!(file.commit().is_err());
    assert_eq!(names(folder.path()), ["out"]);
}

#[test]
fn what_was_written_can_be_changed_in_place() {
    use std::os::unix::fs::FileExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out");
    let mut file = AtomicFile::create_seekable(&path).expect("created");
    file.write_all(b"0123").expect("written");
    file.file().expect("flushed").write_all_at(b"x", 1).expect("changed");
    file.write_all(b"4").expect("written");
    file.commit().expect("renamed");
    assert_eq!(fs::read(&path).expect("the file"), b"0x234");
}

#[test]
fn a_link_stays_a_link_and_what_it_leads_to_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("a folder");
    let link = folder.path().join("out");
    std::os::unix::fs::symlink("elsewhere/real", &link).expect("a link");
    // First to a file that is not there yet, then to one that is.
    for content in [b"first", b"later"] {
        let mut file = AtomicFile::create(&link).expect("created");
        file.write_all(content).expect("written");
        assert!(names(&elsewhere).contains(&partial("real")), "beside the target, on its disk");
        file.commit().expect("renamed");
        assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
        assert_eq!(fs::read(elsewhere.join("real")).expect("the file"), content);
    }
    assert_eq!(
        (names(folder.path()), names(&elsewhere)),
        (vec!["elsewhere".into(), "out".into()], vec!["real".into()])
    );
}

#[test]
fn a_pipe_is_written_through_and_stays_a_pipe() {
    use std::os::unix::fs::FileTypeExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let (path, link) = (folder.path().join("pipe"), folder.path().join("link"));
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    let reader = pipe(&path);
    assert!(
        is_stream(&path) && is_stream(&link) && !is_stream(folder.path()) && !is_stream(&folder.path().join("new"))
    );
    // Refused before it is opened: an open would wait for a reader, and be seen by it.
    let error = AtomicFile::create_seekable(&path).expect_err("bytes go through in order");
    assert!(error.to_string().contains("pipe or a device"), "{error}");
    write_whole(&link, b"through").expect("written");
    assert_eq!(reader.join().expect("a reader"), b"through");
    assert!(fs::symlink_metadata(&path).expect("the pipe").file_type().is_fifo());
    assert_eq!(names(folder.path()), ["link", "pipe"]);
}

#[test]
fn what_a_killed_process_left_is_no_obstacle_and_no_way_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out");
    let other = folder.path().join("other");
    fs::write(&other, "precious").expect("writable");
    std::os::unix::fs::symlink(&other, folder.path().join(partial("out"))).expect("a link in the way");
    fs::write(folder.path().join("out.1.partial"), "half").expect("left by another process");
    write_whole(&path, b"whole").expect("written");
    assert_eq!(fs::read(&path).expect("the file"), b"whole");
    assert_eq!(fs::read(&other).expect("the file"), b"precious");
    assert_eq!(names(folder.path()), ["other", "out", "out.1.partial"]);
}

/// The removal stops every later writer of its process, so it has a process of its own: this test,
/// run once more.
#[test]
fn unfinished_files_are_removed_for_a_process_that_ends() {
    const FOLDER: &str = "FILES_TEST_FOLDER";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = Path::new(&folder);
        write_whole(&folder.join("whole"), b"whole").expect("written");
        let unfinished = AtomicFile::create(&folder.join("unfinished")).expect("created");
        remove_partials();
        let (sender, receiver) = std::sync::mpsc::channel();
        let late = folder.join("late");
        std::thread::spawn(move || {
            let _ = AtomicFile::create(&late);
            let _ = sender.send(());
        });
        let held_up = receiver.recv_timeout(std::time::Duration::from_millis(200)).is_err();
        // Dropping would wait for the lock that is never given back.
        std::mem::forget(unfinished);
        std::process::exit(if held_up { 0 } else { 3 });
    }
    let folder = tempfile::tempdir().expect("a folder");
    let own = std::env::current_exe().expect("this test's program");
    let name = "tests::unfinished_files_are_removed_for_a_process_that_ends";
    let status = Command::new(own).args(["--exact", name]).env(FOLDER, folder.path()).status().expect("started");
    assert_eq!(status.code(), Some(0), "a file was begun after the removal");
    assert_eq!(names(folder.path()), ["whole"]);
}

#[test]
fn folders_vanish_unless_something_is_put_in_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("mine")).expect("a folder");
    drop(NewFolders::create(&at("mine/a/b")).expect("made"));
    drop(NewFolders::create(&at("mine")).expect("there already"));
    assert_eq!((names(folder.path()), names(&at("mine")).len()), (vec!["mine".into()], 0));
    let mut used = NewFolders::create(&at("out/used")).expect("made");
    used.add(&at("out/unused")).expect("made");
    fs::write(at("out/used/file"), "x").expect("writable");
    drop(used);
    assert_eq!(names(&at("out")), ["used"]);
    NewFolders::create(&at("kept")).expect("made").keep();
    assert!(at("kept").is_dir());
    fs::write(at("file"), "x").expect("writable");
    assert!(NewFolders::create(&at("file")).is_err() && NewFolders::create(&at("file/below")).is_err());
}

#[test]
fn a_folder_appears_whole_or_not_at_all_and_replaces_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let dropped = AtomicFolder::create(&at("dropped")).expect("made");
    fs::create_dir(dropped.unfinished().join("below")).expect("a folder");
    fs::write(dropped.unfinished().join("below/file"), "x").expect("writable");
    assert_eq!(names(folder.path()), [format!("dropped.{}.partial", std::process::id())]);
    drop(dropped);
    assert!(names(folder.path()).is_empty());
    let kept = AtomicFolder::create(&at("kept")).expect("made");
    fs::write(kept.unfinished().join("file"), "x").expect("writable");
    let late = AtomicFolder::create(&at("late")).expect("made");
    fs::write(at("late"), "somebody else's").expect("writable");
    kept.commit().expect("renamed");
    let refused = late.commit().expect_err("something is there").to_string();
    assert!(refused.contains("never overwritten"), "{refused}");
    assert_eq!((names(folder.path()), names(&at("kept"))), (vec!["kept".into(), "late".into()], vec!["file".into()]));
    assert!(AtomicFolder::create(&at("kept")).is_err());
}
