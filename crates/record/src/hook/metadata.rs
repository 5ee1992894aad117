//! A hook that adds the same caller-supplied arguments to all events or to all events of a kind.

use super::{Additions, Hook};
use crate::kind::{Kind, Kinds};
use crate::read::What;
use crate::tree::Item;
use crate::value::ArgumentValue;

/// Adds arguments to all events of some kinds.
#[derive(Clone, Debug)]
pub struct Metadata {
    kinds: Kinds,
    arguments: Additions,
}

impl Metadata {
    /// Adds arguments to events of all kinds.
    pub fn of(arguments: impl IntoIterator<Item = (String, ArgumentValue)>) -> Self {
        Self { kinds: Kinds::ALL, arguments: arguments.into_iter().collect() }
    }

    /// Restricts it to these kinds.
    pub fn kinds(self, kinds: &[Kind]) -> Self {
        Self { kinds: Kinds::of(kinds), ..self }
    }
}

impl Hook for Metadata {
    fn name(&self) -> &str {
        "metadata"
    }

    fn event(&mut self, item: &Item<'_>, additions: &mut Additions) {
        if self.kinds.contains(item.kind()) && matches!(item.what(), What::Scope { .. } | What::Instant { .. }) {
            additions.extend(self.arguments.iter().cloned());
        }
    }
}
