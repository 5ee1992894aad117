//! Bytes that may hold a key.
//!
//! Place in the flow: what the root tells ranks that come back. What it does not do: keep them from whoever reads memory.

/// What is printed of it does not show it.
pub(super) struct Secret(pub(super) Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}
