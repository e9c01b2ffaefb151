//! What is known of functions and resources, and why no stubs can be generated.

use serde::Deserialize;

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
    #[error(
        "{0} makes an object and is lent another, and the sidecar does not say that that one stays as it was"
    )]
    Maker(String),
    #[error("state {state} of {resource} cannot be reached by replay from {initial}")]
    Unreachable {
        resource: String,
        state: String,
        initial: String,
    },
    /// A slip of the pen, most often.
    #[error(
        "state {state} of {resource} stands in from, and no function leads to it: the states are {known}"
    )]
    NoWay {
        resource: String,
        state: String,
        known: String,
    },
    #[error("resource {0} has no function that makes it")]
    NoCreator(String),
    #[error("resources {0} are parents of each other")]
    Cycle(String),
    #[error("{function} keeps all its calls ({what}); their number has no bound")]
    Unbounded { function: String, what: String },
    #[error(
        "{function} is repeated when an object comes back, which needs {parameter}, and that is not remembered"
    )]
    Forgets { function: String, parameter: String },
    #[error("{function} waits to be woken by {waker}, which changes nothing that it could look at")]
    NeverWakes { function: String, waker: String },
    #[error(
        "{function} is tried until it gives {until}, and what a try changes is noted when it gives {when}"
    )]
    TryChanges {
        function: String,
        until: &'static str,
        when: &'static str,
    },
    /// `needed`: which maker takes what.
    #[error("{function} moves an object to a parent that is {found}, and {needed}")]
    OtherParent {
        function: String,
        found: String,
        needed: String,
    },
    #[error(
        "{function} gives an object of {resource} for one that it ends, and nothing says how that comes back"
    )]
    Gives { function: String, resource: String },
    #[error(
        "{0}: a result with an object inside a list, record, tuple, variant or error is not supported"
    )]
    Hides(String),
    #[error("{0}: an argument with an object inside is not supported")]
    Carries(String),
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
            Self::Maker(function) => format!(
                "[function.\"{function}\"] with effect = \"none\"; where it changes what it is lent, that in a method of its own"
            ),
            Self::Unreachable { state, .. } => format!("a function with to = \"{state}\""),
            Self::NoWay { state, .. } => {
                format!("a state that the file has, or a function with to = \"{state}\"")
            }
            Self::Unbounded { .. } => {
                "remember the state that the calls lead to, not the calls".into()
            }
            Self::Forgets {
                function,
                parameter,
            } => format!(
                "[function.\"{function}\"] with \"{parameter}\" in remember, or with a value for it in replay"
            ),
            Self::NoCreator(_) => "a constructor, or a function that returns own<T>; never = true where no function gives one".into(),
            Self::Wit(_) | Self::Sidecar(_) => {
                "see the message; the format: docs/reference/host.md".into()
            }
            Self::Unknown(_) | Self::NoParameter { .. } => {
                "the names that the WIT has; steadfast host generate --explain lists them".into()
            }
            Self::NeverWakes { .. } => {
                "woken_by with the functions whose calls bring about what it waits for".into()
            }
            Self::TryChanges { until, .. } => {
                format!("when = \"{until}\", so that a try that has to wait leaves nothing behind")
            }
            Self::OtherParent { .. } => {
                "a parameter of the kind that every maker of the object takes; an object without a parent cannot move".into()
            }
            Self::Gives { resource, .. } => format!(
                "[resource.\"{resource}\"] with identity and again; gives_none = true of the function where it never gives one"
            ),
            Self::Hides(function) => format!(
                "an object as the result, in ok or in some; or [function.\"{function}\"] with gives_one = true where its list or tuple \
                 holds one at most, gives_none = true where it never holds any"
            ),
            Self::Carries(_) => "each object as an argument of its own, or a list of borrowed ones".into(),
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
    /// A list of lent objects.
    Borrows(usize),
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
    pub(super) fn word(self) -> &'static str {
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
    /// Sets keys.
    Put {
        keys: Keys,
        data: Stored,
        when: When,
    },
    /// Takes keys away.
    Delete { keys: Keys, when: When },
    /// The object is from here on as if it were made from the object that is the argument of that place.
    Move { parent: usize, when: When },
    /// Takes a name and its data away; the name is the argument of that place.
    Remove {
        resource: usize,
        name: usize,
        when: When,
    },
    /// Looks at all objects of these resources, or at all names of a resource that has some.
    All { resources: Vec<usize> },
}

/// Which keys a call names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// The argument of that place.
    One(usize),
    /// Each item of the list that is the argument of that place: the item itself, or the first of a pair.
    Each(usize),
    /// The one that the object stands for, at its parent.
    Own,
}

impl Keys {
    /// Those among the arguments, in their order.
    pub(crate) fn named(self, args: &[Value]) -> impl Iterator<Item = &str> {
        self.items(args).iter().filter_map(|item| match item {
            Value::String(key) => Some(key.as_str()),
            Value::Tuple(pair) => match pair.first() {
                Some(Value::String(key)) => Some(key.as_str()),
                _ => None,
            },
            _ => None,
        })
    }

    /// What names them: one argument, or the items of a list.
    pub(crate) fn items(self, args: &[Value]) -> &[Value] {
        match self {
            Self::One(place) => args.get(place).map_or(&[], std::slice::from_ref),
            Self::Each(place) => match args.get(place) {
                Some(Value::List(items)) => items,
                _ => &[],
            },
            Self::Own => &[],
        }
    }
}

/// What a key is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// The argument of that place.
    Param(usize),
    /// The result, as decimal text.
    Result,
    /// What stands beside it in its pair.
    Pair,
}

/// A call that blocks: it is tried in the component, and waited for in the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Over when this holds of the result.
    pub until: When,
    /// The functions whose calls may end it.
    pub woken_by: Vec<usize>,
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
    /// Of which resource a function that ends an object may give another one.
    pub gives: Option<usize>,
    pub effect: Effect,
    /// It looks at, or changes, these keys of its object, and no other ones.
    pub keys: Option<Keys>,
    /// It looks at, or ends, what was made from its object: that comes back before the call.
    pub children: bool,
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
    /// How it blocks, where it does.
    pub wait: Option<Wait>,
    /// Whether some call waits for one of this.
    pub wakes: bool,
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
    /// What the keeper holds for each of the keys, or whether it holds it.
    Keys(Keys),
}

impl Function {
    /// `interface#name`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}#{}", self.interface, self.name)
    }

    /// Of which resource it may give an object.
    #[must_use]
    pub fn given(&self) -> Option<usize> {
        match self.role {
            Role::Create { resource, .. } => Some(resource),
            _ => self.gives,
        }
    }

    pub(super) fn unsupported(&self, what: impl Into<String>) -> ModelError {
        ModelError::Unsupported {
            function: self.path(),
            what: what.into(),
        }
    }

    /// That a condition can be read off the result: one that never holds would lose state in silence.
    pub(super) fn can_tell(&self, when: When) -> Result<(), ModelError> {
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

    /// That its result holds one object at most, where its role says so. Of a list or a tuple the sidecar must say that it is one, elsewhere
    /// that there is none; a call that gives more has failed.
    pub(super) fn gives_one(&self, one: bool, none: bool) -> Result<(), ModelError> {
        let Some(shape) = &self.result else {
            return Ok(());
        };
        let makes = matches!(self.role, Role::Create { .. });
        if self.gives.is_some()
            || shape.gives_one()
            || one && !shape.hides_object()
            || none && !makes
        {
            return Ok(());
        }
        Err(ModelError::Hides(self.path()))
    }

    pub(super) fn parameter_is(
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
    /// How its keys come back, each when somebody asks for it: the function that sets one.
    pub keys: Option<usize>,
    /// An object stands for a key of its parent: the parameter of this name in every maker.
    pub key: Option<String>,
    /// Data belong to a name, the parameter of this name in every maker, and outlive the objects.
    pub named: Option<String>,
    /// Its makers, and the resource of each maker's parent.
    pub creators: Vec<(usize, Option<usize>)>,
    /// Children end with their parent.
    pub children_end: bool,
    /// Children outlive their parent, which is made again for them, and given back again.
    pub children_stay: bool,
    /// Its objects come back by what they are, not by how they were made.
    pub identity: Option<Identity>,
    /// Its end changes what others see: a lost object comes back before it ends.
    pub closes: bool,
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

/// How objects of a resource are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The function that says what an object is.
    pub of: usize,
    /// The function that makes the object of an identity.
    pub again: usize,
    /// Which parameter of that the identity is. The others are those that every maker has.
    pub place: usize,
}

impl Model {
    /// The place of a function, by `interface#name`.
    #[must_use]
    pub fn function(&self, path: &str) -> Option<usize> {
        self.functions.iter().position(|f| f.path() == path)
    }

    pub(super) fn parameter(&self, function: usize, name: &str) -> Result<usize, ModelError> {
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
}
