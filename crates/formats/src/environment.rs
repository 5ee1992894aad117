//! The rank of a process in its job, from the environment that the profiler stored.
//!
//! rocprofv3 stores the process's variables as one JSON object, without those whose value contains
//! a semicolon; rocprof-sys adds the results of MPI_Init, as numbers. These numbers take
//! precedence, because launchers' variables are inherited: each rank of an `mpirun` inside a batch
//! step of Slurm has `SLURM_PROCID=0`. torch.distributed and the launchers follow. Numbers of
//! launchers that runs of `probe_sync` do not record are never compared with others.

use probe_sync_lines::Launcher;
use serde_json::{Map, Value};

/// Statements of an environment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) rank: Option<u32>,
    pub(crate) world_size: Option<u32>,
    /// The launcher that assigned the numbers; `None` for launchers that runs do not record.
    pub(crate) launcher: Option<Launcher>,
    /// Worth telling the user.
    pub(crate) notes: Vec<String>,
}

impl Environment {
    /// Reads the JSON object, as bytes of the database.
    pub(crate) fn read(json: &[u8]) -> Environment {
        let note = |text: String| Environment { notes: vec![text], ..Environment::default() };
        match serde_json::from_slice::<Value>(json) {
            Ok(Value::Object(variables)) => Environment::of(&variables),
            Ok(_) => note("the stored environment is not a JSON object; ignored it".to_owned()),
            Err(error) => note(format!("cannot parse the stored environment ({error}); ignored it")),
        }
    }

    /// Reads variables, as texts or numbers.
    pub(crate) fn of(variables: &Map<String, Value>) -> Environment {
        let number = |name: &&str| -> Option<u32> {
            match variables.get(*name)? {
                Value::String(text) => text.trim().parse().ok(),
                other => other.as_u64().and_then(|number| u32::try_from(number).ok()),
            }
        };
        let mut found = Environment::default();
        let mut first: Option<(&str, u32, Option<u32>)> = None;
        let of_launchers = || {
            let known = KNOWN.iter().filter(|of| of.rank != OF_MPI);
            known.filter_map(|of| Some((number(&of.rank), of.sizes.iter().find_map(number)?)))
        };
        for Variables { launcher, rank: name, sizes } in &KNOWN {
            let Some(rank) = number(name) else { continue };
            let size = sizes.iter().find_map(number);
            if size.is_some_and(|size| rank >= size) {
                found.notes.push(format!(
                    "ignored {name} in the environment, which gives rank {rank} of {} ranks",
                    size.unwrap_or(0)
                ));
                continue;
            }
            let is_alone = match (rank, size) {
                (_, Some(1)) => of_launchers().any(|(_, size)| size > 1),
                // Where each process initialised MPI alone, each has rank 0.
                (0, None) => of_launchers().any(|(rank, size)| rank.is_some_and(|rank| (1..size).contains(&rank))),
                _ => false,
            };
            if *name == OF_MPI && is_alone {
                let told = "MPI was initialised by this process alone, but its launcher started several processes; using the launcher's rank";
                found.notes.push(told.to_owned());
                continue;
            }
            match first {
                None => {
                    first = Some((name, rank, size));
                    (found.rank, found.world_size, found.launcher) = (Some(rank), size, *launcher);
                }
                Some((one, believed, of)) if believed != rank || of.zip(size).is_some_and(|(of, size)| of != size) => {
                    let of = |size: Option<u32>| size.map_or_else(String::new, |size| format!(" of {size}"));
                    found.notes.push(format!(
                        "the environment gives {one} {believed}{} and {name} {rank}{}; using {one}",
                        of(found.world_size),
                        of(size)
                    ));
                }
                // A number that a batch step hands down to all.
                Some((OF_MPI, 0, _)) if size.is_none() => {}
                Some(_) => {
                    // A library's number that is the launcher's too.
                    found.launcher = found.launcher.or(*launcher);
                    found.world_size = found.world_size.or(size);
                }
            }
        }
        found
    }
}

/// The variables of one launcher.
struct Variables {
    launcher: Option<Launcher>,
    rank: &'static str,
    /// Variables for the number of ranks, in the order in which they are tried.
    sizes: &'static [&'static str],
}

/// In order of precedence. `SLURM_NTASKS` may be that of the allocation, so the step's number comes
/// first.
const KNOWN: [Variables; 10] = [
    Variables { launcher: None, rank: OF_MPI, sizes: &["MPI_COMM_WORLD_SIZE"] },
    Variables { launcher: Some(Launcher::Torchrun), rank: "RANK", sizes: &["WORLD_SIZE"] },
    Variables { launcher: Some(Launcher::OpenMpi), rank: "OMPI_COMM_WORLD_RANK", sizes: &["OMPI_COMM_WORLD_SIZE"] },
    Variables { launcher: None, rank: "MV2_COMM_WORLD_RANK", sizes: &["MV2_COMM_WORLD_SIZE"] },
    Variables {
        launcher: None,
        rank: "PMIX_RANK",
        sizes: &["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"],
    },
    Variables { launcher: None, rank: "PMI_RANK", sizes: &["PMI_SIZE"] },
    Variables { launcher: None, rank: "FLUX_TASK_RANK", sizes: &["FLUX_JOB_SIZE"] },
    Variables { launcher: None, rank: "PALS_RANKID", sizes: &["PALS_SIZE", "PMI_SIZE"] },
    Variables { launcher: None, rank: "MPI_RANK", sizes: &["MPI_SIZE"] },
    Variables {
        launcher: Some(Launcher::Slurm),
        rank: "SLURM_PROCID",
        sizes: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
    },
];
/// Variable set by MPI_Init.
const OF_MPI: &str = "MPI_COMM_WORLD_RANK";

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: Option<(Option<Launcher>, u32, Option<u32>)>, notes: &[&str]) {
        let found = Environment::read(json.as_bytes());
        let rank = found.rank.map(|rank| (found.launcher, rank, found.world_size));
        assert_eq!(rank, expected, "{json}");
        assert_eq!(found.notes.len(), notes.len(), "{:?}", found.notes);
        assert!(found.notes.iter().zip(notes).all(|(note, part)| note.contains(part)), "{:?}", found.notes);
    }

    #[test]
    fn every_launcher_states_its_rank() {
        use Launcher::{OpenMpi, Slurm, Torchrun};
        check(r#"{"RANK": "3", "WORLD_SIZE": "8"}"#, Some((Some(Torchrun), 3, Some(8))), &[]);
        check(r#"{"RANK": 3, "WORLD_SIZE": 8}"#, Some((Some(Torchrun), 3, Some(8))), &[]);
        check(r#"{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}"#, Some((Some(OpenMpi), 1, Some(2))), &[]);
        check(r#"{"PMIX_RANK": "1"}"#, Some((None, 1, None)), &[]);
        check(r#"{"PMI_RANK": "5", "PMI_SIZE": "6"}"#, Some((None, 5, Some(6))), &[]);
        let slurm = r#"{"SLURM_PROCID": "5", "SLURM_NTASKS": "64", "SLURM_STEP_NUM_TASKS": "6"}"#;
        check(slurm, Some((Some(Slurm), 5, Some(6))), &[]);
        check(r#"{"SLURM_PROCID": "5", "SLURM_NTASKS": "64"}"#, Some((Some(Slurm), 5, Some(64))), &[]);
        let library = r#"{"PMIX_RANK": "5", "SLURM_PROCID": "5", "SLURM_NTASKS": "64"}"#;
        check(library, Some((Some(Slurm), 5, Some(64))), &[]);
        let batch = r#"{"PMI_RANK": "5", "PMI_SIZE": "6", "SLURM_PROCID": "0", "SLURM_NTASKS": "6"}"#;
        check(batch, Some((None, 5, Some(6))), &["PMI_RANK 5 of 6 and SLURM_PROCID 0 of 6; using PMI_RANK"]);
        check(r#"{"RANK": "x", "PATH": "/bin"}"#, None, &[]);
        check("{}", None, &[]);
    }

    #[test]
    fn torch_is_believed_first_and_what_differs_is_told() {
        use Launcher::{OpenMpi, Torchrun};
        let both = r#"{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "RANK": "3", "WORLD_SIZE": "8"}"#;
        check(both, Some((Some(Torchrun), 3, Some(8))), &["RANK 3 of 8 and OMPI_COMM_WORLD_RANK 1 of 2; using RANK"]);
        let agreed = r#"{"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "RANK": "3", "WORLD_SIZE": "8"}"#;
        check(agreed, Some((Some(Torchrun), 3, Some(8))), &[]);
        let impossible =
            r#"{"RANK": "8", "WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}"#;
        check(impossible, Some((Some(OpenMpi), 1, Some(2))), &["which gives rank 8 of 8 ranks"]);
    }

    #[test]
    fn mpi_is_believed_before_launchers() {
        use Launcher::{OpenMpi, Slurm, Torchrun};
        let of_rank =
            |rank: u32| format!(r#"{{"SLURM_PROCID": "0", "MPI_COMM_WORLD_RANK": {rank}, "MPI_COMM_WORLD_SIZE": 2}}"#);
        check(&of_rank(0), Some((None, 0, Some(2))), &[]);
        check(
            &of_rank(1),
            Some((None, 1, Some(2))),
            &["MPI_COMM_WORLD_RANK 1 of 2 and SLURM_PROCID 0; using MPI_COMM_WORLD_RANK"],
        );
        check(r#"{"MPI_COMM_WORLD_RANK": "1", "MPI_COMM_WORLD_SIZE": "2"}"#, Some((None, 1, Some(2))), &[]);
        let srun = r#"{"MPI_COMM_WORLD_RANK": 3, "MPI_COMM_WORLD_SIZE": 4, "SLURM_PROCID": "3", "SLURM_NTASKS": "4"}"#;
        check(srun, Some((Some(Slurm), 3, Some(4))), &[]);
        let open = r#"{"MPI_COMM_WORLD_RANK": 0, "MPI_COMM_WORLD_SIZE": 4, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}"#;
        check(open, Some((Some(OpenMpi), 0, Some(4))), &[]);
        let alone = r#"{"MPI_COMM_WORLD_RANK": 0, "MPI_COMM_WORLD_SIZE": 1, "RANK": "3", "WORLD_SIZE": "8"}"#;
        check(alone, Some((Some(Torchrun), 3, Some(8))), &["MPI was initialised by this process alone"]);
        let unsized_rank = |rank: u32| format!(r#"{{"MPI_COMM_WORLD_RANK": {rank}, "RANK": "3", "WORLD_SIZE": "8"}}"#);
        check(&unsized_rank(0), Some((Some(Torchrun), 3, Some(8))), &["MPI was initialised by this process alone"]);
        check(&unsized_rank(2), Some((None, 2, None)), &["MPI_COMM_WORLD_RANK 2 and RANK 3 of 8"]);
        check(r#"{"MPI_COMM_WORLD_RANK": 0, "RANK": "0", "WORLD_SIZE": "8"}"#, Some((Some(Torchrun), 0, Some(8))), &[]);
        check(r#"{"MPI_COMM_WORLD_RANK": -1, "MPI_COMM_WORLD_SIZE": 2}"#, None, &[]);
        for (rank, size) in [
            ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
            ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
            ("MPI_RANK", "MPI_SIZE"),
            ("PALS_RANKID", "PMI_SIZE"),
        ] {
            check(&format!(r#"{{"{rank}": "5", "{size}": "6"}}"#), Some((None, 5, Some(6))), &[]);
            check(&format!(r#"{{"{rank}": 5, "SLURM_PROCID": "0"}}"#), Some((None, 5, None)), &["SLURM_PROCID 0"]);
        }
    }

    #[test]
    fn what_is_no_environment_is_told() {
        check("not JSON", None, &["cannot parse the stored environment"]);
        check("[1]", None, &["not a JSON object"]);
        assert_eq!(Environment::read(b"{\"RANK\": \"\xff\"}").rank, None);
    }
}
