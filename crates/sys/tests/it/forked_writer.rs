//! A writer of databases (`probe-sync-rocpd`) in a process that forks. The test is here because a
//! fork is unsafe code, which that crate has none of.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use probe_sync_rocpd::writer::{Error, Process, Region, Settings, ThreadRecorder, Writer};

const FORKS: usize = 20;

/// Events that the child offers; far more than fit into a buffer.
const OFFERED: usize = 10_000;

/// Offers events and ends the writer, as a child would that knows nothing of its parent's; what it
/// says is what became of them.
fn in_child(writer: Writer, thread: &ThreadRecorder, region: &Region) -> String {
    for _ in 0..OFFERED {
        thread.region(region.clone());
    }
    writer.intern("of a child");
    let own = writer.thread(7, None);
    for _ in 0..OFFERED {
        own.region(region.clone());
    }
    drop(own);
    match writer.finish() {
        Err(Error::Forked { .. }) => "forked".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Forks; the child says one text through a pipe.
fn forked(say: impl FnOnce() -> String) -> String {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the child calls what only tries locks and allocates, which glibc keeps usable after a
    // fork, and ends without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let said = say();
        let _ = (&writer).write_all(said.as_bytes());
        // SAFETY: ends this process without running anything of the parent's.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0, "no memory for a child");
    drop(writer);
    let mut said = String::new();
    reader.read_to_string(&mut said).expect("a text");
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    said
}

/// While the parent's threads record, so that locks are held at some of the forks; the parent's
/// file has the parent's events only.
#[test]
fn a_child_writes_nothing_into_its_parents_database() {
    let folder = tempfile::tempdir().expect("a folder");
    for fork in 0..FORKS {
        let output = folder.path().join(format!("{fork}.db"));
        let flush_interval = Duration::from_millis(5);
        let own = Settings { output, buffer_events: 1_000, flush_interval, flush_rows: 200, ..Settings::default() };
        // Taken by the child from its own copy of the memory, and by the parent at its end.
        let mut kept_writer = Some(Writer::open(own, Process::current()).expect("a writer"));
        let writer = kept_writer.as_ref().expect("just made");
        let (name, category) = (writer.intern("step"), writer.intern("MARKER_RANGE"));
        let region = Region { name, category, ..Region::default() };
        let thread = writer.thread(1, None);
        let record = |events: usize| (0..events).filter(|_| thread.region(region.clone())).count();
        let mut offered = 3_000 + 500;
        let mut kept = record(500);
        let busy = std::thread::scope(|scope| {
            let busy = scope.spawn(|| record(3_000));
            let child = || in_child(kept_writer.take().expect("of the parent"), &thread, &region);
            assert_eq!(forked(child), "forked");
            busy.join().expect("no panic")
        });
        kept += busy + record(500);
        offered += 500;
        let report = kept_writer.take().expect("only the child took its own").finish().expect("a report");
        assert_eq!((report.events, report.dropped), (kept as u64, (offered - kept) as u64), "{report:?}");
        assert!(report.stands_alone, "{report:?}");
    }
}
