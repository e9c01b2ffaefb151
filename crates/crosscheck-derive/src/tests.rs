//! What is refused, and whether the message says what to write instead.

use syn::{DeriveInput, parse_str};

/// What the compiler tells of source text that is refused.
struct Refusal(String);

impl Refusal {
    #[track_caller]
    fn names(self, found: &str) -> Self {
        let told = &self.0;
        assert!(told.contains("requirement:"), "{told}");
        assert!(told.contains(found), "{found} is missing in {told}");
        self
    }

    #[track_caller]
    fn fix(self, fix: &str) {
        let told = &self.0;
        let (_, remedy) = told.split_once("fix:").expect(told);
        assert!(remedy.contains(fix), "{fix} is missing in {told}");
    }
}

#[track_caller]
fn refused(source: &str) -> Refusal {
    let input: DeriveInput = parse_str(source).unwrap();
    match crate::critical::derive(&input) {
        Err(why) => Refusal(why.to_string()),
        Ok(_) => panic!("{source} is not refused"),
    }
}

#[test]
fn what_cannot_be_protected_is_refused_with_its_remedy() {
    refused("struct A { a: *mut u8 }")
        .names("a raw pointer")
        .fix("Ref<T>");
    refused("struct A<'a> { a: &'a str }")
        .names("a reference")
        .fix("own the value");
    refused("struct A { a: Rc<u8> }")
        .names("Rc, which is shared")
        .fix("Ref<T>");
    refused("struct A { a: std::sync::Arc<u8> }")
        .names("Arc, which is shared")
        .fix("Ref<T>");
    refused("struct A { a: Vec<Option<RefCell<u8>>> }")
        .names("RefCell, which changes")
        .fix("a plain field");
    refused("struct A(u8, [AtomicU64; 4]);")
        .names("AtomicU64, which changes")
        .fix("a plain field");
    refused("struct A { a: (u8, Mutex<u8>) }")
        .names("Mutex, which changes")
        .fix("a plain field");
    refused("struct A { a: fn(u8) -> u8 }")
        .names("a function")
        .fix("an enum of the choices");
    refused("struct A { a: Box<dyn Fn(u8)> }")
        .names("a trait object")
        .fix("an enum of the choices");
    refused("struct A { a: HashMap<u8, usize> }")
        .names("usize, which has another width")
        .fix("u64");
    refused("struct A { a: Instant }")
        .names("Instant, which is the time")
        .fix("the log carries");
    refused("struct A { next: Option<Box<A>> }")
        .names("A within itself")
        .fix("Ref<A>");
    refused("enum A { B(u8), C { c: Rc<u8> } }")
        .names("Rc, which is shared")
        .fix("Ref<T>");
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
        refused(source).names("requirement:");
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
    let refused = |source: &str| Refusal(made(source).expect_err(source));
    refused("impl A { fn a(self) {} }")
        .names("self by value")
        .fix("Arena::remove");
    refused("impl A { fn a(self: Box<Self>) {} }")
        .names("self by value")
        .fix("Arena::remove");
    refused("impl A { async fn a(&mut self) {} }")
        .names("async")
        .fix("before the request is ordered");
    refused("impl A { unsafe fn a(&self) {} }")
        .names("unsafe")
        .fix("a safe method");
    refused("impl A { fn a(&self) -> &str { \"\" } }")
        .names("a reference")
        .fix("owned value");
    refused("impl A { fn a(&self) -> Option<(u8, &str)> { None } }")
        .names("a reference")
        .fix("owned value");
    refused("impl A { fn a(&mut self) -> std::slice::Iter<'_, u8> { todo!() } }")
        .names("a reference")
        .fix("owned value");
    refused("impl A { #[critical(only(b))] fn a(&self) {} }")
        .names("one that reads")
        .fix("no #[critical(only(...))]");
    refused("impl A { #[critical(only(b))] fn a() {} }")
        .names("without self")
        .fix("no #[critical(only(...))]");
    refused("impl A { #[critical(skip = \"x\")] fn a(&mut self) {} }")
        .names("something else")
        .fix("only(cents, last)");
    refused("impl A { #[critical(only())] fn a(&mut self) {} }")
        .names("something else")
        .fix("only(cents, last)");
    refused("impl Clone for A { fn clone(&self) -> A { A } }")
        .names("of a trait")
        .fix("calls the trait's");
    refused("impl A<u8> { fn a(&self) {} }")
        .names("with parameters")
        .fix("Arena::read");
    refused("impl A { fn a() {} }")
        .names("none")
        .fix("no #[critical] here");
    let said = made(
        "impl A { pub fn a(&mut self, (b, c): (u8, u8)) -> u8 { b + c } fn d(&self) {} fn e() {} }",
    )
    .unwrap();
    assert!(said.contains("pub trait ACalls"), "{said}");
    assert!(!said.contains("fn e () ;"), "{said}");
}
