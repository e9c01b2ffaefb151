//! Live upgrade: another version of a component takes over while clients keep their handles.
//!
//! ```text
//!   load, start, compare models ─► lock ─► every object into the new bodies, known answers asked ─► old bodies end ─► unlock
//!                                             └── one does not fit: the old bodies go on, and the reason is told
//! ```
//!
//! Invariants
//!  1. Nothing of the old version changes before every object has come into the new one.
//!  2. Functions, resources, states and fields keep their places, so that handles, records and edges stay valid.
//!
//! Not covered: what the two versions ask other components for while objects come back; both take effect.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::component::Component;
use super::core::{Core, RESET_TRIES, Stop};
use super::parts::Parts;
use super::unit::Host;
use crate::body::{Body, Inners};
use crate::engine::LoadError;
use crate::engine::open;
use crate::model::{InUse, Model, Returns, Role};
use crate::table::{PIECE, Sealed};
use crate::value::{Handle, Value};
use crate::words::{CallError, Cause, Policy};

/// What an upgrade came to.
#[derive(Debug, Clone, Copy)]
pub struct Upgraded {
    /// Objects that the new version has taken over.
    pub objects: usize,
    /// Names with data.
    pub names: usize,
    /// For so long no call was served.
    pub pause: Duration,
}

/// Why a component keeps its version.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the new version of {component} does not fit: {found}")]
    Misfit { component: String, found: String },
    #[error("an object of {component} does not come into the new version: {found}")]
    Replay { component: String, found: String },
}

impl UpgradeError {
    /// What would help.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Load(error) => error.fix(),
            Self::Call(error) => error.fix(),
            Self::Misfit { .. } => {
                "a version that keeps functions, types, states and fields; or end the application and start it with this one"
            }
            Self::Replay { .. } => {
                "see the message: a replay by the new version's sidecar file must lead to the same state"
            }
        }
    }
}

/// What is needed to go back: objects by handle, with their epoch and what they are in the old bodies.
struct Before {
    model: Arc<Model>,
    policy: Policy,
    epoch: u64,
    objects: Vec<(Handle, Sealed, Inners)>,
    names: Vec<((usize, String), Sealed)>,
}

impl Host {
    /// Replaces a component by another version of it: same name, other image and model. Its clients wait, and keep their handles.
    ///
    /// # Errors
    /// When the new version does not start, or cannot take over some object. The old one goes on.
    pub fn upgrade(&self, component: Component) -> Result<Upgraded, UpgradeError> {
        let name = component.name.clone();
        let unit = self
            .units
            .get(&name)
            .ok_or_else(|| CallError::NoComponent {
                component: name.clone(),
            })?;
        let misfit = |found: String| UpgradeError::Misfit {
            component: name.clone(),
            found,
        };
        let reentered = || CallError::Reentered {
            component: name.clone(),
        };
        let lock = || unit.core.lock().map_err(|_| reentered());
        // Started without the lock: clients wait for the replay alone. What lives then is looked at again.
        let expected = {
            let mut core = lock()?;
            let live = core.in_use();
            let model = component.model.succeed(&core.model, &live);
            model.map_err(misfit)?
        };
        let mut parts = Parts::new(&self.engine, &component, &expected)?;
        let mut core = lock()?;
        let begin = Instant::now();
        let live = core.in_use();
        let model = Arc::new(
            component
                .model
                .succeed(&core.model, &live)
                .map_err(misfit)?,
        );
        if *model != expected {
            return Err(misfit("another upgrade came first".into()));
        }
        let moved = core.replace(&mut parts, model.clone(), component.policy);
        if moved.is_ok() {
            core.keep_version();
            *unit.model.lock().unwrap_or_else(PoisonError::into_inner) = model;
        }
        let (objects, names) = (core.table.len(), core.table.names.len());
        let pause = begin.elapsed();
        drop(core);
        // Bodies that are not needed any more end here, where nobody waits for it.
        drop(parts);
        unit.waits.wake(|| true);
        moved.map_err(|found| UpgradeError::Replay {
            component: name.clone(),
            found,
        })?;
        Ok(Upgraded {
            objects,
            names,
            pause,
        })
    }
}

impl Core {
    fn in_use(&mut self) -> Vec<InUse> {
        let mut all: Vec<InUse> = self
            .model
            .resources
            .iter()
            .map(|_| InUse::default())
            .collect();
        for handle in self.table.handles() {
            // A damaged record names a state that need not exist; its object is lost with any version.
            let Ok(Ok(record)) = self.table.slot(handle).map(|slot| slot.record()) else {
                continue;
            };
            let of = &mut all[record.resource];
            of.objects += 1;
            of.states
                .resize(self.model.resources[record.resource].states.len(), false);
            of.states[record.state] = true;
        }
        let names = self.table.names.keys();
        names.for_each(|(resource, _)| all[*resource].objects += 1);
        all
    }

    /// Changes places with what runs.
    fn exchange(&mut self, parts: &mut Parts) {
        std::mem::swap(&mut self.image, &mut parts.image);
        std::mem::swap(&mut self.bodies, &mut parts.bodies);
        std::mem::swap(&mut self.spare, &mut parts.spare);
        std::mem::swap(&mut self.worker, &mut parts.worker);
        std::mem::swap(&mut self.imports, &mut parts.imports);
        std::mem::swap(&mut self.journal, &mut parts.journal);
        self.made = vec![Vec::new(); self.bodies.len()];
        self.since_compare = 0;
        self.epoch += 1;
    }

    /// Puts other parts in place of what runs, with all objects; or leaves it, with the reason. Either way `parts` is what is not needed.
    fn replace(
        &mut self,
        parts: &mut Parts,
        model: Arc<Model>,
        policy: Policy,
    ) -> Result<(), String> {
        let before = self.before();
        self.exchange(parts);
        (self.model, self.policy) = (model, policy);
        self.whole = vec![0; self.model.resources.len()];
        let moved = self.move_all();
        if let Err(found) = moved {
            self.give_back();
            self.exchange(parts);
            self.restore(before);
            return Err(found);
        }
        // What the old bodies held at others is theirs alone.
        let held = parts.bodies.iter().flat_map(Body::held);
        let kept = open(&parts.journal).unneeded(|_| true);
        for (import, handle) in held.chain(kept).collect::<BTreeSet<_>>() {
            let _ = parts.imports[import].callee.discard(handle);
        }
        self.settle();
        self.gone = None;
        self.limits = super::core::Limits::default();
        Ok(())
    }

    fn before(&mut self) -> Before {
        let objects = self.table.handles();
        let objects = objects.into_iter().filter_map(|handle| {
            let slot = self.table.slot(handle).ok()?;
            Some((handle, slot.epoch, std::mem::take(&mut slot.inner)))
        });
        let objects = objects.collect();
        let names = self.table.names.iter();
        Before {
            model: self.model.clone(),
            policy: self.policy,
            epoch: self.epoch,
            objects,
            names: names
                .map(|(key, named)| (key.clone(), named.epoch))
                .collect(),
        }
    }

    /// As it was, in an epoch that no object has seen: numbers of epochs are never used twice.
    fn restore(&mut self, before: Before) {
        let now = |then: Sealed| Sealed::of(if then == before.epoch { self.epoch } else { 0 });
        (self.model, self.policy) = (before.model, before.policy);
        self.whole = vec![0; self.model.resources.len()];
        for (handle, epoch, inner) in before.objects {
            if let Ok(slot) = self.table.slot(handle) {
                (slot.epoch, slot.inner) = (now(epoch), inner);
            }
        }
        for (key, epoch) in before.names {
            if let Some(named) = self.table.names.get_mut(&key) {
                named.epoch = now(epoch);
            }
        }
    }

    /// What the present bodies hold at others.
    fn give_back(&mut self) {
        let held: BTreeSet<_> = self.bodies.iter().flat_map(Body::held).collect();
        for (import, handle) in held {
            let _ = self.imports[import].callee.discard(handle);
        }
    }

    /// Brings every name and object into the present bodies. A fault on the way costs a try, not the upgrade.
    fn move_all(&mut self) -> Result<(), String> {
        let mut tries = 1;
        loop {
            let found = match self.try_to_move() {
                Ok(()) => return Ok(()),
                Err(Stop::Failed(cause, found)) => format!("{}: {found}", cause.word()),
                Err(Stop::Callee(error) | Stop::Refused(error)) => return Err(error.to_string()),
            };
            if tries == RESET_TRIES {
                return Err(found);
            }
            tries += 1;
            self.give_back();
            self.epoch += 1;
            for body in &mut self.bodies {
                body.reset(&self.image, false)?;
            }
        }
    }

    fn try_to_move(&mut self) -> Result<(), Stop> {
        let keys: Vec<_> = self.table.names.keys().cloned().collect();
        for key in keys {
            lost_anyway(self.rename(&key))?;
        }
        for handle in self.table.handles() {
            let keys = self
                .rebuild(handle)
                .and_then(|()| self.bring_all_keys(handle));
            lost_anyway(keys.and_then(|()| self.ask(handle)))?;
        }
        Ok(())
    }

    /// Now and then, before a call: one of the objects that the component has is asked. The call that follows is not noted yet, so it may be
    /// made again after a reset. What the host itself has damaged is told to its user, and not to whoever happens to call.
    pub(super) fn audit(&mut self) -> Result<(), Stop> {
        // A look at a place costs little; a call must not pay for looks at all of them.
        const LOOKS: usize = 64;
        if self.policy.audit_every == 0 {
            return Ok(());
        }
        self.audit.calls += 1;
        if self.audit.calls < self.policy.audit_every {
            return Ok(());
        }
        self.audit.calls = 0;
        for _ in 0..LOOKS {
            self.audit.place += 1;
            let Some(handle) = self.table.at(&mut self.audit.place) else {
                continue;
            };
            let epoch = self.epoch;
            if self
                .table
                .slot(handle)
                .is_ok_and(|slot| slot.epoch == epoch)
            {
                return match lost_anyway(self.ask(handle)) {
                    Err(Stop::Callee(error)) => Err(Stop::Failed(Cause::Wrong, error.to_string())),
                    other => other,
                };
            }
        }
        Ok(())
    }

    /// Asks an object for what the host knows the answer to.
    fn ask(&mut self, handle: Handle) -> Result<(), Stop> {
        let model = self.model.clone();
        if self.table.ended(handle) {
            return Ok(());
        }
        let Ok(resource) = self.table.slot(handle).map(|slot| slot.resource()) else {
            return Ok(());
        };
        for (place, function) in model.functions.iter().enumerate() {
            let (Some(returns), Role::Method { resource: of }) = (&function.returns, function.role)
            else {
                continue;
            };
            if of != resource {
                continue;
            }
            let mut args = vec![Value::Handle(handle)];
            match returns {
                Returns::Remembered { .. } if function.params.len() == 1 => {}
                Returns::Data { offset, length } if function.params.len() == 3 => {
                    let wanted = [(*offset, 0), (*length, PIECE as u64)];
                    for at in 1..3 {
                        let number = wanted.iter().find(|(place, _)| *place == at);
                        let value =
                            number.and_then(|(_, n)| function.params[at].shape.of_number(*n));
                        args.extend(value);
                    }
                }
                _ => continue,
            }
            if args.len() == function.params.len() {
                let result = self.run(place, &args, true)?;
                self.check_result(&self.model.clone(), place, &args, result.as_ref())?;
            }
        }
        Ok(())
    }
}

/// An object whose record is damaged, or whose parent is gone, is an error of its user with any version.
fn lost_anyway(outcome: Result<(), Stop>) -> Result<(), Stop> {
    match outcome {
        Err(Stop::Refused(CallError::Corrupt { .. } | CallError::Orphan { .. })) => Ok(()),
        other => other,
    }
}
