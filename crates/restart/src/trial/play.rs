//! Makes drawn calls, with and without crashes, and tells the answers in words that do not depend on handles.

use std::collections::BTreeMap;

use super::Tried;
use crate::host::{CallError, Edge};
use crate::model::Model;
use crate::value::{Handle, Value};

/// A call, or an object that is given back. In arguments and answers an object is named by the step that made it.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) id: u32,
    pub(super) act: Act,
}

#[derive(Debug, Clone)]
pub(super) enum Act {
    Call(usize, Vec<Value>),
    Discard(u32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Gave(Option<Value>),
    /// By the host, before or instead of the call.
    Refused(String),
    /// The component has failed by itself.
    Failed(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    Before,
    /// At the return: the work is done, and nothing of it is noted.
    Within,
}

/// Where the component crashes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crash {
    pub(super) moment: Moment,
    /// What it uses crashes as well.
    pub(super) all: bool,
    /// At one step alone.
    pub(super) only: Option<u32>,
}

pub(super) fn name(id: u32) -> Value {
    Value::Handle(Handle {
        index: id,
        generation: 0,
    })
}

/// The handles in a value, each replaced; none where one has no other name.
fn renamed(value: &mut Value, of: &mut dyn FnMut(Handle) -> Option<Handle>) -> Option<()> {
    match value {
        Value::Handle(handle) => *handle = of(*handle)?,
        Value::Option(Some(inner))
        | Value::Result(Ok(Some(inner)) | Err(Some(inner)))
        | Value::Variant(_, Some(inner)) => renamed(inner, of)?,
        Value::List(items) | Value::Tuple(items) => {
            items.iter_mut().try_for_each(|item| renamed(item, of))?;
        }
        Value::Record(fields) => {
            let mut values = fields.iter_mut().map(|(_, value)| value);
            values.try_for_each(|value| renamed(value, of))?;
        }
        _ => {}
    }
    Some(())
}

/// A component that is played with.
pub(super) struct Play {
    tried: Tried,
    handles: BTreeMap<u32, Handle>,
    pub(super) crashes: u64,
}

impl Play {
    pub(super) fn new(tried: Tried) -> Self {
        Self {
            tried,
            handles: BTreeMap::new(),
            crashes: 0,
        }
    }

    pub(super) fn edge(&self) -> &Edge {
        &self.tried.edge
    }

    fn crash(&mut self, crash: Crash) -> Result<(), CallError> {
        let others = self.tried.others.iter().filter(|_| crash.all);
        for edge in others.chain([&self.tried.edge]) {
            match crash.moment {
                Moment::Before => edge.reset()?,
                Moment::Within => edge.fail_once()?,
            }
            self.crashes += 1;
        }
        Ok(())
    }

    /// Makes one step. None where it needs an object that is not there.
    pub(super) fn step(&mut self, step: &Step, crash: Option<Crash>) -> Option<Answer> {
        if let Some(crash) = crash
            && crash.only.is_none_or(|only| only == step.id)
            && let Err(error) = self.crash(crash)
        {
            return Some(Answer::Failed(error.to_string()));
        }
        let outcome = match &step.act {
            Act::Call(function, args) => {
                let mut args = args.clone();
                let handles = &self.handles;
                let mut own = |handle: Handle| handles.get(&handle.index).copied();
                args.iter_mut().try_for_each(|arg| renamed(arg, &mut own))?;
                self.tried.edge.call(*function, &args)
            }
            Act::Discard(id) => {
                let handle = self.handles.remove(id)?;
                self.tried.edge.discard(handle).map(|()| None)
            }
        };
        Some(match outcome {
            Ok(mut value) => {
                let handles = &mut self.handles;
                if let Some(value) = &mut value {
                    renamed(value, &mut |handle| {
                        handles.insert(step.id, handle);
                        name(step.id).handle()
                    })?;
                }
                Answer::Gave(value)
            }
            Err(
                error @ (CallError::Poison { .. }
                | CallError::Failed { .. }
                | CallError::Callee { .. }
                | CallError::TooLong { .. }
                | CallError::Dead { .. }
                | CallError::GaveUp { .. }
                | CallError::Resting { .. }),
            ) => Answer::Failed(error.to_string()),
            Err(error) => Answer::Refused(error.to_string()),
        })
    }
}

/// A value for people.
fn show(value: &Value) -> String {
    match value {
        Value::Handle(handle) => format!("#{}", handle.index),
        Value::Option(Some(inner)) => format!("some({})", show(inner)),
        Value::Option(None) => "none".into(),
        Value::Result(Ok(inner)) => {
            format!("ok({})", inner.as_deref().map(show).unwrap_or_default())
        }
        Value::Result(Err(inner)) => {
            format!("err({})", inner.as_deref().map(show).unwrap_or_default())
        }
        Value::Variant(name, inner) => match inner {
            Some(inner) => format!("{name}({})", show(inner)),
            None => name.clone(),
        },
        Value::Enum(name) => name.clone(),
        Value::String(text) => format!("{text:?}"),
        Value::Bytes(bytes) => format!("{bytes:02x?}"),
        Value::List(items) | Value::Tuple(items) => {
            let items: Vec<_> = items.iter().map(show).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Record(fields) => {
            let fields = fields.iter();
            let fields: Vec<_> = fields.map(|(n, v)| format!("{n}: {}", show(v))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Flags(names) => format!("{{{}}}", names.join(", ")),
        Value::Bool(b) => b.to_string(),
        Value::Char(c) => format!("{c:?}"),
        other => match other.number() {
            Some(n) => n.to_string(),
            None => format!("{other:?}"),
        },
    }
}

pub(super) fn show_answer(answer: &Answer) -> String {
    match answer {
        Answer::Gave(None) => "nothing".into(),
        Answer::Gave(Some(value)) => show(value),
        Answer::Refused(why) | Answer::Failed(why) => why.clone(),
    }
}

pub(super) fn show_step(step: &Step, model: &Model) -> String {
    match &step.act {
        Act::Call(function, args) => {
            let args: Vec<_> = args.iter().map(show).collect();
            let name = &model.functions[*function].name;
            format!("#{} {name}({})", step.id, args.join(", "))
        }
        Act::Discard(id) => format!("#{} give back #{id}", step.id),
    }
}
