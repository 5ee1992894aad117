//! Conversion of argument values from Rust types to words.
//!
//! Texts are bounded in length.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{WORD, argument};

/// A type of argument values. Other types implement it through a [`Value`]; the number of words is
/// relied upon when they are written.
pub trait Argument: ExactWords {
    /// Returns the value.
    fn value(&self) -> Value<'_>;

    /// Returns the number of words after its key.
    #[inline]
    fn words(&self) -> usize {
        self.value().length()
    }

    /// Writes it after its key; returns the number of words.
    #[doc(hidden)]
    #[inline]
    fn write(&self, key: u32, words: Words) -> usize {
        self.value().put(key, words)
    }
}

/// Arguments of one event, with types known to the compiler: pairs of key and value, nested like
/// lists.
pub trait Arguments: ExactWords {
    /// Returns the number of arguments.
    fn count(&self) -> usize;

    /// Returns the number of words.
    fn words(&self) -> usize;

    /// Writes them one after the other.
    #[doc(hidden)]
    fn write(&self, words: Words);
}

/// A type whose stated number of words is relied upon when it is written.
///
/// # Safety
/// `words` is the number of words that `write` stores, whenever both are called.
#[doc(hidden)]
pub unsafe trait ExactWords {}

// SAFETY: both are below, and count alike.
unsafe impl ExactWords for () {}
// SAFETY: both are below, and count alike.
unsafe impl<T: Argument + ?Sized, R: Arguments> ExactWords for ((u32, &T), R) {}
// SAFETY: both are below, and count alike.
unsafe impl<F> ExactWords for Listed<F> {}
// SAFETY: both are below, and count alike.
unsafe impl ExactWords for str {}
// SAFETY: both are below, and count alike.
unsafe impl ExactWords for String {}
// SAFETY: both are below, and count alike.
unsafe impl<T: Argument + ?Sized> ExactWords for &T {}
// SAFETY: both are below, and count alike.
unsafe impl ExactWords for Value<'_> {}

impl Arguments for () {
    #[inline]
    fn count(&self) -> usize {
        0
    }

    #[inline]
    fn words(&self) -> usize {
        0
    }

    #[inline]
    fn write(&self, _: Words) {}
}

impl<T: Argument + ?Sized, R: Arguments> Arguments for ((u32, &T), R) {
    #[inline]
    fn count(&self) -> usize {
        1 + self.1.count()
    }

    #[inline]
    fn words(&self) -> usize {
        self.0.1.words() + self.1.words()
    }

    #[inline]
    fn write(&self, words: Words) {
        let taken = self.0.1.write(self.0.0, words);
        self.1.write(words.after(taken));
    }
}

/// Arguments whose number is known only at run time: the number, and a function that returns each.
/// A key is a place among the site's, plus [`crate::event::OF_SITE`], or from
/// [`crate::event::key`]. The function is called several times and should return the same each
/// time: what needs more words than at first is omitted.
#[derive(Copy, Clone, Debug)]
pub struct Listed<F>(pub usize, pub F);

impl<'a, F: Fn(usize) -> (u32, Value<'a>)> Arguments for Listed<F> {
    #[inline]
    fn count(&self) -> usize {
        self.0
    }

    #[inline]
    fn words(&self) -> usize {
        (0..self.0).map(|at| (self.1)(at).1.length()).sum()
    }

    #[inline]
    fn write(&self, words: Words) {
        let mut rest = words;
        for at in 0..self.0 {
            let (key, value) = (self.1)(at);
            // They may have become longer.
            if value.length() > rest.count() {
                break;
            }
            rest = rest.after(value.put(key, rest));
        }
        // Nothing reads on behind a zero.
        (0..rest.count()).for_each(|at| rest.store(at, 0));
    }
}

/// Destination of words.
#[doc(hidden)]
#[derive(Copy, Clone, Debug)]
pub struct Words {
    place: *const AtomicU64,
    end: *const AtomicU64,
}

impl Words {
    /// Creates a destination for at most this many words.
    ///
    /// # Safety
    /// The words must stay mapped, and must not be written otherwise.
    pub(crate) unsafe fn at(place: *const AtomicU64, count: usize) -> Self {
        Self { place, end: place.wrapping_add(count) }
    }

    #[inline]
    fn count(self) -> usize {
        self.end.addr().saturating_sub(self.place.addr()) / WORD
    }

    /// Returns the words of some arguments.
    pub(crate) fn gathered(arguments: &impl Arguments) -> Vec<u64> {
        let words: Vec<AtomicU64> = (0..arguments.words()).map(|_| AtomicU64::new(0)).collect();
        // SAFETY: there are as many as the arguments take, and nobody else knows them.
        arguments.write(unsafe { Self::at(words.as_ptr(), words.len()) });
        words.into_iter().map(AtomicU64::into_inner).collect()
    }

    /// Returns the position this many words further.
    #[inline]
    pub fn after(self, words: usize) -> Self {
        Self { place: self.place.wrapping_add(words), end: self.end }
    }

    #[inline]
    fn store(self, place: usize, word: u64) {
        // SAFETY: `at` was given as many words as are stored.
        unsafe { (*self.place.add(place)).store(word, Ordering::Relaxed) };
    }
}

/// The value of an argument.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// A signed integer.
    Integer(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A floating-point number.
    Float(f64),
    /// A boolean.
    Boolean(bool),
    /// A text; beyond 1024 bytes it is truncated and marked.
    Text(&'a str),
    /// JSON: an array or an object.
    Json(&'a str),
    /// Addresses: of memory, or of a stack, innermost first; at most 128.
    Addresses(&'a [u64]),
}

/// The value of an argument, as read back.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgumentValue {
    /// A signed integer.
    Integer(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A floating-point number.
    Float(f64),
    /// A boolean.
    Boolean(bool),
    /// A text, with invalid UTF-8 replaced. A truncated one ends in `…`.
    Text(String),
    /// JSON; if it was truncated it is a [`ArgumentValue::Text`].
    Json(String),
    /// Addresses, innermost first.
    Addresses(Vec<u64>),
}

impl ArgumentValue {
    /// Parses an argument from its first word and those after it.
    pub(crate) fn of_words(head: u64, body: &[u64]) -> Self {
        let first = body.first().copied().unwrap_or(0);
        let text = || {
            let bytes: Vec<u8> = body.iter().flat_map(|word| word.to_le_bytes()).collect();
            let length = ((head >> 48) as usize).min(bytes.len());
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        let cut = head >> 32 & argument::CUT != 0;
        match head >> 32 & 0x7f {
            argument::INTEGER => Self::Integer(first as i64),
            argument::UNSIGNED => Self::Unsigned(first),
            argument::FLOAT => Self::Float(f64::from_bits(first)),
            argument::BOOLEAN => Self::Boolean(first != 0),
            argument::ADDRESSES => Self::Addresses(body[..body.len().min((head >> 48) as usize / WORD)].to_vec()),
            argument::JSON if !cut => Self::Json(text()),
            _ if cut => Self::Text(text() + "…"),
            _ => Self::Text(text()),
        }
    }
}

impl Value<'_> {
    fn put(&self, key: u32, words: Words) -> usize {
        let (kind, word) = match *self {
            Self::Integer(number) => (argument::INTEGER, number as u64),
            Self::Unsigned(number) => (argument::UNSIGNED, number),
            Self::Float(number) => (argument::FLOAT, number.to_bits()),
            Self::Boolean(yes) => (argument::BOOLEAN, u64::from(yes)),
            Self::Text(_) | Self::Json(_) | Self::Addresses(_) => return self.put_long(key, words),
        };
        words.store(0, argument::head(key, kind, 2, WORD));
        words.store(1, word);
        2
    }

    fn length(&self) -> usize {
        match self {
            Self::Text(text) | Self::Json(text) => 1 + text.len().min(argument::TEXT_MAX).div_ceil(WORD),
            Self::Addresses(addresses) => 1 + addresses.len().min(ADDRESSES_MAX),
            _ => 2,
        }
    }

    fn put_long(&self, key: u32, place: Words) -> usize {
        let words = self.length();
        let (kind, text) = match self {
            Self::Addresses(addresses) => {
                for (at, address) in addresses.iter().take(ADDRESSES_MAX).enumerate() {
                    place.store(1 + at, *address);
                }
                place.store(0, argument::head(key, argument::ADDRESSES, words, (words - 1) * WORD));
                return words;
            }
            Self::Json(text) => (argument::JSON, *text),
            Self::Text(text) => (argument::TEXT, *text),
            _ => return 0,
        };
        let mut end = text.len().min(argument::TEXT_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let cut = if end < text.len() { argument::CUT } else { 0 };
        for (at, bytes) in text.as_bytes()[..end].chunks(WORD).enumerate() {
            let mut word = [0; WORD];
            word[..bytes.len()].copy_from_slice(bytes);
            place.store(1 + at, u64::from_le_bytes(word));
        }
        // A character that is left out may leave a word without bytes.
        if 1 + end.div_ceil(WORD) < words {
            place.store(words - 1, 0);
        }
        place.store(0, argument::head(key, kind | cut, words, end));
        words
    }
}

macro_rules! argument_of {
    ($($type:ty => $variant:ident, $number:ident, $bits:expr, $as:ty;)*) => {
        $(// SAFETY: both are below, and count alike.
        unsafe impl ExactWords for $type {}

        impl Argument for $type {
            #[inline]
            fn value(&self) -> Value<'_> {
                Value::$variant(*self as $as)
            }

            #[inline]
            fn words(&self) -> usize {
                2
            }

            #[inline]
            fn write(&self, key: u32, words: Words) -> usize {
                words.store(0, argument::head(key, argument::$number, 2, WORD));
                words.store(1, $bits(*self as $as));
                2
            }
        })*
    };
}

argument_of! {
    i8 => Integer, INTEGER, i64::cast_unsigned, i64;
    i16 => Integer, INTEGER, i64::cast_unsigned, i64;
    i32 => Integer, INTEGER, i64::cast_unsigned, i64;
    i64 => Integer, INTEGER, i64::cast_unsigned, i64;
    isize => Integer, INTEGER, i64::cast_unsigned, i64;
    u8 => Unsigned, UNSIGNED, u64::from, u64;
    u16 => Unsigned, UNSIGNED, u64::from, u64;
    u32 => Unsigned, UNSIGNED, u64::from, u64;
    u64 => Unsigned, UNSIGNED, u64::from, u64;
    usize => Unsigned, UNSIGNED, u64::from, u64;
    f32 => Float, FLOAT, f64::to_bits, f64;
    f64 => Float, FLOAT, f64::to_bits, f64;
    bool => Boolean, BOOLEAN, u64::from, bool;
}

impl Argument for str {
    fn value(&self) -> Value<'_> {
        Value::Text(self)
    }
}

impl Argument for String {
    fn value(&self) -> Value<'_> {
        Value::Text(self)
    }
}

impl<T: Argument + ?Sized> Argument for &T {
    fn value(&self) -> Value<'_> {
        (**self).value()
    }

    #[inline]
    fn words(&self) -> usize {
        (**self).words()
    }

    #[inline]
    fn write(&self, key: u32, words: Words) -> usize {
        (**self).write(key, words)
    }
}

impl Argument for Value<'_> {
    fn value(&self) -> Value<'_> {
        *self
    }
}

/// Most addresses of one argument.
const ADDRESSES_MAX: usize = 128;
/// Words of the longest argument.
#[cfg(test)]
const WORDS_MAX: usize = 1 + argument::TEXT_MAX / WORD;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &dyn Argument, key: u32) -> (Vec<u64>, usize) {
        let words: Vec<AtomicU64> = (0..WORDS_MAX).map(|_| AtomicU64::new(1)).collect();
        // SAFETY: there are as many as the longest argument takes.
        let length = value.write(key, unsafe { Words::at(words.as_ptr(), words.len()) });
        (words.into_iter().map(AtomicU64::into_inner).collect(), length)
    }

    fn check(value: &dyn Argument, kind: u64, bytes: usize, expected: &[u64]) {
        let (words, length) = written(value, 9);
        assert_eq!(length, value.words());
        assert_eq!(words[0], argument::head(9, kind, length, bytes));
        assert_eq!(&words[1..length], expected);
    }

    #[test]
    fn values_become_words() {
        check(&-5_i32, argument::INTEGER, 8, &[(-5_i64) as u64]);
        check(&u64::MAX, argument::UNSIGNED, 8, &[u64::MAX]);
        check(&0.5, argument::FLOAT, 8, &[0.5_f64.to_bits()]);
        check(&true, argument::BOOLEAN, 8, &[1]);
        check(&"", argument::TEXT, 0, &[]);
        check(&"12345678a", argument::TEXT, 9, &[u64::from_le_bytes(*b"12345678"), u64::from(b'a')]);
        check(&Value::Addresses(&[7, 8]), argument::ADDRESSES, 16, &[7, 8]);
        check(&Value::Json("[1]"), argument::JSON, 3, &[u64::from_le_bytes(*b"[1]\0\0\0\0\0")]);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let text = format!("{}é", "a".repeat(argument::TEXT_MAX - 1));
        let (words, length) = written(&text, 0);
        assert_eq!(length, WORDS_MAX);
        let cut = argument::head(0, argument::TEXT | argument::CUT, WORDS_MAX, argument::TEXT_MAX - 1);
        assert_eq!(words[0], cut);
        assert_eq!(words[WORDS_MAX - 1], u64::from_le_bytes(*b"aaaaaaa\0"));
    }
}
