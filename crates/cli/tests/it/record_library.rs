//! The guide's library example as a program, which records three steps in the current folder and
//! writes them as a trace.
//!
//! The command's tests run it and also compare it with docs/guide/record.md.

/// Records and writes.
///
/// # Errors
/// There is a file `node0.rec` already, or no room.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    use probe_sync_record::export::Format;
    use probe_sync_record::{Kind, Policy, Recorder, instant, scope};

    let session = Recorder::builder().policy(Policy::Flight { bytes: 64 << 20 }).spill("node0.rec").start()?;
    for step in 0..3 {
        let _step = scope!("step", step = step); // until the end of the block; scopes nest
        let _load = scope!(Kind::Io, "load", bytes = 4096);
        instant!("batch is there");
    }
    session.finish()?.on_system()?.write(Format::Kineto, "node0.pt.trace.json".as_ref())?;
    Ok(())
}
