//! That each figure comes out as it went in, under a name that readers accept.

use std::collections::BTreeSet;

use probe_sync_lines::{
    ClockEvent, Culprit, Decision, FaultKind, Findings, NodeEstimate, NodeWindow, Punctuality, Round, SnapshotCounts,
};
use probe_sync_time::{Duration, NodeId, RoundId, StampSource, System, Timestamp};

use super::super::parts::{Part, Parts};
use super::*;

/// Two nodes; node 1 is 1000 ns ahead, cut its window 300 ns after node 0, and lost an exchange.
fn observed(metrics: &mut Metrics) {
    let at = Timestamp::<System>::from_ns;
    let estimate = |node: u32, offset_ns: f64| NodeEstimate {
        node_id: NodeId(node),
        offset_ns,
        drift_ppm: 2.0,
        residual: 3.0,
        reachable: true,
        converged: node == 0,
        sigma_ns: 100.0,
        asymmetry_sigma_ns: 0.0,
        drift_sigma_ppm: 5.0,
        bound_lo_ns: offset_ns - 500.0,
        bound_hi_ns: if node == 0 { f64::INFINITY } else { offset_ns + 400.0 },
        edges_used: 1,
        edges_excluded: 0,
    };
    let culprit = Culprit::Node(NodeId(1));
    let fault = Fault { kind: FaultKind::Step, culprit, size: 1.0, began: RoundId(3), round: RoundId(4) };
    let event = ClockEvent { step_ns: 1, slew_ppm: 2.0, at: at(3), step_between: None };
    let round = Round {
        round_id: RoundId(4),
        carried_by: None,
        reference: NodeId(0),
        window_start: Timestamp::from_ns(10),
        window_end: Timestamp::from_ns(20),
        all_nodes: vec![estimate(0, 0.0), estimate(1, 1000.0)],
        excluded_edges: Vec::new(),
        worst_edge: None,
        asymmetry_sd_ns: 0.0,
        loops: (0, 0.0),
        clamped: 0,
        contradictions: Vec::new(),
        clock_events: vec![(NodeId(1), event)],
        watch: Findings { faults: vec![fault], ..Findings::default() },
        decision: Decision { next_window: Duration::from_ms(4_000), cadence: Duration::from_us(800), ..Decision::STOP },
    };
    let window = |node: u32, end: i64, got: i64| NodeWindow {
        node_id: NodeId(node),
        round_id: RoundId(4),
        window_start: at(0),
        window_end: at(end),
        edges: Vec::new(),
        clock_event: None,
        stop_requested: false,
        packets: Vec::new(),
        unfitted: if node == 1 { vec![(NodeId(0), 1)] } else { Vec::new() },
        punctuality: Punctuality {
            end_late_ns: Some(2_000_000),
            decision_at: Some(at(got)),
            commands_waiting: 2,
            exchanges: vec![(StampSource::Kernel, 5)],
            files_stopped: node,
            control_retries: u64::from(node),
            snapshots: SnapshotCounts { taken: 4, failed: u64::from(node), ..SnapshotCounts::default() },
        },
    };
    let mut parts = Parts::default();
    parts.time(Part::Gather, || ());
    let windows = [window(0, 50_000, 10_000), window(1, 51_300, 16_000)];
    let traffic = Traffic { messages_sent: 3, bytes_received: 400, ..Traffic::default() };
    let decided = Some((NodeId(0), at(9_000)));
    let observed = Observed { windows: &windows, parts, gathered_bytes: 300, decision_bytes: 200, traffic, decided };
    metrics.round(&round, StdDuration::from_millis(2), &observed);
    let stopped = StreamState { stopped: Some("full".into()), removed_bytes: 70, ..StreamState::default() };
    metrics.streams([&stopped, &StreamState::default()], &windows);
}

fn all_metrics() -> Metrics {
    let mut metrics = Metrics::new(&["a", "b\"c"], Some(200.0));
    observed(&mut metrics);
    metrics.rank(1, "b", true, 1);
    metrics.late(&Totals {
        lost_s: vec![("grads".to_owned(), 1, 2.5)],
        lead_s: vec![("grads".to_owned(), 1, 0.01)],
        waiting_s: vec![("tp_1".to_owned(), 12.0)],
        ..Totals::default()
    });
    metrics.end(0.5, &Counter::ALL.iter().map(|counter| (*counter, 1)).collect());
    metrics
}

#[test]
fn each_figure_comes_out_as_it_went_in() {
    let mut metrics = all_metrics();
    observed(&mut metrics);
    let text = prometheus_text(&whole(&metrics.render(), None));
    let host = "host=\"b\\\"c\"";
    for line in [
        "rounds_total 2".to_owned(),
        format!("offset_seconds{{node=\"1\",{host}}} 1e-6"),
        format!("offset_bound_seconds{{node=\"1\",{host}}} 5e-7"),
        format!("offset_sigma_seconds{{node=\"1\",{host}}} 1e-7"),
        format!("node_reachable{{node=\"1\",{host}}} 1.0"),
        format!("node_converged{{node=\"1\",{host}}} 0.0"),
        format!("clock_events_total{{node=\"1\",{host}}} 2"),
        "sequence_skew_seconds 3e-7".to_owned(),
        format!("node_round_end_latency_seconds{{node=\"1\",{host}}} 0.002"),
        "round_end_latency_seconds_count 4".to_owned(),
        format!("node_round_start_latency_seconds{{node=\"1\",{host}}} 6e-6"),
        "round_start_latency_seconds_count 4".to_owned(),
        format!("probe_queue_depth{{node=\"1\",{host}}} 2.0"),
        "timestamps_total{source=\"kernel\"} 160".to_owned(),
        "lost_exchanges_total{src=\"1\",dst=\"0\"} 2".to_owned(),
        "round_part_seconds_count{part=\"gather\"} 2".to_owned(),
        "round_latency_seconds_bucket{le=\"0.003\"} 2".to_owned(),
        "round_message_bytes_sum{message=\"gather\"} 600.0".to_owned(),
        "round_message_bytes_sum{message=\"decision\"} 400.0".to_owned(),
        // What the backend has carried since it was made, not twice.
        "control_messages_total{direction=\"sent\"} 3".to_owned(),
        "control_bytes_total{direction=\"received\"} 400".to_owned(),
        // The root has none; node 1 has, and says so each time.
        "control_retries_total 1".to_owned(),
        "snapshots_total{kind=\"taken\"} 8".to_owned(),
        "snapshots_total{kind=\"failed\"} 1".to_owned(),
        "ranks_lost_total 1".to_owned(),
        "faults_total{kind=\"step\"} 2".to_owned(),
        "rank_away{rank=\"1\",host=\"b\"} 1.0".to_owned(),
        "target_seconds 2e-7".to_owned(),
        "nodes_within_target 2.0".to_owned(),
        "late_seconds_total{rank=\"1\",group=\"grads\"} 2.5".to_owned(),
        "lead_seconds{rank=\"1\",group=\"grads\"} 0.01".to_owned(),
        "waiting_seconds{group=\"tp_1\"} 12.0".to_owned(),
        // One of the root, one of node 1.
        "files_stopped 2.0".to_owned(),
        "removed_bytes_total 70".to_owned(),
        "window_seconds 4.0".to_owned(),
        "cadence_seconds 0.0008".to_owned(),
        "cpu_cores 0.5".to_owned(),
    ] {
        let (series, value) = line.rsplit_once(' ').expect("a series and its value");
        let expected: f64 = value.parse().expect("a number");
        let found = text.lines().find_map(|line| line.strip_prefix(&format!("probe_sync_{series} ")));
        let found: f64 = found.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{series} in {text}"));
        assert!((found - expected).abs() <= 1e-9 * expected, "{series}: {found}, not {expected}");
    }
    // Nothing bounds node 0 from above.
    assert!(!text.contains("offset_bound_seconds{node=\"0\""), "{text}");
}

#[test]
fn every_counter_comes_with_its_help() {
    let text = all_metrics().render();
    for counter in Counter::ALL {
        assert!(text.contains(&format!("probe_sync_events_total{{kind=\"{}\"}} 1\n", counter.name())), "{text}");
        assert!(text.contains(&format!("{}: {}", counter.name(), counter.help())), "{text}");
    }
}

#[test]
fn both_texts_hold_the_same_samples() {
    let open = whole(&all_metrics().render(), Some(StdDuration::from_secs(3)));
    let classic = prometheus_text(&open);
    let samples =
        |text: &str| text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(samples(&open), samples(&classic));
    assert!(open.ends_with("# EOF\n") && open.contains("# TYPE probe_sync_rounds counter\n"));
    assert!(open.contains("probe_sync_last_round_age_seconds 3.0\n"), "{open}");
    assert!(
        classic.contains("# HELP probe_sync_rounds_total Solved rounds.\n# TYPE probe_sync_rounds_total counter\n")
    );
    assert!(!classic.contains("# UNIT") && !classic.contains("# EOF"));
}

#[test]
fn what_is_said_of_a_node_goes_when_it_is_out_of_reach() {
    let mut metrics = all_metrics();
    assert!(metrics.render().contains("probe_sync_offset_seconds{node=\"1\""));
    let estimate = NodeEstimate {
        node_id: NodeId(1),
        offset_ns: 0.0,
        drift_ppm: 0.0,
        residual: 0.0,
        reachable: false,
        converged: false,
        sigma_ns: f64::INFINITY,
        asymmetry_sigma_ns: 0.0,
        drift_sigma_ppm: f64::INFINITY,
        bound_lo_ns: f64::NEG_INFINITY,
        bound_hi_ns: f64::INFINITY,
        edges_used: 0,
        edges_excluded: 0,
    };
    let round = Round {
        round_id: RoundId(5),
        carried_by: None,
        reference: NodeId(0),
        window_start: Timestamp::from_ns(20),
        window_end: Timestamp::from_ns(30),
        all_nodes: vec![estimate],
        excluded_edges: Vec::new(),
        worst_edge: None,
        asymmetry_sd_ns: 0.0,
        loops: (0, 0.0),
        clamped: 0,
        contradictions: Vec::new(),
        clock_events: Vec::new(),
        watch: Default::default(),
        decision: Decision::STOP,
    };
    let observed = Observed {
        windows: &[],
        parts: Parts::default(),
        gathered_bytes: 0,
        decision_bytes: 0,
        traffic: Traffic::default(),
        decided: None,
    };
    metrics.round(&round, StdDuration::ZERO, &observed);
    let text = metrics.render();
    assert!(!text.contains("probe_sync_offset_seconds{node=\"1\""), "{text}");
    assert!(text.contains("probe_sync_node_reachable{node=\"1\",host=\"b\\\"c\"} 0.0"), "{text}");
}

#[test]
fn dashboard_and_alerts_name_only_metrics_that_exist() {
    let text = prometheus_text(&whole(&all_metrics().render(), Some(StdDuration::ZERO)));
    let series: BTreeSet<&str> =
        text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(['{', ' ']).next()).collect();
    for (file, content) in [
        ("dashboard.json", include_str!("../../../../../docs/grafana/dashboard.json")),
        ("alerts.yaml", include_str!("../../../../../docs/grafana/alerts.yaml")),
    ] {
        let words = content.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: BTreeSet<&str> = words.filter(|word| word.starts_with("probe_sync_")).collect();
        let unknown: Vec<&&str> = named.difference(&series).collect();
        assert!(named.len() > 5 && unknown.is_empty(), "{file} names {unknown:?}; there are {series:?}");
    }
}
