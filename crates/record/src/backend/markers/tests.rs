//! Scopes reach the tools that ITT and NVTX load. The tools are built here, of `tests/tools`, by
//! the compiler that has built the crates; since both look at the environment once per process, the
//! forwarding program is this test's own, started again.

use std::path::Path;
use std::process::Command;

use super::{MarkerSink, Markers};
use crate::backend::BackendState;
use crate::{Kind, Policy, Reach, Recorder, scope};

/// Records three scopes, one of another kind, if this is the process that was started for it.
fn forward(sink: impl MarkerSink) {
    if std::env::var_os(LOG).is_none() {
        return;
    }
    let policy = Policy::DropNewest { bytes: 1 << 20 };
    let builder = Recorder::builder().reach(Reach::Thread).kinds(&[Kind::Io]).policy(policy);
    let session = builder.backend(Markers::to(sink)).start().expect("nothing else records this thread");
    assert_eq!(session.backends()[0].state, BackendState::Running);
    {
        let _outer = scope!(Kind::Io, "outer");
        drop(scope!(Kind::Io, "inner"));
        drop(scope!(Kind::User, "another kind"));
    }
    drop(session.finish().expect("whole"));
    drop(scope!(Kind::Io, "after"));
}

/// Builds a tool, has the test `child` run with it, and looks at what it was told, `first` before
/// the scopes. A variable without a value names the tool.
fn check(tool: &str, variables: &[(&str, &str)], child: &str, first: &str) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (library, log) = (folder.path().join("tool.so"), folder.path().join("log"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tools").join(tool);
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let built = Command::new(compiler).args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(built.expect("it has built the crate's own C").success());
    let program = std::env::current_exe().expect("there is one");
    let mut command = Command::new(program);
    command.args(["--exact", child]).env(LOG, &log);
    for (name, value) in variables {
        command.env(name, if value.is_empty() { library.as_os_str() } else { value.as_ref() });
    }
    let ran = command.output().expect("it is this program");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    let said = std::fs::read_to_string(&log).expect("the tool was loaded");
    assert_eq!(said, format!("{first}+outer\n+inner\n-\n-\n"));
}

#[cfg(feature = "itt")]
#[test]
fn itt_is_told_of_scopes() {
    // A collector that is looked up by names is asked for groups; the library makes domains itself.
    let variables = [("INTEL_LIBITTNOTIFY64", ""), ("INTEL_ITTNOTIFY_GROUPS", "all")];
    check("itt_tool.c", &variables, "backend::markers::tests::forward_to_itt", "");
    assert!(super::Itt.is_present().expect_err("this process has none").contains("VTune"));
}

#[cfg(feature = "itt")]
#[test]
fn forward_to_itt() {
    forward(super::Itt);
}

#[cfg(feature = "nvtx")]
#[test]
fn nvtx_is_told_of_scopes() {
    let variables = [("NVTX_INJECTION64_PATH", "")];
    check("nvtx_tool.c", &variables, "backend::markers::tests::forward_to_nvtx", "domain probe_sync\n");
    assert!(super::Nvtx.is_present().expect_err("this process has none").contains("nsys"));
}

#[cfg(feature = "nvtx")]
#[test]
fn forward_to_nvtx() {
    forward(super::Nvtx);
}

/// Where the tools write.
const LOG: &str = "RECORD_TOOL_LOG";
