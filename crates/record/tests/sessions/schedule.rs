//! Sessions that go by a program's steps.

use probe_sync_record::{Phase, Recording, Schedule, Session, instant, scope};

use crate::support::{expected, names, of_thread, place};

/// So many steps, of which each has a scope and a moment within.
fn steps(session: &Session, count: u64) -> Vec<Option<u64>> {
    (0..count)
        .map(|_| {
            {
                let _step = scope!("step");
                instant!("moment");
            }
            session.step().expect("it has a schedule").completed
        })
        .collect()
}

#[test]
fn active_steps_are_recorded_and_each_repetition_stands_alone() {
    let _place = place();
    let schedule = Schedule { skip_first: 1, wait: 1, warmup: 1, active: 2, repeat: 2 };
    let session = of_thread().schedule(schedule).start().expect("nothing is in the way");
    let completed = steps(&session, 12);
    let whole: Vec<_> =
        completed.iter().enumerate().filter_map(|(at, which)| which.map(|which| (at + 1, which))).collect();
    assert_eq!(whole, [(5, 0), (9, 1)]);
    let recording = session.finish().expect("whole");
    let step = [("moment", 1), ("step", 0)];
    assert_eq!(names(&recording), expected(&step.repeat(4)));
    assert_eq!((recording.windows().len(), recording.status().outside), (2, 4), "warm-up steps are there and left out");
    let second = recording.window(1).expect("it is there");
    assert_eq!(names(&second), expected(&step.repeat(2)));
    assert_eq!(second.window(7).expect("it is none").threads().iter().map(|thread| thread.events).sum::<u64>(), 0);
}

#[test]
fn a_scope_around_all_steps_is_left_out_and_what_it_holds_is_less_deep() {
    let _place = place();
    let session =
        of_thread().schedule(Schedule { warmup: 1, active: 1, ..Schedule::default() }).start().expect("ready");
    {
        let _epoch = scope!("epoch");
        let completed = steps(&session, 4);
        assert_eq!(completed, [None, Some(0), None, Some(1)]);
    }
    let recording = session.finish().expect("whole");
    assert_eq!(names(&recording), expected(&[("moment", 1), ("step", 0)].repeat(2)));
}

#[test]
fn a_repetition_can_be_saved_while_steps_go_on() {
    let _place = place();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let session = of_thread().schedule(Schedule { wait: 1, active: 1, ..Schedule::default() }).start().expect("ready");
    let mut saved = Vec::new();
    for _ in 0..6 {
        let _step = scope!("step");
        drop(_step);
        if let Some(which) = session.step().expect("a schedule").completed {
            let path = folder.path().join(format!("{which}.rec"));
            session.snapshot().and_then(|all| all.save(&path)).expect("room");
            saved.push((which, path));
        }
    }
    assert_eq!(saved.len(), 3);
    for (which, path) in saved {
        let copy = Recording::open(&path).expect("sound");
        assert!(copy.status().copy && !copy.status().finished);
        assert_eq!(copy.windows().len() as u64, which + 1);
        let one = copy.window(which as u32).expect("there");
        assert_eq!(names(&one), expected(&[("step", 0)]));
    }
}

#[test]
fn a_pause_holds_whatever_the_schedule_says() {
    let _place = place();
    let session = of_thread().schedule(Schedule { active: 1, ..Schedule::default() }).start().expect("ready");
    assert!(session.is_recording(), "step 0 is active");
    session.pause().expect("ours");
    steps(&session, 3);
    assert!(!session.is_recording());
    session.resume().expect("ours");
    drop(scope!("after"));
    assert_eq!(session.step().expect("a schedule").phase, Phase::Active);
    let recording = session.finish().expect("whole");
    assert_eq!(names(&recording), expected(&[("after", 0)]));
}

#[test]
fn a_killed_schedule_leaves_its_windows() {
    let _place = place();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("live.rec");
    let session = of_thread()
        .schedule(Schedule { wait: 1, active: 1, ..Schedule::default() })
        .spill(&path)
        .start()
        .expect("ready");
    steps(&session, 3);
    let _open = scope!("open");
    // As it is on disk when the process is killed now.
    let left = Recording::open(&path).expect("sound");
    assert_eq!(left.windows().iter().filter(|window| window.to.is_none()).count(), 1, "the second goes on");
    assert_eq!(names(&left), expected(&[("moment", 1), ("step", 0)]));
    assert_eq!(left.threads()[0].open.len(), 1);
}
