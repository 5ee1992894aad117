//! Communication between hosts after ranks were lost, without any call that waits for all ranks.
//!
//! [`Leaders`] uses it over [`Way::OfAll`](crate::way::Way). A broadcast travels down a binomial
//! tree of the remaining leaders; an allgather is a gather followed by a broadcast.

use probe_sync_collective::{Deadline, Error, Frames, Wait};

use crate::leaders::{KIND_FRAMES, Leaders, ROOT_LEADER, Report};
use crate::operation::Operation;
use crate::raw::Requests;

impl Leaders {
    /// Sends the frames of all hosts to the root, and from there to all.
    pub(crate) fn allgather_by_root(
        &mut self,
        operation: Operation,
        report: &Report,
        deadline: &Deadline,
    ) -> Result<Vec<Frames>, Error> {
        let everyone = vec![true; self.layout.host_of().len()];
        let all = self.gather(operation, &everyone, report, deadline)?;
        let (mut of_hosts, mut encoded) = (Frames::default(), Vec::new());
        for frames in &all {
            let mut of_host = Vec::new();
            frames.encode(&mut of_host);
            of_hosts.push(&of_host);
        }
        if self.own_host == ROOT_LEADER {
            of_hosts.encode(&mut encoded);
        }
        self.broadcast(operation, &mut encoded, deadline)?;
        if !of_hosts.decode(&encoded) || of_hosts.len() != self.layout.hosts() {
            return Err(self.protocol(
                operation,
                ROOT_LEADER,
                format!("{} bytes that are not the frames of all hosts", encoded.len()),
            ));
        }
        (0..of_hosts.len()).map(|host| self.decode(operation, host, of_hosts.frame(host))).collect()
    }

    /// Sends down a binomial tree: the leader of host h receives from that of h without its lowest
    /// set bit.
    pub(crate) fn pass_down(
        &mut self,
        operation: Operation,
        buffer: &mut Vec<u8>,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        let mut wait = Wait::begin(operation.name(), deadline);
        if self.own_host != ROOT_LEADER {
            let parent = self.own_host & (self.own_host - 1);
            let (mut came, _) = self.receive(operation, &[parent], &mut wait)?;
            let Some(message) = came[parent].take() else { return Err(wait.late(vec![self.layout.root()])) };
            *buffer = message.body;
        }
        let mut requests = Requests::new();
        let children = children(self.own_host, self.layout.hosts());
        for host in &children {
            self.send(operation, *host, KIND_FRAMES, buffer.clone(), &mut requests)?;
        }
        if self.all_done(&mut requests, &mut wait)? {
            return Ok(());
        }
        Err(wait.late(children.into_iter().map(|host| self.layout.ranks(host)[0]).collect()))
    }
}

/// The children of `host` in a binomial tree of `hosts`.
fn children(host: usize, hosts: usize) -> Vec<usize> {
    let steps = (0..usize::BITS).map(|bit| 1usize << bit);
    // The one with most hosts below it comes first.
    let near: Vec<usize> = steps.take_while(|step| host & step == 0 && host + step < hosts).collect();
    near.into_iter().rev().map(|step| host + step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_but_the_first_has_one_parent() {
        for hosts in 1..=33 {
            let mut heard = vec![0; hosts];
            for host in 0..hosts {
                for child in children(host, hosts) {
                    assert_eq!(child & (child - 1), host, "{hosts}");
                    heard[child] += 1;
                }
            }
            assert!(heard[0] == 0 && heard[1..].iter().all(|times| *times == 1), "{hosts}: {heard:?}");
        }
    }
}
