//! A session that is under way: paused, looked at, ended.
//!
//! Place in the flow: made by a builder's `start`. Ending takes it off the list that threads see, waits until none is within an event that
//! began before, and only then says that the recording is whole.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::facts::Facts;
use super::helper::{self, Helper};
use super::settings::{Policy, Settings};
use super::stream::Stream;
use crate::active::core::{Core, Reach};
use crate::active::registry::{Activity, Registry};
use crate::backend::{BackendStatus, Request, Running};
use crate::clock::{self, RecordClock, Ticks};
use crate::error::Error;
use crate::layout::{BYTES_MIN, Layout, MAGIC, WORD, header, policy, state};
use crate::memory::pool::Pool;
use crate::memory::region::Region;
use crate::read::{Recording, Source};
use crate::thread::block::{Block, LANES};
use crate::thread::{define, sync};

/// A session. Dropped without [`Session::finish`] it ends all the same; what its file holds is whole.
#[derive(Debug)]
pub struct Session {
    core: Arc<Core>,
    helper: Option<Helper>,
    ticks: Ticks,
    /// The process that started it.
    owner: u32,
    choices: Vec<String>,
    backends: Arc<Running>,
}

impl Session {
    pub(super) fn start(settings: &Settings, place: &'static Location<'static>) -> Result<Self, Error> {
        let registry = Registry::prepared().map_err(|reason| Error::Memory { bytes: 0, reason })?;
        // Before memory is taken and a file made.
        admit(&registry.sessions(), settings)?;
        let request = Request { reach: settings.reach, kinds: settings.kinds, details: settings.details };
        let backends = Arc::new(Running::prepare(&settings.backends, &request)?);
        let bytes = settings.policy.bytes();
        let layout = Layout::dividing(bytes, settings.threads).ok_or(Error::Setting {
            setting: "policy",
            reason: format!("{bytes} bytes are too few for a recording; give {BYTES_MIN} or more"),
        })?;
        let region = match &settings.spill {
            None => Region::anonymous(layout.bytes())?,
            Some(path) => Region::of_new_file(path, layout.bytes())?,
        };
        let remove = RemoveUnless { path: region.file().map(|(_, path)| path.to_path_buf()), kept: false };
        let (ticks, reason) = choose_clock(registry, settings.clock)?;
        let core = Arc::new(core_of(settings, place, region, layout, ticks));
        let facts = facts_of(settings, place, ticks, reason);
        let choices = choices(&facts, &core);
        write_header(&core, &facts, ticks, settings)?;
        let (stream, beside) = (stream_of(&core, settings.policy)?, Arc::clone(&backends));
        let helper = Helper::start(Arc::clone(&core), ticks, settings.pair_period, stream, beside)?;
        let mut session = Self { core, helper: Some(helper), ticks, owner: std::process::id(), choices, backends };
        session.enter_list(registry, settings)?;
        session.start_backends();
        remove.keep();
        Ok(session)
    }

    fn start_backends(&mut self) {
        if !self.backends.is_empty() {
            self.backends.start(&self.core, self.ticks, in_ticks(self.ticks, Duration::from_secs(1)) as f64);
            self.choices.extend(self.backends.status().iter().map(BackendStatus::to_string));
        }
    }

    /// How each backend stands.
    pub fn backends(&self) -> Vec<BackendStatus> {
        self.backends.status()
    }

    /// Puts it on the list, with everything defined that has a number.
    fn enter_list(&self, registry: &Registry, settings: &Settings) -> Result<(), Error> {
        let exclusive = Exclusive::of(registry);
        let mut sessions = registry.sessions();
        // Another may have begun while memory was taken.
        admit(&sessions, settings)?;
        if sessions.is_empty() {
            registry.set_ticks(self.ticks);
        } else if registry.ticks() != self.ticks {
            return Err(other_clock(registry.ticks()));
        }
        if let (Reach::Thread, Some(block)) = (settings.reach, exclusive.block) {
            self.members().push(block.serial.get());
        }
        define::everything(&self.core);
        self.core.header(header::START).store(self.ticks.now(), Ordering::Release);
        sessions.push(Arc::clone(&self.core));
        registry.publish(&sessions);
        Ok(())
    }

    /// Ends it: the recording, whole.
    ///
    /// # Errors
    /// [`Error::NotRecording`] in a forked child; what reading the recording back meets.
    pub fn finish(mut self) -> Result<Recording, Error> {
        self.own()?;
        self.end();
        let source = match self.core.region.file() {
            Some((file, path)) => {
                let source = |source| Error::File { path: path.to_path_buf(), source };
                Source::File(file.try_clone().map_err(source)?, path.to_path_buf())
            }
            None => Source::Core(Arc::clone(&self.core)),
        };
        Recording::of(source)
    }

    /// What has been recorded until now, as a copy; the session goes on.
    ///
    /// # Errors
    /// [`Error::NotRecording`] in a forked child.
    pub fn snapshot(&self) -> Result<Recording, Error> {
        self.own()?;
        helper::write_pair_now(&self.core, self.ticks);
        Recording::of_live(&self.core)
    }

    /// Stops recording until [`Session::resume`]. Scopes that are open end as they do.
    ///
    /// # Errors
    /// [`Error::NotRecording`] in a forked child.
    pub fn pause(&self) -> Result<(), Error> {
        self.set_paused(true)
    }

    /// Goes on.
    ///
    /// # Errors
    /// [`Error::NotRecording`] in a forked child.
    pub fn resume(&self) -> Result<(), Error> {
        self.set_paused(false)
    }

    /// Whether it records now.
    pub fn is_recording(&self) -> bool {
        self.own().is_ok() && !self.core.paused.load(Ordering::Acquire)
    }

    /// What it lets other threads do; for a session of one thread they adopt it.
    pub fn adopter(&self) -> Adopter {
        Adopter { core: Arc::clone(&self.core) }
    }

    /// What was chosen, and why, a line each.
    pub fn choices(&self) -> &[String] {
        &self.choices
    }

    /// The file that it records into.
    pub fn path(&self) -> Option<&std::path::Path> {
        self.core.region.file().map(|(_, path)| path)
    }

    /// Its reach.
    pub fn reach(&self) -> Reach {
        self.core.reach
    }

    fn set_paused(&self, paused: bool) -> Result<(), Error> {
        let registry = self.own()?;
        let exclusive = Exclusive::of(registry);
        let sessions = registry.sessions();
        if self.core.paused.swap(paused, Ordering::AcqRel) != paused {
            self.core.header(header::PAUSES).fetch_add(1, Ordering::Relaxed);
        }
        registry.publish(&sessions);
        drop(sessions);
        registry.quiet(exclusive.let_go());
        Ok(())
    }

    fn own(&self) -> Result<&'static Registry, Error> {
        if self.owner != std::process::id() {
            let reason = format!("the session is process {}'s, and goes on there; start one in this child", self.owner);
            return Err(Error::NotRecording { reason });
        }
        Registry::current().ok_or(Error::NotRecording { reason: "the session has ended".into() })
    }

    fn members(&self) -> MutexGuard<'_, Vec<u32>> {
        self.core.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it off the list; the last events are whole when this returns.
    fn end(&mut self) {
        let Some(mut helper) = self.helper.take() else { return };
        let Ok(registry) = self.own() else { return helper.abandon() };
        let exclusive = Exclusive::of(registry);
        let mut sessions = registry.sessions();
        sessions.retain(|core| core.number != self.core.number);
        registry.publish(&sessions);
        drop(sessions);
        if !registry.quiet(exclusive.let_go()) {
            // A thread may still write into it.
            std::mem::forget(Arc::clone(&self.core));
        }
        self.core.header(header::END).store(self.ticks.now(), Ordering::Release);
        self.backends.stop(&self.core);
        helper.end();
        self.core.header(header::STATE).store(state::FINISHED, Ordering::Release);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// Lets threads take part in a session of another thread.
#[derive(Clone, Debug)]
pub struct Adopter {
    core: Arc<Core>,
}

impl Adopter {
    /// This thread's events are recorded, too, until the guard is dropped.
    pub fn adopt(&self) -> Adopted {
        let serial = sync::attached().map_or(0, |block| block.serial.get());
        self.change(|members| members.push(serial));
        Adopted { adopter: self.clone(), serial }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u32>)) {
        let Some(registry) = Registry::current() else { return };
        let _exclusive = Exclusive::of(registry);
        let sessions = registry.sessions();
        change(&mut self.core.members.lock().unwrap_or_else(PoisonError::into_inner));
        registry.publish(&sessions);
    }
}

/// A thread that takes part in another's session.
#[must_use = "the thread takes part until this is dropped"]
#[derive(Debug)]
pub struct Adopted {
    adopter: Adopter,
    serial: u32,
}

impl Drop for Adopted {
    fn drop(&mut self) {
        let at = |members: &Vec<u32>| members.iter().position(|member| *member == self.serial);
        self.adopter.change(|members| {
            if let Some(at) = at(members) {
                members.swap_remove(at);
            }
        });
    }
}

/// While it is there a signal handler of this thread records nothing: it would wait for a lock that this thread holds.
pub(crate) struct Exclusive {
    pub(crate) block: Option<&'static Block>,
    before: u32,
}

impl Exclusive {
    /// Of this thread.
    pub(crate) fn of(registry: &Registry) -> Self {
        let block = sync::attached();
        let mut before = 0;
        if let Some(block) = block {
            sync::enlist(block, registry);
            before = block.activity.busy.swap(registry.number, Ordering::Relaxed);
        }
        Self { block, before }
    }
}

impl Exclusive {
    /// Ends it: nobody waits for this thread, which may wait for others. Who it is.
    pub(crate) fn let_go(self) -> Option<&'static Activity> {
        self.block.map(|block| &block.activity)
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        if let Some(block) = self.block {
            block.activity.busy.store(self.before, Ordering::Release);
        }
    }
}

/// Removes a file that no session came to use.
struct RemoveUnless {
    path: Option<std::path::PathBuf>,
    kept: bool,
}

impl RemoveUnless {
    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for RemoveUnless {
    fn drop(&mut self) {
        if let Some(path) = self.path.as_ref().filter(|_| !self.kept) {
            // It holds nothing.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn admit(sessions: &[Arc<Core>], settings: &Settings) -> Result<(), Error> {
    let of_process = sessions.iter().find(|core| core.reach == Reach::Process);
    if let (Reach::Process, Some(core)) = (settings.reach, of_process) {
        return Err(Error::AlreadyRecording { place: core.place.to_string() });
    }
    match sessions.first() {
        Some(first) if sessions.len() >= LANES => {
            Err(Error::TooManySessions { open: sessions.len(), place: first.place.to_string() })
        }
        _ => Ok(()),
    }
}

/// That of the sessions that are under way, or the one that is asked for.
fn choose_clock(registry: &Registry, wish: RecordClock) -> Result<(Ticks, String), Error> {
    let unsteady = |reason| Error::UnsteadyClock { reason };
    let chosen = clock::choose(wish).map_err(unsteady)?;
    if registry.sessions().is_empty() {
        return Ok(chosen);
    }
    let present = registry.ticks();
    match wish {
        RecordClock::Best => Ok((present, "the clock of the sessions that are under way".into())),
        _ if chosen.0 == present => Ok(chosen),
        _ => Err(other_clock(present)),
    }
}

fn other_clock(present: Ticks) -> Error {
    let reason = format!("sessions that are under way have the clock {}; use it, or finish them", name_of(present));
    Error::Setting { setting: "clock", reason }
}

fn name_of(ticks: Ticks) -> &'static str {
    match ticks {
        Ticks::Tsc(_) => "tsc",
        Ticks::Raw => "monotonic_raw",
    }
}

fn core_of(
    settings: &Settings,
    place: &'static Location<'static>,
    region: Region,
    layout: Layout,
    ticks: Ticks,
) -> Core {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    Core {
        number: NUMBER.fetch_add(1, Ordering::Relaxed),
        reach: settings.reach,
        members: Mutex::default(),
        place,
        pool: Pool::new(layout),
        region,
        layout,
        kinds: settings.kinds.bits(),
        every: AtomicU32::new(settings.every),
        least_ticks: in_ticks(ticks, settings.longer_than),
        recycle: matches!(settings.policy, Policy::Flight { .. }),
        details: settings.details,
        paused: AtomicBool::new(settings.paused),
    }
}

/// A span in ticks, as well as a short measurement tells: for filters only.
fn in_ticks(ticks: Ticks, span: Duration) -> u64 {
    if span.is_zero() {
        return 0;
    }
    let rate = match ticks {
        Ticks::Raw => 1.0,
        Ticks::Tsc(_) => {
            let first = clock::pair(ticks);
            std::thread::sleep(RATE_SPAN);
            let second = clock::pair(ticks);
            (second.ticks - first.ticks) as f64 / (second.system_ns - first.system_ns).max(1) as f64
        }
    };
    (span.as_nanos() as f64 * rate) as u64
}

fn facts_of(settings: &Settings, place: &Location<'_>, ticks: Ticks, clock_reason: String) -> Facts {
    let own = Facts::of_process();
    Facts {
        rank: settings.rank.or(own.rank),
        reach: settings.reach.as_str().into(),
        policy: settings.policy.as_str().into(),
        kinds: settings.kinds.iter().map(|kind| kind.as_str().to_owned()).collect(),
        clock: name_of(ticks).into(),
        clock_reason,
        every: settings.every,
        longer_than_ns: u64::try_from(settings.longer_than.as_nanos()).unwrap_or(u64::MAX),
        started_at: place.to_string(),
        ..own
    }
}

fn choices(facts: &Facts, core: &Core) -> Vec<String> {
    let layout = &core.layout;
    let place = core.region.file().map_or_else(
        || "in memory, lost when the process is killed".into(),
        |(_, path)| format!("in {}", path.display()),
    );
    vec![
        format!("clock {}: {}", facts.clock, facts.clock_reason),
        format!("{} bytes {place}", core.region.bytes()),
        format!("{} chunks of {} bytes, policy {}", layout.chunks, layout.chunk_bytes, facts.policy),
        format!("{} threads at once with their open scopes", layout.slots),
        format!("kinds {}", facts.kinds.join(", ")),
    ]
}

fn write_header(core: &Core, facts: &Facts, ticks: Ticks, settings: &Settings) -> Result<(), Error> {
    let store = |place: usize, value: u64| core.header(place).store(value, Ordering::Relaxed);
    let layout = core.layout;
    store(header::BYTES, layout.bytes() as u64);
    store(header::CHUNK_BYTES, layout.chunk_bytes as u64);
    store(header::CHUNKS, layout.chunks as u64);
    store(header::PAIRS, layout.pairs as u64);
    store(header::DEFINITION_BYTES, layout.definition_bytes as u64);
    store(header::SLOTS, layout.slots as u64);
    store(header::CLOCK, ticks.number());
    store(header::START, ticks.now());
    store(header::PAUSES, u64::from(settings.paused));
    store(header::KEEP_TICKS, settings.keep.map_or(0, |span| in_ticks(ticks, span)));
    store(
        header::POLICY,
        match settings.policy {
            Policy::DropNewest { .. } => policy::DROP_NEWEST,
            Policy::Flight { .. } => policy::FLIGHT,
            Policy::Stream { .. } => policy::STREAM,
        },
    );
    let text = serde_json::to_vec(facts).unwrap_or_default();
    let room = header::ALL_BYTES - header::WORDS * WORD - WORD;
    if text.len() > room {
        return Err(Error::Setting { setting: "spill", reason: "names of host and program are too long".into() });
    }
    store(header::WORDS, text.len() as u64);
    for (at, bytes) in text.chunks(WORD).enumerate() {
        let mut word = [0; WORD];
        word[..bytes.len()].copy_from_slice(bytes);
        store(header::WORDS + 1 + at, u64::from_le_bytes(word));
    }
    helper::write_pair_now(core, ticks);
    store(header::STATE, state::RECORDING);
    core.header(header::MAGIC).store(MAGIC, Ordering::Release);
    Ok(())
}

fn stream_of(core: &Core, policy: Policy) -> Result<Option<(Stream, Duration)>, Error> {
    let (Policy::Stream { every, .. }, Some((file, path))) = (policy, core.region.file()) else { return Ok(None) };
    let file = file.try_clone().map_err(|source| Error::File { path: path.to_path_buf(), source })?;
    Ok(Some((Stream::of(file), every)))
}

/// Numbers of a session.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events that were lost for want of room.
    pub lost: u64,
    /// Threads that take part now and have a slot.
    pub threads: u64,
    /// Bytes that records take now.
    pub bytes: u64,
}

impl Session {
    /// How it stands.
    pub fn counts(&self) -> Counts {
        use crate::layout::{chunk, slot};
        let core = &self.core;
        let load = |byte: usize| core.region.word(byte).load(Ordering::Relaxed);
        let mut counts = Counts { lost: core.header(header::LOST).load(Ordering::Relaxed), ..Counts::default() };
        for at in (0..core.layout.slots).map(|index| core.layout.slot_at(index)) {
            if load(at + slot::SERIAL * WORD) != 0 {
                counts.threads += 1;
                counts.lost += load(at + slot::LOST * WORD);
            }
        }
        for at in (0..core.layout.chunks).map(|index| core.layout.chunk_at(index)) {
            counts.bytes += load(at + chunk::COMMITTED * WORD).saturating_sub((chunk::HEADER_WORDS * WORD) as u64);
        }
        counts
    }
}

/// Over which the counter's rate is measured for filters.
const RATE_SPAN: Duration = Duration::from_millis(10);
