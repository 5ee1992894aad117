//! A real GPU, where there is one: a copy, a memory set and a kernel by the driver's API.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use probe_sync_sys::{Library, RawClock};
use probe_sync_time::Clock as _;

use super::super::driver::{self, Handle};
use super::super::functions::functions;
use super::super::{CudaEvents, Cupti};
use super::{SAID, builder, seen};
use crate::backend::BackendState;
use crate::{Kind, scope};

functions! {
    /// By `cuda.h`.
    Gpu {
        init = c"cuInit"(c_uint);
        count = c"cuDeviceGetCount"(*mut c_int);
        retain = c"cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
        set_current = c"cuCtxSetCurrent"(Handle);
        allocate = c"cuMemAlloc_v2"(*mut u64, usize);
        copy = c"cuMemcpyHtoD_v2"(u64, *const c_void, usize);
        set = c"cuMemsetD8_v2"(u64, u8, usize);
        load = c"cuModuleLoadData"(*mut Handle, *const c_char);
        function = c"cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
        launch = c"cuLaunchKernel"(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut Handle, *mut Handle);
        synchronize = c"cuCtxSynchronize"();
    }
}

/// Its work is placed within the span in which it was launched and awaited, and linked to its
/// launch; the kernel is within the range around it.
pub fn a_real_gpu_is_recorded() {
    let Ok(library) = Library::open(&[driver::NAME]) else {
        return println!("{SAID}skipped: this machine has no NVIDIA driver");
    };
    let gpu = Gpu::of(library).expect("a driver has these functions");
    let (mut devices, mut context) = (0, null_mut());
    // SAFETY: by `cuda.h`.
    if unsafe { (gpu.init)(0) != 0 || (gpu.count)(&raw mut devices) != 0 } || devices == 0 {
        return println!("{SAID}skipped: this machine has no GPU");
    }
    let (mut module, mut kernel, mut memory, source) = (null_mut(), null_mut(), 0, vec![1_u8; BYTES]);
    // SAFETY: by `cuda.h`; the results are valid for the writes, the source is a C string.
    unsafe {
        assert_eq!((gpu.retain)(&raw mut context, 0), 0);
        assert_eq!((gpu.set_current)(context), 0);
        assert_eq!((gpu.allocate)(&raw mut memory, BYTES), 0);
        assert_eq!((gpu.load)(&raw mut module, SPIN.as_ptr()), 0);
        assert_eq!((gpu.function)(&raw mut kernel, module, c"spin".as_ptr()), 0);
    }
    let events = CudaEvents::new();
    let session = builder().backend(Cupti::new()).backend(events.clone()).start().expect("nothing else records");
    let states = session.backends();
    println!("{SAID}{}, {}", states[0], states[1]);
    assert_eq!(states[1].state, BackendState::Running);
    let link = scope!(Kind::Runtime, "launch");
    let before = RawClock.now().as_ns() as u64;
    // SAFETY: by `cuda.h`; memory and source have this many bytes.
    unsafe {
        assert_eq!((gpu.copy)(memory, source.as_ptr().cast(), BYTES), 0);
        assert_eq!((gpu.set)(memory, 0, BYTES), 0);
        let range = events.begin(null_mut(), "range", link.id());
        assert_eq!((gpu.launch)(kernel, 1, 1, 1, 1, 1, 1, 0, null_mut(), null_mut(), null_mut()), 0);
        drop(range);
        assert_eq!((gpu.synchronize)(), 0);
    }
    let (after, id) = (RawClock.now().as_ns() as u64, link.id());
    drop(link);
    let recording = session.finish().expect("whole");
    let found = seen(&recording);
    for device in recording.devices() {
        let brackets = device.pairs.iter().map(|pair| pair.bracket_ticks).max();
        println!("{SAID}{}: widest bracket {brackets:?} ns", device.backend);
    }
    let expected: &[&str] = match &states[0].state {
        BackendState::Running => &["Memcpy HtoD", "Memset", "spin", "range"],
        BackendState::Absent(_) => &["range"],
        state => panic!("{state:?}: {:?}", recording.notes()),
    };
    for name in expected {
        let event = found.iter().find(|event| event.name == *name).unwrap_or_else(|| panic!("{name}: {found:?}"));
        let [start, end] = event.span.map(|time| time as i64 - before as i64);
        println!("{SAID}{name} at {start} to {end} ns of {}", after - before);
        assert_eq!((event.id, event.device.as_str()), (id, "GPU 0"), "{name}");
        assert!(start + SLACK_NS >= 0 && end <= (after - before) as i64 + SLACK_NS, "{name}");
        assert!(!["spin", "range"].contains(name) || end - start >= SPIN_NS, "{name}");
    }
}

const BYTES: usize = 1 << 20;
/// Disagreement of the device's clock, as CUPTI converts it, and the host's.
const SLACK_NS: i64 = 100_000;
/// Less than what the kernel waits for: the device's timer has steps of a microsecond.
const SPIN_NS: i64 = 190_000;

/// A kernel that lasts 200 µs.
const SPIN: &CStr = c".version 6.0
.target sm_70
.address_size 64
.visible .entry spin()
{
    .reg .pred %p<2>;
    .reg .b64 %rd<4>;
    mov.u64 %rd1, %globaltimer;
    add.s64 %rd2, %rd1, 200000;
again:
    mov.u64 %rd3, %globaltimer;
    setp.lt.u64 %p1, %rd3, %rd2;
    @%p1 bra again;
    ret;
}
";
