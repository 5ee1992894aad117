//! Event arguments, converted from C numbers and strings.
//!
//! Arguments are written during the call, and no pointer to them is retained.

use std::ffi::{CStr, c_char};
use std::slice;

use probe_sync_record::{Argument, Arguments, ExactWords, Value, Words, event};

use crate::pointers::{Out, text};
use crate::status::{Failure, guard, ps_status};
use ps_record_type::*;
use ps_status::*;

/// Type of an argument's value.
#[repr(C)]
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ps_record_type {
    /// value.integer.
    PS_RECORD_INTEGER = 1,
    /// value.unsigned_integer.
    PS_RECORD_UNSIGNED = 2,
    /// value.number.
    PS_RECORD_NUMBER = 3,
    /// value.boolean.
    PS_RECORD_BOOLEAN = 4,
    /// value.text, in UTF-8; longer than 1024 bytes it is truncated and marked as such.
    PS_RECORD_TEXT = 5,
}

/// The value of an argument.
#[repr(C)]
#[derive(Copy, Clone)]
pub union ps_record_value {
    /// A signed integer.
    pub integer: i64,
    /// An unsigned integer.
    pub unsigned_integer: u64,
    /// A floating-point number.
    pub number: f64,
    /// True or false.
    pub boolean: bool,
    /// A UTF-8 string.
    pub text: *const c_char,
}

/// An argument of an event.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ps_record_argument {
    /// The key, from ps_record_key().
    pub key: u32,
    /// One of ps_record_type.
    pub r#type: u32,
    /// The value.
    pub value: ps_record_value,
}

/// Gets the key for an argument's name; the same name gives the same key in every recording of the
/// process and its children. A process can have at most 2^20 keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_record_key(name: *const c_char, key: *mut u32) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (name, key) = unsafe { (text(name, "name")?, Out::new(key, "key")?) };
        key.set(event::key(name).ok_or_else(|| too_many(name))?);
        Ok(())
    })
}

/// Converts arguments to the recorder's form.
///
/// # Safety
/// `first` is NULL, or points to `count` arguments, whose texts are NULL or C strings; none of them
/// changes while the result is used.
#[inline]
pub(super) unsafe fn listed(first: *const ps_record_argument, count: usize) -> impl Arguments {
    // SAFETY: the caller's promise.
    let given = if first.is_null() { &[] } else { unsafe { slice::from_raw_parts(first, count) } };
    Given(given)
}

/// Arguments as given by C. Numbers are encoded directly, because a [`Value`] for each would be
/// decoded twice.
struct Given<'a>(&'a [ps_record_argument]);

// SAFETY: `words` and `write` go through the same arguments, which stay as they are while this
// borrows them.
unsafe impl ExactWords for Given<'_> {}

impl Arguments for Given<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn words(&self) -> usize {
        self.0.iter().map(|argument| if argument.is_number() { 2 } else { argument.text().words() }).sum()
    }

    #[inline]
    fn write(&self, words: Words) {
        let mut taken = 0;
        for argument in self.0 {
            taken += argument.write(words.after(taken));
        }
    }
}

impl ps_record_argument {
    #[inline]
    fn is_number(&self) -> bool {
        (PS_RECORD_INTEGER as u32..=PS_RECORD_BOOLEAN as u32).contains(&self.r#type)
    }

    #[inline]
    fn write(&self, words: Words) -> usize {
        const INTEGER: u32 = PS_RECORD_INTEGER as u32;
        const UNSIGNED: u32 = PS_RECORD_UNSIGNED as u32;
        const NUMBER: u32 = PS_RECORD_NUMBER as u32;
        const BOOLEAN: u32 = PS_RECORD_BOOLEAN as u32;
        let value = self.value;
        match self.r#type {
            // SAFETY: any bits are one.
            INTEGER => unsafe { value.integer }.write(self.key, words),
            // SAFETY: any bits are one.
            UNSIGNED => unsafe { value.unsigned_integer }.write(self.key, words),
            // SAFETY: any bits are one.
            NUMBER => unsafe { value.number }.write(self.key, words),
            // Only its lowest byte is set, and C may have set it to anything.
            // SAFETY: any bits are a number.
            BOOLEAN => (unsafe { value.unsigned_integer } & 0xff != 0).write(self.key, words),
            _ => self.text().write(self.key, words),
        }
    }

    /// Returns the text; a replacement if its type is not text.
    #[inline(never)]
    fn text(&self) -> Value<'_> {
        if self.r#type != PS_RECORD_TEXT as u32 {
            return Value::Text(NO_VALUE);
        }
        // SAFETY: `listed` was given texts that stay as they are.
        Value::Text(unsafe { lossy(self.value.text) })
    }
}

/// Returns the text up to the first byte that is not valid UTF-8.
///
/// # Safety
/// `text` is NULL, or a C string that does not change.
pub(super) unsafe fn lossy<'a>(text: *const c_char) -> &'a str {
    if text.is_null() {
        return NO_VALUE;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().or_else(|error| str::from_utf8(&text.to_bytes()[..error.valid_up_to()])).unwrap_or_default()
}

pub(super) fn too_many(name: &str) -> Failure {
    let text = format!("{name}: this process has more than 2^20 event names; pass numbers as arguments, not in names");
    Failure::new(PS_ERROR_FAILED, text)
}

/// Value of an argument with an unknown type or a NULL text.
const NO_VALUE: &str = "(no value)";
