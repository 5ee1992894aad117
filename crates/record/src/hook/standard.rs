//! The hooks that exports use.

use super::flops::Flops;
use super::module_path::ModulePath;
#[cfg(not(feature = "symbols"))]
use super::modules::Modules;
#[cfg(feature = "symbols")]
use super::symbols::Symbols;
use super::{Hook, Hooks};
use crate::error::Error;
use crate::read::Recording;
use crate::typed::keys;

impl Hooks {
    /// Creates the hooks that exports use, followed by others: names of stacks, modules of the model
    /// and floating-point operations, each only if the recording may have what it needs.
    ///
    /// # Errors
    /// Errors of [`Hooks::new`].
    pub fn with_standard(recording: &Recording, more: Vec<Box<dyn Hook>>) -> Result<Self, Error> {
        let mut hooks: Vec<Box<dyn Hook>> = Vec::new();
        let details = recording.facts().details.as_deref();
        let wants = |group: &str| details.is_none_or(|groups| groups.iter().any(|own| own == group));
        if recording.modules().next().is_some() {
            #[cfg(feature = "symbols")]
            hooks.push(Box::<Symbols>::default());
            #[cfg(not(feature = "symbols"))]
            hooks.push(Box::<Modules>::default());
        }
        if wants("modules") && recording.has_key(keys::MODULE) {
            hooks.push(Box::<ModulePath>::default());
        }
        if wants("flops") && recording.has_key(keys::SHAPES) {
            hooks.push(Box::new(Flops));
        }
        hooks.extend(more);
        Self::new(recording, hooks)
    }
}
