//! Calls of functions that take and give numbers and objects alone, with types that are known when this program is compiled.
//!
//! wasmtime's calls with values look at the types of each one in each call. Where the types of a function are among those here, the call is
//! made with them, which takes two thirds of the time (docs/notes/restart.md).
//!
//! Invariant: a function is called with types that wasmtime has compared with its own before.
//!
//! Not covered: strings, lists, and results with an error of the interface's own; these are called with values.

#![allow(
    unsafe_code,
    reason = "wasmtime's call with types that were compared before is unsafe by signature"
)]

use wasmtime::Store;
use wasmtime::component::{ComponentNamedList, Func, Lift, Lower, ResourceAny, TypedFunc};

use super::imports::Context;
use super::value::made_place;
use crate::value::{Handle, Value};

/// Looks up an object that is an argument.
type Inner<'a> = &'a mut dyn FnMut(Handle) -> Option<ResourceAny>;

/// Calls a function of certain types. None where an argument is of another type, or names no object.
pub(super) type Quick = fn(
    Func,
    &mut Store<Context>,
    &[Value],
    Inner<'_>,
    &mut Vec<ResourceAny>,
) -> Option<wasmtime::Result<Option<Value>>>;

trait Param: Sized {
    fn of(value: &Value, inner: Inner<'_>) -> Option<Self>;
}

macro_rules! number {
    ($($kind:ident $of:ty),*) => {$(
        impl Param for $of {
            fn of(value: &Value, _: Inner<'_>) -> Option<Self> {
                match value {
                    Value::$kind(n) => Some(*n),
                    _ => None,
                }
            }
        }

        impl Given for ($of,) {
            fn give(self, _: &mut Vec<ResourceAny>) -> Option<Option<Value>> {
                Some(Some(Value::$kind(self.0)))
            }
        }

        impl Given for (Option<$of>,) {
            fn give(self, _: &mut Vec<ResourceAny>) -> Option<Option<Value>> {
                Some(Some(Value::Option(self.0.map(|n| Box::new(Value::$kind(n))))))
            }
        }
    )*};
}

number!(Bool bool, U32 u32, U64 u64);

impl Param for ResourceAny {
    fn of(value: &Value, inner: Inner<'_>) -> Option<Self> {
        match value {
            Value::Handle(handle) => inner(*handle),
            _ => None,
        }
    }
}

trait Params: Sized {
    fn of(args: &[Value], inner: Inner<'_>) -> Option<Self>;
}

macro_rules! params {
    ($($name:ident $of:ident),*) => {
        impl<$($of: Param),*> Params for ($($of,)*) {
            fn of(args: &[Value], inner: Inner<'_>) -> Option<Self> {
                let [$($name),*] = args else { return None };
                Some(($($of::of($name, inner)?,)*))
            }
        }
    };
}

params!(a A);
params!(a A, b B);
params!(a A, b B, c C);

impl Params for () {
    fn of(args: &[Value], _: Inner<'_>) -> Option<Self> {
        args.is_empty().then_some(())
    }
}

/// What a call gives: a value or none. An object is put into `made`.
trait Given {
    fn give(self, made: &mut Vec<ResourceAny>) -> Option<Option<Value>>;
}

impl Given for () {
    fn give(self, _: &mut Vec<ResourceAny>) -> Option<Option<Value>> {
        Some(None)
    }
}

impl Given for (ResourceAny,) {
    fn give(self, made: &mut Vec<ResourceAny>) -> Option<Option<Value>> {
        made_place(self.0, made).map(Some)
    }
}

fn call<P, R>(
    func: Func,
    store: &mut Store<Context>,
    args: &[Value],
    inner: Inner<'_>,
    made: &mut Vec<ResourceAny>,
) -> Option<wasmtime::Result<Option<Value>>>
where
    P: Params + ComponentNamedList + Lower + 'static,
    R: Given + ComponentNamedList + Lift + 'static,
{
    let params = P::of(args, inner)?;
    // SAFETY: `known` has compared these types with the function's. They are the image's, so each instance of it has them.
    let typed = unsafe { TypedFunc::<P, R>::new_unchecked(func) };
    match typed.call(store, params) {
        Ok(given) => given.give(made).map(Ok),
        Err(error) => Some(Err(error)),
    }
}

/// How a function with these parameters is called, if its result is one of those known here.
fn with<P>(func: Func, store: &Store<Context>) -> Option<Quick>
where
    P: Params + ComponentNamedList + Lower + 'static,
{
    macro_rules! gives {
        ($($of:ty),*) => {$(
            if func.typed::<P, $of>(store).is_ok() {
                return Some(call::<P, $of>);
            }
        )*};
    }
    gives!(
        (),
        (bool,),
        (u32,),
        (u64,),
        (ResourceAny,),
        (Option<u32>,),
        (Option<u64>,)
    );
    None
}

/// How a function is called, if its types are known here.
pub(super) fn known(func: Func, store: &Store<Context>) -> Option<Quick> {
    type Of = ResourceAny;
    let all = [
        with::<()>,
        with::<(Of,)>,
        with::<(Of, u32)>,
        with::<(Of, u64)>,
        with::<(Of, u32, u64)>,
        with::<(u32,)>,
        with::<(u64,)>,
        with::<(u32, u32, u64)>,
        with::<(u64, u32, u64)>,
    ];
    all.iter().find_map(|with| with(func, store))
}
