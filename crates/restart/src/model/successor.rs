//! Whether a new version of a component can take over the objects of an old one, and the new model with the old one's places.
//!
//! Clients hold functions by their places, records hold resources, states, fields and functions by theirs. So the new model is rearranged:
//! what the old one has keeps its place, what is new comes behind.
//!
//! Invariants
//!  1. A function that the old version has exists with the same types.
//!  2. What a live object has, the new version can restore: its state, its fields, its data.
//!
//! Not covered: functions whose types stay and whose meaning changes. The trial replay sees what the host knows of results.

use super::words::{Effect, Function, Model, Passing, Returns, Role};
use crate::shape::Shape;

/// What objects that live have, by resource.
#[derive(Debug, Clone, Default)]
pub(crate) struct InUse {
    pub(crate) objects: usize,
    /// Whether some object is in a state, by place.
    pub(crate) states: Vec<bool>,
}

/// Old and new places.
struct Places {
    /// By the new model's place: the place in the rearranged one.
    functions: Vec<usize>,
    resources: Vec<usize>,
    /// By the new model's resource.
    states: Vec<Vec<usize>>,
    fields: Vec<Vec<usize>>,
}

/// Keeps the places of `old` for what `new` still has, and puts the rest behind: the place of each of `new`.
fn places<T: PartialEq>(old: &[T], new: &[T]) -> Vec<usize> {
    let mut behind = old.len();
    let place = |one: &T| {
        old.iter()
            .position(|other| other == one)
            .unwrap_or_else(|| {
                behind += 1;
                behind - 1
            })
    };
    new.iter().map(place).collect()
}

/// Puts each of `all` in its place; `fill` for those that are missing.
fn arranged<T: Clone>(all: &[T], places: &[usize], fill: impl Fn(usize) -> T) -> Vec<T> {
    let count = places.iter().map(|place| place + 1).max().unwrap_or(0);
    let from = |at: usize| places.iter().position(|place| *place == at);
    let one = |at: usize| from(at).map_or_else(|| fill(at), |from| all[from].clone());
    (0..count).map(one).collect()
}

impl Model {
    /// This model with the places of an older one; or what does not fit.
    pub(crate) fn succeed(&self, old: &Self, live: &[InUse]) -> Result<Self, String> {
        let missing = |all: &[String], now: &[String], what: &str| {
            let gone = all.iter().find(|one| !now.contains(one));
            gone.map_or(Ok(()), |gone| Err(format!("it has no {what} {gone}")))
        };
        let paths = |model: &Self| -> (Vec<String>, Vec<String>) {
            (
                model.functions.iter().map(Function::path).collect(),
                model
                    .resources
                    .iter()
                    .map(super::words::Resource::path)
                    .collect(),
            )
        };
        let ((old_functions, old_resources), (functions, resources)) = (paths(old), paths(self));
        missing(&old.interfaces, &self.interfaces, "interface")?;
        missing(&old_resources, &resources, "resource")?;
        missing(&old_functions, &functions, "function")?;
        let places = Places {
            functions: places(&old_functions, &functions),
            resources: places(&old_resources, &resources),
            states: self.each(old, |new, old| places(&old.states, &new.states)),
            fields: self.each(old, |new, old| places(&old.fields, &new.fields)),
        };
        for (place, resource) in self.resources.iter().enumerate() {
            if let Some(before) = old.resources.get(places.resources[place]) {
                fits(before, resource, &live[places.resources[place]])?;
            }
        }
        let model = self.moved(old, &places);
        for (before, now) in old.functions.iter().zip(&model.functions) {
            if before.params != now.params
                || before.result != now.result
                || before.role != now.role
                || before.gives != now.gives
            {
                return Err(format!("{} has other types", before.path()));
            }
        }
        Ok(model)
    }

    /// Something for each resource, from its older self.
    fn each(
        &self,
        old: &Self,
        make: impl Fn(&super::words::Resource, &super::words::Resource) -> Vec<usize>,
    ) -> Vec<Vec<usize>> {
        let of = |new: &super::words::Resource| {
            let before = old.resources.iter().find(|old| old.path() == new.path());
            make(new, before.unwrap_or(new))
        };
        self.resources.iter().map(of).collect()
    }

    fn moved(&self, old: &Self, places: &Places) -> Self {
        let functions: Vec<_> = self
            .functions
            .iter()
            .map(|f| self.function_moved(f, places))
            .collect();
        let resources = self.resources.iter().enumerate().map(|(place, resource)| {
            let before = old.resources.get(places.resources[place]);
            let (states, fields) = (&places.states[place], &places.fields[place]);
            let name = |at: usize| before.map_or_else(String::new, |old| old.states[at].clone());
            let field = |at: usize| before.map_or_else(String::new, |old| old.fields[at].clone());
            let path = |path: &Vec<usize>| path.iter().map(|f| places.functions[*f]).collect();
            let paths: Vec<Vec<usize>> = resource.paths.iter().map(path).collect();
            super::words::Resource {
                // A state that is gone keeps its place; no object is in it, and no function leads there.
                states: arranged(&resource.states, states, name),
                paths: arranged(&paths, states, |_| Vec::new()),
                fields: arranged(&resource.fields, fields, field),
                restore: resource
                    .restore
                    .iter()
                    .map(|(f, parameter, field)| (places.functions[*f], *parameter, fields[*field]))
                    .collect(),
                data: resource.data.map(|f| places.functions[f]),
                identity: resource.identity.map(|identity| super::words::Identity {
                    of: places.functions[identity.of],
                    again: places.functions[identity.again],
                    place: identity.place,
                }),
                keys: resource.keys.map(|f| places.functions[f]),
                creators: resource
                    .creators
                    .iter()
                    .map(|(f, parent)| (places.functions[*f], parent.map(|r| places.resources[r])))
                    .collect(),
                ..resource.clone()
            }
        });
        let resources: Vec<_> = resources.collect();
        Self {
            interfaces: self.interfaces.clone(),
            resources: arranged(&resources, &places.resources, |_| unreachable_place()),
            functions: arranged(&functions, &places.functions, |_| unreachable_place()),
        }
    }

    fn function_moved(&self, function: &Function, places: &Places) -> Function {
        let resource = |r: usize| places.resources[r];
        let mut moved = function.clone();
        for param in &mut moved.params {
            param.passing = match param.passing {
                Passing::Value => Passing::Value,
                Passing::Borrow(r) => Passing::Borrow(resource(r)),
                Passing::Borrows(r) => Passing::Borrows(resource(r)),
                Passing::Own(r) => Passing::Own(resource(r)),
            };
            shape(&mut param.shape, places);
        }
        if let Some(result) = &mut moved.result {
            shape(result, places);
        }
        moved.role = match moved.role {
            Role::Create {
                resource: r,
                parent,
            } => Role::Create {
                resource: resource(r),
                parent,
            },
            Role::Method { resource: r } => Role::Method {
                resource: resource(r),
            },
            other => other,
        };
        moved.gives = moved.gives.map(resource);
        // States and fields are those of the object that a method acts on.
        let of = match function.role {
            Role::Method { resource } => Some(resource),
            _ => None,
        };
        let state = |s: usize| of.map_or(s, |of| places.states[of][s]);
        match &mut moved.effect {
            Effect::State { from, to, .. } => {
                from.iter_mut().for_each(|s| *s = state(*s));
                *to = state(*to);
            }
            Effect::Field { field, .. } => {
                *field = of.map_or(*field, |of| places.fields[of][*field])
            }
            Effect::Remove { resource: r, .. } => *r = resource(*r),
            Effect::All { resources } => resources.iter_mut().for_each(|r| *r = resource(*r)),
            Effect::None
            | Effect::Write { .. }
            | Effect::Truncate { .. }
            | Effect::Put { .. }
            | Effect::Move { .. }
            | Effect::Delete { .. } => {}
        }
        if let Some(wait) = &mut moved.wait {
            let woken_by = wait.woken_by.iter_mut();
            woken_by.for_each(|f| *f = places.functions[*f]);
        }
        if let Some(Returns::Remembered {
            state: s,
            function: f,
            ..
        }) = &mut moved.returns
        {
            (*s, *f) = (state(*s), places.functions[*f]);
        }
        moved
    }
}

/// `missing` has refused a model that would need one.
fn unreachable_place<T>() -> T {
    unreachable!("every function and resource of the old version exists in the new one")
}

fn shape(of: &mut Shape, places: &Places) {
    match of {
        Shape::Handle(resource) => *resource = places.resources[*resource],
        Shape::List(inner) | Shape::Option(inner) => shape(inner, places),
        Shape::Record(fields) => fields.iter_mut().for_each(|(_, of)| shape(of, places)),
        Shape::Tuple(all) => all.iter_mut().for_each(|of| shape(of, places)),
        Shape::Variant(cases) => {
            let some = cases.iter_mut().filter_map(|(_, of)| of.as_deref_mut());
            some.for_each(|of| shape(of, places));
        }
        Shape::Result(ok, err) => {
            let some = [ok, err].into_iter().filter_map(|of| of.as_deref_mut());
            some.for_each(|of| shape(of, places));
        }
        _ => {}
    }
}

/// Whether objects of one resource can go on.
fn fits(
    old: &super::words::Resource,
    new: &super::words::Resource,
    live: &InUse,
) -> Result<(), String> {
    let name = old.path();
    if old.states[0] != new.states[0] {
        return Err(format!(
            "a new {name} is in state {}, it was {}",
            new.states[0], old.states[0]
        ));
    }
    if old.named != new.named {
        return Err(format!("data of {name} belong to other names"));
    }
    if old.key != new.key {
        return Err(format!("a {name} stands for another key"));
    }
    if live.objects == 0 {
        return Ok(());
    }
    let used = old
        .states
        .iter()
        .zip(&live.states)
        .filter(|(_, used)| **used);
    for (state, _) in used {
        if !new.states.contains(state) {
            return Err(format!(
                "objects of {name} are in state {state}, which it does not have"
            ));
        }
    }
    if old.data.is_some() != new.data.is_some() {
        return Err(format!("it does not keep data of {name} as before"));
    }
    if old.keys.is_some() != new.keys.is_some() {
        return Err(format!("it does not keep keys of {name} as before"));
    }
    let differs =
        |one: &[String], other: &[String]| one.iter().find(|f| !other.contains(f)).cloned();
    match (
        differs(&old.fields, &new.fields),
        differs(&new.fields, &old.fields),
    ) {
        (Some(gone), _) => Err(format!("it has no field {gone} of {name}")),
        (_, Some(unknown)) => Err(format!(
            "field {unknown} of {name} is new, and nobody knows its value for {} objects",
            live.objects
        )),
        (None, None) => Ok(()),
    }
}
