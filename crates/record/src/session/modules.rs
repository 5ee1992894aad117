//! The executable file mappings of the process, which give the addresses in stacks their meaning.
//!
//! They are written into a session as definitions when it records its first stack, and again when
//! it ends, to cover files loaded since.
//!
//! It does not read the mapped files: their build IDs are in memory too.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::active::core::Core;
use crate::active::registry::Registry;
use crate::memory::gate;
use crate::thread::exclusive::Exclusive;

/// A mapped file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Path of the file.
    pub path: String,
    /// Shift of its addresses.
    pub bias: u64,
    /// Start and end of its executable part.
    pub span: [u64; 2],
    /// Its GNU build ID in hexadecimal digits; empty: unknown.
    pub build_id: String,
}

/// Writes them into every session that has not got them, once per change of sessions.
pub(crate) fn define_for_all() {
    static DONE: AtomicU32 = AtomicU32::new(0);
    let gate = gate::current();
    if gate == 0 || DONE.swap(gate, Ordering::Relaxed) == gate {
        return;
    }
    let Some(registry) = Registry::current() else { return };
    let modules = present();
    let _exclusive = Exclusive::of(registry);
    for core in registry.sessions().iter().filter(|core| core.modules.load(Ordering::Relaxed) == 0) {
        define(core, &modules);
    }
}

/// Writes those that were loaded since into a session that ends, if it has any stacks.
pub(crate) fn define_again(core: &Core) {
    if core.modules.load(Ordering::Relaxed) != 0 {
        let modules = present();
        if modules.len() != core.modules.load(Ordering::Relaxed) as usize {
            define(core, &modules);
        }
    }
}

fn define(core: &Core, modules: &[Module]) {
    let count = u32::try_from(modules.len()).unwrap_or(u32::MAX);
    core.modules.store(count, Ordering::Relaxed);
    for (number, module) in (0..count).zip(modules) {
        core.define_module(number, module.bias, module.span, [&module.path, &module.build_id]);
    }
}

/// All modules known to the dynamic linker.
pub(crate) fn present() -> Vec<Module> {
    let mut found: Vec<Module> = Vec::new();
    // SAFETY: `each` is called during this call alone, with a pointer to `found`, which nobody else
    // uses meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut found).cast()) };
    if let Some(program) = found.iter_mut().find(|module| module.path.is_empty()) {
        let path = std::env::current_exe().unwrap_or_default();
        program.path = path.to_string_lossy().into_owned();
    }
    found
}

extern "C" fn each(info: *mut libc::dl_phdr_info, _: libc::size_t, found: *mut c_void) -> c_int {
    // SAFETY: `present` hands over a list that nobody else uses; the linker gives a description
    // that is valid during this call.
    let (found, info) = unsafe { (&mut *found.cast::<Vec<Module>>(), &*info) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the linker says how many there are.
    let segments = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let runnable =
        segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_X != 0);
    let spans = runnable.map(|segment| {
        let begin = info.dlpi_addr.wrapping_add(segment.p_vaddr);
        [begin, begin.wrapping_add(segment.p_memsz)]
    });
    if let Some(span) = spans.reduce(|one, other| [one[0].min(other[0]), one[1].max(other[1])])
        && found.len() < MODULES_MAX
    {
        // SAFETY: a text that ends in a zero, valid during this call.
        let path = (!info.dlpi_name.is_null()).then(|| unsafe { CStr::from_ptr(info.dlpi_name) });
        let path = path.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        found.push(Module { path, bias: info.dlpi_addr, span, build_id: loaded_build_id(info, segments) });
    }
    0
}

/// The build ID in the notes that are loaded.
fn loaded_build_id(info: &libc::dl_phdr_info, segments: &[libc::Elf64_Phdr]) -> String {
    let is_loaded = |notes: &libc::Elf64_Phdr| {
        segments.iter().any(|segment| {
            segment.p_type == libc::PT_LOAD
                && segment.p_flags & libc::PF_R != 0
                && segment.p_vaddr <= notes.p_vaddr
                && notes.p_vaddr.saturating_add(notes.p_memsz) <= segment.p_vaddr.saturating_add(segment.p_filesz)
        })
    };
    let notes = segments.iter().filter(|segment| segment.p_type == libc::PT_NOTE && is_loaded(segment));
    let found = notes.filter_map(|notes| {
        let first = info.dlpi_addr.wrapping_add(notes.p_vaddr) as *const u8;
        // SAFETY: the linker has loaded these bytes for reading, as checked above, and keeps the
        // file during this call.
        build_id(unsafe { std::slice::from_raw_parts(first, usize::try_from(notes.p_memsz).ok()?) })
    });
    found.into_iter().next().unwrap_or_default()
}

/// Returns the GNU build ID among the notes of a file, in hexadecimal digits.
pub(crate) fn build_id(mut notes: &[u8]) -> Option<String> {
    // Lengths of name and descriptor, and the type; then both, each padded to words.
    while let Some((head, rest)) = notes.split_first_chunk::<12>() {
        let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let [name, length] = [word(0), word(4)].map(|length| length as usize);
        let (name, rest) = rest.split_at_checked(name.next_multiple_of(NOTE_WORD))?;
        let descriptor = rest.get(..length)?;
        if word(8) == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return Some(descriptor.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = rest.get(length.next_multiple_of(NOTE_WORD)..)?;
    }
    None
}

const NOTE_WORD: usize = 4;
const NT_GNU_BUILD_ID: u32 = 3;
/// Files of one program.
const MODULES_MAX: usize = 4096;
