//! Hooks for tests and fuzzing: invalid frames on a real connection, and arbitrary bytes for the
//! parsers of frames, bundles and trees. The parsers need no sockets here, so many inputs fit into
//! a second.
//!
//! It requires the feature `suite`.

use std::net::TcpStream;

use super::branch::CONTROL;
use super::bundle::Bundle;
use super::frame::{Hashed, Header, Kind, Seal};
use super::incoming::Incoming;
use super::shape::Shape;
use super::{Group, Tcp};
use crate::Error;

impl Tcp {
    /// Returns the connections.
    #[doc(hidden)]
    pub fn into_streams(self) -> Vec<TcpStream> {
        self.into_group().into_streams()
    }

    /// Sends frames as they are, sealed like those of a rank: kind, sequence, bytes.
    #[doc(hidden)]
    pub fn say_frames(&mut self, frames: &[(u8, u8, &[u8])]) {
        self.group_mut().say_frames(frames);
    }
}

impl Group {
    fn into_streams(self) -> Vec<TcpStream> {
        self.peers.list().iter().flatten().filter_map(|peer| peer.stream().try_clone().ok()).collect()
    }

    fn say_frames(&mut self, frames: &[(u8, u8, &[u8])]) {
        for (kind, sequence, payload) in frames {
            let root = self.peers.at(CONTROL);
            let said = root.map(|root| root.say(Kind::any(*kind), u64::from(*sequence), payload, "test"));
            // What is too long for its kind is never said; anything else is short.
            assert!(matches!(said, None | Some(Ok(()) | Err(Error::Backend { .. }))), "{said:?}");
        }
    }
}

/// Reads `data` as a peer's bytes, the first of which states what the others are; panics if what
/// was read is not exactly what was sent.
pub fn parse_peer_bytes(data: &[u8]) {
    let Some(([mode, parameter], rest)) = data.split_first_chunk() else { return };
    let small = usize::from(*parameter) + 1;
    match mode % 4 {
        0 => {
            if let Ok(frames) = Bundle::frames(rest, small) {
                let bytes: usize = frames.iter().map(|(_, frame)| 8 + frame.len()).sum();
                assert_eq!(bytes + 4, rest.len());
                assert!(frames.iter().all(|(rank, _)| *rank < small));
            }
        }
        1 => {
            if let Some(shape) = Shape::decode(rest, small) {
                assert!((0..small).all(|rank| shape.depth(rank) < small));
                assert_eq!(Shape::decode(&shape.encode(), small).map(|again| again.encode()), Some(shape.encode()));
            }
        }
        2 => {
            let mut incoming = Incoming::new(seal());
            let _refused = feed(&mut incoming, rest, small);
            assert!(incoming.first().is_none() && incoming.words().is_empty(), "nobody without the key is believed");
        }
        _ => check_said(rest, small),
    }
}

/// Says sealed frames, each of a kind, a sequence, a length and as many bytes; one byte of the
/// stream may be changed.
fn check_said(mut data: &[u8], pieces: usize) {
    let (mut seal, mut stream, mut said, mut words) = (seal(), Vec::new(), Vec::new(), Vec::new());
    let Some(([changed, low, high], rest)) = data.split_first_chunk() else { return };
    let place = usize::from(u16::from_le_bytes([*low, *high]));
    data = rest;
    while let Some(([kind, sequence, length], rest)) = data.split_first_chunk() {
        let (payload, after) = rest.split_at(rest.len().min(usize::from(*length)));
        let (kind, sequence) = (Kind::any(*kind), u64::from(*sequence));
        data = after;
        // What is too long for its kind is never said.
        let Ok(header) = Header::of(kind, sequence, (payload, &mut Hashed::default()), &seal, "test") else { continue };
        stream.extend_from_slice(&header.encode(&seal));
        stream.extend_from_slice(payload);
        seal.pass();
        if kind == Kind::Word {
            words.push(payload.to_vec());
        } else if kind != Kind::Local {
            said.push((kind, sequence, payload));
        }
    }
    let spoiled = stream.get_mut(place).is_some_and(|byte| {
        *byte ^= changed;
        *changed != 0
    });
    let mut incoming = Incoming::new(self::seal());
    let result = feed(&mut incoming, &stream, pieces);
    let mut found = 0;
    while let Some((header, payload)) = incoming.first() {
        assert_eq!((header.kind, header.sequence, payload), said[found]);
        found += 1;
        incoming.consume();
    }
    let heard = incoming.words();
    assert!(words.starts_with(&heard));
    assert_eq!(!spoiled, found == said.len() && heard.len() == words.len() && result.is_ok());
}

fn feed(incoming: &mut Incoming, bytes: &[u8], pieces: usize) -> Result<(), String> {
    for piece in bytes.chunks(pieces) {
        let room = incoming.room();
        room[..piece.len()].copy_from_slice(piece);
        incoming.came(piece.len())?;
    }
    Ok(())
}

fn seal() -> Seal {
    Seal::new(blake3::hash(b"a connection"))
}
