//! Trees of recordings that were made here.

use super::{Foreign, Links, Node, Tree};
use crate::read::What;
use crate::{Kind, Policy, Reach, Recorder, Recording, correlate, counter, instant, scope};

fn session() -> crate::Session {
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
    builder.start().expect("nothing else records this thread")
}

/// The only thread's tree, on its ticks.
fn tree(recording: &Recording) -> Tree {
    Tree::of(recording, &recording.threads()[0], |ticks| ticks as i64).expect("sound")
}

fn node<'a>(tree: &'a Tree, name: &str) -> &'a Node {
    tree.nodes.iter().find(|node| node.name == name).expect(name)
}

fn around<'a>(tree: &'a Tree, name: &str) -> Option<&'a str> {
    node(tree, name).parent.map(|parent| tree.nodes[parent].name.as_str())
}

#[test]
fn everything_has_the_scope_around_it() {
    let session = session();
    {
        let _outer = scope!("outer");
        instant!("first");
        {
            let _inner = scope!("inner");
            counter!("depth", 2);
            drop(scope!("innermost"));
        }
        drop(scope!("second"));
    }
    instant!("alone");
    let tree = tree(&session.finish().expect("whole"));
    let expected = [
        ("first", Some("outer")),
        ("depth", Some("inner")),
        ("innermost", Some("inner")),
        ("inner", Some("outer")),
        ("second", Some("outer")),
        ("outer", None),
        ("alone", None),
    ];
    let found: Vec<_> = tree.nodes.iter().map(|node| (node.name.as_str(), around(&tree, &node.name))).collect();
    assert_eq!(found, expected);
    let (outer, inner, second) = (node(&tree, "outer"), node(&tree, "inner"), node(&tree, "second"));
    let length = |node: &Node| node.placed.end - node.placed.start;
    assert_eq!(outer.placed.own, length(outer) - length(inner) - length(second));
    let children: Vec<&str> = tree.children(Some(3)).map(|at| tree.nodes[at].name.as_str()).collect();
    assert_eq!(children, ["depth", "innermost"]);
}

#[test]
fn scopes_that_do_not_end_are_marked_and_end_with_what_is_around_them() {
    let session = session();
    let left = {
        let _outer = scope!("outer");
        scope!("left open")
    };
    let _still = scope!("still open");
    instant!("within");
    let recording = session.finish().expect("whole");
    drop(left);
    let tree = tree(&recording);
    let unfinished = |name: &str| matches!(node(&tree, name).what, What::Scope { unfinished: true, .. });
    assert_eq!([unfinished("left open"), unfinished("outer"), unfinished("still open")], [true, false, true]);
    assert_eq!(node(&tree, "left open").placed.end, node(&tree, "outer").placed.end);
    assert_eq!((around(&tree, "left open"), around(&tree, "within")), (Some("outer"), Some("still open")));
    let still = node(&tree, "still open");
    assert!(still.open && still.placed.end >= recording.status().end as i64);
}

#[test]
fn launches_and_backward_calls_are_found() {
    let session = session();
    {
        let _forward = scope!(Kind::Function, "linear", sequence_number = 7);
        let _link = correlate(1234);
        let _launch = scope!(Kind::Runtime, "launch");
    }
    drop(scope!(Kind::Backward, "linear backward", sequence_number = 7));
    drop(scope!(Kind::Backward, "without a forward call", sequence_number = 8));
    let trees = [tree(&session.finish().expect("whole"))];
    let kernel = |correlation| Foreign { track: "GPU 0".into(), name: "gemm".into(), span: [0, 1], correlation };
    let links = Links::of(&trees, &[kernel(1234), kernel(1)]);
    let name = |(tree, at): (usize, usize)| trees[tree].nodes[at].name.as_str();
    assert_eq!(links.launches.iter().map(|at| at.map(name)).collect::<Vec<_>>(), [Some("launch"), None]);
    let backward: Vec<_> = links.backward.iter().map(|(from, to)| (name(*from), name(*to))).collect();
    assert_eq!(backward, [("linear", "linear backward")]);
    assert_eq!(links.backward_alone, 1);
}

#[test]
fn a_stack_that_is_deeper_than_there_is_room_is_a_tree_all_the_same() {
    let session = session();
    let mut open = Vec::new();
    for _ in 0..5000 {
        open.push(scope!("deep"));
    }
    while let Some(last) = open.pop() {
        drop(last);
    }
    let tree = tree(&session.finish().expect("whole"));
    assert_eq!(tree.nodes.len(), 5000);
    for (at, node) in tree.nodes.iter().enumerate() {
        assert_eq!(node.parent, (at + 1 < 5000).then_some(at + 1));
    }
}
