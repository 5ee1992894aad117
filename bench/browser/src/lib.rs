//! Nothing but a place for `tests/it`, which open the report page in a browser. `cargo xtask test`
//! runs them (`suite::browser`).
#![forbid(unsafe_code)]
