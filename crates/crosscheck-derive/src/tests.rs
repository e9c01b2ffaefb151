//! What is refused, and whether the message says what to write instead.

use syn::{DeriveInput, parse_str};

fn refusal(source: &str) -> String {
    let input: DeriveInput = parse_str(source).unwrap();
    match crate::critical::derive(&input) {
        Err(why) => why.to_string(),
        Ok(_) => panic!("{source} is not refused"),
    }
}

#[test]
fn what_cannot_be_protected_is_refused_with_its_remedy() {
    for (source, found, fix) in [
        ("struct A { a: *mut u8 }", "a raw pointer", "Ref<T>"),
        (
            "struct A<'a> { a: &'a str }",
            "a reference",
            "own the value",
        ),
        ("struct A { a: Rc<u8> }", "Rc, which is shared", "Ref<T>"),
        (
            "struct A { a: std::sync::Arc<u8> }",
            "Arc, which is shared",
            "Ref<T>",
        ),
        (
            "struct A { a: Vec<Option<RefCell<u8>>> }",
            "RefCell, which changes",
            "a plain field",
        ),
        (
            "struct A(u8, [AtomicU64; 4]);",
            "AtomicU64, which changes",
            "a plain field",
        ),
        (
            "struct A { a: (u8, Mutex<u8>) }",
            "Mutex, which changes",
            "a plain field",
        ),
        (
            "struct A { a: fn(u8) -> u8 }",
            "a function",
            "an enum of the choices",
        ),
        (
            "struct A { a: Box<dyn Fn(u8)> }",
            "a trait object",
            "an enum of the choices",
        ),
        (
            "struct A { a: HashMap<u8, usize> }",
            "usize, which has another width",
            "u64",
        ),
        (
            "struct A { a: Instant }",
            "Instant, which is the time",
            "the log carries",
        ),
        (
            "struct A { next: Option<Box<A>> }",
            "A within itself",
            "Ref<A>",
        ),
        (
            "enum A { B(u8), C { c: Rc<u8> } }",
            "Rc, which is shared",
            "Ref<T>",
        ),
    ] {
        let said = refusal(source);
        assert!(
            said.contains("requirement:") && said.contains("fix:"),
            "{source}: {said}"
        );
        assert!(said.contains(found), "{source}: {said}");
        assert!(said.contains(fix), "{source}: {said}");
    }
}

#[test]
fn a_field_is_left_out_with_a_reason_or_not_at_all() {
    for source in [
        "struct A { a: u8, #[critical(skip)] b: u8 }",
        "struct A { a: u8, #[critical(skip = \" \")] b: u8 }",
        "struct A { a: u8, #[critical(ignore = \"x\")] b: u8 }",
        "struct A { #[critical(skip = \"all of it\")] b: u8 }",
        "enum A { B(#[critical(skip = \"why\")] u8) }",
        "union A { a: u8, b: u16 }",
    ] {
        assert!(refusal(source).contains("requirement:"), "{source}");
    }
}

#[test]
fn what_can_be_protected_is_not_refused() {
    for source in [
        "struct A { a: u8, #[critical(skip = \"a cache\")] b: Rc<u8> }",
        "struct A { next: Option<Ref<A>>, all: Vec<Ref<B>> }",
        "struct A<T> { a: HashMap<String, T> }",
        "enum A { B, C(u8), D { d: f64 } }",
        "struct A(u8, pub i64);",
    ] {
        let input: DeriveInput = parse_str(source).unwrap();
        assert!(crate::critical::derive(&input).is_ok(), "{source}");
    }
}

#[test]
fn a_service_is_made_of_arenas_of_different_types() {
    let derived = |source: &str| {
        let input: DeriveInput = parse_str(source).unwrap();
        crate::state::derive(&input)
            .map(drop)
            .map_err(|why| why.to_string())
    };
    assert_eq!(derived("struct S { a: Arena<A>, b: Arena<B> }"), Ok(()));
    assert_eq!(
        derived("struct S { a: Arena<A>, #[critical(skip = \"a cache\")] b: u8 }"),
        Ok(())
    );
    for (source, word) in [
        ("struct S { a: Arena<A>, b: Arena<A> }", "two of this type"),
        (
            "struct S { a: Arena<A>, b: Vec<u8> }",
            "keep it in an object",
        ),
        ("struct S { }", "found: none"),
        ("enum S { A }", "a struct of arenas"),
    ] {
        let said = derived(source).unwrap_err();
        assert!(said.contains(word), "{source}: {said}");
    }
}

#[test]
fn methods_that_a_guard_cannot_hold_for_are_refused_with_their_remedy() {
    let made = |source: &str| {
        crate::methods::attribute(parse_str(source).unwrap())
            .map(|tokens| tokens.to_string())
            .map_err(|why| why.to_string())
    };
    for (source, found, fix) in [
        ("impl A { fn a(self) {} }", "self by value", "Arena::remove"),
        (
            "impl A { fn a(self: Box<Self>) {} }",
            "self by value",
            "Arena::remove",
        ),
        (
            "impl A { async fn a(&mut self) {} }",
            "async",
            "before the request is ordered",
        ),
        (
            "impl A { unsafe fn a(&self) {} }",
            "unsafe",
            "a safe method",
        ),
        (
            "impl A { fn a(&self) -> &str { \"\" } }",
            "a reference",
            "owned value",
        ),
        (
            "impl A { fn a(&self) -> Option<(u8, &str)> { None } }",
            "a reference",
            "owned value",
        ),
        (
            "impl A { fn a(&mut self) -> std::slice::Iter<'_, u8> { todo!() } }",
            "a reference",
            "owned value",
        ),
        (
            "impl A { #[critical(only(b))] fn a(&self) {} }",
            "one that reads",
            "no #[critical(only(...))]",
        ),
        (
            "impl A { #[critical(only(b))] fn a() {} }",
            "without self",
            "no #[critical(only(...))]",
        ),
        (
            "impl A { #[critical(skip = \"x\")] fn a(&mut self) {} }",
            "something else",
            "only(cents, last)",
        ),
        (
            "impl A { #[critical(only())] fn a(&mut self) {} }",
            "something else",
            "only(cents, last)",
        ),
        (
            "impl Clone for A { fn clone(&self) -> A { A } }",
            "of a trait",
            "calls the trait's",
        ),
        (
            "impl A<u8> { fn a(&self) {} }",
            "with parameters",
            "Arena::read",
        ),
        ("impl A { fn a() {} }", "none", "no #[critical] here"),
    ] {
        let said = made(source).unwrap_err();
        assert!(
            said.contains("requirement:") && said.contains("fix:"),
            "{source}: {said}"
        );
        assert!(
            said.contains(found) && said.contains(fix),
            "{source}: {said}"
        );
    }
    let said = made(
        "impl A { pub fn a(&mut self, (b, c): (u8, u8)) -> u8 { b + c } fn d(&self) {} fn e() {} }",
    )
    .unwrap();
    assert!(said.contains("pub trait ACalls"), "{said}");
    assert!(!said.contains("fn e () ;"), "{said}");
}
