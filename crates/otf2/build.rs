//! Finds libotf2 with `otf2-config`, and has bindgen generate declarations for the functions that
//! the crate calls.
//!
//! The declarations are made at build time, not committed: they are then those of the library that
//! is linked, whatever its version, and bindgen is in the tree for MPI already.

use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

fn main() {
    println!("cargo:rerun-if-env-changed=OTF2_CONFIG");
    // Not whenever PATH changes, as with every Python environment: nearly all is built on this
    // crate. One that failed runs again anyway.
    if let Some(program) = found() {
        println!("cargo:rerun-if-changed={}", program.display());
    }
    if let Err(problem) = build() {
        eprintln!("probe-sync-otf2: {problem}");
        exit(1);
    }
}

fn build() -> Result<(), String> {
    let version = ask("--version")?;
    let number = version.split_whitespace().last().unwrap_or("");
    let major = number.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < 3) {
        return Err(format!("otf2-config is of {version:?}; OTF2 3.0 or newer is needed"));
    }
    for flag in ask("--ldflags")?.split_whitespace() {
        if let Some(folder) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        }
    }
    println!("cargo:rustc-link-lib=dylib=otf2");
    let cflags = ask("--cflags")?;
    let mut builder = bindgen::Builder::default()
        .header_contents("wrapper.h", "#include <otf2/otf2.h>\n")
        .clang_args(cflags.split_whitespace())
        .generate_comments(false)
        .layout_tests(false)
        .prepend_enum_name(false)
        .rust_target(bindgen::RustTarget::stable(82, 0).map_err(|error| error.to_string())?);
    for name in FUNCTIONS {
        builder = builder.allowlist_function(name);
    }
    for name in CONSTANTS {
        builder = builder.allowlist_var(name);
    }
    for name in TYPES {
        builder = builder.allowlist_type(name);
    }
    let bindings = builder.generate().map_err(|error| {
        format!(
            "bindgen cannot read <otf2/otf2.h>: {error}; Debian has it in libotf2-trace-dev, libclang in libclang-dev"
        )
    })?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo gave no OUT_DIR")?);
    bindings.write_to_file(out.join("bindings.rs")).map_err(|error| error.to_string())
}

/// Output of `otf2-config`; the environment variable `OTF2_CONFIG` names another one.
fn ask(flag: &str) -> Result<String, String> {
    let program = program();
    let missing = |reason: String| {
        format!(
            "{program} {flag}: {reason}; the feature otf2 needs OTF2 3.0 or newer with its headers (Debian: \
             apt-get install libotf2-trace-dev), or build without it"
        )
    };
    let answer = Command::new(&program).arg(flag).output().map_err(|error| missing(error.to_string()))?;
    if !answer.status.success() {
        return Err(missing(answer.status.to_string()));
    }
    Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
}

fn program() -> String {
    env::var("OTF2_CONFIG").unwrap_or_else(|_| "otf2-config".into())
}

/// The file of [`program`].
fn found() -> Option<PathBuf> {
    let program = PathBuf::from(program());
    if program.components().count() > 1 {
        return Some(program);
    }
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(&program)).find(|file| file.is_file())
}

const FUNCTIONS: [&str; 6] = [
    "OTF2_Archive_(Open|Close|SetFlushCallbacks|SetMemoryCallbacks|SetSerialCollectiveCallbacks|SetCreator|SetProperty)",
    "OTF2_Archive_(Open|Close)(Evt|Def)Files",
    "OTF2_Archive_(Get(Evt|Def|GlobalDef)Writer|Close(Evt|Def)Writer)",
    "OTF2_EvtWriter_(Enter|Leave|Metric|MpiCollectiveBegin|MpiCollectiveEnd)",
    "OTF2_GlobalDefWriter_Write(ClockProperties|String|SystemTreeNode|SystemTreeNodeDomain|LocationGroup|Location|Region|Group|Comm|MetricMember|MetricClass)",
    "OTF2_DefWriter_WriteMappingTable|OTF2_IdMap_CreateFromUint64Array|OTF2_IdMap_Free|OTF2_Error_GetDescription|OTF2_Error_RegisterCallback",
];

/// Types of arguments that the functions take as plain numbers, for the names of their values.
const TYPES: [&str; 14] = [
    "OTF2_CollectiveOp_enum",
    "OTF2_LocationType_enum",
    "OTF2_LocationGroupType_enum",
    "OTF2_RegionRole_enum",
    "OTF2_Paradigm_enum",
    "OTF2_GroupType_enum",
    "OTF2_MappingType_enum",
    "OTF2_FileMode_enum",
    "OTF2_FileSubstrate_enum",
    "OTF2_Compression_enum",
    "OTF2_FlushType_enum",
    "OTF2_SystemTreeDomain_enum",
    "OTF2_(MetricType|MetricMode|MetricOccurrence|RecorderKind|Base|Type)_enum",
    "OTF2_(CommFlag|GroupFlag|RegionFlag)_enum",
];

const CONSTANTS: [&str; 1] = ["OTF2_(CHUNK_SIZE|UNDEFINED)_.*"];
