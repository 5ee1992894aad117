//! The metadata that this program writes into a trace.

use super::fields;
use crate::protobuf::put_bytes;

/// Returns the fields of a TracePacket with metadata of the whole trace. Trace processor lists it in its table
/// `metadata` from v58 on; earlier versions ignore it.
pub fn attributes(metadata: &[(String, String)]) -> Vec<u8> {
    let (mut packet, mut attributes, mut entry) = (Vec::new(), Vec::new(), Vec::new());
    for (key, text) in metadata {
        entry.clear();
        put_bytes(&mut entry, fields::ATTRIBUTE_KEY, key.as_bytes());
        put_bytes(&mut entry, fields::ATTRIBUTE_TEXT, text.as_bytes());
        put_bytes(&mut attributes, fields::ATTRIBUTES_ENTRY, &entry);
    }
    put_bytes(&mut packet, fields::PACKET_ATTRIBUTES, &attributes);
    packet
}
