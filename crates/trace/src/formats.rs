//! One module per file format; each reads facts, rewrites times, and merges.

pub mod kineto;
pub mod xspace;

/// What a reader of facts is told beyond the file.
#[derive(Clone, Debug, Default)]
pub struct FactOptions {
    /// Further clock markers: event names that match, with the system time, ns, in the group named `system_ns`.
    pub markers: Option<regex::Regex>,
}
