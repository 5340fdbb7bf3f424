//! `ganeti recover` gives back what runs have left, and `ganeti guards` shows and clears what they hold.

use jiff::Timestamp;
use stagger_core::model::RunId;
use stagger_engine::cluster::{Lock as _, LockError};
use stagger_engine::supervisor::{self, Identity, SuperviseError};
use stagger_ganeti::recovery::Recovered;

use crate::args::{self, Cli};
use crate::clusters::ganeti;
use crate::documents::LEFTOVERS;
use crate::documents::leftovers::Leftovers;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;
use crate::show;

/// `ganeti recover`: 0 when nothing is left, 1 when something is.
pub(crate) async fn recover(cli: &Cli, args: &args::Recover) -> Result<Exit, CliError> {
    let backend = ganeti::to_recover(cli).await?;
    let mut left = backend.leftovers().await?;
    if let Some(node) = &args.node {
        left = left.of_node(node);
    }
    if left.is_empty() {
        if cli.json {
            print::json(&LEFTOVERS.of(&Leftovers::of(left, Recovered::default())));
        } else {
            let there = args.node.as_deref().unwrap_or("the cluster");
            print::out(&format!("No run has left anything on {there}."));
        }
        return Ok(Exit::Done);
    }
    if !cli.json {
        print::out(&show::leftovers::leftovers(&left));
    }
    let exit = if left.nothing_is_away() {
        Exit::Done
    } else {
        Exit::No
    };
    if args.dry_run {
        if cli.json {
            print::json(&LEFTOVERS.of(&Leftovers::of(left, Recovered::default())));
        }
        return Ok(exit);
    }
    if !args.yes {
        if !print::can_ask() {
            return Err(CliError::usage(
                "without a terminal nothing is given back unless that was said before",
            )
            .hint("--yes, or --dry-run to look"));
        }
        if !print::ask("Give it back?") {
            return Err(CliError::new(Exit::No, "nothing was changed"));
        }
    }
    for claim in &left.records.claims {
        print::talk(&format!(
            "the lock is claimed by {}: it is watched for up to {} s, and taken over if nobody renews it",
            claim.lock,
            backend.lock_expires().as_secs()
        ));
    }
    let now = Timestamp::now();
    let claim = Identity::of_this_process().claim(&name(now)?, now);
    let recovered = backend
        .recover(&claim, args.node.as_deref())
        .await
        .map_err(refused)?;
    for done in &recovered.done {
        print::talk(done);
    }
    for error in &recovered.failed {
        print::talk(&format!("NOT GIVEN BACK  {error}"));
        if let Some(hint) = &error.hint {
            print::talk(&format!("hint: {hint}"));
        }
    }
    for kept in &recovered.kept {
        print::talk(&format!("kept: {kept}"));
    }
    let exit = if recovered.failed.is_empty() {
        Exit::Done
    } else {
        Exit::NeedsYou
    };
    if cli.json {
        print::json(&LEFTOVERS.of(&Leftovers::of(left, recovered)));
    }
    Ok(exit)
}

/// What stands in the lock, in place of a run.
fn name(now: Timestamp) -> Result<RunId, CliError> {
    RunId::new(format!("recover-{}", supervisor::new_run_id(now)))
        .map_err(|error| CliError::new(Exit::Internal, error.to_string()))
}

fn refused(error: LockError) -> CliError {
    match error {
        LockError::Held(claim) => {
            let run = claim.run.clone();
            CliError::from(SuperviseError::Lock(LockError::Held(claim))).hint(format!(
                "what a run has in hand it gives back by itself: `stagger abort {run}` there, and then this again"
            ))
        }
        lost @ LockError::Lost(_) => CliError::from(SuperviseError::Lock(lost)).hint(
            "what was given back by then stays so, and nothing more was begun: this again goes on from there",
        ),
        other @ LockError::Backend(_) => SuperviseError::Lock(other).into(),
    }
}

/// `ganeti guards`
pub(crate) async fn guards(cli: &Cli, args: &args::GanetiGuards) -> Result<Exit, CliError> {
    if args.drop {
        let backend = ganeti::to_recover(cli).await?;
        for held in backend.drop_guards(&name(Timestamp::now())?).await? {
            print::talk(&format!("{} of run {} was given back", held.guard, held.run));
        }
    }
    super::guards::guards(cli, &args.guards).await
}
