//! Without the feature `recording` macros do nothing: no argument is made, and no session has an
//! event.

use std::cell::Cell;

use probe_sync_record::{Kind, Reach, Recorder, counter, flow, instant, scope, span};

use crate::support::{alone, most_bytes, most_resident, sums, tallies, tallies_of};

#[test]
fn macros_do_nothing() {
    let _alone = alone();
    let session = Recorder::builder().reach(Reach::Process).start().expect("sessions are there all the same");
    let made = Cell::new(0);
    let make = || {
        made.set(made.get() + 1);
        made.get()
    };
    let ((), bytes) = most_bytes(|| {
        for _ in 0..1000 {
            let _scope = scope!(Kind::Io, "scope", a = make(), b = || make());
            instant!("instant", a = make());
            counter!("counter", make());
            flow!(Out, "flow", make() as u64);
            let span = span!("span");
            assert_eq!(span.id(), 0);
            assert!(!_scope.is_recorded());
        }
    });
    let recording = session.finish().expect("whole");
    assert_eq!((made.get(), bytes, recording.threads().len(), recording.sites().count()), (0, 0, 0, 0));
    assert_eq!(sums(&recording), [0, 0, 0]);
    assert!(tallies(&recording).is_empty() && tallies_of(&recording, true).is_empty() && most_resident() > 0);
}
