//! The stack of a rank's main thread, from a text dump.
//!
//! It reads what Python's `faulthandler` and `traceback` write, and what `py-spy dump` prints.

/// The stack of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Functions with file and line, such as `load (data.py:31)`, the innermost first.
    pub frames: Vec<String>,
}

impl Stack {
    /// Reads the stack of the main thread; `None` if the text contains no stack.
    ///
    /// # Examples
    /// ```
    /// use probe_sync_hang::Stack;
    ///
    /// let text = "Current thread 0x01 (most recent call first):\n  File \"/job/data.py\", line 31 in load\n";
    /// assert_eq!(Stack::read(text).map(|stack| stack.frames), Some(vec!["load (data.py:31)".to_owned()]));
    /// ```
    pub fn read(text: &str) -> Option<Self> {
        let mut threads: Vec<Thread> = Vec::new();
        for line in text.lines().take(LINES_MAX) {
            let thread = threads.last_mut();
            if let Some(thread) = Thread::of_header(line) {
                threads.push(thread);
            } else if let Some(thread) = thread
                && let Some(frame) = frame(line, thread.writer)
            {
                thread.frames.push(frame);
            }
        }
        threads.retain(|thread| !thread.frames.is_empty());
        // faulthandler names no thread; it writes the main thread last.
        let place = threads.iter().position(|thread| thread.is_main).or(threads.len().checked_sub(1))?;
        let mut thread = threads.swap_remove(place);
        if thread.writer == Writer::Traceback {
            thread.frames.reverse();
        }
        thread.frames.truncate(FRAMES_MAX);
        Some(Self { frames: thread.frames })
    }
}

struct Thread {
    is_main: bool,
    writer: Writer,
    frames: Vec<String>,
}

/// The program that wrote a stack.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Writer {
    Faulthandler,
    Traceback,
    PySpy,
}

impl Thread {
    /// Parses the line above a thread's frames; lines of source text are indented.
    fn of_header(line: &str) -> Option<Self> {
        let writer = match line {
            _ if line.starts_with(' ') => return None,
            _ if line.contains("(most recent call last)") => Writer::Traceback,
            _ if line.contains("(most recent call first)") => Writer::Faulthandler,
            _ if line.starts_with("Thread ") => Writer::PySpy,
            _ => return None,
        };
        Some(Self { is_main: line.contains("MainThread"), writer, frames: Vec::new() })
    }
}

/// Parses `  File "/job/data.py", line 31, in load` (faulthandler: without the second comma), or
/// py-spy's `    load (data.py:31)`.
fn frame(line: &str, writer: Writer) -> Option<String> {
    let line = line.strip_prefix(' ')?.trim();
    if writer == Writer::PySpy {
        let (function, place) = line.strip_suffix(')')?.rsplit_once(" (")?;
        let (file, number) = place.rsplit_once(':')?;
        return written(function, file, number);
    }
    let rest = line.strip_prefix("File \"")?;
    let (file, rest) = rest.split_once("\", line ")?;
    let (number, function) = rest.split_once(" in ")?;
    written(function, file, number.trim_end_matches(','))
}

fn written(function: &str, file: &str, number: &str) -> Option<String> {
    let number: u32 = number.parse().ok()?;
    let file = file.rsplit('/').next().unwrap_or(file);
    let is_plain = |text: &str| text.len() <= NAME_MAX && !text.chars().any(char::is_control);
    (is_plain(function) && is_plain(file)).then(|| format!("{function} ({file}:{number})"))
}

const LINES_MAX: usize = 100_000;
const FRAMES_MAX: usize = 64;
const NAME_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&[&str]>) {
        let found = Stack::read(text).map(|stack| stack.frames);
        assert_eq!(
            found.as_deref(),
            expected.map(|frames| frames.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>()).as_deref()
        );
    }

    #[test]
    fn the_main_thread_is_read_innermost_frame_first() {
        let faulthandler = "Current thread 0x1 (most recent call first):\n  File \"w.py\", line 9 in watch\n\n\
            Thread 0x2 (most recent call first):\n  File \"/j/a.py\", line 31 in stuck\n  File \"/j/a.py\", line 60 in <module>\n";
        check(faulthandler, Some(&["stuck (a.py:31)", "<module> (a.py:60)"]));
        let traceback = "MainThread (most recent call last):\n  File \"a.py\", line 60, in <module>\n    stuck()\n  \
            File \"a.py\", line 31, in stuck\n    pass\nwatch (most recent call last):\n  File \"w.py\", line 9, in watch\n";
        check(traceback, Some(&["stuck (a.py:31)", "<module> (a.py:60)"]));
        let source = "MainThread (most recent call last):\n  File \"a.py\", line 31, in outer\n    \
            log(\"Traceback (most recent call last):\")\n  File \"b.py\", line 9, in inner\n    foo(x, (lambda:3)\n";
        check(source, Some(&["inner (b.py:9)", "outer (a.py:31)"]));
        let py_spy = "Process 7: python a.py\nPython v3.11 (/usr/bin/python)\n\nThread 8 (idle): \"watch\"\n    wait (threading.py:1)\n\
            Thread 7 (active): \"MainThread\"\n    stuck (a.py:31)\n    <module> (a.py:60)\n";
        check(py_spy, Some(&["stuck (a.py:31)", "<module> (a.py:60)"]));
    }

    #[test]
    fn other_text_is_no_stack() {
        for text in [
            "",
            "rank 2 is stuck",
            "Thread 7 (active): \"MainThread\"\n",
            "  File \"a\u{7}.py\", line 1, in f\n",
            "  f (a.py:x)\n",
        ] {
            check(text, None);
        }
    }
}
