//! Unpredictable random bytes.
//!
//! They become the session key of a run and the challenges of the rendezvous. Random numbers for
//! estimates and tests come from a seed instead.

use std::fs::File;
use std::io::Read as _;

use crate::Error;

/// Returns unpredictable bytes from the kernel.
///
/// # Errors
/// [`Error::Setup`] if the system has none.
pub fn random_bytes<const COUNT: usize>() -> Result<[u8; COUNT], Error> {
    let mut bytes = [0; COUNT];
    let read = File::open(SOURCE).and_then(|mut source| source.read_exact(&mut bytes));
    let reason = |error| format!("{error}; mount /dev, as container runtimes do");
    read.map_err(|error| Error::Setup { what: format!("cannot read {SOURCE}"), reason: reason(error) })?;
    Ok(bytes)
}

const SOURCE: &str = "/dev/urandom";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_draws_differ_in_every_part() {
        let (one, other) = (random_bytes::<64>().expect("a kernel"), random_bytes::<64>().expect("a kernel"));
        for (one, other) in one.chunks(16).zip(other.chunks(16)) {
            assert_ne!(one, other);
        }
    }
}
