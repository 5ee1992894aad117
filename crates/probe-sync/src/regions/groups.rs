//! The first meeting of all ranks of a job, and their division into regions.
//!
//! The group in which all ranks have met (MPI, TCP) assigns ranks to regions and distributes the
//! ids by which the members of each group find each other; it is not used after that. All further
//! groups use TCP, even under MPI: a master is in two groups at once, from two threads, which an
//! MPI at `MPI_THREAD_FUNNELED` does not allow, and over TCP a group continues without lost ranks.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration as StdDuration;

use probe_sync_collective::{Collective, Deadline, Error as Failure, FileSender, JobKey, Meeting, Rank, Tcp, UniqueId};
use probe_sync_sys::interfaces::own_addresses;
use probe_sync_sys::{SystemClock, host};
use probe_sync_time::Clock as _;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::join::{Grouping, Hello, KeyFile, agree_on_regions, negotiate, own_region};
use crate::session::Context;
use crate::store::RunDirectory;
use crate::{Config, Error};

/// One rank of a job of several regions: its connection to its region's group and, if it is a
/// master, to that of the masters.
pub struct Regions {
    pub(super) config: Config,
    pub(super) grouping: Grouping,
    /// Rank among all ranks of the job.
    pub(super) rank: Rank,
    /// Index of its region.
    pub(super) region: usize,
    pub(super) own: Tcp,
    pub(super) among_masters: Option<AmongMasters>,
    /// Directory of the job, at rank 0: held until the end.
    pub(super) directory: Option<RunDirectory>,
    pub(super) context: Context,
    /// True if the launcher signals all ranks at once and kills them soon after.
    pub(super) killed_soon: bool,
}

/// A master's connection to the group of masters.
pub(super) struct AmongMasters {
    pub group: Tcp,
    /// Sends files to rank 0.
    pub files: FileSender,
}

/// Message of a rank that opens groups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Opened {
    region: Option<Vec<u8>>,
    masters: Option<Vec<u8>>,
}

/// Ids of all groups.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Ids {
    /// Ids by region.
    regions: Vec<Vec<u8>>,
    masters: Vec<u8>,
}

/// The meetings opened by this rank.
#[derive(Default)]
struct Meetings {
    region: Option<Meeting>,
    masters: Option<Meeting>,
}

impl Regions {
    /// Meets the other ranks of the job in `world`, then those of its region and, if it is a
    /// master, the other masters. `world` is not used afterwards.
    ///
    /// A rank whose configuration is unusable, or that has no region, still takes part as it would
    /// in a run ([`crate::run()`]), so that all ranks end with the same error.
    ///
    /// # Errors
    /// The first error; [`Error::Refused`] on all ranks if some have no region, all have the same
    /// one, or a region file is wrong.
    pub fn meet(config: Result<Config, Error>, world: &mut dyn Collective, context: &Context) -> Result<Self, Error> {
        let deadline = Deadline::new(MEETING_LIMIT, Some(Arc::clone(&context.stop)));
        let rank = world.rank();
        let key_file =
            config.as_ref().ok().and_then(|config| config.key_file.as_deref()).map(KeyFile::read).transpose();
        let own = |config: &Config| {
            let key_file = key_file.as_ref().map_err(ToString::to_string)?;
            let hello = Hello::of(config, &host::Host::detect(), context.towards_root, key_file.as_ref(), None)?;
            Ok(Hello { region: own_region(config, rank, world.size())?, ..hello })
        };
        let hello = config.as_ref().map_err(ToString::to_string).and_then(own);
        let out = config.as_ref().map(|config| config.out.clone()).unwrap_or_default();
        let claim = || RunDirectory::claim_with(&out, &[SNAPSHOTS]);
        let now = SystemClock.now();
        let (grouping, mut directory) = agree_on_regions(world, config.as_ref().ok(), &hello, now, claim, &deadline)?;
        let (config, key) = (config?, key_file?.map(|file| file.job_key()));
        if grouping.regions.iter().any(|region| region.ranks.is_empty()) {
            return Err(nonsense(world.root(), "a region without ranks"));
        }
        let Some((region, place)) = grouping.place(rank) else {
            return Err(Error::Refused { reason: format!("rank {rank} is in no region") });
        };
        let begun = directory.as_mut().map_or(Ok(()), |directory| begin(directory, &grouping));
        let (mut meetings, mut opened) =
            (Meetings::default(), begun.map_err(|error| error.to_string()).map(|()| Opened::default()));
        if opened.is_ok() {
            let open = Meetings::open(&grouping, (region, place)).map_err(|error| error.to_string());
            opened = open.map(|open| {
                meetings = open;
                meetings.opened()
            });
        }
        let ids = agree_on_ids(world, &grouping, &opened, &deadline)?;
        let way = Way { key, deadline };
        let id = ids.regions.get(region).ok_or_else(|| nonsense(world.root(), "too few region ids"))?;
        let mut own = way.enter(meetings.region, id, place, &grouping.regions[region].ranks)?;
        let mut among_masters = None;
        if place == 0 {
            let masters: Vec<u32> = grouping.regions.iter().map(|region| region.ranks[0]).collect();
            let group = way
                .enter(meetings.masters, &ids.masters, region, &masters)
                .inspect_err(|error| own.abort(&error.to_string()))?;
            among_masters =
                Some(AmongMasters { group, files: way.id(&ids.masters)?.file_sender(region, masters.len()) });
        }
        let (context, killed_soon) = (context.clone(), world.signals_reach_all());
        Ok(Self { config, grouping, rank, region, own, among_masters, directory, context, killed_soon })
    }

    /// Returns the name of this rank's region.
    pub fn region(&self) -> &str {
        &self.grouping.regions[self.region].name
    }
}

impl Meetings {
    /// Opens this rank's meetings: the first rank of a region opens its region's, and that of the
    /// first region also the masters'.
    fn open(grouping: &Grouping, (region, place): (usize, usize)) -> Result<Self, Failure> {
        let open = |on_loopback: bool| {
            let loopback = || vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
            let addresses = if on_loopback { loopback() } else { own_addresses().map_err(|error| failed(&error))? };
            Meeting::open(&addresses)
        };
        let masters = (region, place) == (0, 0);
        Ok(Self {
            region: (place == 0).then(|| open(grouping.regions[region].on_loopback)).transpose()?,
            masters: masters.then(|| open(grouping.masters_on_loopback)).transpose()?,
        })
    }

    fn opened(&self) -> Opened {
        let bytes = |meeting: &Option<Meeting>| meeting.as_ref().map(|meeting| meeting.id().as_bytes().to_vec());
        Opened { region: bytes(&self.region), masters: bytes(&self.masters) }
    }
}

/// How this rank joins a group.
struct Way {
    key: Option<JobKey>,
    deadline: Deadline,
}

impl Way {
    /// Returns the id of a group; with a key file, the id alone does not admit a rank.
    fn id(&self, bytes: &[u8]) -> Result<UniqueId, Failure> {
        let id = UniqueId::from_bytes(bytes)?;
        Ok(self.key.map_or(id.clone(), |key| id.keyed_by(key)))
    }

    /// Joins a group of these ranks of the job, by hosting the meeting or by the group's id.
    fn enter(&self, meeting: Option<Meeting>, id: &[u8], place: Rank, ranks: &[u32]) -> Result<Tcp, Error> {
        let entered = match (meeting, self.key) {
            (Some(meeting), Some(key)) => meeting.keyed_by(key).host(ranks.len(), &self.deadline),
            (Some(meeting), None) => meeting.host(ranks.len(), &self.deadline),
            (None, _) => self.id(id).and_then(|id| id.join(place, ranks.len(), &self.deadline)),
        };
        entered.map_err(|error| among(ranks, error))
    }
}

/// Distributes the ids of all groups to all ranks, or the reason why a group was not opened.
fn agree_on_ids(
    world: &mut dyn Collective,
    grouping: &Grouping,
    opened: &Result<Opened, String>,
    deadline: &Deadline,
) -> Result<Ids, Error> {
    negotiate(world, Some(opened), deadline, |statements: Vec<Option<Result<Opened, String>>>| {
        let all = statements.into_iter().enumerate().filter_map(|(rank, one)| Some((rank, one?)));
        let all: Vec<Opened> =
            all.map(|(rank, one)| one.map_err(|reason| format!("rank {rank}: {reason}"))).collect::<Result<_, _>>()?;
        let of = |region: &crate::join::Region| all.get(region.ranks[0] as usize)?.region.clone();
        let regions: Option<Vec<Vec<u8>>> = grouping.regions.iter().map(of).collect();
        let masters = all.first().and_then(|first| first.masters.clone());
        let (regions, masters) = regions.zip(masters).ok_or("a region's first rank has opened no group")?;
        Ok(Ids { regions, masters })
    })
}

/// Writes a description of the job, so that later runs recognise its directory.
fn begin(directory: &mut RunDirectory, grouping: &Grouping) -> Result<(), Error> {
    let regions: Vec<_> = grouping
        .regions
        .iter()
        .map(
            |region| json!({ "name": region.name, "ranks": region.ranks, "out": format!("{REGIONS}/{}", region.name) }),
        )
        .collect();
    let document = json!({
        "run_id": grouping.job.to_string(), "version": env!("CARGO_PKG_VERSION"), "regions": regions, "masters": MASTERS,
    });
    directory.write_document("run.json", &format!("{document:#}\n"))?;
    directory.started();
    Ok(())
}

/// Converts a group's error to the job's ranks.
fn among(ranks: &[u32], error: Failure) -> Error {
    let of_job = |rank: Rank| ranks.get(rank).map_or(rank, |rank| *rank as usize);
    match error {
        Failure::Late { operation, missing, waited, interrupted } => {
            let missing = missing.into_iter().map(of_job).collect();
            Failure::Late { operation, missing, waited, interrupted }.into()
        }
        Failure::Lost { operation, rank, reason } => Failure::Lost { operation, rank: of_job(rank), reason }.into(),
        other => other.into(),
    }
}

/// Returns the error for an invalid message of the root.
fn nonsense(root: Rank, what: &str) -> Error {
    Failure::Protocol { operation: "regions", rank: root, what: what.to_owned() }.into()
}

fn failed(error: &dyn std::fmt::Display) -> Failure {
    Failure::Setup { what: "addresses of this machine".into(), reason: error.to_string() }
}

/// Folder of the regions' runs in the job's directory.
pub(super) const REGIONS: &str = "regions";
/// Folder of the masters' run.
pub(super) const MASTERS: &str = "masters";
/// Folder in which alignment looks for snapshot pairs.
pub(super) const SNAPSHOTS: &str = "snapshots";

/// Longest time to meet; all ranks are already running, because they have met before.
const MEETING_LIMIT: StdDuration = StdDuration::from_secs(60);
