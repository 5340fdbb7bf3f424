//! What can be said of stores, and of migrations of a schema.

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `lint`
#[derive(Debug, Subcommand)]
pub(crate) enum Lint {
    /// Check that services of the previous release still work after each schema migration. Exit 0 if so, 1 if a rule is
    /// broken.
    ///
    /// Judged are the files of DIR that end in `.sql`, and not in `.down.sql`, in the order of their names. Each begins with
    /// the release that brings it, as `-- release: 7.0`. A line `-- stagger: allow RULE: REASON` before a statement has what it
    /// breaks of RULE accepted. Releases, and what was deprecated in which of them, stand in a manifest in TOML,
    /// written by hand: a column may be dropped three months and a named release after it was deprecated, and one more
    /// named release after it has left the objects. docs/guides/versioned.md shows a manifest, and says more of the rules.
    Migrations(Migrations),
}

/// `lint migrations`
#[derive(Debug, Args)]
pub(crate) struct Migrations {
    /// The directory of the migrations.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The manifest of releases [default: releases.toml in DIR, else beside it].
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// Only judge what came after this release of the manifest, by number or name.
    #[arg(long, value_name = "RELEASE")]
    pub(crate) since: Option<String>,
    /// Write what locks tables on PostgreSQL, and what is accepted, to this file, in Markdown, instead of after the findings.
    #[arg(long, value_name = "FILE")]
    pub(crate) release_notes: Option<PathBuf>,
}

/// `db`
#[derive(Debug, Subcommand)]
pub(crate) enum Db {
    /// Upgrade the schema of the store to the newest revision, while other processes use it. A missing store is created.
    Upgrade,
    /// Show the schema revision, and the number of rows by version.
    Version,
    /// Check that this release can read everything in the store, and that no journal is damaged. Exit 0 yes, 1 no.
    Check,
    /// Copy the whole store into a new file, as it is at one moment, while other processes write to it: to have it on
    /// another machine, or to keep it. Copying the file itself may take half of what is being written.
    Copy {
        /// The new file.
        #[arg(value_name = "FILE")]
        to: PathBuf,
    },
    /// Bring old rows to the newest version, in batches, while other processes work. Exit 0 nothing is left, 6 more
    /// is left, 3 a person has to look at what cannot be migrated.
    ///
    /// Do it when every stagger on this store is of this release, or read what it writes: older ones do not know
    /// newer rows. It may be ended at any time, and goes on where it was.
    OnlineDataMigrations(OnlineDataMigrations),
}

/// `db online-data-migrations`
#[derive(Debug, Args)]
pub(crate) struct OnlineDataMigrations {
    /// Maximum number of rows to migrate [default: all].
    #[arg(long, value_name = "N")]
    pub(crate) max_count: Option<NonZeroU64>,
    /// Rows per transaction.
    #[arg(long, default_value = "500", value_name = "N")]
    pub(crate) batch: NonZeroU64,
    /// Only count the rows that are left.
    #[arg(long, conflicts_with_all = ["max_count", "batch"])]
    pub(crate) dry_run: bool,
}
