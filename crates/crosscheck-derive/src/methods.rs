//! `#[critical] impl`: each method of a protected type, called on an object in its arena. The guard is had around the call: a method that
//! reads is checked when it is entered, one that writes is checked then and updates the digests when it is left.
//!
//! Methods call each other on the value itself, so an object is checked once for a call from outside, however deep it goes.
//!
//! Not covered: functions without `self`. They stay as they are.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{
    Attribute, FnArg, Ident, ImplItem, ImplItemFn, ItemImpl, Receiver, ReturnType, Type, Visibility,
};

fn refused(
    at: &impl syn::spanned::Spanned,
    requirement: &str,
    found: &str,
    fix: &str,
) -> syn::Error {
    syn::Error::new(
        at.span(),
        format!("requirement: {requirement}; found: {found}\n  fix:   {fix}"),
    )
}

/// The fields that `#[critical(only(cents, last))]` names; the attribute is taken away.
fn only(attributes: &mut Vec<Attribute>) -> syn::Result<Option<Vec<Ident>>> {
    let mut fields = None;
    for attribute in attributes.iter().filter(|a| a.path().is_ident("critical")) {
        attribute.parse_nested_meta(|meta| {
            let mut named = Vec::new();
            let parsed = meta.path.is_ident("only")
                && meta
                    .parse_nested_meta(|field| {
                        named.push(field.path.require_ident()?.clone());
                        Ok(())
                    })
                    .is_ok();
            if !parsed || named.is_empty() {
                return Err(meta.error(
                    "requirement: the fields that the method may change; found: something else\n  fix:   #[critical(only(cents, last))]",
                ));
            }
            fields = Some(named);
            Ok(())
        })?;
    }
    attributes.retain(|a| !a.path().is_ident("critical"));
    Ok(fields)
}

/// What of a value's own memory a caller would still hold when the guard is gone.
fn borrows(kind: &Type) -> bool {
    match kind {
        Type::Reference(_) | Type::Ptr(_) | Type::ImplTrait(_) | Type::TraitObject(_) => true,
        Type::Tuple(tuple) => tuple.elems.iter().any(borrows),
        Type::Array(array) => borrows(&array.elem),
        Type::Paren(paren) => borrows(&paren.elem),
        Type::Group(group) => borrows(&group.elem),
        Type::Path(path) => path
            .path
            .segments
            .iter()
            .any(|segment| match &segment.arguments {
                syn::PathArguments::AngleBracketed(list) => list.args.iter().any(|one| match one {
                    syn::GenericArgument::Type(kind) => borrows(kind),
                    syn::GenericArgument::Lifetime(life) => life.ident != "static",
                    _ => false,
                }),
                _ => false,
            }),
        _ => false,
    }
}

fn check(method: &ImplItemFn, receiver: &Receiver) -> syn::Result<()> {
    let signature = &method.sig;
    if receiver.reference.is_none() || receiver.colon_token.is_some() {
        return Err(refused(
            receiver,
            "a method that leaves the object where it is, &self or &mut self",
            "self by value",
            "Arena::remove, whose end replicas vote on",
        ));
    }
    if signature.asyncness.is_some() {
        return Err(refused(
            &signature.asyncness,
            "a method that ends within its entry of the log",
            "async",
            "do what waits before the request is ordered",
        ));
    }
    if signature.unsafety.is_some() {
        return Err(refused(
            &signature.unsafety,
            "a method that any request may call",
            "unsafe",
            "a safe method around it",
        ));
    }
    if let ReturnType::Type(_, kind) = &signature.output
        && borrows(kind)
    {
        return Err(refused(
            kind,
            "a result that does not borrow from the object, whose guard ends with the call",
            "a reference",
            "return an owned value, or use Arena::read",
        ));
    }
    Ok(())
}

/// The method as it is called on an object in its arena: how it is declared, and what it does.
fn around(method: &mut ImplItemFn, of: &Ident) -> syn::Result<Option<(TokenStream, TokenStream)>> {
    let fields = only(&mut method.attrs)?;
    let Some(receiver) = method.sig.receiver().cloned() else {
        return match fields {
            None => Ok(None),
            Some(_) => Err(refused(
                &method.sig.ident,
                "a method that changes the object, with &mut self",
                "a function without self",
                "no #[critical(only(...))]",
            )),
        };
    };
    check(method, &receiver)?;
    let writes = receiver.mutability.is_some();
    if fields.is_some() && !writes {
        return Err(refused(
            &receiver,
            "a method that changes the object, with &mut self",
            "one that reads, with fields that it may change",
            "no #[critical(only(...))]",
        ));
    }
    let name = &method.sig.ident;
    let (generics, _, bounds) = method.sig.generics.split_for_impl();
    let mut names = Vec::new();
    let mut kinds = Vec::new();
    for (number, argument) in method.sig.inputs.iter().enumerate() {
        if let FnArg::Typed(argument) = argument {
            names.push(format_ident!("argument{number}"));
            kinds.push(&argument.ty);
        }
    }
    let output = match &method.sig.output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, kind) => quote!(#kind),
    };
    let about =
        format!("[`{of}::{name}`] of the object, checked; nothing if there is no such object.");
    let myself = if writes {
        quote!(&mut self)
    } else {
        quote!(&self)
    };
    let declared = quote! {
        #[doc = #about]
        fn #name #generics (#myself #(, #names: #kinds)*) -> ::core::option::Option<#output> #bounds
    };
    let guard = match (writes, fields) {
        (false, _) => quote!(let object = self.read()?;),
        (true, None) => quote!(let mut object = self.write()?;),
        (true, Some(fields)) => {
            let list = format_ident!("{of}Field");
            let fields = fields
                .iter()
                .map(|field| crate::critical::camel(&field.to_string()));
            quote!(let mut object = self.write_only(&[#(#list::#fields),*])?;)
        }
    };
    let call = if writes {
        quote!(<#of>::#name(&mut object #(, #names)*))
    } else {
        quote!(<#of>::#name(object #(, #names)*))
    };
    let done = quote!({ #guard ::core::option::Option::Some(#call) });
    Ok(Some((declared, done)))
}

pub(crate) fn attribute(mut item: ItemImpl) -> syn::Result<TokenStream> {
    if let Some((_, path, _)) = &item.trait_ {
        return Err(refused(
            path,
            "the methods of a type of its own, impl Type",
            "the implementation of a trait",
            "a method that calls the trait's",
        ));
    }
    let Type::Path(path) = &*item.self_ty else {
        return Err(refused(
            &item.self_ty,
            "a type that derives Critical",
            "another type",
            "impl Account",
        ));
    };
    let of = match path.path.get_ident() {
        Some(of) if item.generics.params.is_empty() => of.clone(),
        _ => {
            return Err(refused(
                &item.self_ty,
                "a type without parameters, by its name",
                "one with parameters, or behind a path",
                "Arena::read and Arena::write, for such a type",
            ));
        }
    };
    let mut declared = Vec::new();
    let mut done = Vec::new();
    let mut visible = Visibility::Inherited;
    for part in &mut item.items {
        if let ImplItem::Fn(method) = part
            && let Some((one, body)) = around(method, &of)?
        {
            // The trait is as visible as the most visible of its methods.
            if !matches!(method.vis, Visibility::Inherited)
                && !matches!(visible, Visibility::Public(_))
            {
                visible = method.vis.clone();
            }
            done.push(quote!(#one #body));
            declared.push(quote!(#one;));
        }
    }
    if declared.is_empty() {
        return Err(refused(
            &item.self_ty,
            "a method with &self or &mut self",
            "none",
            "no #[critical] here",
        ));
    }
    let calls = format_ident!("{of}Calls");
    let about =
        format!("Methods of [`{of}`] on an object in its arena: `arena.at(at).method(..)`.");
    Ok(quote! {
        #item

        #[doc = #about]
        #[allow(dead_code, reason = "a method may be called by others of its type alone")]
        #visible trait #calls { #(#declared)* }

        impl #calls for ::steadfast_crosscheck::guarded::At<'_, #of> { #(#done)* }
    })
}
