//! Fetches the downloads of later steps while other steps compile.
//!
//! It starts first and is joined before the first step that measures time. Each step still requests
//! its own tools, finds them in place, or reports why it does not. It never fails. Its installers
//! print between the lines of the steps that run meanwhile.

use std::path::Path;
use std::time::Duration;

use super::{browser, metrics, readers, ulfm};
use crate::setup::Tools;
use crate::{book, flow, python, steps};

/// Fetches one after another, the largest first. Each has a limit of its own.
pub fn fetch(root: &Path, tools: Tools) {
    let _ = flow::with_torch(root);
    let _ = flow::with_jax(root);
    if tools.mpi() {
        let _ = ulfm::install(root);
    }
    for (name, mut install) in [("readers", readers::installer(root)), ("python", python::installer(root))] {
        let log = root.join(format!("target/xtask/logs/fetch-{name}.log"));
        let _ = steps::logged(&mut install, &log, LIMIT);
    }
    let _ = book::checkers(root);
    let _ = metrics::programs(root);
    let _ = browser::browser(root).and_then(|()| browser::axe(root));
}

/// Above the scripts' own deadlines, which are what normally ends them.
const LIMIT: Duration = Duration::from_secs(300);
