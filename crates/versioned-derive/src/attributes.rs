//! What is written in `#[versioned(…)]`.

use proc_macro2::Span;
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, Fields, GenericArgument, Generics, Ident, LitStr, Path,
    PathArguments, Result, Token, Type,
};

/// A version of an object, as it is declared.
pub(crate) struct Object {
    pub(crate) ident: Ident,
    pub(crate) generics: Generics,
    pub(crate) name: LitStr,
    pub(crate) version: (u32, u32),
    pub(crate) before: Option<Type>,
    pub(crate) removed: Vec<Removed>,
    pub(crate) unknown: Option<Ident>,
    pub(crate) library: Path,
    pub(crate) fields: Vec<Field>,
}

/// A field that only the version before has.
pub(crate) struct Removed {
    pub(crate) ident: Ident,
    /// What it is in what goes back; its default where nothing is said.
    pub(crate) value: Option<Expr>,
}

/// A field.
pub(crate) struct Field {
    pub(crate) ident: Ident,
    /// The versioned object in it, if there is one.
    pub(crate) child: Option<Child>,
    pub(crate) origin: Origin,
}

/// A versioned object in a field.
pub(crate) struct Child {
    pub(crate) of: Type,
    pub(crate) within: Within,
}

/// What holds a versioned object.
#[derive(Clone, Copy)]
pub(crate) enum Within {
    Itself,
    Option,
    Vec,
}

/// What a field is of the version before.
pub(crate) enum Origin {
    /// Nothing: it is this, or its default.
    Added(Option<Expr>),
    /// A field of that name.
    Of(Ident, Conversion),
}

/// How a field of the version before becomes this one.
pub(crate) enum Conversion {
    /// It is the same.
    Same,
    /// By functions of a module.
    With(Path),
    /// By functions of a module that may refuse.
    TryWith(Path),
    /// By the conversion of the object in it.
    Child(Within),
}

const STRUCT: &str = "known here are name, version, before, removed, unknown, crate";
const FIELD: &str = "known here are added, renamed, with, try_with, child, converted";

impl Object {
    pub(crate) fn read(input: &DeriveInput) -> Result<Self> {
        let named = match &input.data {
            Data::Struct(data) => match &data.fields {
                Fields::Named(fields) => fields,
                Fields::Unnamed(_) | Fields::Unit => return Err(no_struct(input)),
            },
            Data::Enum(_) | Data::Union(_) => return Err(no_struct(input)),
        };
        let (mut name, mut version, mut before, mut unknown, mut library) = (None, None, None, None, None);
        let mut removed = Vec::new();
        for attribute in ours(&input.attrs) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("name") {
                    name = Some(meta.value()?.parse::<LitStr>()?);
                } else if meta.path.is_ident("version") {
                    version = Some(number(&meta.value()?.parse()?)?);
                } else if meta.path.is_ident("before") {
                    before = Some(meta.value()?.parse::<Type>()?);
                } else if meta.path.is_ident("unknown") {
                    unknown = Some(rule(&meta.value()?.parse()?)?);
                } else if meta.path.is_ident("crate") {
                    library = Some(meta.value()?.parse::<Path>()?);
                } else if meta.path.is_ident("removed") {
                    meta.parse_nested_meta(|field| {
                        let ident = field.path.require_ident()?.clone();
                        let value = field.input.peek(Token![=]).then(|| field.value()?.parse());
                        removed.push(Removed {
                            ident,
                            value: value.transpose()?,
                        });
                        Ok(())
                    })?;
                } else {
                    return Err(meta.error(STRUCT));
                }
                Ok(())
            })?;
        }
        let missing = |what: &str| {
            let example = "#[versioned(name = \"Port\", version = \"1.0\")]";
            Error::new(input.ident.span(), format!("its {what} is missing: {example}"))
        };
        let fields = named
            .named
            .iter()
            .map(|field| Field::read(field, before.is_some()));
        let fields = fields.collect::<Result<Vec<Field>>>()?;
        if let (Some(first), None) = (removed.first(), &before) {
            return Err(without_before(first.ident.span(), "removed"));
        }
        Ok(Self {
            ident: input.ident.clone(),
            generics: input.generics.clone(),
            name: name.ok_or_else(|| missing("name"))?,
            version: version.ok_or_else(|| missing("version"))?,
            before,
            removed,
            unknown,
            library: library.unwrap_or_else(|| syn::parse_quote!(::stagger_versioned)),
            fields,
        })
    }
}

impl Field {
    fn read(field: &syn::Field, follows: bool) -> Result<Self> {
        // Fields are named, or it would not be read.
        let ident = field.ident.clone();
        let ident = ident.ok_or_else(|| Error::new(field.span(), "a field has a name"))?;
        let mut renamed: Option<Ident> = None;
        let mut conversion: Option<Conversion> = None;
        let mut added: Option<(Span, Option<Expr>)> = None;
        let mut child: Option<Child> = None;
        let mut converted: Option<Span> = None;
        for attribute in ours(&field.attrs) {
            attribute.parse_nested_meta(|meta| {
                let span = meta.path.span();
                if meta.path.is_ident("child") {
                    child = Some(Child::of(&field.ty));
                    return Ok(());
                }
                if !follows {
                    let what = meta
                        .path
                        .get_ident()
                        .map_or_else(String::new, ToString::to_string);
                    return Err(without_before(span, &what));
                }
                if meta.path.is_ident("added") {
                    let value = meta.input.peek(Token![=]).then(|| meta.value()?.parse());
                    added = Some((span, value.transpose()?));
                } else if meta.path.is_ident("renamed") {
                    let name: LitStr = meta.value()?.parse()?;
                    renamed = Some(name.parse_with(Ident::parse_any)?);
                } else if meta.path.is_ident("with") {
                    conversion = Some(Conversion::With(meta.value()?.parse()?));
                } else if meta.path.is_ident("try_with") {
                    conversion = Some(Conversion::TryWith(meta.value()?.parse()?));
                } else if meta.path.is_ident("converted") {
                    converted = Some(span);
                } else {
                    return Err(meta.error(FIELD));
                }
                Ok(())
            })?;
        }
        if let Some(span) = converted {
            let Some(child) = &child else {
                return Err(Error::new(
                    span,
                    "only a `child` is converted by its own conversion",
                ));
            };
            if conversion.is_some() {
                return Err(Error::new(span, "it has two conversions"));
            }
            conversion = Some(Conversion::Child(child.within));
        }
        let origin = match (added, renamed, conversion) {
            (Some((_, value)), None, None) => Origin::Added(value),
            (Some((span, _)), _, _) => {
                let why = "what is added was nothing before: it has no other name and no conversion";
                return Err(Error::new(span, why));
            }
            (None, renamed, conversion) => Origin::Of(
                renamed.unwrap_or_else(|| ident.clone()),
                conversion.unwrap_or(Conversion::Same),
            ),
        };
        Ok(Self { ident, child, origin })
    }
}

impl Child {
    /// The object in a field of that type.
    fn of(ty: &Type) -> Self {
        if let Type::Path(path) = ty
            && let Some(last) = path.path.segments.last()
            && let PathArguments::AngleBracketed(arguments) = &last.arguments
            && let (Some(GenericArgument::Type(of)), 1) = (arguments.args.first(), arguments.args.len())
        {
            let within = match last.ident.to_string().as_str() {
                "Option" => Some(Within::Option),
                "Vec" => Some(Within::Vec),
                _ => None,
            };
            if let Some(within) = within {
                return Self {
                    of: of.clone(),
                    within,
                };
            }
        }
        Self {
            of: ty.clone(),
            within: Within::Itself,
        }
    }
}

fn ours(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("versioned"))
}

fn no_struct(input: &DeriveInput) -> Error {
    let why =
        "a version of an object is a struct with named fields: what is stored and sent is a map of them";
    Error::new(input.ident.span(), why)
}

fn without_before(span: Span, what: &str) -> Error {
    let why = format!(
        "`{what}` compares it with the version before, which is not named: add `before = …` to the struct"
    );
    Error::new(span, why)
}

fn number(text: &LitStr) -> Result<(u32, u32)> {
    let value = text.value();
    let plain = |part: &str| {
        let digits = part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<u32>()
            .ok()
            .filter(|number| digits && number.to_string() == part)
    };
    let parts = value.split_once('.');
    parts
        .and_then(|(major, minor)| Some((plain(major)?, plain(minor)?)))
        .ok_or_else(|| {
            let why = "a version is two numbers with a dot between them, as \"1.14\"";
            Error::new(text.span(), why)
        })
}

fn rule(text: &LitStr) -> Result<Ident> {
    let rule = match text.value().as_str() {
        "dropped" => "Dropped",
        "kept" => "Kept",
        "refused" => "Refused",
        _ => {
            let why = "unknown fields are \"dropped\", \"kept\" or \"refused\"";
            return Err(Error::new(text.span(), why));
        }
    };
    Ok(Ident::new(rule, text.span()))
}
