//! Reads Python pickles that hold plain data.
//!
//! A pickle is a program for a stack machine that may import and call anything. This reader knows
//! the instructions that make dictionaries, lists, tuples, text, bytes, numbers and `None`; every
//! other one is refused by name. Each instruction makes at most one node, so memory is bounded by
//! the length of the input, and text is borrowed from it. A value may be shared or contain itself;
//! a budget bounds how many values may be visited when such a graph is read.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;

use serde::de::value::{BorrowedStrDeserializer, StringDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::items::Items;

/// The values of one pickle.
#[derive(Debug)]
pub(crate) struct Pickle<'a> {
    nodes: Vec<Node<'a>>,
    /// The values of most lists and dictionaries.
    together: Vec<u32>,
    root: u32,
    /// Number of values that may still be visited.
    budget: Cell<u64>,
    /// Number of dictionaries that may still be visited.
    dictionaries: Cell<usize>,
}

#[derive(Debug)]
enum Node<'a> {
    None,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(Cow<'a, str>),
    Bytes(&'a [u8]),
    List(Items),
    /// Keys and values in turn.
    Dictionary(Items),
}

/// What is wrong with a pickle, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {position}: {what}")]
pub(crate) struct Malformed {
    pub(crate) position: usize,
    pub(crate) what: String,
}

impl<'a> Pickle<'a> {
    /// Reads the first pickle of the input.
    ///
    /// # Errors
    /// Returns the position of an instruction that is cut off, malformed, unknown or not allowed.
    pub fn read(input: &'a [u8]) -> Result<Self, Malformed> {
        let mut machine = Machine {
            input,
            position: 0,
            at: 0,
            nodes: Vec::with_capacity((input.len() / BYTES_PER_NODE).min(NODES_AT_ONCE)),
            together: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            far_memo: HashMap::new(),
        };
        while machine.step()? {}
        let root = machine.pop()?;
        let budget = Cell::new(input.len() as u64 * VISITS_PER_BYTE + VISITS_AT_LEAST);
        let made = machine.nodes.iter().filter(|node| matches!(node, Node::Dictionary(_))).count();
        let dictionaries = Cell::new(VISITS_PER_DICTIONARY * made);
        Ok(Self { dictionaries, nodes: machine.nodes, together: machine.together, root, budget })
    }

    /// Returns the pickled value, as serde reads it.
    pub fn value(&self) -> Value<'_, 'a> {
        Value { pickle: self, node: self.root, depth: 0 }
    }
}

/// The stack machine.
struct Machine<'a> {
    input: &'a [u8],
    /// Where the next byte is read.
    position: usize,
    /// Where the current instruction begins.
    at: usize,
    nodes: Vec<Node<'a>>,
    together: Vec<u32>,
    stack: Vec<u32>,
    marks: Vec<usize>,
    /// Indices that writers assign in order.
    memo: Vec<u32>,
    /// Other indices: kept separately, since one may be any 32-bit number.
    far_memo: HashMap<u32, u32>,
}

impl<'a> Machine<'a> {
    /// Runs one instruction; returns false at the end of the pickle.
    fn step(&mut self) -> Result<bool, Malformed> {
        self.at = self.position;
        let instruction = self.byte()?;
        match instruction {
            b'.' => return Ok(false),
            0x80 => drop(self.byte()?),
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => {
                let mark = self.mark()?;
                self.stack.truncate(mark);
            }
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            b'p' | b'q' | b'r' | 0x94 => self.remember(instruction)?,
            b'g' | b'h' | b'j' => self.recall(instruction)?,
            b'a' | b'e' | b's' | b'u' => self.extend(instruction)?,
            _ => {
                let node = match instruction {
                    b'N' => Node::None,
                    0x88 => Node::Bool(true),
                    0x89 => Node::Bool(false),
                    b'I' | b'J' | b'K' | b'M' | b'L' | 0x8a | 0x8b | b'F' | b'G' => self.number(instruction)?,
                    b'V' | b'S' | b'X' | 0x8c | 0x8d | b'T' | b'U' | b'B' | b'C' | 0x8e | 0x96 => {
                        self.text(instruction)?
                    }
                    _ => self.container(instruction)?,
                };
                self.push(node);
            }
        }
        Ok(true)
    }

    fn number(&mut self, instruction: u8) -> Result<Node<'a>, Malformed> {
        Ok(match instruction {
            b'I' => match self.line()? {
                "00" => Node::Bool(false),
                "01" => Node::Bool(true),
                digits => Node::Integer(self.parsed(digits)?),
            },
            b'L' => {
                let digits = self.line()?;
                Node::Integer(self.parsed(digits.trim_end_matches('L'))?)
            }
            b'F' => {
                let digits = self.line()?;
                Node::Float(self.parsed(digits)?)
            }
            b'J' => Node::Integer(i64::from(i32::from_le_bytes(self.array()?))),
            b'K' => Node::Integer(i64::from(self.byte()?)),
            b'M' => Node::Integer(i64::from(u16::from_le_bytes(self.array()?))),
            b'G' => Node::Float(f64::from_be_bytes(self.array()?)),
            0x8a => {
                let length = usize::from(self.byte()?);
                self.long(length)?
            }
            _ => {
                let length = u32::from_le_bytes(self.array()?) as usize;
                self.long(length)?
            }
        })
    }

    /// A number in two's complement of any length; if it does not fit 64 bits, it becomes a float.
    fn long(&mut self, length: usize) -> Result<Node<'a>, Malformed> {
        let bytes = self.take(length)?;
        let negative = bytes.last().is_some_and(|top| top & 0x80 != 0);
        let filler = if negative { 0xff } else { 0 };
        if bytes.iter().skip(8).all(|byte| *byte == filler) {
            let mut digits = [filler; 8];
            digits.iter_mut().zip(bytes).for_each(|(digit, byte)| *digit = *byte);
            let value = i64::from_le_bytes(digits);
            if (value < 0) == negative {
                return Ok(Node::Integer(value));
            }
        }
        let magnitude = bytes.iter().rev().fold(0.0, |sum, byte| sum * 256.0 + f64::from(*byte));
        let wrap = if negative { 256_f64.powi(i32::try_from(bytes.len()).unwrap_or(i32::MAX)) } else { 0.0 };
        Ok(Node::Float(magnitude - wrap))
    }

    fn text(&mut self, instruction: u8) -> Result<Node<'a>, Malformed> {
        let length = match instruction {
            b'V' => return Ok(Node::Text(Cow::Borrowed(self.line()?))),
            b'S' => {
                let line = self.line()?;
                let inner = line.get(1..line.len().saturating_sub(1)).unwrap_or_default();
                return Ok(Node::Text(Cow::Borrowed(inner)));
            }
            b'U' | 0x8c | b'C' => u64::from(self.byte()?),
            b'X' | b'T' | b'B' => u64::from(u32::from_le_bytes(self.array()?)),
            _ => u64::from_le_bytes(self.array()?),
        };
        let bytes = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        Ok(match instruction {
            b'B' | b'C' | 0x8e | 0x96 => Node::Bytes(bytes),
            _ => Node::Text(match std::str::from_utf8(bytes) {
                Ok(text) => Cow::Borrowed(text),
                Err(_) => String::from_utf8_lossy(bytes),
            }),
        })
    }

    fn container(&mut self, instruction: u8) -> Result<Node<'a>, Malformed> {
        Ok(match instruction {
            b']' | b')' => Node::List(Items::NONE),
            b'}' => Node::Dictionary(Items::NONE),
            b'l' | b't' => {
                let mark = self.mark()?;
                Node::List(self.gather(mark))
            }
            0x85..=0x87 => {
                let length = usize::from(instruction - 0x84);
                let from = self.below(length)?;
                Node::List(self.gather(from))
            }
            b'd' => {
                let mark = self.mark()?;
                self.refuse_odd(self.stack.len() - mark)?;
                Node::Dictionary(self.gather(mark))
            }
            _ => {
                let name = NOT_DATA.iter().find(|(code, _)| *code == instruction).map(|(_, name)| *name);
                return Err(match name {
                    Some(name) => self.malformed(&format!(
                        "the instruction {name} would load or call code; only plain data is accepted"
                    )),
                    None => self.malformed(&format!("unknown pickle instruction 0x{instruction:02x}")),
                });
            }
        })
    }

    /// Appends to the list, or adds to the dictionary, below the values.
    fn extend(&mut self, instruction: u8) -> Result<(), Malformed> {
        let from = match instruction {
            b'a' => self.below(1)?,
            b's' => self.below(2)?,
            _ => self.mark()?,
        };
        self.refuse_odd(if matches!(instruction, b'a' | b'e') { 0 } else { self.stack.len() - from })?;
        let floor = self.marks.last().copied().unwrap_or(0);
        let target = self.stack.get(floor..from).and_then(<[u32]>::last).copied();
        let target = target.ok_or_else(|| self.malformed("the stack is empty"))?;
        let problem = match (&mut self.nodes[target as usize], instruction) {
            (Node::List(items), b'a' | b'e') | (Node::Dictionary(items), b's' | b'u') => {
                items.extend(&self.stack[from..], &mut self.together);
                self.stack.truncate(from);
                return Ok(());
            }
            (_, b'a' | b'e') => "values are appended to something that is not a list",
            _ => "items are set in something that is not a dictionary",
        };
        Err(self.malformed(problem))
    }

    /// Takes the values of the stack from a place on into a list or dictionary.
    fn gather(&mut self, from: usize) -> Items {
        let mut items = Items::NONE;
        items.extend(&self.stack[from..], &mut self.together);
        self.stack.truncate(from);
        items
    }

    fn refuse_odd(&self, values: usize) -> Result<(), Malformed> {
        match values.is_multiple_of(2) {
            true => Ok(()),
            false => Err(self.malformed("a dictionary has a key without a value")),
        }
    }

    fn remember(&mut self, instruction: u8) -> Result<(), Malformed> {
        let number = match instruction {
            0x94 => u32::try_from(self.memo.len()).unwrap_or(u32::MAX),
            _ => self.number_of_memo(instruction)?,
        };
        let top = self.top()?;
        let stored = self.memo.len();
        match self.memo.get_mut(number as usize) {
            Some(place) => *place = top,
            None if number as usize == stored => self.memo.push(top),
            None => drop(self.far_memo.insert(number, top)),
        }
        Ok(())
    }

    fn recall(&mut self, instruction: u8) -> Result<(), Malformed> {
        let number = self.number_of_memo(instruction)?;
        let known = self.memo.get(number as usize).or_else(|| self.far_memo.get(&number)).copied();
        let node = known.ok_or_else(|| self.malformed(&format!("value {number} is used before it is stored")))?;
        self.stack.push(node);
        Ok(())
    }

    fn number_of_memo(&mut self, instruction: u8) -> Result<u32, Malformed> {
        match instruction {
            b'q' | b'h' => Ok(u32::from(self.byte()?)),
            b'r' | b'j' => Ok(u32::from_le_bytes(self.array()?)),
            _ => {
                let digits = self.line()?;
                self.parsed(digits)
            }
        }
    }

    fn push(&mut self, node: Node<'a>) {
        self.stack.push(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(node);
    }

    fn pop(&mut self) -> Result<u32, Malformed> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn top(&self) -> Result<u32, Malformed> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let top = self.stack.get(floor..).and_then(<[u32]>::last).copied();
        top.ok_or_else(|| self.malformed("the stack is empty"))
    }

    /// Returns the place of the last mark on the stack, and removes the mark.
    fn mark(&mut self) -> Result<usize, Malformed> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len());
        mark.ok_or_else(|| self.malformed("no mark is set"))
    }

    /// Returns the place of the last values on the stack, which are above the last mark.
    fn below(&self, values: usize) -> Result<usize, Malformed> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let place = self.stack.len().checked_sub(values).filter(|place| *place >= floor);
        place.ok_or_else(|| self.malformed("the stack is empty"))
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let input: &'a [u8] = self.input;
        let end = self.position.checked_add(length).filter(|end| *end <= input.len());
        let end = end.ok_or_else(|| self.malformed("the file ends within an instruction"))?;
        let bytes = &input[self.position..end];
        self.position = end;
        Ok(bytes)
    }

    fn line(&mut self) -> Result<&'a str, Malformed> {
        let input: &'a [u8] = self.input;
        let rest = &input[self.position..];
        let length = rest.iter().position(|byte| *byte == b'\n');
        let length = length.ok_or_else(|| self.malformed("the file ends within a line"))?;
        self.position += length + 1;
        std::str::from_utf8(&rest[..length]).map_err(|_| self.malformed("a line is not text"))
    }

    fn parsed<T: std::str::FromStr>(&self, digits: &str) -> Result<T, Malformed> {
        digits.trim().parse().map_err(|_| self.malformed("a number is malformed"))
    }

    fn malformed(&self, what: &str) -> Malformed {
        Malformed { position: self.at, what: what.to_owned() }
    }
}

/// One value of a pickle.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Value<'p, 'a> {
    pickle: &'p Pickle<'a>,
    node: u32,
    depth: u32,
}

impl<'p> Value<'p, '_> {
    fn visit(self) -> Result<(), de::value::Error> {
        let too_often = || de::Error::custom("its values refer to each other too often");
        let copied = match &self.pickle.nodes[self.node as usize] {
            Node::Text(text) => text.len() as u64 / BYTES_PER_VISIT,
            Node::Dictionary(_) => {
                let left = self.pickle.dictionaries.get().checked_sub(1);
                self.pickle.dictionaries.set(left.ok_or_else(too_often)?);
                0
            }
            _ => 0,
        };
        let left = self.pickle.budget.get().checked_sub(1 + copied);
        self.pickle.budget.set(left.ok_or_else(too_often)?);
        if self.depth > MAX_DEPTH {
            return Err(de::Error::custom("its values are nested too deeply"));
        }
        Ok(())
    }

    fn at(self, node: u32) -> Self {
        Self { pickle: self.pickle, node, depth: self.depth + 1 }
    }
}

impl<'de> Deserializer<'de> for Value<'de, '_> {
    type Error = de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.visit()?;
        match &self.pickle.nodes[self.node as usize] {
            Node::None => visitor.visit_unit(),
            Node::Bool(value) => visitor.visit_bool(*value),
            Node::Integer(value) => visitor.visit_i64(*value),
            Node::Float(value) => visitor.visit_f64(*value),
            Node::Text(text) => visitor.visit_borrowed_str(text),
            Node::Bytes(bytes) => visitor.visit_borrowed_bytes(bytes),
            Node::List(items) => {
                visitor.visit_seq(Sequence { of: self, items: items.of(&self.pickle.together).iter() })
            }
            Node::Dictionary(items) => {
                let items = items.of(&self.pickle.together).chunks_exact(2);
                visitor.visit_map(Pairs { of: self, items, value: None })
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match &self.pickle.nodes[self.node as usize] {
            Node::None => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    /// An unused value is not visited, however deep it is.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct enum identifier
    }
}

struct Sequence<'p, 'a> {
    of: Value<'p, 'a>,
    items: std::slice::Iter<'p, u32>,
}

impl<'p> SeqAccess<'p> for Sequence<'p, '_> {
    type Error = de::value::Error;

    fn next_element_seed<T: DeserializeSeed<'p>>(&mut self, seed: T) -> Result<Option<T::Value>, Self::Error> {
        self.items.next().map(|node| seed.deserialize(self.of.at(*node))).transpose()
    }
}

struct Pairs<'p, 'a> {
    of: Value<'p, 'a>,
    items: std::slice::ChunksExact<'p, u32>,
    value: Option<u32>,
}

impl<'p> MapAccess<'p> for Pairs<'p, '_> {
    type Error = de::value::Error;

    fn next_key_seed<K: DeserializeSeed<'p>>(&mut self, seed: K) -> Result<Option<K::Value>, Self::Error> {
        let Some([key, value]) = self.items.next() else { return Ok(None) };
        self.value = Some(*value);
        match &self.of.pickle.nodes[*key as usize] {
            Node::Text(text) => seed.deserialize(BorrowedStrDeserializer::new(text)).map(Some),
            Node::Integer(number) => seed.deserialize(StringDeserializer::new(number.to_string())).map(Some),
            _ => Err(de::Error::custom("a key is neither text nor a number")),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'p>>(&mut self, seed: V) -> Result<V::Value, Self::Error> {
        let value = self.value.take().ok_or_else(|| de::Error::custom("a value is read before its key"))?;
        seed.deserialize(self.of.at(value))
    }
}

/// Instructions that import, call or build, which this reader refuses.
const NOT_DATA: [(u8, &str); 18] = [
    (b'c', "GLOBAL"),
    (0x93, "STACK_GLOBAL"),
    (b'R', "REDUCE"),
    (b'b', "BUILD"),
    (b'i', "INST"),
    (b'o', "OBJ"),
    (0x81, "NEWOBJ"),
    (0x92, "NEWOBJ_EX"),
    (b'P', "PERSID"),
    (b'Q', "BINPERSID"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (0x97, "NEXT_BUFFER"),
    (0x98, "READONLY_BUFFER"),
    (0x8f, "EMPTY_SET"),
    (0x90, "ADDITEMS"),
    (0x91, "FROZENSET"),
];

/// A writer refers to a value by two bytes or more, and the recorder's take a third of a visit per
/// byte.
const VISITS_PER_BYTE: u64 = 1;

const VISITS_AT_LEAST: u64 = 10_000;

/// The recorder shares stacks, of which an entry reads one frame, and no entries.
const VISITS_PER_DICTIONARY: usize = 2;

/// Copying so many bytes of a text counts as one more visit.
const BYTES_PER_VISIT: u64 = 64;

/// Values of the recorder's dumps take some eight bytes.
const BYTES_PER_NODE: usize = 8;
/// Largest room that is reserved for values.
const NODES_AT_ONCE: usize = 1 << 20;

/// Dumps are nested five deep.
const MAX_DEPTH: u32 = 64;

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;

    use super::*;

    fn json(input: &[u8]) -> Result<serde_json::Value, String> {
        let pickle = Pickle::read(input).map_err(|error| error.to_string())?;
        serde_json::Value::deserialize(pickle.value()).map_err(|error| error.to_string())
    }

    #[test]
    fn plain_data_of_every_protocol_is_read() {
        let check = |input: &[u8], expected: &str| {
            assert_eq!(json(input).map(|value| value.to_string()), Ok(expected.to_owned()), "{input:?}");
        };
        check(
            b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01M\x00\x01J\xff\xff\xff\xffeX\x01\x00\x00\x00bh\x01u.",
            r#"{"a":[1,256,-1],"b":"a"}"#,
        );
        check(b"(dp0\nVkey\np1\n(lp2\nI5\naI01\nas.", r#"{"key":[5,true]}"#);
        check(b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x01x\x94h\x00\x86.", r#"["x","x"]"#);
        check(b"\x80\x02\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80.", "-9223372036854775808");
        check(b"\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00.", "1.8446744073709552e+19");
        check(b"\x80\x02L12L\n.", "12");
        check(b"\x80\x02NG\x3f\xf8\x00\x00\x00\x00\x00\x00\x88\x87.", "[null,1.5,true]");
    }

    #[test]
    fn a_pickle_that_imports_or_calls_is_refused() {
        let check = |input: &[u8], expected: &str| {
            let error = Pickle::read(input).expect_err("refused").to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00idtR.", "byte 2: the instruction GLOBAL");
        check(b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "STACK_GLOBAL");
        check(b"(ios\nsystem\n.", "INST");
        check(b"\x80\x02)R.", "REDUCE");
        check(b"\x80\x02}b.", "BUILD");
        check(b"P1\n.", "PERSID");
    }

    #[test]
    fn every_cut_of_a_pickle_is_an_error() {
        let whole =
            b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01M\x00\x01J\xff\xff\xff\xffeX\x01\x00\x00\x00bh\x01u.";
        for length in 0..whole.len() {
            assert!(Pickle::read(&whole[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn one_entry_that_is_referred_to_again_and_again_is_not_copied_as_often() {
        let text = |text: &str| [b"X".as_slice(), &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
        let entry = [b"}(".to_vec(), text("process_group"), b"(".to_vec(), text("0"), text("d"), b"tuq\x05".to_vec()];
        let entries = [entry.concat(), b"h\x05".repeat(100_000)].concat();
        let dump = [b"\x80\x02}(".to_vec(), text("version"), text("2.10"), text("entries"), b"(".to_vec(), entries];
        let bytes = [dump.concat(), b"lu.".to_vec()].concat();
        let error = crate::Dump::read(&bytes).expect_err("refused").to_string();
        assert!(error.contains("refer to each other too often"), "{error}");
    }

    #[test]
    fn a_pickle_that_refers_to_itself_ends() {
        // x = []; x = [x, x]; … forty times: 2^40 values from 300 bytes.
        let mut bomb = b"\x80\x02]q\x00".to_vec();
        for level in 1..40_u8 {
            bomb.extend([b']', b'q', level, b'(', b'h', level - 1, b'h', level - 1, b'e']);
        }
        bomb.push(b'.');
        assert!(json(&bomb).expect_err("refused").contains("too often"));
        // A list that contains itself.
        assert!(json(b"\x80\x02]q\x00h\x00a.").expect_err("refused").contains("too deeply"));
        // A place in the memo far beyond the input.
        assert_eq!(
            json(b"\x80\x02Nr\xff\xff\xff\xffj\xff\xff\xff\xff\x86.").map(|value| value.to_string()),
            Ok("[null,null]".to_owned())
        );
    }
}
