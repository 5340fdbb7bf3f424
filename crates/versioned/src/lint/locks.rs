//! Which statements lock a table on PostgreSQL, by its documentation of `ALTER TABLE`, `CREATE INDEX` and
//! explicit locking.

use std::fmt;

use serde::Serialize;

/// A lock on a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lock {
    /// The table.
    pub table: String,
    /// What is done to it.
    pub what: String,
    /// The lock.
    pub mode: Mode,
    /// Whether it is held while all rows are read or written: as long as the table is large. The others are held for an
    /// instant, but wait for all who use the table, and all who come later wait behind them.
    pub long: bool,
    /// What would hold it shorter, if anything would.
    pub instead: Option<&'static str>,
}

/// The modes that keep services from working.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    /// Nobody writes.
    Share,
    /// Nobody writes.
    ShareRowExclusive,
    /// Nobody reads or writes.
    AccessExclusive,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Share => "SHARE",
            Self::ShareRowExclusive => "SHARE ROW EXCLUSIVE",
            Self::AccessExclusive => "ACCESS EXCLUSIVE",
        })
    }
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            table,
            what,
            mode,
            long,
            instead,
        } = self;
        let blocks = match mode {
            Mode::Share | Mode::ShareRowExclusive => "no writes",
            Mode::AccessExclusive => "no reads or writes",
        };
        let while_ = if *long {
            "while all its rows are gone through"
        } else {
            "for an instant"
        };
        write!(f, "`{table}`: {what} takes {mode}: {blocks} {while_}")?;
        match instead {
            Some(instead) => write!(f, "; {instead}"),
            None => Ok(()),
        }
    }
}

impl Lock {
    /// Held for an instant.
    pub(super) fn short(table: &str, what: String, mode: Mode) -> Self {
        Self {
            table: table.to_owned(),
            what,
            mode,
            long: false,
            instead: None,
        }
    }

    /// Held as long as the table is large.
    pub(super) fn long(table: &str, what: String, mode: Mode, instead: Option<&'static str>) -> Self {
        Self {
            table: table.to_owned(),
            what,
            mode,
            long: true,
            instead,
        }
    }
}
