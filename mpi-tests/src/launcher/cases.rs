//! The actions of the last rank's launcher, and the expected reports of the sessions.

use std::path::Path;
use std::time::{Duration, Instant};

use mpi::collective::SystemOperation;
use mpi::environment::Threading;
use mpi::ffi;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::{AsRaw as _, Communicator, CommunicatorCollectives as _};
use probe_sync::mpi::MpiMessages;
use probe_sync::{Config, Progress, Session};

use super::Case;

/// The level that a case needs.
pub(crate) fn level(case: Case) -> Threading {
    match case {
        Case::Finalises | Case::ThreadsMultiple => Threading::Multiple,
        Case::ThreadsSerialized => Threading::Serialized,
        _ => Threading::Funneled,
    }
}

/// MPI is not initialised yet.
pub(crate) fn before_mpi() -> Result<(), String> {
    // SAFETY: nothing is done with the communicator: MPI does not run.
    refused(unsafe { MpiMessages::beside(ffi::RSMPI_COMM_WORLD) }, "MPI is not initialised")
}

/// The others learn who is late, of rank 0 unless it is rank 0, and their allreduces go on. The
/// rank itself learns it from its next step.
pub(crate) fn silent(world: &SimpleCommunicator, out: &Path, silent: i32) -> Result<(), String> {
    let session = start(world, out)?;
    until_measuring(world, &session)?;
    let text = until_failed(world, &session, world.rank() != silent)?;
    let is_silent_root = world.rank() == silent && silent == 0;
    let judged = |text: &str| match text {
        text if is_silent_root && text.contains("step() has moved no messages for") => Ok(()),
        text => named(text, "no data from rank(s)", silent),
    };
    judged(&text)?;
    let error = session.stop().err().ok_or("a session that has failed stops in order")?.to_string();
    judged(&error)
}

/// A rank that comes back in time is waited for: rounds continue.
pub(crate) fn pauses(world: &SimpleCommunicator, out: &Path) -> Result<(), String> {
    let session = start(world, out)?;
    until_measuring(world, &session)?;
    let before = rounds(&session);
    let pause = Instant::now();
    while all(world, pause.elapsed() > PAUSE) < 1 {
        if world.rank() != last(world) {
            session.step(BUDGET).map_err(text)?;
        }
    }
    let limit = Instant::now();
    while all(world, rounds(&session) > before + 2) < 1 {
        session.step(BUDGET).map_err(text)?;
        in_time(limit, "rounds after the pause")?;
    }
    session.stop().map_err(text)?;
    Ok(())
}

/// The others are told at once.
pub(crate) fn lets_go(world: &SimpleCommunicator, out: &Path) -> Result<(), String> {
    let session = start(world, out)?;
    until_measuring(world, &session)?;
    let last = last(world);
    if world.rank() == last {
        drop(session);
        let limit = Instant::now();
        while all(world, true) < 1 {
            in_time(limit, "the others' sessions to fail")?;
        }
        return Ok(());
    }
    let text = until_failed(world, &session, true)?;
    if text.contains(&format!("rank {last} ended the run")) && text.contains("without calling stop()") {
        return Ok(());
    }
    Err(format!("does not say that rank {last} has let go: {text}"))
}

/// The others name the rank that finalises MPI with a session; that rank gets its session back
/// here.
pub(crate) fn until_finalise(world: &SimpleCommunicator, out: &Path) -> Result<Option<Session>, String> {
    let (rank, last) = (world.rank(), last(world));
    let session = start(world, out)?;
    until_measuring(world, &session)?;
    let others = world.split_by_color(Color::with_value(i32::from(rank == last))).ok_or("no communicator")?;
    if rank == last {
        return Ok(Some(session));
    }
    let text = until_failed(&others, &session, true)?;
    named(&text, "no data from rank(s)", last)?;
    Ok(None)
}

/// MPI was finalised with this session: it fails, and calls MPI no more.
pub(crate) fn after_finalise(session: &Session) -> Result<(), String> {
    let limit = Instant::now();
    loop {
        if let Err(error) = step(session) {
            if error.contains("MPI_Finalize was called while the session was running") {
                break;
            }
            return Err(format!("does not speak of MPI_Finalize: {error}"));
        }
        in_time(limit, "this session to fail")?;
        std::thread::sleep(COMPUTING);
    }
    // SAFETY: nothing is done with the communicator: MPI does not run any more.
    refused(unsafe { MpiMessages::beside(ffi::RSMPI_COMM_WORLD) }, "MPI is already finalised")
}

/// Every rank is told what is wrong; afterwards a session works.
pub(crate) fn wrong_uses(world: &SimpleCommunicator, out: &Path) -> Result<(), String> {
    // SAFETY: no communicator.
    refused(unsafe { MpiMessages::beside(ffi::RSMPI_COMM_NULL) }, "MPI_COMM_NULL")?;
    let elsewhere = std::thread::spawn(|| {
        // SAFETY: a valid communicator; the thread level refuses it before it is used.
        refused(unsafe { MpiMessages::beside(ffi::RSMPI_COMM_WORLD) }, "start the session there")
    });
    elsewhere.join().map_err(|_| "a panic")??;
    if world.size() > 1 {
        refused(between_halves(world)?, "intercommunicator")?;
    }
    let beside = out.with_extension(format!("alone{}", world.rank()));
    let alone = Session::builder(Config { out: beside, ..Config::default() }).start().map_err(text)?;
    let error = alone.step(BUDGET).err().ok_or("a session on its own thread takes steps")?.to_string();
    if alone.needs_step() || !error.contains("needs_step()") {
        return Err(format!("a session on its own thread: {error}"));
    }
    drop(alone);
    let session = start(world, out)?;
    until_measuring(world, &session)?;
    let elsewhere = || session.step(BUDGET).err().map(|error| error.to_string()).unwrap_or_default();
    let error = std::thread::scope(|scope| scope.spawn(elsewhere).join()).map_err(|_| "a panic")?;
    if !error.contains("wrong thread") {
        return Err(format!("a step on another thread: {error}"));
    }
    session.stop().map_err(text)?;
    Ok(())
}

/// A communicator between the even and the odd ranks.
fn between_halves(world: &SimpleCommunicator) -> Result<Result<MpiMessages, probe_sync::collective::Error>, String> {
    let own = world.split_by_color(Color::with_value(world.rank() % 2)).ok_or("no communicator")?;
    // SAFETY: both leaders are of the world, and all ranks come here; the handle is used before MPI
    // ends.
    unsafe {
        let mut between = ffi::RSMPI_COMM_NULL;
        let other = (world.rank() + 1) % 2;
        let code = ffi::MPI_Intercomm_create(own.as_raw(), 0, world.as_raw(), other, 1, &mut between);
        if code != ffi::MPI_SUCCESS as i32 {
            return Err(format!("MPI_Intercomm_create: {code}"));
        }
        Ok(MpiMessages::beside(between))
    }
}

fn start(world: &SimpleCommunicator, out: &Path) -> Result<Session, String> {
    let mut config = Config { out: out.to_owned(), ..Config::default() };
    let settings = [("window", "250ms"), ("inject_skew", "7"), ("round_timeout", ROUND_TIMEOUT)];
    for (key, value) in settings {
        config.set(key, value, "launchers").map_err(text)?;
    }
    let messages = MpiMessages::of(world).map_err(|error| error.to_string())?;
    Session::builder(config).over(messages).start().map_err(text)
}

/// The launcher's own loop, until every rank has seen a round.
fn until_measuring(world: &SimpleCommunicator, session: &Session) -> Result<(), String> {
    let limit = Instant::now();
    while all(world, rounds(session) > 0) < 1 {
        step(session)?;
        in_time(limit, "the first round")?;
    }
    Ok(())
}

/// The launcher's own loop, until the sessions of all ranks have failed; what this rank's said. Who
/// steps no more looks at the state alone, and steps once the others are done.
fn until_failed(world: &SimpleCommunicator, session: &Session, steps: bool) -> Result<String, String> {
    let (limit, mut failed) = (Instant::now(), None);
    while all(world, failed.is_some() || !steps) < 1 {
        if failed.is_none() && steps {
            failed = step(session).err();
        }
        in_time(limit, "sessions to fail")?;
    }
    while failed.is_none() {
        failed = step(session).err();
        in_time(limit, "this session to fail")?;
    }
    // Rank 0 has told everybody by the time that everybody has failed.
    failed.ok_or_else(|| "the session goes on".into())
}

/// Moves the session on, on whichever thread it is.
fn step(session: &Session) -> Result<(), String> {
    if session.needs_step() {
        return session.step(BUDGET).map_err(text);
    }
    match session.progress() {
        Progress::Failed(reason) => Err(reason),
        _ => Ok(()),
    }
}

/// The launcher's own allreduce: 1 where it holds on all ranks. It also sums something that must
/// come out right.
fn all(world: &SimpleCommunicator, holds: bool) -> i32 {
    std::thread::sleep(COMPUTING);
    let (mut sum, mut holding) = (0, 0);
    world.all_reduce_into(&(world.rank() + 1), &mut sum, SystemOperation::sum());
    assert_eq!(sum, world.size() * (world.size() + 1) / 2, "an allreduce of the launcher's");
    world.all_reduce_into(&i32::from(holds), &mut holding, SystemOperation::min());
    holding
}

fn rounds(session: &Session) -> u64 {
    session.round().map_or(0, |round| round.round_id.0 + 1)
}

pub(crate) fn last(world: &SimpleCommunicator) -> i32 {
    world.size() - 1
}

fn named(error: &str, what: &str, rank: i32) -> Result<(), String> {
    if error.contains(&format!("{what} {rank} ")) { Ok(()) } else { Err(format!("does not name rank {rank}: {error}")) }
}

fn refused<E: std::fmt::Display>(result: Result<MpiMessages, E>, expected: &str) -> Result<(), String> {
    match result {
        Err(error) if error.to_string().contains(expected) => Ok(()),
        Err(error) => Err(format!("refused, but not with \"{expected}\": {error}")),
        Ok(_) => Err(format!("not refused: {expected}")),
    }
}

fn in_time(since: Instant, what: &str) -> Result<(), String> {
    if since.elapsed() < LIMIT { Ok(()) } else { Err(format!("{LIMIT:?} were not enough for {what}")) }
}

#[expect(clippy::needless_pass_by_value, reason = "used as a function value for map_err")]
fn text(error: probe_sync::Error) -> String {
    error.to_string()
}

const BUDGET: Duration = Duration::from_micros(500);
const COMPUTING: Duration = Duration::from_millis(2);
const ROUND_TIMEOUT: &str = "2s";
/// Shorter than that, longer than several rounds.
const PAUSE: Duration = Duration::from_millis(1200);
const LIMIT: Duration = Duration::from_secs(40);
