//! Who waits for whom in an operation, from the order that its kind imposes.

use probe_sync_alignment::collectives::Order;
use probe_sync_lateness::operation::{Arrival, Waits};

/// Returns who waits for whom in an operation whose arrivals are in order of rank.
pub(super) fn waits_of(order: &Order, arrivals: &[Arrival]) -> Waits {
    let place = |rank: usize| arrivals.binary_search_by_key(&rank, |arrival| arrival.rank).ok();
    let mut of: Vec<Vec<usize>> = (0..arrivals.len()).map(|own| vec![own]).collect();
    match order {
        Order::AllToAll => return Waits::All,
        Order::From(root) => {
            let Some(root) = place(*root) else { return Waits::Of(of) };
            of.iter_mut().enumerate().filter(|(own, _)| *own != root).for_each(|(_, on)| on.push(root));
        }
        Order::To(root) => {
            let Some(root) = place(*root) else { return Waits::Of(of) };
            of[root] = (0..arrivals.len()).collect();
        }
        Order::Between { source, destination } => {
            let Some((source, destination)) = place(*source).zip(place(*destination)) else { return Waits::Of(of) };
            of[destination].push(source);
        }
        Order::Exchange(receivers) => {
            for (receiver, senders) in receivers {
                let Some(receiver) = place(*receiver) else { continue };
                of[receiver].extend(senders.iter().filter_map(|sender| place(*sender)));
            }
        }
    }
    Waits::Of(of)
}
