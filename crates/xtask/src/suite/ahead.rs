//! What later steps download, fetched while others compile.
//!
//! Place in the flow: begun first, joined before the first step that measures time. Each step asks for its tools by itself all the
//! same, finds them there, and says why where it does not.
//! What it does not do: fail, or report.

use std::path::Path;

use super::{browser, metrics, readers, ulfm};
use crate::{book, flow, python};

/// Fetches one after another, the largest first. Each has a limit of its own.
pub fn fetch(root: &Path) {
    let _ = flow::with_torch(root);
    let _ = flow::with_jax(root);
    let _ = ulfm::install(root);
    readers::fetch(root);
    python::fetch(root);
    let _ = book::checkers(root);
    let _ = metrics::programs(root);
    let _ = browser::browser(root).and_then(|()| browser::axe(root));
}
