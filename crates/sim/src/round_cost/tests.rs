//! Tests of the simulated round against values that can be computed by hand.
//!
//! `bench/scale` compares the model with measured rounds.

use super::*;

/// Hosts of one rank with a core each, no costs but those that a case sets.
fn hosts(ranks: usize, topology: Topology) -> RoundModel {
    let free = MessageCosts { many_us: 0.0, alone_us: 0.0, kibibyte_us: 0.0 };
    RoundModel {
        ranks,
        ranks_per_host: 1,
        cores: 1,
        topology,
        mode: Mode::Master,
        costs: Costs { between_hosts: free, within_host: free, wake_us: 0.0 },
        network: Network { latency_us: 0.0, gigabits: 1e6, tail_probability: 0.0, tail_us: 0.0 },
        sizes: Sizes { window: 0, estimate: 0, header: 0, shared_estimates_max: 1 << 16 },
    }
}

fn round(model: &RoundModel) -> RoundCost {
    model.round(1).expect("a model within its limits")
}

/// Within a part in a thousand.
fn check(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-3 * expected.abs().max(1e-6), "{found} instead of {expected}");
}

#[test]
fn latency_counts_once_per_hop() {
    for (topology, ranks, hops) in [
        (Topology::Star, 100, 1),
        (Topology::Tree { fan_out: 2 }, 15, 3),
        (Topology::Tree { fan_out: 16 }, 273, 2),
        (Topology::Regions { ranks: 10 }, 100, 2),
    ] {
        let mut model = hosts(ranks, topology);
        model.network.latency_us = 50.0;
        let cost = round(&model);
        assert_eq!(cost.hops, hops, "{topology:?}");
        check(cost.round_us, 2.0 * 50.0 * hops as f64);
        check(cost.gather_us, 50.0 * hops as f64);
        assert_eq!(cost.messages, 2 * (ranks as u64 - 1));
    }
}

#[test]
fn leaders_hear_the_root_by_a_binomial_tree() {
    let mut model = hosts(64, Topology::Leaders);
    model.network.latency_us = 50.0;
    let cost = round(&model);
    assert_eq!(cost.hops, 6);
    check(cost.round_us, 50.0 * 7.0);
    // Of 63 leaders all send to the root, and it sends to 6.
    assert_eq!(cost.root_messages, 69);
}

#[test]
fn the_root_of_a_star_pays_for_every_message() {
    let mut model = hosts(101, Topology::Star);
    model.costs.between_hosts.many_us = 3.0;
    let cost = round(&model);
    check(cost.root_cpu_us, 600.0);
    check(cost.round_us, 600.0);
    let tree = RoundModel { topology: Topology::Tree { fan_out: 10 }, ..model };
    // 10 in turn at the root, and 9 at each below it, those at the same time.
    check(round(&tree).root_cpu_us, 60.0);
    check(round(&tree).round_us, 2.0 * (9.0 * 3.0 + 10.0 * 3.0));
}

#[test]
fn a_link_carries_one_message_at_a_time() {
    let mut model = hosts(11, Topology::Star);
    model.sizes = Sizes { window: 1250, estimate: 125, header: 0, shared_estimates_max: 1 << 16 };
    model.network.gigabits = 1.0;
    // 10 µs for each window on the root's link; a decision of 11 nodes takes 11.
    let cost = round(&model);
    check(cost.gather_us, 100.0);
    check(cost.round_us, 100.0 + 110.0);
    assert_eq!((cost.bytes, cost.root_bytes), (10 * 1250 + 10 * 1375, 10 * 1250 + 10 * 1375));
}

#[test]
fn ranks_of_a_host_share_its_cores() {
    let mut model = RoundModel { ranks_per_host: 9, ..hosts(9, Topology::Star) };
    model.costs.within_host.alone_us = 10.0;
    // Eight ranks send, then hear, for 10 µs each.
    check(round(&model).round_us, 160.0);
    check(round(&RoundModel { cores: 2, ..model }).round_us, 80.0);
    check(round(&RoundModel { cores: 8, ..model }).round_us, 20.0);
}

#[test]
fn one_rank_of_a_host_brings_its_window() {
    let model = RoundModel { ranks_per_host: 8, ..hosts(80, Topology::Star) };
    assert_eq!(model.nodes(), 10);
    assert_eq!(round(&model).messages, 9 + 79);
    let tree = RoundModel { topology: Topology::Tree { fan_out: 4 }, ..model };
    assert_eq!(round(&tree).messages as usize, 79 + tree_senders(&tree));
    let all = RoundModel { mode: Mode::Timed, ..model };
    assert_eq!(round(&all).messages, 79 + 79);
}

/// Ranks of a tree that have a leader at or below them.
fn tree_senders(model: &RoundModel) -> usize {
    let plan = plan::Plan::new(model);
    (1..model.ranks).filter(|&rank| plan.gather_to[rank] != rank).count()
}

#[test]
fn in_a_large_group_a_rank_is_told_its_own_part() {
    let mut model = hosts(256, Topology::Star);
    model.sizes.estimate = 74;
    assert_eq!(model.told(), 256 * 74);
    assert_eq!(RoundModel { ranks: 257, ..model }.told(), 2 * 74);
    model.mode = Mode::Timed;
    model.sizes.window = 1000;
    assert_eq!(model.told(), 256 * 1008);
}

#[test]
fn a_tail_delays_and_the_seed_alone_decides_it() {
    let mut model = hosts(1000, Topology::Star);
    model.network = Network { latency_us: 10.0, gigabits: 100.0, tail_probability: 0.01, tail_us: 1000.0 };
    let [one, other] = [1, 2].map(|seed| model.round(seed).expect("within its limits"));
    assert!(one.round_us > 100.0 && one != other, "{one:?} {other:?}");
    assert_eq!(model.round(1).ok(), Some(one));
}

#[test]
fn ten_thousand_hosts_are_simulated() {
    let mut model = hosts(10_000, Topology::Tree { fan_out: 16 });
    model.costs.between_hosts = MessageCosts { many_us: 2.0, alone_us: 10.0, kibibyte_us: 0.1 };
    model.network.latency_us = 20.0;
    model.sizes = Sizes { window: 1000, estimate: 74, header: 32, shared_estimates_max: 1 << 16 };
    let star = RoundModel { topology: Topology::Star, ..model };
    assert!(round(&model).round_us < round(&star).round_us);
}

#[test]
fn what_is_out_of_range_is_named() {
    let model = hosts(4, Topology::Star);
    let refused = |model: RoundModel, field: &str| {
        let error = model.round(1).expect_err(field).to_string();
        assert!(error.starts_with(field), "{error}");
    };
    refused(RoundModel { ranks: 1, ..model }, "ranks");
    refused(RoundModel { ranks_per_host: 0, ..model }, "ranks_per_host");
    refused(RoundModel { topology: Topology::Tree { fan_out: 1 }, ..model }, "fan_out");
    refused(RoundModel { costs: Costs { wake_us: f64::NAN, ..model.costs }, ..model }, "wake_us");
    refused(RoundModel { network: Network { gigabits: 0.0, ..model.network }, ..model }, "gigabits");
}
