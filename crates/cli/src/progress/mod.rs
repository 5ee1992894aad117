//! What a person sees while work goes on: on a terminal drawn in place, elsewhere a line now and then.
//!
//! Place in the flow: beside a run ([`RunProgress`]) or long work of one process ([`Work`], [`Reading`]); all draw one thing at a time (`drawn`), and what is written to
//! standard error or printed meanwhile stays above it ([`AboveTheLine`], [`suspended`]). What it does not do: decide what is told at all ([`crate::telling::Telling`]).

mod drawn;
mod reading;
mod run;
mod work;

pub use drawn::{AboveTheLine, suspended};
pub use reading::Reading;
pub use run::RunProgress;
pub use work::Work;
