//! Objects that come back by what they are: a file that was renamed since it was opened cannot be found again by the name of then.
//!
//! After a maker has succeeded the host asks the new object for its identity, and keeps that in place of the maker's arguments. What makes it
//! again is a function of the identity alone. So no parent is needed, and nothing depends on what has become of the arguments.
//!
//! Invariant: asking changes nothing, and the answer holds no object.

use super::sidecar::ResourceEntry;
use super::words::{Effect, Identity, Model, ModelError, Role};

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
        let identity = Identity {
            of: find(of)?,
            again: find(again)?,
        };
        let (asks, makes) = (
            &self.functions[identity.of],
            &self.functions[identity.again],
        );
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
        let made =
            matches!(makes.role, Role::Create { resource, parent: None } if resource == index);
        let same = makes.params.len() == 1 && Some(&makes.params[0].shape) == asks.result.as_ref();
        if !made || !same {
            return Err(makes.unsupported(format!(
                "again that does not make the object of what {} says",
                asks.name
            )));
        }
        if self.resources[index].named.is_some() {
            return Err(makes.unsupported("an identity of a resource with a name"));
        }
        self.resources[index].creators = vec![(identity.again, None)];
        self.resources[index].identity = Some(identity);
        Ok(())
    }
}
