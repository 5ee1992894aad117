//! Bytes that may contain a key.
//!
//! They are not protected from a process that can read memory.

/// A secret whose content is not printed.
pub(super) struct Secret(pub(super) Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}
