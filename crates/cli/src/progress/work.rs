//! Progress of the long work of one process, with an estimate of the time remaining if the completed
//! share is known.
//!
//! Nothing is said of work that is over within two seconds.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{DecimalBytes, ProgressBar, ProgressState};

use super::drawn::{draw, draws, style};

/// Work in progress.
pub struct Work {
    what: String,
    begun: Instant,
    shown: Mutex<Shown>,
}

struct Shown {
    bar: Option<ProgressBar>,
    /// If nothing is drawn: when the next line is due.
    next_line: Duration,
}

impl Work {
    /// Begins now; `what` is a word or two, for example "merge".
    pub fn begin(what: impl Into<String>) -> Self {
        let shown = Mutex::new(Shown { bar: None, next_line: UNSAID });
        Self { what: what.into(), begun: Instant::now(), shown }
    }

    /// Reports that this share of the work is done, 0 to 1, in terms of time; `doing` is the next
    /// step. Shares of several threads may come in any order.
    pub fn at(&self, share: f64, doing: &str) {
        let style = "{msg} {bar:20} {percent:>3} % after {elapsed}{left}";
        let what = format!("{}, {doing}", self.what);
        self.show(style, (share * PARTS as f64) as u64, &what, |elapsed| {
            format!("{what}: {:.0} % after {}{}", share * 100.0, seconds(elapsed), left(elapsed, share))
        });
    }

    /// Reports that this many bytes have been read, of traces of this size, if it is known; they are
    /// read once or more often.
    pub fn read(&self, bytes: u64, of: Option<u64>) {
        let of = of.map_or_else(String::new, |size| format!(" of traces of {}", DecimalBytes(size)));
        let what = format!("{}: {} read{of}", self.what, DecimalBytes(bytes));
        self.show("{msg} after {elapsed}", 0, &what, |elapsed| format!("{what} after {}", seconds(elapsed)));
    }

    /// Draws the state, or prints a line if one is due.
    fn show(&self, template: &str, position: u64, message: &str, line: impl FnOnce(Duration) -> String) {
        let elapsed = self.begun.elapsed();
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if elapsed < shown.next_line {
            return;
        }
        if shown.bar.is_none() && draws() {
            let bar = ProgressBar::new(PARTS).with_elapsed(elapsed);
            let style = style(template).progress_chars("##-");
            shown.bar = Some(draw(bar, style.with_key("left", write_left).with_key("elapsed", write_elapsed)));
        }
        match &shown.bar {
            Some(bar) => {
                bar.set_position(position);
                bar.set_message(message.to_owned());
            }
            None => {
                shown.next_line = elapsed + if elapsed < EARLY { UNSAID } else { BETWEEN_LINES };
                tracing::info!("{}", line(elapsed));
            }
        }
    }

    /// Removes what is drawn.
    pub fn finish(&self) {
        if let Some(bar) = &self.shown.lock().unwrap_or_else(PoisonError::into_inner).bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Estimated remaining time at the present speed.
fn write_left(state: &ProgressState, text: &mut dyn fmt::Write) {
    // A closed terminal is nobody to tell.
    let _ = write!(text, "{}", left(state.elapsed(), f64::from(state.fraction())));
}

/// Elapsed time.
fn write_elapsed(state: &ProgressState, text: &mut dyn fmt::Write) {
    let _ = write!(text, "{}", seconds(state.elapsed()));
}

fn left(elapsed: Duration, share: f64) -> String {
    if share < KNOWN {
        return String::new();
    }
    format!(", about {} left", seconds(elapsed.mul_f64((1.0 - share).max(0.0) / share)))
}

fn seconds(length: Duration) -> String {
    match length.as_secs() {
        0..120 => format!("{} s", length.as_secs()),
        120..7200 => format!("{} min", (length.as_secs() + 30) / 60),
        more => format!("{:.1} h", more as f64 / 3600.0),
    }
}

/// Shorter work prints nothing.
const UNSAID: Duration = Duration::from_secs(2);
/// Interval of the lines if nothing is drawn; the first ones come somewhat more often.
const BETWEEN_LINES: Duration = Duration::from_secs(10);
const EARLY: Duration = Duration::from_secs(8);
/// Below this share the remaining time cannot be estimated.
const KNOWN: f64 = 0.02;
const PARTS: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_told_in_units_of_its_size() {
        let of = |elapsed, share| left(Duration::from_secs(elapsed), share);
        assert_eq!(of(10, 0.01), "");
        assert_eq!(of(10, 0.25), ", about 30 s left");
        assert_eq!(of(600, 0.5), ", about 10 min left");
        assert_eq!(of(3600, 0.2), ", about 4.0 h left");
        assert_eq!(of(10, 1.0), ", about 0 s left");
    }
}
