//! A program with a wasmtime of its own: its component imports one that comes back.

use steadfast_restart::host::Linked;
use steadfast_restart::wasmtime::component::{Component, Instance, Linker};
use steadfast_restart::wasmtime::{Engine, Result, Store, StoreContextMut};
use steadfast_restart::{Edge, Host, package};

use crate::fixture;

const MAIN: &str = "test:client/main@0.1.0";

/// What an embedder has anyway: its engine, its linker, its Store.
struct Program {
    store: Store<Vec<String>>,
    instance: Instance,
    linked: Linked,
}

impl Program {
    fn new(edge: &Edge) -> Result<Self> {
        let engine = Engine::default();
        let mut linker = Linker::new(&engine);
        let mut console = linker.instance("steadfast:host/console@0.1.0")?;
        for name in ["print", "print-error"] {
            let print = |mut of: StoreContextMut<'_, Vec<String>>, (text,): (String,)| {
                of.data_mut().push(text);
                Ok(())
            };
            console.func_wrap(name, print)?;
        }
        let linked = edge.link(&mut linker)?;
        let core = fixture::bytes("client", "core.wasm");
        let wit = fixture::text("client", "wit");
        let component = package::componentize("client".as_ref(), &core, &wit);
        let component = Component::new(&engine, component.expect("a component"))?;
        let mut store = Store::new(&engine, Vec::new());
        let instance = linker.instantiate(&mut store, &component)?;
        Ok(Self {
            store,
            instance,
            linked,
        })
    }

    fn work(&mut self, name: &str) -> Result<bool> {
        let main = self.instance.get_export_index(&mut self.store, None, MAIN);
        let function = self
            .instance
            .get_export_index(&mut self.store, main.as_ref(), name);
        let function = function.expect("it is exported");
        let work = self
            .instance
            .get_typed_func::<(), (bool,)>(&mut self.store, function)?;
        work.call(&mut self.store, ()).map(|(done,)| done)
    }
}

fn edge(host: &Host, allow: &[String]) -> Edge {
    host.edge("program", "lock", allow).expect("an edge")
}

#[test]
fn a_component_of_another_programs_linker_keeps_its_handles_when_what_it_imports_fails() {
    let host = fixture::host("lock", fixture::policies()[0]);
    let edge = edge(&host, &[]);
    let mut program = Program::new(&edge).expect("it is linked");
    assert!(program.work("work").expect("it works"));
    // The lock fails at the return of the first call of the next work, which does not notice.
    edge.fail_once().expect("it is told");
    assert!(program.work("work").expect("it works"));
    let stats = edge.stats().expect("stats");
    assert_eq!((stats.resets_total(), stats.objects), (1, 0));
    assert!(!program.store.data().is_empty(), "it prints as before");
    // The program's component traps while it holds a lock, as it would with any other one.
    assert!(program.work("crash").is_err());
    program.linked.release();
    assert_eq!(edge.stats().expect("stats").objects, 0);
}

#[test]
fn no_edge_no_import_in_another_programs_linker() {
    let host = fixture::host("lock", fixture::policies()[0]);
    let take = ["steadfast:lock/locks@0.1.0#[method]lock.take".to_owned()];
    let missed = Program::new(&edge(&host, &take))
        .err()
        .expect("it lacks functions");
    assert!(format!("{missed:#}").contains("locks@0.1.0"), "{missed:#}");
}
