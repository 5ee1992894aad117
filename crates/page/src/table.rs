//! A table of the page.

/// A table of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Caption.
    pub caption: String,
    /// Names of the columns, with units.
    pub header: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates an empty table.
    pub fn new(caption: impl Into<String>, header: &[&str]) -> Self {
        Self {
            caption: caption.into(),
            header: header.iter().map(|name| (*name).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Whether a column contains numbers, which are right-aligned.
    pub(crate) fn is_numeric(&self, column: &usize) -> bool {
        let is_number = |text: &String| {
            text.is_empty() || text == "none" || text.starts_with(|c: char| c.is_ascii_digit() || "+-±−∞".contains(c))
        };
        !self.rows.is_empty() && self.rows.iter().all(|row| row.get(*column).is_none_or(is_number))
    }
}
