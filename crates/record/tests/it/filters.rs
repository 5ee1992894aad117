//! What sessions leave out, and sessions that end in another order than they began.

use std::time::Duration;

use probe_sync_record::event::ScopeWords;
use probe_sync_record::observe::{Observer, Observing};
use probe_sync_record::read::Omitted;
use probe_sync_record::{Builder, Error, Kind, Policy, Reach, Recorder, Recording, Site, Span, flow, instant, scope};

use crate::support::{alone, tallies};

fn builder() -> Builder {
    Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 })
}

/// How many events of each name the only thread has.
fn counts<const N: usize>(recording: &Recording, names: [&str; N]) -> [u64; N] {
    let tally = tallies(recording).into_values().next().unwrap_or_default();
    names.map(|name| tally.names.get(name).copied().unwrap_or(0))
}

#[test]
fn one_of_so_many_scopes_is_recorded_with_all_other_events() {
    let _alone = alone();
    let (all, session) = (builder().start().expect("few"), builder().one_in(3).start().expect("few"));
    for n in 0..9_u64 {
        let _scope = scope!("scope", n = n);
        instant!("moment");
    }
    assert_eq!(counts(&session.finish().expect("whole"), ["scope", "moment"]), [3, 9]);
    assert_eq!(counts(&all.finish().expect("whole"), ["scope", "moment"]), [9, 9]);
}

#[test]
fn scopes_that_are_shorter_are_left_out() {
    let _alone = alone();
    let session = builder().longer_than(Duration::from_millis(5)).start().expect("few");
    for _ in 0..5 {
        drop(scope!("short"));
    }
    let long = scope!("long");
    std::thread::sleep(Duration::from_millis(10));
    drop(long);
    assert_eq!(counts(&session.finish().expect("whole"), ["short", "long"])[1], 1);
}

#[test]
fn kinds_that_are_not_wanted_are_left_out_whoever_makes_them() {
    let _alone = alone();
    let session = builder().kinds(&[Kind::Io]).start().expect("few");
    static USER: Site = Site::new("user", Kind::User, file!(), line!(), &[]);
    static IO: Site = Site::new("io", Kind::Io, file!(), line!(), &[]);
    for site in [&USER, &IO, &USER, &IO] {
        let mut words = std::mem::MaybeUninit::uninit();
        let is_recorded = ScopeWords::enter(site, &(), &mut words);
        assert_eq!(is_recorded, site.kind() == Kind::Io);
        // SAFETY: written by `enter`, in either case, and ended here once.
        unsafe { words.assume_init().end() };
    }
    drop(scope!("user too"));
    flow!(Step, "user's flow", 5);
    assert_eq!(Span::nowhere(&IO).id(), 0);
    assert_eq!(counts(&session.finish().expect("whole"), ["io", "user", "user too", "user's flow"]), [2, 0, 0, 0]);
}

#[test]
fn what_filters_omit_is_counted_by_filter() {
    let _alone = alone();
    let omitted = |builder: Builder| {
        let session = builder.start().expect("few");
        let emit = || {
            for n in 0..6_u64 {
                let _scope = scope!(Kind::Io, "scope", n = n);
                instant!("moment");
            }
            drop(scope!("short"));
        };
        // Also on a thread that has ended.
        let adopter = session.adopter();
        std::thread::scope(|threads| {
            let other = threads.spawn(move || {
                let _adopted = adopter.adopt();
                emit();
            });
            other.join().expect("no panic");
        });
        emit();
        session.finish().expect("whole").status().omitted
    };
    let expected = |kinds, one_in, longer_than| {
        let mut expected = Omitted::default();
        (expected.kinds, expected.one_in, expected.longer_than) = (kinds, one_in, longer_than);
        expected
    };
    assert_eq!(omitted(builder()), expected(0, 0, 0));
    assert_eq!(omitted(builder().one_in(3)), expected(0, 2 * 4, 0));
    assert_eq!(omitted(builder().longer_than(Duration::from_secs(60))), expected(0, 0, 2 * 7));
    let io = || builder().kinds(&[Kind::Io]);
    assert_eq!(omitted(io()), expected(0, 0, 0), "only on request");
    assert_eq!(omitted(io().count_omitted(true)), expected(2 * 7, 0, 0));
    assert_eq!(omitted(io().count_omitted(true).one_in(2)), expected(2 * 7, 2 * 3, 0));
}

/// The lanes behind the one that goes move up, with what is open in them.
#[test]
fn the_outer_session_may_end_first() {
    let _alone = alone();
    let [first, second, third] = [(); 3].map(|()| builder().start().expect("few"));
    let outer = scope!("outer", n = 1_u64);
    drop(scope!("within all"));
    assert_eq!(counts(&first.finish().expect("whole"), ["within all", "outer"]), [1, 0]);
    drop(scope!("within two"));
    outer.argument(0, &2_u64);
    flow!(Step, "flow", 5);
    drop(outer);
    for session in [second, third] {
        let found = counts(&session.finish().expect("whole"), ["within all", "within two", "flow", "outer"]);
        assert_eq!(found, [1, 1, 1, 1]);
    }
}

#[test]
fn more_observers_than_there_may_be_are_refused() {
    let _alone = alone();
    let add = || Observer::default().reach(Reach::Thread).on_leave(|_, _| ()).add();
    let added: Vec<Observing> = (0..8).map(|_| add().expect("few")).collect();
    assert!(matches!(add(), Err(Error::TooManyObservers { open: 8 })));
    drop(scope!("observed by eight"));
    assert!(added.iter().all(|observing| observing.counts().calls == 1));
    drop(added);
    drop(add().expect("they are gone"));
}
