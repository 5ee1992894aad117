//! The path of model modules that an event belongs to, such as `net/layer1/conv`.
//!
//! A scope declares itself a module by the argument `module`; an event belongs to the module scopes
//! that are open around it on its thread. Events arrive in the order in which they end, inner ones
//! before outer ones. The hook therefore first collects the modules, one thread at a time, and then
//! finds them by time.
//!
//! It does not follow work to other threads or devices.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::{Additions, Hook, MODULE_PATH};
use crate::error::Error;
use crate::read::{Recording, Thread, What};
use crate::tree::Item;
use crate::typed::keys;
use crate::value::ArgumentValue;

/// Adds, as `module_path`, the modules around an event and its own, outermost first.
#[derive(Clone, Debug, Default)]
pub struct ModulePath {
    modules: BTreeMap<u32, Vec<Module>>,
    serial: u32,
    /// Scopes of modules beyond [`MODULES_MAX`].
    left_out: u64,
}

/// A module's scope.
#[derive(Clone, Debug)]
struct Module {
    start: u64,
    end: u64,
    depth: u32,
    name: Arc<str>,
    /// The one around it, by its place in the list.
    around: Option<usize>,
}

impl Hook for ModulePath {
    fn name(&self) -> &str {
        "module path"
    }

    fn begin(&mut self, recording: &Recording) -> Result<(), Error> {
        (self.modules, self.left_out) = (BTreeMap::new(), 0);
        let (mut names, mut room) = (HashSet::new(), MODULES_MAX);
        for thread in recording.threads() {
            let mut found = Vec::new();
            recording.visit(thread.serial, |event| {
                let module = Module::of(&Item::Event(event), &mut names);
                self.left_out += u64::from(module.is_some() && found.len() >= room);
                found.extend(module.filter(|_| found.len() < room));
                Ok::<(), Error>(())
            })?;
            room -= found.len();
            let open = (0..).zip(&thread.open);
            found.extend(open.filter_map(|(depth, scope)| Module::of(&Item::Open(scope, depth), &mut names)));
            self.modules.insert(thread.serial, nested(found));
        }
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        let note = format!(
            "module paths are incomplete: {} scopes of modules were not kept, {MODULES_MAX} were",
            self.left_out
        );
        (self.left_out > 0).then_some(note).into_iter().collect()
    }

    fn thread(&mut self, thread: &Thread) {
        self.serial = thread.serial;
    }

    fn event(&mut self, item: &Item<'_>, additions: &mut Additions) {
        let Some([start, end]) = span(item) else { return };
        let Some(modules) = self.modules.get(&self.serial) else { return };
        // A scope is within itself.
        let depth = item.depth() + u32::from(matches!(item.what(), What::Scope { .. }));
        let is_around = |module: &Module| module.start <= start && end <= module.end && module.depth < depth;
        // The last that begins before is the innermost, or within one that is around.
        let after = modules.partition_point(|module| (module.start, module.depth) < (start, depth));
        let mut at = after.checked_sub(1);
        let mut names = Vec::new();
        while let Some(module) = at.map(|at| &modules[at]) {
            if is_around(module) {
                names.push(&*module.name);
            }
            // The outermost modules say least.
            at = module.around.filter(|_| names.len() < PATH_MAX);
        }
        if !names.is_empty() {
            names.reverse();
            additions.push((MODULE_PATH.into(), ArgumentValue::Text(names.join("/"))));
        }
    }
}

impl Module {
    /// The module that a scope declares itself to be.
    fn of(item: &Item<'_>, names: &mut HashSet<Arc<str>>) -> Option<Self> {
        let What::Scope { .. } = item.what() else { return None };
        let Some(ArgumentValue::Text(name)) = item.argument(keys::MODULE) else { return None };
        let [start, end] = span(item)?;
        let name = names.get(name.as_str()).cloned().unwrap_or_else(|| {
            let name: Arc<str> = name.into();
            names.insert(Arc::clone(&name));
            name
        });
        Some(Self { start, end, depth: item.depth(), name, around: None })
    }
}

/// Most scopes of modules that are kept, 64 bytes each.
const MODULES_MAX: usize = 1 << 22;
/// Most modules in a path.
const PATH_MAX: usize = 64;

/// Start and end; an open scope ends after everything.
fn span(item: &Item<'_>) -> Option<[u64; 2]> {
    match (item.what(), item) {
        (What::Scope { start, .. }, Item::Open(..)) => Some([start, u64::MAX]),
        (What::Scope { start, end, .. }, Item::Event(_)) => Some([start, end]),
        (What::Lost { .. }, _) => None,
        (other, _) => Some([other.end(); 2]),
    }
}

/// In the order of their starts, each with the enclosing one.
fn nested(mut modules: Vec<Module>) -> Vec<Module> {
    modules.sort_by_key(|module| (module.start, module.depth));
    let mut open: Vec<usize> = Vec::new();
    for at in 0..modules.len() {
        let (end, depth) = (modules[at].end, modules[at].depth);
        while open.last().is_some_and(|around| modules[*around].end < end || modules[*around].depth >= depth) {
            open.pop();
        }
        modules[at].around = open.last().copied();
        open.push(at);
    }
    modules
}
