//! File systems without room: refused at the start, and what fills up later stops nobody. Needs
//! root, for a small file system.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use probe_sync_record::{Policy, Recorder, scope};
use tempfile::TempDir;

use crate::support::{alone, sums};

/// A file system of a given size in KiB; `None` if it cannot be mounted.
struct Small(TempDir);

impl Small {
    fn of(kib: usize) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = CString::new(folder.path().as_os_str().as_bytes()).expect("no zero");
        let options = CString::new(format!("size={kib}k")).expect("no zero");
        let kind = c"tmpfs".as_ptr();
        // SAFETY: all are texts that end with zero.
        let mounted = unsafe { libc::mount(kind, path.as_ptr(), kind, 0, options.as_ptr().cast()) } == 0;
        if !mounted {
            println!("skipped: a small file system cannot be mounted: {}", std::io::Error::last_os_error());
        }
        mounted.then_some(Self(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let path = CString::new(self.path().as_os_str().as_bytes()).expect("no zero");
        // SAFETY: a text that ends with zero.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_full_disk_is_an_error_at_the_start() {
    let _alone = alone();
    let Some(small) = Small::of(1024) else { return };
    let path = small.path().join("too large.rec");
    let policy = Policy::DropNewest { bytes: 4 << 20 };
    let said = Recorder::builder().policy(policy).spill(&path).start().expect_err("no room").to_string();
    assert!(said.contains("free some space, or record less") && said.contains("too large.rec"), "{said}");
    assert!(!path.exists(), "nothing is left of it");
}

#[test]
fn a_disk_that_fills_up_stops_nobody() {
    let _alone = alone();
    let Some(small) = Small::of(3072) else { return };
    let policy = Policy::Stream { bytes: 1 << 20, every: Duration::from_millis(1) };
    let session = Recorder::builder().policy(policy).spill(small.path().join("fills.rec")).start().expect("room");
    const MADE: u64 = 400_000;
    for n in 0..MADE {
        if n % 1000 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
        drop(scope!("work", n = n));
    }
    let recording = session.finish().expect("what there is of it is whole");
    let [recorded, lost, _] = sums(&recording);
    assert_eq!(recorded + lost, MADE);
    assert!(lost > 0 && recording.status().blocks_lost > 0, "{lost} {:?}", recording.status());
    assert!(recorded * 48 > 2 << 20, "what the disk had room for is there: {recorded}");
}
