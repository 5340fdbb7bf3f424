//! What befalls a journal.

use serde::{Deserialize, Serialize};

/// What befalls a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ill", rename_all = "kebab-case", deny_unknown_fields)]
pub enum JournalFault {
    /// Its disk is full: nothing can be written.
    Full {
        /// Seconds after the beginning.
        at: u32,
        /// Seconds.
        lasts: u32,
    },
    /// One append is torn: an error is answered, and nothing of it is there when it is read again.
    Torn {
        /// Which, from 1.
        append: u32,
    },
    /// One append is written, and an error is answered.
    Unsure {
        /// Which, from 1.
        append: u32,
    },
    /// A backup of it is put back, or it fails over to a copy without the last writes.
    PutBack {
        /// Seconds after the beginning.
        at: u32,
        /// What was written in so many seconds before that is lost.
        lost: u32,
    },
}

impl JournalFault {
    /// What kind, as scenario files name it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Full { .. } => "journal-full",
            Self::Torn { .. } => "journal-torn",
            Self::Unsure { .. } => "journal-unsure",
            Self::PutBack { .. } => "journal-put-back",
        }
    }
}
