//! A rank's part of a job of regions: its region's run and, on a master, also the run among the
//! masters.
//!
//! A rank that is not a master runs only its region. A master starts the masters' run first, waits
//! until that measures, and runs its region on its own thread. It then sends its files to rank 0 if
//! rank 0 does not see them, reports how its region ended and waits for the end of the masters'
//! run. Then rank 0 composes (`whole`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration as StdDuration;

use probe_sync_collective::{Collective, FileSender};

use super::ends::{RegionEnd, Standing, Watch};
use super::groups::{AmongMasters, REGIONS, Regions};
use super::masters::{self, MastersRun};
use super::whole::{self, Ends, RegionsReport, files_of_region};
use crate::clock::Timeline;
use crate::report::RunReport;
use crate::round::request::Request;
use crate::session::{self, Context, ControlSocket, FilesToRoot, Observer, Served};
use crate::{Config, Error};

/// Results of a master's two runs.
struct Ended {
    /// Reports of its region's run and of the masters'.
    reports: [Option<RunReport>; 2],
    /// Ends of the regions, as far as this master was told.
    regions: Vec<Option<RegionEnd>>,
}

impl Regions {
    /// Measures until the job ends. When one region's run ends normally (its time is over, or it is
    /// stopped), all do; the masters' run ends last, and rank 0 puts all on one timeline. Returns
    /// the report at rank 0. `observer` is notified about rank 0's region.
    ///
    /// The stop flag of the context is raised if another rank ends the job.
    ///
    /// # Errors
    /// The first error of this rank's runs; the results of finished rounds are on disk. At rank 0
    /// also those of [`crate::solve::compose_runs`].
    pub fn run(mut self, observer: &mut dyn Observer) -> Result<Option<RegionsReport>, Error> {
        let config = self.config_of_region();
        let mut context = Context {
            part: Some(self.grouping.part(self.rank)),
            towards_root: Some(self.own.local_ip()),
            timeline: self.timeline(),
            ..self.context.clone()
        };
        let Some(among) = self.among_masters.take() else {
            self.region_run(config, &context, &mut Quiet)?;
            return Ok(None);
        };
        context.ends_with_lost_rank = false;
        let Ended { reports, regions } = self.beside_masters(among, config, &context, observer)?;
        // Rank 0 has it.
        let ends = Ends { regions: &regions, killed_soon: self.killed_soon };
        let compose = |directory| whole::compose(&self.config, &self.grouping, &directory, &ends, reports);
        self.directory.take().map(compose).transpose()
    }

    /// Runs its region's run and the masters' side by side, at a master.
    fn beside_masters(
        &mut self,
        AmongMasters { group, files }: AmongMasters,
        config: Config,
        context: &Context,
        observer: &mut dyn Observer,
    ) -> Result<Ended, Error> {
        let (standing, stop_masters) = (Arc::<Standing>::default(), Arc::<AtomicBool>::default());
        let of_masters = Context {
            stop: Arc::clone(&stop_masters),
            towards_root: Some(group.local_ip()),
            part: context.part.clone(),
            ..Context::default()
        };
        let notes = of_masters.notes.clone();
        let kept_notes = notes.clone();
        let masters = MastersRun::start(&self.config, group, of_masters, (&standing, context.timeline.clone()))?;
        if !masters.has_begun() {
            let error = masters.join().err();
            let error =
                error.unwrap_or_else(|| Error::SessionThread { reason: "the run between the masters ended".into() });
            self.own.abort(&error.to_string());
            return Err(error);
        }
        let place = (self.region, self.grouping.regions.len());
        let watch = Watch::new(notes, &standing, [&context.stop, &stop_masters], place, self.killed_soon);
        let cannot = |error| Error::SessionThread { reason: format!("cannot start: {error}") };
        let watch = std::thread::Builder::new().name("regions".into()).spawn(move || watch.run()).map_err(cannot)?;
        let control = (self.rank == 0)
            .then(|| ControlSocket::open(&self.config.out, Served::restricted(context.requests.clone(), only_the_end)))
            .flatten();
        let (leads, mut quiet) = (self.rank == 0, Quiet);
        let result = self.region_run(config, context, if leads { observer } else { &mut quiet });
        drop(control);
        if let Err(error) = &result {
            tracing::error!("the run of region {} ended: {error}; the other regions continue", self.region());
        }
        let brought = result.is_ok() && self.bring(files);
        standing.region_ended(RegionEnd { orderly: result.is_ok(), brought });
        let masters = masters.join();
        standing.over();
        let ended = watch
            .join()
            .map_err(|_| Error::SessionThread { reason: "the thread that watches the regions panicked".into() })?;
        if self.rank != 0 && kept_notes.leads() {
            tracing::warn!("rank 0 was lost, so the regions were not put on one timeline: {}", self.how_to_compose());
        }
        Ok(Ended { reports: [result?, masters?], regions: ended })
    }

    fn region_run(
        &mut self,
        config: Config,
        context: &Context,
        observer: &mut dyn Observer,
    ) -> Result<Option<RunReport>, Error> {
        // Its messages count the ranks of the region from 0.
        let span = tracing::info_span!("region", name = self.region());
        let result = span.in_scope(|| session::run(config, &mut self.own, context, observer));
        if let Err(error) = &result
            && !matches!(error, Error::Refused { .. })
        {
            self.own.abort(&error.to_string());
        }
        result
    }

    /// Sends the region's offsets and pairs to rank 0, if that does not see them; returns true if
    /// they are there then.
    fn bring(&self, files: FileSender) -> bool {
        let (out, job) = (self.config.out.clone(), self.grouping.job);
        let to_root = FilesToRoot::new(files, out, job, Arc::default());
        if self.rank == 0 || to_root.sees_root() {
            return false;
        }
        let folder = self.folder_of_region();
        let name = |file: &str| format!("{REGIONS}/{}/{file}", self.region());
        let send = |file: &String| to_root.send(&folder.join(file), &name(file), FILES_LIMIT);
        match files_of_region(&folder).iter().try_for_each(send) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(
                    "region {}: {error}; use `probe_sync compose` to put it on one timeline with the others",
                    self.region()
                );
                false
            }
        }
    }

    /// Returns the timeline that the region's rounds use, at a master.
    fn timeline(&self) -> Timeline {
        let of_master = || Timeline::of_master(self.config.max_wander_ppm);
        self.among_masters.as_ref().map_or_else(Timeline::default, |_| of_master())
    }

    /// Describes how to do by hand what rank 0 would have done.
    fn how_to_compose(&self) -> String {
        let (masters, out) = (masters::directory(&self.config.out), self.config.out.display());
        let whole = self.grouping.regions.iter().zip(0..).map(|(one, place)| {
            let name = &one.name;
            format!(" --region {name}={out}/{REGIONS}/{name} --master {name}={place}")
        });
        format!(
            "run `probe_sync solve --windows {}/windows/*.jsonl --out masters.jsonl`, then `probe_sync compose --masters \
            masters.jsonl{} --out offsets.jsonl`; the region of rank 0 also needs `probe_sync solve`",
            masters.display(),
            whole.collect::<String>()
        )
    }

    fn config_of_region(&self) -> Config {
        let metrics_listen = self.config.metrics_listen.filter(|_| self.rank == 0);
        let region = Some(self.region().to_owned());
        Config { out: self.folder_of_region(), region, region_file: None, metrics_listen, ..self.config.clone() }
    }

    fn folder_of_region(&self) -> PathBuf {
        self.config.out.join(REGIONS).join(self.region())
    }
}

/// Permits only requests to stop at the socket in the job's directory; all others concern one
/// region's run.
fn only_the_end(request: &Request) -> Result<(), String> {
    match request {
        Request::Stop => Ok(()),
        other => Err(format!(
            "this job has several regions and accepts only stop here: give {other} in the directory of one region, {REGIONS}/NAME"
        )),
    }
}

/// An observer that ignores everything, because another process reports.
struct Quiet;

impl Observer for Quiet {
    fn started(&mut self, _: &session::Started<'_>) {}
    fn round(&mut self, _: &probe_sync_lines::Round, _: StdDuration) {}
}

/// Longest transfer of a region's files; smoothed offsets of a long run of many nodes are some 100
/// MB.
const FILES_LIMIT: StdDuration = StdDuration::from_secs(120);
