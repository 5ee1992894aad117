//! Detects files with the same contents as another file: profilers write one recording several
//! times, and people keep unpacked copies.
//!
//! JAX writes `HOST.xplane.pb` and, next to it, `HOST.trace.json.gz` and optionally
//! `perfetto_trace.json.gz`: the same events, with times since the session's start and no host, so
//! that no clock fits them. rocprofv3 writes `NAME_results.pftrace` next to `NAME_results.db`. Files of the same name whose unpacked contents are equal are copies,
//! whatever directory they are in. Length and checksum of the unpacked data decide; where those at
//! the end of packed files differ, nothing is unpacked. It does not compare events.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use probe_sync_formats::gzip;
use probe_sync_formats::words::joined;

/// Takes the copies off a list; a line for the user about them.
pub(crate) fn take_off(paths: &mut Vec<PathBuf>) -> Option<String> {
    let all: BTreeSet<PathBuf> = paths.iter().cloned().collect();
    let mut copies: Vec<(PathBuf, PathBuf)> = Vec::new();
    let mut alike: BTreeMap<String, Vec<(PathBuf, Content)>> = BTreeMap::new();
    let mut kept: BTreeSet<PathBuf> = BTreeSet::new();
    // Unpacked files first: they are the ones that are kept.
    let mut ordered: Vec<&PathBuf> = paths.iter().collect();
    ordered.sort_by_key(|path| is_packed(path));
    for path in ordered {
        let original = of_session(path, &all).or_else(|| equal(path, &mut alike));
        match original {
            Some(original) => copies.push((path.clone(), original)),
            None => {
                kept.insert(path.clone());
            }
        }
    }
    // Of a file that is named twice one stays.
    paths.retain(|path| kept.remove(path));
    let told = |(copy, original): &(PathBuf, PathBuf)| format!("{} (of {})", copy.display(), original.display());
    let files = if copies.len() == 1 { "file, a copy" } else { "files, copies" };
    let named = joined(copies.iter().take(TOLD).map(told), copies.len());
    (!copies.is_empty()).then(|| format!("skipped {} {files} of another trace: {named}", copies.len()))
}

/// The file of a JAX session that a file is written from.
fn of_session(path: &Path, all: &BTreeSet<PathBuf>) -> Option<PathBuf> {
    let name = plain_name(path)?;
    let folder = path.parent()?;
    let host = name.strip_suffix(".trace.json").filter(|host| !host.ends_with(".pt"));
    if let Some(host) = host {
        return Some(folder.join(format!("{host}.xplane.pb"))).filter(|original| all.contains(original));
    }
    if let Some(of_process) = name.strip_suffix(".pftrace") {
        let database = folder.join(format!("{of_process}.db"));
        return Some(database).filter(|original| all.contains(original));
    }
    if name != "perfetto_trace.json" {
        return None;
    }
    let in_folder = || all.iter().filter(|other| other.parent() == Some(folder));
    let ends = |ending: &str| {
        in_folder().find(|other| plain_name(other).is_some_and(|name| name.ends_with(ending) && !name.contains(".pt.")))
    };
    ends(".xplane.pb").or_else(|| ends(".trace.json")).cloned()
}

/// What distinguishes contents.
struct Content {
    /// Size of the unpacked data, modulo 2^32. The end of a packed file states that of its last
    /// member, and a file may have several.
    length: u32,
    /// Checksum at the end of a packed file, which is that of the last member too.
    stated: Option<u32>,
    /// Size and checksum of all unpacked data, computed when first needed.
    whole: Option<(u64, u32)>,
}

/// An earlier file of the same name and content.
fn equal(path: &Path, alike: &mut BTreeMap<String, Vec<(PathBuf, Content)>>) -> Option<PathBuf> {
    let name = plain_name(path).filter(|name| name.ends_with(".json") || name.ends_with(".xplane.pb"))?;
    // A file that cannot be read is refused later, with its name.
    let mut content = Content::look(path)?;
    let known = alike.entry(name).or_default();
    for (other, of_other) in known.iter_mut() {
        if content.may_equal(of_other) && content.whole(path).is_some_and(|own| of_other.whole(other) == Some(own)) {
            return Some(other.clone());
        }
    }
    known.push((path.to_owned(), content));
    None
}

impl Content {
    fn look(path: &Path) -> Option<Content> {
        let mut file = File::open(path).ok()?;
        if !gzip::is_packed(&gzip::head(&mut file, 2).ok()?) {
            let length = file.metadata().ok()?.len();
            return Some(Content { length: length as u32, stated: None, whole: None });
        }
        let mut end = [0; 8];
        file.seek(SeekFrom::End(-8)).ok()?;
        file.read_exact(&mut end).ok()?;
        let [checksum, length] = [0, 4].map(|at| u32::from_le_bytes([end[at], end[at + 1], end[at + 2], end[at + 3]]));
        Some(Content { length, stated: Some(checksum), whole: None })
    }

    /// Returns false where the sizes and checksums that cost nothing already differ.
    fn may_equal(&self, other: &Self) -> bool {
        self.length == other.length && self.stated.zip(other.stated).is_none_or(|(own, other)| own == other)
    }

    /// Returns size and checksum of all unpacked data; `None` if the file cannot be read.
    fn whole(&mut self, path: &Path) -> Option<(u64, u32)> {
        if self.whole.is_none() {
            let file = File::open(path).ok()?;
            let packed = self.stated.is_some();
            let mut data: Box<dyn Read> = if packed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
            let (mut length, mut checksum, mut buffer) = (0, flate2::Crc::new(), vec![0; 1 << 16]);
            loop {
                match data.read(&mut buffer).ok()? {
                    0 => break,
                    count => {
                        length += count as u64;
                        checksum.update(&buffer[..count]);
                    }
                }
            }
            self.whole = Some((length, checksum.sum()));
        }
        self.whole
    }
}

/// A file's name without `.gz`.
fn plain_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    Some(name.strip_suffix(".gz").unwrap_or(name).to_owned())
}

fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// Copies that a message names.
const TOLD: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(content: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packer, content).expect("packed");
        packer.finish().expect("packed")
    }

    /// Of these files, in their order, those whose names begin with `=` are kept.
    fn check(files: &[(&str, &[u8])]) {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name.trim_start_matches('='));
        for (name, content) in files {
            std::fs::create_dir_all(at(name).parent().expect("a folder")).expect("folders");
            let is_packed = name.ends_with(".gz");
            std::fs::write(at(name), if is_packed { packed(content) } else { content.to_vec() }).expect("a file");
        }
        let mut paths: Vec<PathBuf> = files.iter().map(|(name, _)| at(name)).collect();
        let note = take_off(&mut paths);
        let expected: Vec<PathBuf> =
            files.iter().filter(|(name, _)| name.starts_with('=')).map(|(name, _)| at(name)).collect();
        assert_eq!(paths, expected, "{note:?}");
        assert_eq!(note.is_some(), expected.len() < files.len(), "{note:?}");
    }

    #[test]
    fn of_a_jax_session_the_xspaces_stay() {
        check(&[
            ("s1/n0.trace.json.gz", b"{}"),
            ("=s1/n0.xplane.pb", b"n0"),
            ("s1/perfetto_trace.json.gz", b"{}"),
            ("=s2/n0.xplane.pb", b"later"),
            ("s2/n0.trace.json", b"{ }"),
            ("=s3/n1.trace.json.gz", b"{\"a\":1}"),
            ("s3/perfetto_trace.json.gz", b"{\"b\":1}"),
            ("=s4/perfetto_trace.json.gz", b"{\"c\":1}"),
            ("=s5/n0.pt.trace.json", b"{\"d\":1}"),
            ("=s5/n0.xplane.pb", b"no copy"),
        ]);
    }

    #[test]
    fn equal_files_of_one_name_are_copies() {
        check(&[
            ("a/rank0.json.gz", b"{\"rank\":0}"),
            ("=a/rank0.json", b"{\"rank\":0}"),
            ("=a/rank1.json", b"{\"rank\":1}"),
            ("backup/rank1.json", b"{\"rank\":1}"),
            ("=later/rank1.json", b"{\"rank\":2}"),
            ("=a/other.json", b"{\"rank\":1}"),
        ]);
    }

    /// bgzip and pigz write several members, of which the last may be empty.
    #[test]
    fn packed_files_with_equal_last_members_are_no_copies() {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = |rank: &str, content: &[u8]| {
            let path = folder.path().join(rank).join("trace.json.gz");
            std::fs::create_dir(folder.path().join(rank)).expect("a folder");
            std::fs::write(&path, [packed(content), packed(b"")].concat()).expect("a file");
            path
        };
        let ranks = [trace("0", b"{\"rank\":0}"), trace("1", b"{\"rank\":1}"), trace("2", b"{\"rank\":0}")];
        let mut paths = ranks.to_vec();
        assert!(take_off(&mut paths).is_some_and(|note| note.contains("skipped 1 file")));
        assert_eq!(paths, ranks[..2]);
    }

    #[test]
    fn a_file_that_is_named_twice_is_read_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.json");
        std::fs::write(&path, "{}").expect("a file");
        let mut paths = vec![path.clone(), path.clone(), folder.path().join("absent.json")];
        assert!(take_off(&mut paths).is_some());
        assert_eq!(paths, [path, folder.path().join("absent.json")]);
    }
}
