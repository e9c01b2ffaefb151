//! What one version of a component is made of: image, bodies, spare, and who answers its imports.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use super::component::{ASSERTION, Answer, CONSOLE, Component, Console, Stream};
use crate::body::{Body, Maker};
use crate::engine::{
    Callee, Engine, Image, Import, ImportFunction, Journal, Limits, LoadError, Mold, Wanted,
};
use crate::model::{Model, Passing};
use crate::process::{Function, Start};
use crate::value::{Handle, Value};
use crate::words::CallError;

/// Bodies that stand ready.
type Spare = Arc<Mutex<Option<Vec<Body>>>>;
/// Takes bodies that are to be prepared again, and whether a reset in place is not enough.
pub(super) type Refill = mpsc::Sender<(Vec<Body>, bool)>;

/// One version, started.
pub(super) struct Parts {
    pub(super) image: Arc<Image>,
    pub(super) bodies: Vec<Body>,
    pub(super) spare: Spare,
    pub(super) worker: Option<Refill>,
    pub(super) imports: Vec<Import>,
    pub(super) journal: Arc<Mutex<Journal>>,
}

impl Parts {
    /// Loads and starts it. Its functions have the order of `model`, which need not be the component's own.
    pub(super) fn new(
        engine: &Engine,
        component: &Component,
        model: &Model,
    ) -> Result<Self, LoadError> {
        let code = Arc::new(engine.load(&component.image)?);
        code.fits(&component.name, model)?;
        let limits = Limits {
            memory: component.memory_bytes,
            call: component.call_limit,
        };
        let imports = imports(component, &code.wanted())?;
        let mut journal = Journal::new(component.policy.dual);
        journal.keep(imports.iter().map(|import| import.keeps).collect());
        let journal = Arc::new(Mutex::new(journal));
        let maker = match &component.process {
            None => {
                let functions = model.functions.iter();
                let functions = functions.map(|f| (f.interface.clone(), f.name.clone()));
                let functions: Vec<_> = functions.collect();
                let init = component.init.as_deref();
                Maker::Here(Arc::new(Mold::new(
                    &component.name,
                    code,
                    &functions,
                    &imports,
                    init,
                    limits,
                )?))
            }
            // Mapped here for what it imports; its code never runs here.
            Some(process) => Maker::There {
                process: process.clone(),
                start: Arc::new(start(engine, component, model, limits)),
                imports: imports.clone(),
            },
        };
        let (first, image) = maker.make(None, &journal)?;
        let image = Arc::new(image);
        let mut bodies = vec![first];
        if component.policy.dual {
            bodies.push(maker.make(Some(&image), &journal)?.0);
        }
        // Every body starts from the image, the first one included: two must not differ by how they were made.
        for body in &mut bodies {
            body.reset(&image, false)
                .map_err(|found| LoadError::Start {
                    component: component.name.clone(),
                    found,
                })?;
        }
        let (spare, worker) = if component.policy.spare {
            spares(&maker, &image, &journal, bodies.len())?
        } else {
            (Spare::default(), None)
        };
        Ok(Self {
            image,
            bodies,
            spare,
            worker,
            imports,
            journal,
        })
    }
}

/// What a process of its own needs to know.
fn start(engine: &Engine, component: &Component, model: &Model, limits: Limits) -> Start {
    let own = |params: &[crate::model::Param]| {
        let places = params.iter().enumerate();
        let own = places.filter(|(_, param)| matches!(param.passing, Passing::Own(_)));
        own.map(|(place, _)| place).collect()
    };
    let functions = model.functions.iter().map(|function| Function {
        interface: function.interface.clone(),
        name: function.name.clone(),
        own: own(&function.params),
        result: function.result.clone(),
    });
    Start {
        name: component.name.clone(),
        image: component.image.clone(),
        functions: functions.collect(),
        init: component.init.clone(),
        limits,
        pad: engine.pad(),
        memories: OnceLock::new(),
    }
}

/// Between two tries of a spare.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Bodies that stand ready, and the thread that prepares them again.
fn spares(
    maker: &Maker,
    image: &Arc<Image>,
    journal: &Arc<Mutex<Journal>>,
    count: usize,
) -> Result<(Spare, Option<Refill>), LoadError> {
    let made = (0..count)
        .map(|_| maker.make(Some(image), journal).map(|(body, _)| body))
        .collect::<Result<Vec<_>, _>>()?;
    let spare = Arc::new(Mutex::new(Some(made)));
    let (sender, receiver) = mpsc::channel::<(Vec<Body>, bool)>();
    let (image, filled) = (image.clone(), spare.clone());
    let here = matches!(maker, Maker::Here(_));
    let refill = move || {
        if here {
            steadfast_sys::cpu::run_when_idle();
        }
        for (mut bodies, anew) in receiver {
            // A second fault here costs a try, not the spare.
            let mut ready =
                |body: &mut Body| (0..3).any(|tries| body.reset(&image, anew || tries > 0).is_ok());
            // No others are sent before these are taken, so they are tried again until the host has ended.
            let mut pause = PAUSE_MIN;
            while !bodies.iter_mut().all(&mut ready) && Arc::strong_count(&filled) > 1 {
                std::thread::sleep(pause);
                pause = PAUSE_MAX.min(pause * 2);
            }
            *filled.lock().unwrap_or_else(PoisonError::into_inner) = Some(bodies);
        }
    };
    let spawned = std::thread::Builder::new()
        .name("host-spare".into())
        .spawn(refill);
    spawned.map_err(|source| LoadError::System {
        what: "the thread that prepares spares does not start",
        source,
    })?;
    Ok((spare, Some(sender)))
}

struct Asserts;

impl Callee for Asserts {
    fn call(&self, _: usize, args: &[Value]) -> Result<Option<Value>, CallError> {
        let text = match args.first() {
            Some(Value::String(text)) => text.clone(),
            _ => String::new(),
        };
        Err(CallError::Asserted { text })
    }

    fn discard(&self, _: Handle) -> Result<(), CallError> {
        Ok(())
    }
}

struct Printer(Console);

impl Callee for Printer {
    fn call(&self, function: usize, args: &[Value]) -> Result<Option<Value>, CallError> {
        if let Some(Value::String(text)) = args.first() {
            let stream = if function == 0 {
                Stream::Out
            } else {
                Stream::Err
            };
            (self.0)(stream, text);
        }
        Ok(None)
    }

    fn discard(&self, _: Handle) -> Result<(), CallError> {
        Ok(())
    }
}

/// Functions of the program.
struct Program(Vec<Answer>);

impl Callee for Program {
    fn call(&self, function: usize, args: &[Value]) -> Result<Option<Value>, CallError> {
        Ok(self.0[function](args))
    }

    fn discard(&self, _: Handle) -> Result<(), CallError> {
        Ok(())
    }
}

/// The functions of an interface that the program answers; none where it answers none of them.
fn answered_by(component: &Component, interface: &str) -> Option<(Vec<String>, Vec<Answer>)> {
    let own = |(path, answer): (&String, &Answer)| {
        let name = path.strip_prefix(interface)?.strip_prefix('#')?;
        Some((name.to_owned(), answer.clone()))
    };
    let (names, answers): (Vec<_>, Vec<_>) = component.answers.iter().filter_map(own).unzip();
    (!names.is_empty()).then_some((names, answers))
}

/// Who answers what a component imports: an edge, the program, the console, or whoever hears assertions; anything else is refused by name.
pub(super) fn imports(component: &Component, wanted: &[Wanted]) -> Result<Vec<Import>, LoadError> {
    let lacks = |found: String| LoadError::Import {
        component: component.name.clone(),
        found,
    };
    let mut imports = Vec::new();
    for wanted in wanted {
        let interface = wanted.interface.clone();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let own: Option<(Vec<String>, Arc<dyn Callee>)> = match (&*interface, &component.console) {
            (CONSOLE, Some(console)) => Some((
                names(&["print", "print-error"]),
                Arc::new(Printer(console.clone())),
            )),
            (ASSERTION, _) => Some((names(&["failed"]), Arc::new(Asserts))),
            _ => answered_by(component, &interface)
                .map(|(names, answers)| (names, Arc::new(Program(answers)) as Arc<dyn Callee>)),
        };
        if let (Some(_), Some(of)) = (&own, wanted.resources.first()) {
            return Err(lacks(format!(
                "{interface} has objects ({}), which only a component can have",
                of.name
            )));
        }
        if let Some((known, callee)) = own {
            let function = |name: &String| {
                let place = known.iter().position(|known| known == name);
                let place = place.ok_or_else(|| {
                    lacks(format!("{interface} has {} alone", known.join(" and ")))
                })?;
                Ok(ImportFunction {
                    name: name.clone(),
                    place,
                    gives: None,
                })
            };
            let functions = wanted.functions.iter().map(function);
            let functions = functions.collect::<Result<_, LoadError>>()?;
            imports.push(Import {
                interface,
                functions,
                resources: Vec::new(),
                callee,
                keeps: false,
            });
            continue;
        }
        let edge = component
            .uses
            .iter()
            .find(|edge| edge.model.interfaces.contains(&interface))
            .ok_or_else(|| lacks(interface.clone()))?;
        let model = &edge.model;
        let mut functions = Vec::new();
        for name in &wanted.functions {
            let place = edge
                .function(&format!("{interface}#{name}"))
                .map_err(|error| lacks(error.to_string()))?;
            let gives = match model.functions[place].given() {
                Some(resource) => {
                    let resource = &model.resources[resource];
                    let there = wanted
                        .resources
                        .iter()
                        .position(|r| r.name == resource.name);
                    if resource.interface != interface || there.is_none() {
                        return Err(lacks(format!(
                            "{interface}#{name} gives an object of another interface, which is not supported"
                        )));
                    }
                    there
                }
                _ => None,
            };
            functions.push(ImportFunction {
                name: name.clone(),
                place,
                gives,
            });
        }
        imports.push(Import {
            interface,
            functions,
            resources: wanted.resources.clone(),
            callee: Arc::new(edge.clone()),
            keeps: edge.keeps,
        });
    }
    Ok(imports)
}
