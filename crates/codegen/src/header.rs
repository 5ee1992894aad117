//! Generates the C header of `crates/capi` from its declarations.
//!
//! cbindgen only reads the sources and compiles nothing; C sees the items that are `extern "C"` or
//! used there. `probe_sync_mpi.h` is written by hand.

use std::path::Path;

use anyhow::{Context, Result};
use cbindgen::{Builder, Config, DocumentationStyle, EnumConfig, ExportConfig, FunctionConfig, Language, Style};

/// The header's text.
///
/// # Errors
/// A source does not parse.
pub fn generate(root: &Path) -> Result<String> {
    let config = Config {
        language: Language::C,
        cpp_compat: true,
        include_guard: Some("PROBE_SYNC_H".into()),
        header: Some(HEADER.into()),
        trailer: None,
        style: Style::Both,
        documentation_style: DocumentationStyle::C99,
        no_includes: true,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(String::from).to_vec(),
        usize_is_size_t: true,
        line_length: 120,
        tab_width: 4,
        after_includes: Some(macros()),
        function: FunctionConfig { prefix: Some("PS_API".into()), ..FunctionConfig::default() },
        enumeration: EnumConfig { prefix_with_name: false, ..EnumConfig::default() },
        // Given as a number, so that C cannot give one that Rust does not know.
        export: ExportConfig { include: NUMBERS.map(String::from).to_vec(), ..ExportConfig::default() },
        ..Config::default()
    };
    let sources = SOURCES.iter().map(|name| root.join("crates/capi/src").join(name));
    let builder = sources.fold(Builder::new().with_config(config), |builder, source| builder.with_src(source));
    let bindings = builder.generate().context("reading the declarations of crates/capi")?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    Ok(String::from_utf8(text)?)
}

/// Macros for the version that a program is compiled against, which `ps_version()` may exceed, and
/// for the visibility of functions in programs that hide theirs.
fn macros() -> String {
    format!(
        "\n// Version of this header; ps_version() is the library's.\n#define PS_VERSION \"{}\"\n\
         #define PS_VERSION_MAJOR {}\n#define PS_VERSION_MINOR {}\n#define PS_VERSION_PATCH {}\n\n\
         #ifndef PS_API\n#define PS_API __attribute__((visibility(\"default\")))\n#endif",
        env!("CARGO_PKG_VERSION"),
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        env!("CARGO_PKG_VERSION_PATCH")
    )
}

/// Where the header is, relative to the root.
pub const TARGET: &str = "crates/capi/include/probe_sync.h";

/// In the order in which C is to see them; files of a folder come with its `mod.rs`.
const SOURCES: [&str; 9] = [
    "status.rs",
    "errors.rs",
    "options.rs",
    "meeting.rs",
    "clock.rs",
    "session/mod.rs",
    "record/mod.rs",
    "traces/mod.rs",
    "rocpd.rs",
];

/// Enumerations that C gives as numbers.
const NUMBERS: [&str; 5] = ["ps_threads", "ps_record_kind", "ps_record_type", "ps_record_flow_place", "ps_rocpd_kind"];

const HEADER: &str = "\
/*
 * probe_sync: measures the clock offsets between a job's nodes, and provides the reference time on
 * all of them.
 *
 * A session measures on its own thread alongside the caller's work, with all signals blocked on
 * that thread. It never prints, never ends the process or the job, and calls MPI only through the
 * functions of ps_messages, if given. Functions return PS_OK or the kind of failure;
 * ps_last_error() on the same thread then says what to do about it. All functions may be called
 * from any thread; free a handle only when nothing uses it any more. A process that forks before
 * ps_session_start() may start sessions in the parent and in the child; after a later fork, only
 * clocks keep working in the child.
 *
 * ps_record_start() and the event functions from ps_record_enter() to ps_record_flow() record what
 * the process does, at a cost of two clock reads per event. The event functions return no status:
 * they never fail, wait, print or allocate memory, and they do nothing while there is no recording.
 *
 * ps_align(), ps_merge(), ps_convert() and ps_check() put the traces of a job's profilers onto one
 * clock, as the commands of the same names do. They return when the files are complete.
 *
 * ps_rocpd_open(), ps_rocpd_write(), ps_rocpd_flush() and ps_rocpd_close() write a database as
 * rocprofv3 does, which others can read while the program runs.
 *
 * Written by `cargo xtask codegen` from crates/capi/src: @generated, do not edit.
 */
";
