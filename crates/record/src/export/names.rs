//! The names of arguments in traces, the numbers of flows, and the representation of values for which a trace has no
//! type.

use probe_sync_formats::chunk::{Flow, FlowEnd};

use crate::hook::{Additions, CALL_STACK, MODULE_PATH};
use crate::kind::Kind;
use crate::tree::{FORWARD_THREAD, Item, SEQUENCE_NUMBER};
use crate::typed::keys;
use crate::value::ArgumentValue;

/// The name of an argument: that of the program, except if readers of traces look for another.
pub(super) fn of_argument(kind: Kind, key: &str) -> &str {
    let of_collective = if kind == Kind::Collective { COLLECTIVE.as_slice() } else { &[] };
    let found = of_collective.iter().chain(&OF_ALL).find(|(own, _)| *own == key);
    found.map_or(key, |(_, read)| read)
}

/// Calls `each` for every argument of an event, and for what hooks add, which the last parameter
/// tells. A stack's addresses are omitted if an addition names them, and an addition if the program
/// itself gave an argument of its name.
pub(super) fn each_argument(item: &Item<'_>, additions: &Additions, mut each: impl FnMut(&str, &ArgumentValue, bool)) {
    let is_named = additions.iter().any(|(key, _)| key == CALL_STACK);
    item.each_argument(|key, value| {
        if !(is_named && key == keys::STACK && matches!(value, ArgumentValue::Addresses(_))) {
            each(key, value, false);
        }
    });
    let new = additions.iter().filter(|(key, _)| item.argument(key).is_none());
    new.for_each(|(key, value)| each(key, value, true));
}

/// The names of a stack, a list as JSON, in the form that readers of Kineto's traces split: one
/// text, with semicolons between them.
pub(super) fn call_stack(json: &str) -> String {
    let names: Vec<String> = serde_json::from_str(json).unwrap_or_default();
    // Types of Rust, such as `[u8; 4]`, have semicolons too.
    let names: Vec<String> = names.iter().map(|name| name.replace("; ", ", ").replace('\n', ";")).collect();
    names.join(";")
}

/// Whether a text is one JSON value, so that a trace remains valid if a program's text was not.
pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Addresses as JSON.
pub(super) fn addresses(all: &[u64]) -> String {
    let each: Vec<String> = all.iter().map(|address| format!("\"{address:#x}\"")).collect();
    format!("[{}]", each.join(","))
}

/// An end of the flow between a launch and its work on a device.
pub(super) fn launch_flow(id: u64, end: FlowEnd) -> Flow {
    Flow { id: flow_id("launch", [id, 0]), end }
}

/// The id of a flow that the program has not numbered itself, apart from those that it has.
pub(super) fn flow_id(of: &str, numbers: [u64; 2]) -> u64 {
    hash(of, numbers).max(1)
}

/// 64-bit hash of some numbers, the same in every run (FNV-1a, then mixed).
fn hash(of: &str, numbers: [u64; 2]) -> u64 {
    let bytes = of.bytes().chain(numbers.into_iter().flat_map(u64::to_le_bytes));
    let folded =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mixed = (folded ^ (folded >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}

/// Arguments of all events, and the names under which readers of Kineto's traces look for them.
const OF_ALL: [(&str, &str); 5] = [
    (SEQUENCE_NUMBER[0], SEQUENCE_NUMBER[1]),
    (FORWARD_THREAD[0], FORWARD_THREAD[1]),
    (CALL_STACK, "Call stack"),
    (MODULE_PATH, "Module Hierarchy"),
    (keys::SHAPES, "Input Dims"),
];
/// Arguments of collectives, and the names under which `check` and HolisticTraceAnalysis read them.
const COLLECTIVE: [(&str, &str); 11] = [
    ("collective", "Collective name"),
    ("group", "Process Group Name"),
    ("ranks", "Process Group Ranks"),
    ("group_size", "Group size"),
    ("sequence", "Seq"),
    ("dtype", "dtype"),
    ("sent", "In msg nelems"),
    ("received", "Out msg nelems"),
    ("source", "Src Rank"),
    ("destination", "Dst Rank"),
    ("root", "Root Rank"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_names_that_readers_look_for() {
        assert_eq!(of_argument(Kind::Collective, "sequence"), "Seq");
        assert_eq!(of_argument(Kind::User, "sequence"), "sequence");
        assert_eq!(of_argument(Kind::Backward, "sequence_number"), "Sequence number");
        assert_eq!(addresses(&[16, 255]), r#"["0x10","0xff"]"#);
        assert!(is_json("[1, {\"a\": null}]") && !is_json("[1,"));
        assert_ne!(hash("launch", [1, 0]), hash("launch", [0, 1]));
    }
}
