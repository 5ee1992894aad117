//! What is drawn in place at the foot of a terminal, one thing at a time, and how everything else
//! stays above it.

use std::io::{IsTerminal as _, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressStyle};

use crate::screen;
use crate::telling::{LogFormat, telling};

/// Whether progress is drawn in place: standard error is a terminal, and text output was requested.
pub fn draws() -> bool {
    telling().draws() && std::io::stderr().is_terminal()
}

/// Begins to draw in place.
pub fn draw(bar: ProgressBar, style: ProgressStyle) -> ProgressBar {
    bar.set_style(style);
    bar.enable_steady_tick(REDRAW);
    *DRAWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
    bar
}

/// Parses an indicatif template, which is correct by construction.
pub fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// Standard error, above what is drawn in place.
pub struct AboveTheLine;

impl Write for AboveTheLine {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        if telling().log_format == LogFormat::Json {
            return suspended(|| std::io::stderr().write_all(text)).map(|()| text.len());
        }
        // A message comes in one piece, and is written in one.
        let message = screen::shown(&String::from_utf8_lossy(text), &Term::stderr());
        suspended(|| std::io::stderr().write_all(message.as_bytes())).map(|()| text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// Runs `act` while nothing is drawn in place.
pub fn suspended<T>(act: impl FnOnce() -> T) -> T {
    let bar = DRAWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar.filter(|bar| !bar.is_finished()) {
        Some(bar) => bar.suspend(act),
        None => act(),
    }
}

/// The bar drawn in place.
static DRAWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

const REDRAW: Duration = Duration::from_millis(250);
