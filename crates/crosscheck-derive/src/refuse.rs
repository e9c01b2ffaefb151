//! Types that cannot be protected, and what to write in their place.

use syn::{GenericArgument, Ident, PathArguments, Type};

const OWN: &str = "own the value, or refer to another object with Ref<T>";
const PLAIN: &str = "a plain field: a guard that writes has the value for itself alone";
const TIME: &str = "a number that the log carries: clocks differ from replica to replica";
const CHOICE: &str = "an enum of the choices, which derives Critical";

/// What cannot be voted on: the type's last word, what is wrong with it, the remedy.
const WORDS: [(&str, &str, &str); 27] = [
    ("Rc", "is shared: it is an address", OWN),
    ("Arc", "is shared: it is an address", OWN),
    ("Weak", "is shared: it is an address", OWN),
    ("NonNull", "is an address", OWN),
    ("Cow", "may be an address", OWN),
    ("Cell", "changes without a guard", PLAIN),
    ("RefCell", "changes without a guard", PLAIN),
    ("UnsafeCell", "changes without a guard", PLAIN),
    ("OnceCell", "changes without a guard", PLAIN),
    ("LazyCell", "changes without a guard", PLAIN),
    ("Mutex", "changes without a guard", PLAIN),
    ("RwLock", "changes without a guard", PLAIN),
    ("OnceLock", "changes without a guard", PLAIN),
    ("LazyLock", "changes without a guard", PLAIN),
    ("AtomicBool", "changes without a guard", PLAIN),
    ("AtomicI32", "changes without a guard", PLAIN),
    ("AtomicI64", "changes without a guard", PLAIN),
    ("AtomicU32", "changes without a guard", PLAIN),
    ("AtomicU64", "changes without a guard", PLAIN),
    ("AtomicUsize", "changes without a guard", PLAIN),
    ("AtomicPtr", "changes without a guard", OWN),
    ("Instant", "is the time of one machine", TIME),
    ("SystemTime", "is the time of one machine", TIME),
    ("usize", "has another width on another machine", "u64"),
    ("isize", "has another width on another machine", "i64"),
    ("MaybeUninit", "may have no value", "Option<T>"),
    ("ManuallyDrop", "may have no value", "Option<T>"),
];

fn refused(at: &impl syn::spanned::Spanned, what: &str, why: &str, remedy: &str) -> syn::Error {
    syn::Error::new(
        at.span(),
        format!(
            "requirement: bytes that are the same in every replica; found: {what}, which {why}\n  fix:   {remedy}\n  or:    #[critical(skip = \"why\")], and nobody votes on the field or repairs it"
        ),
    )
}

/// Whether values of the type `of` may have a field of this type.
pub(crate) fn check(kind: &Type, of: &Ident) -> syn::Result<()> {
    match kind {
        Type::Ptr(_) => Err(refused(kind, "a raw pointer", "is an address", OWN)),
        Type::Reference(_) => Err(refused(kind, "a reference", "is an address", OWN)),
        Type::BareFn(_) => Err(refused(kind, "a function", "is an address", CHOICE)),
        Type::TraitObject(_) | Type::ImplTrait(_) => {
            Err(refused(kind, "a trait object", "may be anything", CHOICE))
        }
        Type::Array(array) => check(&array.elem, of),
        Type::Group(group) => check(&group.elem, of),
        Type::Paren(paren) => check(&paren.elem, of),
        Type::Tuple(tuple) => tuple.elems.iter().try_for_each(|kind| check(kind, of)),
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else {
                return Ok(());
            };
            if let Some((word, why, remedy)) = WORDS.iter().find(|(word, ..)| last.ident == word) {
                return Err(refused(&last.ident, word, why, remedy));
            }
            if last.ident == "Ref" {
                return Ok(());
            }
            if last.ident == *of || last.ident == "Self" {
                let what = format!("{of} within itself");
                let remedy = format!("Ref<{of}>: each of them is an object, and is voted on alone");
                return Err(refused(&last.ident, &what, "has no fixed shape", &remedy));
            }
            let PathArguments::AngleBracketed(arguments) = &last.arguments else {
                return Ok(());
            };
            arguments
                .args
                .iter()
                .try_for_each(|argument| match argument {
                    GenericArgument::Type(kind) => check(kind, of),
                    _ => Ok(()),
                })
        }
        _ => Ok(()),
    }
}
