//! The simulator against itself and against the endpoints' books.
mod accounting;
mod adaptive;
mod estimate;
mod faults;
mod injected;
mod paths;
mod replayed;
mod rounds;
mod running;
mod scenarios;
mod swinging;
mod truth;
