//! Ranks that were late, and operations that some members never reached, while the job ran: the
//! sentences of `late.jsonl`.
//!
//! A lateness has several lines there; the last one has the totals. It does not judge arrivals.

use std::path::Path;

use probe_sync::late::{Late, LateEvent, LateLine, LateRecord, WaitLine};
use probe_sync::standing;

use crate::verdict::Sentence;

/// The sentences, most costly first, and the verdict, if any.
pub(super) fn while_it_ran(directory: &Path) -> (Vec<String>, Option<Sentence>) {
    told(standing::late_records(directory))
}

fn told(records: Vec<LateRecord>) -> (Vec<String>, Option<Sentence>) {
    let mut late = Vec::<(LateLine, bool)>::new();
    let mut waits = Vec::<(WaitLine, bool)>::new();
    for LateRecord { event, about, .. } in LateRecord::last_of_each(records) {
        let has_ended = event == LateEvent::Ended;
        match about {
            Late::Late(line) => late.push((line, has_ended)),
            Late::Waiting(wait) => waits.push((wait, has_ended)),
        }
    }
    let cost_ns = |line: &LateLine| line.share * (line.last_ns - line.since_ns) as f64;
    late.sort_by(|(a, _), (b, _)| cost_ns(b).total_cmp(&cost_ns(a)));
    waits.sort_by_key(|(wait, _)| std::cmp::Reverse(wait.waited_ns));
    let verdict =
        late.first().map(|(line, _)| Sentence::bad(format!("While the job ran, the others waited for {line}.")));
    let end = |has_ended: bool| if has_ended { "" } else { "; not over when this was written" };
    let of_late = late.iter().map(|(line, has_ended)| format!("Late: {}{}.", line.until(), end(*has_ended)));
    let of_waits = waits.iter().map(|(wait, has_ended)| format!("Waiting: {wait}{}.", end(*has_ended)));
    (of_late.chain(of_waits).collect(), verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(event: LateEvent, about: Late) -> LateRecord {
        LateRecord { schema: 1, at_ns: 0, event, about }
    }

    fn line(rank: u32, share: f64, times: u64) -> Late {
        let [since_ns, last_ns] = [1_000_000_000, 5_000_000_000];
        let host = format!("gpu-{rank:02}");
        let group = "grads".to_owned();
        Late::Late(LateLine {
            rank: Some(rank),
            host,
            group,
            since_ns,
            last_ns,
            operations: 50,
            times,
            lead_ns: 3_100_000,
            lead_sigma_ns: 2_000.0,
            share,
            windows: Vec::new(),
        })
    }

    #[test]
    fn the_last_line_of_each_lateness_counts_and_the_costliest_is_the_verdict() {
        let (begun, ended) = (LateEvent::Begun, LateEvent::Ended);
        let records =
            vec![record(begun, line(1, 0.01, 9)), record(begun, line(5, 0.02, 20)), record(ended, line(5, 0.026, 41))];
        let (told, verdict) = told(records);
        assert_eq!(
            told,
            [
                "Late: rank 5 on gpu-05: 41 of 50 operations of grads, by 3.1 ms ± 2.0 µs, since 00:00:01 UTC, 2.6 % of the time, until \
                 00:00:05 UTC.",
                "Late: rank 1 on gpu-01: 9 of 50 operations of grads, by 3.1 ms ± 2.0 µs, since 00:00:01 UTC, 1.0 % of the time, until \
                 00:00:05 UTC; not over when this was written.",
            ]
        );
        assert!(verdict.is_some_and(|verdict| verdict.text.contains("waited for rank 5 on gpu-05: 41 of 50")));
        assert_eq!(super::told(Vec::new()), (Vec::new(), None));
    }
}
