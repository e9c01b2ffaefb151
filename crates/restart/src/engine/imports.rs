//! What a component imports: functions of other components, called from within its own calls.
//!
//! ```text
//!   component ──import──► journal: answered before? ──yes──► the same answer
//!                              │ no
//!                              └──► edge to the other component ──► note the answer
//! ```
//!
//! A body holds objects of others by numbers of its own ([`Held`]); what a body held when it failed is given back, and its own objects ask for
//! new ones when they come back. The journal keeps what a call has asked others for. A repeated call, and the second body of two, get the same
//! answers, so that others see each call once.
//!
//! Invariants
//!  1. While a component's own code does not run, nothing of it is diverted or timed (`pad::Outside`).
//!  2. The second body reaches nobody: it gets the first one's answers, and is stopped where it asks for something else.
//!  3. A component that starts calls nobody, so no image holds a handle.
//!
//! Not covered: a repeated call that asks for something else than before. From there on its calls take effect again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_sys::pad;
use wasmtime::component::{
    Component, Linker, ResourceAny, ResourceDynamic, ResourceType, Val, types::ComponentItem,
};
use wasmtime::{AsContextMut as _, StoreContextMut};

use super::value::{from_val, to_val};
use super::watch;
use crate::value::{Handle, Value};
use crate::words::CallError;

/// Whoever answers an import.
pub(crate) trait Callee: Send + Sync {
    fn call(&self, function: usize, args: &[Value]) -> Result<Option<Value>, CallError>;
    fn discard(&self, handle: Handle) -> Result<(), CallError>;
}

/// One imported interface.
#[derive(Clone)]
pub(crate) struct Import {
    pub(crate) interface: String,
    pub(crate) functions: Vec<ImportFunction>,
    pub(crate) resources: Vec<WantedResource>,
    pub(crate) callee: Arc<dyn Callee>,
    /// What the component holds there outlives its failure.
    pub(crate) keeps: bool,
}

/// One function of it.
#[derive(Clone)]
pub(crate) struct ImportFunction {
    pub(crate) name: String,
    /// Its place at the callee.
    pub(crate) place: usize,
    /// Which of the interface's resources it gives an object of.
    pub(crate) gives: Option<usize>,
}

/// What a component asks for: interfaces, with their functions and resources.
pub(crate) struct Wanted {
    pub(crate) interface: String,
    pub(crate) functions: Vec<String>,
    pub(crate) resources: Vec<WantedResource>,
}

/// A resource of an imported interface. Two interfaces may have the same one: its type tells.
#[derive(Clone)]
pub(crate) struct WantedResource {
    pub(crate) name: String,
    ty: ResourceType,
}

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Call(usize, Vec<Value>),
    Discard(Handle),
}

#[derive(Debug)]
struct Entry {
    import: usize,
    asked: Asked,
    answer: Option<Value>,
}

/// An object of another component that is kept for an object of this one, and the question that gave it.
#[derive(Debug)]
struct Origin {
    /// None while the call that asked is under way.
    object: Option<Handle>,
    import: usize,
    asked: Asked,
    answer: Option<Value>,
}

impl Origin {
    /// What the body holds there.
    fn held(&self) -> Option<(usize, Handle)> {
        Some((self.import, self.answer.as_ref()?.handle()?))
    }
}

/// A call may ask others so often before it can no longer be repeated: some MiB of answers at most in ordinary use.
pub(crate) const ENTRIES_MAX: usize = 65_536;

/// What calls have asked others for.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Of the call under way, over all its attempts.
    kept: Vec<Entry>,
    /// Of one call of a replay.
    replay: Vec<Entry>,
    replaying: bool,
    at: usize,
    /// A second body is running.
    second: bool,
    /// More was asked than is kept.
    overflow: bool,
    /// A second body will ask the same, so nothing may be dropped.
    dual: bool,
    /// Handles of answers that a repeated call did not ask for again.
    orphans: BTreeSet<(usize, Handle)>,
    /// Nothing is kept: for measurements without stubs.
    off: bool,
    /// By import: whether what is held there outlives a failure.
    keeps: Vec<bool>,
    /// What is held at such imports.
    origins: Vec<Origin>,
    /// What failed bodies held there, until the object that it is for comes back or ends.
    saved: Vec<Origin>,
    /// Which object comes back.
    object: Option<Handle>,
    /// How often an object did not come back with what is kept for it.
    failures: BTreeMap<Handle, u32>,
}

/// What is kept for an object that has so often not come back is given back, and asked for anew: it may be what is wrong.
const KEPT_TRIES: u32 = 2;

enum Next {
    Live,
    Answer(Option<Value>),
    Differs(String),
    Full,
}

impl Journal {
    pub(crate) fn new(dual: bool) -> Self {
        Self {
            dual,
            ..Self::default()
        }
    }

    pub(crate) fn off() -> Self {
        Self {
            off: true,
            ..Self::default()
        }
    }

    /// Whose objects are kept.
    pub(crate) fn keep(&mut self, keeps: Vec<bool>) {
        self.keeps = keeps;
    }

    /// A replay brings this object back; none: no object.
    pub(crate) fn returns(&mut self, object: Option<Handle>) {
        self.object = object;
    }

    /// A call has succeeded: what it was given is for that object.
    pub(crate) fn belongs(&mut self, object: Option<Handle>) {
        for origin in self.origins.iter_mut().filter(|o| o.object.is_none()) {
            origin.object = object;
        }
        self.origins.retain(|origin| origin.object.is_some());
    }

    /// What is held no longer is not kept.
    pub(crate) fn still(&mut self, held: &BTreeSet<(usize, Handle)>) {
        self.origins
            .retain(|origin| origin.held().is_some_and(|of| held.contains(&of)));
    }

    /// What of this, which failed bodies held, is kept for an object that comes back. In the order in which it was asked for: of two equal
    /// questions the first one gets the first answer again.
    pub(crate) fn save(&mut self, held: &BTreeSet<(usize, Handle)>) -> BTreeSet<(usize, Handle)> {
        let failures = &self.failures;
        let comes_back = |object: Handle| failures.get(&object).is_none_or(|n| *n < KEPT_TRIES);
        let keep = |origin: &mut Origin| {
            origin.object.is_some_and(comes_back)
                && origin.held().is_some_and(|of| held.contains(&of))
        };
        let all: Vec<_> = self.origins.extract_if(.., keep).collect();
        let kept = all.iter().filter_map(Origin::held).collect();
        self.saved.extend(all);
        kept
    }

    /// An object has come back: what is still kept for it nobody has asked for.
    pub(crate) fn is_back(&mut self, object: Handle) -> Vec<(usize, Handle)> {
        self.failures.remove(&object);
        self.unneeded(|of| of == object)
    }

    /// An object did not come back.
    pub(crate) fn is_not_back(&mut self, object: Handle) {
        if self
            .origins
            .iter()
            .any(|origin| origin.object == Some(object))
        {
            *self.failures.entry(object).or_default() += 1;
        }
    }

    /// What was kept for objects that have ended meanwhile.
    pub(crate) fn unneeded(&mut self, ended: impl Fn(Handle) -> bool) -> Vec<(usize, Handle)> {
        if self.saved.is_empty() {
            return Vec::new();
        }
        self.failures.retain(|object, _| !ended(*object));
        let over = self
            .saved
            .extract_if(.., |origin| origin.object.is_none_or(&ended));
        over.filter_map(|origin| origin.held()).collect()
    }

    /// The answer that was kept for a question of the object that comes back.
    fn again(&mut self, import: usize, asked: &Asked) -> Option<Option<Value>> {
        let object = self.object.filter(|_| self.replaying && !self.second)?;
        let place = self.saved.iter().position(|origin| {
            origin.object == Some(object) && origin.import == import && origin.asked == *asked
        })?;
        let origin = self.saved.remove(place);
        let answer = origin.answer.clone();
        self.origins.push(origin);
        self.replay.push(Entry {
            import,
            asked: asked.clone(),
            answer: answer.clone(),
        });
        self.at += 1;
        Some(answer)
    }

    fn list(&mut self) -> &mut Vec<Entry> {
        if self.replaying {
            &mut self.replay
        } else {
            &mut self.kept
        }
    }

    /// A body begins: the first one of a replay begins with nothing.
    pub(crate) fn begin(&mut self, replaying: bool, body: usize) {
        (self.replaying, self.at, self.second) = (replaying, 0, body > 0);
        if replaying && body == 0 {
            self.replay.clear();
        }
    }

    /// Whether the call under way can be repeated.
    pub(crate) fn overflow(&self) -> bool {
        self.overflow
    }

    /// Handles that the answers of the call under way have given.
    pub(crate) fn given(&self) -> BTreeSet<(usize, Handle)> {
        let given = self.kept.iter().filter_map(|entry| {
            let handle = entry.answer.as_ref()?.handle()?;
            Some((entry.import, handle))
        });
        given.collect()
    }

    /// Handles that an attempt was given and no later one asked for.
    pub(crate) fn orphans(&mut self) -> BTreeSet<(usize, Handle)> {
        std::mem::take(&mut self.orphans)
    }

    /// A call has ended.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
        self.overflow = false;
    }

    /// Whether a call has asked for nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.orphans.is_empty() && !self.overflow
    }

    fn next(&mut self, import: usize, asked: &Asked) -> Next {
        let (at, second) = (self.at, self.second);
        let list = self.list();
        match list.get(at) {
            Some(entry) if entry.import == import && entry.asked == *asked => {
                let answer = entry.answer.clone();
                self.at += 1;
                Next::Answer(answer)
            }
            found if second => {
                let found = found.map_or_else(|| "nothing".into(), |e| format!("{:?}", e.asked));
                Next::Differs(format!(
                    "one body asked for {found}, the other one for {asked:?}"
                ))
            }
            _ => {
                let dropped = list.drain(at.min(list.len())..);
                let handles = dropped
                    .filter_map(|entry| Some((entry.import, entry.answer.as_ref()?.handle()?)));
                let handles: Vec<_> = handles.collect();
                self.orphans.extend(handles);
                if at >= ENTRIES_MAX && self.dual {
                    return Next::Full;
                }
                match self.again(import, asked) {
                    Some(answer) => Next::Answer(answer),
                    None => Next::Live,
                }
            }
        }
    }

    fn note(&mut self, entry: Entry) {
        if self.keeps.get(entry.import) == Some(&true) {
            if let Asked::Discard(handle) = entry.asked {
                let gone = Some((entry.import, handle));
                self.origins.retain(|origin| origin.held() != gone);
            }
            if entry.answer.as_ref().and_then(Value::handle).is_some() {
                self.origins.push(Origin {
                    object: self.object.filter(|_| self.replaying),
                    import: entry.import,
                    asked: entry.asked.clone(),
                    answer: entry.answer.clone(),
                });
            }
        }
        if self.overflow {
            return;
        }
        if self.list().len() >= ENTRIES_MAX {
            self.overflow = true;
            self.list().clear();
            return;
        }
        self.list().push(entry);
        self.at += 1;
    }
}

/// Why a component's call of another one has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Nested {
    #[error("{0}")]
    Callee(CallError),
    #[error("{0}")]
    Differs(String),
    #[error("a component calls others while it starts")]
    Starting,
    #[error("a handle that the component does not hold")]
    NotHeld,
}

/// Objects of others that a body holds; the number is what the component's handle stands for.
#[derive(Debug, Default)]
pub(crate) struct Held {
    places: Vec<Option<(usize, Handle)>>,
    free: Vec<u32>,
}

impl Held {
    pub(super) fn insert(&mut self, import: usize, handle: Handle) -> u32 {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some((import, handle));
            return place;
        }
        self.places.push(Some((import, handle)));
        u32::try_from(self.places.len() - 1).expect("fewer than 2^32 objects")
    }

    pub(super) fn get(&self, place: u32) -> Option<Handle> {
        let found = self.places.get(place as usize).copied().flatten();
        found.map(|(_, handle)| handle)
    }

    pub(super) fn remove(&mut self, place: u32) -> Option<Handle> {
        let (_, handle) = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(handle)
    }

    /// Everything; the numbers of what was held name nothing from here on, and are not given again.
    pub(super) fn take_all(&mut self) -> Vec<Handle> {
        let held = self.places.iter_mut().filter_map(Option::take);
        held.map(|(_, handle)| handle).collect()
    }
}

/// What a Store carries.
#[derive(Debug)]
pub(super) struct Context {
    held: Held,
    journal: Arc<Mutex<Journal>>,
    watch: watch::Cell,
    pub(super) starting: bool,
}

/// The journal, whatever happened to a thread that held it.
pub(crate) fn open(journal: &Mutex<Journal>) -> MutexGuard<'_, Journal> {
    journal.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    pub(super) fn new(journal: Arc<Mutex<Journal>>, watch: watch::Cell) -> Self {
        Self {
            held: Held::default(),
            journal,
            watch,
            starting: true,
        }
    }

    /// Objects of others that the body holds.
    pub(super) fn held(&self) -> BTreeSet<(usize, Handle)> {
        self.held.places.iter().flatten().copied().collect()
    }
}

/// What a component imports.
pub(super) fn wanted(component: &Component, engine: &wasmtime::Engine) -> Vec<Wanted> {
    let mut all = Vec::new();
    for (interface, item) in component.component_type().imports(engine) {
        let mut wanted = Wanted {
            interface: interface.into(),
            functions: Vec::new(),
            resources: Vec::new(),
        };
        if let ComponentItem::ComponentInstance(instance) = item.ty {
            for (name, item) in instance.exports(engine) {
                match item.ty {
                    ComponentItem::ComponentFunc(_) => wanted.functions.push(name.into()),
                    ComponentItem::Resource(ty) => wanted.resources.push(WantedResource {
                        name: name.into(),
                        ty,
                    }),
                    _ => {}
                }
            }
        }
        all.push(wanted);
    }
    all
}

/// Tells wasmtime who answers what.
pub(super) fn link(linker: &mut Linker<Context>, imports: &[Import]) -> wasmtime::Result<()> {
    // One number for each resource, whichever interface names it: wasmtime tells objects of different numbers apart.
    let all = imports.iter().flat_map(|import| &import.resources);
    let all: Vec<_> = all.map(|resource| resource.ty).collect();
    let number = |resource: Option<&WantedResource>| {
        let place = all
            .iter()
            .position(|ty| Some(*ty) == resource.map(|r| r.ty));
        u32::try_from(place.unwrap_or(0))
    };
    for (place, import) in imports.iter().enumerate() {
        let mut instance = linker.instance(&import.interface)?;
        for resource in &import.resources {
            let callee = import.callee.clone();
            let ty = ResourceType::host_dynamic(number(Some(resource))?);
            instance.resource(&resource.name, ty, move |mut store, rep| {
                let handle = store.data_mut().held.remove(rep);
                let handle = handle.ok_or_else(|| wasmtime::Error::new(Nested::NotHeld))?;
                ask(&store, place, &*callee, Asked::Discard(handle)).map(drop)
            })?;
        }
        for wanted in &import.functions {
            let (callee, function) = (import.callee.clone(), wanted.place);
            let ty = number(wanted.gives.and_then(|gives| import.resources.get(gives)))?;
            instance.func_new(&wanted.name, move |mut store, _, params, results| {
                let args = arguments(&mut store, params)?;
                let answer = ask(&store, place, &*callee, Asked::Call(function, args))?;
                if let Some(slot) = results.first_mut() {
                    *slot = result(&mut store, place, ty, answer)?;
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// A component's arguments: its numbers become handles; what it gives away is no longer its own.
fn arguments(
    store: &mut StoreContextMut<'_, Context>,
    params: &[Val],
) -> wasmtime::Result<Vec<Value>> {
    params.iter().map(|param| argument(store, param)).collect()
}

/// One of them: an object, a list that lends some, or a value without one.
fn argument(store: &mut StoreContextMut<'_, Context>, param: &Val) -> wasmtime::Result<Value> {
    match param {
        Val::Resource(any) => {
            let object = ResourceDynamic::try_from_resource_any(*any, store.as_context_mut())?;
            let held = &mut store.data_mut().held;
            let handle = if object.owned() {
                held.remove(object.rep())
            } else {
                held.get(object.rep())
            };
            let handle = handle.ok_or_else(|| wasmtime::Error::new(Nested::NotHeld))?;
            Ok(Value::Handle(handle))
        }
        Val::List(items) if matches!(items.first(), Some(Val::Resource(_))) => {
            let items = items.iter().map(|item| argument(store, item));
            Ok(Value::List(items.collect::<wasmtime::Result<_>>()?))
        }
        value => {
            from_val(value, &mut Vec::new()).ok_or_else(|| wasmtime::Error::new(Nested::NotHeld))
        }
    }
}

/// An answer: a handle in it becomes a number of the body's.
fn result(
    store: &mut StoreContextMut<'_, Context>,
    import: usize,
    ty: u32,
    answer: Option<Value>,
) -> wasmtime::Result<Val> {
    let answer = answer.ok_or_else(|| wasmtime::Error::new(Nested::NotHeld))?;
    let mut give = |handle: Handle| -> Option<ResourceAny> {
        let rep = store.data_mut().held.insert(import, handle);
        let own = ResourceDynamic::new_own(rep, ty);
        own.try_into_resource_any(store.as_context_mut()).ok()
    };
    to_val(&answer, &mut give).ok_or_else(|| wasmtime::Error::new(Nested::NotHeld))
}

/// Asks the other component.
pub(crate) fn put(callee: &dyn Callee, asked: &Asked) -> Result<Option<Value>, CallError> {
    match asked {
        Asked::Call(function, args) => callee.call(*function, args),
        // What was ended by its owner already is not there any more.
        Asked::Discard(handle) => match callee.discard(*handle) {
            Ok(()) | Err(CallError::Stale { .. }) => Ok(None),
            Err(error) => Err(error),
        },
    }
}

/// One question: answered from the journal, or by whoever `ask` asks.
pub(crate) fn answered(
    journal: &Mutex<Journal>,
    import: usize,
    asked: Asked,
    ask: impl FnOnce(&Asked) -> Result<Option<Value>, CallError>,
) -> Result<Option<Value>, Nested> {
    match open(journal).next(import, &asked) {
        Next::Live => {}
        Next::Answer(answer) => return Ok(answer),
        Next::Full => return Err(Nested::Callee(CallError::TooMany { max: ENTRIES_MAX })),
        Next::Differs(what) => return Err(Nested::Differs(what)),
    }
    let answer = ask(&asked).map_err(Nested::Callee)?;
    open(journal).note(Entry {
        import,
        asked,
        answer: answer.clone(),
    });
    Ok(answer)
}

/// The same from within a component's code.
fn ask(
    store: &StoreContextMut<'_, Context>,
    import: usize,
    callee: &dyn Callee,
    asked: Asked,
) -> wasmtime::Result<Option<Value>> {
    let context = store.data();
    if context.starting {
        return Err(wasmtime::Error::new(Nested::Starting));
    }
    if open(&context.journal).off {
        let answer = put(callee, &asked);
        return answer.map_err(|error| wasmtime::Error::new(Nested::Callee(error)));
    }
    let live = |asked: &Asked| {
        context.watch.end();
        let outside = pad::Outside::enter();
        let answer = put(callee, asked);
        drop(outside);
        context.watch.begin();
        answer
    };
    answered(&context.journal, import, asked, live).map_err(wasmtime::Error::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(index: u32) -> Handle {
        Handle {
            index,
            generation: 0,
        }
    }

    /// Asks, and is answered by a callee that gives this handle, if it is asked at all.
    fn ask(journal: &mut Journal, function: usize, gives: u32) -> Option<Value> {
        let asked = Asked::Call(function, Vec::new());
        match journal.next(0, &asked) {
            Next::Answer(answer) => answer,
            Next::Live => {
                let answer = Some(Value::Handle(handle(gives)));
                journal.note(Entry {
                    import: 0,
                    asked,
                    answer: answer.clone(),
                });
                answer
            }
            Next::Differs(_) | Next::Full => None,
        }
    }

    #[test]
    fn a_repeated_call_is_answered_from_the_journal_until_it_asks_for_something_else() {
        let mut journal = Journal::new(false);
        journal.begin(false, 0);
        for (function, gives) in [(1, 10), (2, 20), (3, 30)] {
            ask(&mut journal, function, gives);
        }
        journal.begin(false, 0);
        assert_eq!(
            ask(&mut journal, 1, 11),
            Some(Value::Handle(handle(10))),
            "the same question"
        );
        assert_eq!(
            ask(&mut journal, 4, 40),
            Some(Value::Handle(handle(40))),
            "another one"
        );
        assert_eq!(
            journal.given(),
            BTreeSet::from([(0, handle(10)), (0, handle(40))])
        );
        // What the first attempt was given and the second did not ask for is to be given back.
        assert_eq!(
            journal.orphans(),
            BTreeSet::from([(0, handle(20)), (0, handle(30))])
        );
        journal.clear();
        assert!(journal.is_empty());
    }

    #[test]
    fn a_second_body_reaches_nobody() {
        let mut journal = Journal::new(true);
        journal.begin(false, 0);
        ask(&mut journal, 1, 10);
        journal.begin(false, 1);
        assert_eq!(ask(&mut journal, 1, 11), Some(Value::Handle(handle(10))));
        assert_eq!(ask(&mut journal, 2, 20), None);
        // A replay has a list of its own.
        journal.begin(true, 0);
        assert_eq!(ask(&mut journal, 1, 12), Some(Value::Handle(handle(12))));
        assert_eq!(journal.given(), BTreeSet::from([(0, handle(10))]));
    }
}
