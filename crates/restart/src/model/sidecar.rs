//! The sidecar file: what the WIT does not say, held against what it does.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;

use super::words::{
    Effect, Keys, Model, ModelError, Passing, Returns, Role, Source, Stored, Wait, When,
};
use crate::shape::Shape;
use crate::value::Value;

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Sidecar {
    #[serde(default)]
    resource: BTreeMap<String, ResourceEntry>,
    #[serde(default)]
    function: BTreeMap<String, FunctionEntry>,
    /// What a generated test gives for parameters and fields of that name.
    #[serde(default)]
    pub(super) test: BTreeMap<String, Vec<toml::Value>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct ResourceEntry {
    initial: Option<String>,
    #[serde(default)]
    fields: Vec<String>,
    /// field = "function(parameter)"
    #[serde(default)]
    restore: BTreeMap<String, String>,
    /// The function by which data come back.
    data: Option<String>,
    name: Option<String>,
    /// A parameter of its makers: the key of its parent that it stands for.
    key: Option<String>,
    #[serde(default)]
    children_end: bool,
    #[serde(default)]
    children_stay: bool,
    /// The function that says what an object is, and the one that makes the object of that.
    pub(super) identity: Option<String>,
    pub(super) again: Option<String>,
    #[serde(default)]
    closes: bool,
    /// No function gives one.
    #[serde(default)]
    never: bool,
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
    /// effect = "put" or "delete", or a function that looks at one key alone; or at each of a list.
    key: Option<String>,
    keys: Option<String>,
    #[serde(default)]
    replay: BTreeMap<String, toml::Value>,
    parent: Option<String>,
    /// What was made from the object comes back first.
    #[serde(default)]
    children: bool,
    result_max: Option<u64>,
    #[serde(default)]
    argument_max: BTreeMap<String, u64>,
    /// The list in its result never holds more than one object.
    #[serde(default)]
    gives_one: bool,
    /// Its result never holds an object, although its type does.
    #[serde(default)]
    gives_none: bool,
    returns: Option<ReturnsEntry>,
    /// The call blocks until this holds of its result, and calls of these functions end that.
    until: Option<When>,
    #[serde(default)]
    woken_by: Vec<String>,
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
    /// Or what it holds for the key, or for each of a list.
    key: Option<String>,
    keys: Option<String>,
}

const PAIRS: &str = "list<tuple<string, list<u8>>>";

impl Model {
    pub(super) fn complete(&mut self, sidecar: &Sidecar) -> Result<(), ModelError> {
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
            resource.children_stay = entry.is_some_and(|e| e.children_stay);
            resource.closes = entry.is_some_and(|e| e.closes);
            resource.named = entry.and_then(|e| e.name.clone());
            resource.key = entry.and_then(|e| e.key.clone());
        }
        for index in 0..self.functions.len() {
            self.complete_function(index, sidecar)?;
        }
        for (name, entry) in &sidecar.function {
            if let Some(index) = self.function(name) {
                self.blocks(index, entry)?;
            }
        }
        for index in 0..self.resources.len() {
            self.complete_resource(index, sidecar)?;
            self.all_given_back(index)?;
            self.movable(index)?;
        }
        for index in 0..self.resources.len() {
            self.stands_for_a_key(index)?;
            self.may_stay(index)?;
        }
        for function in &self.functions {
            self.may_give(function)?;
        }
        self.no_cycles()
    }

    fn complete_function(&mut self, index: usize, sidecar: &Sidecar) -> Result<(), ModelError> {
        let path = self.functions[index].path();
        let entry = sidecar.function.get(&path);
        let told = |of: fn(&FunctionEntry) -> bool| entry.is_some_and(of);
        if told(|e| e.gives_none) {
            self.functions[index].gives = None;
        }
        self.functions[index].gives_one(told(|e| e.gives_one), told(|e| e.gives_none))?;
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
            if self.functions[index].role == Role::Free {
                return self.complete_free(index, entry);
            }
            self.changes_no_other(index, entry)?;
            return entry.map_or(Ok(()), |entry| self.keys_of_another(index, entry));
        };
        let Some(entry) = entry else {
            return Err(ModelError::Missing(path));
        };
        self.limits(index, entry)?;
        let unsupported = |what: &str| ModelError::Unsupported {
            function: path.clone(),
            what: what.into(),
        };
        let keys = self.keys(index, entry.key.as_deref(), entry.keys.as_deref())?;
        let own = self.resources[resource].key.as_ref().map(|_| Keys::Own);
        let changes = matches!(entry.effect.as_deref(), Some("put" | "delete"));
        let keys = keys.or(own.filter(|_| changes));
        self.functions[index].keys = keys;
        let keyed = || keys.ok_or_else(|| unsupported("a change of a key without key"));
        let effect = match entry.effect.as_deref() {
            Some("put") => Effect::Put {
                keys: keyed()?,
                data: match (entry.data.as_deref(), entry.source.as_deref()) {
                    (Some(data), None) if entry.keys.as_deref() == Some(data) => Stored::Pair,
                    (Some(data), None) => Stored::Param(self.parameter(index, data)?),
                    (None, Some("result")) => Stored::Result,
                    _ => return Err(unsupported("effect = \"put\" without data")),
                },
                when: entry.when,
            },
            Some("delete") => Effect::Delete {
                keys: keyed()?,
                when: entry.when,
            },
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
            Some("move") => {
                let parent = entry.parent.as_deref();
                let parent =
                    parent.ok_or_else(|| unsupported("effect = \"move\" without parent"))?;
                Effect::Move {
                    parent: self.parameter(index, parent)?,
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
            Effect::Put {
                data: Stored::Param(place),
                ..
            } => function.parameter_is(*place, "list<u8>", Shape::is_bytes)?,
            Effect::Put {
                keys: Keys::Each(place),
                data: Stored::Pair,
                ..
            } => function.parameter_is(*place, PAIRS, Shape::is_pairs)?,
            Effect::Put {
                data: Stored::Result,
                ..
            } if !function.result.as_ref().is_some_and(Shape::is_decimal) => {
                return Err(function.unsupported("a key from a result that is no number"));
            }
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

    /// Which keys a call names: one, or each of a list.
    fn keys(
        &self,
        index: usize,
        one: Option<&str>,
        each: Option<&str>,
    ) -> Result<Option<Keys>, ModelError> {
        let function = &self.functions[index];
        match (one, each) {
            (None, None) => Ok(None),
            (Some(name), None) => {
                let place = self.parameter(index, name)?;
                function.parameter_is(place, "string", |shape| *shape == Shape::String)?;
                Ok(Some(Keys::One(place)))
            }
            (None, Some(name)) => {
                let place = self.parameter(index, name)?;
                let lists = |shape: &Shape| {
                    shape.is_pairs() || *shape == Shape::List(Box::new(Shape::String))
                };
                function.parameter_is(place, &format!("list<string> or {PAIRS}"), lists)?;
                Ok(Some(Keys::Each(place)))
            }
            (Some(_), Some(_)) => Err(function.unsupported("key beside keys")),
        }
    }

    /// A maker may look at a key of the object that it is lent. A function that ends an object which stands for a key may set that, or take it
    /// away.
    fn keys_of_another(&mut self, index: usize, entry: &FunctionEntry) -> Result<(), ModelError> {
        let keys = self.keys(index, entry.key.as_deref(), entry.keys.as_deref())?;
        let function = &self.functions[index];
        let stands = |of: usize| self.resources[of].key.is_some();
        let ended = match function.role {
            Role::Terminal { parameter } => match function.params[parameter].passing {
                Passing::Own(of) => Some(of),
                _ => None,
            },
            _ => {
                if keys.is_some()
                    && !matches!(
                        function.role,
                        Role::Create {
                            parent: Some(_),
                            ..
                        }
                    )
                {
                    return Err(function.unsupported("a key of an object that it is not lent"));
                }
                self.functions[index].keys = keys;
                return Ok(());
            }
        };
        let (data, when) = (entry.data.as_deref(), entry.when);
        let effect = match entry.effect.as_deref() {
            Some("put") => {
                let data =
                    data.ok_or_else(|| function.unsupported("effect = \"put\" without data"))?;
                let data = self.parameter(index, data)?;
                function.parameter_is(data, "list<u8>", Shape::is_bytes)?;
                Effect::Put {
                    keys: Keys::Own,
                    data: Stored::Param(data),
                    when,
                }
            }
            Some("delete") => Effect::Delete {
                keys: Keys::Own,
                when,
            },
            _ if keys.is_some() => {
                return Err(function.unsupported("a key of an object that it ends"));
            }
            _ => return Ok(()),
        };
        if keys.is_some() || !ended.is_some_and(stands) {
            return Err(function.unsupported(
                "a change of a key other than the one that the object which it ends stands for",
            ));
        }
        function.can_tell(when)?;
        let function = &mut self.functions[index];
        (function.effect, function.keys) = (effect, Some(Keys::Own));
        Ok(())
    }

    /// A call that blocks, and what ends that. A try that has to wait may leave nothing behind, since it is made again.
    fn blocks(&mut self, index: usize, entry: &FunctionEntry) -> Result<(), ModelError> {
        let function = &self.functions[index];
        let (until, woken_by) = match (entry.until, entry.woken_by.is_empty()) {
            (None, true) => return Ok(()),
            (Some(until), false) if until != When::Always => (until, &entry.woken_by),
            _ => {
                return Err(
                    function.unsupported("until without woken_by, or woken_by without until")
                );
            }
        };
        function.can_tell(until)?;
        if !matches!(function.role, Role::Method { .. } | Role::Free) {
            return Err(function.unsupported("a wait of a function that makes or ends an object"));
        }
        let noted = match &function.effect {
            Effect::None | Effect::All { .. } => until,
            Effect::State { when, .. }
            | Effect::Field { when, .. }
            | Effect::Write { when, .. }
            | Effect::Truncate { when, .. }
            | Effect::Put { when, .. }
            | Effect::Delete { when, .. }
            | Effect::Move { when, .. }
            | Effect::Remove { when, .. } => *when,
        };
        if noted != until {
            return Err(ModelError::TryChanges {
                function: function.path(),
                until: until.word(),
                when: noted.word(),
            });
        }
        let mut wakers = Vec::new();
        for name in woken_by {
            let full = format!("{}#{name}", self.functions[index].interface);
            let found = self.function(&full).or_else(|| self.function(name));
            let waker = found.ok_or_else(|| ModelError::Unknown(name.clone()))?;
            let of = &self.functions[waker];
            let looks = matches!(of.effect, Effect::None | Effect::All { .. });
            if looks && matches!(of.role, Role::Method { .. } | Role::Free) {
                return Err(ModelError::NeverWakes {
                    function: self.functions[index].path(),
                    waker: of.path(),
                });
            }
            self.functions[waker].wakes = true;
            wakers.push(waker);
        }
        self.functions[index].wait = Some(Wait {
            until,
            woken_by: wakers,
        });
        Ok(())
    }

    /// A function that makes or ends an object is replayed as that alone: what else it changed would be lost in silence.
    fn changes_no_other(
        &self,
        index: usize,
        entry: Option<&FunctionEntry>,
    ) -> Result<(), ModelError> {
        let function = &self.functions[index];
        let none = entry.is_some_and(|e| e.effect.as_deref() == Some("none"));
        let ends = matches!(function.role, Role::Terminal { .. });
        let keyed =
            |e: &&FunctionEntry| ends && matches!(e.effect.as_deref(), Some("put" | "delete"));
        let entry = entry.filter(|e| !keyed(e));
        let says = |e: &FunctionEntry| {
            e.effect.is_some() || e.to.is_some() || !e.from.is_empty() || !e.remember.is_empty()
        };
        if !none && entry.is_some_and(says) {
            return Err(function
                .unsupported("a change of state by a function that makes or ends an object"));
        }
        let lent =
            |p: &super::words::Param| matches!(p.passing, Passing::Borrow(_) | Passing::Borrows(_));
        if matches!(function.role, Role::Create { .. }) {
            let silent = !none && function.params.iter().any(lent);
            return match silent {
                true => Err(ModelError::Maker(function.path())),
                false => Ok(()),
            };
        }
        let objects = |own: bool| {
            let given = function.params.iter().filter(move |p| match p.passing {
                Passing::Value => false,
                Passing::Borrow(_) | Passing::Borrows(_) => !own,
                Passing::Own(_) => own,
            });
            given.count()
        };
        if objects(true) > 1 {
            return Err(function.unsupported("a function that ends two objects"));
        }
        if objects(false) > 0 && !none {
            return Err(function.unsupported(
                "an object that takes another one in (effect = \"none\" says that it stays as it was)",
            ));
        }
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
        let all: Vec<_> = (0..self.resources.len())
            .filter(|place| self.resources[*place].interface == interface)
            .collect();
        let effect = match entry.effect.as_deref() {
            Some("none") => Effect::None,
            Some("all") if all.is_empty() => {
                return Err(unsupported(
                    "effect = \"all\" in an interface without a resource",
                ));
            }
            Some("all") => Effect::All { resources: all },
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

    fn limits(&mut self, index: usize, entry: &FunctionEntry) -> Result<(), ModelError> {
        self.functions[index].result_max = entry.result_max;
        for (name, max) in &entry.argument_max {
            let place = self.parameter(index, name)?;
            self.functions[index].argument_max.push((place, *max));
        }
        if entry.children {
            let into = entry.parent.as_deref();
            let into = into.filter(|_| entry.effect.as_deref() == Some("move"));
            let into = into.map(|name| self.parameter(index, name)).transpose()?;
            let of = match self.functions[index].role {
                // A move looks at what stands there already.
                Role::Method { .. } if let Some(into) = into => {
                    match self.functions[index].params[into].passing {
                        Passing::Borrow(of) => Some(of),
                        Passing::Own(_) | Passing::Borrows(_) | Passing::Value => None,
                    }
                }
                Role::Method { resource } => Some(resource),
                Role::Terminal { parameter } => {
                    match self.functions[index].params[parameter].passing {
                        Passing::Own(of) => Some(of),
                        Passing::Borrow(_) | Passing::Borrows(_) | Passing::Value => None,
                    }
                }
                Role::Create { .. } | Role::Free => None,
            };
            let makes = |f: &super::words::Function| match f.role {
                Role::Create {
                    parent: Some(place),
                    ..
                } => matches!(f.params[place].passing, Passing::Borrow(r) if Some(r) == of),
                _ => false,
            };
            if !self.functions.iter().any(makes) {
                return Err(self.functions[index]
                    .unsupported("children = true where nothing is made from the object"));
            }
            self.functions[index].children = true;
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
            ReturnsEntry {
                key: Some(key),
                keys: None,
                ..
            } => Returns::Keys(Keys::One(self.parameter(index, key)?)),
            ReturnsEntry {
                keys: Some(keys), ..
            } => {
                let place = self.parameter(index, keys)?;
                let function = &self.functions[index];
                if !function.result.as_ref().is_some_and(Shape::tells_each) {
                    return Err(function.unsupported(
                        "returns of keys by a result that is no list with an option or a bool for each;",
                    ));
                }
                Returns::Keys(Keys::Each(place))
            }
            _ => {
                return Err(ModelError::Unsupported {
                    function: self.functions[index].path(),
                    what: "returns without state, function and parameter, or offset and length, or key"
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

    /// What was given back is made again and given back again, unseen: neither its end nor its keys may be anybody else's business.
    fn may_stay(&self, index: usize) -> Result<(), ModelError> {
        let resource = &self.resources[index];
        let beside = [
            (resource.children_end, "children_end"),
            (resource.closes, "closes"),
            (resource.keys.is_some(), "keys"),
        ];
        match beside.iter().find(|(found, _)| *found) {
            Some((_, what)) if resource.children_stay => Err(ModelError::Unsupported {
                function: resource.path(),
                what: format!("children_stay beside {what}"),
            }),
            _ => Ok(()),
        }
    }

    fn complete_resource(&mut self, index: usize, sidecar: &Sidecar) -> Result<(), ModelError> {
        let path = self.resources[index].path();
        for (place, function) in self.functions.iter().enumerate() {
            if let Role::Create { resource, parent } = function.role
                && resource == index
            {
                let parent = parent.and_then(|p| match function.params[p].passing {
                    Passing::Borrow(of) | Passing::Own(of) => Some(of),
                    Passing::Borrows(_) | Passing::Value => None,
                });
                self.resources[index].creators.push((place, parent));
            }
        }
        if let Some(entry) = sidecar.resource.get(&path) {
            self.identity(index, entry)?;
        }
        let never = sidecar.resource.get(&path).is_some_and(|e| e.never);
        match (self.resources[index].creators.first(), never) {
            (None, false) => return Err(ModelError::NoCreator(path)),
            (Some((creator, _)), true) => {
                return Err(self.functions[*creator]
                    .unsupported("an object of a resource with never = true"));
            }
            _ => {}
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
        self.all_led_to(index)?;
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
            if let Effect::Put {
                keys: Keys::One(_),
                data: Stored::Param(_),
                ..
            } = writes.effect
                && writes.params.len() == 3
            {
                self.resources[index].keys = Some(function);
                return Ok(());
            }
            let alone = match writes.effect {
                Effect::Write { offset, .. } => 2 + usize::from(offset.is_some()),
                _ => 0,
            };
            if writes.params.len() != alone {
                return Err(writes.unsupported(
                    "data that are not given back by a function of bytes alone, with their offset or appended;",
                ));
            }
            self.resources[index].data = Some(function);
        }
        Ok(())
    }
}
