//! Conversion of C pointers into references, strings and boxes. NULL is rejected with the name of
//! the argument.
//!
//! It cannot tell whether a non-NULL pointer is valid; the caller guarantees that (see the crate
//! documentation).

use std::ffi::{CStr, c_char};

use crate::status::Failure;

/// # Safety
/// `pointer` is NULL, or valid to read while the reference is used and not written meanwhile.
pub unsafe fn borrowed<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(name))
}

/// # Safety
/// `pointer` is NULL, or valid to read and write while the reference is used and not accessed
/// otherwise meanwhile.
pub unsafe fn borrowed_mut<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or_else(|| null(name))
}

/// A place to write one value, whatever it contains now.
#[derive(Debug)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    /// `pointer` is NULL, or valid to write while this is used.
    pub unsafe fn new(pointer: *mut T, name: &str) -> Result<Self, Failure> {
        if pointer.is_null() { Err(null(name)) } else { Ok(Self(pointer)) }
    }

    /// Writes the value.
    pub fn set(&self, value: T) {
        // SAFETY: promised to `new`. What is there is not dropped: it may be nothing.
        unsafe { self.0.write(value) };
    }
}

impl<T> Out<*mut T> {
    /// Passes a new object to the caller; [`taken_back`] takes it back.
    pub fn hand_over(&self, object: T) {
        self.set(Box::into_raw(Box::new(object)));
    }
}

/// # Safety
/// `first` is NULL, or valid to write for `count` values while the slice is used and not accessed
/// otherwise meanwhile.
pub unsafe fn fill<T: Copy>(first: *mut T, count: usize, values: impl Iterator<Item = T>) {
    if first.is_null() {
        return;
    }
    for (place, value) in values.take(count).enumerate() {
        // SAFETY: `place` is below `count`; the rest is the caller's promise.
        unsafe { first.add(place).write(value) };
    }
}

/// # Safety
/// `text` is NULL, or a C string that does not change while the reference is used.
pub unsafe fn optional_text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// # Safety
/// The same conditions as for [`optional_text`].
pub unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise.
    let text = unsafe { optional_text(text) }.ok_or_else(|| null(name))?;
    text.to_str().map_err(|_| Failure::argument(format!("{name} is not valid UTF-8")))
}

/// Takes back an object that was passed to the caller.
///
/// # Safety
/// `object` is NULL, or came from [`Out::hand_over`] and is not used again.
pub unsafe fn taken_back<T>(object: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller's promise.
    (!object.is_null()).then(|| unsafe { Box::from_raw(object) })
}

/// Checks the size that a caller has stored in a structure of type T, which newer headers may
/// enlarge.
pub fn given_size<T>(size: usize, name: &str) -> Result<usize, Failure> {
    if size < size_of::<T>() {
        return Err(Failure::argument(format!("size is {size}; set it to sizeof({name})")));
    }
    Ok(size)
}

fn null(name: &str) -> Failure {
    Failure::argument(format!("{name} is NULL; give a valid pointer"))
}
