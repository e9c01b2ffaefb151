//! Response times of tasks under fixed priorities on one processor, with components that fail and come back.
//!
//! ```text
//!   R = C + B + sum over tasks of higher or equal priority: ceil(R / T) C + F ceil(R / P) E
//! ```
//!
//! | Symbol | Meaning |
//! |---|---|
//! | C, T | what a job takes without a fault; its period |
//! | B | jobs of lower priority that hold a component which this task or a more urgent one uses, each at most once (priority inheritance) |
//! | F, P | at most F faults in any window of length P |
//! | E | what one fault adds: detection, reset, the call that is repeated, objects that are made again |
//!
//! On demand, a fault makes objects of this task, of more urgent ones and of those that may block it. Eagerly it makes all objects of the
//! component, whoever holds them: C³'s recovery interference.
//!
//! Invariant: a bound is reported only where it lies within the deadline; behind it the sum need not hold (jobs would overlap).
//!
//! Not covered: several processors, release jitter, tasks without a priority.
//! See Audsley et al. (1993) for R, Sha, Rajkumar and Lehoczky (1990) for B, Burns, Davis and Punnekkat (1996) for faults.

use std::collections::BTreeSet;

/// A task as measured; times in ns.
#[derive(Debug, Clone, Default)]
pub(super) struct Task {
    pub(super) name: String,
    /// None for an ordinary thread: it has no bound, and may block others.
    pub(super) priority: Option<u8>,
    pub(super) cost: u64,
    pub(super) period: u64,
    pub(super) deadline: u64,
    /// Objects that a job makes again after a fault, by component; a component that it uses without any has 0.
    pub(super) uses: Vec<Option<u64>>,
}

/// A component as measured; times in ns.
#[derive(Debug, Clone, Default)]
pub(super) struct Component {
    pub(super) name: String,
    /// D: from a fault to the error in the caller.
    pub(super) detect: u64,
    /// U: from there to bodies that are ready, without a spare.
    pub(super) ready: u64,
    /// c: one object.
    pub(super) object: u64,
    /// All objects alive, those of nobody's job included.
    pub(super) objects: u64,
    pub(super) eager: bool,
}

/// At most `count` in any window of that length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Faults {
    pub(super) count: u64,
    pub(super) window: u64,
}

/// How objects come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recovery {
    OnDemand,
    Eager,
    /// As each component says.
    Configured,
}

/// What was found for one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bound {
    /// None: behind the deadline.
    pub(super) response: Option<u64>,
    pub(super) blocked: u64,
    pub(super) fault: u64,
}

/// Tasks and what they use.
pub(super) struct System {
    pub(super) tasks: Vec<Task>,
    pub(super) components: Vec<Component>,
}

impl System {
    /// Tasks, this one included, that run before it or in its place; FIFO among equals, so these count as well.
    fn urgent(&self, of: usize) -> Vec<usize> {
        let mine = self.tasks[of].priority;
        let all = 0..self.tasks.len();
        all.filter(|other| *other == of || self.tasks[*other].priority >= mine)
            .collect()
    }

    fn used(&self, tasks: &[usize]) -> BTreeSet<usize> {
        let uses = |task: &usize| self.tasks[*task].uses.iter().enumerate();
        let some = tasks.iter().flat_map(uses).filter(|(_, n)| n.is_some());
        some.map(|(component, _)| component).collect()
    }

    /// Less urgent tasks that may hold a component which somebody as urgent as this one waits for.
    fn blockers(&self, urgent: &[usize]) -> Vec<usize> {
        let used = self.used(urgent);
        let less = (0..self.tasks.len()).filter(|task| !urgent.contains(task));
        less.filter(|task| !self.used(&[*task]).is_disjoint(&used))
            .collect()
    }

    /// What one fault adds, of whichever component adds most.
    fn fault(&self, involved: &[usize], recovery: Recovery) -> u64 {
        let redo = involved.iter().map(|task| self.tasks[*task].cost).max();
        let of = |component: usize| {
            let it = &self.components[component];
            let eager = match recovery {
                Recovery::OnDemand => false,
                Recovery::Eager => true,
                Recovery::Configured => it.eager,
            };
            let objects = |task: &usize| self.tasks[*task].uses[component].unwrap_or(0);
            let objects = if eager {
                it.objects
            } else {
                involved.iter().map(objects).sum()
            };
            it.detect + it.ready + objects.saturating_mul(it.object)
        };
        let worst = self.used(involved).into_iter().map(of).max();
        worst.map_or(0, |worst| worst.saturating_add(redo.unwrap_or(0)))
    }

    /// The bound of one task.
    pub(super) fn bound(&self, of: usize, faults: Option<Faults>, recovery: Recovery) -> Bound {
        let task = &self.tasks[of];
        let urgent = self.urgent(of);
        let blockers = self.blockers(&urgent);
        let blocked = blockers.iter().map(|task| self.tasks[*task].cost).sum();
        let involved: Vec<_> = urgent.iter().chain(&blockers).copied().collect();
        let fault = faults.map_or(0, |_| self.fault(&involved, recovery));
        let found = |response| Bound {
            response,
            blocked,
            fault,
        };
        let mut response = task.cost;
        loop {
            let others = urgent.iter().filter(|other| **other != of);
            let interference = others.map(|other| {
                let other = &self.tasks[*other];
                response.div_ceil(other.period).saturating_mul(other.cost)
            });
            let failures = faults.map_or(0, |faults| {
                let count = faults
                    .count
                    .saturating_mul(response.div_ceil(faults.window));
                count.saturating_mul(fault)
            });
            let next = interference
                .fold(task.cost.saturating_add(blocked), u64::saturating_add)
                .saturating_add(failures);
            if next > task.deadline {
                return found(None);
            }
            if next == response {
                return found(Some(response));
            }
            response = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(priority: u8, cost: u64, period: u64, uses: &[Option<u64>]) -> Task {
        Task {
            name: format!("p{priority}"),
            priority: Some(priority),
            cost,
            period,
            deadline: period,
            uses: uses.to_vec(),
        }
    }

    fn component(objects: u64) -> Component {
        Component {
            detect: 1,
            ready: 2,
            object: 1,
            objects,
            ..Component::default()
        }
    }

    fn responses(system: &System, faults: Option<Faults>, recovery: Recovery) -> Vec<Option<u64>> {
        let all = 0..system.tasks.len();
        all.map(|of| system.bound(of, faults, recovery).response)
            .collect()
    }

    /// Burns and Wellings, Real-Time Systems and Programming Languages, section 11.5: 3, 6 and 20.
    #[test]
    fn without_faults_and_shared_components_it_is_the_textbook() {
        let system = System {
            tasks: vec![
                task(3, 3, 7, &[None]),
                task(2, 3, 12, &[None]),
                task(1, 5, 20, &[None]),
            ],
            components: vec![component(0)],
        };
        let found = responses(&system, None, Recovery::OnDemand);
        assert_eq!(found, [Some(3), Some(6), Some(20)]);
        let mut late = system;
        late.tasks[2].deadline = 19;
        assert_eq!(responses(&late, None, Recovery::OnDemand)[2], None);
    }

    #[test]
    fn whoever_shares_a_component_with_somebody_urgent_blocks_once() {
        let uses = |a, b| [a, b];
        let system = System {
            tasks: vec![
                task(9, 2, 100, &uses(Some(0), None)),
                task(5, 3, 100, &uses(None, None)),
                task(1, 7, 100, &uses(Some(0), None)),
                task(1, 50, 100, &uses(None, Some(0))),
            ],
            components: vec![component(0), component(0)],
        };
        // The second task uses nothing, and is blocked all the same: the third one inherits the priority of the first.
        let blocked: Vec<_> = (0..3)
            .map(|of| system.bound(of, None, Recovery::OnDemand).blocked)
            .collect();
        assert_eq!(blocked, [7, 7, 0]);
    }

    #[test]
    fn a_fault_adds_detection_reset_repetition_and_objects_of_those_involved() {
        let faults = Some(Faults {
            count: 1,
            window: 1000,
        });
        let system = |foreign: u64| System {
            tasks: vec![
                task(9, 10, 1000, &[Some(1)]),
                Task {
                    priority: None,
                    ..task(0, 4, 1000, &[Some(3)])
                },
            ],
            components: vec![component(4 + foreign)],
        };
        // 10 + 4 blocked + (1 + 2 + 10 repeated + 1 and 3 objects).
        let at = |foreign, recovery| system(foreign).bound(0, faults, recovery).response;
        assert_eq!(at(0, Recovery::OnDemand), Some(31));
        assert_eq!(
            at(500, Recovery::OnDemand),
            Some(31),
            "objects of others cost nothing"
        );
        assert_eq!(at(500, Recovery::Eager), Some(531));
        assert_eq!(
            at(1000, Recovery::Eager),
            None,
            "and now the deadline is missed"
        );
        assert_eq!(at(500, Recovery::Configured), Some(31));
        let twice = Some(Faults {
            count: 2,
            window: 1000,
        });
        assert_eq!(
            system(0).bound(0, twice, Recovery::OnDemand).response,
            Some(48)
        );
        // A window shorter than the response has its faults again.
        let often = Some(Faults {
            count: 1,
            window: 30,
        });
        assert_eq!(
            system(0).bound(0, often, Recovery::OnDemand).response,
            Some(48)
        );
    }

    #[test]
    fn a_component_that_nobody_involved_uses_may_fail() {
        let faults = Some(Faults {
            count: 3,
            window: 10,
        });
        let system = System {
            tasks: vec![task(9, 10, 1000, &[None]), task(1, 4, 1000, &[Some(3)])],
            components: vec![component(4)],
        };
        assert_eq!(system.bound(0, faults, Recovery::Eager).response, Some(10));
    }
}
