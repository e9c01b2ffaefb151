//! What is refused before anything runs, and by which name: images, worlds, limits, models.

use steadfast_restart::{Component, Host, LoadError, Model, ModelError, Policy};

use crate::fixture;

fn refused(change: impl FnOnce(&mut steadfast_restart::Component)) -> LoadError {
    let mut component = fixture::component("lock", Policy::default());
    change(&mut component);
    let mut host = Host::new(true).expect("the pad works");
    host.add(component, None).expect_err("refused")
}

#[test]
fn an_image_of_another_build_is_refused() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut bytes = std::fs::read(fixture::image("lock")).expect("an image");
    // Length and text of wasmtime's version, as its section for the engine begins.
    let version = bytes.windows(3).position(|window| window == b"\x0248");
    bytes[version.expect("the version of wasmtime") + 1] = b'3';
    let path = folder.join(format!("older-{}.cwasm", std::process::id()));
    std::fs::write(&path, bytes).expect("written");
    let error = refused(|component| component.image.clone_from(&path));
    assert!(matches!(error, LoadError::Image { .. }), "{error}");
    assert!(error.fix().contains("steadfast host compile"));
    std::fs::write(&path, b"no image at all").expect("written");
    let error = refused(|component| component.image = path);
    assert!(matches!(error, LoadError::Image { .. }), "{error}");
}

#[test]
fn a_wit_that_the_component_was_not_built_from_is_refused() {
    let error = refused(|component| component.model = fixture::model("fs"));
    assert!(matches!(error, LoadError::Export { .. }), "{error}");
    let error = refused(|component| component.init = Some("prepare".into()));
    assert!(matches!(error, LoadError::Export { .. }), "{error}");
}

#[test]
fn a_memory_limit_below_what_the_component_needs_is_refused() {
    let error = refused(|component| component.memory_bytes = 4096);
    let LoadError::Start { found, .. } = &error else {
        panic!("{error}");
    };
    assert!(found.contains("the limit is 4096"), "{found}");
}

const HEAD: &str = "package a:b; interface i { resource r { ";
const TAIL: &str = " } } world w { export i; }";

fn model(body: &str, sidecar: &str) -> Result<Model, ModelError> {
    Model::generate(&format!("{HEAD}{body}{TAIL}"), sidecar)
}

fn function(name: &str, entry: &str) -> String {
    format!("[function.\"a:b/i#{name}\"]\n{entry}\n")
}

#[test]
fn what_cannot_be_brought_back_is_refused_by_name() {
    let constructor = "constructor(); m: func(n: u32) -> bool;";
    let m = "[method]r.m";
    struct Row {
        body: &'static str,
        sidecar: String,
        told: &'static str,
    }
    let cases = [
        Row {
            body: constructor,
            sidecar: String::new(),
            told: "does not say what it does",
        },
        Row {
            body: constructor,
            sidecar: function("[method]r.k", "effect = \"none\""),
            told: "which the WIT does not have",
        },
        Row {
            body: constructor,
            sidecar: function(m, "effect = \"log\""),
            told: "their number has no bound",
        },
        Row {
            body: constructor,
            sidecar: function(m, "effect = \"magic\""),
            told: "effect = \"magic\" is not supported",
        },
        Row {
            body: constructor,
            sidecar: function(m, "to = \"held\""),
            told: "which needs n, and that is not remembered",
        },
        Row {
            body: constructor,
            sidecar: function(m, "to = \"held\"\nremember = [\"k\"]"),
            told: "no parameter k",
        },
        Row {
            body: constructor,
            sidecar: function(m, "to = \"held\"\nremember = [\"n\"]\nwhen = \"ok\""),
            told: "a result of another type",
        },
        Row {
            body: constructor,
            sidecar: function(m, "from = [\"open\"]\nto = \"held\"\nremember = [\"n\"]"),
            told: "state open of a:b/i/r stands in from, and no function leads to it: the states are",
        },
        Row {
            body: constructor,
            sidecar: function(m, "from = [\"held\"]\nto = \"held\"\nremember = [\"n\"]"),
            told: "state held of a:b/i/r cannot be reached",
        },
        Row {
            body: constructor,
            sidecar: function(m, "effect = \"write\"\ndata = \"n\""),
            told: "n is no list<u8>",
        },
        Row {
            body: "constructor(); m: func(data: list<u8>);",
            sidecar: function(m, "effect = \"write\"\ndata = \"data\""),
            told: "data of a resource without data",
        },
        Row {
            body: "m: func();",
            sidecar: function(m, "effect = \"none\""),
            told: "no function that makes it",
        },
        Row {
            body: constructor,
            sidecar: format!(
                "[resource.\"a:b/i/r\"]\nchildren_stay = true\nchildren_end = true\n{}",
                function(m, "effect = \"none\"")
            ),
            told: "children_stay beside children_end is not supported",
        },
        Row {
            body: "constructor(); m: func(all: list<r>);",
            sidecar: function(m, "effect = \"none\""),
            told: "an argument with an object inside",
        },
        Row {
            body: "constructor(); m: func() -> list<r>;",
            sidecar: function(m, "effect = \"none\""),
            told: "a result with an object inside",
        },
        Row {
            body: "constructor(); m: func(one: option<borrow<r>>);",
            sidecar: function(m, "effect = \"none\""),
            told: "an argument with an object inside",
        },
        Row {
            body: "constructor(); m: func(all: list<tuple<borrow<r>, u32>>);",
            sidecar: function(m, "effect = \"none\""),
            told: "an argument with an object inside",
        },
        Row {
            body: "constructor(); m: func() -> tuple<r, u32>;",
            sidecar: function(m, "effect = \"none\""),
            told: "a result with an object inside",
        },
        Row {
            body: "constructor(); m: func() -> result<u32, r>;",
            sidecar: function(m, "effect = \"none\""),
            told: "a result with an object inside",
        },
        Row {
            body: "constructor(of: borrow<r>);",
            sidecar: function("[constructor]r", "effect = \"none\""),
            told: "parents of each other",
        },
        Row {
            body: "constructor(); m: func() -> r;",
            sidecar: String::new(),
            told: "m makes an object and is lent another, and the sidecar does not say",
        },
        Row {
            body: "constructor(); m: func() -> r;",
            sidecar: function(m, "to = \"held\""),
            told: "a change of state by a function that makes or ends",
        },
        Row {
            body: "constructor(n: u32);",
            sidecar: "[resource.\"a:b/i/r\"]\nname = \"n\"".into(),
            told: "n is no string",
        },
        Row {
            body: "constructor(n: u32);",
            sidecar: "[resource.\"a:b/i/r\"]\nname = \"k\"".into(),
            told: "no parameter k",
        },
        Row {
            body: "constructor();",
            sidecar: "[resource.\"a:b/i/r\"]\nfields = [\"at\"]".into(),
            told: "no entry under restore",
        },
        Row {
            body: "constructor();",
            sidecar: "[resource.\"a:b/i/q\"]".into(),
            told: "which the WIT does not have",
        },
        Row {
            body: "constructor(); m: func(other: r);",
            sidecar: String::new(),
            told: "an object that takes another one in",
        },
        Row {
            body: "constructor(); join: static func(one: r, other: r);",
            sidecar: String::new(),
            told: "a function that ends two objects",
        },
        Row {
            body: "constructor(); join: static func(one: r, other: r);",
            sidecar: function("[static]r.join", "effect = \"none\""),
            told: "a function that ends two objects",
        },
        Row {
            body: "constructor(); end: static func(one: r);",
            sidecar: function("[static]r.end", "to = \"ended\""),
            told: "a change of state by a function that makes or ends",
        },
        Row {
            body: "constructor(n: u32);",
            sidecar: function("[constructor]r", "to = \"held\"\nremember = [\"n\"]"),
            told: "a change of state by a function that makes or ends",
        },
        Row {
            body: "constructor();",
            sidecar: "nonsense".into(),
            told: "the sidecar file is not valid",
        },
        Row {
            body: "constructor(); m: func() -> bool;",
            sidecar: function(m, "effect = \"none\"\nuntil = \"true\""),
            told: "until without woken_by",
        },
        Row {
            body: "constructor(); m: func() -> bool;",
            sidecar: function(m, "effect = \"none\"\nwoken_by = [\"[method]r.m\"]"),
            told: "woken_by without until",
        },
        Row {
            body: "constructor(); m: func() -> u32;",
            sidecar: function(
                m,
                "effect = \"none\"\nuntil = \"true\"\nwoken_by = [\"[method]r.m\"]",
            ),
            told: "of a result of another type",
        },
        Row {
            body: "constructor(); m: func() -> bool;",
            sidecar: function(
                m,
                "effect = \"none\"\nuntil = \"true\"\nwoken_by = [\"[method]r.k\"]",
            ),
            told: "which the WIT does not have",
        },
        Row {
            body: "constructor(); m: func() -> bool;",
            sidecar: function(
                m,
                "effect = \"none\"\nuntil = \"true\"\nwoken_by = [\"[method]r.m\"]",
            ),
            told: "waits to be woken by a:b/i#[method]r.m, which changes nothing",
        },
        Row {
            body: "constructor(); m: func() -> bool;",
            sidecar: function(
                m,
                "to = \"held\"\nuntil = \"true\"\nwoken_by = [\"[method]r.m\"]",
            ),
            told: "is tried until it gives true, and what a try changes is noted when it gives always",
        },
        Row {
            body: "constructor(); m: func(into: borrow<r>);",
            sidecar: function(m, "effect = \"move\""),
            told: "effect = \"move\" without parent",
        },
        Row {
            body: "constructor(); m: func(into: borrow<r>);",
            sidecar: function(m, "effect = \"move\"\nparent = \"into\""),
            told: "to a parent that is a:b/i/r, and a:b/i#[constructor]r makes it from no object",
        },
        Row {
            body: "constructor(); m: func(into: u32);",
            sidecar: function(m, "effect = \"move\"\nparent = \"into\""),
            told: "to a parent that is no object",
        },
    ];
    for Row {
        body,
        sidecar,
        told,
    } in cases
    {
        let error = model(body, &sidecar).expect_err(told);
        assert!(error.to_string().contains(told), "{error}, not {told}");
        assert!(!error.fix().is_empty());
    }
    let wit = Model::generate("package", "").expect_err("no WIT");
    assert!(matches!(wit, ModelError::Wit(_)));
    let good = function(m, "to = \"held\"\nremember = [\"n\"]\nwhen = \"true\"");
    assert!(model(constructor, &good).is_ok());
    let takes = "constructor(); m: func(other: r); end: static func(one: r);";
    assert!(model(takes, &function(m, "effect = \"none\"")).is_ok());
}

#[test]
fn a_state_that_is_reached_without_what_its_replay_needs_is_refused() {
    let body = "constructor(); m: func(n: u32); k: func();";
    let m = function("[method]r.m", "to = \"held\"\nremember = [\"n\"]");
    let k = function("[method]r.k", "to = \"held\"");
    // The shortest replay of "held" is the first function; the other way there has no n.
    let error = model(body, &(m + &k)).expect_err("refused");
    assert!(
        error
            .to_string()
            .contains("whose replay needs arguments of"),
        "{error}"
    );
}

#[test]
fn what_was_inferred_is_told() {
    let told = fixture::model("lock").explain();
    for line in [
        "made by      [constructor]lock",
        "state held       replay [method]lock.take with the remembered owner",
        "[method]lock.take leads to held if it returns true; waits until it returns true, woken by [method]lock.release",
        "[method]lock.release leads to free if it returns ok",
    ] {
        assert!(told.contains(line), "{line} is missing in\n{told}");
    }
}

#[test]
fn an_identity_that_would_not_bring_the_object_back_is_refused() {
    let body = "constructor(path: string); who: func() -> u64; what: func(n: u32) -> u64; every: func() -> list<r>; \
                again: static func(id: u64) -> r; under: func(id: u64) -> r; other: static func(id: string) -> r;";
    let sidecar = |identity: &str, again: &str, list: &str| {
        let none = ["[method]r.who", "[method]r.what", "[method]r.under"];
        let rest = none.map(|name| function(name, "effect = \"none\""));
        let list = function("[method]r.every", &format!("effect = \"none\"\n{list}"));
        let path = |name: &str| format!("\"a:b/i#{name}\"");
        let entry = [("identity", identity), ("again", again)]
            .map(|(key, name)| match name {
                "" => String::new(),
                name => format!("{key} = {}\n", path(name)),
            })
            .concat();
        format!("[resource.\"a:b/i/r\"]\n{entry}\n{list}{}", rest.concat())
    };
    let (who, again, one) = ("[method]r.who", "[static]r.again", "gives_one = true");
    model(body, &sidecar(who, again, one)).expect("it fits");
    struct Row {
        identity: &'static str,
        again: &'static str,
        list: &'static str,
        told: &'static str,
    }
    for Row {
        identity,
        again,
        list,
        told,
    } in [
        Row {
            identity: who,
            again: "",
            list: one,
            told: "identity and again are needed together",
        },
        Row {
            identity: "",
            again,
            list: one,
            told: "identity and again are needed together",
        },
        Row {
            identity: "[method]r.what",
            again,
            list: one,
            told: "no plain answer of the object alone",
        },
        Row {
            identity: who,
            again: "[static]r.other",
            list: one,
            told: "does not make the object of what",
        },
        Row {
            identity: who,
            again: "[method]r.under",
            list: one,
            told: "does not make the object of what",
        },
        Row {
            identity: who,
            again: "[static]r.none",
            list: one,
            told: "which the WIT does not have",
        },
        Row {
            identity: who,
            again,
            list: "",
            told: "a result with an object inside",
        },
    ] {
        let error = model(body, &sidecar(identity, again, list)).expect_err(told);
        assert!(error.to_string().contains(told), "{error}, not {told}");
    }
}

/// Wit and image that do not fit, in a process of its own as well: before anything starts.
#[test]
fn an_image_with_other_types_than_its_wit_is_refused() {
    let (wit, recover) = (
        fixture::text("lock", "wit"),
        fixture::text("lock", "recover.toml"),
    );
    struct Row {
        of: &'static str,
        other: &'static str,
        told: &'static str,
    }
    for Row { of, other, told } in [
        Row {
            of: "take: func(owner: u32)",
            other: "take: func(owner: u64)",
            told: "parameter owner is u64 there, u32 in the image",
        },
        Row {
            of: "take: func(owner: u32)",
            other: "take: func(owner: u32, n: u8)",
            told: "parameter n is u8 there, nothing in the image",
        },
        Row {
            of: "holder: func() -> option<u32>",
            other: "holder: func() -> option<s32>",
            told: "the result is option<s32> there, option<u32> in the image",
        },
        Row {
            of: "take: func(owner: u32)",
            other: "take: func(of: u32)",
            told: "parameter of is of there, owner in the image",
        },
    ] {
        assert!(wit.contains(of));
        let recover = if other.contains("(of") {
            recover.replace("\"owner\"", "\"of\"")
        } else {
            recover.replace("returns =", "# returns =")
        };
        let recover = match other.contains("n: u8") {
            true => recover.replace("[\"owner\"]", "[\"owner\", \"n\"]"),
            false => recover,
        };
        let model = Model::generate(&wit.replace(of, other), &recover).expect("a model");
        for process in [None, Some(fixture::own_process())] {
            let component = Component {
                model: model.clone(),
                process,
                ..fixture::component("lock", Policy::default())
            };
            let mut host = Host::new(true).expect("the pad works");
            let error = host.add(component, None).expect_err("it does not fit");
            assert!(matches!(error, LoadError::Types { .. }), "{error}");
            assert!(error.to_string().contains(told), "{error}");
            assert!(error.fix().contains("the one it was built from"));
        }
    }
    let wrong = wit.replace("interface locks", "interfac locks");
    let error = Model::generate(&wrong, &recover).expect_err("no WIT");
    assert!(error.to_string().contains("component.wit:"), "{error}");
}
