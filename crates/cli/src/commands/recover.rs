//! `ganeti recover` clears what runs have left, `ganeti guards` shows and clears the guards they hold, and
//! `ganeti done` marks a node as done.

use std::collections::BTreeSet;

use jiff::Timestamp;
use stagger_core::model::RunId;
use stagger_engine::cluster::{Lock as _, LockError};
use stagger_engine::supervisor::{self, Identity, SuperviseError};
use stagger_ganeti::recovery::Recovered;
use stagger_ganeti::selection::node_called;

use crate::args::{self, Cli};
use crate::clusters::ganeti;
use crate::documents::LEFTOVERS;
use crate::documents::leftovers::Leftovers;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;
use crate::show;

/// `ganeti recover`: 0 when nothing is left, 1 when something is.
pub(crate) async fn recover(cli: &Cli, args: &args::RecoverArgs) -> Result<Exit, CliError> {
    let backend = ganeti::recovery_backend(cli).await?;
    let node = match &args.node {
        // One that there is not has nothing left on it, and that would say that all is well.
        Some(name) => {
            let (_, cluster) = backend.observe_cluster().await?;
            let node = node_called(&cluster, name).map_err(|error| CliError::usage(error.to_string()))?;
            Some(node.to_owned())
        }
        None => None,
    };
    let mut left = backend.leftovers().await?;
    if let Some(node) = &node {
        left = left.of_node(node);
    }
    if left.is_empty() {
        if cli.json {
            print::json(&LEFTOVERS.of(&Leftovers::of(left, Recovered::default())));
        } else {
            let there = node.as_deref().unwrap_or("the cluster");
            print::data_line(&format!("Nothing to clean up on {there}."));
        }
        return Ok(Exit::Done);
    }
    if !cli.json {
        print::data_line(&show::leftovers::leftovers(&left));
    }
    let exit = if left.is_restored() { Exit::Done } else { Exit::No };
    if args.dry_run {
        if cli.json {
            print::json(&LEFTOVERS.of(&Leftovers::of(left, Recovered::default())));
        }
        return Ok(exit);
    }
    if !args.yes {
        if !print::can_ask() {
            return Err(
                CliError::usage("without a terminal a recovery must be confirmed beforehand")
                    .hint("--yes, or --dry-run to look"),
            );
        }
        if !print::ask("Clean up?") {
            return Err(CliError::new(Exit::No, "nothing was changed"));
        }
    }
    for claim in &left.records.claims {
        print::status_line(&format!(
            "{} holds the lock: it is watched for up to {} s, and taken over unless it is renewed",
            claim.lock,
            backend.lock_expires().as_secs()
        ));
    }
    let now = Timestamp::now();
    let claim = Identity::current_process().claim(&name(now)?, now);
    let recovered = backend
        .recover(&claim, node.as_deref())
        .await
        .map_err(lock_error)?;
    for done in &recovered.done {
        print::status_line(done);
    }
    for error in &recovered.failed {
        print::status_line(&format!("NOT CLEANED UP  {error}"));
        if let Some(hint) = &error.hint {
            print::status_line(&format!("hint: {hint}"));
        }
    }
    for kept in &recovered.kept {
        print::status_line(&format!("kept: {kept}"));
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

/// How the name begins that stands in the lock for a recovery.
pub(super) const RECOVERY: &str = "recover-";

/// What stands in the lock, in place of a run.
fn name(now: Timestamp) -> Result<RunId, CliError> {
    RunId::new(format!("{RECOVERY}{}", supervisor::new_run_id(now)))
        .map_err(|error| CliError::new(Exit::Internal, error.to_string()))
}

fn lock_error(error: LockError) -> CliError {
    match error {
        LockError::Held(claim) => {
            let run = claim.run.clone();
            CliError::from(SuperviseError::Lock(LockError::Held(claim))).hint(format!(
                "an active run cleans up itself: `stagger abort {run}` there, then repeat this"
            ))
        }
        lost @ LockError::Lost(_) => CliError::from(SuperviseError::Lock(lost)).hint(
            "what was restored stays restored, and nothing more was started: repeat the command to continue",
        ),
        other @ LockError::Backend(_) => SuperviseError::Lock(other).into(),
    }
}

/// `ganeti done`
pub(crate) async fn mark_done(cli: &Cli, nodes: &[String]) -> Result<Exit, CliError> {
    let backend = ganeti::recovery_backend(cli).await?;
    let (facts, cluster) = backend.observe_cluster().await?;
    let waiting = stagger_ganeti::hold::waiting(&facts);
    let mut told = Vec::new();
    for name in nodes {
        let node = node_called(&cluster, name).map_err(|error| CliError::usage(error.to_string()))?;
        let of_node: Vec<_> = waiting.iter().filter(|waiting| waiting.node == node).collect();
        if of_node.is_empty() {
            let names: BTreeSet<&str> = waiting.iter().map(|waiting| waiting.node.as_str()).collect();
            let names: Vec<&str> = names.into_iter().collect();
            return Err(CliError::new(
                Exit::No,
                format!("no run waits for {node}, and nothing was changed"),
            )
            .hint(match names.as_slice() {
                [] => "no run waits for any node: `stagger status` says what a run does".to_owned(),
                names => format!("runs wait for: {}", names.join(", ")),
            }));
        }
        told.extend(of_node);
    }
    for node in told {
        backend.mark_done(node).await?;
        let of = node
            .run
            .as_ref()
            .map(|run| format!(" of run {run}"))
            .unwrap_or_default();
        print::status_line(&format!(
            "{} is done: its visit{of} continues once it answers",
            node.node
        ));
    }
    Ok(Exit::Done)
}

/// `ganeti guards`
pub(crate) async fn guards(cli: &Cli, args: &args::GanetiGuardsArgs) -> Result<Exit, CliError> {
    if args.drop {
        let backend = ganeti::recovery_backend(cli).await?;
        for held in backend.drop_guards(&name(Timestamp::now())?).await? {
            print::status_line(&format!("{} of run {} was cleared", held.guard, held.run));
        }
    }
    super::guards::guards(cli, &args.guards).await
}
