//! Which rank of its launcher's job a rank is.
//!
//! Place in the flow: every rank says it in its hello; `plan` makes the map from these ranks to nodes. Ranks of a training job are
//! not nodes: eight of a host share one.
//!
//! What it does not do: start or number anything.

use serde::{Deserialize, Serialize};

/// A rank's place in the job of its launcher, as its environment states it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launched {
    /// The rank.
    pub rank: u32,
    /// Ranks in the job.
    pub world_size: u32,
    /// Its number among the ranks of its host.
    pub local_rank: Option<u32>,
}

impl Launched {
    /// What the variables of torchrun, Open MPI or Slurm state, in this order: a training script under mpirun sets those of
    /// torchrun itself. None where no launcher states rank and size.
    pub(super) fn stated(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
        LAUNCHERS.iter().find_map(|[rank, world_size, local_rank]| {
            let (rank, world_size) = (number(rank)?, number(world_size)?);
            (rank < world_size).then(|| Self { rank, world_size, local_rank: number(local_rank) })
        })
    }
}

/// Rank, number of ranks, and number on the host.
const LAUNCHERS: [[&str; 3]; 3] = [
    ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check_stated(variables: &[(&str, &str)], expected: Option<(u32, u32, Option<u32>)>) {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let expected = expected.map(|(rank, world_size, local_rank)| Launched { rank, world_size, local_rank });
        assert_eq!(Launched::stated(variable), expected, "{variables:?}");
    }

    #[test]
    fn launchers_are_asked_in_order() {
        check_stated(&[], None);
        check_stated(&[("RANK", "9"), ("WORLD_SIZE", " 16 "), ("LOCAL_RANK", "1")], Some((9, 16, Some(1))));
        let mpi = [("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")];
        check_stated(&mpi, Some((3, 4, Some(0))));
        check_stated(&[&mpi[..], &[("RANK", "1"), ("WORLD_SIZE", "2")]].concat(), Some((1, 2, None)));
        check_stated(&[&mpi[..], &[("RANK", "1")]].concat(), Some((3, 4, Some(0))));
        check_stated(&[&mpi[..], &[("SLURM_PROCID", "7"), ("SLURM_NTASKS", "8")]].concat(), Some((3, 4, Some(0))));
        let slurm = [("SLURM_PROCID", "7"), ("SLURM_NTASKS", "8"), ("SLURM_LOCALID", "2")];
        check_stated(&slurm, Some((7, 8, Some(2))));
        for nonsense in [[("RANK", "2"), ("WORLD_SIZE", "2")], [("RANK", "-1"), ("WORLD_SIZE", "2")]] {
            check_stated(&nonsense, None);
        }
    }
}
