//! Scopes forwarded to another tool's markers during a session.
//!
//! It does not record; the tool has its own file and clock.

#[cfg(feature = "itt")]
mod itt;
#[cfg(feature = "nvtx")]
mod nvtx;
#[cfg(all(test, any(feature = "itt", feature = "nvtx")))]
mod tests;

use std::sync::Arc;

use super::{Backend, Request};
use crate::observe::{Observer, Observing};
use crate::site::Site;

#[cfg(feature = "itt")]
pub use itt::Itt;
#[cfg(feature = "nvtx")]
pub use nvtx::Nvtx;

/// A tool that receives scopes, on the thread where they occur.
pub trait MarkerSink: Send + Sync + 'static {
    /// Returns the name in messages.
    fn name(&self) -> &str;

    /// Checks whether the tool is listening.
    ///
    /// # Errors
    /// States why not, and what to do.
    fn is_present(&self) -> Result<(), String>;

    /// Begins a scope on this thread, within those that have begun before.
    fn begin(&self, site: &'static Site);

    /// Ends the innermost scope of this thread.
    fn end(&self);
}

/// Forwards scopes to a tool.
#[derive(Debug)]
pub struct Markers<S> {
    sink: Arc<S>,
    observer: Option<Observer>,
    observing: Option<Observing>,
}

impl<S: MarkerSink> Markers<S> {
    /// Creates a forwarder to this tool.
    pub fn to(sink: S) -> Self {
        Self { sink: Arc::new(sink), observer: None, observing: None }
    }
}

impl<S: MarkerSink> Backend for Markers<S> {
    fn name(&self) -> &str {
        self.sink.name()
    }

    fn prepare(&mut self, request: &Request) -> Result<(), String> {
        self.sink.is_present()?;
        let (begin, end) = (Arc::clone(&self.sink), Arc::clone(&self.sink));
        let observer = Observer::new().reach(request.reach).of_kinds(request.kinds);
        let observer = observer.on_enter(move |scope| {
            begin.begin(scope.site());
            0
        });
        self.observer = Some(observer.on_leave(move |_, _| end.end()));
        Ok(())
    }

    fn start(&mut self) -> Result<(), String> {
        let observer = self.observer.take().ok_or("it was not prepared")?;
        self.observing = Some(observer.add().map_err(|error| error.to_string())?);
        Ok(())
    }

    fn stop(&mut self) -> Result<(), String> {
        match self.observing.take().is_none_or(Observing::remove) {
            true => Ok(()),
            false => Err("one of its calls has not returned".into()),
        }
    }
}
