//! Ganeti's text format, both ways: what `hroller -t` reads and `-S` writes.
//!
//! Five sections with an empty line between two: groups, nodes, instances, tags of the cluster, policies; the
//! last may be missing, and what follows it is not looked at. Fields stand between `|`, lists between `,`.

mod read;
mod write;

pub use read::{TextError, read};
pub use write::write;
