//! The outcome of one run of the flow, and whether it meets the requirements.
//!
//! It comes from the verdicts of `probe_sync check` and the figures of `bench/flow/judge.py`. It
//! does not compute errors.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use super::case::{Case, Model};

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Its conditions.
    pub case: Case,
    /// Its files, relative to the project's root.
    pub folder: PathBuf,
    /// Edges of the traces with their true times,
    pub true_times: Checked,
    /// as the nodes' clocks recorded them,
    pub recorded: Checked,
    /// the same seen through the run, with what it states of its uncertainty,
    pub through_run: Checked,
    /// and as aligned.
    pub aligned: Checked,
    /// Events of all traces.
    pub events: u64,
    /// Their times that were judged,
    pub times: u64,
    /// and those that were not, because their clock stepped about then.
    pub left_out: u64,
    /// Median error of all times judged, ns.
    pub median_ns: f64,
    /// 99 % are at most this wrong, ns.
    pub p99_ns: f64,
    /// The largest error, ns.
    pub worst_ns: f64,
    /// When it was, s after the measurement's start.
    pub worst_at_s: f64,
    /// On which node.
    pub worst_node: u64,
    /// The largest standard deviation that the aligned traces state, ns; None: not known.
    pub stated_ns: Option<f64>,
    /// Times that are wrong by more than four times that and 100 ns.
    pub outside: u64,
    /// Share of times that are wrong by at most 1.96 times that.
    pub covered_95: f64,
    /// First and last time of any trace, s after the measurement's start.
    pub span_s: [f64; 2],
    /// Collectives of a few steps, for the picture.
    pub shown: [Vec<Instance>; 2],
}

/// A verdict of `probe_sync check`.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Checked {
    /// Happens-before edges.
    pub edges: u64,
    /// Those that do not hold.
    pub broken: u64,
    /// Of these, those that the clocks' stated uncertainty explains.
    pub explained: u64,
    /// The largest amount, ns.
    pub worst_ns: f64,
}

/// One collective.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// Start and end on each node, ns after the measurement's start.
    pub parts: Vec<[f64; 2]>,
}

impl Outcome {
    /// Puts together what the programs said.
    ///
    /// # Errors
    /// Names the figure that is missing.
    pub fn new(case: Case, folder: PathBuf, checked: [Checked; 4], judged: &Value) -> Result<Self> {
        let [true_times, recorded, through_run, aligned] = checked;
        let [covered, times] = ["covered_95", "times"].map(|key| number(judged, &[key]));
        Ok(Self {
            case,
            folder,
            true_times,
            recorded,
            through_run,
            aligned,
            events: whole(judged, &["events"])?,
            times: whole(judged, &["times"])?,
            left_out: whole(judged, &["left_out"])?,
            median_ns: number(judged, &["error_ns", "median"])?,
            p99_ns: number(judged, &["error_ns", "p99"])?,
            worst_ns: number(judged, &["error_ns", "worst"])?,
            worst_at_s: number(judged, &["worst_at", "at_s"])?,
            worst_node: whole(judged, &["worst_at", "node"])?,
            stated_ns: judged["stated_ns"].as_f64(),
            outside: whole(judged, &["outside"])?,
            covered_95: covered? / times?.max(1.0),
            span_s: [number(judged, &["first_s"])?, number(judged, &["last_s"])?],
            shown: [instances(&judged["picture"]["recorded"])?, instances(&judged["picture"]["aligned"])?],
        })
    }

    /// For people.
    pub fn told(&self) -> String {
        let Checked { edges, broken, worst_ns, .. } = self.recorded;
        let mut text = format!(
            "  as recorded     {broken} of {edges} happens-before edges of its collectives are broken, by up to {}\n  \
             after align     {} of {}\n  \
             true times      {} times of {} events: error median {:.0} ns, p99 {:.0} ns, worst {:.0} ns (at most {:.0} may be)\n  \
             stated          standard deviation up to {}; {:.1} % of the times within 1.96 of them\n  \
             trace           from {:.2} to {:.2} s of the {} s measured; worst at {:.2} s on node {}\n",
            milliseconds(worst_ns),
            self.aligned.broken,
            self.aligned.edges,
            self.times,
            self.events,
            self.median_ns,
            self.p99_ns,
            self.worst_ns,
            self.case.model.bar_ns(),
            self.stated_ns.map_or("unknown".to_owned(), |stated| format!("{stated:.0} ns")),
            100.0 * self.covered_95,
            self.span_s[0],
            self.span_s[1],
            self.case.seconds,
            self.worst_at_s,
            self.worst_node,
        );
        if self.left_out > 0 {
            text.push_str(&format!("  left out        {} times about a step of their clock\n", self.left_out));
        }
        text.push_str(&format!("  files           {}\n", self.folder.display()));
        for problem in self.problems() {
            text.push_str(&format!("  MISSED          {problem}\n"));
        }
        text
    }

    /// Required results that are missing.
    pub fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut unless = |holds: bool, problem: String| {
            if !holds {
                found.push(problem);
            }
        };
        let Self { true_times, recorded, through_run, aligned, .. } = self;
        unless(true_times.broken == 0, format!("{} edges are broken in true time: no sound job", true_times.broken));
        unless(recorded.broken > 0, "no edge is broken as recorded: nothing was there to mend".to_owned());
        let violations = through_run.violations();
        unless(violations == 0, format!("{violations} edges are violated by what the run measured"));
        // About a step the clock's own times do not tell before from after; there the stated
        // uncertainty says so.
        let must_hold = self.case.model != Model::Steps;
        unless(aligned.broken == 0 || !must_hold, format!("{} edges are broken after align", aligned.broken));
        let edges = [recorded, through_run, aligned].map(|checked| checked.edges);
        let same = edges.iter().all(|count| *count == true_times.edges);
        unless(same, "the traces do not have the same edges before and after".to_owned());
        let bar = self.case.model.bar_ns();
        unless(self.worst_ns <= bar, format!("worst error {:.0} ns, not at most {bar:.0}", self.worst_ns));
        unless(self.stated_ns.is_some(), "the stated uncertainty is unknown".to_owned());
        let outside = format!("{} times are outside 4 × the stated uncertainty + 100 ns", self.outside);
        unless(self.outside == 0, outside);
        let last = self.span_s[1];
        unless(last <= f64::from(self.case.seconds), format!("the trace outlived the measurement: {last:.2} s"));
        found
    }
}

impl Checked {
    /// Reads what `check --json` wrote.
    ///
    /// # Errors
    /// It is not such a document.
    pub fn read(text: &str) -> Result<Self> {
        let document: Value = serde_json::from_str(text).context("no verdict was written")?;
        Ok(Self {
            edges: whole(&document, &["result", "edges"])?,
            broken: whole(&document, &["result", "broken"])?,
            explained: whole(&document, &["result", "explained"])?,
            worst_ns: number(&document, &["result", "worst_ns"])?,
        })
    }

    /// Broken edges that uncertainty does not explain.
    pub fn violations(self) -> u64 {
        self.broken.saturating_sub(self.explained)
    }
}

/// Milliseconds with as many digits as say something.
pub fn milliseconds(ns: f64) -> String {
    format!("{:.1} ms", ns * 1e-6)
}

fn field<'a>(document: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(document, |value, key| &value[*key])
}

fn number(document: &Value, path: &[&str]) -> Result<f64> {
    field(document, path).as_f64().with_context(|| format!("no number {}", path.join(".")))
}

fn whole(document: &Value, path: &[&str]) -> Result<u64> {
    field(document, path).as_u64().with_context(|| format!("no count {}", path.join(".")))
}

fn instances(list: &Value) -> Result<Vec<Instance>> {
    let list = list.as_array().context("no collectives for the picture")?;
    let part = |part: &Value| Some([part[0].as_f64()?, part[1].as_f64()?]);
    let instance = |one: &Value| {
        let parts = one["parts"].as_array()?.iter().map(part).collect::<Option<Vec<_>>>()?;
        Some(Instance { name: one["name"].as_str()?.to_owned(), parts })
    };
    list.iter().map(instance).collect::<Option<Vec<_>>>().context("a collective without name or times")
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// A short run with constant clocks.
    pub const CASE: Case = Case { model: Model::Constant, loaded: false, seed: 1, seconds: 8 };

    /// A run in which all is well.
    pub fn good() -> Outcome {
        let judged = json!({
            "events": 100, "times": 200, "left_out": 0, "outside": 0, "covered_95": 190, "stated_ns": 30.0,
            "worst_at": {"node": 2, "at_s": 3.5}, "error_ns": {"median": 5.0, "p99": 20.0, "worst": 40.0},
            "first_s": 0.1, "last_s": 7.5,
            "picture": {
                "recorded": [{"name": "psum", "parts": [[0.0, 10e6], [12e6, 20e6]]}],
                "aligned": [{"name": "psum", "parts": [[0.0, 10e6], [2e6, 10e6]]}],
            },
        });
        let checked = |broken, worst_ns| Checked { edges: 24, broken, explained: 0, worst_ns };
        Outcome::new(CASE, "x".into(), [checked(0, 0.0), checked(7, 2e6), checked(0, 0.0), checked(0, 0.0)], &judged)
            .expect("complete")
    }

    #[test]
    fn a_run_without_a_figure_is_refused_by_name() {
        let none = [Checked { edges: 0, broken: 0, explained: 0, worst_ns: 0.0 }; 4];
        let run = |judged: &Value| Outcome::new(CASE, "x".into(), none, judged);
        assert!(run(&json!({"times": 1, "covered_95": 1})).expect_err("no events").to_string().contains("events"));
        assert!(Checked::read("").is_err() && Checked::read("{\"result\": {\"edges\": 3}}").is_err());
        let read = Checked::read("{\"result\": {\"edges\": 3, \"broken\": 2, \"explained\": 1, \"worst_ns\": 2.5}}")
            .expect("complete");
        assert_eq!(read, Checked { edges: 3, broken: 2, explained: 1, worst_ns: 2.5 });
        assert_eq!(read.violations(), 1);
    }

    #[test]
    fn every_promise_that_is_missed_is_named() {
        fn check(change: fn(&mut Outcome), expected: &str) {
            let mut outcome = good();
            change(&mut outcome);
            let problems = outcome.problems();
            assert!(problems.len() == 1 && problems[0].contains(expected), "{problems:?}, not {expected}");
            assert!(outcome.told().contains("MISSED"), "{}", outcome.told());
        }
        assert_eq!(good().problems(), Vec::<String>::new());
        check(|outcome| outcome.true_times.broken = 1, "no sound job");
        check(|outcome| outcome.recorded.broken = 0, "nothing was there to mend");
        check(|outcome| outcome.aligned.broken = 2, "2 edges are broken after align");
        check(|outcome| outcome.through_run.broken = 2, "2 edges are violated");
        check(|outcome| outcome.aligned.edges = 23, "not have the same edges");
        check(|outcome| outcome.worst_ns = 100.5, "not at most 100");
        check(|outcome| outcome.stated_ns = None, "unknown");
        check(|outcome| outcome.outside = 3, "3 times are outside");
        check(|outcome| outcome.span_s[1] = 8.01, "outlived");
        let swinging = Outcome { case: Case { model: Model::Sinusoid, ..CASE }, worst_ns: 199.0, ..good() };
        assert_eq!(swinging.problems(), Vec::<String>::new());
        let stepping = |explained| {
            let mut outcome = Outcome { case: Case { model: Model::Steps, ..CASE }, ..good() };
            outcome.aligned.broken = 2;
            outcome.through_run = Checked { broken: 2, explained, ..outcome.through_run };
            outcome.problems().len()
        };
        assert_eq!((stepping(2), stepping(1)), (0, 1));
    }
}
