//! Online data migrations: old rows are converted in batches, while services work.
//!
//! The rows themselves show what is left, so an interrupted run continues where it was. A batch never does
//! more than its size. Migrations run in order: the next one starts when nothing is left for the one before.
//! A row that cannot be migrated is counted and skipped; it does not block other rows of its migration. The
//! first [`SHOWN`] are named, each with the reason.

use std::fmt;
use std::num::NonZeroU64;

use async_trait::async_trait;
use serde_json::Value;

use super::{Store, StoreError};
use crate::pin::Pin;

/// One migration of data.
#[async_trait]
pub trait Migration: Send + Sync {
    /// Its name, stable and unique.
    fn name(&self) -> &str;

    /// What it does, for the release notes.
    fn about(&self) -> String {
        "see the release's own words".to_owned()
    }

    /// How many rows it has still to do, those that it cannot do among them.
    async fn remaining(&self, store: &Store) -> Result<u64, StoreError>;

    /// Does at most `max` rows, in the order of their keys, after the key given. Safe beside writers: a row that somebody
    /// wrote meanwhile is left for the next pass.
    async fn batch(
        &self,
        store: &Store,
        after: Option<&[Value]>,
        max: NonZeroU64,
    ) -> Result<Batch, StoreError>;
}

/// What came of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// How many rows it brought up.
    pub done: u64,
    /// The rows that it cannot bring up.
    pub stuck: Vec<Stuck>,
    /// The last key that it looked at; `None` if it came to the end of the table.
    pub next: Option<Vec<Value>>,
}

/// A row that cannot be migrated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// The table and the key.
    pub row: String,
    /// Why not.
    pub why: String,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row, why } = self;
        write!(f, "{row}: {why}")
    }
}

/// How much is done at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many rows in this run; `None` for all.
    pub max_count: Option<NonZeroU64>,
    /// How many rows in one transaction.
    pub batch: NonZeroU64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_count: None,
            batch: NonZeroU64::new(500).unwrap_or(NonZeroU64::MIN),
        }
    }
}

/// How far it is, after each batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The migration.
    pub name: &'a str,
    /// Rows done in this run.
    pub done: u64,
    /// Rows that were to do when it began.
    pub of: u64,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Each migration in order, as far as the run came.
    pub each: Vec<Each>,
    /// How it ended.
    pub end: End,
}

/// What came of one migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Each {
    /// Its name.
    pub name: String,
    /// Rows done in this run.
    pub done: u64,
    /// Rows that it has still to do.
    pub left: u64,
    /// Rows that it cannot do, the first [`SHOWN`] of them.
    pub stuck: Vec<Stuck>,
    /// How many rows it cannot do.
    pub stuck_rows: u64,
}

/// How many stuck rows are named.
pub const SHOWN: usize = 20;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nothing is left to do.
    Done,
    /// It did as much as it was to do, and more is left.
    More,
    /// Some rows cannot be migrated. A person has to look at them.
    Stuck,
    /// Rows are left, none of them is stuck, and after two whole passes there are no fewer: somebody writes them as fast in
    /// the old version, or the migration is wrong. A person has to look.
    NoProgress,
}

impl End {
    /// The exit code of a command that ends so: 0, 6, 3, 3.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::More => 6,
            Self::Stuck | Self::NoProgress => 3,
        }
    }
}

/// A run that did not come to an end of its own.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// Old services still work, and could not read what it writes.
    #[error(
        "this code is pinned to {pin}, so services of {pin} may still work, and they could not read migrated rows: unpin first"
    )]
    Pinned {
        /// The pin.
        pin: String,
    },
    /// Two migrations have one name.
    #[error("two migrations are called {name:?}")]
    SameName {
        /// The name.
        name: String,
    },
    /// A migration did more than it was asked for.
    #[error("the migration {name:?} did {done} rows, and was asked for at most {max}: this is a bug in it")]
    Overshot {
        /// The migration.
        name: String,
        /// What it did.
        done: u64,
        /// What it was to do at most.
        max: u64,
    },
    /// The store failed. What was done until then is done; try again.
    #[error("the migration {name:?} stopped; what it did until then stays done")]
    Store {
        /// The migration.
        name: String,
        /// What failed.
        source: StoreError,
    },
}

impl Failed {
    /// The exit code of a command that fails so: 1 for a refusal, 4 where the database is out of reach, 5 for a bug and for a statement that it
    /// refuses.
    pub fn code(&self) -> u8 {
        match self {
            Self::Pinned { .. } => 1,
            Self::Store {
                source: StoreError::Unreachable { .. },
                ..
            } => 4,
            Self::SameName { .. } | Self::Overshot { .. } | Self::Store { .. } => 5,
        }
    }
}

/// All migrations of a program, in order.
#[derive(Default)]
pub struct Migrations {
    each: Vec<Box<dyn Migration>>,
}

impl fmt::Debug for Migrations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.each.iter().map(|migration| migration.name()))
            .finish()
    }
}

impl Migrations {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one after the others.
    #[expect(clippy::result_large_err, reason = "it is called a few times, at start")]
    pub fn then(mut self, migration: impl Migration + 'static) -> Result<Self, Failed> {
        if self.each.iter().any(|known| known.name() == migration.name()) {
            return Err(Failed::SameName {
                name: migration.name().to_owned(),
            });
        }
        self.each.push(Box::new(migration));
        Ok(self)
    }

    /// What to say of them in the release notes: each may take long where there are many rows. Empty if there are none.
    pub fn notes(&self) -> String {
        if self.each.is_empty() {
            return String::new();
        }
        let each = self
            .each
            .iter()
            .map(|migration| format!("\n- `{}`: {}", migration.name(), migration.about()));
        format!(
            "Online data migrations, to be run to their end when no service is pinned any more. They take as long as tables are \
             large, while services work:\n{}",
            each.collect::<String>()
        )
    }

    /// How many rows each has still to do. Nothing is changed.
    pub async fn count(&self, store: &Store) -> Result<Vec<(String, u64)>, Failed> {
        let mut counts = Vec::new();
        for migration in &self.each {
            let left = migration
                .remaining(store)
                .await
                .map_err(|source| at(migration.as_ref(), source))?;
            counts.push((migration.name().to_owned(), left));
        }
        Ok(counts)
    }

    /// Migrates as much as it may. `tell` hears of each batch.
    pub async fn run(
        &self,
        store: &Store,
        pin: &Pin,
        limits: Limits,
        mut tell: impl FnMut(Progress<'_>) + Send,
    ) -> Result<Report, Failed> {
        if let Some(pin) = pin.release() {
            return Err(Failed::Pinned { pin });
        }
        let mut budget = limits.max_count.map(NonZeroU64::get);
        let mut each = Vec::new();
        for migration in &self.each {
            let (one, end) =
                run_migration(migration.as_ref(), store, limits.batch, &mut budget, &mut tell).await?;
            each.push(one);
            if end != End::Done {
                return Ok(Report { each, end });
            }
        }
        Ok(Report { each, end: End::Done })
    }
}

fn at(migration: &dyn Migration, source: StoreError) -> Failed {
    Failed::Store {
        name: migration.name().to_owned(),
        source,
    }
}

/// One migration, in as many passes over its table as it takes.
async fn run_migration(
    migration: &dyn Migration,
    store: &Store,
    batch: NonZeroU64,
    budget: &mut Option<u64>,
    tell: &mut (impl FnMut(Progress<'_>) + Send),
) -> Result<(Each, End), Failed> {
    let name = migration.name();
    let left = || async {
        migration
            .remaining(store)
            .await
            .map_err(|source| at(migration, source))
    };
    let of = left().await?;
    let mut each = Each {
        name: name.to_owned(),
        done: 0,
        left: of,
        stuck: Vec::new(),
        stuck_rows: 0,
    };
    // Rows that others write while a pass looks at them are left for the next one, so one idle pass says little.
    let mut idle = 0;
    while each.left > 0 && idle < 2 {
        let before = each.left;
        each.stuck.clear();
        each.stuck_rows = 0;
        let mut after: Option<Vec<Value>> = None;
        let mut came_to_the_end = false;
        while !came_to_the_end {
            let max = budget.map_or(batch.get(), |budget| budget.min(batch.get()));
            let Some(max) = NonZeroU64::new(max) else { break };
            let done = migration
                .batch(store, after.as_deref(), max)
                .await
                .map_err(|source| at(migration, source))?;
            if done.done > max.get() {
                return Err(Failed::Overshot {
                    name: name.to_owned(),
                    done: done.done,
                    max: max.get(),
                });
            }
            each.done += done.done;
            each.stuck_rows += done.stuck.len() as u64;
            each.stuck.extend(
                done.stuck
                    .into_iter()
                    .take(SHOWN.saturating_sub(each.stuck.len())),
            );
            if let Some(budget) = budget {
                *budget -= done.done;
            }
            came_to_the_end = done.next.is_none();
            after = done.next;
            tell(Progress {
                name,
                done: each.done,
                of,
            });
        }
        // Whether anything is left is looked at, not guessed: a budget that is used up may have been just enough.
        each.left = left().await?;
        if !came_to_the_end || each.left == each.stuck_rows {
            break;
        }
        // What counts is what is left, not what a migration says that it did.
        idle = if each.left >= before { idle + 1 } else { 0 };
    }
    let end = match (&each, *budget) {
        (Each { left: 0, .. }, _) => End::Done,
        (Each { left, stuck_rows, .. }, _) if left == stuck_rows => End::Stuck,
        (_, Some(0)) => End::More,
        (Each { stuck_rows: 1.., .. }, _) => End::Stuck,
        _ => End::NoProgress,
    };
    Ok((each, end))
}
