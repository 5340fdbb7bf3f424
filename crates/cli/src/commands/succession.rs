//! `ganeti resume`: continues the run that belongs on this node, for a timer on every master candidate.

use std::io::IsTerminal as _;

use stagger_core::model::RunId;
use stagger_core::run::Command;
use stagger_core::view::{self, RunVerdict};
use stagger_engine::cluster::{Anchor, LockRecord};
use stagger_engine::store::JournalStore;
use stagger_engine::supervisor::{self, Identity, SuperviseError};
use stagger_ganeti::lock::same_host;
use stagger_ganeti::takeover::Succession;

use super::recover::RECOVERY;
use super::run::continue_run;
use super::{guards, store, store_location};
use crate::args::Cli;
use crate::clusters::ganeti;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// What is done with the run that the cluster names, by what the journals here tell.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Nothing, and why.
    Nothing(String),
    /// It was to go on on that node, which is not the master: whether its process lives is asked.
    HandedAway(Box<LockRecord>, String),
    /// It goes on.
    Resume(RunId),
    /// It is nothing of this node's while that process lives: its journal is not here.
    Journalless(Box<LockRecord>),
    /// It cannot go on by itself: what happened, and what a person does.
    Person(String, String),
}

/// `ganeti resume`: 0 where nothing is to be carried on here.
pub(crate) async fn resume(cli: &Cli) -> Result<Exit, CliError> {
    let host = Identity::current_process().host;
    let backend = ganeti::recovery_backend(cli).await?;
    let open = backend.succession(&host).await?;
    let store = if store_location(cli)?.exists() {
        Some(store(cli).await?)
    } else {
        None
    };
    let next = first(&open, &host, store.as_deref()).await?;
    drop(store);
    match next {
        Next::Nothing(why) => {
            // A timer asks each minute, and nobody reads that.
            if std::io::stderr().is_terminal() {
                print::status_line(&format!("there is no run to resume here: {why}"));
            }
            Ok(Exit::Done)
        }
        Next::Journalless(by) => match backend.lives(&by).await {
            Ok(true) => Ok(Exit::Done),
            Ok(false) => release_lost_run(cli, &by).await,
            Err(error) => Err(SuperviseError::Lock(error).into()),
        },
        Next::HandedAway(by, to) => match backend.lives(&by).await {
            Ok(true) => Ok(Exit::Done),
            Ok(false) => Err(stranded_error(&by.run, &to)),
            Err(error) => Err(SuperviseError::Lock(error).into()),
        },
        Next::Person(what, hint) => Err(CliError::new(Exit::NeedsYou, what).hint(hint)),
        Next::Resume(run) => Box::pin(continue_run(cli, &run)).await,
    }
}

/// Who carried a run out has ended, as by the loss of its machine, and its journal with it. What it holds of the job queue is given
/// back at its expiry: the process that would have seen to that is gone too.
async fn release_lost_run(cli: &Cli, by: &LockRecord) -> Result<Exit, CliError> {
    let run = &by.run;
    let what = format!("run {run} is interrupted: {by} is silent, and its journal is not here");
    print::status_line(&what);
    guards::clear_expired(cli).await?;
    if run.as_str().starts_with(RECOVERY) {
        return Err(
            CliError::new(Exit::NeedsYou, what).hint("`stagger ganeti recover` continues its cleanup")
        );
    }
    Err(CliError::new(Exit::NeedsYou, what).hint(format!(
        "`stagger ganeti recover` cleans up what it holds; where its journal still exists, `stagger resume {run}` \
         continues it"
    )))
}

/// Who handed a run over has ended before the other node became the master.
fn stranded_error(run: &RunId, to: &str) -> CliError {
    CliError::new(
        Exit::NeedsYou,
        format!("run {run} is interrupted: it was handed over to {to}, which has not become the master"),
    )
    .hint(format!(
        "`ssh root@{to} gnt-cluster master-failover`, and the run continues there; or `stagger ganeti recover` cleans up \
         what it holds"
    ))
}

/// What is done with the first that is not over.
async fn first(open: &[Succession], host: &str, store: Option<&dyn JournalStore>) -> Result<Next, CliError> {
    for succession in open {
        if let Some(next) = next(succession, host, store).await? {
            return Ok(next);
        }
    }
    Ok(Next::Nothing("no run is open".to_owned()))
}

/// Decides what is done; `None`: the run is over.
async fn next(
    succession: &Succession,
    host: &str,
    store: Option<&dyn JournalStore>,
) -> Result<Option<Next>, CliError> {
    let nothing = |why: String| Ok(Some(Next::Nothing(why)));
    let (run, handed_over) = match succession {
        Succession::NotMaster { master } => return nothing(format!("{master} is the master")),
        Succession::HandedAway { by, to } => return Ok(Some(Next::HandedAway(by.clone(), to.clone()))),
        Succession::HandedOver { run } => (run, true),
        Succession::Claimed { by, .. } => (&by.run, false),
    };
    let known = match store {
        Some(store) => store.runs().await?.into_iter().any(|listed| listed.run == *run),
        None => false,
    };
    let Some(store) = store.filter(|_| known) else {
        if !handed_over {
            let Succession::Claimed { by, .. } = succession else {
                return nothing(format!("run {run} has its journal elsewhere"));
            };
            return Ok(Some(Next::Journalless(by.clone())));
        }
        return Ok(Some(Next::Person(
            format!("run {run} was handed over to {host}, and its journal is not here"),
            format!(
                "`copy_journal` under [cluster.visits] copies it to this state folder; without it `stagger ganeti \
                 recover` cleans up what run {run} holds"
            ),
        )));
    };
    let replayed = supervisor::replay(store, run).await?;
    if replayed.ended().is_some() {
        return Ok(None);
    }
    // Whoever leaves at once asks for a pause: a timer does not undo it.
    let asked = store.pending_commands(run).await?;
    let asked = asked.into_iter().map(|(_, command, _)| command);
    let last = asked
        .filter(|command| matches!(command, Command::Pause | Command::Resume))
        .last();
    if last == Some(Command::Pause) {
        return nothing(format!("run {run} is paused: `stagger resume {run}` continues"));
    }
    if view::run(&replayed, None).verdict == RunVerdict::NeedsYou {
        return nothing(format!("run {run} needs you: `stagger status`"));
    }
    let presence = store.presence(run).await?;
    let at_work = presence
        .filter(|presence| presence.interruption_reason().is_none())
        .and_then(|presence| presence.claim);
    // In a journal that was copied here, who was at work there is still told of.
    if let Some(claim) = at_work.filter(|claim| !handed_over || same_host(&claim.host, host)) {
        return nothing(format!("run {run} is running: {claim}"));
    }
    if let Succession::Claimed {
        anchor: Some(Anchor { seq, .. }),
        ..
    } = succession
        && *seq > replayed.seq()
    {
        return Ok(Some(Next::Person(
            format!(
                "the journal of run {run} here ends at event {}, and the cluster has recorded event {seq}",
                replayed.seq()
            ),
            format!(
                "its newest journal is where the run was carried out last; if that is lost, `stagger resume {run}` here \
                 continues from what the cluster shows, or `stagger ganeti recover` cleans up what the run holds"
            ),
        )));
    }
    Ok(Some(Next::Resume(run.clone())))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use stagger_core::model::{ClusterName, Policy, Target, Topology};
    use stagger_core::run::{Event, Start, VERSION};
    use stagger_engine::cluster::LockRecord;
    use stagger_engine::sqlite::SqliteStore;

    use super::*;

    fn run() -> RunId {
        RunId::new("run-1").unwrap()
    }

    fn claimed_by(host: &str) -> Succession {
        Succession::Claimed {
            by: Box::new(LockRecord {
                incarnation: "aaaa".to_owned(),
                run: run(),
                host: host.to_owned(),
                process: 1,
                since: Timestamp::UNIX_EPOCH,
                life: None,
            }),
            anchor: None,
        }
    }

    /// Seen: whoever left a run at once found it carried on by the timer a minute later.
    #[tokio::test]
    async fn what_a_person_has_left_at_once_is_not_carried_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = SqliteStore::open(&folder.path().join("journal.db")).unwrap();
        let cluster = ClusterName::new("lab").unwrap();
        store.raise(&cluster, 1, "a").await.unwrap();
        let start = Start {
            version: VERSION,
            run: run(),
            cluster: cluster.clone(),
            identity: None,
            target: Target {
                title: "reboot".to_owned(),
                parts: Vec::new(),
                only: None,
            },
            policy: Policy::default(),
            baseline: serde_json::Value::Null,
            topology: Topology::default(),
        };
        let started = Event::Started(Box::new(start));
        store
            .begin(&cluster, 1, Timestamp::UNIX_EPOCH, started)
            .await
            .unwrap();
        let next = async |store: &SqliteStore| {
            let next = first(&[claimed_by("n2")], "n2", Some(store)).await;
            next.unwrap()
        };
        assert_eq!(next(&store).await, Next::Resume(run()), "its process died");
        let mut ask = async |command: Command| {
            let asked = store.ask(&run(), Timestamp::UNIX_EPOCH, &command, "anna").await;
            asked.unwrap();
            next(&store).await
        };
        let paused = ask(Command::Pause).await;
        assert!(
            matches!(&paused, Next::Nothing(why) if why.contains("`stagger resume run-1` continues")),
            "{paused:?}"
        );
        assert_eq!(ask(Command::Resume).await, Next::Resume(run()));
    }

    #[tokio::test]
    async fn without_a_journal_nothing_is_begun() {
        let master = "n1".to_owned();
        for open in [vec![Succession::NotMaster { master }], Vec::new()] {
            let next = first(&open, "n2", None).await.unwrap();
            assert!(matches!(next, Next::Nothing(_)), "{open:?}: {next:?}");
        }
        // Whether it lives is asked: it may have ended with its machine, and the journal with both.
        let left = first(&[claimed_by("ops1")], "n2", None).await.unwrap();
        assert!(
            matches!(&left, Next::Journalless(by) if by.host == "ops1"),
            "{left:?}"
        );
        let handed_over = Succession::HandedOver { run: run() };
        let Next::Person(what, hint) = first(&[handed_over], "n2", None).await.unwrap() else {
            panic!("somebody has to be told");
        };
        assert!(what.contains("run-1 was handed over to n2"), "{what}");
        assert!(hint.contains("copy_journal"), "{hint}");
    }
}
