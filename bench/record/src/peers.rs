//! Other recorders, each used as its documentation recommends, excluding the work they do later on
//! their own threads.
//!
//! The table compares our recorder with them. The memory they keep until the end is released
//! between passes, outside the measured time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrace::collector::{Config, Reporter};
use fastrace::local::LocalSpan;
use fastrace::prelude::{Span, SpanContext, SpanRecord};
use perfetto_recorder::ThreadTraceData;
use tracing::Subscriber;
use tracing_chrome::ChromeLayerBuilder;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::measure::{Case, Effort, in_turn, time, time_on_two};
use crate::ours;
use crate::table::Table;

/// Fills in the rows.
///
/// # Errors
/// A recorder does not start.
pub fn measure(table: &mut Table, effort: Effort) -> Result<()> {
    let session = ours::session()?;
    perfetto_recorder::start().map_err(|error| anyhow::anyhow!("perfetto-recorder: {error}"))?;
    fastrace::set_reporter(Nowhere, Config::default());
    let (chrome, guard) = ChromeLayerBuilder::new().writer(Sink).build();
    let chrome = tracing::Dispatch::new(tracing_subscriber::registry().with(chrome));
    let nothing = tracing::Dispatch::new(tracing_subscriber::registry().with(Nothing));
    let with = |dispatch: &tracing::Dispatch, events| tracing::dispatcher::with_default(dispatch, || spans(events));
    let chrome_pass = |events, two| {
        let one = |events| with(&chrome, events);
        let took = if two { time_on_two(events, one) } else { one(events) };
        // Its thread is slower than this one, and keeps what it has not written.
        let before = FLUSHED.load(Ordering::Acquire);
        guard.flush();
        let deadline = Instant::now() + FLUSH_LIMIT;
        while FLUSHED.load(Ordering::Acquire) == before && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        took
    };
    let mut cases: Vec<Case<'_>> = vec![
        Box::new(ours::scopes),
        Box::new(perfetto),
        Box::new(|events| fast(events, 10)),
        Box::new(|events| chrome_pass(events / 2, false)),
        Box::new(|events| with(&nothing, events)),
        Box::new(|events| time_on_two(events, ours::scopes)),
        Box::new(|events| time_on_two(events, perfetto)),
        Box::new(|events| time_on_two(events, |events| fast(events, 10))),
        Box::new(|events| chrome_pass(events / 2, true)),
        Box::new(perfetto_reserved),
        Box::new(|events| fast(events, 1000)),
    ];
    let found = in_turn(effort, &mut cases);
    drop(cases);
    table.ratio("tracing, layer without effect", found[4], found[0], "our scope", None);
    for (name, at) in [
        ("perfetto-recorder", 1),
        ("perfetto-recorder, memory reserved and used before", 9),
        ("fastrace, 10 scopes of a root", 2),
        ("fastrace, 1000 scopes of a root", 10),
        ("tracing-chrome", 3),
    ] {
        table.ratio(name, found[at], found[0], "our scope", None);
    }
    for (name, at, ask) in [
        ("our scope, of perfetto-recorder", 1, 0.75),
        ("our scope, of fastrace", 2, 0.35),
        ("our scope, of tracing-chrome", 3, 0.05),
    ] {
        table.ratio(name, found[0], found[at], "theirs", Some(ask));
    }
    for (name, at, ask) in [
        ("2 threads: our scope, of perfetto-recorder", 6, 0.75),
        ("2 threads: our scope, of fastrace", 7, 0.35),
        ("2 threads: our scope, of tracing-chrome", 8, 0.05),
    ] {
        table.ratio(name, found[5], found[at], "theirs", Some(ask));
    }
    session.finish()?;
    Ok(())
}

/// It keeps everything until it is taken: its memory grows.
fn perfetto(events: u64) -> f64 {
    let took = time(events * 4, |_| drop(perfetto_recorder::start_span!("scope")));
    drop(ThreadTraceData::take_current_thread());
    took
}

fn perfetto_reserved(events: u64) -> f64 {
    perfetto_recorder::current_thread_reserve(events as usize * perfetto_recorder::EVENTS_PER_SPAN);
    let took = time(events, |_| drop(perfetto_recorder::start_span!("scope")));
    drop(ThreadTraceData::take_current_thread());
    took
}

/// Scopes are kept until their root's part on this thread ends: some ten thousand at most.
fn fast(events: u64, of_root: u64) -> f64 {
    let roots = (events / of_root).max(1);
    let took = time(roots, |_| {
        let root = Span::root("root", SpanContext::random());
        let _parent = root.set_local_parent();
        for _ in 0..of_root {
            drop(LocalSpan::enter_with_local_parent("scope"));
        }
    });
    fastrace::flush();
    took / of_root as f64
}

fn spans(events: u64) -> f64 {
    time(events, |_| drop(tracing::info_span!("scope").entered()))
}

/// Takes what tracing-chrome writes, and counts how often it has written all.
struct Sink;

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        FLUSHED.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

static FLUSHED: AtomicU64 = AtomicU64::new(0);
const FLUSH_LIMIT: Duration = Duration::from_secs(10);

/// Takes what fastrace has.
struct Nowhere;

impl Reporter for Nowhere {
    fn report(&mut self, _: Vec<SpanRecord>) {}
}

/// A layer that does nothing.
struct Nothing;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Nothing {
    fn on_enter(&self, _: &tracing::span::Id, _: Context<'_, S>) {}
}
