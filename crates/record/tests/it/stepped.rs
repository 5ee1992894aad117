//! Tests in which a signal handler records between any two instructions of the recorder: each of
//! its events must be either recorded or counted.
//!
//! The thread that is tried runs instruction by instruction (`ptrace`), in a process of its own;
//! before each of them a signal comes, whose handler records. Timers find such moments once in some
//! 10⁵ signals, or never.
//!
//! They do not interrupt a thread while it has its signals blocked.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use probe_sync_record::{Builder, Kind, Policy, Reach, Recorder, Recording, Scope, Site, correlate};
use probe_sync_record::{counter, flow, instant, scope, span};

use crate::child;
use crate::signals::{HANDLED, handle_with, record};
use crate::support::{Tally, alone, tallies};

/// Messages of the thread to its tracer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Mark {
    /// From now on a signal before every `stride`-th instruction.
    Begin = 1,
    End = 2,
    /// The handler is about to return.
    Handled = 3,
    /// From now on one signal, before the `stride`-th instruction.
    Once = 4,
}

#[inline(always)]
fn mark(mark: Mark, stride: u64) {
    // SAFETY: a breakpoint; the tracer goes on behind it, with all registers as they are.
    unsafe { std::arch::asm!("int3", in("rax") mark as u64, in("rdx") stride) };
}

extern "C" fn handler(signal: libc::c_int) {
    record(signal);
    mark(Mark::Handled, 0);
}

/// Runs on a thread that the parent traces from here on.
fn traced(body: impl FnOnce() + Send + 'static) {
    handle_with(libc::SIGUSR1, handler);
    let body = || {
        // SAFETY: the parent waits for this thread.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) }, 0, "ptrace is allowed here");
        body();
    };
    std::thread::Builder::new().name("traced".into()).spawn(body).expect("a thread").join().expect("no panic");
}

/// What the recording holds is what was made.
fn close(recording: &Recording, own: u64) {
    let (threads, status) = (tallies(recording), recording.status());
    let sum = |of: fn(&Tally) -> u64| threads.values().map(of).sum::<u64>();
    let [recorded, interrupted] = [sum(Tally::events), sum(|tally| tally.interrupted) + status.interrupted];
    let lost = sum(|tally| tally.lost) + status.lost.events;
    let handled = HANDLED.load(Ordering::Relaxed);
    eprintln!(
        "{handled} handled, {own} own: {recorded} recorded, {interrupted} interrupted, {lost} lost, {} replaced",
        status.replaced
    );
    assert_eq!(recorded + interrupted + lost + status.replaced, handled + own);
    assert!(interrupted > 0 && recorded > 0, "handlers came within events, and between them");
}

fn session(policy: &str) -> Builder {
    let policy = match policy {
        "flight" => Policy::Flight { bytes: 512 << 10 },
        "stream" => Policy::Stream { bytes: 512 << 10, every: Duration::from_millis(1) },
        _ => Policy::DropNewest { bytes: 512 << 10 },
    };
    Recorder::builder().policy(policy).threads(2)
}

/// Every sort of event, from a thread's first; how many there are.
fn events(rounds: u64) -> u64 {
    for n in 0..rounds {
        let outer = scope!("outer", n = n, text = "some text");
        let _id = correlate(n);
        drop(scope!("inner"));
        instant!("moment", n = n);
        counter!("value", n as f64);
        flow!(Out, "flow", n);
        outer.argument(0, &n);
        let span = span!("span");
        // Closed with the one around it.
        std::mem::forget(scope!("forgotten"));
        drop(outer);
        span.end();
    }
    8 * rounds
}

/// Runs in the child: what the thread does under the signals.
pub fn run(task: &str, folder: &Path) {
    static OWN: AtomicU64 = AtomicU64::new(0);
    let builder = match task {
        "stream" => session("stream").spill(folder.join("stepped.rec")),
        _ => session(task),
    };
    let session = builder.start().expect("a fresh process");
    match task {
        "ends" => traced(|| {
            mark(Mark::Begin, 1);
            drop(scope!("only"));
            OWN.store(1, Ordering::Relaxed);
            // It goes on until the thread is gone.
        }),
        "first" => {
            for nth in 1..=FIRST {
                traced(move || {
                    mark(Mark::Once, nth);
                    drop(scope!("first"));
                    mark(Mark::End, 0);
                });
            }
            OWN.store(FIRST, Ordering::Relaxed);
            assert_eq!(session.counts().threads, 0, "a thread has one slot, and it comes back");
        }
        "names" => traced(|| {
            mark(Mark::Begin, 1);
            for n in ["one", "two", "one"] {
                let scope = Scope::enter(Site::named(Kind::User, n).expect("few"));
                scope.argument_named(n, &1_u64);
            }
            mark(Mark::End, 0);
            OWN.store(3, Ordering::Relaxed);
        }),
        "sessions" => {
            let adopter = session.adopter();
            traced(move || {
                mark(Mark::Begin, 23);
                let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 512 << 10 });
                let own = builder.threads(1).start().expect("few");
                drop(scope!("within"));
                let adopted = own.adopter().adopt();
                drop(scope!("adopted"));
                drop(adopted);
                let other = adopter.adopt();
                drop(other);
                drop(own);
                drop(scope!("after"));
                mark(Mark::End, 0);
                OWN.store(3, Ordering::Relaxed);
            });
        }
        _ => traced(|| {
            mark(Mark::Begin, 1);
            let own = events(ROUNDS);
            mark(Mark::End, 0);
            OWN.store(own, Ordering::Relaxed);
        }),
    }
    close(&session.finish().expect("whole"), OWN.load(Ordering::Relaxed));
}

/// Follows a child's threads that asked for it, to the child's end; how often the handler ran.
#[expect(clippy::zombie_processes, reason = "it is waited for with its threads")]
fn follow(task: &str, folder: &Path) -> u64 {
    let child = child::start(&format!("stepped {task}"), folder);
    let own = libc::pid_t::try_from(child.id()).expect("a process");
    let (mut threads, mut handled) = (BTreeMap::<libc::pid_t, Stepping>::new(), 0);
    loop {
        let mut status = 0;
        // SAFETY: waits for children of this thread alone, and those it traces.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        assert!(pid > 0, "{}", std::io::Error::last_os_error());
        if libc::WIFSTOPPED(status) {
            let thread = threads.entry(pid).or_default();
            let (request, signal) = thread.next(pid, libc::WSTOPSIG(status));
            handled += u64::from(signal == SIGNAL);
            // SAFETY: the thread is stopped and ours.
            unsafe { libc::ptrace(request, pid, 0, libc::c_long::from(signal)) };
        } else if pid == own {
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{task}: {status:#x}");
            return handled;
        }
    }
}

/// A thread that is followed.
#[derive(Default)]
struct Stepping {
    /// 0: it runs freely.
    stride: u64,
    boundaries: u64,
    once: bool,
    /// The handler has run, and returns to the instruction before which it came.
    returns: bool,
}

impl Stepping {
    /// It has stopped: returns how it continues, and with which signal.
    fn next(&mut self, pid: libc::pid_t, signal: libc::c_int) -> (libc::c_uint, libc::c_int) {
        let go_on = |stride| if stride == 0 { libc::PTRACE_CONT } else { libc::PTRACE_SINGLESTEP };
        if signal != libc::SIGTRAP {
            return (go_on(self.stride), signal);
        }
        if is_breakpoint(pid) {
            let [mark, stride] = words(pid);
            match mark {
                mark if mark == Mark::Handled as u64 && self.once => self.stride = 0,
                mark if mark == Mark::Handled as u64 => self.returns = true,
                _ => (self.stride, self.once) = (stride, mark == Mark::Once as u64),
            }
            return (go_on(self.stride), 0);
        }
        if is_blocked(pid) || std::mem::take(&mut self.returns) {
            return (go_on(self.stride), 0);
        }
        self.boundaries += 1;
        match self.boundaries % self.stride {
            0 => (libc::PTRACE_CONT, SIGNAL),
            _ => (go_on(self.stride), 0),
        }
    }
}

fn is_breakpoint(pid: libc::pid_t) -> bool {
    // SAFETY: zero is such a structure, and the call writes one.
    let mut of: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, pid, 0, &raw mut of) }, 0);
    of.si_code == libc::SI_KERNEL
}

/// What [`mark`] has put into registers.
fn words(pid: libc::pid_t) -> [u64; 2] {
    // SAFETY: zero is such a structure, and the call writes one.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut registers) }, 0);
    [registers.rax, registers.rdx]
}

fn is_blocked(pid: libc::pid_t) -> bool {
    let mut mask = 0_u64;
    // SAFETY: the kernel's set of signals is a word, which the call writes.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_GETSIGMASK, pid, size_of::<u64>(), &raw mut mask) }, 0);
    mask >> (SIGNAL - 1) & 1 == 1
}

/// So many instructions are enough for a thread to get its block, and to be within its first event.
const FIRST: u64 = 600;
/// So many fill the session, with what the handlers make.
const ROUNDS: u64 = 12;
const SIGNAL: libc::c_int = libc::SIGUSR1;

/// Whether this process may trace its children: containers may forbid it.
fn may_trace() -> bool {
    // SAFETY: the child makes two calls that are safe after a fork, and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    pid > 0 && unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid && status == 0
}

fn check(task: &str, least: u64) {
    // The fork is of this process, in which another test may have a session; what is followed is a
    // process of its own.
    let allowed = {
        let _alone = alone();
        may_trace()
    };
    if !allowed {
        eprintln!("skipped: this process may not trace its children");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let handled = follow(task, folder.path());
    assert!(handled >= least, "{task}: only {handled}");
}

#[test]
#[ignore = "long: steps a thread through every instruction"]
fn handlers_come_before_every_instruction_of_events() {
    // Side by side: they take most of the time of all tests here.
    std::thread::scope(|scope| {
        for policy in ["drop_newest", "flight", "stream"] {
            scope.spawn(move || check(policy, 10_000));
        }
    });
}

#[test]
fn handlers_come_before_every_instruction_of_a_thread_that_ends() {
    check("ends", 1000);
}

#[test]
#[ignore = "long: steps a thread through every instruction"]
fn handlers_come_before_every_instruction_of_a_threads_first_event() {
    check("first", FIRST);
}

#[test]
fn handlers_come_before_every_instruction_that_makes_names() {
    check("names", 1000);
}

#[test]
#[ignore = "long: steps a thread through every instruction"]
fn handlers_come_between_instructions_that_start_and_stop_sessions() {
    check("sessions", 1000);
}
