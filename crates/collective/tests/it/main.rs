//! The shared suite on the in-process, TCP and message backends, and what only TCP must withstand:
//! foreign connections, wrong greetings, changed frames, ranks that are lost and come back, words
//! that nobody hears.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod attackers;
mod backends;
mod foreign_connections;
mod integrity;
mod led;
mod messages;
mod reconnecting;
mod return_of_ranks;
mod return_through_a_tree;
mod stores;
mod succession;
mod words;
