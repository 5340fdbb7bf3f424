//! What can be said of stores, and of migrations of a schema.

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use stagger_versioned::lint::{Dialect, Layout};

/// `lint`
#[derive(Debug, Subcommand)]
pub(crate) enum LintCommand {
    /// Check that services of the previous release still work after each schema migration. Exit 0 if so, 1 if a rule is
    /// broken.
    ///
    /// Lints the SQL files of DIR in the order of sqlx, diesel, refinery, Flyway or Prisma, or one file, such as `alembic
    /// upgrade --sql` prints; down migrations are left out. A line `-- stagger: allow RULE: REASON` before a statement accepts
    /// its violations of RULE. Without a manifest each migration is checked as the next release. With one each file starts with
    /// the release that brings it, as `-- release: 7.0`, and what was deprecated in its time may be dropped: a column three
    /// months and a named release after it was deprecated, and one more named release after it has left the objects.
    /// docs/guides/versioned.md shows a manifest, and says more of the rules.
    Migrations(MigrationsArgs),
    /// Explain a rule, or list all of them.
    Explain {
        /// The rule, such as column-required.
        rule: Option<String>,
    },
}

/// `lint migrations`
#[derive(Debug, Args)]
pub(crate) struct MigrationsArgs {
    /// The directory of the migrations, or one file.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The manifest of releases [default: releases.toml in DIR, else beside it, else none].
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// Only check what came after this release of the manifest, by number or name; without a manifest after this migration, by
    /// file, version or revision.
    #[arg(long, value_name = "RELEASE")]
    pub(crate) since: Option<String>,
    /// The SQL dialect: postgresql, mysql (also MariaDB) or sqlite [default: the first that parses all of a file].
    #[arg(long, value_name = "DATABASE")]
    pub(crate) dialect: Option<Dialect>,
    /// How files are named: plain, sqlx, diesel, prisma, refinery or flyway [default: by the names].
    #[arg(long, value_name = "TOOL")]
    pub(crate) layout: Option<Layout>,
    /// How findings are printed.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) format: ReportFormat,
    /// Write what locks tables on PostgreSQL, and what is accepted, to this file, in Markdown, instead of after the findings.
    #[arg(long, value_name = "FILE")]
    pub(crate) release_notes: Option<PathBuf>,
}

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ReportFormat {
    /// Lines to read.
    #[default]
    Text,
    /// SARIF 2.1.0.
    Sarif,
    /// Annotations of GitHub Actions.
    Github,
}

/// `db`
#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
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
    /// Migrate old rows to the newest version, in batches, while other processes work. Exit 0 no row is left, 6 more rows are
    /// left, 3 rows that cannot be migrated need you.
    ///
    /// Do it when every stagger on this store is of this release, or read what it writes: older ones do not know newer rows. It
    /// may be stopped at any time, and continues where it was.
    OnlineDataMigrations(OnlineDataMigrationsArgs),
}

/// `db online-data-migrations`
#[derive(Debug, Args)]
pub(crate) struct OnlineDataMigrationsArgs {
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
