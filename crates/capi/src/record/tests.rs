//! What the C functions record, read back.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use probe_sync_record::Recording;
use probe_sync_record::read::{ArgumentValue, Event, What};

use super::*;
use ps_record_kind::*;
use ps_record_type::*;

fn site(kind: ps_record_kind, name: &CStr) -> *const ps_record_site {
    let mut site = ptr::null();
    // SAFETY: both pointers are valid.
    assert_eq!(unsafe { ps_record_site_new(kind as u32, name.as_ptr(), &raw mut site) }, PS_OK);
    site
}

fn argument(name: &CStr, kind: u32, value: ps_record_value) -> ps_record_argument {
    let mut key = 0;
    // SAFETY: both pointers are valid.
    assert_eq!(unsafe { ps_record_key(name.as_ptr(), &raw mut key) }, PS_OK);
    ps_record_argument { key, r#type: kind, value }
}

/// Records the events of `events`, and returns for each scope: name, depth, whether it was closed
/// with the enclosing scope, arguments.
fn recorded(events: impl FnOnce()) -> Vec<(String, u32, bool, String)> {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("copy.rec");
    let text = CString::new(path.to_string_lossy().as_bytes()).expect("no zero within");
    let (mut options, mut record) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: all pointers are valid, and each is given back once.
    unsafe {
        assert_eq!(ps_record_options_new(&raw mut options), PS_OK);
        assert_eq!(ps_record_options_set(options, c"reach".as_ptr(), c"thread".as_ptr()), PS_OK);
        assert_eq!(ps_record_options_set(options, c"bytes".as_ptr(), c"1MiB".as_ptr()), PS_OK);
        assert_eq!(ps_record_start(options, &raw mut record), PS_OK);
        ps_record_options_free(options);
    }
    events();
    // SAFETY: as above.
    unsafe {
        assert_eq!(ps_record_finish(record, text.as_ptr()), PS_OK);
        assert_eq!(ps_record_finish(record, ptr::null()), PS_ERROR_ENDED);
        ps_record_free(record);
    }
    let recording = Recording::open(&path).expect("whole");
    let mut found = Vec::new();
    let take = |event: &Event<'_>| {
        let closed = matches!(event.what, What::Scope { unfinished: true, .. });
        found.push((event.name().to_owned(), event.depth, closed, shown(event)));
        Ok::<(), probe_sync_record::Error>(())
    };
    recording.visit(recording.threads()[0].serial, take).expect("sound");
    found
}

fn shown(event: &Event<'_>) -> String {
    let value = |value| match value {
        ArgumentValue::Integer(number) => number.to_string(),
        ArgumentValue::Unsigned(number) => format!("{number}u"),
        ArgumentValue::Float(number) => format!("{number:?}"),
        ArgumentValue::Boolean(yes) => yes.to_string(),
        other => format!("{other:?}"),
    };
    let arguments: Vec<String> = event.arguments().map(|(key, of)| format!("{key}={}", value(of))).collect();
    arguments.join(" ")
}

fn check(events: impl FnOnce(), expected: &[(&str, u32, bool, &str)]) {
    let found = recorded(events);
    let found: Vec<_> = found.iter().map(|(name, depth, closed, text)| (&**name, *depth, *closed, &**text)).collect();
    assert_eq!(found, expected);
}

#[test]
fn arguments_have_their_types() {
    let text = |text: &'static CStr| ps_record_value { text: text.as_ptr() };
    let arguments = [
        argument(c"i", PS_RECORD_INTEGER as u32, ps_record_value { integer: -5 }),
        argument(c"u", PS_RECORD_UNSIGNED as u32, ps_record_value { unsigned_integer: u64::MAX }),
        argument(c"n", PS_RECORD_NUMBER as u32, ps_record_value { number: 0.5 }),
        argument(c"b", PS_RECORD_BOOLEAN as u32, ps_record_value { unsigned_integer: 0x100 }),
        argument(c"t", PS_RECORD_TEXT as u32, text(c"fünf")),
        argument(c"x", PS_RECORD_TEXT as u32, text(c"cut\xffhere")),
        argument(c"m", PS_RECORD_TEXT as u32, ps_record_value { text: ptr::null::<c_char>() }),
        argument(c"o", 99, ps_record_value { integer: 1 }),
    ];
    let events = || {
        // SAFETY: all pointers are valid, with their counts.
        unsafe {
            ps_record_instant(site(PS_RECORD_USER, c"moment"), arguments.as_ptr(), arguments.len());
            ps_record_instant(site(PS_RECORD_USER, c"bare"), ptr::null(), 3);
        }
    };
    let expected = "i=-5 u=18446744073709551615u n=0.5 b=false t=Text(\"fünf\") x=Text(\"cut\") m=Text(\"(no value)\") \
                    o=Text(\"(no value)\")";
    check(events, &[("moment", 0, false, expected), ("bare", 0, false, "")]);
}

#[test]
fn scopes_that_are_left_twice_or_too_late_end_nothing() {
    let events = || {
        let [outer, inner] = [site(PS_RECORD_USER, c"outer"), site(PS_RECORD_IO, c"inner")];
        let size = argument(c"size", PS_RECORD_INTEGER as u32, ps_record_value { integer: 7 });
        let mut scopes = [const { ps_record_scope::NOTHING }; 3];
        let [first, late, second] = &mut scopes;
        // SAFETY: all pointers are valid.
        unsafe {
            assert!(ps_record_enter(outer, first));
            assert!(ps_record_enter_with(inner, &raw const size, 1, late));
            ps_record_state(late, &raw const size, 1);
            ps_record_leave(first);
            ps_record_leave(first);
            assert!(ps_record_enter(outer, second));
            ps_record_leave(late);
            ps_record_leave(second);
        }
    };
    check(events, &[("inner", 1, true, "size=7 size=7"), ("outer", 0, false, ""), ("outer", 0, false, "")]);
}

#[test]
fn collectives_and_memory_bear_the_names_that_readers_know() {
    let events = || {
        let mut scope = ps_record_scope::NOTHING;
        let collective = ps_record_collective {
            name: c"allreduce".as_ptr(),
            group: c"dp".as_ptr(),
            dtype: ptr::null(),
            sequence: 9,
            elements_in: 1024,
            elements_out: 1024,
            group_size: -1,
            rank: 3,
        };
        let memory = ps_record_memory { address: 4096, bytes: -100, device: 2, allocated: 900, reserved: -1 };
        let of_collectives = site(PS_RECORD_COLLECTIVE, c"nccl:all_reduce");
        // SAFETY: all pointers are valid.
        unsafe {
            assert!(ps_record_collective_enter(of_collectives, &raw const collective, &raw mut scope));
            ps_record_memory_event(site(PS_RECORD_MEMORY, c"[memory]"), &raw const memory);
            ps_record_leave(&raw mut scope);
        }
    };
    let stated = "Collective name=Text(\"allreduce\") Process Group Name=Text(\"dp\") Seq=9 In msg nelems=1024 Out msg nelems=1024 Rank=3";
    let memory = "Addr=4096u Bytes=-100 Device Type=1 Device Id=2 Total Allocated=900";
    check(events, &[("[memory]", 1, false, memory), ("nccl:all_reduce", 0, false, stated)]);
}

#[test]
fn ids_are_those_of_correlations_flows_and_spans() {
    let events = || {
        let (of_flow, of_span) = (site(PS_RECORD_RUNTIME, c"flow"), site(PS_RECORD_USER, c"span"));
        let mut scope = ps_record_scope::NOTHING;
        // SAFETY: all pointers are valid.
        unsafe {
            let before = ps_record_correlate_push(4711);
            let span = ps_record_span_begin(of_span);
            assert!(ps_record_enter(of_flow, &raw mut scope));
            assert_eq!((before, span, scope.id), (0, 4711, 4711));
            ps_record_leave(&raw mut scope);
            ps_record_correlate_pop(before);
            assert!(ps_record_enter(of_flow, &raw mut scope) && scope.id != 4711);
            ps_record_flow(of_flow, ps_record_flow_place::PS_RECORD_FLOW_OUT as u32, 8);
            ps_record_flow(of_flow, 3, 8);
            ps_record_counter(of_span, 0.5);
            ps_record_span_end(of_span, span);
            ps_record_span_end(of_span, 0);
            ps_record_leave(&raw mut scope);
        }
    };
    let expected = [("span", 0), ("flow", 0), ("flow", 1), ("span", 1), ("span", 1), ("flow", 0)];
    check(events, &expected.map(|(name, depth)| (name, depth, false, "")));
}
