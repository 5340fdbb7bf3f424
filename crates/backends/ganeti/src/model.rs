//! Ganeti's model of a cluster.
//!
//! Sizes are in MiB. Nodes and groups are referred to by their index in the lists of the cluster; every
//! message names them.

/// The words of an enum, and back.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Ganeti's word.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// From Ganeti's word.
            pub fn of_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }
    };
}

mod cluster;
mod instance;
mod ipolicy;
mod node;
mod template;

pub use cluster::{Discrepancy, GanetiCluster, MOST};
pub use instance::{Instance, Status};
pub use ipolicy::{Ipolicy, Spec, SpecKey};
pub use node::{AllocPolicy, GanetiNode, GroupIx, NodeGroup, NodeIx, Resources};
pub use template::Template;
