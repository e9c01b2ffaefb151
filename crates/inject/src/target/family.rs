//! Faults that are bound to one process, or to one thread of it: who is who among those that a target makes.

use std::collections::HashMap;

use steadfast_fault::ThreadPath;
use steadfast_sandbox as sandbox;
use steadfast_sys::shared::Shared;

use crate::payload;

/// A fault that is bound to one process, or to one thread of it.
#[derive(Debug, Clone)]
pub(super) struct Bound {
    /// Its number among the run's faults.
    pub(super) index: usize,
    pub(super) process: u32,
    pub(super) thread: Option<ThreadPath>,
}

/// The threads and processes of a run, and what is waiting for one of them.
#[derive(Debug)]
pub(super) struct Family {
    /// By thread: rank of the process, path in it, how many threads it has made.
    members: HashMap<i32, (u32, Vec<u32>, u32)>,
    processes: u32,
    bound: Vec<Bound>,
}

impl Family {
    pub(super) fn new(main: i32, bound: Vec<Bound>) -> Self {
        Self {
            members: HashMap::from([(main, (0, Vec::new(), 0))]),
            processes: 1,
            bound,
        }
    }

    /// Writes a victim's number where the code that strikes looks for it.
    pub(super) fn met(&self, shared: &Shared) {
        for (tid, (process, path, _)) in &self.members {
            let number = u32::try_from(*tid).unwrap_or(0);
            for bound in self.bound.iter().filter(|bound| bound.process == *process) {
                let record = payload::OFF_FAULTS + 256 * bound.index;
                match &bound.thread {
                    Some(thread) if thread.ranks() == path => {
                        shared.set32(record + payload::FAULT_TID, number);
                    }
                    None if path.is_empty() => {
                        shared.set32(record + payload::FAULT_PID, number);
                    }
                    _ => {}
                }
            }
        }
    }

    fn born(&mut self, born: sandbox::Born, shared: &Shared) {
        let Some(parent) = self.members.get_mut(&born.parent) else {
            return;
        };
        let member = if born.thread {
            parent.2 += 1;
            let path = parent.1.iter().copied().chain([parent.2]).collect();
            (parent.0, path, 0)
        } else {
            let rank = self.processes;
            self.processes += 1;
            (rank, Vec::new(), 0)
        };
        self.members.insert(born.tid, member);
        self.met(shared);
    }
}

/// A family whose births are told to the code that strikes.
pub(super) struct Births<'a> {
    pub(super) family: &'a mut Family,
    pub(super) shared: &'a Shared,
}

impl sandbox::Follower for Births<'_> {
    fn born(&mut self, born: sandbox::Born) {
        self.family.born(born, self.shared);
    }
}
