//! What another user of the host puts into a folder, or at a name, harms nobody: links, pipes, hard
//! links, folders and files of his.
//!
//! As root the tests give files to another user; without root they skip that part, and say so.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;

use super::*;

/// A user who is neither root nor the user of the tests.
const OTHER: u32 = 54_321;

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: only root can give files to another user");
    }
    root
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
}

fn refused<T: std::fmt::Debug>(result: std::io::Result<T>, parts: &[&str]) {
    let error = result.expect_err("another user's").to_string();
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
}

#[test]
fn a_folder_that_another_user_controls_is_refused_with_owner_mode_and_remedy() {
    if !is_root() {
        return;
    }
    let parent = tempfile::tempdir().expect("a folder");
    let path = parent.path().join("out");
    fs::create_dir(&path).expect("a folder");
    for (owner, mode, remedy) in [
        (OTHER, 0o755, "choose a folder of your own"),
        (OTHER, 0o1777, "choose a folder of your own"),
        (0, 0o777, "chmod go-w"),
    ] {
        set_mode(&path, mode);
        chown(&path, Some(owner), None).expect("root may");
        let named = path.display().to_string();
        refused(OwnFolder::open(&path), &[&named, &format!("user {owner}"), &format!("mode {mode:04o}"), remedy]);
        if owner == OTHER {
            refused(OwnFolder::create(&path), &[&named]);
        }
        assert_eq!(fs::read_dir(&path).expect("readable").count(), 0, "nothing is left in it");
    }
}

#[test]
fn folders_of_ones_own_work_under_every_umask_and_in_shared_parents() {
    let parent = tempfile::tempdir().expect("a folder");
    // A project's folder: its group may write, and hands its group down.
    set_mode(parent.path(), 0o2775);
    let made = parent.path().join("a/b");
    OwnFolder::create(&made).expect("made");
    assert_eq!(mode(&made) & 0o022, 0, "{:o}", mode(&made));
    for (before, after) in [(0o775, 0o755), (0o2777, 0o2755), (0o700, 0o700)] {
        let path = parent.path().join("existing");
        fs::create_dir(&path).expect("a folder");
        set_mode(&path, before);
        let folder = OwnFolder::create(&path).expect("this user's own");
        folder.write_whole("file", b"x").expect("writable");
        assert_eq!((mode(&path), mode(&path.join("file")) & 0o022), (after, 0));
        fs::remove_dir_all(&path).expect("ours");
    }
    let path = parent.path().join("of a group of one's own");
    fs::create_dir(&path).expect("a folder");
    set_mode(&path, 0o775);
    OwnFolder::open(&path).expect("as umask 002 makes them");
    assert_eq!(mode(&path), 0o775, "which is not changed by looking");
    OwnFolder::open(Path::new("/tmp")).expect("shared, but sticky");
}

#[test]
fn links_in_a_folder_are_neither_followed_nor_emptied() {
    let parent = tempfile::tempdir().expect("a folder");
    let victim = parent.path().join("victim");
    fs::write(&victim, "precious").expect("writable");
    let path = parent.path().join("run");
    let folder = OwnFolder::create(&path).expect("made");
    symlink(&victim, path.join(".lock")).expect("a link");
    symlink(parent.path().join("new"), path.join("dangling")).expect("a link");
    symlink(parent.path(), path.join("windows")).expect("a link");
    fs::hard_link(&victim, path.join("hard")).expect("a name");
    for name in [".lock", "dangling"] {
        refused(folder.open_or_create(name), &["link"]);
        refused(folder.append(name), &["link"]);
        refused(folder.read(name), &["link"]);
        assert!(folder.create_new(name).is_err() && folder.contains(name));
    }
    for name in ["windows", "windows/victim", "../victim", "/etc/passwd", ""] {
        assert!(folder.make_folder(name).is_err() && folder.append(name).is_err(), "{name}");
        assert!(folder.write_whole(format!("{name}/x"), b"x").is_err(), "{name}");
    }
    refused(folder.append("hard"), &["hard link"]);
    folder.write_whole("dangling", b"mine").expect("a link is replaced");
    assert!(!parent.path().join("new").exists());
    assert_eq!(fs::read(path.join("dangling")).expect("ours"), b"mine");
    assert_eq!(fs::read(&victim).expect("untouched"), b"precious");
}

#[test]
fn what_is_there_is_kept_by_a_lock_and_by_an_append() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = OwnFolder::open(parent.path()).expect("ours");
    fs::write(parent.path().join("file"), "kept").expect("writable");
    folder.open_or_create("file").expect("a regular file");
    folder.append("file").expect("a regular file").write_all(b" and more").expect("writable");
    let mut text = String::new();
    folder.read("file").expect("ours").read_to_string(&mut text).expect("text");
    assert_eq!(text, "kept and more");
}

#[test]
fn a_pipe_is_an_error_at_once() {
    let parent = tempfile::tempdir().expect("a folder");
    let pipe = parent.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("coreutils").success());
    let folder = OwnFolder::open(parent.path()).expect("ours");
    refused(folder.read("pipe"), &["not a regular file"]);
    refused(folder.open_or_create("pipe"), &["not a regular file"]);
    refused(folder.append("pipe"), &["not a regular file"]);
    refused(open_regular(&pipe), &["not a regular file"]);
    refused(open_regular(parent.path()), &["not a regular file"]);
}

#[test]
fn a_folder_goes_on_being_the_one_that_was_opened() {
    let parent = tempfile::tempdir().expect("a folder");
    let (path, aside) = (parent.path().join("run"), parent.path().join("aside"));
    let folder = OwnFolder::create(&path).expect("made");
    fs::rename(&path, &aside).expect("its parent's user may");
    fs::create_dir(&path).expect("another of that name");
    folder.write_whole("metrics.prom", b"1").expect("writable");
    assert!(aside.join("metrics.prom").exists() && !path.join("metrics.prom").exists());
}

#[test]
fn links_and_files_of_another_user_are_refused() {
    if !is_root() {
        return;
    }
    let parent = tempfile::tempdir().expect("a folder");
    let at = |name: &str| parent.path().join(name);
    fs::create_dir(at("real")).expect("a folder");
    symlink(at("real"), at("own")).expect("a link");
    OwnFolder::create(&at("own")).expect("a link of this user's");
    for (target, link) in [("real", "folder"), ("file", "output"), ("new", "nothing")] {
        symlink(at(target), at(link)).expect("a link");
        std::os::unix::fs::lchown(at(link), Some(OTHER), None).expect("root may");
    }
    fs::write(at("file"), "precious").expect("writable");
    refused(OwnFolder::open(&at("folder")), &["link created by user 54321", "real"]);
    refused(OwnFolder::open(&at("folder/")), &["link created by user 54321"]);
    for name in ["output", "nothing"] {
        refused(AtomicFile::create(&at(name)), &["link created by user 54321", "remove it"]);
    }
    assert_eq!((fs::read(at("file")).expect("untouched"), at("new").exists()), (b"precious".to_vec(), false));
    let folder = OwnFolder::open(&at("real")).expect("ours");
    fs::write(at("real/lock"), "").expect("writable");
    chown(at("real/lock"), Some(OTHER), None).expect("root may");
    refused(folder.open_or_create("lock"), &["user 54321", "remove it"]);
    let pipe = at("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("coreutils").success());
    chown(&pipe, Some(OTHER), None).expect("root may");
    refused(AtomicFile::create(&pipe), &["pipe of user 54321"]);
}

#[test]
fn a_replaced_file_keeps_its_mode_and_owner() {
    let parent = tempfile::tempdir().expect("a folder");
    let path = parent.path().join("out");
    for wanted in [0o600, 0o640, 0o664] {
        fs::write(&path, "earlier").expect("writable");
        set_mode(&path, wanted);
        let mut file = AtomicFile::create(&path).expect("created");
        assert_eq!(mode(file.unfinished().expect("a file")), 0o600, "while it is written it is nobody else's");
        file.write_all(b"later").expect("written");
        file.commit_without_sync().expect("renamed");
        assert_eq!(mode(&path), wanted);
    }
    if is_root() {
        chown(&path, Some(OTHER), Some(OTHER)).expect("root may");
        write_whole(&path, b"last").expect("written");
        let about = fs::metadata(&path).expect("it is there");
        assert_eq!((about.uid(), about.gid(), about.mode() & 0o777), (OTHER, OTHER, 0o664));
    }
}

#[test]
fn a_new_file_is_no_more_open_than_its_inputs() {
    let parent = tempfile::tempdir().expect("a folder");
    let at = |name: &str| parent.path().join(name);
    let inputs = [at("one"), at("other")];
    for (modes, wanted) in [([0o600, 0o644], 0o600), ([0o640, 0o640], 0o640), ([0o400, 0o444], 0o400)] {
        for (path, wanted) in inputs.iter().zip(modes) {
            fs::write(path, "x").expect("writable");
            set_mode(path, wanted);
        }
        no_more_open_than(&inputs, &[at("new")]);
        write_whole(&at("new"), b"x").expect("written");
        assert_eq!(mode(&at("new")), wanted, "{modes:?}");
        for name in ["new", "one", "other"] {
            fs::remove_file(at(name)).expect("ours");
        }
    }
    if is_root() {
        for (mode_before, wanted) in [(0o640, 0o600), (0o664, 0o644)] {
            fs::write(at("one"), "x").expect("writable");
            set_mode(&at("one"), mode_before);
            chown(at("one"), None, Some(OTHER)).expect("root may");
            no_more_open_than(&[at("one")], &[at("new")]);
            write_whole(&at("new"), b"x").expect("written");
            assert_eq!(mode(&at("new")), wanted, "another group than the input's");
            fs::remove_file(at("new")).expect("ours");
        }
    }
}

#[test]
fn what_other_libraries_write_by_name_is_no_more_open_than_its_inputs_and_nobody_elses_before() {
    let parent = tempfile::tempdir().expect("a folder");
    let at = |name: &str| parent.path().join(name);
    for (input, file, folder) in [(0o600, 0o600, 0o700), (0o640, 0o640, 0o750), (0o644, 0o644, 0o755)] {
        fs::write(at("input"), "x").expect("writable");
        set_mode(&at("input"), input);
        no_more_open_than(&[at("input")], &[at("file"), at("folder")]);
        let draft = Draft::create(&at("file")).expect("made");
        fs::write(draft.path(), "x").expect("writable");
        set_mode(draft.path(), 0o644);
        draft.commit().expect("renamed");
        assert_eq!(mode(&at("file")), file & 0o644, "{input:o}");
        let made = AtomicFolder::create(&at("folder")).expect("made");
        assert_eq!(mode(made.unfinished()), 0o700, "nobody puts links where libraries open files");
        fs::write(made.unfinished().join("a"), "x").expect("writable");
        made.commit().expect("renamed");
        assert_eq!((mode(&at("folder")), fs::read_dir(at("folder")).expect("ours").count()), (folder, 1), "{input:o}");
        fs::remove_dir_all(at("folder")).expect("ours");
        fs::remove_file(at("file")).expect("ours");
    }
}

#[test]
fn folders_for_drafts_and_copies_are_this_users_alone_and_gone_in_the_end() {
    let parent = tempfile::tempdir().expect("a folder");
    let path = parent.path().join("trace.json");
    let victim = parent.path().join("victim");
    fs::write(&victim, "precious").expect("writable");
    let guessed = parent.path().join(format!("trace.json.{}.partial", std::process::id()));
    symlink(&victim, &guessed).expect("a link where the draft will be");
    let draft = Draft::create(&path).expect("made");
    fs::write(draft.path(), "x").expect("writable");
    assert_eq!(fs::read(&victim).expect("untouched"), b"precious");
    fs::remove_file(&victim).expect("ours");
    let folder = draft.path().parent().expect("a folder").to_owned();
    assert_eq!(mode(&folder), 0o700);
    fs::write(draft.path(), "x").expect("writable");
    drop(draft);
    let draft = Draft::create(&path).expect("made");
    assert!(draft.commit().is_err(), "nothing was written");
    assert_eq!(fs::read_dir(parent.path()).expect("readable").count(), 0);
    let copy = TemporaryFolder::create(1).expect("made");
    let at = copy.path().to_owned();
    assert_eq!(mode(&at), 0o700);
    fs::write(at.join("copy.db"), "x").expect("writable");
    drop(copy);
    assert!(!at.exists());
    refused(TemporaryFolder::create(1 << 60), &["TMPDIR"]);
}

#[test]
fn what_others_map_is_this_users_alone_whatever_it_replaces() {
    let parent = tempfile::tempdir().expect("a folder");
    let path = parent.path().join("page");
    fs::write(&path, "x").expect("writable");
    set_mode(&path, 0o666);
    if is_root() {
        chown(&path, Some(OTHER), None).expect("root may");
    }
    AtomicFile::create_own(&path).expect("made").commit().expect("renamed");
    let about = fs::metadata(&path).expect("it is there");
    assert_eq!((about.uid(), about.mode() & 0o022), (rustix::process::geteuid().as_raw(), 0));
}
