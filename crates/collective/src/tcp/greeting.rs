//! The mutual authentication of a rank and the root.
//!
//! `newcomers` implements the root's side and `joining` that of the other ranks. There are four
//! messages, all little-endian:
//!
//! | from | bytes | content |
//! |---|---|---|
//! | rank | 84 | magic, version, rank, size, errand, fan-out of the tree, port at which it listens, rank that it looks for, numbers of its process and of its earlier run, 32 random bytes |
//! | root | 48 | magic, version, verdict, 32 random bytes |
//! | rank | 32 | proof: keyed hash of 1, the first message, the root's random bytes |
//! | root | 48 | magic, version, verdict, proof: keyed hash of 2 and the same |
//!
//! The rank proves first, so that others get nothing from the root that depends on the key. Proofs
//! hang on both sides' random bytes: one that was overheard is worth nothing later. They name the
//! rank that is looked for, so that nobody on the way can lead a rank to another listener of its
//! job, where its label may be another's. The first 12 bytes, and the first 16 of an answer, are
//! the same in all versions.
//!
//! A rank comes for its place in the group, to bring a file, to its parent in the tree, which
//! speaks the root's part, or back to a group around another root. A third keyed hash of the same
//! seals what is said about files (`delivery`), a fourth and a fifth the frames of the rank and of
//! the root (`frame`).
//!
//! It does not encrypt.

use blake3::Hash;

use super::job_key::JobKey;
use crate::{ROOT, Rank};

/// A rank's first message when it connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub version: u32,
    pub rank: u32,
    pub size: u32,
    pub errand: Errand,
    /// Number of ranks for which a rank of the tree forwards; 0 in a star.
    pub fan_out: u32,
    /// Port at which it listens for its children, if there is a tree; otherwise 0.
    pub port: u32,
    /// Rank that it expects to listen there.
    pub to: u32,
    /// Number of the process, drawn by a rank that connects for a place. Another process of this
    /// rank has another number.
    pub process: u64,
    /// Run of an earlier process of this rank, as far as it knows; 0 for none. Ranks that meet for
    /// a new run do not admit ranks with an earlier one.
    pub run: u64,
    pub nonce: [u8; NONCE],
}

/// Purpose of a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// A place in the group.
    Place = 0,
    /// Sending a file.
    File = 1,
    /// Connecting to a parent in the tree.
    Child = 2,
    /// A place in a running group, and in no other: a group that is just forming must not count it.
    Return = 3,
    /// None: it checks whether a group is running.
    Look = 4,
}

impl Errand {
    const ALL: [Self; 5] = [Self::Place, Self::File, Self::Child, Self::Return, Self::Look];
}

/// Keys that both sides derive from the job key and their messages.
#[derive(Copy, Clone, Debug)]
pub(super) struct Proofs {
    pub ranks: Hash,
    pub roots: Hash,
    /// Key of messages about a file.
    pub seal: Hash,
    /// Keys of frames: those of the rank, those of the root.
    pub frames: [Hash; 2],
}

impl Hello {
    /// Creates the greeting of `rank` of `size`, with these random bytes.
    pub fn new(rank: Rank, size: usize, errand: Errand, nonce: [u8; NONCE]) -> Self {
        Self {
            version: VERSION,
            rank: rank as u32,
            size: size as u32,
            errand,
            fan_out: 0,
            port: 0,
            to: ROOT as u32,
            process: 0,
            run: 0,
            nonce,
        }
    }

    /// Sets the fan-out of the tree and the port at which the rank listens.
    pub fn in_tree(self, fan_out: usize, port: u16) -> Self {
        Self { fan_out: fan_out as u32, port: u32::from(port), ..self }
    }

    /// Sets the rank that is expected to listen, instead of rank 0.
    pub fn to(self, listener: Rank) -> Self {
        Self { to: listener as u32, ..self }
    }

    /// Sets the number of the process.
    pub fn of_process(self, process: u64) -> Self {
        Self { process, ..self }
    }

    /// Sets the rank's earlier run.
    pub fn of_run(self, run: u64) -> Self {
        Self { run, ..self }
    }

    pub fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.rank.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.size.to_le_bytes());
        bytes[20..24].copy_from_slice(&(self.errand as u32).to_le_bytes());
        bytes[24..28].copy_from_slice(&self.fan_out.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.port.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.to.to_le_bytes());
        bytes[36..44].copy_from_slice(&self.process.to_le_bytes());
        bytes[44..52].copy_from_slice(&self.run.to_le_bytes());
        bytes[52..].copy_from_slice(&self.nonce);
        bytes
    }

    pub fn decode(bytes: &[u8; HELLO]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (version, rest) = rest.split_first_chunk()?;
        let (rank, rest) = rest.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let (errand, rest) = rest.split_first_chunk()?;
        let (fan_out, rest) = rest.split_first_chunk()?;
        let (port, rest) = rest.split_first_chunk()?;
        let (to, rest) = rest.split_first_chunk()?;
        let (process, rest) = rest.split_first_chunk()?;
        let (run, rest) = rest.split_first_chunk()?;
        let (nonce, _) = rest.split_first_chunk()?;
        let errand = u32::from_le_bytes(*errand);
        let errand = Errand::ALL.into_iter().find(|known| *known as u32 == errand)?;
        (*magic == MAGIC).then(|| Self {
            version: u32::from_le_bytes(*version),
            rank: u32::from_le_bytes(*rank),
            size: u32::from_le_bytes(*size),
            errand,
            fan_out: u32::from_le_bytes(*fan_out),
            port: u32::from_le_bytes(*port),
            to: u32::from_le_bytes(*to),
            process: u64::from_le_bytes(*process),
            run: u64::from_le_bytes(*run),
            nonce: *nonce,
        })
    }

    /// Returns the proofs of both sides.
    pub fn proofs(&self, job: JobKey, root_nonce: &[u8; NONCE]) -> Proofs {
        let [ranks, roots, seal, by_rank, by_root] =
            [1, 2, 3, 4, 5].map(|side| job.proof(&[&[side], &self.encode(), root_nonce]));
        Proofs { ranks, roots, seal, frames: [by_rank, by_root] }
    }
}

/// Returns what the beginning of a connection shows: nothing yet, that it is foreign, or the
/// version of the rank.
pub(super) fn version_of(bytes: &[u8]) -> Option<Result<u32, Foreign>> {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Some(Err(Foreign));
    }
    Some(Ok(u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?)))
}

/// Not a rank of this program.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Foreign;

/// Answer of the root.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Welcome = 0,
    OtherVersion = 1,
    OtherJob = 2,
    OtherSize = 3,
    NoSuchRank = 4,
    Duplicate = 5,
    /// Welcome to a running group, in the place of a rank that has left it.
    Back = 6,
    /// It sends a file, but none are accepted here yet.
    NoFiles = 7,
    /// It expects another tree.
    OtherTree = 8,
    /// It wants to return, but no group is running here.
    NotUnderWay = 9,
    /// Ranks meet for a new run here, but its earlier run may still be running.
    OtherRun = 10,
    /// It sends a file, but the largest number of ranks is already waiting to do so.
    Later = 11,
    /// It expects another rank than the one that listens here.
    OtherListener = 12,
}

impl Verdict {
    const ALL: [Self; 13] = [
        Self::Welcome,
        Self::OtherVersion,
        Self::OtherJob,
        Self::OtherSize,
        Self::NoSuchRank,
        Self::Duplicate,
        Self::Back,
        Self::NoFiles,
        Self::OtherTree,
        Self::NotUnderWay,
        Self::OtherRun,
        Self::Later,
        Self::OtherListener,
    ];

    /// Returns the answer of `listener` to a greeting of this version before anything is proven.
    /// `taken` returns whether a rank has joined.
    pub fn of(hello: &Hello, listener: Rank, size: usize, fan_out: usize, taken: impl Fn(Rank) -> bool) -> Self {
        match hello {
            hello if hello.size as usize != size => Self::OtherSize,
            hello if hello.to as usize != listener => Self::OtherListener,
            hello if hello.errand != Errand::File && hello.fan_out as usize != fan_out => Self::OtherTree,
            hello if hello.rank as usize == ROOT || hello.rank as usize >= size => Self::NoSuchRank,
            hello if hello.errand == Errand::Place && taken(hello.rank as usize) => Self::Duplicate,
            _ => Self::Welcome,
        }
    }

    pub fn explain(self) -> &'static str {
        match self {
            Self::Welcome => "welcome",
            Self::OtherVersion => "it runs another version; use the same build everywhere",
            Self::OtherJob => {
                "it belongs to another job or has another key: give all ranks the same --key-file, PROBE_SYNC_JOB or launcher's job \
                variable, and choose a port that no other job uses"
            }
            Self::OtherSize => "it expects another number of ranks; WORLD_SIZE must be the same everywhere",
            Self::NoSuchRank => "its job has no such rank",
            Self::Duplicate => "that rank has already joined; every process needs a different RANK",
            Self::Back => "welcome back",
            Self::OtherTree => "it expects another tree; PROBE_SYNC_TCP_FANOUT must be the same everywhere",
            Self::NotUnderWay => "no run is in progress there",
            Self::OtherRun => "a new run is starting there, but this rank belongs to another one",
            Self::Later => "rank 0 is receiving files from other ranks first",
            Self::OtherListener => "a different rank of the job listens there",
            Self::NoFiles => "rank 0 accepts no files: its run has not started, or writes no files",
        }
    }

    /// Encodes the answer: the verdict, and random bytes or a proof.
    pub fn encode(self, rest: &[u8; NONCE]) -> [u8; ANSWER] {
        let mut bytes = [0; ANSWER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(self as u32).to_le_bytes());
        bytes[16..].copy_from_slice(rest);
        bytes
    }

    /// Decodes the verdict from the first 16 bytes of an answer.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let number = u32::from_le_bytes(*bytes.get(12..)?.first_chunk::<4>()?);
        Self::ALL.into_iter().find(|verdict| bytes.starts_with(&MAGIC) && *verdict as u32 == number)
    }
}

const MAGIC: [u8; 8] = *b"prbsync\x01";
pub(super) const VERSION: u32 = 10;
pub(super) const NONCE: usize = 32;
pub(super) const HELLO: usize = 52 + NONCE;
pub(super) const PROOF: usize = 32;
/// Bytes of an answer that are equal in all versions.
pub(super) const ANSWER_HEAD: usize = 16;
pub(super) const ANSWER: usize = ANSWER_HEAD + NONCE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_survive_the_wire_and_others_are_foreign() {
        for errand in Errand::ALL {
            let hello =
                Hello::new(3, 8, errand, [7; NONCE]).in_tree(5, 4711).to(6).of_process(u64::MAX - 5).of_run(1 << 63);
            assert_eq!(Hello::decode(&hello.encode()), Some(hello));
        }
        let mut bytes = Hello::new(3, 8, Errand::Place, [7; NONCE]).encode();
        bytes[20] = 5;
        assert_eq!(Hello::decode(&bytes), None, "no such errand");
        assert_eq!((version_of(&bytes[..11]), version_of(&bytes[..12])), (None, Some(Ok(VERSION))));
        assert_eq!(
            (version_of(b""), version_of(b"GET / HT"), version_of(b"G")),
            (None, Some(Err(Foreign)), Some(Err(Foreign)))
        );
        for verdict in Verdict::ALL {
            assert_eq!(Verdict::decode(&verdict.encode(&[9; NONCE])[..ANSWER_HEAD]), Some(verdict));
        }
        assert_eq!(Verdict::decode(b"HTTP/1.1 400 Bad"), None);
        assert_eq!(Verdict::decode(&bytes[..12]), None);
    }

    #[test]
    fn a_proof_hangs_on_the_key_the_side_and_everything_that_was_said() {
        let job = JobKey::of(b"7");
        let all = |rank, to, errand, nonce: u8, job, roots: u8| {
            let Proofs { ranks, roots, seal, frames: [by_rank, by_root] } =
                Hello::new(rank, 8, errand, [nonce; NONCE]).to(to).proofs(job, &[roots; NONCE]);
            [ranks, roots, seal, by_rank, by_root]
        };
        let found = [
            all(3, 0, Errand::Place, 7, job, 1),
            all(2, 0, Errand::Place, 7, job, 1),
            all(3, 1, Errand::Place, 7, job, 1),
            all(3, 0, Errand::File, 7, job, 1),
            all(3, 0, Errand::Place, 8, job, 1),
            all(3, 0, Errand::Place, 7, job, 2),
            all(3, 0, Errand::Place, 7, JobKey::of(b"8"), 1),
        ];
        let distinct: std::collections::HashSet<[u8; 32]> = found.into_iter().flatten().map(Into::into).collect();
        assert_eq!(distinct.len(), 35, "no proof is an echo of another");
        assert_eq!(format!("{job:?}"), "JobKey(..)");
    }

    /// What the fuzzer of the rendezvous begins with.
    /// `PROBE_SYNC_UPDATE_SEEDS=1 cargo test -p probe-sync-collective seeds` writes it anew.
    #[test]
    fn seeds_of_the_fuzzer_are_greetings_of_this_version() {
        let nonce = std::array::from_fn(|place| place as u8);
        let of = |rank, size, errand| Hello::new(rank, size, errand, nonce).of_process(0x0706_0504_0302_0100);
        let hello = of(1, 2, Errand::Place);
        let older = Hello { version: 9, ..hello.clone() }.encode()[..64].to_vec();
        let mut no_errand = hello.encode();
        no_errand[20] = 9;
        let seeds = [
            ("greeting", hello.encode().to_vec()),
            ("guessed_proof", [&hello.encode()[..], &[0; PROOF]].concat()),
            ("other_listener", hello.clone().to(1).encode().to_vec()),
            ("half", hello.encode()[..7].to_vec()),
            ("older", older),
            ("other_size", of(1, 3, Errand::Place).encode().to_vec()),
            ("other_tree", hello.clone().in_tree(8, 4711).encode().to_vec()),
            ("other_run", [&hello.of_run(7).encode()[..], &[0; PROOF]].concat()),
            ("no_such_rank", of(2, 2, Errand::Place).encode().to_vec()),
            ("no_such_errand", no_errand.to_vec()),
            ("file", [&of(1, 2, Errand::File).encode()[..], &[0; PROOF]].concat()),
            ("child", of(1, 2, Errand::Child).encode().to_vec()),
            ("return", of(1, 2, Errand::Return).encode().to_vec()),
            ("look", [&of(1, 2, Errand::Look).encode()[..], &[0; PROOF]].concat()),
        ];
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/tcp_rendezvous");
        for (name, seed) in seeds {
            let path = folder.join(name);
            if std::env::var_os("PROBE_SYNC_UPDATE_SEEDS").is_some() {
                std::fs::write(&path, &seed).expect("writable");
            }
            assert!(std::fs::read(&path).ok() == Some(seed), "{} is of another version: write it anew", path.display());
        }
    }
}
