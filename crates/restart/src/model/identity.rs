//! Objects that come back by what they are: a file that was renamed since it was opened cannot be found again by the name of then.
//!
//! After a maker has succeeded the host asks the new object for its identity, and keeps that in place of the maker's arguments. What makes it
//! again is a function of the identity alone, or of that and of arguments that every maker has, such as the parent. Of the identity alone no
//! parent is needed, and nothing depends on what has become of the arguments.
//!
//! Invariant: asking changes nothing, and the answer holds no object.

use super::sidecar::ResourceEntry;
use super::words::{Effect, Function, Identity, Model, ModelError, Param, Passing, Role};

impl Model {
    pub(super) fn identity(
        &mut self,
        index: usize,
        entry: &ResourceEntry,
    ) -> Result<(), ModelError> {
        let (of, again) = match (&entry.identity, &entry.again) {
            (None, None) => return Ok(()),
            (Some(of), Some(again)) => (of, again),
            _ => {
                return Err(ModelError::Sidecar(format!(
                    "{}: identity and again are needed together",
                    self.resources[index].path()
                )));
            }
        };
        let find = |name: &String| {
            let function = self.function(name);
            function.ok_or_else(|| ModelError::Unknown(name.clone()))
        };
        let (of, again) = (find(of)?, find(again)?);
        let (asks, makes) = (&self.functions[of], &self.functions[again]);
        let tells = asks.role == (Role::Method { resource: index })
            && asks.params.len() == 1
            && asks.effect == Effect::None
            && asks
                .result
                .as_ref()
                .is_some_and(|shape| !shape.has_handle());
        if !tells {
            return Err(asks.unsupported("an identity that is no plain answer of the object alone"));
        }
        let parent = match makes.role {
            Role::Create { resource, parent } if resource == index => Some(parent),
            _ => None,
        };
        let makers = self.functions.iter().filter(|f| {
            let made = matches!(f.role, Role::Create { resource, .. } if resource == index);
            made && f.path() != makes.path()
        });
        let makers: Vec<_> = makers.collect();
        let known = |param: &Param| {
            let same = |f: &&Function| f.params.iter().any(|other| other == param);
            !makers.is_empty() && makers.iter().all(same)
        };
        let others: Vec<_> = (0..makes.params.len())
            .filter(|place| makes.params.len() == 1 || !known(&makes.params[*place]))
            .collect();
        let (Some(parent), [place]) = (parent, &others[..]) else {
            return Err(makes.unsupported(format!(
                "again that does not make the object of what {} says, and of arguments that every maker has",
                asks.name
            )));
        };
        let (place, told) = (*place, &makes.params[*place]);
        if told.passing != Passing::Value || Some(&told.shape) != asks.result.as_ref() {
            return Err(makes.unsupported(format!(
                "again that does not make the object of what {} says",
                asks.name
            )));
        }
        let parent = parent.and_then(|place| match makes.params[place].passing {
            Passing::Borrow(of) => Some(of),
            _ => None,
        });
        if self.resources[index].named.is_some() {
            return Err(makes.unsupported("an identity of a resource with a name"));
        }
        self.resources[index].creators = vec![(again, parent)];
        self.resources[index].identity = Some(Identity { of, again, place });
        Ok(())
    }
}
