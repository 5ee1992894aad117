//! A launcher's information about the processes it has started: their number and this process's
//! place among them.
//!
//! `local::connect` checks this when the process finds itself alone. An MPI that cannot talk to the
//! launcher does not fail: every process initialises as a job of one rank, and would measure
//! nothing with exit status 0. Only variables of a job step count, those of the nearest launcher
//! first: mpirun's daemons are themselves a Slurm step, and the ranks inherit that step's
//! variables. The size of an allocation (`SLURM_NTASKS` in a batch script, `PBS_NP`,
//! `LSB_DJOB_NUMPROC`) tells how many processes could be started, not how many were.

use std::fmt;

/// Several processes started by one launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    launcher: &'static str,
    size: u64,
    rank: Option<String>,
    /// MPI was initialised and has one rank.
    mpi: bool,
}

impl Started {
    /// Determines this from the environment of the process; `None` if no launcher states that it
    /// has started more than one process. `mpi` tells whether MPI was initialised.
    pub fn find(mpi: bool) -> Option<Self> {
        Self::of(|name| std::env::var(name).ok(), mpi)
    }

    fn of(variable: impl Fn(&str) -> Option<String>, mpi: bool) -> Option<Self> {
        let said = |name: &str| variable(name).and_then(|text| text.trim().parse::<u64>().ok());
        let (launcher, size, rank) =
            SIZES.iter().find_map(|(launcher, size, rank)| Some((*launcher, said(size)?, variable(rank))))?;
        // srun passes PMI's variables too.
        let launcher = if launcher == PMI && said("SLURM_STEP_NUM_TASKS") == Some(size) { SRUN } else { launcher };
        (size > 1).then_some(Self { launcher, size, rank, mpi })
    }

    /// Whether this is the process that prints for all.
    pub fn speaks(&self) -> bool {
        self.rank.as_deref().is_none_or(|rank| rank == "0")
    }
}

impl fmt::Display for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { launcher, size, .. } = self;
        if self.mpi {
            write!(
                f,
                "{launcher} started {size} processes, but MPI sees each of them as a separate job: the launcher and this MPI do not match. "
            )?;
        } else {
            write!(f, "{launcher} started {size} processes but did not assign them ranks. ")?;
        }
        let pmix = if *launcher == SRUN { "`srun --mpi=pmix` if `srun --mpi=list` lists it, " } else { "" };
        write!(
            f,
            "Start them with {pmix}`mpirun -n {size} probe_sync` of the MPI that this binary was built with, or over TCP, with RANK, WORLD_SIZE={size}, \
             MASTER_ADDR and MASTER_PORT set for each"
        )?;
        if *launcher == SRUN { write!(f, " (RANK is $SLURM_PROCID)") } else { Ok(()) }
    }
}

impl std::error::Error for Started {}

const SRUN: &str = "srun";
const PMI: &str = "the launcher";

/// Launchers, and the variables in which they state the number of processes and the index of this
/// one; nearest first.
const SIZES: [(&str, &str, &str); 5] = [
    ("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    (PMI, "PMI_SIZE", "PMI_RANK"),
    ("jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"),
    ("flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
    (SRUN, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(set: &[(&str, &str)], expected: Option<(&str, u64)>) {
        let variable = |asked: &str| set.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned());
        let found = Started::of(variable, true);
        assert_eq!(found.as_ref().map(|started| (started.launcher, started.size)), expected, "{set:?}");
    }

    #[test]
    fn the_nearest_launchers_step_counts_and_no_allocation() {
        check(&[], None);
        let step = [("SLURM_NTASKS", "4"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "2")];
        check(&step, Some(("srun", 4)));
        check(&[("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_NTASKS", "1")], None);
        check(&[("SLURM_NTASKS", "16"), ("PBS_NP", "16"), ("LSB_DJOB_NUMPROC", "16")], None);
        check(&[("PMI_SIZE", "4"), ("SLURM_STEP_NUM_TASKS", "4")], Some(("srun", 4)));
        // mpirun within an allocation: its daemons are a step of two, or it starts one rank.
        check(&[("OMPI_COMM_WORLD_SIZE", "8"), ("SLURM_STEP_NUM_TASKS", "2")], Some(("mpirun", 8)));
        check(&[("OMPI_COMM_WORLD_SIZE", "1"), ("SLURM_STEP_NUM_TASKS", "2")], None);
        check(&[("PMI_SIZE", "1"), ("SLURM_STEP_NUM_TASKS", "2")], None);
        check(&[("FLUX_JOB_SIZE", "3")], Some(("flux", 3)));
        check(&[("JSM_NAMESPACE_SIZE", "6")], Some(("jsrun", 6)));
        check(&[("SLURM_STEP_NUM_TASKS", "many")], None);
    }

    #[test]
    fn one_of_them_speaks() {
        let of = |rank: Option<&str>| Started { launcher: SRUN, size: 4, rank: rank.map(str::to_owned), mpi: true };
        assert!(of(Some("0")).speaks() && of(None).speaks() && !of(Some("3")).speaks());
        let text = of(None).to_string();
        for part in ["srun started 4", "--mpi=pmix", "mpirun -n 4", "MASTER_ADDR"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
