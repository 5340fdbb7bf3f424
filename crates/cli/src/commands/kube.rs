//! The commands that go to an operator on Kubernetes instead of a local journal.

use std::time::Duration;

use jiff::Timestamp;
use stagger_core::model::{ClusterName, RunId};
use stagger_core::run::Command;
use stagger_engine::supervisor;
use stagger_rook::client::status::{MaintenanceStatus, command_text};
use stagger_rook::client::unmanaged::Unmanaged;
use stagger_rook::client::{self, ClientError, OperatorLocation, Remote};
use stagger_rook::journal::{CommandQueue, KubeStore};

use super::control;
use crate::args::{self, Cli, OperatorCluster, OperatorRequest};
use crate::documents;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;
use crate::show::rook;

/// How long an operator may take to hear a command.
const LIMIT: u64 = 60;

async fn connect(kube: &OperatorCluster) -> Result<kube::Client, CliError> {
    Ok(client::connect(kube.kubeconfig.as_deref(), kube.context.as_deref()).await?)
}

fn operator_location(kube: &OperatorCluster) -> OperatorLocation {
    OperatorLocation {
        namespace: kube.namespace.clone(),
        name: kube.name.clone(),
        operator: kube.operator_namespace.clone(),
    }
}

async fn find(kube: &OperatorCluster) -> Result<Remote, CliError> {
    Ok(Remote::find(connect(kube).await?, &operator_location(kube)).await?)
}

/// The journals of an operator's runs, to be read.
pub(crate) async fn journals(kube: &OperatorCluster) -> Result<KubeStore, CliError> {
    let remote = find(kube).await?;
    let told = remote.status().await?;
    let name = ClusterName::new(&told.cluster).map_err(|error| CliError::usage(error.to_string()))?;
    Ok(store(&remote, name))
}

/// What is left for an operator, without waiting until it has heard it.
pub(crate) async fn leave(kube: &OperatorCluster, command: &Command) -> Result<(), CliError> {
    let remote = find(kube).await?;
    check_command(&remote.status().await?, command, false)?;
    remote.send_command(&command_text(command)).await?;
    Ok(())
}

fn store(remote: &Remote, cluster: ClusterName) -> KubeStore {
    let (client, namespace) = remote.client();
    KubeStore::new(client, namespace, cluster, CommandQueue::default())
}

/// `status`
pub(crate) async fn status(cli: &Cli, args: &args::StatusArgs) -> Result<Exit, CliError> {
    let (client, place) = (connect(&args.kube).await?, operator_location(&args.kube));
    let told = match Remote::find(client.clone(), &place).await {
        Ok(remote) => remote.status().await?,
        Err(ClientError::NoneThere { .. }) if place.name.is_none() => {
            return Ok(unmanaged(cli, &client::unmanaged(&client, &place).await?));
        }
        Err(error) => return Err(error.into()),
    };
    if cli.json {
        print::json(&documents::ROOK_STATUS.of(&told));
    } else {
        print::data_line(&rook::status(&told, Timestamp::now(), args.upgrade));
    }
    Ok(exit(&told))
}

/// `status` of a cluster that nobody maintains.
fn unmanaged(cli: &Cli, seen: &Unmanaged) -> Exit {
    if cli.json {
        print::json(&documents::ROOK_UNMANAGED.of(seen));
    } else {
        print::data_line(&rook::unmanaged(seen));
    }
    if seen.is_blocked() {
        Exit::NeedsYou
    } else {
        Exit::Done
    }
}

/// Blocked, or nobody there to go on: somebody has to look.
fn exit(told: &MaintenanceStatus) -> Exit {
    if told.leader.is_missing() || told.phase.as_deref() == Some("Blocked") {
        Exit::NeedsYou
    } else {
        Exit::Done
    }
}

/// `versions`
pub(crate) async fn versions(cli: &Cli, args: &args::VersionsArgs) -> Result<Exit, CliError> {
    let client = connect(&args.kube).await?;
    let versions = client::versions(&client, &operator_location(&args.kube)).await?;
    if cli.json {
        print::json(&documents::ROOK_VERSIONS.of(&versions));
    } else {
        print::data_line(&rook::versions(
            &versions,
            Timestamp::now(),
            args.all,
            print::width(),
        ));
    }
    Ok(Exit::Done)
}

/// `pause`, `resume`, `approve`, `abort`, `rollback`, `confirm`, `settle`: left for the operator, which then says that it has heard.
pub(crate) async fn ask(cli: &Cli, args: &OperatorRequest, command: &Command) -> Result<Exit, CliError> {
    let remote = find(&args.kube).await?;
    let told = remote.status().await?;
    check_command(&told, command, args.no_wait)?;
    let replayed = async |run: &RunId| replayed(&remote, &told.cluster, run).await;
    match (command, told.current_run()) {
        (Command::Approve { door }, Some(run)) => control::check_approval(&replayed(&run.run).await?, door)?,
        (Command::Settle { intent, .. }, Some(run)) => {
            control::check_waits_for(&replayed(&run.run).await?, *intent)?;
        }
        (_, _) => {}
    }
    let said = remote.send_command(&command_text(command)).await?;
    let who = format!("CephMaintenance {}/{}", told.namespace, told.name);
    if args.no_wait {
        print::status_line(&format!("{said:?} is in the annotation of {who}"));
    } else {
        let limit = Duration::from_secs(args.timeout.unwrap_or(LIMIT));
        remote.wait_for_command(&said, limit).await?;
        print::status_line(&format!("{said:?} to {who} was processed"));
    }
    if cli.json {
        print::json(&documents::ROOK_STATUS.of(&remote.status().await?));
    }
    Ok(Exit::Done)
}

/// A command is for a run, and for somebody who hears it. What was given up is resumed without a run.
fn check_command(told: &MaintenanceStatus, command: &Command, no_wait: bool) -> Result<(), CliError> {
    let again = *command == Command::Resume && told.gave_up.is_some();
    if told.current_run().is_none() && told.unreadable.is_none() && !again {
        let error = CliError::new(
            Exit::No,
            format!(
                "no upgrade of CephCluster {}/{} is under way",
                told.namespace, told.cluster
            ),
        );
        return Err(error.hint(
            "nothing was changed; another spec.image of the CephMaintenance starts one, spec.updatePolicy.pause keeps it \
             from starting, `stagger status` shows what is the matter",
        ));
    }
    if told.leader.is_missing() && !no_wait {
        return Err(ClientError::NoOperator(rook::leader(&told.leader, Timestamp::now())).into());
    }
    Ok(())
}

/// The run as its journal in the cluster tells it.
async fn replayed(remote: &Remote, cluster: &str, run: &RunId) -> Result<stagger_core::run::Run, CliError> {
    let name = ClusterName::new(cluster).map_err(|error| CliError::usage(error.to_string()))?;
    Ok(supervisor::replay(&store(remote, name), run).await?)
}
