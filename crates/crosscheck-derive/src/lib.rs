//! Macros of `steadfast-crosscheck`: [`Critical`](macro@Critical) for types whose values are objects, [`critical`](macro@critical) for their
//! methods, [`State`](macro@State) for a service's arenas of them.
//!
//! Each field is encoded, or is left out with a reason, or does not compile with a message that names the remedy. No field is left out
//! in silence.
//!
//! Not covered: what a type's name hides. There the trait `Encode` has no implementation, and its own message says the same.

#![forbid(unsafe_code)]

mod critical;
mod methods;
mod refuse;
mod state;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;
use syn::{Attribute, DeriveInput, ItemImpl, LitStr, parse_macro_input};

/// A struct or an enum whose values replicas vote on, field by field.
///
/// `#[critical(skip = "why")]` leaves a field of a struct out: nobody votes on it, and a repair keeps what it is.
#[proc_macro_derive(Critical, attributes(critical))]
pub fn derive_critical(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    critical::derive(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// The methods of a type that derives `Critical`, callable on an object in its arena: checked when one is entered, updated when one that
/// writes is left.
///
/// `#[critical(only(cents, last))]` on a method names the fields that it may change; another one that changes fits its digest no more.
#[proc_macro_attribute]
pub fn critical(options: TokenStream, input: TokenStream) -> TokenStream {
    if let Some(first) = proc_macro2::TokenStream::from(options).into_iter().next() {
        let why = "requirement: #[critical] alone before an impl; found: options\n  fix:   options stand before a method: #[critical(only(cents))]";
        return syn::Error::new(first.span(), why)
            .into_compile_error()
            .into();
    }
    let input = parse_macro_input!(input as ItemImpl);
    methods::attribute(input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// A struct of arenas: all objects of a service.
///
/// `#[critical(skip = "why")]` leaves a field out that is no arena.
#[proc_macro_derive(State, attributes(critical))]
pub fn state(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    state::derive(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Why a field is left out, if it is.
fn skipped(attributes: &[Attribute]) -> syn::Result<Option<String>> {
    let mut why = None;
    for attribute in attributes.iter().filter(|a| a.path().is_ident("critical")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("skip") {
                return Err(meta.error("requirement: skip = \"why\"\n  fix:   #[critical(skip = \"statistics: answers for one replica\")]"));
            }
            let reason = meta.value().and_then(|value| value.parse::<LitStr>());
            match reason {
                Ok(reason) if !reason.value().trim().is_empty() => {
                    why = Some(reason.value());
                    Ok(())
                }
                _ => Err(meta.error(
                    "requirement: the reason why nobody votes on this field; found: none\n  fix:   #[critical(skip = \"statistics: answers for one replica\")]",
                )),
            }
        })?;
    }
    Ok(why)
}
