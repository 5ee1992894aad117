//! The requirements on a place where rank 0 leaves a value for the other ranks.
//!
//! [`super::FileStore`] and [`super::TorchStore`] implement them.

use std::fmt;

use crate::{Deadline, Error};

/// A place for a value that all ranks can find.
pub trait Store: fmt::Debug {
    /// Stores a value, replacing an earlier one.
    ///
    /// # Errors
    /// [`Error::Setup`] names the place and states what to do.
    fn put(&mut self, value: &[u8], deadline: &Deadline) -> Result<(), Error>;

    /// Returns the value, if there is one.
    ///
    /// # Errors
    /// [`Error::Setup`] if it can never be read.
    fn find(&mut self, deadline: &Deadline) -> Result<Option<Vec<u8>>, Error>;

    /// Returns the display name.
    fn name(&self) -> String;
}

/// Largest value that is read, bytes.
pub(super) const VALUE_MAX: usize = 4096;
