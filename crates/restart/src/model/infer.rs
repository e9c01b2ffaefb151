//! What the WIT says: types, and what each function is to objects.

use wit_parser::{FunctionKind, Handle, Resolve, Type, TypeDefKind, TypeId};

use super::words::{Effect, Function, ModelError, Param, Passing, Role};
use crate::shape::Shape;

/// Types through their aliases.
fn resolved(resolve: &Resolve, mut id: TypeId) -> TypeId {
    while let TypeDefKind::Type(Type::Id(next)) = resolve.types[id].kind {
        id = next;
    }
    id
}

pub(super) struct Reader<'a> {
    pub(super) resolve: &'a Resolve,
    pub(super) resources: Vec<TypeId>,
}

impl Reader<'_> {
    fn resource(&self, id: TypeId) -> Option<usize> {
        let id = resolved(self.resolve, id);
        self.resources.iter().position(|known| *known == id)
    }

    fn passing(&self, ty: &Type) -> Passing {
        let Type::Id(id) = ty else {
            return Passing::Value;
        };
        let id = resolved(self.resolve, *id);
        match &self.resolve.types[id].kind {
            TypeDefKind::Handle(Handle::Borrow(of)) => {
                self.resource(*of).map_or(Passing::Value, Passing::Borrow)
            }
            TypeDefKind::Handle(Handle::Own(of)) => {
                self.resource(*of).map_or(Passing::Value, Passing::Own)
            }
            TypeDefKind::Resource => self.resource(id).map_or(Passing::Value, Passing::Own),
            TypeDefKind::List(inner) => match self.passing(inner) {
                Passing::Borrow(of) => Passing::Borrows(of),
                _ => Passing::Value,
            },
            _ => Passing::Value,
        }
    }

    /// The resource of an `own<T>` directly, in `ok` or in `some`, or in a list or tuple that holds one at most.
    fn made(&self, ty: &Type) -> Option<usize> {
        if let Passing::Own(resource) = self.passing(ty) {
            return Some(resource);
        }
        let Type::Id(id) = ty else { return None };
        match &self.resolve.types[resolved(self.resolve, *id)].kind {
            TypeDefKind::Result(result) => result.ok.as_ref().and_then(|ok| self.made(ok)),
            TypeDefKind::Option(inner) | TypeDefKind::List(inner) => self.made(inner),
            TypeDefKind::Tuple(tuple) => tuple.types.iter().find_map(|ty| self.made(ty)),
            _ => None,
        }
    }

    /// The shape of a type; an error names what cannot cross the edge.
    fn shape(&self, ty: &Type) -> Result<Shape, &'static str> {
        Ok(match ty {
            Type::Bool => Shape::Bool,
            Type::U8 => Shape::U8,
            Type::U16 => Shape::U16,
            Type::U32 => Shape::U32,
            Type::U64 => Shape::U64,
            Type::S8 => Shape::S8,
            Type::S16 => Shape::S16,
            Type::S32 => Shape::S32,
            Type::S64 => Shape::S64,
            Type::F32 => Shape::F32,
            Type::F64 => Shape::F64,
            Type::Char => Shape::Char,
            Type::String => Shape::String,
            Type::Id(id) => {
                let maybe = |ty: &Option<Type>| match ty {
                    None => Ok(None),
                    Some(ty) => self.shape(ty).map(|shape| Some(Box::new(shape))),
                };
                match &self.resolve.types[resolved(self.resolve, *id)].kind {
                    TypeDefKind::Handle(_) | TypeDefKind::Resource => match self.passing(ty) {
                        Passing::Borrow(of) | Passing::Own(of) => Shape::Handle(of),
                        Passing::Value | Passing::Borrows(_) => {
                            return Err("an object of another component");
                        }
                    },
                    // A name for a type that has no other one, such as u64.
                    TypeDefKind::Type(inner) => self.shape(inner)?,
                    TypeDefKind::List(inner) => Shape::List(Box::new(self.shape(inner)?)),
                    TypeDefKind::Option(inner) => Shape::Option(Box::new(self.shape(inner)?)),
                    TypeDefKind::Result(result) => {
                        Shape::Result(maybe(&result.ok)?, maybe(&result.err)?)
                    }
                    TypeDefKind::Tuple(tuple) => Shape::Tuple(
                        tuple
                            .types
                            .iter()
                            .map(|ty| self.shape(ty))
                            .collect::<Result<_, _>>()?,
                    ),
                    TypeDefKind::Record(record) => Shape::Record(
                        record
                            .fields
                            .iter()
                            .map(|field| Ok((field.name.clone(), self.shape(&field.ty)?)))
                            .collect::<Result<_, &'static str>>()?,
                    ),
                    TypeDefKind::Variant(variant) => Shape::Variant(
                        variant
                            .cases
                            .iter()
                            .map(|case| Ok((case.name.clone(), maybe(&case.ty)?)))
                            .collect::<Result<_, &'static str>>()?,
                    ),
                    TypeDefKind::Enum(cases) => {
                        Shape::Enum(cases.cases.iter().map(|case| case.name.clone()).collect())
                    }
                    TypeDefKind::Flags(flags) => {
                        Shape::Flags(flags.flags.iter().map(|flag| flag.name.clone()).collect())
                    }
                    TypeDefKind::Future(_) => return Err("a future"),
                    TypeDefKind::Stream(_) => return Err("a stream of WASI 0.3"),
                    _ => return Err("a type of a newer component model"),
                }
            }
            _ => return Err("a type of a newer component model"),
        })
    }
}

pub(super) fn infer(
    reader: &Reader<'_>,
    interface: &str,
    name: &str,
    function: &wit_parser::Function,
) -> Result<Function, ModelError> {
    let path = format!("{interface}#{name}");
    let unsupported = |what: &str| ModelError::Unsupported {
        function: path.clone(),
        what: what.into(),
    };
    let params = function
        .params
        .iter()
        .map(|p| {
            let shape = reader.shape(&p.ty).map_err(unsupported)?;
            let passing = reader.passing(&p.ty);
            // Objects are made again where an argument is one, or a list that lends some, not where it hides one.
            if passing == Passing::Value && shape.has_handle() {
                return Err(ModelError::Carries(path.clone()));
            }
            Ok(Param {
                name: p.name.clone(),
                passing,
                shape,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let result = function.result.as_ref().map(|ty| reader.shape(ty));
    let result = result.transpose().map_err(unsupported)?;
    let made = function.result.as_ref().and_then(|ty| reader.made(ty));
    let ended = params
        .iter()
        .position(|p| matches!(p.passing, Passing::Own(_)));
    let first_borrow = params
        .iter()
        .position(|p| matches!(p.passing, Passing::Borrow(_)));
    let role = match &function.kind {
        FunctionKind::AsyncFreestanding
        | FunctionKind::AsyncMethod(_)
        | FunctionKind::AsyncStatic(_) => {
            return Err(unsupported("an async function"));
        }
        FunctionKind::Constructor(_)
        | FunctionKind::Static(_)
        | FunctionKind::Freestanding
        | FunctionKind::Method(_)
            if let Some(resource) = made
                && ended.is_none() =>
        {
            Role::Create {
                resource,
                parent: first_borrow,
            }
        }
        _ if let Some(parameter) = ended => Role::Terminal { parameter },
        FunctionKind::Method(_) => match params.first().map(|p| p.passing) {
            Some(Passing::Borrow(resource)) => Role::Method { resource },
            _ => return Err(unsupported("a method of an imported resource")),
        },
        // A function of another interface that is lent an object acts on it as a method does.
        FunctionKind::Freestanding
            if let Some(Passing::Borrow(resource)) = params.first().map(|p| p.passing) =>
        {
            Role::Method { resource }
        }
        _ => Role::Free,
    };
    let gives = match role {
        Role::Terminal { .. } => result
            .as_ref()
            .and_then(|of| of.resources().first().copied()),
        _ => None,
    };
    Ok(Function {
        interface: interface.into(),
        name: name.into(),
        params,
        result,
        role,
        gives,
        effect: Effect::None,
        keys: None,
        children: false,
        reads: false,
        result_max: None,
        argument_max: Vec::new(),
        replay: Vec::new(),
        returns: None,
        wait: None,
        wakes: false,
    })
}
