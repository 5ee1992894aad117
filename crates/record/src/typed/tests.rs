//! Typed events, recorded and read back by the keys that exporters look for.

use super::{Collective, MemoryCounts, MemoryEvent, Part, enter_collective, memory, thread_number};
use crate::read::{Event, What};
use crate::{Error, Kind, Policy, Reach, Recorder, backward, collective, forward};

/// Kind, name, and arguments as `key=value`, of each event.
fn recorded(program: impl FnOnce()) -> Vec<(Kind, String, String)> {
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
    let session = builder.start().expect("nothing else records this thread");
    program();
    let recording = session.finish().expect("whole");
    let mut found = Vec::new();
    for thread in recording.threads() {
        let visit = |event: &Event<'_>| {
            assert!(matches!(event.what, What::Scope { .. } | What::Instant { .. }));
            let arguments: Vec<String> = event.arguments().map(|(key, value)| format!("{key}={value:?}")).collect();
            found.push((event.kind(), event.name().to_owned(), arguments.join(" ")));
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, visit).expect("sound");
    }
    found
}

#[test]
fn collectives_have_the_names_and_keys_that_pair_them() {
    let found = recorded(|| {
        drop(collective!(AllReduce, group = "dp", sequence = 9, shapes = || "[2,3]".to_owned()));
        drop(collective!(Barrier));
        let part =
            Part { group: Some("tp"), ranks: Some("[0,4]"), group_size: Some(2), sequence: Some(3), ..Part::default() };
        drop(enter_collective(
            Collective::Broadcast,
            &Part { root: Some(4), dtype: Some("bf16"), sent: Some(64), ..part },
        ));
        drop(enter_collective(Collective::Receive, &Part { source: Some(1), destination: Some(0), ..Part::default() }));
    });
    let expected = [
        ("all_reduce", r#"collective=Text("all_reduce") group=Text("dp") sequence=Integer(9) shapes=Text("[2,3]")"#),
        ("barrier", r#"collective=Text("barrier")"#),
        (
            "broadcast",
            concat!(
                r#"collective=Text("broadcast") group=Text("tp") ranks=Json("[0,4]") group_size=Unsigned(2) "#,
                r#"sequence=Unsigned(3) dtype=Text("bf16") sent=Unsigned(64) root=Unsigned(4)"#
            ),
        ),
        ("recv", r#"collective=Text("recv") source=Unsigned(1) destination=Unsigned(0)"#),
    ];
    let expected = expected.map(|(name, arguments)| (Kind::Collective, name.to_owned(), arguments.to_owned()));
    assert_eq!(found, expected);
    for (number, operation) in (0..).zip(Collective::ALL) {
        assert_eq!(Collective::of_number(number), Some(operation));
        assert_eq!(super::site_of_collective(operation).name(), operation.as_str());
    }
    assert_eq!(Collective::of_number(11), None);
}

#[test]
fn memory_says_where_how_much_and_what_it_comes_to() {
    let counts = MemoryCounts { address: 4096, bytes: 64, device: "cuda:0", ..MemoryCounts::default() };
    let found = recorded(|| {
        memory(MemoryEvent::Allocate, &MemoryCounts { total_reserved: Some(512), ..counts });
        memory(MemoryEvent::Free, &MemoryCounts { total_allocated: Some(0), total_reserved: Some(512), ..counts });
        memory(MemoryEvent::OutOfMemory, &MemoryCounts { address: 0, ..counts });
    });
    let expected = [
        ("allocate", r#"address=Unsigned(4096) bytes=Unsigned(64) device=Text("cuda:0") total_reserved=Unsigned(512)"#),
        (
            "free",
            concat!(
                r#"address=Unsigned(4096) bytes=Unsigned(64) device=Text("cuda:0") "#,
                "total_allocated=Unsigned(0) total_reserved=Unsigned(512)"
            ),
        ),
        ("out of memory", r#"address=Unsigned(0) bytes=Unsigned(64) device=Text("cuda:0")"#),
    ];
    assert_eq!(found, expected.map(|(name, arguments)| (Kind::Memory, name.to_owned(), arguments.to_owned())));
}

#[test]
fn backward_calls_name_their_forward_call() {
    let thread = thread_number();
    assert_ne!(thread, 0);
    let found = recorded(|| {
        drop(forward!("linear", 5));
        drop(forward!("conv", 6, 77));
        drop(backward!("linear", 5, thread));
    });
    let expected = [
        (Kind::Function, "linear", "sequence_number=Integer(5)".to_owned()),
        (Kind::Function, "conv", "sequence_number=Integer(6) debug_handle=Integer(77)".to_owned()),
        (Kind::Backward, "linear", format!("sequence_number=Integer(5) forward_thread=Unsigned({thread})")),
    ];
    assert_eq!(found, expected.map(|(kind, name, arguments)| (kind, name.to_owned(), arguments)));
}
