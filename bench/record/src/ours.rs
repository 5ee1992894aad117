//! This recorder when on, when off, on fresh memory, with one event at a time and on two threads.

use std::hint::black_box;
use std::sync::Mutex;

use anyhow::Result;
use probe_sync_record::{Policy, Recorder, Session, counter, instant, scope};

use crate::measure::{self, Case, Effort, Floor, in_turn, time, time_on_two};
use crate::table::Table;

/// Fills in the rows.
///
/// # Errors
/// A session does not start.
pub fn measure(table: &mut Table, effort: Effort) -> Result<()> {
    let mut floor = Floor::new();
    let mut cases: Vec<Case<'_>> = vec![Box::new(|events| floor.time(events)), Box::new(off)];
    let off = in_turn(effort, &mut cases);
    drop(cases);
    table.absolute("off", off[1], Some(1.5));

    let session = session()?;
    let mut cases: Vec<Case<'_>> = vec![
        Box::new(|events| floor.time(events)),
        Box::new(scopes),
        Box::new(|events| time(events, |number| drop(scope!("two", a = number, b = number)))),
        Box::new(|events| time(events, |_| instant!("instant"))),
        Box::new(|events| time(events, |number| counter!("counter", number))),
        Box::new(|events| time_on_two(events, scopes)),
    ];
    let found = in_turn(effort, &mut cases);
    drop(cases);
    table.ratio("floor", found[0], found[0], FLOOR, None);
    table.ratio("scope", found[1], found[0], FLOOR, Some(1.15));
    table.ratio("scope, two integers", found[2], found[0], FLOOR, Some(1.4));
    table.ratio("instant", found[3], found[0], FLOOR, Some(0.6));
    table.ratio("counter", found[4], found[0], FLOOR, None);
    table.ratio("scope, 2 threads", found[5], found[1], "1 thread", Some(1.1));
    two_floors(table, effort, found[0]);
    let single = single(effort);
    table.ratio("scope, p99.9 of single ones", single, found[0], FLOOR, Some(15.0));
    session.finish()?;
    fresh(table, effort, &mut floor)
}

/// Two threads of the floor itself: what the machine does to both.
fn two_floors(table: &mut Table, effort: Effort, one: f64) {
    let floors = Mutex::new(vec![Floor::new(), Floor::new()]);
    let pass = |events| {
        let taken = floors.lock().map(|mut floors| floors.pop()).ok().flatten();
        let mut floor = taken.unwrap_or_else(Floor::new);
        let took = floor.time(events);
        if let Ok(mut floors) = floors.lock() {
            floors.push(floor);
        }
        took
    };
    let mut cases: Vec<Case<'_>> = vec![Box::new(|events| time_on_two(events, pass))];
    let found = in_turn(effort, &mut cases);
    table.ratio("floor, 2 threads", found[0], one, "1 thread", None);
}

/// The p99.9 of scopes one by one, with the readings of the counter about them, ns.
fn single(effort: Effort) -> f64 {
    let rate = measure::ticks_per_ns();
    let passes = (0..effort.passes).map(|_| {
        let one = |_| {
            let before = measure::ticks();
            drop(scope!("single"));
            (measure::ticks() - before) as f64 / rate
        };
        measure::quantile((0..effort.events).map(one).collect(), 0.999)
    });
    measure::median(passes.collect())
}

/// Sessions so short that nothing of their memory is written twice.
fn fresh(table: &mut Table, effort: Effort, floor: &mut Floor) -> Result<()> {
    let events = effort.events;
    let mut found: [Vec<f64>; 2] = Default::default();
    for _ in 0..effort.passes {
        found[0].push(floor.time(events));
        // 32 bytes each, and the parts of a session beside them.
        let bytes = events as usize * 32 * 4 / 3 + (4 << 20);
        let session = Recorder::builder().policy(Policy::DropNewest { bytes }).start()?;
        // The thread has its part of the session.
        drop(scope!("first"));
        found[1].push(scopes(events));
        let recording = session.finish()?;
        let lost: u64 = recording.threads().iter().map(|thread| thread.lost.events).sum();
        anyhow::ensure!(lost == 0, "{lost} scopes were lost on fresh memory");
    }
    let [floor, fresh] = found.map(measure::median);
    table.ratio("scope, fresh memory", fresh, floor, FLOOR, Some(1.3));
    Ok(())
}

/// A session that goes round in 64 MiB.
pub fn session() -> Result<Session> {
    Ok(Recorder::builder().policy(Policy::Flight { bytes: 64 << 20 }).start()?)
}

/// Time of a scope, ns.
pub fn scopes(events: u64) -> f64 {
    time(events, |_| drop(scope!("scope")))
}

/// Time of a scope while nothing records, with the loop about it, ns.
fn off(events: u64) -> f64 {
    time(events * 10, |number| {
        black_box(number);
        drop(scope!("off"));
    })
}

/// What most rows are compared with.
pub const FLOOR: &str = "floor";
