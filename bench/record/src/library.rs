//! The C functions of the shared library, called the way C calls them.
//!
//! The library has its own recorder. The measurements include the dynamic linker and the library's
//! thread-local storage.

use std::ffi::{CStr, c_char};
use std::path::Path;
use std::ptr;

use anyhow::{Context, Result, ensure};
use libloading::{Library, Symbol};

use crate::measure::{Case, Effort, Floor, in_turn, time};
use crate::ours::FLOOR;
use crate::table::Table;

/// `ps_record_scope` of probe_sync.h.
#[repr(C)]
#[derive(Copy, Clone, Default)]
struct Scope([u64; 5]);

/// `ps_record_argument`.
#[repr(C)]
#[derive(Copy, Clone)]
struct Argument {
    key: u32,
    kind: u32,
    value: u64,
}

type Handle = *mut u8;
type New = unsafe extern "C" fn(*mut Handle) -> u32;
type Set = unsafe extern "C" fn(Handle, *const c_char, *const c_char) -> u32;
type Start = unsafe extern "C" fn(Handle, *mut Handle) -> u32;
type Free = unsafe extern "C" fn(Handle);
type Site = unsafe extern "C" fn(u32, *const c_char, *mut Handle) -> u32;
type Key = unsafe extern "C" fn(*const c_char, *mut u32) -> u32;
type Enter = unsafe extern "C" fn(Handle, *mut Scope) -> bool;
type EnterWith = unsafe extern "C" fn(Handle, *const Argument, usize, *mut Scope) -> bool;
type Leave = unsafe extern "C" fn(*mut Scope);
type Instant = unsafe extern "C" fn(Handle, *const Argument, usize);

/// Fills in the rows.
///
/// # Errors
/// The library cannot be loaded, or does not start a recording.
pub fn measure(table: &mut Table, effort: Effort, path: Option<&Path>) -> Result<()> {
    let Some(path) = path else {
        table
            .skipped("C functions", "give --library DIR/lib/libprobe_sync.so after `cargo xtask install --prefix DIR`");
        return Ok(());
    };
    // SAFETY: the library runs no code of its own when it is loaded.
    let library = unsafe { Library::new(path) }.with_context(|| format!("loading {}", path.display()))?;
    let record = start(&library)?;
    let site = site(&library, c"scope")?;
    let (enter, enter_with) = (
        function::<Enter>(&library, b"ps_record_enter\0")?,
        function::<EnterWith>(&library, b"ps_record_enter_with\0")?,
    );
    let leave = function::<Leave>(&library, b"ps_record_leave\0")?;
    let instant = function::<Instant>(&library, b"ps_record_instant\0")?;
    let keys = [key(&library, c"a")?, key(&library, c"b")?];
    let mut floor = Floor::new();
    let mut cases: Vec<Case<'_>> = vec![
        Box::new(|events| floor.time(events)),
        Box::new(|events| {
            let mut scope = Scope::default();
            // SAFETY: both pointers are valid.
            time(events, |_| unsafe {
                enter(site, &raw mut scope);
                leave(&raw mut scope);
            })
        }),
        Box::new(|events| {
            let mut scope = Scope::default();
            time(events, |number| {
                let arguments = keys.map(|key| Argument { key, kind: 1, value: number });
                // SAFETY: all pointers are valid, and there are two arguments.
                unsafe {
                    enter_with(site, arguments.as_ptr(), arguments.len(), &raw mut scope);
                    leave(&raw mut scope);
                }
            })
        }),
        // SAFETY: the site is valid, and there are no arguments.
        Box::new(|events| time(events, |_| unsafe { instant(site, ptr::null(), 0) })),
    ];
    let found = in_turn(effort, &mut cases);
    drop(cases);
    table.ratio("C: scope", found[1], found[0], FLOOR, Some(1.3));
    table.ratio("C: scope, two integers", found[2], found[0], FLOOR, None);
    table.ratio("C: instant", found[3], found[0], FLOOR, None);
    // SAFETY: the recording came from the library and is not used again.
    unsafe { function::<Free>(&library, b"ps_record_free\0")?(record) };
    Ok(())
}

fn start(library: &Library) -> Result<Handle> {
    let (mut options, mut record) = (ptr::null_mut(), ptr::null_mut());
    let set = function::<Set>(library, b"ps_record_options_set\0")?;
    // SAFETY: all pointers are valid; the settings are given back once.
    unsafe {
        ensure!(function::<New>(library, b"ps_record_options_new\0")?(&raw mut options) == 0, "no settings");
        for (key, value) in [(c"policy", c"flight"), (c"bytes", c"64MiB")] {
            ensure!(set(options, key.as_ptr(), value.as_ptr()) == 0, "a setting was refused");
        }
        let status = function::<Start>(library, b"ps_record_start\0")?(options, &raw mut record);
        ensure!(status == 0, "no recording: status {status}");
        function::<Free>(library, b"ps_record_options_free\0")?(options);
    }
    Ok(record)
}

fn site(library: &Library, name: &CStr) -> Result<Handle> {
    let mut site = ptr::null_mut();
    // SAFETY: both pointers are valid.
    let status = unsafe { function::<Site>(library, b"ps_record_site_new\0")?(2, name.as_ptr(), &raw mut site) };
    ensure!(status == 0, "no site: status {status}");
    Ok(site)
}

fn key(library: &Library, name: &CStr) -> Result<u32> {
    let mut key = 0;
    // SAFETY: both pointers are valid.
    let status = unsafe { function::<Key>(library, b"ps_record_key\0")?(name.as_ptr(), &raw mut key) };
    ensure!(status == 0, "no key: status {status}");
    Ok(key)
}

/// A function of the header.
fn function<T: Copy>(library: &Library, name: &[u8]) -> Result<T> {
    // SAFETY: the types above are those of probe_sync.h.
    let symbol: Symbol<'_, T> = unsafe { library.get(name) }.context("the library is of another version")?;
    Ok(*symbol)
}
