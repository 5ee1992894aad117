//! The global clock: reference time with its bounds, in every thread and process of a host.
//!
//! A session keeps it accurate (`feed`, after every round), and any holder of a [`GlobalClock`]
//! reads it. It also works without the session, in a forked child, in another process that opened
//! the page by its path, and after the end; its bounds then grow.
//!
//! Terms, those of TrueTime: `now` is an interval with a time in it; [`GlobalClock::after`] says
//! that an instant has certainly passed, [`GlobalClock::before`] that it has certainly not come.
//!
//! It does not keep time on a host without a session or survive a reboot of the host: the page of
//! an earlier boot is refused.

mod above;
mod counter;
mod feed;
mod forecast;

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration as StdDuration, Instant};

use probe_sync_files::{AtomicFile, open_regular};
use probe_sync_global_clock::{Identity, Map, Page, Pairs, Source, Unusable, WORDS};
use probe_sync_sys::{PAGE_WORDS, SharedPage, clock, host};
use probe_sync_time::{Boot, Clock, NodeId, Raw, Reference, System, TimeNamespace, Timestamp};

pub(crate) use self::above::Above;
pub use self::above::Timeline;
pub use self::counter::HostCounter;
use self::counter::pairs;
pub(crate) use self::counter::usable;
pub(crate) use self::feed::Feed;
use crate::Error;
pub use probe_sync_global_clock::{Adjust, Converter, Interval, Reading, Status};

/// Reference time for every thread and process of this host.
///
/// ```
/// use std::time::Duration;
///
/// use probe_sync::clock::Status;
/// use probe_sync::{Config, Session};
///
/// let directory = tempfile::tempdir()?;
/// let mut config = Config { out: directory.path().join("out"), ..Config::default() };
/// config.set("window", "200ms", "example")?;
/// let session = Session::builder(config).start()?;
/// let clock = session.clock();
/// clock.wait_until_known(Duration::from_secs(30))?;
/// let now = clock.now().expect("it is known");
/// assert!(now.earliest <= now.time && now.time <= now.latest);
/// assert_eq!(now.status, Status::Synchronised);
/// assert!(clock.after(now.earliest) || clock.now().is_some());
/// session.stop()?;
/// assert_eq!(clock.status(), Status::Holdover, "it goes on, and its bounds grow");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct GlobalClock {
    page: Arc<SharedPage>,
    /// Time namespace of this process.
    namespace: TimeNamespace,
}

impl GlobalClock {
    /// Creates a clock for a session to keep up to date; child processes can read it too.
    ///
    /// # Errors
    /// Returns an error if the system has no memory for it.
    pub fn new() -> Result<Self, Error> {
        let clock = Self::of(SharedPage::anonymous()?);
        clock.begin(UNKNOWN, UNKNOWN, Source::Raw);
        Ok(clock)
    }

    /// Opens the clock that a session on this host keeps in a file (`clock_page`).
    ///
    /// # Errors
    /// Returns an error if the file is not a clock page, is from an earlier boot of this host, or
    /// counts by the time-stamp counter although the kernel's clocksource is not `tsc`, as far as
    /// this process can see.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let cannot = |source| Error::File { path: path.to_owned(), action: "read the clock in", source };
        let file = open_regular(path).map_err(cannot)?;
        let refuse = |reason| Error::ClockPage { path: path.to_owned(), reason };
        // Whoever may shorten the file could end this process by it.
        if !is_this_users_alone(&file).map_err(cannot)? {
            let reason = "another user owns it or can write to it, and could crash every process that reads it; have a session of \
                this user or of root maintain the page";
            return Err(refuse(reason.into()));
        }
        let page = SharedPage::of_file(&file).map_err(|error| refuse(format!("it is not a clock page: {error}")))?;
        let usable = match Page::open(words(&page), boot()) {
            Ok(found) => match found.map().source {
                Source::Raw => Ok(()),
                Source::Tsc(_) => clock::tsc_is_the_clocksource()
                    .map_err(|reason| format!("it uses the TSC, but {reason}; set clock_counter=raw in the session")),
            },
            Err(Unusable::Foreign) => {
                Err("it is not a clock page of this version of probe_sync; give the path set as clock_page".into())
            }
            Err(Unusable::EarlierBoot) => {
                Err("it is from an earlier boot of this host or from another host; start a session here first".into())
            }
        };
        usable.map_err(refuse)?;
        Ok(Self::of(page))
    }

    /// Creates a page at `path` for a session to keep up to date; other processes
    /// [`GlobalClock::open`] it. It replaces an earlier page, but no other file.
    pub(crate) fn create(path: &Path, node: NodeId, reference: NodeId, source: Source) -> Result<Self, Error> {
        let cannot = |source| Error::File { path: path.to_owned(), action: "maintain the clock in", source };
        refuse_to_replace_others(path)?;
        let mut file = AtomicFile::create_own(path).map_err(cannot)?;
        let page = SharedPage::of_new_file(file.file().map_err(cannot)?);
        let no_room = |error| Error::ClockPage {
            path: path.to_owned(),
            reason: format!("{error}; free some space, or choose another path"),
        };
        let clock = Self::of(page.map_err(no_room)?);
        clock.begin(node, reference, source);
        file.commit_without_sync().map_err(cannot)?;
        Ok(clock)
    }

    /// Returns the current reference time, ns since the Unix epoch on the reference node's clock;
    /// `None` while it is unknown. This is the cheapest query.
    #[inline]
    pub fn now_ns(&self) -> Option<i64> {
        self.page().now_ns(|source| self.counter(source).now())
    }

    /// Returns the current reference time with its bounds; `None` while it is unknown.
    #[inline]
    pub fn now(&self) -> Option<Reading> {
        self.page().now(|source| self.counter(source).now())
    }

    /// Returns the present state and accuracy.
    pub fn status(&self) -> Status {
        self.now().map_or(Status::Unsynchronised, |now| now.status)
    }

    /// Returns true if this reference time has certainly passed.
    pub fn after(&self, time: Timestamp<Reference>) -> bool {
        self.now().is_some_and(|now| now.earliest > time)
    }

    /// Returns true if this reference time is certainly in the future.
    pub fn before(&self, time: Timestamp<Reference>) -> bool {
        self.now().is_some_and(|now| now.latest < time)
    }

    /// Waits until the reference time is known.
    ///
    /// # Errors
    /// Returns an error if it is unknown after `limit`.
    pub fn wait_until_known(&self, limit: StdDuration) -> Result<(), Error> {
        let begun = Instant::now();
        while self.now_ns().is_none() {
            if begun.elapsed() > limit {
                let reason = "the reference time is not known yet: is a session running?";
                return Err(Error::Clock { reason: reason.into() });
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Waits until this clock shows `time`, and returns within the time that a thread needs to
    /// notice: it does not sleep during the last 300 µs. Intended for a start agreed between
    /// several nodes; each is late by its own clock error.
    ///
    /// # Errors
    /// Returns an error, without waiting, if the reference time is unknown or `time` is further
    /// away than `limit`.
    pub fn wait_until(&self, time: Timestamp<Reference>, limit: StdDuration) -> Result<(), Error> {
        wait_until(|| self.now_ns(), time.as_ns(), limit)
    }

    /// Converts a past or future time of this host's `CLOCK_MONOTONIC_RAW` by the present estimate;
    /// `None` while there is none.
    pub fn of_raw(&self, at: Timestamp<Raw>) -> Option<Interval> {
        Some(self.conversion()?.raw(at))
    }

    /// Converts a time of this host's system clock; `None` while there is no estimate, and if the
    /// system clock was stepped since.
    pub fn of_system(&self, at: Timestamp<System>) -> Option<Interval> {
        self.conversion()?.system()?.interval(at.as_ns())
    }

    /// Converts a time of this host's `CLOCK_BOOTTIME`; `None` while there is no estimate, and if
    /// the host was suspended since.
    pub fn of_boot(&self, at: Timestamp<Boot>) -> Option<Interval> {
        self.conversion()?.boot()?.interval(at.as_ns())
    }

    /// Returns the node whose clocks the page is based on, and the node that it shows; `None` until
    /// a session knows.
    pub fn nodes(&self) -> Option<(NodeId, NodeId)> {
        let Identity { node, reference, .. } = self.page().identity();
        (node != UNKNOWN).then_some((node, reference))
    }

    /// Returns a converter for many times by the present estimate; `None` while there is none, and
    /// with `clock_counter=tsc` if the host was suspended since.
    pub fn conversion(&self) -> Option<Conversion> {
        let map = Some(self.page().map()).filter(|map| map.status != Status::Unsynchronised)?;
        // The clocks as this process sees them; the counter stays the machine's.
        let seen = |pairs: Pairs| Pairs {
            raw: pairs.raw.wrapping_add(self.namespace.monotonic_ns),
            boot: pairs.boot.wrapping_add(self.namespace.boottime_ns),
            ..pairs
        };
        let now = seen(pairs(map.source, self.namespace));
        let map = Map { pairs: seen(map.pairs), ..map };
        let raw = match map.source {
            Source::Raw => RawTimes::Counted { namespace_ns: self.namespace.monotonic_ns },
            Source::Tsc(_) => RawTimes::Converted(map.of_raw(&now)?),
        };
        Some(Conversion { map, now, raw })
    }

    fn of(page: SharedPage) -> Self {
        Self { page: Arc::new(page), namespace: host::time_namespace() }
    }

    #[inline]
    fn counter(&self, source: Source) -> HostCounter {
        HostCounter { source, namespace_ns: self.namespace.monotonic_ns }
    }

    fn begin(&self, node: NodeId, reference: NodeId, source: Source) {
        let identity = Identity { boot: boot(), writer: std::process::id(), node, reference };
        Page::begin(words(&self.page), identity, source);
    }

    #[inline]
    fn page(&self) -> Page<'_> {
        Page::trusted(words(&self.page))
    }
}

/// Converts times of this host's clocks to reference time by the estimate at one moment.
#[derive(Clone, Debug)]
pub struct Conversion {
    map: Map,
    now: Pairs,
    raw: RawTimes,
}

/// Conversion of times of `CLOCK_MONOTONIC_RAW`.
#[derive(Clone, Debug)]
enum RawTimes {
    /// The map is based on this clock, which this process sees shifted by its time namespace.
    Counted { namespace_ns: i64 },
    /// The map is based on another counter.
    Converted(Converter),
}

impl Conversion {
    /// Converts a time like [`GlobalClock::of_raw`].
    #[inline]
    pub fn raw(&self, at: Timestamp<Raw>) -> Interval {
        match &self.raw {
            RawTimes::Counted { namespace_ns } => {
                self.map.interval(Timestamp::from_ns(at.as_ns().saturating_sub(*namespace_ns)))
            }
            RawTimes::Converted(raw) => raw.interval_of_steady(at.as_ns()),
        }
    }

    /// Returns a converter that works like [`GlobalClock::of_system`], for many times.
    pub fn system(&self) -> Option<Converter> {
        self.map.of_system(&self.now)
    }

    /// Returns a converter that works like [`GlobalClock::of_boot`], for many times.
    pub fn boot(&self) -> Option<Converter> {
        self.map.of_boot(&self.now)
    }
}

/// Waits like [`GlobalClock::wait_until`], by any clock: `now` returns its time in ns, or `None`
/// while it is unknown.
///
/// # Errors
/// Returns an error in the same cases.
pub fn wait_until(now: impl Fn() -> Option<i64>, time: i64, limit: StdDuration) -> Result<(), Error> {
    let unknown = || Error::Clock { reason: "the reference time is not known yet: wait until it is".into() };
    let left = || now().map(|now| time.saturating_sub(now)).ok_or_else(unknown);
    let ahead = left()?;
    if u128::from(ahead.max(0).unsigned_abs()) > limit.as_nanos() {
        let ahead = StdDuration::from_nanos(ahead.unsigned_abs());
        let reason = format!("the requested time is {ahead:.1?} ahead, more than the limit of {limit:.1?}");
        return Err(Error::Clock { reason });
    }
    loop {
        let left = left()?;
        if left <= 0 {
            return Ok(());
        }
        match u64::try_from(left - SPIN_NS) {
            // By parts: the clock may be slewed in the meantime.
            Ok(ns) if ns > 0 => std::thread::sleep(StdDuration::from_nanos(ns).min(SLEEP_MAX)),
            _ => std::hint::spin_loop(),
        }
    }
}

/// Refuses a file that is not a clock page of any boot, since its name was given by mistake.
fn refuse_to_replace_others(path: &Path) -> Result<(), Error> {
    let cannot = |source| Error::File { path: path.to_owned(), action: "maintain the clock in", source };
    let file = match open_regular(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(cannot)?,
    };
    let mut head = Vec::new();
    file.take(size_of::<u64>() as u64).read_to_end(&mut head).map_err(cannot)?;
    // An empty file is nobody's work: `mktemp` makes one for its name.
    if head.is_empty() || head.try_into().is_ok_and(|word| Page::is_page(u64::from_ne_bytes(word))) {
        return Ok(());
    }
    let reason = "it is not a clock page and will not be overwritten; remove it, or choose another file".into();
    Err(Error::ClockPage { path: path.to_owned(), reason })
}

/// Returns true if only this user or root can change the file.
fn is_this_users_alone(file: &File) -> std::io::Result<bool> {
    let about = file.metadata()?;
    Ok((about.uid() == 0 || about.uid() == rustix::process::geteuid().as_raw()) && about.mode() & 0o022 == 0)
}

/// Returns the part of a page that a clock uses.
#[inline]
fn words(page: &SharedPage) -> &[std::sync::atomic::AtomicU64; WORDS] {
    const { assert!(WORDS <= PAGE_WORDS) };
    page.words().first_chunk().expect("a page is longer")
}

/// Returns a number that identifies this boot of the host.
fn boot() -> u128 {
    let digits: String = host::Host::detect().boot_id.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or_default()
}

/// The pages that a session maintains: that of the builder, and that of `clock_page`.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// For this process.
    pub own: Option<GlobalClock>,
    /// For other processes.
    pub path: Option<PathBuf>,
}

const UNKNOWN: NodeId = NodeId(u32::MAX);
const POLL: StdDuration = StdDuration::from_millis(2);
/// Time before the end of a wait from which it no longer sleeps, because a sleep may last this much
/// too long. A thread has 50 µs of slack unless it requests less, and a halted virtual processor
/// returns some 40 µs late: measured 94 µs in the median, 161 µs at 99 %.
const SPIN_NS: i64 = 300_000;
const SLEEP_MAX: StdDuration = StdDuration::from_millis(200);

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn create(path: &Path) -> Result<GlobalClock, Error> {
        GlobalClock::create(path, NodeId(0), NodeId(0), Source::Raw)
    }

    #[test]
    fn a_page_that_another_user_could_shorten_is_not_read() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("clock");
        create(&path).expect("a page");
        GlobalClock::open(&path).expect("our own");
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o022, 0, "{mode:o}");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("ours");
        let refused = GlobalClock::open(&path).expect_err("others may shorten it").to_string();
        assert!(refused.contains("another user"), "{refused}");
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can give a page to another user");
            return;
        }
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("ours");
        std::os::unix::fs::chown(&path, Some(54_321), None).expect("root may");
        assert!(GlobalClock::open(&path).is_err(), "its owner may shorten it");
        create(&path).expect("it is replaced");
        GlobalClock::open(&path).expect("our own again");
    }

    #[test]
    fn a_page_takes_the_place_of_pages_only() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let (notes, pipe) = (folder.path().join("notes.txt"), folder.path().join("pipe"));
        fs::write(&notes, "precious").expect("writable");
        let refused = create(&notes).expect_err("somebody's work").to_string();
        assert!(refused.contains("notes.txt") && refused.contains("remove it"), "{refused}");
        assert_eq!(fs::read(&notes).expect("untouched"), b"precious");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("coreutils").success());
        assert!(create(&pipe).is_err() && GlobalClock::open(&pipe).is_err(), "neither waits");
        fs::write(&notes, "").expect("writable");
        create(&notes).expect("an empty file is nobody's work");
        create(&notes).expect("an earlier page");
    }
}
