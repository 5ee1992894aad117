//! What a person sees while work goes on: on a terminal drawn in place, elsewhere a line now and then.
//!
//! Place in the flow: beside a run ([`RunProgress`]) or long work of one process ([`Work`], [`Reading`]); all draw one thing at a time ([`draw`]), and what is written to
//! standard error meanwhile stays above it ([`AboveTheLine`]). What it does not do: decide what is told at all ([`crate::log::Telling`]).

mod reading;
mod run;
mod work;

use std::io::{IsTerminal as _, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

pub use reading::Reading;
pub use run::RunProgress;
pub use work::Work;

use crate::log;

/// Whether something is drawn in place: standard error is a terminal, and a person asked for text.
fn draws() -> bool {
    log::telling().draws() && std::io::stderr().is_terminal()
}

/// Begins to draw in place.
fn draw(bar: ProgressBar, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner());
    bar.set_style(
        style.with_key("left", work::write_left).with_key("elapsed", work::write_elapsed).progress_chars("##-"),
    );
    bar.enable_steady_tick(REDRAW);
    *DRAWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
    bar
}

/// Standard error, where it does not run into what is drawn in place: what is written there stays above it.
pub struct AboveTheLine;

impl Write for AboveTheLine {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        suspended(|| std::io::stderr().write(text))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// Does something to the screen while nothing is drawn in place.
pub fn suspended<T>(act: impl FnOnce() -> T) -> T {
    let bar = DRAWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar.filter(|bar| !bar.is_finished()) {
        Some(bar) => bar.suspend(act),
        None => act(),
    }
}

/// What is drawn in place.
static DRAWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

const REDRAW: Duration = Duration::from_millis(250);
