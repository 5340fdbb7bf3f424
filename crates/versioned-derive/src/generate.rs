//! The implementations.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt as _;

use crate::attributes::{Conversion, Field, Object, Origin, Within};

pub(crate) fn generate(object: &Object) -> TokenStream {
    let Object {
        ident,
        generics,
        name,
        version: (major, minor),
        unknown,
        library,
        fields,
        ..
    } = object;
    let (impl_generics, type_generics, clause) = generics.split_for_impl();
    let children = fields.iter().filter_map(|field| field.child.as_ref());
    let children = children.map(|child| {
        let of = &child.of;
        quote!(#library::Child::of::<#of>())
    });
    let unknown = unknown
        .as_ref()
        .map(|rule| quote!(const UNKNOWN_FIELDS: #library::UnknownFields = #library::UnknownFields::#rule;));
    let follows = follows(object);
    quote! {
        #[automatically_derived]
        impl #impl_generics #library::Versioned for #ident #type_generics #clause {
            const NAME: &'static str = #name;
            const VERSION: #library::Version = #library::Version::new(#major, #minor);
            const CHILDREN: &'static [#library::Child] = &[#(#children),*];
            #unknown
        }
        #follows
    }
}

/// How it follows the version before, if there is one.
fn follows(object: &Object) -> Option<TokenStream> {
    let Object {
        ident,
        generics,
        before,
        removed,
        library,
        fields,
        ..
    } = object;
    let before = before.as_ref()?;
    let (impl_generics, type_generics, clause) = generics.split_for_impl();
    let names = removed.iter().map(|removed| removed.ident.unraw().to_string());

    // Without `..`: a field of the version before that is not spoken of does not compile.
    let bound = fields.iter().filter_map(|field| match &field.origin {
        Origin::Of(old, _) => Some(quote!(#old)),
        Origin::Added(_) => None,
    });
    let gone = removed.iter().map(|removed| {
        let field = &removed.ident;
        quote!(#field: _)
    });
    let pattern = quote!(#(#bound,)* #(#gone,)*);
    let up = fields.iter().map(|field| up(field, library));
    let down = fields.iter().filter_map(|field| down(field, library));
    let back = removed.iter().map(|removed| {
        let field = &removed.ident;
        if let Some(value) = &removed.value {
            quote!(#field: #value)
        } else {
            quote!(#field: ::core::default::Default::default())
        }
    });
    let up = quote!(Self { #(#up,)* });
    // The type as it was named may be a path, which is no expression with braces everywhere: by its alias it is.
    let down = quote!(Before { #(#down,)* #(#back,)* });
    let removed = quote!(const REMOVED: &'static [&'static str] = &[#(#names),*];);
    let fallible = fields
        .iter()
        .any(|field| matches!(field.origin, Origin::Of(_, Conversion::TryWith(_))));
    Some(if fallible {
        quote! {
            #[automatically_derived]
            impl #impl_generics #library::TryFollows for #ident #type_generics #clause {
                type Before = #before;
                #removed
                fn try_up(before: #before) -> ::core::result::Result<Self, #library::ConversionError> {
                    type Before = #before;
                    let Before { #pattern } = before;
                    ::core::result::Result::Ok(#up)
                }
                fn try_down(&self) -> ::core::result::Result<#before, #library::ConversionError> {
                    type Before = #before;
                    ::core::result::Result::Ok(#down)
                }
            }
        }
    } else {
        quote! {
            #[automatically_derived]
            impl #impl_generics #library::Follows for #ident #type_generics #clause {
                type Before = #before;
                #removed
                fn up(before: #before) -> Self {
                    type Before = #before;
                    let Before { #pattern } = before;
                    #up
                }
                fn down(&self) -> #before {
                    type Before = #before;
                    #down
                }
            }
        }
    })
}

/// A field of what comes from the version before.
fn up(field: &Field, library: &syn::Path) -> TokenStream {
    let now = &field.ident;
    match &field.origin {
        Origin::Added(Some(value)) => quote!(#now: #value),
        Origin::Added(None) => quote!(#now: ::core::default::Default::default()),
        Origin::Of(old, Conversion::Same) => quote!(#now: #old),
        Origin::Of(old, Conversion::With(module)) => quote!(#now: #module::up(#old)),
        Origin::Of(old, Conversion::TryWith(module)) => quote!(#now: #module::try_up(#old)?),
        Origin::Of(old, Conversion::Child(within)) => match within {
            Within::Itself => quote!(#now: #library::Follows::up(#old)),
            Within::Option => quote!(#now: #old.map(#library::Follows::up)),
            Within::Vec => quote!(#now: #library::up_all(#old)),
        },
    }
}

/// A field of what goes to the version before, if that has it.
fn down(field: &Field, library: &syn::Path) -> Option<TokenStream> {
    let now = &field.ident;
    Some(match &field.origin {
        Origin::Added(_) => return None,
        Origin::Of(old, Conversion::Same) => quote!(#old: ::core::clone::Clone::clone(&self.#now)),
        Origin::Of(old, Conversion::With(module)) => quote!(#old: #module::down(&self.#now)),
        Origin::Of(old, Conversion::TryWith(module)) => quote!(#old: #module::try_down(&self.#now)?),
        Origin::Of(old, Conversion::Child(within)) => match within {
            Within::Itself => quote!(#old: #library::Follows::down(&self.#now)),
            Within::Option => quote!(#old: self.#now.as_ref().map(#library::Follows::down)),
            Within::Vec => quote!(#old: #library::down_all(&self.#now)),
        },
    })
}
