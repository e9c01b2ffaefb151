//! `#[derive(Critical)]`: the traits `Encode` and `Critical`, and an enum of the protected fields' names.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Fields, Generics, Ident, Member, Type, parse_quote};

use crate::refuse;

/// A field of a struct.
struct Field<'a> {
    member: Member,
    name: String,
    kind: &'a Type,
    skipped: Option<String>,
}

pub(crate) fn derive(input: &DeriveInput) -> syn::Result<TokenStream> {
    match &input.data {
        Data::Struct(data) => of_struct(input, &data.fields),
        Data::Enum(data) => of_enum(input, data),
        Data::Union(data) => Err(syn::Error::new(
            data.union_token.span,
            "requirement: a type whose bytes say what it is; found: a union\n  fix:   an enum",
        )),
    }
}

fn name_of(member: &Member) -> String {
    match member {
        Member::Named(name) => name.to_string().trim_start_matches("r#").to_owned(),
        Member::Unnamed(at) => format!("field{}", at.index),
    }
}

fn fields_of<'a>(fields: &'a Fields, of: &Ident) -> syn::Result<Vec<Field<'a>>> {
    fields
        .members()
        .zip(fields)
        .map(|(member, field)| {
            let skipped = crate::skipped(&field.attrs)?;
            if skipped.is_none() {
                refuse::check(&field.ty, of)?;
            }
            Ok(Field {
                name: name_of(&member),
                member,
                kind: &field.ty,
                skipped,
            })
        })
        .collect()
}

/// A type as it is written, without the spaces that tokens are printed with.
fn written(kind: &Type) -> String {
    let text = quote!(#kind).to_string();
    let mut out = String::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        let before = out.chars().last().unwrap_or(' ');
        let after = text[at + letter.len_utf8()..].chars().next().unwrap_or(' ');
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let parts = letter == ' ' && is_word(before) && is_word(after);
        if letter != ' ' || parts || before == ',' || before == ';' {
            out.push(letter);
        }
    }
    out
}

pub(crate) fn camel(name: &str) -> Ident {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| {
            first.to_uppercase().chain(letters).collect()
        })
    };
    let text: String = name.split('_').map(word).collect();
    let text = match text.as_str() {
        "Self" | "" => format!("{text}_"),
        _ if text.starts_with(|c: char| c.is_ascii_digit()) => format!("_{text}"),
        _ => text,
    };
    Ident::new(&text, Span::call_site())
}

fn bounded(generics: &Generics) -> Generics {
    let mut generics = generics.clone();
    for parameter in generics.type_params_mut() {
        parameter
            .bounds
            .push(parse_quote!(::steadfast_crosscheck::Encode));
    }
    generics
}

/// The enum of names, and the two traits around the parts that differ.
struct Parts {
    names: Vec<String>,
    fields: Vec<TokenStream>,
    shape: String,
    shapes: Vec<TokenStream>,
    encode: TokenStream,
    decode: TokenStream,
    encode_field: TokenStream,
    keep: TokenStream,
}

fn put_together(input: &DeriveInput, parts: Parts) -> TokenStream {
    let Parts {
        names,
        fields,
        shape,
        shapes,
        encode,
        decode,
        encode_field,
        keep,
    } = parts;
    let (name, visible) = (&input.ident, &input.vis);
    let text = name.to_string();
    let generics = bounded(&input.generics);
    let (of, types, where_clause) = generics.split_for_impl();
    let list = format_ident!("{name}Field");
    let about = format!("Protected fields of [`{name}`].");
    let variants: Vec<Ident> = names.iter().map(|name| camel(name)).collect();
    let docs = names.iter().map(|name| format!("`{name}`."));
    let numbers = 0..names.len();
    let protected = names.len();
    quote! {
        #[doc = #about]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(dead_code, reason = "a service need not name its fields")]
        #visible enum #list { #(#[doc = #docs] #variants),* }

        impl ::core::convert::From<#list> for usize {
            fn from(field: #list) -> usize {
                match field { #(#list::#variants => #numbers),* }
            }
        }

        impl #of ::steadfast_crosscheck::Encode for #name #types #where_clause {
            const SHAPE: u64 = ::steadfast_crosscheck::guarded::shape(#shape, &[#(#shapes),*]);

            fn encode(&self, to: &mut ::std::vec::Vec<u8>) { #encode }

            fn decode(from: &mut ::steadfast_crosscheck::guarded::Bytes<'_>) -> ::core::option::Option<Self> { #decode }
        }

        impl #of ::steadfast_crosscheck::Critical for #name #types #where_clause {
            type Name = #list;
            const NAME: &'static str = #text;
            const FIELDS: &'static [::steadfast_crosscheck::guarded::Field] = &[#(#fields),*];
            const PROTECTED: usize = #protected;

            fn encode_field(&self, field: usize, to: &mut ::std::vec::Vec<u8>) { #encode_field }

            #[allow(unused_variables, reason = "a type may skip nothing")]
            fn keep(&mut self, old: Self) { #keep }
        }
    }
}

fn entry(name: &str, kind: &str, skipped: Option<&String>) -> TokenStream {
    let skipped = match skipped {
        Some(why) => quote!(::core::option::Option::Some(#why)),
        None => quote!(::core::option::Option::None),
    };
    quote!(::steadfast_crosscheck::guarded::Field { name: #name, kind: #kind, skipped: #skipped })
}

fn of_struct(input: &DeriveInput, fields: &Fields) -> syn::Result<TokenStream> {
    let all = fields_of(fields, &input.ident)?;
    let protected: Vec<&Field<'_>> = all.iter().filter(|f| f.skipped.is_none()).collect();
    if protected.is_empty() {
        return Err(syn::Error::new(
            input.ident.span(),
            "requirement: a field that is voted on; found: none\n  fix:   a field with a value, or no Critical",
        ));
    }
    let encode = quote!(::steadfast_crosscheck::Encode);
    let members: Vec<&Member> = protected.iter().map(|field| &field.member).collect();
    let made = all.iter().map(|field| {
        let (member, kind) = (&field.member, field.kind);
        if field.skipped.is_some() {
            quote!(#member: <#kind as ::core::default::Default>::default())
        } else {
            quote!(#member: <#kind as #encode>::decode(from)?)
        }
    });
    let kept = all.iter().filter(|f| f.skipped.is_some()).map(|field| {
        let member = &field.member;
        quote!(self.#member = old.#member;)
    });
    let numbers = 0..protected.len();
    let described: Vec<String> = protected
        .iter()
        .map(|field| format!("{}:{}", field.name, written(field.kind)))
        .collect();
    let kinds = protected.iter().map(|field| field.kind);
    let parts = Parts {
        names: protected.iter().map(|field| field.name.clone()).collect(),
        fields: all
            .iter()
            .map(|field| entry(&field.name, &written(field.kind), field.skipped.as_ref()))
            .collect(),
        shape: format!("{}{{{}}}", input.ident, described.join(",")),
        shapes: kinds
            .map(|kind| quote!(<#kind as #encode>::SHAPE))
            .collect(),
        encode: quote!(#(#encode::encode(&self.#members, to);)*),
        decode: quote!(::core::option::Option::Some(Self { #(#made),* })),
        encode_field: quote! {
            match field {
                #(#numbers => #encode::encode(&self.#members, to),)*
                _ => {}
            }
        },
        keep: quote!(#(#kept)*),
    };
    Ok(put_together(input, parts))
}

/// An enum is one field: which variant it is, and what is in that.
fn of_enum(input: &DeriveInput, data: &syn::DataEnum) -> syn::Result<TokenStream> {
    let encode = quote!(::steadfast_crosscheck::Encode);
    if data.variants.is_empty() {
        return Err(syn::Error::new(
            input.ident.span(),
            "requirement: a type that has values; found: an enum without variants",
        ));
    }
    let mut described = Vec::new();
    let mut shapes = Vec::new();
    let mut writes = Vec::new();
    let mut reads = Vec::new();
    for (number, variant) in (0_u32..).zip(&data.variants) {
        let fields = fields_of(&variant.fields, &input.ident)?;
        if fields.iter().any(|field| field.skipped.is_some()) {
            return Err(syn::Error::new(
                variant.ident.span(),
                "requirement: a variant of which all is voted on; found: a field that is skipped\n  fix:   keep it in a struct beside the enum",
            ));
        }
        let name = &variant.ident;
        let members: Vec<&Member> = fields.iter().map(|field| &field.member).collect();
        let bound: Vec<Ident> = (0..fields.len())
            .map(|at| format_ident!("part{at}"))
            .collect();
        let kinds: Vec<&Type> = fields.iter().map(|field| field.kind).collect();
        shapes.extend(kinds.iter().map(|kind| quote!(<#kind as #encode>::SHAPE)));
        let inner: Vec<String> = fields
            .iter()
            .map(|field| format!("{}:{}", field.name, written(field.kind)))
            .collect();
        described.push(format!("{name}({})", inner.join(",")));
        writes.push(quote! {
            Self::#name { #(#members: #bound),* } => {
                #encode::encode(&#number, to);
                #(#encode::encode(#bound, to);)*
            }
        });
        reads.push(quote! {
            #number => Self::#name { #(#members: <#kinds as #encode>::decode(from)?),* },
        });
    }
    let parts = Parts {
        names: vec!["variant".to_owned()],
        fields: vec![entry("variant", &input.ident.to_string(), None)],
        shape: format!("{}|{}", input.ident, described.join("|")),
        shapes,
        encode: quote!(match self { #(#writes)* }),
        decode: quote! {
            ::core::option::Option::Some(match <u32 as #encode>::decode(from)? {
                #(#reads)*
                _ => return ::core::option::Option::None,
            })
        },
        encode_field: quote! {
            if field == 0 {
                #encode::encode(self, to);
            }
        },
        keep: TokenStream::new(),
    };
    Ok(put_together(input, parts))
}
