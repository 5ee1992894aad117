//! Arrivals from the collective scopes of the recorder (`probe_sync_record::collective!`).

use probe_sync_record::observe::{Observed, Observer, Observing};
use probe_sync_record::read::ArgumentValue;
use probe_sync_record::typed::{Collective, keys};
use probe_sync_record::{Error, Kind};

use super::Arrivals;

impl Arrivals {
    /// Records an arrival whenever a scope of a collective begins in which all members wait, until
    /// the result is dropped.
    pub(crate) fn observe_collectives(&self) -> Result<Observing, Error> {
        let arrivals = self.clone();
        let arrive = move |scope: &Observed<'_>| {
            let known = |key: &str| scope.arguments().iter().find(|(name, _)| name == key).map(|(_, value)| value);
            if known(keys::COLLECTIVE).is_some_and(all_wait) {
                let (group, step) = (known(keys::GROUP).and_then(text), known(keys::SEQUENCE).and_then(number));
                // Without both it may belong to any operation.
                if let Some((group, step)) = group.zip(step) {
                    arrivals.arrive(group, step);
                }
            }
            0
        };
        Observer::new().kinds(&[Kind::Collective]).with_arguments().on_enter(arrive).add()
    }
}

/// Returns true for an operation in which every member waits for every other.
fn all_wait(operation: &ArgumentValue) -> bool {
    use Collective::{AllGather, AllReduce, AllToAll, Barrier, ReduceScatter};
    let name = text(operation);
    [AllReduce, AllGather, ReduceScatter, AllToAll, Barrier].iter().any(|all| Some(all.as_str()) == name)
}

fn text(value: &ArgumentValue) -> Option<&str> {
    match value {
        ArgumentValue::Text(text) => Some(text),
        _ => None,
    }
}

fn number(value: &ArgumentValue) -> Option<u64> {
    match *value {
        ArgumentValue::Unsigned(number) => Some(number),
        ArgumentValue::Integer(number) => u64::try_from(number).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use probe_sync_record::collective;

    use super::*;

    #[test]
    fn scopes_in_which_all_members_wait_are_arrivals() {
        let arrivals = Arrivals::default();
        let observing = arrivals.observe_collectives().expect("no other observers");
        for step in 3..5_u64 {
            drop(collective!(AllReduce, group = "dp", sequence = step, sent = 1024));
        }
        drop(collective!(Barrier, group = "all", sequence = 7_i64));
        drop(collective!(Broadcast, group = "dp", sequence = 5, root = 0));
        drop(collective!(Send, group = "pp", sequence = 1, destination = 1));
        drop(collective!(AllGather, group = "dp"));
        drop(collective!(AllGather, sequence = 1));
        drop(collective!(AllGather, group = "dp", sequence = -1_i64));
        assert!(observing.remove());
        drop(collective!(AllReduce, group = "dp", sequence = 9));

        let taken = arrivals.take(usize::MAX);
        let found: Vec<_> = taken.iter().map(|arrival| (arrivals.name(arrival.group), arrival.step)).collect();
        assert_eq!(found, [("dp", 3), ("dp", 4), ("all", 7)]);
    }
}
