//! The documents of `lint` and `db`.

use schemars::JsonSchema;
use serde::Serialize;

/// `lint migrations`: what was found.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LintReport {
    /// Rules that are broken; none: services of the release before work on.
    pub(crate) findings: Vec<BrokenRule>,
    /// Rules that are broken, and accepted for a reason that the migration gives.
    pub(crate) waived: Vec<WaivedRule>,
    /// What locks tables on PostgreSQL that were there before.
    pub(crate) locks: Vec<TableLock>,
    /// How many files were left out since they lead back: those that end in `.down.sql`.
    pub(crate) down: usize,
}

/// A rule broken in a place.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrokenRule {
    /// The file.
    pub(crate) file: String,
    /// The line, from 1.
    pub(crate) line: u64,
    /// Its stable word.
    pub(crate) rule: String,
    /// What is done there, and what it breaks.
    pub(crate) why: String,
    /// What to do instead.
    pub(crate) instead: String,
}

/// A rule broken in a place, and accepted.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaivedRule {
    /// The release that brings it.
    pub(crate) release: String,
    /// The file.
    pub(crate) file: String,
    /// The line of the statement, from 1.
    pub(crate) line: u64,
    /// The stable word of the rule.
    pub(crate) rule: String,
    /// What is done there, and what it breaks.
    pub(crate) why: String,
    /// Why that is accepted.
    pub(crate) reason: String,
}

/// A lock that a statement takes.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableLock {
    /// The release that brings it.
    pub(crate) release: String,
    /// The file.
    pub(crate) file: String,
    /// The line, from 1.
    pub(crate) line: u64,
    /// The table.
    pub(crate) table: String,
    /// What is done to it.
    pub(crate) what: String,
    /// The lock, as PostgreSQL calls it.
    pub(crate) mode: String,
    /// Whether it is held as long as the table is large, and not for an instant.
    pub(crate) long: bool,
    /// What would hold it shorter, if anything would.
    pub(crate) instead: Option<String>,
}

/// `db upgrade`, `db version` and `db check`: a store from outside.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreReport {
    /// Where it is.
    pub(crate) store: String,
    /// The revision that its schema was at before the command; 0: it had none.
    pub(crate) was: i64,
    /// The revision that its schema is at.
    pub(crate) revision: i64,
    /// The newest revision that this program knows.
    pub(crate) newest: i64,
    /// How many rows of which version there are.
    pub(crate) rows: Vec<StoredRows>,
    /// What this program cannot work on, in a sentence each. Only `db check` reads journals.
    pub(crate) wrong: Vec<String>,
}

/// Rows of one table and one version.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredRows {
    /// The table.
    pub(crate) table: String,
    /// What is in it.
    pub(crate) object: String,
    /// The version; `null`: none was recorded.
    pub(crate) version: Option<String>,
    /// How many rows.
    pub(crate) rows: u64,
    /// Why this program does not read them, if it does not.
    pub(crate) unreadable: Option<String>,
}

/// `db online-data-migrations`: what was done, and what is left.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MigrationReport {
    /// Where the store is.
    pub(crate) store: String,
    /// `done`, `more`, `stuck`, `no-progress`.
    pub(crate) end: String,
    /// Each migration, in order, as far as it came.
    pub(crate) migrations: Vec<MigrationRows>,
}

/// What came of one migration.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MigrationRows {
    /// Its name.
    pub(crate) name: String,
    /// Rows done now.
    pub(crate) done: u64,
    /// Rows still to do.
    pub(crate) left: u64,
    /// Rows that it cannot do, each with why; at most 20.
    pub(crate) stuck: Vec<String>,
}
