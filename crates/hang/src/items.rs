//! Where a pickle's lists and dictionaries keep their values.

/// The values in a list or a dictionary: usually filled at once, they lie together with those of
/// others.
#[derive(Debug)]
pub(crate) enum Items {
    Together { start: usize, end: usize },
    Own(Vec<u32>),
}

impl Items {
    pub const NONE: Self = Self::Together { start: 0, end: 0 };

    /// Adds values; the first ones are put together with those of others.
    pub fn extend(&mut self, values: &[u32], together: &mut Vec<u32>) {
        match self {
            Self::Own(items) => items.extend_from_slice(values),
            Self::Together { start, end } if start == end => {
                (*start, *end) = (together.len(), together.len() + values.len());
                together.extend_from_slice(values);
            }
            Self::Together { start, end } => *self = Self::Own([&together[*start..*end], values].concat()),
        }
    }

    /// Returns the values.
    pub fn of<'p>(&'p self, together: &'p [u32]) -> &'p [u32] {
        match self {
            Self::Own(items) => items,
            Self::Together { start, end } => &together[*start..*end],
        }
    }
}
