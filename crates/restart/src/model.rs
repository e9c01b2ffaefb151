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

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use serde::Deserialize;
use wit_parser::{FunctionKind, Handle, Resolve, Type, TypeDefKind, TypeId, WorldItem};

use crate::shape::Shape;
use crate::value::Value;

/// Why no stubs can be generated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error("the WIT is not valid: {0}")]
    Wit(String),
    #[error("the sidecar file is not valid: {0}")]
    Sidecar(String),
    #[error("the sidecar names {0}, which the WIT does not have")]
    Unknown(String),
    #[error("{0} is a method, and the sidecar does not say what it does to its object")]
    Missing(String),
    #[error("state {state} of {resource} cannot be reached by replay from {initial}")]
    Unreachable {
        resource: String,
        state: String,
        initial: String,
    },
    #[error("resource {0} has no function that makes it")]
    NoCreator(String),
    #[error("resources {0} are parents of each other")]
    Cycle(String),
    #[error("{function} keeps all its calls ({what}); their number has no bound")]
    Unbounded { function: String, what: String },
    #[error("{function}: {what} is not supported")]
    Unsupported { function: String, what: String },
    #[error("{function} has no parameter {parameter}")]
    NoParameter { function: String, parameter: String },
}

impl ModelError {
    /// What would help.
    #[must_use]
    pub fn fix(&self) -> String {
        match self {
            Self::Missing(function) => format!(
                "[function.\"{function}\"] with effect = \"none\", or with from, to and remember"
            ),
            Self::Unreachable { state, .. } => format!("a function with to = \"{state}\""),
            Self::Unbounded { .. } => {
                "remember the state that the calls lead to, not the calls".into()
            }
            Self::NoCreator(_) => "a constructor, or a function that returns own<T>".into(),
            Self::Wit(_) | Self::Sidecar(_) => {
                "see the message; the format: docs/guide/host.md".into()
            }
            Self::Unknown(_) | Self::NoParameter { .. } => {
                "the names that the WIT has; steadfast host generate --explain lists them".into()
            }
            Self::Cycle(_) => "one of them must be makeable without the other".into(),
            Self::Unsupported { .. } => "docs/limits.md lists what is".into(),
        }
    }
}

/// What a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passing {
    Value,
    Borrow(usize),
    Own(usize),
}

/// A parameter of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    pub name: String,
    pub passing: Passing,
    pub shape: Shape,
}

/// What a function is to objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Makes an object; the parent is the parameter of that place.
    Create {
        resource: usize,
        parent: Option<usize>,
    },
    /// Acts on its first parameter.
    Method {
        resource: usize,
    },
    /// Ends the object that the parameter of that place owns.
    Terminal {
        parameter: usize,
    },
    Free,
}

/// When a call has changed its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum When {
    #[default]
    Always,
    /// It returned `ok`, or something that is no result.
    Ok,
    /// It returned true.
    True,
    /// It returned some.
    Some,
}

impl When {
    fn word(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Ok => "ok",
            Self::True => "true",
            Self::Some => "some",
        }
    }

    /// Whether it holds for a result.
    pub(crate) fn holds(self, result: Option<&Value>) -> bool {
        match (self, result) {
            (Self::Always, _) => true,
            (Self::Ok, Some(Value::Result(result))) => result.is_ok(),
            (Self::Ok, _) => true,
            (Self::True, Some(Value::Bool(b))) => *b,
            (Self::Some, Some(Value::Option(some))) => some.is_some(),
            (Self::True | Self::Some, _) => false,
        }
    }
}

/// What a call does to its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that must come back.
    None,
    /// Leads to a state; the arguments of these places are remembered for the replay.
    State {
        from: Vec<usize>,
        to: usize,
        when: When,
        remember: Vec<usize>,
    },
    /// Changes a number: `field += result`, or `field = argument`.
    Field {
        field: usize,
        add: bool,
        source: Source,
        when: When,
    },
    /// Writes data that the keeper holds: at an offset that is an argument or the end of what is there.
    Write {
        offset: Option<usize>,
        data: usize,
        when: When,
    },
    /// Cuts the data to the length that is an argument.
    Truncate { length: usize, when: When },
    /// Takes a name and its data away; the name is the argument of that place.
    Remove {
        resource: usize,
        name: usize,
        when: When,
    },
    /// Looks at every name of that resource.
    All { resource: usize },
}

/// Where a number comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Param(usize),
    Result,
}

/// A function of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub interface: String,
    pub name: String,
    pub params: Vec<Param>,
    pub result: Option<Shape>,
    pub role: Role,
    pub effect: Effect,
    /// A call that only reads may be repeated without a thought.
    pub reads: bool,
    /// Bounds of a numeric result, where the sidecar gives them.
    pub result_max: Option<u64>,
    /// Bounds of numeric arguments, by place.
    pub argument_max: Vec<(usize, u64)>,
    /// Arguments that a replay gives in place of the recorded ones.
    pub replay: Vec<(usize, Value)>,
    /// What the result must be for this state of the object (a check of results against the slot).
    pub returns: Option<Returns>,
}

/// A result that the slot table knows beforehand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Returns {
    /// The remembered argument of that function, in the state given; none elsewhere.
    Remembered {
        state: usize,
        function: usize,
        parameter: usize,
    },
    /// What the keeper holds: read back and compared.
    Data { offset: usize, length: usize },
}

impl Function {
    /// `interface#name`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}#{}", self.interface, self.name)
    }

    fn unsupported(&self, what: impl Into<String>) -> ModelError {
        ModelError::Unsupported {
            function: self.path(),
            what: what.into(),
        }
    }

    /// That a condition can be read off the result: one that never holds would lose state in silence.
    fn can_tell(&self, when: When) -> Result<(), ModelError> {
        let fits = match when {
            When::Always => true,
            When::Ok => matches!(self.result, Some(Shape::Result(..))),
            When::True => self.result == Some(Shape::Bool),
            When::Some => matches!(self.result, Some(Shape::Option(_))),
        };
        if fits {
            Ok(())
        } else {
            Err(self.unsupported(format!(
                "when = \"{}\" of a result of another type",
                when.word()
            )))
        }
    }

    fn parameter_is(
        &self,
        place: usize,
        needed: &str,
        fits: impl Fn(&Shape) -> bool,
    ) -> Result<(), ModelError> {
        let parameter = &self.params[place];
        if fits(&parameter.shape) {
            Ok(())
        } else {
            Err(self.unsupported(format!("{} is no {needed}; this use", parameter.name)))
        }
    }
}

/// A kind of object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    pub interface: String,
    pub name: String,
    pub states: Vec<String>,
    /// Functions that lead from the initial state to each state.
    pub paths: Vec<Vec<usize>>,
    pub fields: Vec<String>,
    /// Functions that are called with a field's value when the object has come back: function, parameter, field.
    pub restore: Vec<(usize, usize, usize)>,
    /// How its data come back: the function that writes.
    pub data: Option<usize>,
    /// Data belong to a name, the parameter of this name in every maker, and outlive the objects.
    pub named: Option<String>,
    /// Its makers, and the resource of each maker's parent.
    pub creators: Vec<(usize, Option<usize>)>,
    /// Children end with their parent.
    pub children_end: bool,
}

impl Resource {
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}", self.interface, self.name)
    }
}

/// How the objects of a component come back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    pub interfaces: Vec<String>,
    pub resources: Vec<Resource>,
    pub functions: Vec<Function>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Sidecar {
    #[serde(default)]
    resource: BTreeMap<String, ResourceEntry>,
    #[serde(default)]
    function: BTreeMap<String, FunctionEntry>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ResourceEntry {
    initial: Option<String>,
    #[serde(default)]
    fields: Vec<String>,
    /// field = "function(parameter)"
    #[serde(default)]
    restore: BTreeMap<String, String>,
    /// The function by which data come back.
    data: Option<String>,
    name: Option<String>,
    #[serde(default)]
    children_end: bool,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FunctionEntry {
    effect: Option<String>,
    #[serde(default)]
    from: Vec<String>,
    to: Option<String>,
    #[serde(default)]
    when: When,
    #[serde(default)]
    remember: Vec<String>,
    /// effect = "field": which, and from where ("result" or a parameter); `add` adds.
    field: Option<String>,
    source: Option<String>,
    #[serde(default)]
    add: bool,
    /// effect = "write" or "truncate".
    offset: Option<String>,
    data: Option<String>,
    length: Option<String>,
    name: Option<String>,
    #[serde(default)]
    replay: BTreeMap<String, toml::Value>,
    parent: Option<String>,
    result_max: Option<u64>,
    #[serde(default)]
    argument_max: BTreeMap<String, u64>,
    returns: Option<ReturnsEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReturnsEntry {
    /// The state in which the result is the remembered argument `parameter` of `function`.
    state: Option<String>,
    function: Option<String>,
    parameter: Option<String>,
    /// Or what the keeper holds, from the argument `offset`, at most `length` bytes.
    offset: Option<String>,
    length: Option<String>,
}

/// Types through their aliases.
fn resolved(resolve: &Resolve, mut id: TypeId) -> TypeId {
    while let TypeDefKind::Type(Type::Id(next)) = resolve.types[id].kind {
        id = next;
    }
    id
}

struct Reader<'a> {
    resolve: &'a Resolve,
    resources: Vec<TypeId>,
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
            _ => Passing::Value,
        }
    }

    /// The resource of an `own<T>` directly, in `ok` or in `some`.
    fn made(&self, ty: &Type) -> Option<usize> {
        if let Passing::Own(resource) = self.passing(ty) {
            return Some(resource);
        }
        let Type::Id(id) = ty else { return None };
        match &self.resolve.types[resolved(self.resolve, *id)].kind {
            TypeDefKind::Result(result) => result.ok.as_ref().and_then(|ok| self.made(ok)),
            TypeDefKind::Option(some) => self.made(some),
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
                        Passing::Value => return Err("an object of another component"),
                    },
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

impl Model {
    /// Reads WIT (the text of one package, or several nested ones) and a sidecar, for the interfaces that the world exports.
    ///
    /// # Errors
    /// When something cannot be brought back, with the name and what would help.
    pub fn generate(wit: &str, sidecar: &str) -> Result<Self, ModelError> {
        let mut resolve = Resolve::default();
        let package = resolve
            .push_str("component.wit", wit)
            .map_err(|error| ModelError::Wit(format!("{error:#}")))?;
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
                        named: None,
                        creators: Vec::new(),
                        children_end: false,
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

    /// The place of a function, by `interface#name`.
    #[must_use]
    pub fn function(&self, path: &str) -> Option<usize> {
        self.functions.iter().position(|f| f.path() == path)
    }

    fn complete(&mut self, sidecar: &Sidecar) -> Result<(), ModelError> {
        for name in sidecar.function.keys() {
            if self.function(name).is_none() {
                return Err(ModelError::Unknown(name.clone()));
            }
        }
        for name in sidecar.resource.keys() {
            if !self.resources.iter().any(|r| r.path() == *name) {
                return Err(ModelError::Unknown(name.clone()));
            }
        }
        for resource in &mut self.resources {
            let entry = sidecar.resource.get(&resource.path());
            resource.states.push(
                entry
                    .and_then(|e| e.initial.clone())
                    .unwrap_or_else(|| "made".into()),
            );
            resource.fields = entry.map(|e| e.fields.clone()).unwrap_or_default();
            resource.children_end = entry.is_some_and(|e| e.children_end);
            resource.named = entry.and_then(|e| e.name.clone());
        }
        for index in 0..self.functions.len() {
            self.complete_function(index, sidecar)?;
        }
        for index in 0..self.resources.len() {
            self.complete_resource(index, sidecar)?;
            self.all_given_back(index)?;
        }
        self.no_cycles()
    }

    fn parameter(&self, function: usize, name: &str) -> Result<usize, ModelError> {
        let function = &self.functions[function];
        function
            .params
            .iter()
            .position(|p| p.name == name)
            .ok_or_else(|| ModelError::NoParameter {
                function: function.path(),
                parameter: name.into(),
            })
    }

    fn complete_function(&mut self, index: usize, sidecar: &Sidecar) -> Result<(), ModelError> {
        let path = self.functions[index].path();
        let entry = sidecar.function.get(&path);
        if let Role::Create { resource, .. } = self.functions[index].role
            && let Some(name) = entry.and_then(|e| e.parent.as_ref())
        {
            let parent = Some(self.parameter(index, name)?);
            self.functions[index].role = Role::Create { resource, parent };
        }
        let Role::Method { resource } = self.functions[index].role else {
            if let Some(entry) = entry {
                self.limits(index, entry)?;
            }
            return if self.functions[index].role == Role::Free {
                self.complete_free(index, entry)
            } else {
                Ok(())
            };
        };
        let Some(entry) = entry else {
            return Err(ModelError::Missing(path));
        };
        self.limits(index, entry)?;
        let unsupported = |what: &str| ModelError::Unsupported {
            function: path.clone(),
            what: what.into(),
        };
        let effect = match entry.effect.as_deref() {
            Some("none") => {
                self.functions[index].reads = true;
                Effect::None
            }
            Some("log") => {
                return Err(ModelError::Unbounded {
                    function: path,
                    what: "effect = \"log\"".into(),
                });
            }
            Some("field") => {
                let name = entry
                    .field
                    .as_deref()
                    .ok_or_else(|| unsupported("effect = \"field\" without field"))?;
                let field = self.resources[resource]
                    .fields
                    .iter()
                    .position(|f| f == name);
                let source = match entry.source.as_deref() {
                    Some("result") | None => Source::Result,
                    Some(parameter) => Source::Param(self.parameter(index, parameter)?),
                };
                Effect::Field {
                    field: field.ok_or_else(|| ModelError::Unknown(name.into()))?,
                    add: entry.add,
                    source,
                    when: entry.when,
                }
            }
            Some("write") => {
                let data = entry
                    .data
                    .as_deref()
                    .ok_or_else(|| unsupported("effect = \"write\" without data"))?;
                let offset = entry
                    .offset
                    .as_deref()
                    .map(|name| self.parameter(index, name))
                    .transpose()?;
                Effect::Write {
                    offset,
                    data: self.parameter(index, data)?,
                    when: entry.when,
                }
            }
            Some("truncate") => {
                let length = entry
                    .length
                    .as_deref()
                    .ok_or_else(|| unsupported("effect = \"truncate\" without length"))?;
                Effect::Truncate {
                    length: self.parameter(index, length)?,
                    when: entry.when,
                }
            }
            Some("state") | None => {
                let Some(to) = entry.to.as_deref() else {
                    return Err(ModelError::Missing(path));
                };
                let to = self.state(resource, to);
                let from = entry
                    .from
                    .iter()
                    .map(|name| self.state(resource, name))
                    .collect();
                let remember = entry
                    .remember
                    .iter()
                    .map(|name| self.parameter(index, name))
                    .collect::<Result<_, _>>()?;
                Effect::State {
                    from,
                    to,
                    when: entry.when,
                    remember,
                }
            }
            Some(other) => return Err(unsupported(&format!("effect = \"{other}\""))),
        };
        let function = &self.functions[index];
        function.can_tell(entry.when)?;
        match &effect {
            Effect::Field {
                source: Source::Param(place),
                ..
            } => function.parameter_is(*place, "number", Shape::is_number)?,
            Effect::Field {
                source: Source::Result,
                ..
            } if !function.result.as_ref().is_some_and(Shape::counts) => {
                return Err(function.unsupported("a field from a result that is no number"));
            }
            Effect::Write { offset, data, .. } => {
                function.parameter_is(*data, "list<u8>", Shape::is_bytes)?;
                if let Some(place) = offset {
                    function.parameter_is(*place, "number", Shape::is_number)?;
                }
            }
            Effect::Truncate { length, .. } => {
                function.parameter_is(*length, "number", Shape::is_number)?;
            }
            _ => {}
        }
        self.functions[index].effect = effect;
        Ok(())
    }

    /// A function that is given no object may still make, look at or take away what names stand for.
    fn complete_free(
        &mut self,
        index: usize,
        entry: Option<&FunctionEntry>,
    ) -> Result<(), ModelError> {
        let path = self.functions[index].path();
        let unsupported = |what: &str| ModelError::Unsupported {
            function: path.clone(),
            what: what.into(),
        };
        let Some(entry) = entry else {
            return Err(ModelError::Missing(path));
        };
        let interface = self.functions[index].interface.clone();
        let named = self
            .resources
            .iter()
            .position(|r| r.interface == interface && r.named.is_some());
        let effect = match entry.effect.as_deref() {
            Some("none") => Effect::None,
            Some("all") => Effect::All {
                resource: named.ok_or_else(|| {
                    unsupported("effect = \"all\" without a resource that has a name")
                })?,
            },
            Some("remove") => Effect::Remove {
                resource: named.ok_or_else(|| {
                    unsupported("effect = \"remove\" without a resource that has a name")
                })?,
                name: self.parameter(index, entry.name.as_deref().unwrap_or("name"))?,
                when: entry.when,
            },
            None => return Err(ModelError::Missing(path)),
            Some(other) => {
                return Err(unsupported(&format!(
                    "effect = \"{other}\" for a function without an object"
                )));
            }
        };
        let function = &self.functions[index];
        function.can_tell(entry.when)?;
        if let Effect::Remove { name, .. } = effect {
            function.parameter_is(name, "string", |shape| *shape == Shape::String)?;
        }
        self.functions[index].effect = effect;
        Ok(())
    }

    /// The name among the arguments of a maker of a named resource.
    pub(crate) fn name_of(&self, function: usize, args: &[Value]) -> Option<(usize, String)> {
        let Role::Create { resource, .. } = self.functions[function].role else {
            return None;
        };
        let name = self.resources[resource].named.as_ref()?;
        let place = self.functions[function]
            .params
            .iter()
            .position(|p| p.name == *name)?;
        if let Value::String(text) = args.get(place)? {
            Some((resource, text.clone()))
        } else {
            None
        }
    }

    fn limits(&mut self, index: usize, entry: &FunctionEntry) -> Result<(), ModelError> {
        self.functions[index].result_max = entry.result_max;
        for (name, max) in &entry.argument_max {
            let place = self.parameter(index, name)?;
            self.functions[index].argument_max.push((place, *max));
        }
        for (name, value) in &entry.replay {
            let place = self.parameter(index, name)?;
            let value = match value {
                toml::Value::Boolean(b) => Value::Bool(*b),
                toml::Value::String(text) => Value::String(text.clone()),
                other => {
                    let what = format!("replay with {other:?}");
                    return Err(ModelError::Unsupported {
                        function: self.functions[index].path(),
                        what,
                    });
                }
            };
            let fits = |shape: &Shape| shape.fits(&value);
            self.functions[index].parameter_is(place, "value of that type", fits)?;
            self.functions[index].replay.push((place, value));
        }
        let Some(returns) = &entry.returns else {
            return Ok(());
        };
        let Role::Method { resource } = self.functions[index].role else {
            return Ok(());
        };
        self.functions[index].returns = Some(match returns {
            ReturnsEntry {
                state: Some(state),
                function: Some(function),
                parameter: Some(parameter),
                ..
            } => {
                let function = self
                    .function(function)
                    .ok_or_else(|| ModelError::Unknown(function.clone()))?;
                Returns::Remembered {
                    state: self.state(resource, state),
                    function,
                    parameter: self.parameter(function, parameter)?,
                }
            }
            ReturnsEntry {
                offset: Some(offset),
                length: Some(length),
                ..
            } => Returns::Data {
                offset: self.parameter(index, offset)?,
                length: self.parameter(index, length)?,
            },
            _ => {
                return Err(ModelError::Unsupported {
                    function: self.functions[index].path(),
                    what: "returns without state, function and parameter, or offset and length"
                        .into(),
                });
            }
        });
        Ok(())
    }

    fn state(&mut self, resource: usize, name: &str) -> usize {
        let states = &mut self.resources[resource].states;
        states.iter().position(|s| s == name).unwrap_or_else(|| {
            states.push(name.into());
            states.len() - 1
        })
    }

    fn complete_resource(&mut self, index: usize, sidecar: &Sidecar) -> Result<(), ModelError> {
        let path = self.resources[index].path();
        for (place, function) in self.functions.iter().enumerate() {
            if let Role::Create { resource, parent } = function.role
                && resource == index
            {
                let parent = parent.and_then(|p| match function.params[p].passing {
                    Passing::Borrow(of) | Passing::Own(of) => Some(of),
                    Passing::Value => None,
                });
                self.resources[index].creators.push((place, parent));
            }
        }
        if self.resources[index].creators.is_empty() {
            return Err(ModelError::NoCreator(path));
        }
        for (creator, parent) in self.resources[index].creators.clone() {
            let function = &self.functions[creator];
            if let Some(name) = &self.resources[index].named {
                let place = self.parameter(creator, name)?;
                function.parameter_is(place, "string", |shape| *shape == Shape::String)?;
            }
            // A replay makes the parent exist first, and no other object.
            let objects = function
                .params
                .iter()
                .filter(|p| p.passing != Passing::Value);
            if objects.count() > usize::from(parent.is_some()) {
                return Err(function.unsupported("an object made from two others"));
            }
        }
        // Breadth first from the initial state: the first path found is a shortest one.
        let states = self.resources[index].states.len();
        let mut paths: Vec<Option<Vec<usize>>> = vec![None; states];
        paths[0] = Some(Vec::new());
        let mut queue = VecDeque::from([0]);
        while let Some(at) = queue.pop_front() {
            let so_far = paths[at].clone().unwrap_or_default();
            for (place, function) in self.functions.iter().enumerate() {
                let (Role::Method { resource }, Effect::State { from, to, .. }) =
                    (function.role, &function.effect)
                else {
                    continue;
                };
                if resource == index
                    && (from.is_empty() || from.contains(&at))
                    && paths[*to].is_none()
                {
                    paths[*to] = Some([so_far.clone(), vec![place]].concat());
                    queue.push_back(*to);
                }
            }
        }
        for (state, path) in paths.into_iter().enumerate() {
            let Some(path) = path else {
                let resource = &self.resources[index];
                return Err(ModelError::Unreachable {
                    resource: resource.path(),
                    state: resource.states[state].clone(),
                    initial: resource.states[0].clone(),
                });
            };
            self.resources[index].paths.push(path);
        }
        self.replayable(index)?;
        let Some(entry) = sidecar.resource.get(&path) else {
            return Ok(());
        };
        let find = |model: &Self, name: &str| {
            let full = format!("{}#{name}", model.resources[index].interface);
            model
                .function(&full)
                .or_else(|| model.function(name))
                .ok_or_else(|| ModelError::Unknown(name.into()))
        };
        for (field, call) in &entry.restore {
            let (function, parameter) = call
                .strip_suffix(')')
                .and_then(|c| c.split_once('('))
                .ok_or_else(|| {
                    ModelError::Sidecar(format!(
                        "restore of {field}: function(parameter) is needed, found {call}"
                    ))
                })?;
            let function = find(self, function)?;
            let parameter = self.parameter(function, parameter)?;
            if self.functions[function].params.len() != 2 || parameter != 1 {
                return Err(
                    self.functions[function].unsupported("restore with more than one argument")
                );
            }
            self.functions[function].parameter_is(parameter, "number", Shape::is_number)?;
            let field = self.resources[index]
                .fields
                .iter()
                .position(|f| f == field)
                .ok_or_else(|| ModelError::Unknown(field.clone()))?;
            self.resources[index]
                .restore
                .push((function, parameter, field));
        }
        if let Some(data) = &entry.data {
            let function = find(self, data)?;
            let writes = &self.functions[function];
            if !matches!(
                writes.effect,
                Effect::Write {
                    offset: Some(_),
                    ..
                }
            ) || writes.params.len() != 3
            {
                return Err(writes.unsupported(
                    "data that are not given back by a function of an offset and bytes alone;",
                ));
            }
            self.resources[index].data = Some(function);
        }
        Ok(())
    }

    /// Each call of a replay finds its arguments among those remembered, by whatever way a state was reached.
    fn replayable(&self, index: usize) -> Result<(), ModelError> {
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
                    return Err(function
                        .unsupported(format!("a replay that does not remember {}", param.name)));
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
    fn all_given_back(&self, index: usize) -> Result<(), ModelError> {
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

    /// No resource needs itself to be made.
    fn no_cycles(&self) -> Result<(), ModelError> {
        let mut makeable = vec![false; self.resources.len()];
        loop {
            let mut changed = false;
            for (index, resource) in self.resources.iter().enumerate() {
                if !makeable[index]
                    && resource
                        .creators
                        .iter()
                        .any(|(_, parent)| parent.is_none_or(|p| makeable[p]))
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

    /// What was inferred and what the sidecar added, for people.
    #[must_use]
    pub fn explain(&self) -> String {
        let mut out = String::new();
        for (index, resource) in self.resources.iter().enumerate() {
            let _ = writeln!(out, "resource {}", resource.path());
            for (creator, parent) in &resource.creators {
                let parent = parent.map_or(String::new(), |p| {
                    format!(", after its parent {}", self.resources[p].name)
                });
                let _ = writeln!(
                    out,
                    "  made by      {}{parent}, with the arguments it was made with",
                    self.functions[*creator].name
                );
            }
            for (state, path) in resource.states.iter().zip(&resource.paths) {
                let path: Vec<_> = path.iter().map(|f| self.call(*f)).collect();
                let path = if path.is_empty() {
                    "nothing to replay".into()
                } else {
                    format!("replay {}", path.join(", then "))
                };
                let _ = writeln!(out, "  state {state:<10} {path}");
            }
            for (function, _, field) in &resource.restore {
                let _ = writeln!(
                    out,
                    "  field {:<10} given back by {}",
                    resource.fields[*field], self.functions[*function].name
                );
            }
            if let Some(name) = &resource.named {
                let _ = writeln!(
                    out,
                    "  name             {name}: its data outlive the objects that were made with it"
                );
            }
            if let Some(function) = resource.data {
                let _ = writeln!(
                    out,
                    "  data             kept outside with a checksum, written back by {}",
                    self.functions[function].name
                );
            }
            for function in &self.functions {
                if function.role == (Role::Method { resource: index }) {
                    let what = match &function.effect {
                        Effect::None => "changes nothing".to_owned(),
                        Effect::State { to, when, .. } => {
                            format!("leads to {}{}", resource.states[*to], condition(*when))
                        }
                        Effect::Field {
                            field, add, when, ..
                        } => {
                            format!(
                                "{} {}{}",
                                if *add { "adds to" } else { "sets" },
                                resource.fields[*field],
                                condition(*when)
                            )
                        }
                        Effect::Write { when, .. } => format!("writes data{}", condition(*when)),
                        Effect::Truncate { when, .. } => format!("cuts data{}", condition(*when)),
                        Effect::Remove { .. } | Effect::All { .. } => "concerns names".to_owned(),
                    };
                    let _ = writeln!(out, "  call             {} {what}", function.name);
                }
            }
        }
        for function in self
            .functions
            .iter()
            .filter(|f| matches!(f.role, Role::Free | Role::Terminal { .. }))
        {
            let what = match (&function.role, &function.effect) {
                (Role::Terminal { .. }, _) => "ends the object that it is given",
                (_, Effect::Remove { .. }) => "takes a name and its data away",
                (_, Effect::All { .. }) => "looks at every name, so all of them come back first",
                _ => "touches no object",
            };
            let _ = writeln!(out, "function {} {what}", function.path());
        }
        out
    }

    fn call(&self, function: usize) -> String {
        let function = &self.functions[function];
        let Effect::State { remember, .. } = &function.effect else {
            return function.name.clone();
        };
        let names: Vec<_> = remember
            .iter()
            .map(|p| function.params[*p].name.as_str())
            .collect();
        if names.is_empty() {
            function.name.clone()
        } else {
            format!("{} with the remembered {}", function.name, names.join(", "))
        }
    }
}

fn condition(when: When) -> &'static str {
    match when {
        When::Always => "",
        When::Ok => " if it returns ok",
        When::True => " if it returns true",
        When::Some => " if it returns some",
    }
}

fn infer(
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
            // Objects are made again where an argument is one, not where it hides one.
            if !matches!(shape, Shape::Handle(_)) && shape.has_handle() {
                return Err(unsupported("an argument with an object inside"));
            }
            Ok(Param {
                name: p.name.clone(),
                passing: reader.passing(&p.ty),
                shape,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let result = function.result.as_ref().map(|ty| reader.shape(ty));
    let result = result.transpose().map_err(unsupported)?;
    if result.as_ref().is_some_and(|shape| !shape.gives_one()) {
        return Err(unsupported(
            "a result with an object inside a list, record, tuple, variant or error",
        ));
    }
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
        _ if made.is_some() && ended.is_some() => {
            return Err(unsupported(
                "a function that takes one object and gives another",
            ));
        }
        FunctionKind::Constructor(_)
        | FunctionKind::Static(_)
        | FunctionKind::Freestanding
        | FunctionKind::Method(_)
            if let Some(resource) = made =>
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
        _ => Role::Free,
    };
    Ok(Function {
        interface: interface.into(),
        name: name.into(),
        params,
        result,
        role,
        effect: Effect::None,
        reads: false,
        result_max: None,
        argument_max: Vec::new(),
        replay: Vec::new(),
        returns: None,
    })
}
