//! Jobs of which only counts are known. The JSON of RAS is synthetic, laid out like that of NCCL 2.28
//! (`src/ras/client_support.cc`).

use probe_sync_hang::{Certainty, Clocks, Counts, Fault, Job, Verdict};

fn judge(text: &str) -> Verdict {
    let mut job = Job::new();
    job.add_counts(&Counts::read(text.as_bytes()).expect("well-formed"));
    job.judge(&Clocks::default())
}

fn named(verdict: &Verdict) -> Vec<(Vec<u32>, Fault, Certainty)> {
    verdict.causes.iter().map(|cause| (cause.ranks.clone(), cause.fault, cause.certainty)).collect()
}

/// A communicator with ranks of these devices, each with numbers of AllReduce and Broadcast; `None`
/// for one that is dead.
fn communicator(hash: &str, ranks: &[(u32, Option<[u64; 2]>)]) -> String {
    let place = |rank: usize, device: u32| {
        format!(
            r#""rank": {rank}, "host": "10.0.0.{}", "pid": {}, "cuda_dev": {device}, "nvml_dev": {device}"#,
            1 + device / 4,
            100 + device
        )
    };
    let (mut present, mut missing) = (Vec::new(), Vec::new());
    for (rank, (device, counts)) in ranks.iter().enumerate() {
        let place = place(rank, *device);
        match counts {
            Some([reduced, sent]) => present.push(format!(
                r#"{{{place}, "status": {{"init_state": 0, "async_error": 0, "finalize_called": false, "destroy_flag": false, "abort_flag": false}}, "collective_counts": {{"Broadcast": {sent}, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": {reduced}}}}}"#
            )),
            None => {
                missing.push(format!(r#"{{{place}, "status": {{"unresponsive": true, "considered_dead": true}}}}"#));
            }
        }
    }
    format!(
        r#"{{"hash": "{hash}", "secondary_hash": "0x1:0x2", "size": {}, "ranks_count": {}, "missing_ranks_count": {}, "ranks": [{}], "missing_ranks": [{}]}}"#,
        ranks.len(),
        present.len(),
        missing.len(),
        present.join(","),
        missing.join(",")
    )
}

fn ras(communicators: &[String]) -> String {
    format!(
        r#"{{"nccl_version": "2.28.3", "cuda_runtime_version": 12080, "cuda_driver_version": 12080, "timestamp": "2026-11-29 12:00:00", "communicators_count": {}, "communicators": [{}], "ras": {{"collection_time_sec": 0.004, "timeouts_count": 0}}}}"#,
        communicators.len(),
        communicators.join(",")
    )
}

#[test]
fn the_rank_that_is_behind_is_named_by_its_number_in_the_job() {
    // Devices 3 and 2 are ranks 0 and 1 of the second communicator. Rank 3 waits there for rank 2,
    // and ranks 0 and 1 wait for both.
    let world = communicator("0xa", &[(0, Some([11, 4])), (1, Some([11, 4])), (2, Some([10, 4])), (3, Some([10, 4]))]);
    let pair = communicator("0xb", &[(3, Some([7, 0])), (2, Some([6, 0]))]);
    let verdict = judge(&ras(&[pair, world]));
    assert_eq!(named(&verdict), [(vec![2], Fault::NeverEnqueued, Certainty::Likely)], "{}", verdict.text());
    assert_eq!(verdict.causes[0].hosts, ["10.0.0.1"]);
    assert!(verdict.text().contains("AllReduce #7 of communicator 0xb"), "{}", verdict.text());
    assert_eq!(verdict.waiting.iter().map(|waiting| waiting.rank).collect::<Vec<_>>(), [0, 1, 3]);
}

#[test]
fn a_rank_that_nccl_considers_dead_is_named() {
    let world = communicator("0xa", &[(0, Some([11, 4])), (1, None), (2, Some([11, 4])), (3, Some([11, 4]))]);
    let verdict = judge(&ras(&[world]));
    assert_eq!(named(&verdict), [(vec![1], Fault::NoDump, Certainty::Likely)], "{}", verdict.text());
    assert!(verdict.text().contains("NCCL considers it dead"), "{}", verdict.text());
}

#[test]
fn a_rank_that_began_another_operation_is_named() {
    let world = communicator("0xa", &[(0, Some([11, 4])), (1, Some([10, 5])), (2, Some([11, 4])), (3, Some([11, 4]))]);
    let verdict = judge(&ras(&[world]));
    assert_eq!(named(&verdict), [(vec![1], Fault::Mismatch, Certainty::Likely)], "{}", verdict.text());
    assert!(verdict.text().contains("rank 1 enqueued 10 AllReduce, 5 Broadcast"), "{}", verdict.text());
}

#[test]
fn no_rank_is_named_if_all_counts_are_equal() {
    let world = communicator("0xa", &[(0, Some([11, 4])), (1, Some([11, 4]))]);
    let verdict = judge(&ras(&[world]));
    assert!(!verdict.is_decided() && verdict.causes.is_empty(), "{}", verdict.text());
}

#[test]
fn ranks_of_separate_communicators_have_no_numbers_in_the_job() {
    let halves = [communicator("0xa", &[(0, Some([1, 0])), (1, Some([1, 0]))]), communicator("0xb", &[(2, None)])];
    let error = Counts::read(ras(&halves).as_bytes()).expect_err("no communicator has all ranks").to_string();
    assert!(error.contains("no communicator has all ranks"), "{error}");
    for text in ["", "{", "[]", "{\"communicators\": 3}", "{\"communicators\": []}", "{\"traceEvents\": []}"] {
        assert!(Counts::read(text.as_bytes()).is_err(), "{text}");
    }
}

/// Rank, last step, and how often the steps have begun again.
type Last = (u32, u64, u32);

/// The arrivals of ranks in groups, as `hang --live` writes them.
fn arrivals(answers: &[&str], groups: &[(&str, &[Last])]) -> String {
    let ranks = answers.iter().enumerate();
    let ranks = ranks.map(|(rank, answer)| format!(r#"{{"rank": {rank}, "host": "h{rank}", "answer": "{answer}"}}"#));
    let groups = groups.iter().map(|(name, last)| {
        let last = last
            .iter()
            .map(|(rank, step, restarts)| format!(r#"{{"rank": {rank}, "step": {step}, "restarts": {restarts}}}"#));
        format!(r#"{{"name": "{name}", "last": [{}]}}"#, last.collect::<Vec<_>>().join(","))
    });
    let (ranks, groups) = (ranks.collect::<Vec<_>>().join(","), groups.collect::<Vec<_>>().join(","));
    format!(r#"{{"schema": 1, "ranks": [{ranks}], "groups": [{groups}]}}"#)
}

#[test]
fn the_first_of_a_chain_is_named_and_steps_may_skip_numbers() {
    // Ranks 0 and 1 wait for 2, which waits for 3.
    let text =
        arrivals(&["complete"; 4], &[("dp", &[(0, 40, 0), (1, 40, 0), (2, 30, 0)]), ("tp", &[(2, 7, 0), (3, 6, 0)])]);
    let verdict = judge(&text);
    assert_eq!(named(&verdict), [(vec![3], Fault::NeverEnqueued, Certainty::Likely)], "{}", verdict.text());
    assert!(verdict.text().contains("operation #7 of group tp"), "{}", verdict.text());
}

#[test]
fn a_rank_that_does_not_answer_and_one_that_did_not_begin_again_are_named() {
    let last = |of_1| [(0, 5, 0), (1, of_1, 0), (2, 5, 0)];
    // Nobody is known to wait for rank 1.
    let verdict = judge(&arrivals(&["complete", "none", "complete"], &[("dp", &last(5))]));
    assert!(verdict.causes.is_empty(), "{}", verdict.text());
    let text = arrivals(&["complete", "none", "complete"], &[("dp", &last(4))]);
    let verdict = judge(&text);
    assert_eq!(named(&verdict), [(vec![1], Fault::NoDump, Certainty::Likely)], "{}", verdict.text());
    assert!(verdict.text().contains("its session did not answer"), "{}", verdict.text());

    // After a checkpoint was restored, rank 2 has not come back to the loop.
    let text = arrivals(&["complete", "complete", "session_only"], &[("dp", &[(0, 3, 1), (1, 3, 1), (2, 50, 0)])]);
    let verdict = judge(&text);
    assert_eq!(named(&verdict), [(vec![2], Fault::NeverEnqueued, Certainty::Likely)], "{}", verdict.text());
}

#[test]
fn one_rank_that_counts_anew_does_not_put_the_others_behind() {
    // Rank 1 was started again and arrives at step 0, or its steps came out of order once.
    let verdict = judge(&arrivals(&["complete"; 3], &[("dp", &[(0, 50, 0), (1, 0, 1), (2, 50, 0)])]));
    assert!(verdict.causes.is_empty(), "{}", verdict.text());
}

#[test]
fn a_rank_whose_arrivals_were_lost_is_only_a_suspect_and_a_job_that_goes_on_has_none() {
    let text = arrivals(&["complete"; 3], &[("dp", &[(0, 5, 0), (1, 4, 0), (2, 5, 0)])]);
    let lost = text.replace(
        r#""rank": 1, "host": "h1", "answer": "complete""#,
        r#""rank": 1, "host": "h1", "answer": "complete", "lost": true"#,
    );
    assert_ne!(lost, text);
    let verdict = judge(&lost);
    assert_eq!(named(&verdict), [(vec![1], Fault::NoDump, Certainty::Likely)], "{}", verdict.text());
    assert!(verdict.text().contains("some of its arrivals were lost"), "{}", verdict.text());

    let advancing = text.replacen("{", r#"{"advancing": ["dp"], "#, 1);
    let verdict = judge(&advancing);
    assert!(verdict.causes.is_empty() && !verdict.is_decided());
    assert_eq!(verdict.text(), "the job goes on: ranks began operations of dp while they were asked\n");
}

#[test]
fn a_recorded_operation_that_was_left_is_over_although_a_member_is_unknown() {
    use probe_sync_hang::{Dump, Observed};

    let barrier = Observed {
        operation: "barrier".into(),
        group: "world".into(),
        members: vec![0, 1, 2],
        sequence: 7,
        is_finished: true,
        ..Observed::default()
    };
    let mut job = Job::new();
    for rank in [0, 1] {
        job.add(rank, &Dump::of_observed(None, vec![barrier.clone()])).expect("a member");
    }
    let verdict = job.judge(&Clocks::default());
    assert!(verdict.stopped_at.is_none() && verdict.causes.is_empty(), "{}", verdict.text());
}
