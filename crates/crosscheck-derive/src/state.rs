//! `#[derive(State)]`: the traits `Objects` and `State` of a struct of arenas. An object's number says in which of them it is.

use std::collections::BTreeMap;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Member, Type};

fn is_arena(kind: &Type) -> bool {
    matches!(kind, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Arena"))
}

pub(crate) fn derive(input: &DeriveInput) -> syn::Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(syn::Error::new(
            input.ident.span(),
            "requirement: a struct of arenas; found: another kind of type",
        ));
    };
    let mut members: Vec<Member> = Vec::new();
    let mut kinds: Vec<&Type> = Vec::new();
    let mut seen: BTreeMap<String, ()> = BTreeMap::new();
    for (member, field) in data.fields.members().zip(&data.fields) {
        if crate::skipped(&field.attrs)?.is_some() {
            continue;
        }
        let kind = &field.ty;
        if !is_arena(kind) {
            return Err(syn::Error::new_spanned(
                kind,
                "requirement: Arena<T>, whose objects are voted on; found: another type\n  fix:   keep it in an object of an arena\n  or:    #[critical(skip = \"why\")], and nobody votes on the field or repairs it",
            ));
        }
        if seen.insert(quote!(#kind).to_string(), ()).is_some() {
            return Err(syn::Error::new_spanned(
                kind,
                "requirement: one arena for each type, since an object's number says its type; found: two of this type\n  fix:   one arena, or a type of its own for each",
            ));
        }
        members.push(member);
        kinds.push(kind);
    }
    if members.is_empty() {
        return Err(syn::Error::new(
            input.ident.span(),
            "requirement: an arena, Arena<T>; found: none",
        ));
    }
    let name = &input.ident;
    let (of, types, where_clause) = input.generics.split_for_impl();
    let text = name.to_string();
    let (objects, state) = (
        quote!(::steadfast_crosscheck::Objects),
        quote!(::steadfast_crosscheck::State),
    );
    let id = quote!(::steadfast_crosscheck::ObjectId);
    let all: Vec<TokenStream> = kinds
        .iter()
        .map(|kind| quote!(::steadfast_crosscheck::guarded::tag(<#kind as #state>::SHAPE)))
        .collect();
    let differ = (0..all.len()).flat_map(|one| (one + 1..all.len()).map(move |two| (one, two)));
    let differ = differ.map(|(one, two)| {
        let (one, two) = (&all[one], &all[two]);
        quote!(assert!(#one != #two, "two types of this service have the same tag: rename one of them");)
    });
    Ok(quote! {
        const _: () = { #(#differ)* };

        impl #of #objects for #name #types #where_clause {
            fn pack(&self, object: #id) -> ::core::option::Option<::std::vec::Vec<u8>> {
                #(if #state::owns(&self.#members, object) { return #objects::pack(&self.#members, object); })*
                ::core::option::Option::None
            }

            fn intact(&self, object: #id) -> bool {
                #(if #state::owns(&self.#members, object) { return #objects::intact(&self.#members, object); })*
                true
            }

            fn replace(&mut self, object: #id, packed: ::core::option::Option<&[u8]>) {
                #(if #state::owns(&self.#members, object) { #objects::replace(&mut self.#members, object, packed); })*
            }
        }

        impl #of #state for #name #types #where_clause {
            const SHAPE: u64 = ::steadfast_crosscheck::guarded::shape(#text, &[#(<#kinds as #state>::SHAPE),*]);

            fn begin(&mut self, index: ::steadfast_crosscheck::Index) {
                #(#state::begin(&mut self.#members, index);)*
            }

            fn finish(&mut self) -> ::std::vec::Vec<::steadfast_crosscheck::Pair> {
                let mut all = ::std::vec::Vec::new();
                #(all.extend(#state::finish(&mut self.#members));)*
                all
            }

            fn found(&mut self) -> ::std::vec::Vec<::steadfast_crosscheck::guarded::Found> {
                let mut all = ::std::vec::Vec::new();
                #(all.extend(#state::found(&mut self.#members));)*
                all
            }

            fn owns(&self, object: #id) -> bool {
                false #(|| #state::owns(&self.#members, object))*
            }

            fn objects(&self) -> ::std::vec::Vec<#id> {
                let mut all = ::std::vec::Vec::new();
                #(all.extend(#state::objects(&self.#members));)*
                all
            }

            fn look(&self, object: #id) {
                #(if #state::owns(&self.#members, object) { #state::look(&self.#members, object); })*
            }
        }
    })
}
