//! That a replay is possible: arguments are remembered, data are given back, no object needs itself.

use std::collections::BTreeSet;

use super::words::{Effect, Function, Keys, Model, ModelError, Passing, Role};
use crate::shape::Shape;

impl Model {
    /// Each state that a function comes from is the initial one, or one that a function leads to.
    pub(super) fn all_led_to(&self, index: usize) -> Result<(), ModelError> {
        let resource = &self.resources[index];
        let to =
            self.functions
                .iter()
                .filter_map(|function| match (function.role, &function.effect) {
                    (Role::Method { resource }, Effect::State { to, .. }) => {
                        (resource == index).then_some(*to)
                    }
                    _ => None,
                });
        let led: BTreeSet<usize> = to.chain([0]).collect();
        let Some(state) = (0..resource.states.len()).find(|state| !led.contains(state)) else {
            return Ok(());
        };
        let known: Vec<_> = led.iter().map(|at| &*resource.states[*at]).collect();
        Err(ModelError::NoWay {
            resource: resource.path(),
            state: resource.states[state].clone(),
            known: known.join(", "),
        })
    }

    /// Each call of a replay finds its arguments among those remembered, by whatever way a state was reached.
    pub(super) fn replayable(&self, index: usize) -> Result<(), ModelError> {
        let resource = &self.resources[index];
        for &function in resource.paths.iter().flatten() {
            let function = &self.functions[function];
            let Effect::State { remember, .. } = &function.effect else {
                continue;
            };
            for (place, param) in function.params.iter().enumerate().skip(1) {
                if param.passing != Passing::Value {
                    return Err(function.unsupported("a replay with a second object"));
                }
                let given = function.replay.iter().any(|(given, _)| *given == place);
                if !given && !remember.contains(&place) {
                    return Err(ModelError::Forgets {
                        function: function.path(),
                        parameter: param.name.clone(),
                    });
                }
            }
        }
        let needs = |function: usize| matches!(&self.functions[function].effect, Effect::State { remember, .. } if !remember.is_empty());
        for (place, function) in self.functions.iter().enumerate() {
            let (Role::Method { resource: of }, Effect::State { from, to, .. }) =
                (function.role, &function.effect)
            else {
                continue;
            };
            if of != index {
                continue;
            }
            for (state, path) in resource.paths.iter().enumerate() {
                let comes = from.is_empty() || from.contains(&state);
                let lacks = |f: &&usize| **f != place && needs(**f) && !path.contains(*f);
                if comes && let Some(other) = resource.paths[*to].iter().find(lacks) {
                    return Err(function.unsupported(format!(
                        "a way to {} whose replay needs arguments of {}",
                        resource.states[*to], self.functions[*other].name
                    )));
                }
            }
        }
        Ok(())
    }

    /// What the host keeps of data and fields has a function that gives it back.
    pub(super) fn all_given_back(&self, index: usize) -> Result<(), ModelError> {
        let resource = &self.resources[index];
        for function in &self.functions {
            let data = matches!(
                function.effect,
                Effect::Truncate { .. } | Effect::Write { .. }
            );
            if data
                && function.role == (Role::Method { resource: index })
                && resource.data.is_none()
            {
                return Err(function.unsupported("data of a resource without data = \"FUNCTION\""));
            }
        }
        for function in &self.functions {
            let keyed = matches!(function.effect, Effect::Put { .. } | Effect::Delete { .. });
            if keyed
                && function.role == (Role::Method { resource: index })
                && function.keys != Some(Keys::Own)
                && resource.keys.is_none()
            {
                return Err(function.unsupported("keys of a resource without data = \"FUNCTION\""));
            }
            // Keys come back with the object that they are asked of.
            let every = match &function.effect {
                Effect::All { resources } => resources.contains(&index),
                Effect::Remove { resource, .. } => *resource == index,
                _ => false,
            };
            if every && resource.keys.is_some() {
                return Err(function.unsupported("a look at all names of a resource with keys"));
            }
        }
        for (field, name) in resource.fields.iter().enumerate() {
            if !resource.restore.iter().any(|(_, _, of)| *of == field) {
                return Err(ModelError::Sidecar(format!(
                    "field {name} of {} has no entry under restore",
                    resource.path()
                )));
            }
        }
        Ok(())
    }

    /// Each maker of an object that stands for a key takes the key, and a parent that has keys. A maker that looks at a key likewise.
    pub(super) fn stands_for_a_key(&self, index: usize) -> Result<(), ModelError> {
        let key = self.resources[index].key.as_ref();
        for (creator, function) in self.functions.iter().enumerate() {
            let parent = match function.role {
                Role::Create { resource, parent } if resource == index => parent,
                _ => continue,
            };
            let parent = parent.and_then(|place| match function.params[place].passing {
                Passing::Borrow(of) => Some(of),
                _ => None,
            });
            let keyed = parent.is_some_and(|parent| self.resources[parent].keys.is_some());
            if (key.is_some() || function.keys.is_some()) && !keyed {
                return Err(function.unsupported("a key of an object that has none"));
            }
            if let Some(key) = key {
                let place = self.parameter(creator, key)?;
                function.parameter_is(place, "string", |shape| *shape == Shape::String)?;
            }
        }
        Ok(())
    }

    /// What a function gives in place of what it ends cannot come back by that function: what it was given is gone.
    pub(super) fn may_give(&self, function: &Function) -> Result<(), ModelError> {
        let Some(result) = &function.result else {
            return Ok(());
        };
        if function.given().is_some() && result.resources().len() > 1 {
            return Err(function.unsupported("a result with objects of two kinds"));
        }
        let (Some(gives), Role::Terminal { parameter }) = (function.gives, function.role) else {
            return Ok(());
        };
        if result.objects_max().is_none_or(|most| most > 1) {
            return Err(
                function.unsupported("an object for another one, inside a list or more than one")
            );
        }
        let same = function.params[parameter].passing == Passing::Own(gives);
        let again = self.resources[gives]
            .identity
            .map(|of| &self.functions[of.again]);
        // Arguments that its makers have are those of the object that ends.
        if again.is_some_and(|again| again.params.len() == 1 || same) {
            return Ok(());
        }
        Err(ModelError::Gives {
            function: function.path(),
            resource: self.resources[gives].path(),
        })
    }

    /// An object that moves comes back from its new parent, by the maker that it had: each maker takes a parent of that kind.
    pub(super) fn movable(&self, index: usize) -> Result<(), ModelError> {
        let resource = &self.resources[index];
        let kind =
            |of: Option<usize>| of.map_or("no object".into(), |of| self.resources[of].path());
        for function in &self.functions {
            let (Role::Method { resource: of }, Effect::Move { parent, .. }) =
                (function.role, &function.effect)
            else {
                continue;
            };
            if of != index {
                continue;
            }
            if resource.identity.is_some() {
                return Err(
                    function.unsupported("a move of an object that comes back by its identity")
                );
            }
            let found = match function.params[*parent].passing {
                Passing::Borrow(of) if *parent > 0 => Some(of),
                _ => None,
            };
            for (creator, needed) in &resource.creators {
                if found.is_none() || *needed != found {
                    return Err(ModelError::OtherParent {
                        function: function.path(),
                        found: kind(found),
                        needed: format!(
                            "{} makes it from {}",
                            self.functions[*creator].path(),
                            kind(*needed)
                        ),
                    });
                }
            }
        }
        Ok(())
    }

    /// No resource needs itself to be made.
    pub(super) fn no_cycles(&self) -> Result<(), ModelError> {
        let mut makeable = vec![false; self.resources.len()];
        loop {
            let mut changed = false;
            for (index, resource) in self.resources.iter().enumerate() {
                // One that nobody makes waits for nobody.
                let none = resource.creators.is_empty();
                if !makeable[index]
                    && (none
                        || resource
                            .creators
                            .iter()
                            .any(|(_, parent)| parent.is_none_or(|p| makeable[p])))
                {
                    (makeable[index], changed) = (true, true);
                }
            }
            if !changed {
                break;
            }
        }
        let stuck: Vec<_> = self
            .resources
            .iter()
            .zip(&makeable)
            .filter(|(_, ok)| !**ok)
            .map(|(r, _)| r.path())
            .collect();
        if stuck.is_empty() {
            Ok(())
        } else {
            Err(ModelError::Cycle(stuck.join(", ")))
        }
    }
}
