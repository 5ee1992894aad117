//! Names as hosts, files and events give them to themselves, and as people and programs may see
//! them.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

/// Returns true if a character of a name is invisible or changes how others appear: it ends a line,
/// moves a terminal's cursor, changes the direction of writing or has no width.
pub fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

/// Replaces each invisible character of a name by `?`, so that it cannot forge a line of output or
/// look like another name.
///
/// ```
/// use probe_sync_lines::plain_name;
///
/// assert_eq!(plain_name("gpu-07"), "gpu-07");
/// assert_eq!(plain_name("gpu\n  1 ok\u{1b}[2J\u{202e}"), "gpu?  1 ok?[2J?");
/// ```
pub fn plain_name(name: &str) -> Cow<'_, str> {
    if name.contains(is_invisible) { Cow::Owned(name.replace(is_invisible, "?")) } else { Cow::Borrowed(name) }
}

/// Reads a name that another process wrote or sent, for `deserialize_with`.
///
/// # Errors
/// Returns an error if it is not text.
pub fn read_plain_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|name| plain_name(&name).into_owned())
}

/// Reads an optional name in the same way.
pub(super) fn read_plain_name_if_any<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(from)?;
    Ok(name.map(|name| plain_name(&name).into_owned()))
}

#[cfg(test)]
mod tests {
    use crate::offsets::NodeRecord;

    #[test]
    fn a_host_forges_no_line_wherever_its_name_is_read() {
        let line = "{\"hostname\":\"a\\n  1 fine\\u001b[2J\\u202e\",\"node_id\":1}";
        let node: NodeRecord = serde_json::from_str(line).expect("a node");
        assert_eq!(node.hostname.as_deref(), Some("a?  1 fine?[2J?"));
        let nameless: NodeRecord = serde_json::from_str("{\"node_id\":1}").expect("a node");
        assert_eq!(nameless.hostname, None);
    }
}
