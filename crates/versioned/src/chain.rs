//! All versions of one object, from the oldest known to the newest.
//!
//! A chain is built from neighbours, and a missing neighbour does not compile. A program uses the newest type
//! only; the chain reads and writes the others.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Map, Value};

use crate::Version;
use crate::envelope;
use crate::loss::{Loss, differences};
use crate::object::{Child, ConversionError, TryFollows, Versioned};
use crate::unknown_fields;

/// How the newest type `T` is read from and written in each version of its object.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use stagger_versioned::{Chain, Follows, Version, Versioned};
/// #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
/// struct Port1_0 { address: String }
/// #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
/// struct Port1_1 { address: String, description: Option<String> }
///
/// impl Versioned for Port1_0 {
///     const NAME: &'static str = "Port";
///     const VERSION: Version = Version::new(1, 0);
/// }
/// impl Versioned for Port1_1 {
///     const NAME: &'static str = "Port";
///     const VERSION: Version = Version::new(1, 1);
/// }
/// impl Follows for Port1_1 {
///     type Before = Port1_0;
///     fn up(before: Port1_0) -> Self { Self { address: before.address, description: None } }
///     fn down(&self) -> Port1_0 { Port1_0 { address: self.address.clone() } }
/// }
///
/// let ports: Chain<Port1_1> = Chain::<Port1_0>::first().then();
/// let port = Port1_1 { address: "52:54:00:00:00:01".into(), description: Some("left".into()) };
/// let old = ports.text(&port, Version::new(1, 0))?;
/// assert_eq!(old.data, r#"{"address":"52:54:00:00:00:01"}"#);
/// assert_eq!(old.lost[0].to_string(), r#"/description: "left" would become null"#);
/// # Ok::<(), stagger_versioned::chain::Unwritten>(())
/// ```
pub struct Chain<T> {
    older: Vec<Older<T>>,
    without_version: Option<Version>,
    /// How long the last text was: the next has room for as much from the start.
    length: AtomicUsize,
}

type Read<T> = Arc<dyn Fn(Source<'_>) -> Result<T, Failure> + Send + Sync>;
/// Fields of the version given, in the version that it belongs to.
type Raise = Box<dyn Fn(Version, &Map<String, Value>) -> Result<Map<String, Value>, Failure> + Send + Sync>;
type Convert<T> = Box<dyn Fn(&T, Form) -> Result<(Written, Back<T>), Failure> + Send + Sync>;
/// What comes of a copy that is brought back; `None` where that is the same again, as it nearly always is.
type Back<T> = Option<Box<T>>;

/// One of the older versions, seen from the newest.
struct Older<T> {
    version: Version,
    children: &'static [Child],
    /// Whether later versions have no place any more for something of it.
    removed: bool,
    read: Read<T>,
    /// Brings fields of versions before it up to it, and no further.
    raise: Raise,
    /// Writes a copy in that version; what comes of it stands beside.
    convert: Convert<T>,
    /// What of a text it does not know.
    unknown: fn(&str) -> Vec<String>,
}

/// Why a version could not be read or written.
#[derive(Debug)]
enum Failure {
    /// It is not in the form of its type.
    Form(serde_json::Error),
    /// A conversion refused.
    Refused {
        from: Version,
        to: Version,
        why: ConversionError,
    },
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Form(error)
    }
}

/// What an object is read from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'a> {
    Text(&'a str),
    Fields(&'a Map<String, Value>),
}

#[derive(Debug, Clone, Copy)]
enum Form {
    /// With room for so many bytes.
    Text(usize),
    /// The same in its envelope.
    Sent(usize),
    Fields,
}

enum Written {
    Text(String),
    Fields(Value),
}

/// A copy in some version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted<D> {
    /// The version that it is in.
    pub version: Version,
    /// The copy.
    pub data: D,
    /// What did not fit into it.
    pub lost: Vec<Loss>,
}

/// An object that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is of a later release than this code.
    #[error("{object} {version} comes from a later release: this code knows {object} up to {newest}")]
    FromTheFuture {
        /// The object.
        object: String,
        /// Its version.
        version: Version,
        /// The newest that is known here.
        newest: Version,
    },
    /// It is older than all that is still known, or of another major.
    #[error(
        "{object} {version} is not known here any more; known are {oldest} to {newest}: go through a release that knows it"
    )]
    Forgotten {
        /// The object.
        object: String,
        /// Its version.
        version: Version,
        /// The oldest that is known here.
        oldest: Version,
        /// The newest that is known here.
        newest: Version,
    },
    /// Nobody wrote down its version.
    #[error(
        "{object} has no version, and none is declared for those without: run the online data migrations of the release before"
    )]
    NoVersion {
        /// The object.
        object: String,
    },
    /// What stands where its version should is none.
    #[error("{object} has {text:?} where its version should be")]
    NotAVersion {
        /// The object.
        object: String,
        /// What stands there.
        text: String,
    },
    /// The row that it stands in cannot be read.
    #[error("{object}: {why}")]
    NoRow {
        /// The object.
        object: String,
        /// Why not.
        why: String,
    },
    /// It does not look as its version should.
    #[error("{object} {version} cannot be read: {why}")]
    Malformed {
        /// The object.
        object: String,
        /// Its version.
        version: Version,
        /// What the parser says.
        why: String,
    },
    /// A conversion on the way to the newest version refuses it.
    #[error("{object} {from} cannot be converted to {to}: {why}")]
    Refused {
        /// The object.
        object: String,
        /// The version that it could be brought to.
        from: Version,
        /// The version that it could not be brought to.
        to: Version,
        /// Why not.
        why: ConversionError,
    },
}

/// An object that cannot be written in the version asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unwritten {
    /// The code has no such version.
    #[error("{object} cannot be written as {asked}; known are {oldest} to {newest}")]
    NoSuchVersion {
        /// The object.
        object: String,
        /// What was asked for.
        asked: Version,
        /// The oldest that is known here.
        oldest: Version,
        /// The newest that is known here.
        newest: Version,
    },
    /// It has no form in JSON, or its top level is no map.
    #[error("{object} {version} has no form in JSON: {why}")]
    NoForm {
        /// The object.
        object: String,
        /// The version.
        version: Version,
        /// What the serializer says.
        why: String,
    },
    /// A conversion on the way to that version, or back, refuses it.
    #[error("{object} {from} cannot be converted to {to}: {why}")]
    Refused {
        /// The object.
        object: String,
        /// The version that it could be brought to.
        from: Version,
        /// The version that it could not be brought to.
        to: Version,
        /// Why not.
        why: ConversionError,
    },
}

/// Whether two texts are one, while compiling.
const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

fn read<T: Versioned>(source: Source<'_>) -> Result<T, serde_json::Error> {
    match source {
        Source::Text(text) => serde_json::from_str(text),
        Source::Fields(fields) => T::deserialize(fields).or_else(|error| {
            // What is left out where it is empty has an empty column, and may not be read from that.
            let filled = fields.iter().filter(|(_, value)| !value.is_null());
            let filled: Map<_, _> = filled
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            T::deserialize(&filled).map_err(|_| error)
        }),
    }
}

fn write<T: Versioned>(value: &T, form: Form) -> Result<Written, serde_json::Error> {
    Ok(match form {
        Form::Text(room) => Written::Text(envelope::text(value, room)?),
        Form::Sent(room) => Written::Text(envelope::of(value, room)?),
        Form::Fields => Written::Fields(serde_json::to_value(value)?),
    })
}

impl<T: Versioned> Chain<T> {
    /// Begins with the oldest version that is still known.
    pub fn first() -> Self {
        Self {
            older: Vec::new(),
            without_version: None,
            length: AtomicUsize::new(0),
        }
    }

    /// Goes on with the version after.
    pub fn then<A: TryFollows<Before = T>>(self) -> Chain<A> {
        const {
            assert!(same(A::NAME, T::NAME), "a chain is of one object");
            assert!(
                A::VERSION.major() == T::VERSION.major() && A::VERSION.minor() == T::VERSION.minor() + 1,
                "the versions of a chain follow each other without gaps"
            );
        }
        let Self {
            older,
            without_version,
            length,
        } = self;
        let readers: Vec<(Version, Read<T>)> = older
            .iter()
            .map(|older| (older.version, Arc::clone(&older.read)))
            .collect();
        let mut lifted: Vec<Older<A>> = Vec::with_capacity(older.len() + 1);
        for Older {
            version,
            children,
            removed,
            read,
            raise,
            convert,
            unknown,
        } in older
        {
            lifted.push(Older {
                version,
                children,
                removed: removed || !A::REMOVED.is_empty(),
                read: Arc::new(move |source| up::<A>(read(source)?)),
                raise,
                convert: Box::new(move |value, form| {
                    let before = down(value)?;
                    let (written, back) = convert(&before, form)?;
                    Ok((written, other(up(back.map_or(before, |back| *back))?, value)))
                }),
                unknown,
            });
        }
        lifted.push(Older {
            version: T::VERSION,
            children: T::CHILDREN,
            removed: !A::REMOVED.is_empty(),
            read: Arc::new(|source| up::<A>(read::<T>(source)?)),
            raise: Box::new(move |version, fields| {
                let reader = readers.iter().find(|(known, _)| *known == version);
                let value = match reader {
                    Some((_, reader)) => reader(Source::Fields(fields))?,
                    None => read::<T>(Source::Fields(fields))?,
                };
                // What is no map of fields is an error here.
                Ok(serde_json::from_value(serde_json::to_value(&value)?)?)
            }),
            convert: Box::new(|value, form| {
                let before = down(value)?;
                Ok((write(&before, form)?, other(up(before)?, value)))
            }),
            unknown: unknown_fields::unknown::<T>,
        });
        Chain {
            older: lifted,
            without_version,
            length,
        }
    }

    /// Rows without a version are of the version that the chain has reached here: the one before versions were stored.
    #[must_use]
    pub fn rows_without_version_are_these(mut self) -> Self {
        self.without_version = Some(T::VERSION);
        self
    }

    /// What a row without a version is taken to be.
    pub fn without_version(&self) -> Option<Version> {
        self.without_version
    }

    /// The oldest version that is still known.
    pub fn oldest(&self) -> Version {
        self.older.first().map_or(T::VERSION, |older| older.version)
    }

    /// All versions, oldest first, each with the objects that it carries.
    pub fn versions(&self) -> Vec<(Version, &'static [Child])> {
        let older = self.older.iter().map(|older| (older.version, older.children));
        older.chain([(T::VERSION, T::CHILDREN)]).collect()
    }

    /// Whether it can be written in that version.
    pub fn can_write(&self, version: Version) -> bool {
        version == T::VERSION || self.older(version).is_some()
    }

    /// A copy as JSON in that version, and what did not fit.
    pub fn text(&self, value: &T, version: Version) -> Result<Converted<String>, Unwritten> {
        self.text_as(value, version, Form::Text(self.length.load(Ordering::Relaxed)))
    }

    /// The same in its envelope.
    pub(crate) fn enveloped(&self, value: &T, version: Version) -> Result<Converted<String>, Unwritten> {
        self.text_as(value, version, Form::Sent(self.length.load(Ordering::Relaxed)))
    }

    fn text_as(&self, value: &T, version: Version, form: Form) -> Result<Converted<String>, Unwritten> {
        let (written, lost) = self.convert(value, version, form)?;
        match written {
            Written::Text(data) => {
                self.length.store(data.len(), Ordering::Relaxed);
                Ok(Converted { version, data, lost })
            }
            Written::Fields(_) => Err(not_representable::<T>(version, "it was asked for as text")),
        }
    }

    /// A copy as fields in that version, and what did not fit.
    pub fn fields(&self, value: &T, version: Version) -> Result<Converted<Map<String, Value>>, Unwritten> {
        let (written, lost) = self.convert(value, version, Form::Fields)?;
        match written {
            Written::Fields(Value::Object(data)) => Ok(Converted { version, data, lost }),
            Written::Fields(_) | Written::Text(_) => Err(not_representable::<T>(
                version,
                "its top level is no map of fields",
            )),
        }
    }

    /// The lowest version into which all of it fits.
    pub fn needs(&self, value: &T) -> Result<Version, Unwritten> {
        for older in &self.older {
            match (older.convert)(value, Form::Fields) {
                Ok((_, None)) => return Ok(older.version),
                // What is refused there does not fit there.
                Ok((_, Some(_))) | Err(Failure::Refused { .. }) => {}
                Err(failure) => return Err(write_failure::<T>(older.version, failure)),
            }
        }
        Ok(T::VERSION)
    }

    /// Reads what is in that version.
    pub(crate) fn read(&self, version: Version, source: Source<'_>) -> Result<T, Unreadable> {
        let read_it = match self.older(version) {
            Some(older) => (older.read)(source),
            None if version == T::VERSION => read::<T>(source).map_err(Failure::Form),
            None => return Err(self.unknown(version)),
        };
        read_it.map_err(|failure| unreadable::<T>(version, failure))
    }

    /// Whether the newest type has no place for something of that version.
    pub(crate) fn removed(&self, version: Version) -> bool {
        self.older(version).is_some_and(|older| older.removed)
    }

    /// What of a text of that version its type does not know, as JSON pointers.
    pub(crate) fn unknown_in(&self, version: Version, text: &str) -> Vec<String> {
        match self.older(version) {
            Some(older) => (older.unknown)(text),
            None => unknown_fields::unknown::<T>(text),
        }
    }

    /// Fields in their version or a later one, and no further: what only versions after that have no place for is still
    /// there.
    pub(crate) fn raise(
        &self,
        fields: &Map<String, Value>,
        from: Version,
        to: Version,
    ) -> Result<Map<String, Value>, Unreadable> {
        if let Some(older) = self.older(to) {
            return (older.raise)(from, fields).map_err(|failure| unreadable::<T>(from, failure));
        }
        let value = self.read(from, Source::Fields(fields))?;
        let raised = self.fields(&value, to);
        Ok(raised
            .map_err(|error| Unreadable::Malformed {
                object: T::NAME.to_owned(),
                version: from,
                why: error.to_string(),
            })?
            .data)
    }

    /// Why that version is not known.
    pub(crate) fn unknown(&self, version: Version) -> Unreadable {
        let object = T::NAME.to_owned();
        let (oldest, newest) = (self.oldest(), T::VERSION);
        if version > newest {
            Unreadable::FromTheFuture {
                object,
                version,
                newest,
            }
        } else {
            Unreadable::Forgotten {
                object,
                version,
                oldest,
                newest,
            }
        }
    }

    fn older(&self, version: Version) -> Option<&Older<T>> {
        let first = self.older.first()?;
        let at = version.minor().checked_sub(first.version.minor())?;
        self.older
            .get(at as usize)
            .filter(|older| older.version == version)
    }

    fn convert(&self, value: &T, version: Version, form: Form) -> Result<(Written, Vec<Loss>), Unwritten> {
        let failed = |failure: Failure| write_failure::<T>(version, failure);
        let Some(older) = self.older(version) else {
            if version == T::VERSION {
                let written = write(value, form).map_err(Failure::Form);
                return Ok((written.map_err(failed)?, Vec::new()));
            }
            return Err(Unwritten::NoSuchVersion {
                object: T::NAME.to_owned(),
                asked: version,
                oldest: self.oldest(),
                newest: T::VERSION,
            });
        };
        let (written, back) = (older.convert)(value, form).map_err(failed)?;
        let Some(back) = back else {
            return Ok((written, Vec::new()));
        };
        let json = |value: &T| serde_json::to_value(value).map_err(|error| failed(error.into()));
        Ok((written, differences(&json(value)?, &json(&back)?)))
    }
}

/// In the next version.
fn up<A: TryFollows>(before: A::Before) -> Result<A, Failure> {
    A::try_up(before).map_err(|why| Failure::Refused {
        from: A::Before::VERSION,
        to: A::VERSION,
        why,
    })
}

/// In the version before.
fn down<A: TryFollows>(value: &A) -> Result<A::Before, Failure> {
    value.try_down().map_err(|why| Failure::Refused {
        from: A::VERSION,
        to: A::Before::VERSION,
        why,
    })
}

fn unreadable<T: Versioned>(version: Version, failure: Failure) -> Unreadable {
    let object = T::NAME.to_owned();
    match failure {
        Failure::Form(error) => Unreadable::Malformed {
            object,
            version,
            why: error.to_string(),
        },
        Failure::Refused { from, to, why } => Unreadable::Refused {
            object,
            from,
            to,
            why,
        },
    }
}

fn write_failure<T: Versioned>(version: Version, failure: Failure) -> Unwritten {
    let object = T::NAME.to_owned();
    match failure {
        Failure::Form(error) => not_representable::<T>(version, error),
        Failure::Refused { from, to, why } => Unwritten::Refused {
            object,
            from,
            to,
            why,
        },
    }
}

/// What came back, if it is not the same again.
fn other<T: PartialEq>(back: T, value: &T) -> Back<T> {
    (back != *value).then(|| Box::new(back))
}

pub(crate) fn not_representable<T: Versioned>(version: Version, why: impl fmt::Display) -> Unwritten {
    Unwritten::NoForm {
        object: T::NAME.to_owned(),
        version,
        why: why.to_string(),
    }
}

impl<T: Versioned> fmt::Debug for Chain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chain({} {} to {})", T::NAME, self.oldest(), T::VERSION)
    }
}
