//! The report page: one HTML file that describes in words and charts how a run went.
//!
//! Flow: a run's directory (`run`) or a simulation ([`Simulated`]) gives rounds (`rounds`), which
//! `series` reads twice: once for trends and extremes, once for columns, thinned by `thin` where
//! the run is long; `edges` makes the map of who probed whom; `traces` adds what alignment moved
//! and who was late; `hang` shows who stopped a hung job. All of it is a
//! [`Page`]: `verdict` puts it into words, `data` is what charts draw, and `html` prints both by a
//! template, with styles and scripts inside.
//!
//! The same input gives the same bytes: no time of making, no path of the machine. Names of hosts
//! and events are hostile: the template escapes them, and the data block holds no `<`. The page's
//! policy lets nothing in from outside, and no script but those whose hashes it states.
//!
//! It does not judge traces (crates `alignment` and `analysis`), and it writes no other file than a
//! run's page at its end (`at_end`).
#![forbid(unsafe_code)]

mod at_end;
mod data;
mod edges;
mod error;
mod hang;
mod html;
mod limit;
mod number;
mod page;
mod quantity;
mod rounds;
mod run;
mod series;
mod simulation;
mod table;
mod thin;
mod traces;
mod verdict;

pub use at_end::{REPORT_PAGE, write_at_end};
pub use error::Error;
pub use hang::Hang;
pub use limit::Limit;
pub use page::Page;
pub use quantity::{signed, unsigned};
pub use run::page_of_run;
pub use simulation::{Sample, Simulated};
pub use table::Table;
pub use traces::Traces;
pub use verdict::Mood;
