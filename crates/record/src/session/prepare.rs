//! Prepares everything that a session needs, so that starting it is cheap: memory, file, clock,
//! helper and socket.
//!
//! Impossible settings are rejected here, before recording starts.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::control::Server;
use super::facts::Facts;
use super::handle::Session;
use super::helper::Helper;
use super::live::Live;
use super::pairs;
use super::settings::{Policy, Settings};
use crate::active::core::{Core, Reach};
use crate::active::registry::Registry;
use crate::backend::{BackendStatus, Request, Running};
use crate::clock::{self, RecordClock, Ticks};
use crate::detail::Details;
use crate::error::Error;
use crate::layout::{BYTES_LIMIT, BYTES_MIN, Layout, MAGIC, WORD, header, policy, state};
use crate::memory::lock::Lock;
use crate::memory::pool::Pool;
use crate::memory::region::Region;
use crate::memory::stream::Stream;
use crate::thread::block::LANES;
use crate::thread::define;
use crate::thread::exclusive::Exclusive;

/// A session that has all resources but records nothing yet. Dropping it without
/// [`Prepared::start`] leaves no file.
#[derive(Debug)]
pub struct Prepared {
    // The order matters: the session ends before its file goes.
    session: Session,
    remove: RemoveUnless,
    settings: Settings,
}

impl Prepared {
    pub(super) fn of(settings: Settings) -> Result<Self, Error> {
        let registry = Registry::prepared().map_err(|reason| Error::Memory { bytes: 0, reason })?;
        // Before memory is taken and a file made.
        registry_admits(registry, &settings)?;
        let request =
            Request { reach: settings.reach, kinds: settings.kinds, details: settings.details != Details::NONE };
        let backends = Running::prepare(&settings.backends, &request)?;
        let bytes = settings.policy.bytes();
        let layout = Layout::dividing(bytes, settings.threads).ok_or(Error::Setting {
            setting: "policy",
            reason: format!("{bytes} bytes is not a valid size for a recording; give {BYTES_MIN} to {BYTES_LIMIT}"),
        })?;
        let (ticks, reason) = choose_clock(registry, settings.clock)?;
        let region = match &settings.spill {
            None => Region::anonymous(layout.bytes())?,
            Some(path) => Region::of_new_file(path, layout.bytes())?,
        };
        let remove = RemoveUnless {
            path: region.file().map(|(_, path)| path.to_path_buf()),
            kept: false,
            owner: std::process::id(),
        };
        let core = Arc::new(core_of(&settings, region, layout, ticks)?);
        let facts = facts_of(&settings, ticks, reason);
        write_header(&core, &facts, ticks, &settings)?;
        let live = Arc::new(Live::of(Arc::clone(&core), ticks, &settings, backends));
        let folder = settings.control_folder();
        let control = folder.map(|folder| Server::bind(folder, facts.rank, Arc::clone(&live))).transpose()?;
        let mut choices = choices(&facts, &core);
        choices.extend(control.as_ref().map(|control| format!("controlled through {}", control.path().display())));
        let every = if let Policy::Stream { every, .. } = settings.policy { Some(every) } else { None };
        let helper = Helper::start(Arc::clone(&live), settings.pair_period, every)?;
        Ok(Self { session: Session { live, helper: Some(helper), control, choices }, remove, settings })
    }

    /// Starts recording.
    ///
    /// # Errors
    /// [`Error::AlreadyRecording`] if another session has begun since; [`Error::NotRecording`] in a
    /// forked child.
    pub fn start(self) -> Result<Session, Error> {
        let Self { mut session, mut remove, settings } = self;
        enter_list(&session.live, &settings)?;
        session.live.started(settings.window_ns)?;
        start_backends(&mut session);
        if let Some(control) = &mut session.control {
            control.serve()?;
        }
        remove.kept = true;
        if std::env::var_os(VERBOSE).is_some() {
            say(&session);
        }
        Ok(session)
    }

    /// Returns what was chosen, and why, one line each.
    pub fn choices(&self) -> &[String] {
        self.session.choices()
    }
}

fn start_backends(session: &mut Session) {
    let Live { core, ticks, backends, .. } = &*session.live;
    if !backends.is_empty() {
        backends.start(core, *ticks, in_ticks(*ticks, Duration::from_secs(1)) as f64);
        session.choices.extend(backends.status().iter().map(BackendStatus::to_string));
    }
}

/// Puts it on the list, with everything defined that has a number.
fn enter_list(live: &Live, settings: &Settings) -> Result<(), Error> {
    let registry = live.own()?;
    let exclusive = Exclusive::of(registry);
    let mut sessions = registry.sessions();
    // Another may have begun while memory was taken.
    admit(&sessions, settings)?;
    if sessions.is_empty() {
        registry.set_ticks(live.ticks);
    } else if registry.ticks() != live.ticks {
        return Err(other_clock(registry.ticks()));
    }
    if let (Reach::Thread, Some(block)) = (settings.reach, exclusive.block) {
        live.core.members.lock().push(block.serial.get());
    }
    define::everything(&live.core);
    live.core.header(header::START).store(live.ticks.now(), Ordering::Release);
    sessions.push(Arc::clone(&live.core));
    registry.publish(&sessions);
    Ok(())
}

/// Reports on standard error, if requested.
fn say(session: &Session) {
    let core = &session.live.core;
    let mut text =
        format!("recorder: session {} of this {} was started at {}\n", core.number, core.reach.as_str(), core.place);
    for choice in session.choices() {
        text += &format!("recorder:   {choice}\n");
    }
    // A closed standard error leaves nobody to tell.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Removes a file that no session came to use.
#[derive(Debug)]
struct RemoveUnless {
    path: Option<std::path::PathBuf>,
    kept: bool,
    /// The process that made it; a forked child leaves it alone.
    owner: u32,
}

impl Drop for RemoveUnless {
    fn drop(&mut self) {
        if let Some(path) = self.path.as_ref().filter(|_| !self.kept && self.owner == std::process::id()) {
            // It holds nothing.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Checked under the lock, which a signal handler of this thread must not wait for.
fn registry_admits(registry: &Registry, settings: &Settings) -> Result<(), Error> {
    let _exclusive = Exclusive::of(registry);
    admit(&registry.sessions(), settings)
}

fn admit(sessions: &[Arc<Core>], settings: &Settings) -> Result<(), Error> {
    let of_process = sessions.iter().find(|core| core.reach == Reach::Process);
    if let (Reach::Process, Some(core)) = (settings.reach, of_process) {
        return Err(Error::AlreadyRecording { place: core.place.clone() });
    }
    match sessions.first() {
        Some(first) if sessions.len() >= LANES => {
            Err(Error::TooManySessions { open: sessions.len(), place: first.place.clone() })
        }
        _ => Ok(()),
    }
}

/// The clock of running sessions, or the requested one.
fn choose_clock(registry: &Registry, wish: RecordClock) -> Result<(Ticks, String), Error> {
    let unsteady = |reason| Error::UnsteadyClock { reason };
    let chosen = clock::choose(wish).map_err(unsteady)?;
    let exclusive = Exclusive::of(registry);
    let is_first = registry.sessions().is_empty();
    drop(exclusive);
    if is_first {
        return Ok(chosen);
    }
    let present = registry.ticks();
    match wish {
        RecordClock::Best => Ok((present, "the clock of the running sessions".into())),
        _ if chosen.0 == present => Ok(chosen),
        _ => Err(other_clock(present)),
    }
}

fn other_clock(present: Ticks) -> Error {
    let reason = format!("the running sessions use the clock {}; use the same, or finish them first", name_of(present));
    Error::Setting { setting: "clock", reason }
}

fn name_of(ticks: Ticks) -> &'static str {
    match ticks {
        Ticks::Tsc(_) => "tsc",
        Ticks::Raw => "monotonic_raw",
    }
}

fn core_of(settings: &Settings, region: Region, layout: Layout, ticks: Ticks) -> Result<Core, Error> {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let stream = stream_of(&region, settings.policy)?.map(Lock::new);
    Ok(Core {
        number: NUMBER.fetch_add(1, Ordering::Relaxed),
        reach: settings.reach,
        members: Lock::default(),
        place: settings.started_at.clone(),
        pool: Pool::new(layout),
        region,
        layout,
        kinds: settings.kinds.bits(),
        every: AtomicU32::new(settings.every),
        least_ticks: in_ticks(ticks, settings.longer_than),
        recycle: matches!(settings.policy, Policy::Flight { .. }),
        details: settings.details,
        counts_omitted: settings.counts_omitted,
        paused: AtomicBool::new(settings.paused),
        modules: AtomicU32::new(0),
        pairs: Lock::default(),
        virtual_clock: settings.virtual_clock.clone(),
        stream,
    })
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

fn facts_of(settings: &Settings, ticks: Ticks, clock_reason: String) -> Facts {
    let own = Facts::of_process();
    let virtual_clock = Some(&settings.virtual_clock).filter(|clock| !clock.is_identity()).cloned();
    Facts {
        virtual_clock,
        rank: settings.rank.or(own.rank),
        ranks: settings.ranks.or(own.ranks),
        reach: settings.reach.as_str().into(),
        policy: settings.policy.as_str().into(),
        kinds: settings.kinds.iter().map(|kind| kind.as_str().to_owned()).collect(),
        clock: name_of(ticks).into(),
        clock_reason,
        every: settings.every,
        counts_omitted: settings.counts_omitted,
        details: Some(settings.details.names().map(str::to_owned).collect()),
        longer_than_ns: u64::try_from(settings.longer_than.as_nanos()).unwrap_or(u64::MAX),
        started_at: settings.started_at.clone(),
        ..own
    }
}

fn choices(facts: &Facts, core: &Core) -> Vec<String> {
    let layout = &core.layout;
    let place = core.region.file().map_or_else(
        || "in memory, lost if the process is killed".into(),
        |(_, path)| format!("in {}", path.display()),
    );
    vec![
        format!("clock {}: {}", facts.clock, facts.clock_reason),
        format!("{} bytes {place}", core.region.bytes()),
        format!("{} chunks of {} bytes, policy {}", layout.chunks, layout.chunk_bytes, facts.policy),
        format!("up to {} threads with their open scopes", layout.slots),
        format!("kinds {}", facts.kinds.join(", ")),
        format!("details {}", facts.details.as_deref().unwrap_or_default().join(", ")),
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
    store(header::WINDOWED, u64::from(settings.is_windowed()));
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
        return Err(Error::Setting { setting: "spill", reason: "the names of host and program are too long".into() });
    }
    store(header::WORDS, text.len() as u64);
    for (at, bytes) in text.chunks(WORD).enumerate() {
        let mut word = [0; WORD];
        word[..bytes.len()].copy_from_slice(bytes);
        store(header::WORDS + 1 + at, u64::from_le_bytes(word));
    }
    pairs::write_now(core, ticks);
    store(header::STATE, state::RECORDING);
    core.header(header::MAGIC).store(MAGIC, Ordering::Release);
    Ok(())
}

fn stream_of(region: &Region, policy: Policy) -> Result<Option<Stream>, Error> {
    let (Policy::Stream { .. }, Some((file, path))) = (policy, region.file()) else { return Ok(None) };
    let file = file.try_clone().map_err(|source| Error::File { path: path.to_path_buf(), source })?;
    Ok(Some(Stream::of(file)))
}

/// If set, every session reports on standard error what was chosen for it, and why.
const VERBOSE: &str = "PROBE_SYNC_RECORD_VERBOSE";
/// Over which the counter's rate is measured for filters.
const RATE_SPAN: Duration = Duration::from_millis(10);
