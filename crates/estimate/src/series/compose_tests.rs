//! Chains of maps against mapping hop by hop, and steps that both hops saw.

use super::super::map::Knot;
use super::super::map::tests::{EPOCH_PS, map, tame_knots};
use super::*;
use proptest::prelude::*;

const SECOND: i128 = 1_000_000_000_000;

proptest! {
    #[test]
    fn one_map_equals_hop_after_hop(
        first in tame_knots(),
        second in tame_knots(),
        times in prop::collection::vec(-20_000_000_000_000..120_000_000_000_000i64, 1..60),
    ) {
        let (first, second) = (map(&[&first]), map(&[&second]));
        let chain = MapChain::new(first.clone()).then(second.clone(), 0.0);
        for t in times.into_iter().map(|t| EPOCH_PS + i128::from(t)) {
            let hop = first.map(t);
            let hop2 = second.map(hop.time_ps);
            let found = chain.map(t);
            prop_assert!(!found.clamped);
            prop_assert!((found.time_ps - hop2.time_ps).abs() <= 6, "{} {:?} {:?}", t, found, hop2);
            let at_edge = found.place != hop.place.and(hop2.place);
            prop_assert!(!at_edge || chain.map(t + 4).place != chain.map(t - 4).place);
        }
    }
}

#[test]
fn identity_is_neutral() {
    let some = map(&[&[(0, 7), (SECOND, -9)]]);
    let before = MapChain::new(TimeMap::identity()).then(some.clone(), 0.0);
    let after = MapChain::new(some.clone()).then(TimeMap::identity(), 0.0);
    for t in (-5..25).map(|k| EPOCH_PS + k * SECOND / 13) {
        assert_eq!(before.map(t).time_ps, some.map(t).time_ps);
        assert_eq!(after.map(t).time_ps, some.map(t).time_ps);
        assert_eq!(after.map(t).place, some.map(t).place);
    }
    let nothing = MapChain::new(TimeMap::identity()).then(TimeMap::identity(), 0.0);
    assert_eq!(nothing.map(EPOCH_PS).time_ps, EPOCH_PS);
    assert_eq!((nothing.hops().len(), nothing.joins()), (2, &[Join::default()][..]));
}

/// R runs evenly; S = R, but is set by `step` at R = 5 s; S_0 = R. Knots every second, those of the second map at its own.
fn stepped(step: i128) -> MapChain {
    let knots = |range: std::ops::Range<i128>, shift: i128, correction: i128| -> Vec<(i128, i128)> {
        range.map(|k| (k * SECOND + shift, correction)).collect()
    };
    let to_system = map(&[&knots(0..5, 0, 0), &knots(6..10, 0, -step)]);
    let half = SECOND / 2;
    let to_reference = map(&[&knots(-3..4, half, 0), &knots(7..12, half + step, step)]);
    MapChain::new(to_system).then(to_reference, 100.0)
}

#[test]
fn a_step_seen_by_both_maps_leaves_no_trace() {
    for step in [SECOND / 100, -SECOND / 100, 40 * SECOND, -40 * SECOND] {
        let chain = stepped(step);
        assert_eq!(chain.joins(), [Join { matched: 1, ..Join::default() }]);
        assert_eq!(chain.whole().breaks(), []);
        for t in (-30..150).map(|k| EPOCH_PS + k * SECOND / 10) {
            let found = chain.map(t);
            assert_eq!((found.time_ps, found.clamped), (t, false), "step {step} at {}", t - EPOCH_PS);
            assert!(found.sigma_ns < 1e6);
        }
    }
}

#[test]
fn breaks_that_differ_stay() {
    let seconds = |step: i128| map(&[&[(0, 0), (2 * SECOND, 0)], &[(4 * SECOND, step), (9 * SECOND, step)]]);
    let milli = SECOND / 1000;
    for (first, second, expected) in [
        (milli, 2 * milli, Join { matched: 0, only_first: 1, only_second: 1 }),
        (milli, -3 * milli, Join { matched: 0, only_first: 1, only_second: 1 }),
        (milli, -milli - milli / 10, Join { matched: 1, only_first: 0, only_second: 0 }),
    ] {
        assert_eq!(seconds(first).then(&seconds(second), 100.0).1, expected, "{first} {second}");
    }
    // Far apart in time: not the same step.
    let late = map(&[
        &[(0, 0), (SECOND, 0), (20 * SECOND, 0)],
        &[(21 * SECOND, -milli), (22 * SECOND, -milli), (29 * SECOND, -milli)],
    ]);
    assert_eq!(seconds(milli).then(&late, 100.0).1.matched, 0);
}

#[test]
fn uncertainties_add_in_quadrature() {
    let with = |sigma_ns| {
        let knot = |at_ps| Knot { at_ps, correction_ps: 0, sigma_ns };
        TimeMap::new(&[crate::series::Segment { knots: vec![knot(0), knot(SECOND)], ..Default::default() }])
            .expect("usable knots")
    };
    let both = with(30.0).then(&with(40.0), 0.0).0;
    assert!((both.map(SECOND / 3).sigma_ns - 50.0).abs() < 1e-9);
    assert_eq!(both.map(2 * SECOND).place, Place::After);
    assert!(both.map(2 * SECOND).sigma_ns > 150.0);
}
