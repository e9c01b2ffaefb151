//! Whether an image has the functions and types that its WIT says, looked at before anything starts.
//!
//! Not covered: what a function does; and types by name alone, since the component model compares their structure.

use wasmtime::component::Type;
use wasmtime::component::types::{ComponentFunc, ComponentItem};

use super::error::LoadError;
use super::load::Code;
use crate::model::{Model, Passing};
use crate::shape::Shape;

impl Code {
    /// That every function of the model is there, with its types.
    pub(crate) fn fits(&self, component: &str, model: &Model) -> Result<(), LoadError> {
        let of = self.component.component_type();
        let engine = &self.engine.engine;
        for function in &model.functions {
            let item = of.get_export(engine, &function.interface).map(|e| e.ty);
            let item = match item {
                Some(ComponentItem::ComponentInstance(interface)) => {
                    interface.get_export(engine, &function.name).map(|e| e.ty)
                }
                _ => None,
            };
            let Some(ComponentItem::ComponentFunc(found)) = item else {
                return Err(LoadError::Export {
                    component: component.into(),
                    interface: function.interface.clone(),
                    function: function.name.clone(),
                });
            };
            differs(function, &found).map_or(Ok(()), |(what, needed, found)| {
                Err(LoadError::Types {
                    component: component.into(),
                    function: format!("{}#{}", function.interface, function.name),
                    what,
                    needed,
                    found,
                })
            })?;
        }
        Ok(())
    }
}

/// The first difference: of what, by the WIT, in the image.
fn differs(
    function: &crate::model::Function,
    found: &ComponentFunc,
) -> Option<(String, String, String)> {
    let word = |shape: Option<&Shape>| shape.map_or_else(|| "nothing".into(), Shape::word);
    let mut params = found.params();
    for param in &function.params {
        let what = format!("parameter {}", param.name);
        let Some((name, ty)) = params.next() else {
            return Some((what, word(Some(&param.shape)), word(None)));
        };
        if name != param.name {
            return Some((what, param.name.clone(), name.into()));
        }
        let lent = |own: bool| {
            if own {
                "an object"
            } else {
                "a borrowed object"
            }
            .to_owned()
        };
        match (param.passing, &ty) {
            (Passing::Own(_), Type::Own(_)) | (Passing::Borrow(_), Type::Borrow(_)) => continue,
            (Passing::Own(_), Type::Borrow(_)) => return Some((what, lent(true), lent(false))),
            (Passing::Borrow(_), Type::Own(_)) => return Some((what, lent(false), lent(true))),
            _ => {}
        }
        let found = shape(&ty);
        if found.as_ref() != Some(&param.shape.plain()) {
            return Some((what, word(Some(&param.shape)), word(found.as_ref())));
        }
    }
    if let Some((name, _)) = params.next() {
        return Some((format!("parameter {name}"), word(None), "one".into()));
    }
    let found = found.results().next().map(|ty| shape(&ty));
    let needed = function.result.as_ref().map(Shape::plain);
    if found == needed.clone().map(Some) {
        return None;
    }
    Some((
        "the result".into(),
        word(needed.as_ref()),
        word(found.flatten().as_ref()),
    ))
}

/// A type of an image; none for those of newer component models.
fn shape(ty: &Type) -> Option<Shape> {
    let boxed = |ty: Option<Type>| match ty {
        None => Some(None),
        Some(ty) => shape(&ty).map(|shape| Some(Box::new(shape))),
    };
    let names = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect();
    Some(match ty {
        Type::Bool => Shape::Bool,
        Type::U8 => Shape::U8,
        Type::U16 => Shape::U16,
        Type::U32 => Shape::U32,
        Type::U64 => Shape::U64,
        Type::S8 => Shape::S8,
        Type::S16 => Shape::S16,
        Type::S32 => Shape::S32,
        Type::S64 => Shape::S64,
        Type::Float32 => Shape::F32,
        Type::Float64 => Shape::F64,
        Type::Char => Shape::Char,
        Type::String => Shape::String,
        Type::List(list) => Shape::List(Box::new(shape(&list.ty())?)),
        Type::Record(record) => Shape::Record(
            record
                .fields()
                .map(|field| Some((field.name.to_owned(), shape(&field.ty)?)))
                .collect::<Option<_>>()?,
        ),
        Type::Tuple(tuple) => {
            Shape::Tuple(tuple.types().map(|ty| shape(&ty)).collect::<Option<_>>()?)
        }
        Type::Variant(variant) => Shape::Variant(
            variant
                .cases()
                .map(|case| Some((case.name.to_owned(), boxed(case.ty)?)))
                .collect::<Option<_>>()?,
        ),
        Type::Enum(of) => Shape::Enum(names(&mut of.names())),
        Type::Flags(of) => Shape::Flags(names(&mut of.names())),
        Type::Option(of) => Shape::Option(Box::new(shape(&of.ty())?)),
        Type::Result(of) => Shape::Result(boxed(of.ok())?, boxed(of.err())?),
        Type::Own(_) | Type::Borrow(_) => Shape::Handle(0),
        _ => return None,
    })
}
