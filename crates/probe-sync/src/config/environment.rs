//! Which environment variables with our prefix are ours.
//!
//! `sources` checks each variable that begins with `PROBE_SYNC_`. Other programs use such names as
//! well: Kubernetes gives every container of a service `probe-sync` its address in
//! `PROBE_SYNC_SERVICE_HOST` and `PROBE_SYNC_PORT=tcp://…`, and Spack and Lmod give the location of
//! a package of that name in `PROBE_SYNC_ROOT`. A variable that is neither theirs nor ours may be a
//! typing error, which causes a warning but ends nothing.

use super::table::KEYS;

/// Variables with the prefix of this program that are not configuration keys, each with what reads
/// it. The documentation names no others.
pub const VARIABLES: [(&str, &str); 17] = [
    ("LOG", "the log filter"),
    ("CONFIG", "the configuration file"),
    ("MASTER_PORT", "where rank 0 listens"),
    ("JOB", "the secret by which the ranks of a job recognise each other"),
    ("ID", "how ranks started by one process meet"),
    ("PARENT", "passed from run --local to its children"),
    ("RENDEZVOUS", "a shared file or a store through which ranks meet"),
    ("RENDEZVOUS_TIMEOUT", "how long ranks search for each other"),
    ("CUPTI", "the library by which the recorder watches NVIDIA GPUs"),
    ("RECORD_VERBOSE", "prints the recorder's choices on standard error"),
    ("TCP_FANOUT", "the tree of connections"),
    ("TCP_LOCAL", "connections between ranks on one host"),
    ("TCP_GREETING_TIMEOUT", "connections"),
    ("TCP_CONNECT_TIMEOUT", "connections"),
    ("TCP_PLACE_TIMEOUT", "connections"),
    ("TCP_STATEMENT_TIMEOUT", "connections"),
    ("UPDATE_SEEDS", "a test of the rendezvous"),
];

/// Returns true if a variable is one of [`VARIABLES`]; `name` is without the prefix.
pub(super) fn is_reserved(name: &str) -> bool {
    VARIABLES.iter().any(|(reserved, _)| *reserved == name)
}

/// Returns true if the variable's name or value shows that another program set it.
pub(super) fn is_of_others(name: &str, text: &str) -> bool {
    is_service_link(name, text) || PACKAGE_ENDINGS.iter().any(|ending| is_or_ends_with(name, ending))
}

/// Returns true if Kubernetes, or Docker before it, uses the variable to tell a container where a
/// service is.
pub fn is_service_link(name: &str, text: &str) -> bool {
    let address = PROTOCOLS.iter().any(|protocol| text.starts_with(&format!("{}://", protocol.to_lowercase())));
    // PORT_9100_TCP, and PORT_9100_TCP_PORT and the like.
    let parts: Vec<&str> = name.split('_').collect();
    let of_port = parts
        .windows(3)
        .any(|parts| parts[0] == "PORT" && parts[1].parse::<u16>().is_ok() && PROTOCOLS.contains(&parts[2]));
    let service = is_or_ends_with(name, "SERVICE_HOST")
        || is_or_ends_with(name, "SERVICE_PORT")
        || name.contains("SERVICE_PORT_");
    service || of_port || (is_or_ends_with(name, "PORT") && address)
}

/// Returns the key or other variable whose name is closest to `name`.
pub(super) fn closest(name: &str) -> String {
    let keys = KEYS.iter().map(|key| key.name.to_uppercase());
    let others = VARIABLES.iter().map(|(name, _)| (*name).to_owned());
    keys.chain(others).min_by_key(|known| distance(known, name)).unwrap_or_default()
}

fn is_or_ends_with(name: &str, ending: &str) -> bool {
    name.strip_suffix(ending).is_some_and(|front| front.is_empty() || front.ends_with('_'))
}

/// Returns the Levenshtein distance: the number of characters to add, remove or replace.
pub(super) fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (place, against) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(letter != against);
            diagonal = row[place + 1];
            row[place + 1] = replaced.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
/// Endings of the variables that Spack, Lmod and EasyBuild set to a package's location and version.
const PACKAGE_ENDINGS: [&str; 4] = ["ROOT", "HOME", "DIR", "VERSION"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_links_and_packages_are_other_programs() {
        for (name, text) in [
            ("SERVICE_HOST", "10.96.0.7"),
            ("SERVICE_PORT", "9100"),
            ("SERVICE_PORT_METRICS", "9100"),
            ("PORT", "tcp://10.96.0.7:9100"),
            ("PORT_9100_TCP", "tcp://10.96.0.7:9100"),
            ("PORT_9100_TCP_PROTO", "tcp"),
            ("PORT_9100_TCP_PORT", "9100"),
            ("PORT_53_UDP_ADDR", "10.96.0.7"),
            ("MASTER_SERVICE_HOST", "10.96.0.7"),
            ("MASTER_PORT", "tcp://10.96.0.7:29500"),
            ("MASTER_PORT_29500_TCP_ADDR", "10.96.0.7"),
            ("ROOT", "/opt/spack/probe-sync"),
            ("HOME", "/"),
            ("VERSION", "1.0"),
            ("LIB_DIR", "/lib"),
        ] {
            assert!(is_of_others(name, text), "{name}={text}");
        }
        for (name, text) in
            [("PORT", "9100"), ("MASTER_PORT", "29500"), ("WINDOW", "2s"), ("RECORD", "dir"), ("OUT", "tcp")]
        {
            assert!(!is_of_others(name, text), "{name}={text}");
        }
    }

    #[test]
    fn the_closest_name_is_the_one_that_was_meant() {
        for (typed, meant) in [("NEIGHBOURS", "NEIGHBORS"), ("WINDW", "WINDOW"), ("TCP_FANOUTS", "TCP_FANOUT")] {
            assert_eq!(closest(typed), meant);
        }
    }

    #[test]
    fn every_variable_that_a_document_names_is_known() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let pages =
            std::fs::read_dir(format!("{root}/docs")).expect("the documents").flatten().map(|entry| entry.path());
        for page in pages.chain([format!("{root}/README.md").into()]) {
            let text = std::fs::read_to_string(&page).unwrap_or_default();
            for rest in text.split("PROBE_SYNC_").skip(1) {
                let end =
                    rest.find(|letter: char| !(letter.is_ascii_uppercase() || letter == '_')).unwrap_or(rest.len());
                let name = rest[..end].trim_end_matches('_');
                let known =
                    name.is_empty() || super::super::Key::named(&name.to_lowercase()).is_some() || is_reserved(name);
                assert!(known || is_of_others(name, "tcp://"), "{}: PROBE_SYNC_{name}", page.display());
            }
        }
    }
}
