//! The C header of `crates/capi`, from its declarations.
//!
//! Place in the flow: a part of `cargo xtask codegen`. cbindgen reads the sources alone and compiles nothing; what C sees is what is
//! `extern "C"` or used there.
//! What it does not do: `probe_sync_mpi.h`, which is written by hand.

use std::path::Path;

use anyhow::{Context, Result};
use cbindgen::{Builder, Config, DocumentationStyle, EnumConfig, ExportConfig, Language, Style};

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

/// Where the header is, relative to the root.
pub const TARGET: &str = "crates/capi/include/probe_sync.h";

/// In the order in which C is to see them; files of a folder come with its `mod.rs`.
const SOURCES: [&str; 7] =
    ["status.rs", "errors.rs", "options.rs", "meeting.rs", "clock.rs", "session/mod.rs", "record/mod.rs"];

/// Enumerations that C gives as numbers.
const NUMBERS: [&str; 4] = ["ps_threads", "ps_record_kind", "ps_record_type", "ps_record_flow_place"];

const HEADER: &str = "\
/*
 * probe_sync: how the clocks of a job's nodes differ, and the reference's time on all of them.
 *
 * A session measures on a thread of its own beside the caller's work, with all signals blocked there; it never prints, ends the process or the job, and
 * calls no MPI but through the functions of ps_messages, where it is given some.
 * Functions return PS_OK or what kind of failure it was, and ps_last_error() then says on the same thread what to do about it. All may be called from any
 * thread; a handle is freed when nobody uses it any more. A process that forks before ps_session_start() may start sessions in parent and child; in
 * one that is forked off later only clocks go on.
 *
 * What the process does is recorded by ps_record_start() and the events between ps_record_enter() and ps_record_flow(), for the price of two readings of a
 * clock. Those return no status: they never fail, wait, print or take memory, and while nothing records they do nothing.
 *
 * Written by `cargo xtask codegen` from crates/capi/src: @generated, do not edit.
 */
";
