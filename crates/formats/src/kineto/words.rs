//! Normalises the words of a file: categories as Kineto writes them today, and unquoted numbers of
//! processes and threads.
//!
//! It does not change text that is copied from file to file.

use super::edits::Edits;
use super::event::Event;

/// Where an event ran.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Side {
    Host,
    Device,
}

/// Returns a category in Kineto's present words, without quotes. PyTorch 1.8 to 1.12 wrote
/// `Kernel`, `Runtime`, `Operator`; categories of other programs stay as they are.
#[inline]
pub(super) fn category(raw: &[u8]) -> &[u8] {
    let stated = match raw {
        [b'"', inner @ .., b'"'] => inner,
        other => other,
    };
    let is_present = stated.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'_');
    if is_present && !EARLIER.iter().any(|(earlier, _)| *earlier == stated) {
        return stated;
    }
    let same = |known: &&[u8]| known.eq_ignore_ascii_case(stated);
    let renamed = EARLIER.iter().find(|(earlier, _)| earlier.eq_ignore_ascii_case(stated)).map(|(_, present)| *present);
    renamed.or_else(|| ON_HOST.iter().chain(&ON_DEVICE).copied().find(same)).unwrap_or(stated)
}

/// Where events of a category, by its present name, run; `None` if the category does not tell.
#[inline]
pub(super) fn side(category: &[u8]) -> Option<Side> {
    if ON_HOST.contains(&category) || category == PROFILER {
        Some(Side::Host)
    } else if ON_DEVICE.contains(&category) || category.starts_with(b"gpu_") {
        Some(Side::Device)
    } else {
        None
    }
}

/// Returns the phase of an event: its letter, or 0 if it states none. dftracer numbers its phases.
#[inline]
pub(super) fn phase(raw: &[u8]) -> u8 {
    match raw {
        [b'"', letter, b'"'] => *letter,
        _ => numbered_phase(raw).unwrap_or(0),
    }
}

/// Returns the letter of a phase that is stated by its number.
#[inline]
pub(super) fn numbered_phase(raw: &[u8]) -> Option<u8> {
    let [number] = raw else { return None };
    PHASES.iter().find(|(known, _)| known == number).map(|(_, letter)| *letter)
}

/// Writes the phase of an event by its letter if the event states its number.
#[inline]
pub(super) fn spell_phase(event: &Event<'_>, edits: &mut Edits) {
    let span = event.spans.ph;
    if let Some(letter) = numbered_phase(span.of(event.bytes)) {
        edits.replace(span.into(), |out| out.extend_from_slice(&[b'"', letter, b'"']));
    }
}

/// Returns a number without the quotes that some versions of PyTorch put around it: `"25738"` and
/// `25738` are one thread.
#[inline]
pub(super) fn number(raw: &[u8]) -> &[u8] {
    match raw {
        [b'"', inner @ .., b'"'] if is_whole(inner) => inner,
        other => other,
    }
}

fn is_whole(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let plain = matches!(digits, [b'0'] | [b'1'..=b'9', ..]);
    plain && digits.len() <= DIGITS_MAX && digits.iter().all(u8::is_ascii_digit)
}

/// Numbers that dftracer writes for phases, and the letters that they stand for.
const PHASES: [(u8, u8); 3] = [(b'1', b'X'), (b'2', b'C'), (b'4', b'M')];
/// The category of the profiler's own span.
const PROFILER: &[u8] = b"Trace";
/// Earlier names of categories, in lower case.
const EARLIER: [(&[u8], &[u8]); 6] = [
    (b"operator", b"cpu_op"),
    (b"runtime", b"cuda_runtime"),
    (b"driver", b"cuda_driver"),
    (b"memcpy", b"gpu_memcpy"),
    (b"memset", b"gpu_memset"),
    (b"python", b"python_function"),
];
/// Categories of events of the host's threads.
const ON_HOST: [&[u8]; 17] = [
    b"cpu_op",
    b"user_annotation",
    b"python_function",
    b"cuda_runtime",
    b"cuda_driver",
    b"xpu_runtime",
    b"xpu_driver",
    b"mtia_runtime",
    b"glow_runtime",
    b"privateuse1_runtime",
    b"privateuse1_driver",
    b"cpu_instant_event",
    b"external_correlation",
    b"overhead",
    b"fwdbwd",
    b"collective_comm",
    b"hpu_runtime",
];
/// Categories of events of devices, in addition to those that begin with `gpu_`.
const ON_DEVICE: [&[u8]; 9] = [
    b"kernel",
    b"concurrent_kernel",
    b"gpu_memcpy",
    b"gpu_memset",
    b"gpu_user_annotation",
    b"cuda_sync",
    b"cuda_event",
    b"mtia_ccp_events",
    b"hpu_op",
];
/// Longer numbers are texts.
const DIGITS_MAX: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_of_all_versions_are_one() {
        let check = |stated: &str, expected: &str, expected_side: Option<Side>| {
            let quoted = format!("\"{stated}\"");
            let found = category(quoted.as_bytes());
            assert_eq!((found, side(found)), (expected.as_bytes(), expected_side), "{stated}");
        };
        let (host, device) = (Some(Side::Host), Some(Side::Device));
        for (earlier, present, side) in [
            ("Kernel", "kernel", device),
            ("Runtime", "cuda_runtime", host),
            ("Operator", "cpu_op", host),
            ("Memcpy", "gpu_memcpy", device),
            ("Memset", "gpu_memset", device),
            ("Python", "python_function", host),
            ("Cpu_Op", "cpu_op", host),
            ("Gpu_User_Annotation", "gpu_user_annotation", device),
        ] {
            for stated in [earlier.to_owned(), earlier.to_lowercase(), earlier.to_uppercase(), present.to_owned()] {
                check(&stated, present, side);
            }
        }
        check("Trace", "Trace", host);
        check("gpu_pm_counter", "gpu_pm_counter", device);
        check("async", "async", None);
        check("My Category", "My Category", None);
        check("", "", None);
    }

    #[test]
    fn a_number_is_one_with_and_without_quotes() {
        let check = |raw: &str, expected: &str| assert_eq!(number(raw.as_bytes()), expected.as_bytes());
        check(r#""25738""#, "25738");
        check("25738", "25738");
        check(r#""-1""#, "-1");
        check(r#""0""#, "0");
        for name in [r#""""#, r#""007""#, r#""stream 7""#, r#""0x1f""#, r#""-""#, r#""9999999999999999999""#] {
            check(name, name);
        }
    }
}
