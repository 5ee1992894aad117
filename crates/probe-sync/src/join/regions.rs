//! The assignment of ranks to regions, agreed once by all ranks of a job before each region becomes
//! a separate run.
//!
//! `crate::regions` uses it instead of step 1 of the handshake, whose messages these are: if some
//! ranks name a region and others do not, all ranks return the same refusal. The first rank of each
//! region is its master; rank 0 of the job is the master of the first region, and its clock is the
//! global reference.

use std::collections::BTreeSet;

use probe_sync_collective::{Collective, Deadline, Rank, random_bytes};
use probe_sync_time::{RunId, System, Timestamp};
use serde::{Deserialize, Serialize};

use super::hello::Hello;
use super::launcher::Launched;
use super::part::PartOfJob;
use super::region_file::region_of;
use super::{negotiate, plan};
use crate::config::region_name;
use crate::store::RunDirectory;
use crate::{Config, Error};

/// The regions of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grouping {
    /// Id of the job.
    pub job: RunId,
    /// The regions, in the order of their first ranks.
    pub regions: Vec<Region>,
    /// True if all masters reach each other over loopback.
    pub masters_on_loopback: bool,
    /// Place in the launcher's job, by rank; empty if unknown.
    launched: Vec<Launched>,
    /// Start of the virtual clocks.
    start: Timestamp<System>,
}

/// One region of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Region {
    pub name: String,
    /// Its ranks in the job, in order; the first is its master.
    pub ranks: Vec<u32>,
    /// True if they reach each other over loopback.
    pub on_loopback: bool,
}

impl Grouping {
    /// Returns the region of a rank of the job, and the rank's place in it.
    pub fn place(&self, rank: Rank) -> Option<(usize, usize)> {
        let own = |region: &Region| region.ranks.iter().position(|other| *other as usize == rank);
        self.regions.iter().enumerate().find_map(|(region, one)| Some((region, own(one)?)))
    }

    /// Returns a rank's place in the job.
    pub fn part(&self, rank: Rank) -> PartOfJob {
        PartOfJob { rank: rank as u32, launched: self.launched.get(rank).copied(), start: self.start }
    }
}

/// Returns the region that a configuration assigns to `rank` of `size`.
///
/// # Errors
/// States what is wrong with the region file.
pub(crate) fn own_region(config: &Config, rank: Rank, size: usize) -> Result<Option<String>, String> {
    match &config.region_file {
        Some(file) => region_of(file, rank, size).map(Some),
        None => Ok(config.region.clone()),
    }
}

/// Settles which rank is in which region. `own` is this rank's hello, with its region, or why its
/// configuration is unusable. At the root, `claim` is called for the job's directory, which is
/// returned; `start` is the start of virtual clocks, by the root.
///
/// # Errors
/// [`Error::Refused`] on all ranks.
pub(crate) fn agree_on_regions(
    collective: &mut dyn Collective,
    config: Option<&Config>,
    own: &Result<Hello, String>,
    start: Timestamp<System>,
    claim: impl FnOnce() -> Result<RunDirectory, Error>,
    deadline: &Deadline,
) -> Result<(Grouping, Option<RunDirectory>), Error> {
    let (mut claimed, root) = (None, collective.root());
    let grouping = negotiate(collective, Some(own), deadline, |hellos: Vec<Option<Result<Hello, String>>>| {
        let all = hellos.into_iter().enumerate().filter_map(|(rank, hello)| Some((rank, hello?)));
        let mut all: Vec<Hello> = all
            .map(|(rank, hello)| hello.map_err(|reason| format!("rank {rank}: {reason}")))
            .collect::<Result<_, _>>()?;
        super::machines::tell_apart(&mut all);
        let of_root = |error: &dyn std::fmt::Display| format!("rank {root}: {error}");
        let job = RunId(u64::from_le_bytes(random_bytes().map_err(|error| of_root(&error))?));
        let virtual_clocks = config.is_some_and(|config| config.inject_skew.is_some());
        let grouping = group(&all, job, start, virtual_clocks)?;
        claimed = Some(claim().map_err(|error| of_root(&error))?);
        Ok(grouping)
    })?;
    Ok((grouping, claimed))
}

fn group(all: &[Hello], job: RunId, start: Timestamp<System>, virtual_clocks: bool) -> Result<Grouping, String> {
    plan::refuse_differences(all)?;
    let mut regions: Vec<Region> = Vec::new();
    for (hello, rank) in all.iter().zip(0..) {
        let Some(name) = &hello.region else { return Err(without_region(all, rank as usize)) };
        // It becomes a folder's name.
        region_name(name).map_err(|reason| format!("rank {rank}: {reason}"))?;
        match regions.iter_mut().find(|region| region.name == *name) {
            Some(region) => region.ranks.push(rank),
            None => regions.push(Region { name: name.clone(), ranks: vec![rank], on_loopback: false }),
        }
    }
    if let [only] = &regions[..] {
        return Err(format!(
            "all {} ranks are in region {}, so there are no regions to combine; omit the region",
            all.len(),
            only.name
        ));
    }
    // Two names that differ in their case alone are one folder on some file systems.
    let folders: BTreeSet<String> = regions.iter().map(|region| region.name.to_lowercase()).collect();
    if folders.len() < regions.len() {
        return Err("the names of two regions differ only in case; rename one".into());
    }
    let clocks: BTreeSet<(&str, u32)> = all.iter().map(Hello::one_clock).collect();
    if virtual_clocks && clocks.len() > 1 {
        return Err(format!(
            "inject_skew needs ranks that share one real clock, but these have {} different ones, so the truth would be unknown",
            clocks.len()
        ));
    }
    let on_loopback = |ranks: &[u32]| {
        ranks.windows(2).all(|pair| all[pair[0] as usize].network_identity == all[pair[1] as usize].network_identity)
    };
    let masters: Vec<u32> = regions.iter().map(|region| region.ranks[0]).collect();
    regions.iter_mut().for_each(|region| region.on_loopback = on_loopback(&region.ranks));
    Ok(Grouping { job, masters_on_loopback: on_loopback(&masters), launched: plan::launched(all), start, regions })
}

/// Returns why all ranks are refused if `rank` is in no region.
fn without_region(all: &[Hello], rank: Rank) -> String {
    let named = all.iter().enumerate().find_map(|(rank, hello)| Some((rank, hello.region.as_ref()?)));
    let other = named.map_or_else(String::new, |(rank, name)| format!(", but rank {rank} is in {name}"));
    format!(
        "rank {rank} ({}) is in no region{other}: give a region to all ranks, with --region, PROBE_SYNC_REGION or --region-file, or to none",
        all[rank].hostname
    )
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::hellos;
    use super::*;

    fn grouped(of_ranks: &[(&str, Option<&str>)], virtual_clocks: bool) -> Result<Grouping, String> {
        let mut all = hellos(&of_ranks.iter().map(|(host, _)| *host).collect::<Vec<_>>());
        all.iter_mut().zip(of_ranks).for_each(|(hello, (_, region))| hello.region = region.map(str::to_owned));
        group(&all, RunId(1), Timestamp::from_ns(7), virtual_clocks)
    }

    #[test]
    fn regions_stand_in_the_order_of_their_first_ranks() {
        let grouping = grouped(&[("h", Some("b")), ("h", Some("a")), ("h", Some("b")), ("i", Some("a"))], false)
            .expect("two regions");
        let found: Vec<_> = grouping
            .regions
            .iter()
            .map(|region| (region.name.as_str(), &region.ranks[..], region.on_loopback))
            .collect();
        assert_eq!(found, [("b", &[0, 2][..], true), ("a", &[1, 3][..], false)]);
        assert!(grouping.masters_on_loopback);
        assert_eq!((grouping.place(2), grouping.place(1), grouping.place(4)), (Some((0, 1)), Some((1, 0)), None));
        assert_eq!(grouping.part(3), PartOfJob { rank: 3, launched: None, start: Timestamp::from_ns(7) });
    }

    #[test]
    fn the_ranks_of_a_region_are_those_of_the_whole_job() {
        // One machine: the job numbers its own ranks, and a region does not begin anew.
        let grouping = grouped(&[("h", Some("a")), ("h", Some("b")), ("h", Some("b"))], false).expect("two regions");
        let mut of_b = hellos(&["h", "h"]);
        for (hello, rank) in of_b.iter_mut().zip(1..) {
            let part = grouping.part(rank);
            (hello.launched, hello.of_job) = (part.launched.into_iter().collect(), Some(part.rank));
        }
        let plan = plan::tests::plan_of(&of_b);
        let ranks = plan::ranks(&plan, &of_b);
        assert_eq!(
            ranks.iter().map(|rank| (rank.rank, rank.world_size, rank.node_id.0)).collect::<Vec<_>>(),
            [(1, 3, 0), (2, 3, 1)]
        );
        assert_eq!(plan.clock_numbers, [1, 2]);
        // Where the job knows no numbers, its region invents none.
        of_b.iter_mut().for_each(|hello| hello.launched.clear());
        assert!(plan::ranks(&plan, &of_b).is_empty());
    }

    #[test]
    fn what_makes_no_regions_is_refused() {
        let check = |of_ranks: &[(&str, Option<&str>)], virtual_clocks, part: &str| {
            let reason = grouped(of_ranks, virtual_clocks).expect_err("refused");
            assert!(reason.contains(part), "{part} is missing in {reason}");
        };
        check(&[("h", Some("a")), ("i", None)], false, "rank 1 (i) is in no region, but rank 0 is in a");
        check(&[("h", None), ("i", Some("b"))], false, "rank 0 (h) is in no region, but rank 1 is in b");
        check(&[("h", Some("a")), ("i", Some("a"))], false, "all 2 ranks are in region a");
        check(&[("h", Some("a")), ("i", Some("A"))], false, "differ only in case");
        check(&[("h", Some("a")), ("i", Some("b"))], true, "2 different ones");
    }
}
