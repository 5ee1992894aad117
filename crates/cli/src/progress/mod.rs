//! Progress display: redrawn in place on a terminal, an occasional line elsewhere.
//!
//! A run ([`RunProgress`]) and the long work of one process ([`Work`], [`Reading`]) share one
//! display (`drawn`), and anything written to standard error or printed meanwhile stays above it
//! ([`AboveTheLine`], [`suspended`]).

mod drawn;
mod reading;
mod run;
mod work;

pub use drawn::{AboveTheLine, suspended};
pub use reading::Reading;
pub use run::RunProgress;
pub use work::Work;
