//! Objects: each version is a plain Rust type of its own, and each converts to the version before it and back.
//!
//! A type that was released is never changed again; a change is a new type. So what an older service reads and writes
//! stays in the code as it was, the compiler checks every conversion, and an object inside another is of the version that
//! the outer one was released with: it cannot be forgotten when the outer one is converted.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Version;

/// One version of one object.
///
/// Its serde form is what is sent and stored, and its top level has to be a map of fields.
pub trait Versioned: Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The object, the same for all its versions.
    const NAME: &'static str;
    /// The version that this type is.
    const VERSION: Version;
    /// The versioned objects inside it. The test of shapes finds those that are missing here.
    const CHILDREN: &'static [Child] = &[];
    /// What becomes of fields that are not known. What the newest version says holds for all of its chain.
    const UNKNOWN_FIELDS: UnknownFields = UnknownFields::Dropped;
}

/// A version of an object that is not the first: it knows its neighbour.
pub trait Follows: Versioned {
    /// The version before.
    type Before: Versioned;
    /// Fields that this version has no more, or that hold objects which have lost some. All others have to survive going up
    /// and down again.
    const REMOVED: &'static [&'static str] = &[];
    /// The same in this version.
    fn up(before: Self::Before) -> Self;
    /// A copy in the version before. What does not fit there is left out; who converts is told of it.
    fn down(&self) -> Self::Before;
}

/// A version of an object that not every object of the version before can be brought to, or back from.
///
/// Whatever implements [`Follows`] has it already: implement this instead where a conversion may refuse. In an online
/// migration a row that is refused is set aside with the reason, and the others go on.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use stagger_versioned::{Chain, ConversionError, TryFollows, Version, Versioned};
/// # #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
/// # struct Port1_0 { speed: String }
/// # #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
/// # struct Port1_1 { megabits: u32 }
/// # impl Versioned for Port1_0 {
/// #     const NAME: &'static str = "Port";
/// #     const VERSION: Version = Version::new(1, 0);
/// # }
/// # impl Versioned for Port1_1 {
/// #     const NAME: &'static str = "Port";
/// #     const VERSION: Version = Version::new(1, 1);
/// # }
/// impl TryFollows for Port1_1 {
///     type Before = Port1_0;
///     fn try_up(before: Port1_0) -> Result<Self, ConversionError> {
///         let megabits = before.speed.parse();
///         let megabits = megabits.map_err(|_| ConversionError::new(format!("speed {:?} is no number", before.speed)))?;
///         Ok(Self { megabits })
///     }
///     fn try_down(&self) -> Result<Port1_0, ConversionError> {
///         Ok(Port1_0 { speed: self.megabits.to_string() })
///     }
/// }
///
/// let ports: Chain<Port1_1> = Chain::<Port1_0>::first().then();
/// let stored = ports.load_text(Some(Version::new(1, 0)), r#"{"speed":"fast"}"#);
/// assert_eq!(
///     stored.unwrap_err().to_string(),
///     r#"Port 1.0 cannot be converted to 1.1: speed "fast" is no number"#
/// );
/// ```
pub trait TryFollows: Versioned {
    /// The version before.
    type Before: Versioned;
    /// As [`Follows::REMOVED`].
    const REMOVED: &'static [&'static str] = &[];
    /// The same in this version, or why it cannot be.
    fn try_up(before: Self::Before) -> Result<Self, ConversionError>;
    /// A copy in the version before, or why there cannot be one. What only does not fit there is left out, as in
    /// [`Follows::down`]: refuse what would mean something else there.
    fn try_down(&self) -> Result<Self::Before, ConversionError>;
}

impl<T: Follows> TryFollows for T {
    type Before = <T as Follows>::Before;
    const REMOVED: &'static [&'static str] = <T as Follows>::REMOVED;
    fn try_up(before: <T as Follows>::Before) -> Result<Self, ConversionError> {
        Ok(T::up(before))
    }
    fn try_down(&self) -> Result<<T as Follows>::Before, ConversionError> {
        Ok(self.down())
    }
}

/// Why an object cannot be brought to another version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct ConversionError {
    why: String,
}

impl ConversionError {
    /// The reason, for whoever has to repair the object: which field, which value, what is wrong with it.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }
}

/// What a version does with fields that it does not know, in messages and in texts.
///
/// A row of a table is another matter: it has the columns of all versions, and what a version does not know of it stays as it
/// is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownFields {
    /// They are left out.
    Dropped,
    /// They are kept with the object, and go out again with it as they came.
    Kept,
    /// The object is not read.
    Refused,
}

/// An object inside another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Child {
    name: &'static str,
    version: Version,
}

impl Child {
    /// The object of that type.
    pub const fn of<T: Versioned>() -> Self {
        Self {
            name: T::NAME,
            version: T::VERSION,
        }
    }

    /// Which object.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// In which version.
    pub const fn version(self) -> Version {
        self.version
    }
}

/// A list in this version.
pub fn up_all<T: Follows>(before: Vec<T::Before>) -> Vec<T> {
    before.into_iter().map(T::up).collect()
}

/// A copy of a list in the version before.
pub fn down_all<T: Follows>(these: &[T]) -> Vec<T::Before> {
    these.iter().map(T::down).collect()
}

/// A list in this version, or the first reason why one of it cannot be.
pub fn try_up_all<T: TryFollows>(before: Vec<T::Before>) -> Result<Vec<T>, ConversionError> {
    before.into_iter().map(T::try_up).collect()
}

/// A copy of a list in the version before, or the first reason why one of it has none.
pub fn try_down_all<T: TryFollows>(these: &[T]) -> Result<Vec<T::Before>, ConversionError> {
    these.iter().map(T::try_down).collect()
}
