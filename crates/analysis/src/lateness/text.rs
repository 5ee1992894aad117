//! The lateness report as text of 80 columns.

use std::collections::HashMap;
use std::fmt::Write;

use probe_sync_alignment::collectives::{lay_out, span};
use probe_sync_formats::words::{counted, joined};
use probe_sync_lines::plain_name;

use probe_sync_lateness::operation::LateIn;

use super::report::{LateInstance, Lateness, RankLine, Straggler, Unpaired};

impl Lateness {
    /// Verdict in words, then ranks, hosts, operations, steps, the result that the recorded times
    /// would have given, and omissions. No table line is wider than 80 columns if names have
    /// ordinary lengths; longer names are shortened in the middle.
    pub fn text(&self) -> String {
        self.of(self.remarks())
    }

    /// The same without the omissions and how parts were paired: one line counts them.
    pub fn brief(&self) -> String {
        self.of(self.findings().chain(self.left_out()).collect())
    }

    fn of(&self, remarks: Vec<String>) -> String {
        let mut text = String::new();
        if !self.warnings.is_empty() {
            say(&mut text, self.notes.iter().cloned().chain([self.head()]));
            return text;
        }
        let nothing = self.instances.is_empty().then(|| NOTHING.to_owned());
        let verdict = self.verdict();
        say(&mut text, verdict.into_iter().chain([self.head()]).chain(nothing).chain(self.missing()));
        if !self.instances.is_empty() {
            self.tables(&mut text);
        }
        say(&mut text, remarks);
        text
    }

    fn head(&self) -> String {
        let all = self.instances.iter().filter(|instance| instance.waits == "all").count();
        let some = self.instances.len() - all;
        let some = if some > 0 { format!(" and {some} in which only some ranks wait") } else { String::new() };
        let sigma = self.lead_sigma_median_ns.map_or_else(String::new, |sigma| match sigma.is_finite() {
            true => format!("; uncertainty of a lead ±{} (σ, median)", short(sigma)),
            false => "; the uncertainty of leads is unknown, so no rank is named".to_owned(),
        });
        let [all, ranks] = [counted(all, "collective"), counted(self.ranks.len(), "rank")];
        format!("{all}{some}, {ranks}, {}{sigma}", span(self.span_ns as f64))
    }

    /// Ranks without a trace, and what remains open because of them.
    pub fn missing(&self) -> Option<String> {
        let open = self.instances.iter().filter(|instance| instance.missing > 0).count();
        let most = self.instances.iter().map(|instance| instance.missing).max().unwrap_or(0);
        if self.missing_ranks.is_empty() && open == 0 {
            return None;
        }
        let count = self.missing_ranks.len().max(most);
        let which =
            if self.missing_ranks.is_empty() { String::new() } else { format!(" ({})", spans(&self.missing_ranks)) };
        let [ranks, operations] = [counted(count, "rank"), counted(open, "operation")];
        let open = match open {
            0 => "none of them takes part in the analysed operations".to_owned(),
            open if open == self.instances.len() => {
                "any of them may have been last in every operation, so no rank is named".to_owned()
            }
            _ => format!("any of them may have been last in {operations}, for which no rank is named"),
        };
        Some(format!("The traces of {ranks} are missing{which}: {open}."))
    }

    /// Which ranks are late repeatedly.
    fn verdict(&self) -> Vec<String> {
        // Where a missing rank may have been the last everywhere, nothing is left to say.
        let unknown = self.lead_sigma_median_ns.is_some_and(f64::is_infinite);
        if unknown || self.instances.iter().all(|instance| instance.missing > 0) {
            return Vec::new();
        }
        let units = if self.steps.is_empty() { self.instances.len() } else { self.steps.len() };
        let most = super::verdict::chance_of_always(self.independent_steps, self.ranks.len());
        let what = if self.steps.is_empty() { "operations" } else { "steps" };
        let lasting = (self.independent_steps < LASTING * units as f64).then(|| {
            format!(
                "Lateness is correlated: these {units} {what} count as {:.0} independent ones.",
                self.independent_steps
            )
        });
        if self.stragglers.is_empty() && most >= super::verdict::CHANCE_MAX {
            let few = format!(
                "Straggler: too few {what} to decide. With {} ranks, one may be last in all {units} by chance.",
                self.ranks.len()
            );
            return [few].into_iter().chain(lasting).collect();
        }
        let nobody = self.stragglers.is_empty().then(|| NOBODY.to_owned());
        let named = self.stragglers.iter().map(|straggler| sentence(straggler, self.sides(straggler)));
        nobody.into_iter().chain(named).chain(lasting).collect()
    }

    /// In how many of its steps a straggler's host, and in how many its device, was late with the
    /// operation that cost most; if steps are unknown, of the same number of operations, costliest
    /// first.
    fn sides(&self, straggler: &Straggler) -> (usize, usize) {
        let own = |instance: &&LateInstance| straggler.rank.is_some() && instance.last_rank == straggler.rank;
        let mut own: Vec<&LateInstance> = self.instances.iter().filter(own).collect();
        own.sort_by_key(|instance| std::cmp::Reverse(instance.lead_ns));
        let costliest: Vec<&LateInstance> = if straggler.steps.is_empty() {
            own.into_iter().take(straggler.times).collect()
        } else {
            let mut first: HashMap<i64, &LateInstance> = HashMap::new();
            for instance in own {
                if let Some(step) = instance.step {
                    first.entry(step).or_insert(instance);
                }
            }
            straggler.steps.iter().filter_map(|step| first.get(step).copied()).collect()
        };
        let late = |side: LateIn| {
            let is =
                |instance: &&&LateInstance| instance.late_in == Some(side) || instance.late_in == Some(LateIn::Both);
            costliest.iter().filter(is).count()
        };
        (late(LateIn::Cpu), late(LateIn::Gpu))
    }

    fn tables(&self, text: &mut String) {
        let mut rows =
            vec![["rank", "host", "last", "lost", "waited", "late by", "trend/s", "saves"].map(str::to_owned)];
        for line in self.ranks.iter().take(LINES) {
            rows.push([
                line.rank.to_string(),
                cut(&line.host, 13),
                line.last_range(),
                short(line.lost_ns as f64),
                short(line.waited_ns as f64),
                short(line.late_by_median_ns as f64),
                trend(line),
                line.saved_ns.map_or_else(String::new, |saved| percent(self.share(saved))),
            ]);
        }
        lay_out(text, &rows, &[0, 1, 2, 3, 4, 5, 6, 7]);
        more(text, self.ranks.len(), "ranks");
        self.host_table(text);
        let mut rows =
            vec![["operation", "count", "named", "most often", "spread", "transfer", "mostly"].map(str::to_owned)];
        for line in self.operations.iter().take(LINES) {
            let most_often =
                line.most_often_last.map_or_else(String::new, |rank| format!("rank {rank}: {}", line.times));
            let (count, class) = line
                .classes
                .into_iter()
                .zip(["transfer", "skew", "mixed", "undecided"])
                .max_by_key(|(count, _)| *count)
                .unwrap_or((0, ""));
            rows.push([
                cut(&line.name, 18),
                line.instances.to_string(),
                line.named.to_string(),
                most_often,
                short(line.spread_median_ns as f64),
                short(line.transfer_median_ns as f64),
                if count > 0 { class.to_owned() } else { String::new() },
            ]);
        }
        text.push('\n');
        lay_out(text, &rows, &[0, 1, 2, 3, 4, 5, 6]);
        more(text, self.operations.len(), "operations");
        self.step_table(text);
    }

    fn host_table(&self, text: &mut String) {
        let late: Vec<_> = self.hosts.iter().filter(|line| line.times_last > 0).collect();
        if late.is_empty() {
            return;
        }
        let mut rows = vec![["host", "ranks", "last as a whole", "lost", "saves"].map(str::to_owned)];
        for line in late.iter().take(LINES) {
            rows.push([
                cut(&line.host, 30),
                line.ranks.len().to_string(),
                line.times_last.to_string(),
                short(line.lost_ns as f64),
                line.saved_ns.map_or_else(String::new, |saved| percent(self.share(saved))),
            ]);
        }
        text.push('\n');
        lay_out(text, &rows, &[0, 1, 2, 3, 4]);
        more(text, late.len(), "hosts on which all ranks were late");
    }

    fn step_table(&self, text: &mut String) {
        if self.steps.is_empty() {
            return;
        }
        let mut worst: Vec<_> = self.steps.iter().collect();
        worst.sort_by_key(|line| (std::cmp::Reverse(line.lost_ns), line.step));
        let mut rows = vec![["step", "length", "lost", "share", "most by"].map(str::to_owned)];
        for line in worst.iter().take(LINES) {
            let by = line
                .last_rank
                .map_or_else(String::new, |rank| format!("rank {rank}: {}", short(line.last_rank_lost_ns as f64)));
            rows.push([
                line.step.to_string(),
                short(line.length_ns as f64),
                short(line.lost_ns as f64),
                percent(line.lost_share),
                by,
            ]);
        }
        text.push('\n');
        lay_out(text, &rows, &[0, 1, 2, 3, 4]);
        more(text, self.steps.len(), "steps");
    }

    fn remarks(&self) -> Vec<String> {
        let remedies = self.unpaired.remedies.iter().map(|remedy| format!("not analysed: {remedy}"));
        self.findings().chain(remedies).chain(self.notes.iter().cloned()).collect()
    }

    /// How much is left out, and where to read why.
    fn left_out(&self) -> Option<String> {
        let Unpaired { ambiguous_instances, alone_parts, unordered_parts, lost_parts, .. } = self.unpaired;
        let parts = alone_parts + unordered_parts + lost_parts as usize;
        let operations = (ambiguous_instances > 0).then(|| counted(ambiguous_instances, "operation"));
        let parts = (parts > 0).then(|| format!("{} of others", counted(parts, "part")));
        let counts: Vec<String> = operations.into_iter().chain(parts).collect();
        match (counts.is_empty(), self.notes.is_empty()) {
            (true, true) => None,
            (true, false) => Some(format!("-v prints {}", counted(self.notes.len(), "note"))),
            (false, _) => Some(format!("Not analysed: {}; -v says why and what to do", counts.join(" and "))),
        }
    }

    fn findings(&self) -> impl Iterator<Item = String> {
        let mut lines = Vec::new();
        if let Some(path) = &self.critical_path {
            let most = path
                .ranks
                .iter()
                .take(3)
                .map(|share| format!("rank {} {}", share.rank, short(share.compute_ns as f64)));
            let most = most.collect::<Vec<_>>().join(", ");
            let most = if most.is_empty() { String::new() } else { format!("; {most} between operations") };
            lines.push(format!(
                "Critical path: {} through {} ({} tied), {} of it in transfers{most}",
                span((path.to_ns - path.from_ns) as f64),
                counted(path.operations, "operation"),
                path.tied_operations,
                span(path.transfer_ns as f64)
            ));
        }
        if let Some(rank) = self.as_recorded.rank {
            let recorded = &self.as_recorded;
            lines.push(format!(
                "Without clock correction rank {rank} would be blamed for {}, and {} of {} verdicts would change; the median spread would be {} instead of {}",
                counted(recorded.times, "operation"),
                recorded.wrong,
                recorded.of,
                span(recorded.spread_median_ns as f64),
                span(recorded.aligned_spread_median_ns as f64)
            ));
        }
        lines.into_iter()
    }

    fn share(&self, ns: i64) -> f64 {
        if self.stepped_ns > 0 { ns as f64 / self.stepped_ns as f64 } else { 0.0 }
    }
}

impl RankLine {
    /// How often it was last: for certain, and at most if clocks leave some operations undecided.
    pub fn last_range(&self) -> String {
        match self.times_tied {
            0 => self.times_last.to_string(),
            tied => format!("{}–{}", self.times_last, self.times_last + tied),
        }
    }
}

/// What a straggler costs, in words.
fn sentence(straggler: &Straggler, (cpu, gpu): (usize, usize)) -> String {
    let Straggler { rank, host, times, of, steps, saved_ns, saved_share, chance, lost_ns, .. } = straggler;
    let who = rank
        .map_or_else(|| format!("Straggler: all of host {host}"), |rank| format!("Straggler: rank {rank} ({host})"));
    let units = if steps.is_empty() { "operations" } else { "steps" };
    let mean = span(*lost_ns as f64 / (*times).max(1) as f64);
    let listed: Vec<String> = steps.iter().take(STEPS_LISTED).map(i64::to_string).collect();
    let dots = if steps.len() > STEPS_LISTED { ", …" } else { "" };
    let listed = if listed.is_empty() { String::new() } else { format!(" (steps {}{dots})", listed.join(", ")) };
    let cause = if cpu + gpu > 0 {
        format!("; launched late {}, device busy {}", counted(cpu, "time"), counted(gpu, "time"))
    } else {
        String::new()
    };
    format!(
        "{who}, last in {times} of {of} {units}{listed}, by {mean} on average; at median speed, the job would have saved {} \
        ({}){cause}; probability by chance {chance:.1e}",
        span(*saved_ns as f64),
        percent(*saved_share),
    )
}

/// Numbers in order, as `2–7, 9`.
fn spans(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|one, other| one + 1 == *other);
    let count = runs.clone().count();
    let run = |run: &[u32]| match run {
        [first, .., last] => format!("{first}–{last}"),
        single => single.iter().map(u32::to_string).collect(),
    };
    joined(runs.map(run).take(RUNS_TOLD), count)
}

/// The slope if it is certain.
fn trend(line: &RankLine) -> String {
    match (line.trend_ns_per_s, line.trend_sigma_ns_per_s) {
        (Some(slope), Some(sigma)) if slope.abs() > probe_sync_lateness::operation::DEVIATIONS * sigma => short(slope),
        _ => "-".to_owned(),
    }
}

fn say(text: &mut String, lines: impl IntoIterator<Item = String>) {
    for line in lines {
        text.push_str(&wrapped(&line));
        text.push('\n');
    }
}

/// Three digits and a unit.
pub(super) fn short(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        size if size >= 1e9 => (ns / 1e9, "s"),
        size if size >= 1e6 => (ns / 1e6, "ms"),
        size if size >= 1e3 => (ns / 1e3, "µs"),
        _ => return format!("{ns:.0} ns"),
    };
    let digits = if value.abs() >= 99.95 {
        0
    } else if value.abs() >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A name of at most this many characters: its beginning and its end.
fn cut(name: &str, most: usize) -> String {
    // Names come from traces: what is no visible character could write over the table.
    let visible: Vec<char> = plain_name(name).chars().collect();
    if visible.len() <= most {
        return visible.into_iter().collect();
    }
    let end = (most - 1) / 2;
    let begin = most - 1 - end;
    visible[..begin].iter().chain(&['…']).chain(&visible[visible.len() - end..]).collect()
}

/// States how many lines a table omits.
fn more(text: &mut String, lines: usize, what: &str) {
    if lines > LINES {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "… and {} more {what}; use --json or --csv for all", lines - LINES);
    }
}

/// Wrapped at spaces into lines of 80 columns, continuation lines indented by two.
fn wrapped(line: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in line.split(' ') {
        let word = plain_name(word);
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            text.push_str("\n ");
            width = 1;
        }
        if width > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(&word);
        width += length;
    }
    text
}

impl LateInstance {
    /// One line that states who was last.
    pub(super) fn label(&self) -> String {
        let by = span(self.lead_ns as f64);
        match (&self.late_host, self.last_rank) {
            (Some(host), _) => format!("{}: host {host} late by {}", self.name, span(self.host_lead_ns as f64)),
            (None, Some(rank)) => format!("{}: rank {rank} late by {by}", self.name),
            (None, None) if self.missing > 0 => format!("{}: {} missing", self.name, counted(self.missing, "rank")),
            (None, None) => format!("{}: tied", self.name),
        }
    }
}

const NOTHING: &str = "nothing to check: the traces share no collective whose parts can be matched with certainty";
const NOBODY: &str = "No consistent straggler: which rank was last looks random, or cost less than 1 % of the time.";
/// If a smaller share of steps is independent, they are reported as depending on each other.
const LASTING: f64 = 0.9;
/// Most runs of missing ranks listed.
const RUNS_TOLD: usize = 12;
const WIDTH: usize = 80;
/// Lines of a table.
const LINES: usize = 12;
/// Steps that a sentence names.
const STEPS_LISTED: usize = 12;
