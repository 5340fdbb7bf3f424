//! Golden shapes: what every version of every object looks like, in a committed file.
//!
//! A version that was released is in the stores and in the processes of others. Its type may be moved, renamed and
//! documented, but what it reads and writes may not change any more. A test compares the types with the file:
//!
//! ```
//! # use std::sync::Arc;
//! # use schemars::JsonSchema;
//! # use serde::{Deserialize, Serialize};
//! # use stagger_versioned::{Chain, Declared, Manifest, Registry, Version, Versioned, shapes::Shapes};
//! # #[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
//! # struct Port1_0 { address: String }
//! # impl Versioned for Port1_0 {
//! #     const NAME: &'static str = "Port";
//! #     const VERSION: Version = Version::new(1, 0);
//! # }
//! # let declared: Declared = serde_json::from_str(
//! #     r#"{"current": "1.0", "release": [{"number": "1.0", "names": ["one"], "date": "2026-01-01", "api": "1.0", "rpc": "1.0",
//! #         "objects": {"Port": "1.0"}}]}"#,
//! # )?;
//! # let manifest = Manifest::new(declared)?;
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("shapes.json");
//! let shapes = Shapes::new().with::<Port1_0>(); // and all other versions
//! let registry = Registry::new().with(Arc::new(Chain::<Port1_0>::first()));
//! # let ask = |_: &str| Some("write");
//! // As `SHAPES=write cargo test`, where something is new.
//! if ask("SHAPES") == Some("write") {
//!     let golden = std::fs::read_to_string(&file).unwrap_or_default();
//!     std::fs::write(&file, shapes.update(&golden, &registry, &manifest)?)?;
//! }
//! shapes.compare(&std::fs::read_to_string(&file)?, &registry, &manifest)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::loss::differences;
use crate::manifest::{Manifest, Place};
use crate::object::{Child, Versioned};
use crate::{Registry, Version};

type Name = (String, Version);
/// The committed file: object, version, shape.
type Golden = BTreeMap<String, BTreeMap<Version, Value>>;

/// The shapes of the types.
#[derive(Debug, Default)]
pub struct Shapes {
    types: BTreeMap<Name, Type>,
}

#[derive(Debug)]
struct Type {
    /// What it reads and writes, everything inside it spelled out.
    shape: Value,
    /// The name of its type, and what its type looks like where others refer to it.
    schema_name: String,
    body: Value,
    /// The types that it refers to.
    inside: Map<String, Value>,
    declared: BTreeSet<Child>,
}

/// What is wrong with the shapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// A released shape is another now.
    Changed {
        /// The object.
        object: String,
        /// The version.
        version: Version,
        /// The first release that has it.
        release: String,
        /// What a new version would be called.
        next: Version,
        /// Where it differs.
        at: Vec<String>,
    },
    /// A version is not in the file, or differs from it and is not released.
    OutOfDate {
        /// The object.
        object: String,
        /// The version.
        version: Version,
    },
    /// The file has a version that neither the code nor the manifest has any more.
    Forgotten {
        /// The object.
        object: String,
        /// The version.
        version: Version,
    },
    /// The registry has a version whose type was not given.
    NotGiven {
        /// The object.
        object: String,
        /// The version.
        version: Version,
    },
    /// A type has a versioned object inside that it does not declare, or the other way round.
    Children {
        /// The object.
        object: String,
        /// The version.
        version: Version,
        /// What it declares.
        declared: Vec<String>,
        /// What is inside.
        inside: Vec<String>,
    },
    /// The file is no file of shapes.
    NoFile {
        /// What the parser says.
        why: String,
    },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed {
                object,
                version,
                release,
                next,
                at,
            } => write!(
                f,
                "{object} {version} was released with {release}, and its shape has changed: {}. Put its type back as it was, and \
                 make the change in {object} {next}, a type of its own that follows the newest",
                at.join(", ")
            ),
            Self::OutOfDate { object, version } => {
                write!(
                    f,
                    "{object} {version} differs from the file, or is not in it; it is not released yet: write the file anew"
                )
            }
            Self::Forgotten { object, version } => {
                write!(
                    f,
                    "{object} {version} is in the file, and nowhere else any more: write the file anew"
                )
            }
            Self::NotGiven { object, version } => {
                write!(
                    f,
                    "the type of {object} {version} was not given: add it with `with`"
                )
            }
            Self::Children {
                object,
                version,
                declared,
                inside,
            } => {
                let list = |children: &[String]| match children {
                    [] => "nothing".to_owned(),
                    some => some.join(", "),
                };
                write!(
                    f,
                    "{object} {version} declares {} as its CHILDREN, and has {} inside",
                    list(declared),
                    list(inside)
                )
            }
            Self::NoFile { why } => write!(f, "this is no file of shapes: {why}"),
        }
    }
}

/// All that is wrong with the shapes, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrongs(pub Vec<Wrong>);

impl fmt::Display for Wrongs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the shapes of objects are not as they should be:")?;
        for wrong in &self.0 {
            write!(f, "\n  {wrong}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Wrongs {}

impl Shapes {
    /// No types yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the type of one version.
    #[must_use]
    pub fn with<T: Versioned + JsonSchema>(mut self) -> Self {
        let inline = |settings: SchemaSettings| {
            let generator = settings
                .with(|settings| settings.inline_subschemas = true)
                .into_generator();
            normal(generator.into_root_schema_for::<T>().to_value())
        };
        let read = inline(SchemaSettings::default().for_deserialize());
        let written = inline(SchemaSettings::default().for_serialize());
        // What is written differs in little, mostly in that an empty field is written too.
        let differs = differences(&read, &written).into_iter();
        let differs: Map<String, Value> = differs
            .map(|at| (at.at, at.becomes.unwrap_or(Value::Null)))
            .collect();
        let shape = Value::Object(Map::from_iter([
            ("read".to_owned(), read),
            ("written".to_owned(), Value::Object(differs)),
        ]));
        let mut body = normal(
            SchemaSettings::default()
                .into_generator()
                .into_root_schema_for::<T>()
                .to_value(),
        );
        let inside = body.as_object_mut().and_then(|body| body.remove("$defs"));
        let inside = match inside {
            Some(Value::Object(inside)) => inside,
            Some(_) | None => Map::new(),
        };
        let given = Type {
            shape,
            schema_name: T::schema_name().into_owned(),
            body,
            inside,
            declared: T::CHILDREN.iter().copied().collect(),
        };
        self.types.insert((T::NAME.to_owned(), T::VERSION), given);
        self
    }

    /// Compares them with the committed file.
    pub fn compare(&self, golden: &str, registry: &Registry, manifest: &Manifest) -> Result<(), Wrongs> {
        let golden = parsed(golden)?;
        let mut wrong = self.frozen(&golden, manifest);
        for ((object, version), given) in &self.types {
            let in_file = golden.get(object).and_then(|versions| versions.get(version));
            let told = |wrong: &Wrong| matches!(wrong, Wrong::Changed { object: o, version: v, .. } if o == object && v == version);
            if in_file != Some(&given.shape) && !wrong.iter().any(told) {
                wrong.push(Wrong::OutOfDate {
                    object: object.clone(),
                    version: *version,
                });
            }
        }
        for (object, versions) in &golden {
            for version in versions
                .keys()
                .filter(|version| !self.types.contains_key(&(object.clone(), **version)))
            {
                wrong.push(Wrong::Forgotten {
                    object: object.clone(),
                    version: *version,
                });
            }
        }
        self.complete(registry, &mut wrong);
        self.children(&mut wrong);
        ended(wrong)
    }

    /// The file anew. Shapes that were released are never overwritten: it is an error if one has changed.
    pub fn update(&self, golden: &str, registry: &Registry, manifest: &Manifest) -> Result<String, Wrongs> {
        let golden = parsed(golden)?;
        let mut wrong = self.frozen(&golden, manifest);
        self.complete(registry, &mut wrong);
        self.children(&mut wrong);
        ended(wrong)?;
        let mut anew = Golden::new();
        for ((object, version), given) in &self.types {
            anew.entry(object.clone())
                .or_default()
                .insert(*version, given.shape.clone());
        }
        let text = serde_json::to_string_pretty(&anew).map_err(|error| {
            Wrongs(vec![Wrong::NoFile {
                why: error.to_string(),
            }])
        })?;
        Ok(text + "\n")
    }

    /// What was released, and is not as it was.
    fn frozen(&self, golden: &Golden, manifest: &Manifest) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        for ((object, version), given) in &self.types {
            let Some(release) = released(manifest, object, *version) else {
                continue;
            };
            let Some(before) = golden.get(object).and_then(|versions| versions.get(version)) else {
                continue;
            };
            if *before != given.shape {
                let newest = self
                    .types
                    .keys()
                    .filter(|(name, _)| name == object)
                    .map(|(_, version)| *version)
                    .max();
                let newest = newest.unwrap_or(*version);
                wrong.push(Wrong::Changed {
                    object: object.clone(),
                    version: *version,
                    release: manifest.label(release),
                    next: Version::new(newest.major(), newest.minor() + 1),
                    at: differences(before, &given.shape)
                        .iter()
                        .map(ToString::to_string)
                        .collect(),
                });
            }
        }
        wrong
    }

    fn complete(&self, registry: &Registry, wrong: &mut Vec<Wrong>) {
        for (object, version, _) in registry.versions() {
            if !self.types.contains_key(&(object.to_owned(), version)) {
                wrong.push(Wrong::NotGiven {
                    object: object.to_owned(),
                    version,
                });
            }
        }
    }

    /// Compares what types declare with what they refer to. A type is known again by its name and what it looks like, since
    /// two versions may have types of the same name in different modules.
    fn children(&self, wrong: &mut Vec<Wrong>) {
        for ((object, version), given) in &self.types {
            let mut inside: BTreeSet<&Name> = BTreeSet::new();
            for (schema_name, body) in &given.inside {
                let candidates = self
                    .types
                    .iter()
                    .filter(|(_, other)| other.body == *body && other.schema_name == *schema_name);
                let candidates: Vec<&Name> = candidates.map(|(name, _)| name).collect();
                // Two versions that look the same: the declared one, if it is among them.
                let declared = candidates.iter().find(|(name, at)| {
                    given
                        .declared
                        .iter()
                        .any(|child| child.name() == name && child.version() == *at)
                });
                inside.extend(declared.or(candidates.last()).copied());
            }
            let inside: Vec<String> = inside
                .iter()
                .map(|(name, version)| format!("{name} {version}"))
                .collect();
            let declared = given
                .declared
                .iter()
                .map(|child| format!("{} {}", child.name(), child.version()));
            let declared: Vec<String> = declared.collect();
            if inside != declared {
                wrong.push(Wrong::Children {
                    object: object.clone(),
                    version: *version,
                    declared,
                    inside,
                });
            }
        }
    }
}

/// The first numbered release that lists it.
fn released(manifest: &Manifest, object: &str, version: Version) -> Option<Place> {
    let lists = |place: &Place| {
        manifest
            .objects(*place)
            .get(object)
            .is_some_and(|versions| versions.contains(version))
    };
    manifest
        .places()
        .find(|place| manifest.date(*place).is_some() && lists(place))
}

fn parsed(golden: &str) -> Result<Golden, Wrongs> {
    if golden.trim().is_empty() {
        return Ok(Golden::new());
    }
    serde_json::from_str(golden).map_err(|error| {
        Wrongs(vec![Wrong::NoFile {
            why: error.to_string(),
        }])
    })
}

fn ended(wrong: Vec<Wrong>) -> Result<(), Wrongs> {
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Wrongs(wrong))
    }
}

/// Without what only people read, and in one order.
fn normal(value: Value) -> Value {
    normal_at(value, false)
}

/// Below `properties` a key is the name of a field, and may be called as it likes.
fn normal_at(value: Value, names: bool) -> Value {
    const WORDS: [&str; 6] = [
        "title",
        "description",
        "$schema",
        "examples",
        "deprecated",
        "$comment",
    ];
    match value {
        Value::Object(map) => {
            let kept = map
                .into_iter()
                .filter(|(key, value)| names || value.is_object() || !WORDS.contains(&key.as_str()));
            let each = kept.map(|(key, value)| {
                let below = !names && matches!(key.as_str(), "properties" | "$defs");
                let mut value = normal_at(value, below);
                if !names
                    && matches!(key.as_str(), "required" | "enum" | "type")
                    && let Value::Array(list) = &mut value
                {
                    list.sort_by_key(ToString::to_string);
                }
                (key, value)
            });
            let sorted: BTreeMap<String, Value> = each.collect();
            Value::Object(sorted.into_iter().collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(|value| normal_at(value, false)).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}
