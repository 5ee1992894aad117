//! What goes in comes out in order, from memory and from disk, and the bounds hold.

use super::*;
use crate::model::CollectiveKind;

fn event(name: &str, number: i64, start_ps: Picoseconds) -> CollectiveEvent {
    let label = Label {
        name: name.to_owned(),
        kind: CollectiveKind::AllToAll,
        instance: Instance::Hlo { module: "m".to_owned(), op: name.to_owned() },
        replicas: Replicas::Unknown,
        device: None,
    };
    CollectiveEvent { label, number, start_ps, end_ps: start_ps + 3, recipients: Recipients::All }
}

fn read_back(parts: &CollectiveParts, labels: &[u32]) -> Vec<(i64, Picoseconds, u64)> {
    let mut cursor = parts.cursor(labels);
    let mut found = Vec::new();
    for part in cursor.by_ref() {
        assert_eq!(part.end_ps, part.start_ps + 3);
        found.push((part.number, part.start_ps, part.ordinal));
    }
    assert_eq!(cursor.unread(), 0);
    let most_held = cursor.merge.most_held;
    assert!(most_held <= RUNS_AT_END * labels.len() * runs::READ_AHEAD, "{most_held}");
    found
}

#[test]
fn few_parts_stay_in_memory_and_come_back_in_order() {
    let mut parts = CollectiveParts::default();
    for (name, number, start) in [("b", 2, 50), ("a", 1, 7), ("b", 1, 90), ("b", 1, 20)] {
        parts.push(event(name, number, start));
    }
    parts.push(CollectiveEvent { end_ps: 0, ..event("a", 1, 1) });
    parts.shift(1000);
    parts.close();
    assert_eq!((parts.len(), parts.is_empty(), parts.reversed(), parts.left_out()), (4, false, 1, 0));
    assert!(parts.runs.iter().all(|run| run.region.is_none()));
    let labels: Vec<_> = parts.labels().map(|(number, label, count)| (number, label.name.clone(), count)).collect();
    assert_eq!(labels, [(0, "b".to_owned(), 3), (1, "a".to_owned(), 1)]);
    assert_eq!(parts.label(1).name, "a");
    assert_eq!(read_back(&parts, &[0]), [(1, 1020, 3), (1, 1090, 2), (2, 1050, 0)]);
    assert_eq!(read_back(&parts, &[1, 0]), [(1, 1007, 1), (1, 1020, 3), (1, 1090, 2), (2, 1050, 0)]);
    assert_eq!(read_back(&parts, &[7]), []);
    assert!(CollectiveParts::default().is_empty());
}

#[test]
#[ignore = "long: writes and reads a million parts"]
fn a_million_parts_are_all_read_back_and_few_are_held() {
    let count = 1_000_000i64;
    let mut parts = CollectiveParts::default();
    for k in 0..count {
        // Out of order, over two labels.
        let number = (k * 7919) % count;
        parts.push(event(if number % 2 == 0 { "even" } else { "odd" }, number, Picoseconds::from(number) * 10));
        assert!(parts.held.len() < HELD_MAX && parts.runs.len() < 2 * FAN_IN);
    }
    parts.close();
    // 62 runs were written; the file has room for the parts twice, while they were merged.
    assert_eq!((parts.runs.len(), parts.runs[0].level), (1, 2));
    assert!(parts.spill.length() < 64 * 9 * count as u64 / 4, "{} bytes", parts.spill.length());
    assert_eq!((parts.len(), parts.held.len(), parts.left_out()), (count as u64, 0, 0));
    let even = parts.labels().find(|(_, label, _)| label.name == "even").expect("a label");
    assert_eq!(even.2, count as u64 / 2);
    let found = read_back(&parts, &[even.0]);
    assert_eq!(found.len() as i64, count / 2);
    assert!(found.iter().zip(0..).all(|(part, k)| (part.0, part.1) == (2 * k, Picoseconds::from(20 * k))));
    assert_eq!(read_back(&parts.clone(), &[0, 1]).len() as i64, count, "a clone reads the same file");
}

#[test]
#[ignore = "long: writes and reads a million parts"]
fn memory_of_a_cursor_does_not_grow_with_the_trace() {
    let most_held = |count: i64| {
        let mut parts = CollectiveParts::default();
        (0..count).for_each(|number| parts.push(event("psum", number, Picoseconds::from(number))));
        parts.close();
        let mut cursor = parts.cursor(&[0]);
        assert_eq!(std::iter::from_fn(|| cursor.next()).count() as i64, count);
        (parts.runs.len(), cursor.merge.most_held)
    };
    let runs = |count: i64| count * HELD_MAX as i64;
    // Up to as many runs as are left at the end they stay as they are; then they are one.
    assert_eq!(most_held(runs(4)), (4, 4 * runs::READ_AHEAD));
    assert_eq!(most_held(runs(5)), (1, runs::READ_AHEAD));
    assert_eq!(most_held(runs(16)), (1, runs::READ_AHEAD));
    assert_eq!(most_held(runs(19)), (4, 4 * runs::READ_AHEAD));
    assert_eq!(most_held(runs(40)), (1, runs::READ_AHEAD));
}

#[test]
fn runs_that_cannot_be_merged_stay_and_what_cannot_be_read_counts() {
    let mut parts = CollectiveParts::default();
    let push = |parts: &mut CollectiveParts, runs: i64| {
        (0..runs * HELD_MAX as i64).for_each(|number| parts.push(event("psum", number, 0)));
    };
    push(&mut parts, 10);
    parts.lose_runs();
    push(&mut parts, 10);
    parts.close();
    assert_eq!((parts.runs.len(), parts.unmerged, parts.left_out()), (20, true, 0));
    let mut cursor = parts.cursor(&[0]);
    let read = std::iter::from_fn(|| cursor.next()).count();
    assert_eq!((read, cursor.unread()), (10 * HELD_MAX, 10 * HELD_MAX as u64));
}

#[test]
fn what_cannot_be_kept_is_counted() {
    let mut parts = CollectiveParts::default();
    let long = "x".repeat(8 << 20);
    for k in 0..5 {
        parts.push(event(&format!("{long}{k}"), k, 0));
    }
    parts.push(event(&format!("{long}0"), 9, 0));
    parts.leave_out(3);
    parts.close();
    // A label costs its name and its operation's: two fit.
    assert_eq!((parts.len(), parts.left_out()), (3, 6));
    let note = parts.left_out_note().expect("something was left out");
    assert_eq!(note, "ignored 6 parts of collectives: too many kinds of operations");
    assert_eq!(CollectiveParts::default().left_out_note(), None);
}
