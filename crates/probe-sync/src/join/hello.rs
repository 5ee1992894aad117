//! A rank's first message about itself.
//!
//! It is step 1 of the handshake.

use std::net::{IpAddr, SocketAddr};

use probe_sync_collective::ROOT;
use probe_sync_lines::{plain_name, read_plain_name};
use probe_sync_sys::topology::Topology;
use probe_sync_sys::{host, interfaces};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::clock_reading::ClockReading;
use super::key_file::KeyFile;
use super::launcher::Launched;
use super::neighbors::Neighbors;

use super::offer::{Offer, Surroundings};
use super::part::PartOfJob;
use super::wish::Wish;
use crate::Config;

/// A rank's first message about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the crate.
    pub version: String,
    /// Host name, for display.
    #[serde(deserialize_with = "read_plain_name")]
    pub hostname: String,
    /// Equal on ranks that share one system clock (the kernel's boot id, unless configured).
    pub clock_identity: String,
    /// Readings of its clocks, which distinguish machines with the same boot id.
    pub clock: ClockReading,
    /// Index of its machine among those of this `clock_identity`; set by the root
    /// ([`super::machines`]).
    pub machine: u32,
    /// Equal on ranks that can reach each other over loopback (boot id and network namespace).
    pub network_identity: String,
    /// Settings that must agree.
    pub shared_entries: Vec<(String, String)>,
    /// Description of the host for `run.json`, as JSON text.
    pub host_facts: String,
    /// Its places in the jobs of launchers, as stated by the environment.
    pub launched: Vec<Launched>,
    /// Addresses at which it could be probed.
    pub offer: Offer,
    /// Equal on ranks with the same key file; `None` without one.
    pub key_fingerprint: Option<[u8; 16]>,
    /// Its edges, if it names them.
    pub neighbors: Neighbors,
    /// Addresses at which others reach it if it takes over as master; `None` if it cannot.
    pub stands_by: Option<Vec<SocketAddr>>,
    /// Its region; `None` in a run of one group, and in the runs of the regions themselves.
    pub region: Option<String>,
    /// Number among all ranks of the job, if this run is one of several.
    pub of_job: Option<u32>,
    /// True if the rank has not joined yet and the root created this hello ([`Hello::of_missing`]).
    pub missing: bool,
}

impl Hello {
    /// Creates this rank's hello. `towards_root` is the local address of its connection to rank 0,
    /// if there is one; `part` is its place in a job of several runs, which is more specific than
    /// the environment.
    ///
    /// # Errors
    /// Returns an error if the configuration names an interface without an address, or the system
    /// does not list the interfaces.
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
    /// Creates the root's substitute for the hello of a rank that has not joined when the run
    /// begins: it will be a node of its own, on an unknown host, unless all ranks are reached over
    /// loopback and are thus on one host (`one_host`).
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

    /// Returns true if all its connections are over loopback.
    pub(super) fn is_on_loopback(&self) -> bool {
        !self.offer.candidates.iter().any(|candidate| candidate.towards_root)
    }

    /// Returns a key that is equal on ranks that share one system clock.
    pub(crate) fn one_clock(&self) -> (&str, u32) {
        (&self.clock_identity, self.machine)
    }
}

/// Returns the network namespace; containers of one host share its clock but not its loopback.
fn network_namespace() -> String {
    std::fs::read_link("/proc/self/ns/net").map_or_else(|_| String::new(), |link| link.display().to_string())
}
