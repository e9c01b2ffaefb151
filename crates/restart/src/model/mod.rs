//! How the objects of an interface come back: state machines inferred from WIT, completed by a sidecar file.
//!
//! Inferred: a constructor, or a function that returns `own<T>`, makes an object; a method on `borrow<self>` acts on one; an `own<T>`
//! argument ends one; a `borrow<U>` argument of a making function is the parent. Asked for, in `*.recover.toml`: what a method does to the
//! state. A method about which the sidecar says nothing is an error, since a guess would lose state in silence.
//!
//! Invariants
//!  1. For every state there is a shortest list of functions that leads to it from the initial one, or generation fails.
//!  2. The order of functions and resources is that of the WIT, so that indexes are stable.
//!
//! Not covered: resources whose state depends on the order of calls to several objects.
//! See Song et al., SuperGlue (DSN 2016), for the descriptor-resource model.

mod checks;
mod explain;
mod identity;
mod infer;
mod samples;
mod sidecar;
mod successor;
mod words;

use wit_parser::{Resolve, TypeDefKind, WorldItem};

use self::infer::{Reader, infer};
pub use self::samples::Samples;
use self::sidecar::Sidecar;
pub(crate) use self::successor::InUse;
pub use self::words::{
    Effect, Function, Identity, Keys, Model, ModelError, Param, Passing, Resource, Returns, Role,
    Source, Stored, When,
};

impl Model {
    /// Reads WIT (the text of one package, or several nested ones) and a sidecar, for the interfaces that the world exports.
    ///
    /// # Errors
    /// When something cannot be brought back, with the name and what would help.
    pub fn generate(wit: &str, sidecar: &str) -> Result<Self, ModelError> {
        let mut resolve = Resolve::default();
        // With the line, and what stands there.
        let package = resolve.push_str("component.wit", wit);
        let package = package.map_err(|error| ModelError::Wit(resolve.render_error(&error)))?;
        let world = resolve
            .select_world(&[package], None)
            .map_err(|error| ModelError::Wit(format!("{error:#}")))?;
        Self::of(&resolve, world, sidecar)
    }

    fn of(
        resolve: &Resolve,
        world: wit_parser::WorldId,
        sidecar: &str,
    ) -> Result<Self, ModelError> {
        let sidecar: Sidecar =
            toml::from_str(sidecar).map_err(|error| ModelError::Sidecar(error.to_string()))?;
        let exports: Vec<_> = resolve.worlds[world]
            .exports
            .values()
            .filter_map(|item| {
                if let WorldItem::Interface { id, .. } = item {
                    Some(*id)
                } else {
                    None
                }
            })
            .collect();
        let mut model = Self::default();
        let mut reader = Reader {
            resolve,
            resources: Vec::new(),
        };
        for id in &exports {
            let path = resolve
                .id_of(*id)
                .ok_or_else(|| ModelError::Wit("an exported interface has no name".into()))?;
            for (name, ty) in &resolve.interfaces[*id].types {
                if matches!(resolve.types[*ty].kind, TypeDefKind::Resource) {
                    reader.resources.push(*ty);
                    model.resources.push(Resource {
                        interface: path.clone(),
                        name: name.clone(),
                        states: Vec::new(),
                        paths: Vec::new(),
                        fields: Vec::new(),
                        restore: Vec::new(),
                        data: None,
                        keys: None,
                        key: None,
                        named: None,
                        creators: Vec::new(),
                        children_end: false,
                        children_stay: false,
                        identity: None,
                        closes: false,
                    });
                }
            }
            model.interfaces.push(path);
        }
        for (id, interface) in exports.iter().zip(model.interfaces.clone()) {
            for (name, function) in &resolve.interfaces[*id].functions {
                model
                    .functions
                    .push(infer(&reader, &interface, name, function)?);
            }
        }
        model.complete(&sidecar)?;
        Ok(model)
    }
}
