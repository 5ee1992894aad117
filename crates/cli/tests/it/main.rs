//! The command as its users run it: real processes, real packets on loopback, real signals.

mod adaptive;
mod book;
mod boot_clock;
mod clock;
mod convert;
mod databases;
mod days;
mod demo;
mod documents;
mod faults;
mod fences;
mod filtered;
mod foreign_peers;
mod gaps;
mod hang;
mod host_limits;
mod hosts;
mod master;
mod measure;
mod metrics;
mod mistakes;
mod modes;
mod omitted;
#[cfg(feature = "otf2")]
mod otf2;
#[cfg(feature = "otlp")]
mod otlp;
mod outputs;
mod per_round;
mod progress;
#[path = "../../../collective/tests/it/proxy.rs"]
mod proxy;
#[cfg(feature = "rocpd")]
mod query;
mod rank_zero_again;
mod readme;
mod reconnect;
mod record;
mod record_library;
mod record_time;
mod recorded;
mod recorder;
mod regional;
mod regions;
mod report;
mod schemas;
mod shell;
mod side_by_side;
mod sim;
mod snapshots;
mod standing;
mod statuses;
mod stragglers;
mod support;
mod tables;
mod terminal;
mod time_namespaces;
mod timed;
mod traces;
mod words;
mod xla;
