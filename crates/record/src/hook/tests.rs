//! Hooks over recordings that were made here.

use super::{Additions, Flops, Hook, HookCounts, Hooks, Metadata, ModulePath, Modules, stack};
use crate::active::core::Reach;
use crate::read::{ArgumentValue, Event, Recording};
use crate::tree::Item;
use crate::{Error, Kind, Policy, Recorder, Value, instant, scope};

fn recorded(program: impl FnOnce()) -> Recording {
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
    let session = builder.start().expect("nothing else records this thread");
    program();
    session.finish().expect("whole")
}

/// Names of events, with what was added to them.
fn added(recording: &Recording, hooks: Vec<Box<dyn Hook>>) -> (Vec<(String, Additions)>, Vec<HookCounts>) {
    let mut hooks = Hooks::new(recording, hooks).expect("they are for this reach");
    let mut found = Vec::new();
    for thread in recording.threads() {
        let take = |event: &Event<'_>, additions: &Additions| {
            found.push((event.name().to_owned(), additions.clone()));
            Ok::<(), Error>(())
        };
        hooks.visit(recording, thread.serial, take).expect("sound");
    }
    (found, hooks.counts().cloned().collect())
}

#[test]
fn modules_of_the_model_are_a_path() {
    let recording = recorded(|| {
        let _net = scope!(Kind::Function, "forward", module = "net");
        {
            let _layer = scope!(Kind::Function, "forward", module = "layer1");
            drop(scope!(Kind::Function, "mm"));
            instant!("note");
        }
        drop(scope!(Kind::Function, "loss"));
        let _other = scope!(Kind::Function, "forward", module = "layer2");
    });
    let (found, _) = added(&recording, vec![Box::<ModulePath>::default()]);
    let paths: Vec<(String, String)> = found
        .into_iter()
        .map(|(name, additions)| match additions.as_slice() {
            [(_, ArgumentValue::Text(path))] => (name, path.clone()),
            other => (name, format!("{other:?}")),
        })
        .collect();
    let expected = [
        ("mm", "net/layer1"),
        ("note", "net/layer1"),
        ("forward", "net/layer1"),
        ("loss", "net"),
        ("forward", "net/layer2"),
        ("forward", "net"),
    ];
    assert_eq!(paths, expected.map(|(name, path)| (name.to_owned(), path.to_owned())));
}

#[test]
fn hooks_add_one_after_the_other_and_are_counted() {
    let recording = recorded(|| {
        drop(scope!(Kind::Function, "aten::mm", shapes = || Value::Json("[[2,3],[3,4]]")));
        drop(scope!(Kind::Io, "read"));
    });
    let metadata = Metadata::of([("job".to_owned(), ArgumentValue::Integer(7))]).kinds(&[Kind::Function]);
    let (found, counts) = added(&recording, vec![Box::new(Flops), Box::new(metadata)]);
    let both = vec![("flops".to_owned(), ArgumentValue::Unsigned(48)), ("job".to_owned(), ArgumentValue::Integer(7))];
    assert_eq!(found, [("aten::mm".to_owned(), both), ("read".to_owned(), Vec::new())]);
    let count = |hook: &str| HookCounts { hook: hook.into(), events: 2, additions: 1, panics: 0 };
    assert_eq!(counts, [count("flops"), count("metadata")]);
}

/// Panics at the second event.
struct Panics(u32);

impl Hook for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn event(&mut self, _: &Item<'_>, additions: &mut Additions) {
        additions.push(("seen".into(), ArgumentValue::Unsigned(u64::from(self.0))));
        self.0 += 1;
        if self.0 == 2 {
            std::panic::resume_unwind(Box::new("a test's"));
        }
    }
}

#[test]
fn a_hook_that_panics_is_not_asked_again() {
    let recording = recorded(|| (0..4).for_each(|_| drop(scope!("step"))));
    let metadata = Metadata::of([("after".to_owned(), ArgumentValue::Boolean(true))]);
    let (found, counts) = added(&recording, vec![Box::new(Panics(0)), Box::new(metadata)]);
    let lengths: Vec<usize> = found.iter().map(|(_, additions)| additions.len()).collect();
    assert_eq!(lengths, [2, 1, 1, 1]);
    assert_eq!(counts[0], HookCounts { hook: "panics".into(), events: 2, additions: 1, panics: 1 });
}

/// For whole processes.
struct OfProcess;

impl Hook for OfProcess {
    fn name(&self) -> &str {
        "of the process"
    }

    fn is_for(&self, reach: Reach) -> Result<(), String> {
        if reach == Reach::Process { Ok(()) } else { Err("record the process".into()) }
    }

    fn event(&mut self, _: &Item<'_>, _: &mut Additions) {}
}

#[test]
fn a_hook_that_is_not_for_the_reach_is_refused() {
    let recording = recorded(|| drop(scope!("step")));
    let refused = Hooks::new(&recording, vec![Box::new(OfProcess)]).expect_err("the session was of a thread");
    assert_eq!(refused.to_string(), "the hook of the process does not support thread: record the process");
}

#[inline(never)]
fn here() -> super::Stack {
    std::hint::black_box(stack())
}

#[test]
fn stacks_are_addresses_that_files_are_known_of() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("a.rec");
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 }).spill(&path);
    let session = builder.start().expect("nothing else records this thread");
    drop(scope!("outer", stack = || here().value()));
    drop(session.finish().expect("whole"));
    let recording = Recording::open(&path).expect("sound");
    let (found, _) = added(&recording, vec![Box::<Modules>::default()]);
    let [(_, additions)] = found.as_slice() else { panic!("one event: {found:?}") };
    let [(key, ArgumentValue::Json(names))] = additions.as_slice() else { panic!("one argument: {additions:?}") };
    let names: Vec<String> = serde_json::from_str(names).expect("a list");
    assert!(key == "call_stack" && names.len() > 3, "{names:?}");
    let program = std::env::current_exe().expect("there is one");
    let program = program.file_name().expect("a file").to_string_lossy().into_owned();
    assert!(names[0].starts_with(&format!("{program}+0x")), "{names:?}");
    #[cfg(feature = "symbols")]
    {
        let (found, _) = added(&recording, vec![Box::<super::Symbols>::default()]);
        let text = format!("{found:?}");
        let own = text.find("hook::tests::here").expect("the innermost is named");
        let around = text.find("stacks_are_addresses_that_files_are_known_of").expect("so is what is around it");
        assert!(own < around && text.contains("hook/tests.rs:"), "{text}");
    }
}
