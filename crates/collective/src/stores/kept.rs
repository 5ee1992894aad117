//! The requirements on a place where rank 0 leaves a value for the other ranks.
//!
//! [`super::FileStore`] and [`super::TorchStore`] implement them.

use std::fmt;

use crate::{Deadline, Error};

/// Something that keeps a value where all ranks find it.
pub trait Store: fmt::Debug {
    /// Puts a value there, in place of an earlier one.
    ///
    /// # Errors
    /// [`Error::Setup`] names the place and says what to do.
    fn put(&mut self, value: &[u8], deadline: &Deadline) -> Result<(), Error>;

    /// The value, if there is one.
    ///
    /// # Errors
    /// [`Error::Setup`] when it can never be had.
    fn find(&mut self, deadline: &Deadline) -> Result<Option<Vec<u8>>, Error>;

    /// What people know it by.
    fn name(&self) -> String;
}

/// Bytes of a value that are read.
pub(super) const VALUE_MAX: usize = 4096;
