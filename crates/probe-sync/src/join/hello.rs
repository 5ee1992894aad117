//! A rank's first message about itself.
//!
//! It is step 1 of the handshake.

use std::net::{IpAddr, SocketAddr};

use probe_sync_collective::ROOT;
use probe_sync_sys::topology::Topology;
use probe_sync_sys::{host, interfaces};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::clock_reading::ClockReading;
use super::key_file::KeyFile;
use super::launcher::Launched;
use super::neighbors::Neighbors;
use probe_sync_estimate::record::{plain_name, read_plain_name};

use super::offer::{Offer, Surroundings};
use super::part::PartOfJob;
use super::wish::Wish;
use crate::Config;

/// What a rank says of itself first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The crate's version.
    pub version: String,
    /// The host's name, for people.
    #[serde(deserialize_with = "read_plain_name")]
    pub hostname: String,
    /// Equal on ranks that share one system clock (the kernel's boot id unless configured).
    pub clock_identity: String,
    /// What its clocks showed, which tells machines with one boot id apart.
    pub clock: ClockReading,
    /// Which of the machines of this `clock_identity` it is on; the root finds out
    /// ([`super::machines`]).
    pub machine: u32,
    /// Equal on ranks that can reach each other over loopback (boot id and network namespace).
    pub network_identity: String,
    /// The configuration that must agree.
    pub shared_entries: Vec<(String, String)>,
    /// What `run.json` says of the host, as JSON text.
    pub host_facts: String,
    /// Its places in the jobs of launchers, as far as the environment states them.
    pub launched: Vec<Launched>,
    /// The addresses at which it could be probed.
    pub offer: Offer,
    /// Equal on ranks with the same key file; `None` without one.
    pub key_fingerprint: Option<[u8; 16]>,
    /// Its edges, where it names them.
    pub neighbors: Neighbors,
    /// Where others reach it if it is to take the master's place; None where it cannot.
    pub stands_by: Option<Vec<SocketAddr>>,
    /// The region that it is to be in; None in a run of one group, and in the runs that regions
    /// are.
    pub region: Option<String>,
    /// Its number among all ranks of the job, where this run is one of several.
    pub of_job: Option<u32>,
    /// The rank has not come yet: the root has said this in its place ([`Hello::of_missing`]).
    pub missing: bool,
}

impl Hello {
    /// What this rank says. `towards_root` is the address of its connection to rank 0, where there
    /// is one; `part` is its place in a job of several runs, which says more than the environment
    /// does.
    ///
    /// # Errors
    /// When the configuration names an interface that has no address, or the system does not list
    /// the interfaces.
    pub(crate) fn of(
        config: &Config,
        host: &host::Host,
        towards_root: Option<IpAddr>,
        key_file: Option<&KeyFile>,
        part: Option<&PartOfJob>,
    ) -> Result<Self, String> {
        let own = |identity: &str| config.host.clone().unwrap_or_else(|| identity.to_owned());
        let interfaces = interfaces::interfaces().map_err(|error| error.to_string())?;
        let around = Surroundings {
            interfaces: interfaces.clone(),
            default_interface: interfaces::default_interface(),
            towards_root: towards_root.filter(|address| !address.is_loopback()),
            wish: Wish::stated(|name| std::env::var(name).ok()),
            network: format!("{} {}", host.boot_id, network_namespace()),
        };
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").into(),
            hostname: plain_name(&own(&host.hostname)).into_owned(),
            clock_identity: own(&host.boot_id),
            clock: ClockReading::now(&interfaces),
            machine: 0,
            network_identity: format!("{} {}", own(&host.boot_id), network_namespace()),
            shared_entries: config.shared_entries(),
            host_facts: json!({"host": host, "topology": Topology::detect()}).to_string(),
            launched: match part {
                Some(part) => part.launched.into_iter().collect(),
                None => Launched::stated(|name| std::env::var(name).ok()),
            },
            offer: Offer::of(config, &around)?,
            key_fingerprint: key_file.map(KeyFile::fingerprint),
            neighbors: Neighbors::of(config),
            stands_by: None,
            region: None,
            of_job: part.map(|part| part.rank),
            missing: false,
        })
    }
}

impl Hello {
    /// What stands for a rank that has not come when the run begins, in the words of the `root`: it
    /// is to be a node of its own, on a host that nobody knows, unless all are reached over
    /// loopback and so on one (`one_host`).
    pub(super) fn of_missing(rank: usize, root: &Self, one_host: bool) -> Self {
        let name = format!("rank {rank}, which has not joined");
        let identity = |of_root: &str| if one_host { of_root.to_owned() } else { name.clone() };
        let number = |launched: &Launched| {
            (launched.rank as usize == ROOT).then_some(Launched { rank: rank as u32, local_rank: None, ..*launched })
        };
        Self {
            clock_identity: identity(&root.clock_identity),
            network_identity: identity(&root.network_identity),
            machine: if one_host { root.machine } else { 0 },
            host_facts: "null".to_owned(),
            // Ranks that find each other by RANK have the launcher's numbers.
            launched: root.launched.iter().filter_map(number).collect(),
            neighbors: Neighbors::default(),
            stands_by: None,
            region: None,
            missing: true,
            hostname: name,
            ..root.clone()
        }
    }

    /// Whether it was reached over loopback alone, as far as its connections say.
    pub(super) fn is_on_loopback(&self) -> bool {
        !self.offer.candidates.iter().any(|candidate| candidate.towards_root)
    }

    /// Equal on ranks that share one system clock.
    pub(crate) fn one_clock(&self) -> (&str, u32) {
        (&self.clock_identity, self.machine)
    }
}

/// Names the network namespace: containers of one host share its clock, not its loopback.
fn network_namespace() -> String {
    std::fs::read_link("/proc/self/ns/net").map_or_else(|_| String::new(), |link| link.display().to_string())
}
