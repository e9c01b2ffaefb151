//! A component in the linker of another program: its interfaces are answered by an edge, and the program's own components import them.
//!
//! ```text
//!   the program's component ──import──► its Linker ──► number ↔ handle ──► edge ──► stub, component that comes back
//! ```
//!
//! Invariant: the program's components hold numbers of this link, never anything of the component, so a reset changes nothing for them.
//!
//! Not covered: what the program's own components lose when they trap. Their Store is theirs; [`Linked::release`] gives back what they held.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wasmtime::component::{Linker, ResourceAny, ResourceDynamic, ResourceType, Val};
use wasmtime::{AsContextMut as _, StoreContextMut};

use super::imports::{Asked, Callee, Held, Nested, put};
use super::value::{from_val, to_val};
use crate::model::Model;
use crate::value::{Handle, Value};
use crate::words::CallError;

/// What the program's components hold by one link.
pub(crate) type Numbers = Arc<Mutex<Held>>;

fn open(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_held() -> wasmtime::Error {
    wasmtime::Error::new(Nested::NotHeld)
}

fn callee(error: CallError) -> wasmtime::Error {
    wasmtime::Error::new(Nested::Callee(error))
}

/// Takes everything that is held.
pub(crate) fn take_all(held: &Numbers) -> Vec<Handle> {
    open(held).take_all()
}

/// Tells a linker who answers the interfaces of a component; functions that the edge does not allow are left out, and missed by name.
pub(crate) fn link<T: 'static>(
    linker: &mut Linker<T>,
    model: &Model,
    allowed: &[bool],
    answers: &Arc<dyn Callee>,
    held: &Numbers,
) -> wasmtime::Result<()> {
    for interface in &model.interfaces {
        let mut instance = linker.instance(interface)?;
        // An interface may use a resource of another one: its own come last, so that of two of one name it has its own.
        let mut resources: Vec<_> = model.resources.iter().enumerate().collect();
        resources.sort_by_key(|(_, resource)| resource.interface == *interface);
        for (at, (number, resource)) in resources.iter().enumerate() {
            let mut later = resources[at + 1..].iter();
            if later.any(|(_, later)| later.name == resource.name) {
                continue;
            }
            let ty = ResourceType::host_dynamic(u32::try_from(*number)?);
            let (answers, held) = (answers.clone(), held.clone());
            instance.resource(&resource.name, ty, move |_, number| {
                let handle = open(&held).remove(number).ok_or_else(not_held)?;
                put(&*answers, &Asked::Discard(handle))
                    .map(drop)
                    .map_err(callee)
            })?;
        }
        let functions = model.functions.iter().enumerate();
        for (place, function) in functions.filter(|(place, function)| {
            allowed.get(*place) == Some(&true) && function.interface == *interface
        }) {
            let ty = u32::try_from(function.given().unwrap_or(0))?;
            let (answers, held) = (answers.clone(), held.clone());
            instance.func_new(&function.name, move |mut store, _, params, results| {
                let mut given = Vec::new();
                let args = params
                    .iter()
                    .map(|param| argument(&mut store, &held, param, &mut given))
                    .collect::<wasmtime::Result<_>>()?;
                let answer = put(&*answers, &Asked::Call(place, args)).map_err(|error| {
                    // Nobody has taken them.
                    let mut held = open(&held);
                    given.iter().for_each(|handle| {
                        held.insert(0, *handle);
                    });
                    callee(error)
                })?;
                if let Some(slot) = results.first_mut() {
                    let mut give = |handle: Handle| -> Option<ResourceAny> {
                        let number = open(&held).insert(0, handle);
                        let own = ResourceDynamic::new_own(number, ty);
                        own.try_into_resource_any(store.as_context_mut()).ok()
                    };
                    let answer = answer.ok_or_else(not_held)?;
                    *slot = to_val(&answer, &mut give).ok_or_else(not_held)?;
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// An object, a list that lends some, or a value without one. What is given away goes into `given`.
fn argument<T: 'static>(
    store: &mut StoreContextMut<'_, T>,
    held: &Mutex<Held>,
    param: &Val,
    given: &mut Vec<Handle>,
) -> wasmtime::Result<Value> {
    match param {
        Val::Resource(any) => {
            let object = ResourceDynamic::try_from_resource_any(*any, store.as_context_mut())?;
            let mut held = open(held);
            let handle = if object.owned() {
                let handle = held.remove(object.rep());
                given.extend(handle);
                handle
            } else {
                held.get(object.rep())
            };
            handle.map(Value::Handle).ok_or_else(not_held)
        }
        Val::List(items) if matches!(items.first(), Some(Val::Resource(_))) => {
            let items = items.iter();
            let items = items.map(|item| argument(store, held, item, given));
            Ok(Value::List(items.collect::<wasmtime::Result<_>>()?))
        }
        value => from_val(value, &mut Vec::new()).ok_or_else(not_held),
    }
}
