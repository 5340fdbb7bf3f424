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
