//! The derive of [`stagger-versioned`](https://docs.rs/stagger-versioned): use it by that crate's feature `derive`, where it
//! is documented with examples.

mod attributes;
mod generate;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `Versioned` for a struct with named fields; with `before = …` also `Follows`, or `TryFollows` if one of its
/// conversions may refuse.
///
/// On the struct, in `#[versioned(…)]`:
///
/// | | |
/// |---|---|
/// | `name = "Port"` | the object, the same for all its versions |
/// | `version = "1.1"` | the version that this type is |
/// | `before = Port1_0` | the type of the version before |
/// | `removed(extra, mode = 3)` | fields that only the version before has, and what they are when it is gone back to: a default or an expression |
/// | `unknown = "kept"` | `dropped`, `kept` or `refused`: see `UnknownFields` |
/// | `crate = some::path` | where `stagger_versioned` is, if not there |
///
/// On a field, where it is not the same as before under the same name:
///
/// | | |
/// |---|---|
/// | `added`, `added = 3` | the version before does not have it; what it is in what comes from there |
/// | `renamed = "old"` | what it was called before |
/// | `with = module` | converted by `module::up(before)` and `module::down(&now)` |
/// | `try_with = module` | the same with `module::try_up` and `module::try_down`, which give a `Result` |
/// | `child` | it is a versioned object, or an `Option` or `Vec` of one, in the version that it was in before |
/// | `child, converted` | the same, in the version after that |
///
/// A field of the version before that is not spoken of is a compile error, as is one that has another type.
#[proc_macro_derive(Versioned, attributes(versioned))]
pub fn versioned(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    let generated = attributes::Object::read(&input).map(|object| generate::generate(&object));
    generated.unwrap_or_else(|error| error.to_compile_error()).into()
}
