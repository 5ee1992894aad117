//! The exchange protocol from outside: bytes, stamps and times in, packets, exchanges and counters
//! out.
mod arbitrary;
mod exchange;
mod pacing;
mod wire;
