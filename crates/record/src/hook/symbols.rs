//! Addresses as functions, files and lines, from the debug information of the program's files.
//!
//! The hook works in the recording process or later in another one, as long as the files are still
//! those that ran. If a file has no debug information, an address gets the function that the file's
//! symbols name, or else its position in the file.

use std::collections::HashMap;

use addr2line::{Loader, demangle_auto};

use super::modules::{ModuleMap, add_stacks};
use super::{Additions, Hook};
use crate::error::Error;
use crate::read::{Event, Recording};

/// Adds to each stack, as `call_stack`, functions with file and line, innermost first; inlined
/// functions have a line of their own.
#[derive(Default)]
pub struct Symbols {
    modules: ModuleMap,
    files: HashMap<String, Option<Loader>>,
    names: HashMap<u64, String>,
}

impl std::fmt::Debug for Symbols {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Symbols").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

impl Hook for Symbols {
    fn name(&self) -> &str {
        "symbols"
    }

    fn begin(&mut self, recording: &Recording) -> Result<(), Error> {
        self.modules = ModuleMap::of(recording);
        self.names.clear();
        Ok(())
    }

    fn event(&mut self, event: &Event<'_>, additions: &mut Additions) {
        add_stacks(event, additions, |address| self.named(address));
    }
}

impl Symbols {
    fn named(&mut self, address: u64) -> String {
        if let Some(known) = self.names.get(&address) {
            return known.clone();
        }
        let name = self.look_up(address).unwrap_or_else(|| self.modules.place(address));
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        self.names.insert(address, name.clone());
        name
    }

    fn look_up(&mut self, address: u64) -> Option<String> {
        let (module, own) = self.modules.find(address)?;
        let file = self.files.entry(module.path.clone()).or_insert_with(|| Loader::new(&module.path).ok());
        let file = file.as_ref()?;
        // The symbol has the whole path of the function; debug information may have its last part
        // only, but knows what was inlined.
        let symbol = file.find_symbol(own).map(|symbol| demangle_auto(symbol.into(), None).into_owned());
        let mut lines: Vec<(String, String)> = Vec::new();
        let mut frames = file.find_frames(own).ok()?;
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.as_ref().and_then(|name| name.demangle().ok());
            let place = frame.location.and_then(|place| Some(format!(" ({}:{})", place.file?, place.line?)));
            lines.push((function.map_or_else(String::new, Into::into), place.unwrap_or_default()));
            if lines.len() >= INLINED_MAX {
                break;
            }
        }
        match (lines.last_mut(), symbol) {
            (Some(outermost), Some(symbol)) => outermost.0 = symbol,
            (None, symbol) => return symbol,
            (Some(_), None) => {}
        }
        let lines: Vec<String> = lines.into_iter().map(|(function, place)| function + &place).collect();
        Some(lines.join("\n"))
    }
}

/// Most names cached.
const NAMES_MAX: usize = 1 << 20;
/// Most functions inlined into each other at one address.
const INLINED_MAX: usize = 32;
