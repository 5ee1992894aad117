//! The collective operations of a recording: the last ones that ended, and those that have not.

use std::collections::VecDeque;

use super::{Event, OpenScope, Recording, What};
use crate::error::Error;
use crate::typed::keys;
use crate::value::ArgumentValue;

/// A rank's part in a collective operation, recorded as a scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectiveScope {
    /// Operation, such as `all_reduce`.
    pub operation: String,
    /// Name of the group.
    pub group: Option<String>,
    /// Ranks of the group, as a JSON list.
    pub ranks: Option<String>,
    /// Number of the operation in its group.
    pub sequence: Option<u64>,
    /// Type of the elements.
    pub dtype: Option<String>,
    /// Number of elements that this rank sends.
    pub sent: Option<u64>,
    /// Start, ticks.
    pub start: u64,
    /// End, ticks; `None` if it has not ended.
    pub end: Option<u64>,
}

impl Recording {
    /// Returns the collective operations in the order in which they began: at most the last `last`
    /// of each thread that ended, and all that are open.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::File`].
    pub fn collectives(&self, last: usize) -> Result<Vec<CollectiveScope>, Error> {
        let mut found: Vec<CollectiveScope> = Vec::new();
        for thread in self.threads() {
            let mut ended: VecDeque<CollectiveScope> = VecDeque::new();
            self.visit(thread.serial, |event: &Event<'_>| {
                if let What::Scope { start, end, .. } = event.what
                    && let Some(part) = CollectiveScope::of(event.arguments(), start, Some(end))
                {
                    if ended.len() >= last {
                        ended.pop_front();
                    }
                    ended.push_back(part);
                }
                Ok::<(), Error>(())
            })?;
            found.extend(ended);
            found.extend(thread.open.iter().filter_map(CollectiveScope::of_open));
        }
        found.sort_by_key(|part| part.start);
        Ok(found)
    }
}

impl CollectiveScope {
    fn of_open(scope: &OpenScope) -> Option<Self> {
        let arguments = scope.arguments.iter().map(|(key, value)| (key.as_str(), value.clone()));
        Self::of(arguments, scope.start, None)
    }

    /// Reads the arguments of a scope; `None` if it is no collective operation.
    fn of<'a>(arguments: impl Iterator<Item = (&'a str, ArgumentValue)>, start: u64, end: Option<u64>) -> Option<Self> {
        let mut part = Self { start, end, ..Self::default() };
        for (key, value) in arguments {
            match key {
                keys::COLLECTIVE => part.operation = text(value)?,
                keys::GROUP => part.group = text(value),
                keys::RANKS => part.ranks = text(value),
                keys::SEQUENCE => part.sequence = number(&value),
                keys::DTYPE => part.dtype = text(value),
                keys::SENT => part.sent = number(&value),
                _ => {}
            }
        }
        (!part.operation.is_empty()).then_some(part)
    }
}

fn text(value: ArgumentValue) -> Option<String> {
    match value {
        ArgumentValue::Text(text) | ArgumentValue::Json(text) => Some(text),
        _ => None,
    }
}

fn number(value: &ArgumentValue) -> Option<u64> {
    match value {
        ArgumentValue::Unsigned(number) => Some(*number),
        ArgumentValue::Integer(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::typed::{Collective, Part, enter_collective as enter};

    #[test]
    fn the_last_operations_and_the_open_one_are_returned_in_order() {
        let session = crate::Recorder::builder().reach(crate::Reach::Thread).start().expect("a session");
        let part =
            |sequence| Part { group: Some("dp"), ranks: Some("[0, 4]"), sequence: Some(sequence), ..Part::default() };
        for sequence in 0..10 {
            drop(enter(Collective::AllReduce, &part(sequence)));
            drop(crate::scope!("between"));
        }
        let open = enter(Collective::Barrier, &part(10));
        let found = session.snapshot().expect("a copy").collectives(3).expect("readable");
        drop(open);
        let told: Vec<_> =
            found.iter().map(|part| (part.operation.as_str(), part.sequence, part.end.is_some())).collect();
        let expected = [
            ("all_reduce", Some(7), true),
            ("all_reduce", Some(8), true),
            ("all_reduce", Some(9), true),
            ("barrier", Some(10), false),
        ];
        assert_eq!(told, expected);
        assert_eq!((found[0].group.as_deref(), found[0].ranks.as_deref()), (Some("dp"), Some("[0, 4]")));
        assert!(found.windows(2).all(|pair| pair[0].start <= pair[1].start));
    }
}
