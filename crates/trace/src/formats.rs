//! One module per file format; each reads facts, rewrites times, and merges.
