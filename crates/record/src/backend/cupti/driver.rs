//! CUDA events, streams and contexts by the driver's API.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use probe_sync_sys::Library;

use super::functions::{functions, status_name};

/// A `CUcontext`, `CUstream` or `CUevent`.
pub(super) type Handle = *mut c_void;

functions! {
    /// By `cuda.h`, from CUDA 10.1 on.
    Driver {
        error_name = c"cuGetErrorName"(c_int, *mut *const c_char);
        current = c"cuCtxGetCurrent"(*mut Handle);
        push = c"cuCtxPushCurrent_v2"(Handle);
        pop = c"cuCtxPopCurrent_v2"(*mut Handle);
        device = c"cuCtxGetDevice"(*mut c_int);
        capture_mode = c"cuThreadExchangeStreamCaptureMode"(*mut c_int);
        is_capturing = c"cuStreamIsCapturing"(Handle, *mut c_int);
        create_stream = c"cuStreamCreate"(*mut Handle, c_uint);
        destroy_stream = c"cuStreamDestroy_v2"(Handle);
        create_event = c"cuEventCreate"(*mut Handle, c_uint);
        record = c"cuEventRecord"(Handle, Handle);
        query = c"cuEventQuery"(Handle);
        elapsed = c"cuEventElapsedTime"(*mut f32, Handle, Handle);
        destroy_event = c"cuEventDestroy_v2"(Handle);
    }
}

impl Driver {
    /// Loads the driver, once per process.
    pub fn load() -> Result<&'static Self, String> {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        let library = Library::open(&[NAME]).map_err(|reason| absent(&reason))?;
        let driver = Self::of(library)?;
        Ok(DRIVER.get_or_init(|| driver))
    }

    /// Returns this thread's context; `None` if it has none.
    pub fn current(&self) -> Option<Context> {
        let mut context = std::ptr::null_mut();
        // SAFETY: `context` is valid for the one write.
        let status = unsafe { (self.current)(&raw mut context) };
        (status == 0 && !context.is_null()).then_some(Context(context))
    }

    /// Returns the number of the device of this thread's context.
    pub fn device(&self) -> Result<c_int, String> {
        let mut device = 0;
        // SAFETY: `device` is valid for the one write.
        self.check("cuCtxGetDevice", unsafe { (self.device)(&raw mut device) })?;
        Ok(device)
    }

    /// Calls a function with a context as this thread's, in a mode in which its calls do not break
    /// a graph that another thread captures.
    ///
    /// # Safety
    /// The context exists.
    pub unsafe fn within<R>(&self, context: Context, call: impl FnOnce() -> R) -> Result<R, String> {
        // SAFETY: the caller's promise.
        self.check("cuCtxPushCurrent", unsafe { (self.push)(context.0) })?;
        let mut mode = RELAXED;
        // SAFETY: `mode` is one of `CUstreamCaptureMode`, and valid for the exchange.
        unsafe { (self.capture_mode)(&raw mut mode) };
        let result = call();
        let mut popped = std::ptr::null_mut();
        // SAFETY: `mode` is what the exchange returned; `popped` is valid for the one write.
        unsafe {
            (self.capture_mode)(&raw mut mode);
            (self.pop)(&raw mut popped);
        }
        Ok(result)
    }

    /// Returns true if work for a stream goes into a graph instead of to the device.
    ///
    /// # Safety
    /// It is a stream of this thread's context.
    pub unsafe fn is_capturing(&self, stream: Handle) -> bool {
        let mut status = 0;
        // SAFETY: the caller's promise; `status` is valid for the one write.
        let asked = unsafe { (self.is_capturing)(stream, &raw mut status) };
        asked != 0 || status != 0
    }

    fn check(&self, function: &str, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        Err(format!("{function}: {}", status_name(self.error_name, status)))
    }
}

/// States that there is no driver.
pub(super) fn absent(reason: &str) -> String {
    format!("no NVIDIA driver: {reason}; install it, or run where there is a GPU")
}

/// A CUDA context.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Context(Handle);

// SAFETY: a context may be made any thread's current one; the driver synchronizes.
unsafe impl Send for Context {}

/// A stream of its own, on which nothing waits for the program's work.
#[derive(Debug)]
pub(super) struct Stream {
    driver: &'static Driver,
    handle: Handle,
}

// SAFETY: streams may be used and destroyed on any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// Creates a stream of this thread's context.
    pub fn new(driver: &'static Driver) -> Result<Self, String> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is valid for the one write.
        driver.check("cuStreamCreate", unsafe { (driver.create_stream)(&raw mut handle, NON_BLOCKING) })?;
        Ok(Self { driver, handle })
    }

    /// Returns the driver's handle.
    pub fn handle(&self) -> Handle {
        self.handle
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream was created here and is used no more.
        unsafe { (self.driver.destroy_stream)(self.handle) };
    }
}

/// An event with a time.
#[derive(Debug)]
pub(super) struct Event {
    driver: &'static Driver,
    handle: Handle,
}

// SAFETY: events may be used and destroyed on any thread.
unsafe impl Send for Event {}
// SAFETY: the driver synchronizes; what a shared reference does only asks it.
unsafe impl Sync for Event {}

impl Event {
    /// Creates an event of this thread's context and records it on a stream.
    ///
    /// # Safety
    /// It is a stream of this thread's context.
    pub unsafe fn on(driver: &'static Driver, stream: Handle) -> Result<Self, String> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is valid for the one write.
        driver.check("cuEventCreate", unsafe { (driver.create_event)(&raw mut handle, 0) })?;
        let event = Self { driver, handle };
        // SAFETY: the event was just created; the caller's promise.
        driver.check("cuEventRecord", unsafe { (driver.record)(handle, stream) })?;
        Ok(event)
    }

    /// Returns true if the device has reached it.
    pub fn is_reached(&self) -> Result<bool, String> {
        // SAFETY: the event exists.
        match unsafe { (self.driver.query)(self.handle) } {
            NOT_READY => Ok(false),
            status => self.driver.check("cuEventQuery", status).map(|()| true),
        }
    }

    /// Returns the time from another event to this one, ns; both have been reached, the other one
    /// first.
    pub fn ns_since(&self, earlier: &Self) -> Result<u64, String> {
        let mut ms = 0.0_f32;
        // SAFETY: both events exist; `ms` is valid for the one write.
        let status = unsafe { (self.driver.elapsed)(&raw mut ms, earlier.handle, self.handle) };
        self.driver.check("cuEventElapsedTime", status)?;
        Ok((f64::from(ms) * 1e6).round() as u64)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event was created here and is used no more; the driver frees it once the
        // device has reached it.
        unsafe { (self.driver.destroy_event)(self.handle) };
    }
}

/// File of the driver.
pub(super) const NAME: &CStr = c"libcuda.so.1";

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: c_int = 600;
