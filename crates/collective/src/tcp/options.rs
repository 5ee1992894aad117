//! How the ranks of a TCP group are connected, and the time limit of each step.
//!
//! [`super::Tcp::host`] and [`super::Tcp::join`] read the environment
//! ([`TcpOptions::from_variables`]); tests and other programs can pass their own options.

use std::time::Duration;

use crate::Error;

/// Topology of the connections.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FanOut {
    /// A star for up to 128 ranks, otherwise a tree in which each forwards for 16.
    Auto,
    /// The root is connected to each rank directly.
    Star,
    /// A tree in which each rank forwards for this many others.
    Tree(usize),
}

/// Options of a TCP group. The fan-out must be equal on all ranks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// Topology of the connections. `PROBE_SYNC_TCP_FANOUT`: `auto` (the default), `star`, or a
    /// number from 2 on.
    pub fan_out: FanOut,
    /// Send frames between ranks of the root's own host through a Unix-domain socket if possible;
    /// never in a tree. `PROBE_SYNC_TCP_LOCAL`: `unix` (the default) or `tcp`.
    pub local: bool,
    /// Time limit for the greeting and the proof of a connecting rank, and for the other side's
    /// first answer. `PROBE_SYNC_TCP_GREETING_TIMEOUT`, 5 s.
    pub greeting: Duration,
    /// Time limit of a single attempt to connect. `PROBE_SYNC_TCP_CONNECT_TIMEOUT`, 1 s.
    pub connect: Duration,
    /// How long a process in the place of a lost rank waits for that place: longer than a round
    /// waits for the process that had it, whose host may have lost power.
    /// `PROBE_SYNC_TCP_PLACE_TIMEOUT`, 600 s.
    pub place: Duration,
    /// Time limit for the statement of a returning rank, which first binds its socket and tests its
    /// stamps. `PROBE_SYNC_TCP_STATEMENT_TIMEOUT`, 60 s.
    pub statement: Duration,
    /// At the root: time after which it begins with the ranks that have joined, at least one, and
    /// lets the others join later ([`Admission`](crate::Admission)); `None`: wait for all.
    pub begin_after: Option<Duration>,
    /// Require ranks of one host to be processes of this user or of root: for keys that others can
    /// guess.
    pub same_user: bool,
}

impl Default for TcpOptions {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            fan_out: FanOut::Auto,
            local: true,
            greeting: seconds(5),
            connect: seconds(1),
            place: seconds(600),
            statement: seconds(60),
            begin_after: None,
            same_user: false,
        }
    }
}

impl TcpOptions {
    /// Reads the options from this process's environment.
    ///
    /// # Errors
    /// [`Error::Setup`] names the variable and its valid values.
    pub fn from_environment() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads the options from these variables.
    ///
    /// # Errors
    /// Errors of [`TcpOptions::from_environment`].
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let mut options = Self::default();
        if let Some(text) = variable(FAN_OUT) {
            options.fan_out = match text.trim() {
                "auto" => FanOut::Auto,
                "star" => FanOut::Star,
                number => match number.parse() {
                    Ok(ranks @ 2..=4096) => FanOut::Tree(ranks),
                    _ => {
                        return Err(refused(
                            FAN_OUT,
                            &text,
                            "auto, star, or the number of ranks that each rank relays for, 2 to 4096",
                        ));
                    }
                },
            };
        }
        if let Some(text) = variable(LOCAL) {
            options.local = match text.trim() {
                "unix" => true,
                "tcp" => false,
                _ => return Err(refused(LOCAL, &text, "unix or tcp")),
            };
        }
        for (name, value) in [
            ("PROBE_SYNC_TCP_GREETING_TIMEOUT", &mut options.greeting),
            ("PROBE_SYNC_TCP_CONNECT_TIMEOUT", &mut options.connect),
            ("PROBE_SYNC_TCP_PLACE_TIMEOUT", &mut options.place),
            ("PROBE_SYNC_TCP_STATEMENT_TIMEOUT", &mut options.statement),
        ] {
            if let Some(text) = variable(name) {
                *value = seconds(&text).ok_or_else(|| refused(name, &text, "a time from 1ms to 86400s, in ms or s"))?;
            }
        }
        Ok(options)
    }

    /// Returns the number of ranks for which a rank of a group of `size` forwards; 0 in a star.
    pub(super) fn ranks_below(&self, size: usize) -> usize {
        match self.fan_out {
            FanOut::Star => 0,
            FanOut::Auto if size <= STAR_MAX => 0,
            FanOut::Auto => TREE,
            FanOut::Tree(ranks) => ranks.max(2),
        }
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s')?, 1.0),
    };
    let seconds = number.trim().parse::<f64>().ok()? * unit;
    (1e-3..=86_400.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

fn refused(name: &str, text: &str, allowed: &str) -> Error {
    Error::Setup { what: format!("{name}=\"{text}\""), reason: format!("it must be {allowed}") }
}

const FAN_OUT: &str = "PROBE_SYNC_TCP_FANOUT";
const LOCAL: &str = "PROBE_SYNC_TCP_LOCAL";

/// Largest group that is a star by default.
const STAR_MAX: usize = 128;

/// Default number of ranks for which a rank of a tree forwards.
const TREE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, expected: Option<TcpOptions>) {
        let found = TcpOptions::from_variables(|asked| (asked == name).then(|| text.to_owned()));
        match (found, expected) {
            (Ok(found), Some(expected)) => assert_eq!(found, expected, "{name}={text}"),
            (Err(error), None) => assert!(error.to_string().contains(name), "{error}"),
            (found, expected) => panic!("{name}={text}: {found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn variables_set_what_they_name_and_others_are_refused() {
        let standard = TcpOptions::default();
        check("OTHER", "x", Some(standard));
        check(FAN_OUT, "auto", Some(standard));
        check(FAN_OUT, "star", Some(TcpOptions { fan_out: FanOut::Star, ..standard }));
        check(FAN_OUT, " 8 ", Some(TcpOptions { fan_out: FanOut::Tree(8), ..standard }));
        ["1", "0", "-3", "many", "", "4097"].into_iter().for_each(|text| check(FAN_OUT, text, None));
        check(LOCAL, "unix", Some(standard));
        check(LOCAL, "tcp", Some(TcpOptions { local: false, ..standard }));
        check(LOCAL, "yes", None);
        let half = Duration::from_millis(500);
        check("PROBE_SYNC_TCP_GREETING_TIMEOUT", "500ms", Some(TcpOptions { greeting: half, ..standard }));
        check("PROBE_SYNC_TCP_CONNECT_TIMEOUT", "0.5s", Some(TcpOptions { connect: half, ..standard }));
        check("PROBE_SYNC_TCP_PLACE_TIMEOUT", "0.5 s", Some(TcpOptions { place: half, ..standard }));
        check("PROBE_SYNC_TCP_STATEMENT_TIMEOUT", "500 ms", Some(TcpOptions { statement: half, ..standard }));
        ["5", "0s", "-1s", "nans", "1e9s", "s"]
            .into_iter()
            .for_each(|text| check("PROBE_SYNC_TCP_PLACE_TIMEOUT", text, None));
    }

    #[test]
    fn a_tree_begins_where_a_star_ends() {
        let below = |fan_out, size| TcpOptions { fan_out, ..TcpOptions::default() }.ranks_below(size);
        assert_eq!((below(FanOut::Auto, 128), below(FanOut::Auto, 129)), (0, 16));
        assert_eq!((below(FanOut::Star, 5000), below(FanOut::Tree(3), 2)), (0, 3));
    }
}
