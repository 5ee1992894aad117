//! JSON lines: one object a line, appended whole.
//!
//! Place in the flow: every stream of a run. A killed run leaves every flushed line readable; a reader copes with a last line
//! cut short. What it does not do: know what the objects mean.

use std::fs::File;
use std::io::{BufWriter, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Error;

/// An append-only stream of JSON objects, one a line. Two processes never write over each other's lines: one that hung may wake when
/// another has its place.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    writer: BufWriter<File>,
    line: Vec<u8>,
}

impl JsonLines {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).and_then(|_| File::options().append(true).open(path));
        let file = file.map_err(Error::file(path, "create"))?;
        Ok(Self { path: path.into(), writer: BufWriter::new(file), line: Vec::new() })
    }

    /// Goes on with a file that an earlier process of this rank has begun, or creates it. What that process left of a last line
    /// is cut off: it is no object.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn go_on(path: &Path) -> Result<Self, Error> {
        let open = || {
            let mut file = File::options().read(true).append(true).create(true).open(path)?;
            let whole = whole_lines(&mut file)?;
            file.set_len(whole)?;
            Ok(file)
        };
        let file = open().map_err(Error::file(path, "go on with"))?;
        Ok(Self { path: path.into(), writer: BufWriter::new(file), line: Vec::new() })
    }

    /// Appends one object.
    ///
    /// # Errors
    /// [`Error::File`] names the path, as when the disk is full.
    pub fn append<T: Serialize>(&mut self, value: &T) -> Result<(), Error> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, value).expect("our types serialise to JSON and a Vec takes any bytes");
        self.line.push(b'\n');
        self.writer.write_all(&self.line).map_err(Error::file(&self.path, "append to"))
    }

    /// Hands everything to the operating system: a killed process loses nothing before this point.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.writer.flush().map_err(Error::file(&self.path, "append to"))
    }
}

/// How many bytes of a file are whole lines. Looks back from its end.
fn whole_lines(file: &mut File) -> std::io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut block = vec![0; BLOCK];
    while end > 0 {
        let start = end.saturating_sub(BLOCK as u64);
        let block = &mut block[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(block)?;
        if let Some(newline) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

const BLOCK: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(before: &str, after: &str) {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("node1.jsonl");
        std::fs::write(&path, before).expect("writable");
        let mut lines = JsonLines::go_on(&path).expect("a file");
        lines.append(&7).expect("writable");
        lines.flush().expect("writable");
        assert_eq!(std::fs::read_to_string(&path).expect("text"), after);
    }

    #[test]
    fn a_file_goes_on_after_its_last_whole_line() {
        check("", "7\n");
        check("1\n2\n", "1\n2\n7\n");
        check("1\n{\"a\": ", "1\n7\n");
        check("{\"never whole", "7\n");
        let long = format!("1\n{}", "x".repeat(3 * BLOCK));
        check(&long, "1\n7\n");
    }
}
