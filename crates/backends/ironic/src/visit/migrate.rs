//! The online data migrations, batch after batch to the end.
//!
//! `ironic-dbsync online_data_migrations` exits with 1 when more is left to do, and also when any error ended
//! it, such as an unreachable database. So the exit code alone does not count: the output does, and stagger
//! counts the rows itself.

use std::time::Instant;

use stagger_engine::cluster::BackendError;
use stagger_engine::hosts::{Ran, last_words};
use stagger_engine::template::filled;

use crate::visit::perform::Performer;
use stagger_core::model::Fact;

/// What one batch came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrationBatch {
    /// Nothing is left.
    Done,
    /// So many objects were migrated, and there is more to do, or may be: it does not look ahead.
    More {
        /// How many.
        migrated: u64,
    },
    /// Rows that this release does not know, or that have no version.
    Incompatible(String),
    /// The command was called wrongly.
    Misused(String),
    /// It was broken off.
    BrokenOff(String),
}

/// So many batches may migrate nothing and still say that there is more.
const IDLE: u32 = 2;

/// What a batch came to, by its code and its words.
pub fn parse_batch(ran: &Ran) -> MigrationBatch {
    let said = || last_words(&ran.output).to_owned();
    match ran.code {
        0 => MigrationBatch::Done,
        1 => match migrated(&ran.output) {
            Some(migrated) if ended_with_more(&ran.output) => MigrationBatch::More { migrated },
            Some(_) | None => MigrationBatch::BrokenOff(said()),
        },
        2 => MigrationBatch::Incompatible(said()),
        127 => MigrationBatch::Misused(said()),
        124 => MigrationBatch::BrokenOff(format!("it took too long: {}", said())),
        code => MigrationBatch::BrokenOff(format!("it ended with {code}: {}", said())),
    }
}

/// Whether it has ended by itself, with more to do: warnings in its log are no error.
fn ended_with_more(output: &str) -> bool {
    let broken = output.contains("Traceback") || output.contains("Error while running");
    output.contains("Please re-run") || !broken
}

/// How many objects it says that it has migrated: `update_to_latest_versions() migrated 5 of 58 objects.`
fn migrated(output: &str) -> Option<u64> {
    let counts = output.lines().filter_map(|line| {
        let (_, after) = line.split_once("() migrated ")?;
        after.split(' ').next()?.parse::<u64>().ok()
    });
    let counts: Vec<u64> = counts.collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

impl Performer<'_> {
    /// Batches until nothing is left.
    ///
    /// # Errors
    /// Rows that cannot be migrated, no progress, or a database that stays away.
    pub(crate) async fn migrate(&self) -> Result<String, BackendError> {
        const TRIED: &str = "migrate the rows";
        let tools = &self.settings.cluster.tools;
        let goal = self.goal()?;
        let count = tools.batch.to_string();
        let words = [("count", count.as_str()), ("release", goal.to.as_str())];
        let command = filled(&tools.migrate, &words)?;
        let (mut total, mut idle) = (0, 0);
        let mut number = 0_u32;
        loop {
            number += 1;
            let left = self.rows_left().await?;
            let key = format!("{}-migrate-{number}", self.call.key());
            let ran = self
                .client
                .run(&tools.host, &key, self.call.fence, &command)
                .await?;
            match parse_batch(&ran) {
                MigrationBatch::Done => break,
                MigrationBatch::More { migrated } => {
                    total += migrated;
                    idle = if migrated > 0 || self.rows_left().await? < left {
                        0
                    } else {
                        idle + 1
                    };
                    if idle >= IDLE {
                        let why = format!(
                            "{idle} batches migrated nothing and report more: {} rows are of older versions, and nothing \
                             migrates them",
                            self.rows_left().await?
                        );
                        return Err(BackendError::permanent(TRIED, why)
                            .hint("`stagger observe` counts rows by version; what they need is in Ironic's release notes"));
                    }
                }
                MigrationBatch::Incompatible(said) => {
                    let why = format!(
                        "it refuses the rows, before it migrates any. Its own advice, to run the tools of the release \
                         before, does not help with rows that are newer or have no version: {said}"
                    );
                    return Err(BackendError::permanent(TRIED, why));
                }
                MigrationBatch::Misused(said) => {
                    let why = format!("`{command}` is not what it takes: {said}");
                    return Err(BackendError::permanent(TRIED, why).hint("see `tools.migrate`"));
                }
                MigrationBatch::BrokenOff(said) => {
                    idle += 1;
                    // With a database that is away it ends as if there were more to do.
                    self.wait_for_the_database(&said).await?;
                    if idle > IDLE {
                        return Err(BackendError::permanent(
                            TRIED,
                            format!("it was broken off: {said}"),
                        ));
                    }
                }
            }
        }
        let left = self.rows_left().await?;
        if left > 0 {
            let why = format!("it says that nothing is left, and {left} rows are of older versions");
            return Err(BackendError::permanent(TRIED, why));
        }
        let batches = if number == 1 {
            "1 batch".to_owned()
        } else {
            format!("{number} batches")
        };
        let note = format!("{total} objects in {batches}, and no row is of an older version");
        self.book.mark(self.call, &goal.to, "migrate", &note).await?;
        Ok(note)
    }

    /// How many rows are of other versions than the wanted release writes.
    async fn rows_left(&self) -> Result<u64, BackendError> {
        let goal = self.goal()?;
        let to = self
            .table
            .find(&goal.to)
            .map_err(|error| BackendError::permanent("count rows", error.to_string()))?;
        let current = self.table.writes(to.place, None);
        let begun = Instant::now();
        loop {
            match self.client.database().await {
                Fact::Yes(database) => return Ok(database.outdated_rows(&current).values().sum()),
                Fact::No(why) if begun.elapsed() > self.settings.pace.drain => {
                    return Err(BackendError::transient("count rows", why));
                }
                Fact::No(why) => {
                    tracing::info!(why, "the database is away: it is asked again");
                    tokio::time::sleep(self.settings.pace.poll).await;
                }
            }
        }
    }

    /// Waits until the database answers.
    async fn wait_for_the_database(&self, said: &str) -> Result<(), BackendError> {
        tracing::warn!(said, "a batch was broken off");
        self.rows_left().await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(code: i32, output: &str) -> Ran {
        Ran {
            code,
            output: output.to_owned(),
        }
    }

    #[test]
    fn d7_an_error_is_not_more_to_do() {
        let more = "update_to_latest_versions() migrated 5 of 58 objects.\nData migrations have not completed. Please re-run.";
        assert_eq!(parse_batch(&ran(1, more)), MigrationBatch::More { migrated: 5 });
        let away = "Error while running update_to_latest_versions: (2003, \"Can't connect\").\nTraceback (most recent call last):";
        assert!(matches!(parse_batch(&ran(1, away)), MigrationBatch::BrokenOff(_)));
        assert!(matches!(parse_batch(&ran(1, "")), MigrationBatch::BrokenOff(_)));
        let both = format!("a() migrated 3 of 3 objects.\n{away}");
        assert!(matches!(
            parse_batch(&ran(1, &both)),
            MigrationBatch::BrokenOff(_)
        ));
        let logged = format!("WARNING Traceback of something else\n{more}");
        assert_eq!(
            parse_batch(&ran(1, &logged)),
            MigrationBatch::More { migrated: 5 }
        );
        assert_eq!(parse_batch(&ran(0, more)), MigrationBatch::Done);
        assert!(matches!(
            parse_batch(&ran(2, "run it with the previous release")),
            MigrationBatch::Incompatible(_)
        ));
        assert!(matches!(
            parse_batch(&ran(127, "\"max-count\" must be")),
            MigrationBatch::Misused(_)
        ));
        assert!(matches!(
            parse_batch(&ran(-1, "killed")),
            MigrationBatch::BrokenOff(_)
        ));
    }

    #[test]
    fn what_several_migrations_have_done_is_added() {
        let output =
            "a() migrated 0 of 0 objects.\nb() migrated 7 of 9 objects.\nc() migrated 2 of 2 objects.";
        assert_eq!(migrated(output), Some(9));
        assert_eq!(migrated("Data migrations have not completed."), None);
    }
}
