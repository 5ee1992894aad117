//! Addresses as positions in files, such as `libfoo.so+0x1234`, for `addr2line` and similar tools,
//! from the recording alone.
//!
//! The hook that names functions uses [`ModuleMap`] as well.

use super::{Additions, CALL_STACK, Hook};
use crate::error::Error;
use crate::read::Recording;
use crate::session::modules::Module;
use crate::tree::Item;
use crate::typed::keys;
use crate::value::ArgumentValue;

/// Adds to each stack, as `call_stack`, the file that contains each address, and the address within
/// that file.
#[derive(Clone, Debug, Default)]
pub struct Modules(ModuleMap);

/// Files by mapped address.
#[derive(Clone, Debug, Default)]
pub(super) struct ModuleMap(Vec<Module>);

impl ModuleMap {
    pub fn of(recording: &Recording) -> Self {
        let mut modules: Vec<Module> = recording.modules().cloned().collect();
        modules.sort_by_key(|module| module.span);
        Self(modules)
    }

    /// Returns the file that contains an address, and the address within it.
    pub fn find(&self, address: u64) -> Option<(&Module, u64)> {
        let after = self.0.partition_point(|module| module.span[0] <= address);
        let module = self.0[..after].iter().rev().find(|module| address < module.span[1])?;
        Some((module, address.wrapping_sub(module.bias)))
    }

    /// Formats `FILE+0xADDRESS`, or only the address if nothing is known to be there.
    pub fn place(&self, address: u64) -> String {
        match self.find(address) {
            Some((module, own)) => {
                let file = module.path.rsplit('/').next().unwrap_or("");
                format!("{file}+{own:#x}")
            }
            None => format!("{address:#x}"),
        }
    }
}

impl Hook for Modules {
    fn name(&self) -> &str {
        "modules"
    }

    fn begin(&mut self, recording: &Recording) -> Result<(), Error> {
        self.0 = ModuleMap::of(recording);
        Ok(())
    }

    fn event(&mut self, item: &Item<'_>, additions: &mut Additions) {
        add_stacks(item, additions, |address| self.0.place(address));
    }
}

/// Adds the names of a stack's addresses, those of the argument `stack`. These are return addresses;
/// the call is one byte before.
pub(super) fn add_stacks(item: &Item<'_>, additions: &mut Additions, mut name: impl FnMut(u64) -> String) {
    item.each_argument(|key, value| {
        if let (keys::STACK, ArgumentValue::Addresses(addresses)) = (key, value) {
            let names: Vec<String> = addresses.iter().map(|address| name(address.saturating_sub(1))).collect();
            let text = serde_json::to_string(&names).unwrap_or_default();
            additions.push((CALL_STACK.into(), ArgumentValue::Json(text)));
        }
    });
}
