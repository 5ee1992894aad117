//! A rank's rank in its launchers' jobs.
//!
//! Every rank states it in its hello, and `plan` maps these ranks to nodes. Ranks of a training job
//! are not nodes: eight on one host share one node.

use probe_sync_lines::Launcher;
use serde::{Deserialize, Serialize};

/// A rank's place in the job of a launcher, as stated by its environment.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launched {
    /// The launcher.
    pub launcher: Launcher,
    /// The rank.
    pub rank: u32,
    /// Number of ranks in the job.
    pub world_size: u32,
    /// Number among the ranks of its host.
    pub local_rank: Option<u32>,
}

impl Launched {
    /// Returns what the variables of torchrun, Open MPI and Slurm state, in this order, because
    /// programs of torch.distributed read those of torchrun, which a job under mpirun or Slurm
    /// often sets itself. Empty if none states rank and size. A process started with `--local` has
    /// torchrun's variables from there, which do not count as a launcher's.
    pub(super) fn stated(variable: impl Fn(&str) -> Option<String>) -> Vec<Self> {
        let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
        let of_run = variable(STARTED_BY_THE_RUN).is_some();
        let launchers = LAUNCHERS.iter().filter(|(launcher, _)| !(of_run && *launcher == Launcher::Torchrun));
        launchers
            .filter_map(|(launcher, [rank, world_size, local_rank])| {
                let (rank, world_size) = (number(rank)?, number(world_size)?);
                let local_rank = number(local_rank);
                (rank < world_size).then_some(Self { launcher: *launcher, rank, world_size, local_rank })
            })
            .collect()
    }
}

/// Variables for the rank, the number of ranks, and the number on the host.
const LAUNCHERS: [(Launcher, [&str; 3]); 3] = [
    (Launcher::Torchrun, ["RANK", "WORLD_SIZE", "LOCAL_RANK"]),
    (Launcher::OpenMpi, ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"]),
    (Launcher::Slurm, ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"]),
];
/// Variable that `--local` sets for the processes that it starts.
const STARTED_BY_THE_RUN: &str = "PROBE_SYNC_PARENT";

#[cfg(test)]
mod tests {
    use super::*;

    /// Launchers, each with rank, size and number on the host.
    type Stated<'a> = &'a [(Launcher, u32, u32, Option<u32>)];

    fn check_stated(variables: &[(&str, &str)], expected: Stated<'_>) {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let found: Vec<_> = Launched::stated(variable)
            .into_iter()
            .map(|found| (found.launcher, found.rank, found.world_size, found.local_rank))
            .collect();
        assert_eq!(found, expected, "{variables:?}");
    }

    #[test]
    fn every_launcher_is_asked_and_named() {
        use Launcher::{OpenMpi, Slurm, Torchrun};
        check_stated(&[], &[]);
        let torch = [("RANK", "9"), ("WORLD_SIZE", " 16 "), ("LOCAL_RANK", "1")];
        check_stated(&torch, &[(Torchrun, 9, 16, Some(1))]);
        let mpi = [("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")];
        check_stated(&mpi, &[(OpenMpi, 3, 4, Some(0))]);
        // A job under mpirun that sets torchrun's variables is numbered by both.
        let both = [&mpi[..], &[("RANK", "1"), ("WORLD_SIZE", "2")]].concat();
        check_stated(&both, &[(Torchrun, 1, 2, None), (OpenMpi, 3, 4, Some(0))]);
        check_stated(&[&mpi[..], &[("RANK", "1")]].concat(), &[(OpenMpi, 3, 4, Some(0))]);
        let slurm = [("SLURM_PROCID", "7"), ("SLURM_NTASKS", "8"), ("SLURM_LOCALID", "2")];
        check_stated(&[&slurm[..], &mpi].concat(), &[(OpenMpi, 3, 4, Some(0)), (Slurm, 7, 8, Some(2))]);
        check_stated(&slurm, &[(Slurm, 7, 8, Some(2))]);
        for nonsense in [[("RANK", "2"), ("WORLD_SIZE", "2")], [("RANK", "-1"), ("WORLD_SIZE", "2")]] {
            check_stated(&nonsense, &[]);
        }
        // The processes of --local have no launcher.
        check_stated(&[&torch[..], &[("PROBE_SYNC_PARENT", "77")]].concat(), &[]);
        check_stated(&[&slurm[..], &[("PROBE_SYNC_PARENT", "77")]].concat(), &[(Slurm, 7, 8, Some(2))]);
    }
}
