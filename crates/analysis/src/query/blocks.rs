//! Rows in memory: blocks that were read together, and a cache of rows for repeated lookups.
//!
//! A cell keeps its type and its bytes.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use foldhash::fast::FixedState;
use rusqlite::types::ValueRef;

/// Rows that were read together.
#[derive(Default)]
pub(super) struct Block {
    /// Cells that are not in the file itself, or not asked for, are in no block.
    pub(super) cells: Vec<Cell>,
    /// The rows' numbers, ascending.
    pub(super) numbers: Vec<i64>,
    pub(super) width: usize,
    /// Start of the next rows of this part, if there are more.
    pub(super) next: Option<i64>,
}

pub(super) enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(Box<[u8]>),
    Blob(Box<[u8]>),
}

/// Blocks of rows by id, of those that were asked for several times.
#[derive(Default)]
pub(super) struct Lookups {
    pub(super) blocks: HashMap<(usize, i64), Rc<Block>, FixedState>,
    oldest: VecDeque<(usize, i64)>,
    asked: HashMap<(usize, i64), u32, FixedState>,
    /// The block that was used last.
    pub(super) last: Option<(usize, i64)>,
    pub(super) last_block: Rc<Block>,
}

impl Lookups {
    /// Whether rows of this block were looked up so often that all of them are worth reading.
    pub(super) fn is_often(&mut self, key: (usize, i64)) -> bool {
        if self.asked.len() > COUNTED {
            self.asked.clear();
        }
        let count = self.asked.entry(key).or_default();
        *count += 1;
        *count > OFTEN
    }

    pub(super) fn keep(&mut self, key: (usize, i64), block: Block) -> Rc<Block> {
        if self.oldest.len() == KEPT
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.blocks.remove(&oldest);
            self.asked.remove(&oldest);
        }
        self.oldest.push_back(key);
        let block = Rc::new(block);
        self.blocks.insert(key, Rc::clone(&block));
        block
    }
}

impl Cell {
    pub(super) fn of(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Real(number) => Self::Real(number),
            ValueRef::Text(bytes) => Self::Text(bytes.into()),
            ValueRef::Blob(bytes) => Self::Blob(bytes.into()),
        }
    }

    pub(super) fn show(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Real(number) => ValueRef::Real(*number),
            Self::Text(bytes) => ValueRef::Text(bytes),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Text(bytes) | Self::Blob(bytes) => bytes.len(),
            _ => 0,
        }
    }
}

/// Number of lookups of single rows after which a complete block is read, and number of such blocks
/// that a cursor keeps.
const OFTEN: u32 = 8;
const KEPT: usize = 64;
/// Most blocks whose requests are counted.
const COUNTED: usize = 4096;
