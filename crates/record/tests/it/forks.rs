//! Children: they record nothing of their own accord, leave their parent's file as it was, and may
//! record for themselves.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use probe_sync_record::backend::{Backend, Request};
use probe_sync_record::observe::Observer;
use probe_sync_record::{Error, Kind, Policy, Reach, Recorder, Recording, Scope, Session, Site, instant, scope};

use crate::child;
use crate::signals::handle_with;
use crate::support::{Stopping, alone, sums, tallies};

/// Runs in a forked child, which ends there; whether it said yes. One that hangs is ended by an
/// alarm.
fn in_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs one closure on its only thread and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "no process");
    if pid == 0 {
        // SAFETY: a child's own alarm, with the action that ends it.
        unsafe {
            libc::signal(libc::SIGALRM, libc::SIG_DFL);
            libc::alarm(20);
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the child without running what is the parent's.
        unsafe { libc::_exit(i32::from(!matches!(result, Ok(true)))) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(!libc::WIFSIGNALED(status), "the child was ended by signal {}: it hung or crashed", libc::WTERMSIG(status));
    libc::WEXITSTATUS(status) == 0
}

/// A session whose file is changed by events, and by the few clock pairs that its own thread takes
/// soon after the start.
fn quiet(path: &Path) -> Session {
    let builder = Recorder::builder().policy(Policy::Flight { bytes: 1 << 20 }).spill(path);
    builder.pair_period(Duration::from_secs(3600)).start().expect("nothing else records")
}

/// The file is unchanged, except for clock pairs, which the parent continues to take: their number
/// in the header, and a sixteenth of its MiB behind the header.
fn same(before: &[u8], path: &Path) {
    let after = std::fs::read(path).expect("there");
    let is_pair = |at: usize| at / 8 == 8 || (8192..8192 + (1 << 20) / 16).contains(&at);
    let other: Vec<usize> =
        (0..before.len()).filter(|at| before[*at] != after[*at] && !is_pair(*at)).map(|at| at / 8 * 8).collect();
    assert!(other.is_empty(), "the child wrote into its parent's file, at {other:?}");
}

fn records_nothing() -> bool {
    let scope = scope!("of the child");
    instant!("of the child");
    let none = !scope.is_recorded();
    drop(scope);
    none
}

#[test]
fn a_child_leaves_its_parents_file_as_it_was() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("parent.rec");
    // Taken by the child; the parent keeps its own.
    let mut session = Some(quiet(&path));
    let mut nested = Recorder::builder().reach(Reach::Thread).start().ok();
    let mut outer = Some(scope!("outer", n = 1_u64));
    drop(scope!("before"));
    let before = std::fs::read(&path).expect("there");
    let adopter = nested.as_ref().expect("they nest").adopter();
    let is_well = in_child(|| {
        let (session, outer) = (session.take().expect("there"), outer.take().expect("there"));
        let said = session.snapshot().err().is_some_and(|error| matches!(error, Error::NotRecording { .. }));
        outer.argument(0, &2_u64);
        let adopted = adopter.adopt();
        let nothing = records_nothing() && !session.is_recording() && session.pause().is_err();
        drop((outer, adopted));
        let refused = session.finish().err().map(|error| error.to_string()).unwrap_or_default();
        drop(nested.take());
        said && nothing && refused.contains("start one in this child")
    });
    assert!(is_well);
    same(&before, &path);
    drop(outer);
    for session in [nested, session] {
        assert_eq!(sums(&session.expect("the parent's").finish().expect("whole")), [2, 0, 0]);
    }
}

#[test]
fn a_parent_goes_on_where_it_was() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let session = quiet(&folder.path().join("parent.rec"));
    let nested = Recorder::builder().reach(Reach::Thread).start().expect("they nest");
    let outer = scope!("outer");
    assert!(in_child(records_nothing));
    drop(scope!("after"));
    drop(outer);
    for recording in [nested.finish(), session.finish()] {
        assert_eq!(sums(&recording.expect("whole")), [2, 0, 0]);
    }
}

#[test]
fn a_child_records_for_itself() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (ours, its) = (folder.path().join("parent.rec"), folder.path().join("child.rec"));
    let session = quiet(&ours);
    let mut outer = Some(scope!("outer"));
    let before = std::fs::read(&ours).expect("there");
    let is_well = in_child(|| {
        let own = Recorder::builder().spill(&its).start().expect("the parent's is not the child's");
        drop(scope!("within"));
        // Its parent's: not in the child's recording.
        drop(outer.take());
        std::thread::spawn(|| drop(scope!("on a thread"))).join().expect("no panic");
        sums(&own.finish().expect("whole")) == [2, 0, 0]
    });
    assert!(is_well);
    let recording = Recording::open(&its).expect("whole");
    assert!(recording.status().finished && recording.facts().pid != std::process::id());
    same(&before, &ours);
    drop(outer);
    assert_eq!(sums(&session.finish().expect("whole")), [1, 0, 0]);
}

/// Whatever locks other threads hold at that moment: the child has nobody who lets go of them.
#[test]
fn no_child_hangs_that_is_forked_while_others_record() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let session = quiet(&folder.path().join("parent.rec"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let stop = &stop;
            threads.spawn(move || {
                let mut round = 0_u64;
                while !stop.load(Ordering::Acquire) {
                    round += 1;
                    let site = Site::named(Kind::User, &format!("site {} of {thread}", round % 20)).expect("few");
                    let scope = Scope::enter(site);
                    scope.argument_named(&format!("key {}", round % 20), &round);
                    drop(scope);
                    let own = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 512 << 10 });
                    drop(own.threads(1).start());
                }
            });
        }
        let _stopping = Stopping(&stop);
        for round in 0..100 {
            let path = folder.path().join(format!("{round}.rec"));
            assert!(in_child(|| {
                let nothing = records_nothing();
                let policy = Policy::DropNewest { bytes: 512 << 10 };
                let own = Recorder::builder().policy(policy).spill(path).start().expect("the child's own");
                let scope = Scope::enter(Site::named(Kind::User, "of the child").expect("few"));
                scope.argument_named("key", &1);
                drop(scope);
                drop(scope!("another"));
                let [recorded, lost, _] = sums(&own.finish().expect("whole"));
                nothing && recorded + lost == 2
            }));
        }
    });
    drop(tallies(&session.finish().expect("whole")));
}

/// What the standard library locks while a thread starts stays locked in a child that is forked
/// meanwhile: a session's own thread may not need it.
#[test]
fn no_child_hangs_that_is_forked_while_threads_start() {
    forks_while_threads_start(100);
}

#[test]
#[ignore = "long: forks 1500 processes"]
fn no_child_of_many_hangs_that_is_forked_while_threads_start() {
    forks_while_threads_start(1500);
}

fn forks_while_threads_start(children: u32) {
    let _alone = alone();
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let started: Vec<_> = (0..8).map(|_| std::thread::spawn(|| ())).collect();
                    started.into_iter().for_each(|thread| thread.join().expect("no panic"));
                }
            });
        }
        let _stopping = Stopping(&stop);
        for _ in 0..children {
            assert!(in_child(|| {
                let policy = Policy::DropNewest { bytes: 512 << 10 };
                let own = Recorder::builder().policy(policy).threads(1).start().expect("the child's own");
                drop(scope!("of the child"));
                sums(&own.finish().expect("whole")) == [1, 0, 0]
            }));
        }
    });
}

/// A device that is not there, and counts what it is asked.
#[derive(Default)]
struct Counted(Arc<AtomicU64>);

impl Backend for Counted {
    fn name(&self) -> &str {
        "counted"
    }

    fn prepare(&mut self, _: &Request) -> Result<(), String> {
        Ok(())
    }

    fn start(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn stop(&mut self) -> Result<(), String> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_child_has_neither_observers_nor_backends_of_its_parent() {
    let _alone = alone();
    let (calls, stops) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&calls);
    let observer = Observer::new().on_enter(move |_| counted.fetch_add(1, Ordering::Relaxed));
    let mut observing = Some(observer.add().expect("few"));
    let builder = Recorder::builder().policy(Policy::DropNewest { bytes: 1 << 20 });
    let mut session = Some(builder.backend(Counted(Arc::clone(&stops))).start().expect("nothing else records"));
    let mut outer = Some(scope!("outer"));
    let is_well = in_child(|| {
        drop(scope!("of the child"));
        let own = Recorder::builder().policy(Policy::DropNewest { bytes: 1 << 20 }).start().expect("the child's own");
        drop(scope!("recorded"));
        // The parent's, which ends nothing here.
        drop((outer.take(), observing.take(), session.take()));
        let its_own = Observer::new().on_leave(|_, _| ()).add().expect("few");
        drop(scope!("observed by its own"));
        let left = its_own.counts().calls;
        drop(its_own);
        let counts = [calls.load(Ordering::Relaxed), stops.load(Ordering::Relaxed), left];
        sums(&own.finish().expect("whole")) == [2, 0, 0] && counts == [1, 0, 1]
    });
    assert!(is_well);
    drop(scope!("after"));
    drop(outer);
    assert_eq!(sums(&session.expect("the parent's").finish().expect("whole")), [2, 0, 0]);
    assert_eq!([calls.load(Ordering::Relaxed), stops.load(Ordering::Relaxed)], [2, 1]);
}

static FORKED: AtomicU64 = AtomicU64::new(0);
const FORKS: u64 = 40;

/// Wherever the thread was, also within an event.
extern "C" fn fork_and_record(_: libc::c_int) {
    if FORKED.load(Ordering::Relaxed) < FORKS {
        FORKED.fetch_add(1, Ordering::Relaxed);
        assert!(in_child(|| {
            let nothing = records_nothing();
            let policy = Policy::DropNewest { bytes: 512 << 10 };
            let own = Recorder::builder().policy(policy).threads(1).start().expect("the child's own");
            drop(scope!("of the child"));
            nothing && sums(&own.finish().expect("whole")) == [1, 0, 0]
        }));
    }
}

/// In a process of its own, whose threads do nothing that a handler must not interrupt.
pub fn forking_handlers() {
    let session = Recorder::builder().policy(Policy::Flight { bytes: 1 << 20 }).start().expect("a fresh process");
    handle_with(libc::SIGUSR1, fork_and_record);
    // SAFETY: this thread's own number, which the other signals while this one waits for it.
    let thread = unsafe { libc::pthread_self() };
    let asking = std::thread::spawn(move || {
        while FORKED.load(Ordering::Relaxed) < FORKS {
            // SAFETY: the thread waits for this one.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            std::thread::sleep(Duration::from_micros(300));
        }
    });
    let mut made = 0_u64;
    while !asking.is_finished() {
        for _ in 0..100 {
            drop(scope!("work", n = made));
            made += 1;
        }
    }
    asking.join().expect("no panic");
    let [recorded, lost, replaced] = sums(&session.finish().expect("whole"));
    assert_eq!(recorded + lost + replaced, made, "the parent goes on where it was");
}

#[test]
fn a_child_that_a_handler_forks_records_for_itself() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    child::succeeds("forking", folder.path());
}

/// As `vfork` does, with a stack of its own: the child is its parent's thread, until it is another
/// program.
#[test]
fn a_program_that_is_started_in_its_parents_memory_leaves_the_recording_whole() {
    extern "C" fn start(_: *mut libc::c_void) -> libc::c_int {
        instant!("before the program");
        let name = c"/bin/true".as_ptr();
        // SAFETY: the arguments end with null.
        unsafe { libc::execl(name, name, std::ptr::null::<libc::c_char>()) };
        1
    }
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let session = quiet(&folder.path().join("parent.rec"));
    let outer = scope!("outer");
    let mut stack = vec![0_u128; 16 << 10];
    let (flags, end) = (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, stack.as_mut_ptr_range().end);
    for _ in 0..20 {
        let mut status = 0;
        // SAFETY: this thread waits until the child, which has its own stack, is another program;
        // then it waits for its end.
        let ended =
            unsafe { libc::waitpid(libc::clone(start, end.cast(), flags, std::ptr::null_mut()), &raw mut status, 0) };
        assert!(ended > 0 && status == 0, "{status:#x}");
        drop(scope!("after"));
    }
    drop(outer);
    assert_eq!(sums(&session.finish().expect("whole")), [41, 0, 0]);
}

#[test]
fn programs_that_are_started_record_nothing() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("parent.rec");
    let session = quiet(&path);
    let outer = scope!("outer");
    let before = std::fs::read(&path).expect("there");
    // By posix_spawn or vfork.
    assert!(std::process::Command::new("/bin/true").status().expect("every Linux has it").success());
    child::succeeds("nothing", folder.path());
    assert!(in_child(|| {
        let name = c"/bin/true".as_ptr();
        // SAFETY: the arguments end with null.
        unsafe { libc::execl(name, name, std::ptr::null::<libc::c_char>()) };
        false
    }));
    same(&before, &path);
    drop(outer);
    assert_eq!(sums(&session.finish().expect("whole")), [1, 0, 0]);
}
