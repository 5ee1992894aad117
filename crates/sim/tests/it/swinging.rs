//! Swinging clocks on a loaded machine: a few seeds of the bench `clocks`, of which several named
//! steps when a prediction alone decided.

use probe_sync_sim::Scenario;
use probe_sync_sim::swinging::{Stated, pauses, run, scenario};

#[test]
#[ignore = "long: simulates swinging clocks for minutes"]
fn swinging_clocks_are_never_said_to_have_stepped() {
    let base = Scenario::from_toml(include_str!("../../../../bench/scenarios/cell.toml")).expect("a sound file");
    let (mut estimates, mut rate_changes) = (0, 0);
    for seed in [1, 10, 12, 14, 17] {
        let outcome = run(&base, seed).expect("a sound scenario");
        let named: Vec<String> = outcome.false_names().map(ToString::to_string).collect();
        assert_eq!(named, [""; 0], "seed {seed}");
        let Stated { outside, farthest, .. } = &outcome.smoothed;
        assert_eq!(*outside, 0, "seed {seed}: {farthest:?}");
        // A live estimate cannot know how a clock goes on after a pause that emptied half of its
        // window: only its hard interval can.
        for stated in [&outcome.live, &outcome.smoothed] {
            assert_eq!(stated.outside_hard, 0, "seed {seed}");
            estimates += stated.errors_ns.len();
        }
        rate_changes += outcome.named.len();
    }
    assert!(
        estimates > 500 && rate_changes > 5,
        "{estimates} estimates, {rate_changes} changes of rate: too quiet to show anything"
    );
    let (paused, running) = (scenario(&base, 12), scenario(&base, 17));
    assert!(pauses(12) && !paused.faults.is_empty() && !pauses(17) && running.faults.is_empty());
    assert_eq!((paused.window_s, running.window_s), (1.0, 4.0));
}
