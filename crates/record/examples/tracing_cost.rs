//! What a span of `tracing` costs with this crate's layer, beside a layer that does nothing:
//! processor time of one thread, taken in turns.
//!
//! `cargo run --release -p probe-sync-record --features tracing --example tracing_cost`

use std::time::Duration;

use probe_sync_record::tracing::RecordLayer;
use probe_sync_record::{Error, Policy, Recorder};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer, Registry, registry};

struct Nothing;

impl Layer<Registry> for Nothing {
    fn on_new_span(
        &self,
        attributes: &tracing::span::Attributes<'_>,
        _: &tracing::Id,
        _: tracing_subscriber::layer::Context<'_, Registry>,
    ) {
        std::hint::black_box(attributes);
    }
}

fn main() -> Result<(), Error> {
    let session = Recorder::builder().policy(Policy::Flight { bytes: 64 << 20 }).start()?;
    let subscribers: [(&str, tracing::Dispatch); 2] = [
        ("a layer that does nothing", registry().with(Nothing).into()),
        ("the recorder's", registry().with(RecordLayer::new()).into()),
    ];
    let mut best = [[Duration::MAX; 2]; 2];
    for _ in 0..ROUNDS {
        for (of_layer, (_, subscriber)) in best.iter_mut().zip(&subscribers) {
            tracing::dispatcher::with_default(subscriber, || {
                of_layer[0] = of_layer[0].min(cost(|_| tracing::info_span!("span").in_scope(|| ())));
                of_layer[1] = of_layer[1].min(cost(|step| tracing::info_span!("span", step).in_scope(|| ())));
            });
        }
    }
    for ((name, _), [plain, with_field]) in subscribers.iter().zip(best) {
        let ns = |all: Duration| all.as_nanos() as f64 / f64::from(SPANS);
        println!("{name}: {:.1} ns a span, {:.1} ns with an integer field", ns(plain), ns(with_field));
    }
    let ratio = |at: usize| best[1][at].as_secs_f64() / best[0][at].as_secs_f64();
    println!("ratio {:.2}, {:.2}", ratio(0), ratio(1));
    drop(session.finish()?);
    Ok(())
}

/// Processor time of many spans.
fn cost(mut span: impl FnMut(u32)) -> Duration {
    let before = processor_time();
    for step in 0..SPANS {
        span(step);
    }
    processor_time().saturating_sub(before)
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

const SPANS: u32 = 200_000;
const ROUNDS: u32 = 30;
