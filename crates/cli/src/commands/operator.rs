//! `operator`

use std::io::ErrorKind;
use std::path::Path;

use jiff::SignedDuration;
use stagger_engine::supervisor::Identity;
use stagger_gates::GateSettings;
use stagger_rook::api::access::Programs;
use stagger_rook::operator::{self, OperatorError, OperatorOptions, Reached, Webhook, uninstall};
use tracing_subscriber::EnvFilter;

use super::{state_folder, stop_asked};
use crate::args::{Cli, OperatorArgs, Switch};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// Sees to clusters until it is told to stop.
pub(crate) async fn operator(cli: &Cli, args: &OperatorArgs) -> Result<Exit, CliError> {
    if args.may_be_uninstalled {
        return may_be_uninstalled(args).await;
    }
    logs(args.plain_logs);
    // One who waits most of its time keeps little of what it once took, and so do the programs that it starts. Where the
    // kernel knows no large pages there is nothing to turn off.
    #[cfg(target_os = "linux")]
    rustix::thread::disable_transparent_huge_pages(true).ok();
    let config = kube::Config::infer()
        .await
        .map_err(|error| unreachable_by(&error))?;
    let namespace = match &args.namespace {
        Some(given) => given.clone(),
        None => config.default_namespace.clone(),
    };
    let who = Identity::current_process();
    let options = OperatorOptions {
        identity: args
            .identity
            .clone()
            .unwrap_or_else(|| format!("{}-{}", who.host, who.incarnation)),
        namespace,
        watch_namespaces: watched_namespaces(args),
        folder: state_folder(cli)?.join("operator"),
        programs: Programs {
            ceph: split_command(&args.ceph),
            python: split_command(&args.python),
        },
        image: args.image.clone(),
        program: args.program.clone(),
        prepare_timeout: SignedDuration::from_secs(i64::from(args.prepare_timeout)),
        lock_expires: args.lock_expires,
        poll: args.poll,
        metrics: args.metrics.0,
        agents: args.agents == Switch::On,
        gates: gates(args.gates.as_deref())?,
        version: args.version_as.clone(),
    };
    match operator::run(config, options, webhook(args)?, stop_asked()).await {
        Ok(()) => Ok(Exit::Done),
        Err(error @ OperatorError::NotLeader) => Err(CliError::new(Exit::Unreachable, error.to_string())
            .hint("its Deployment restarts it, and it waits to lead")),
        Err(error) => {
            let source = std::error::Error::source(&error).map(|inner| format!(": {inner}"));
            let text = format!("{error}{}", source.unwrap_or_default());
            Err(match error {
                OperatorError::Listen { .. } => CliError::new(Exit::Usage, text)
                    .hint("--metrics names another address; `--metrics off` serves none"),
                _ => CliError::new(Exit::Unreachable, text),
            })
        }
    }
}

/// The namespaces that are watched; none: all.
fn watched_namespaces(args: &OperatorArgs) -> Vec<String> {
    let named = args.watch_namespace.iter().filter(|name| !name.is_empty());
    named.cloned().collect()
}

/// Asked before a chart is taken away: an operator that is gone gives nothing back.
async fn may_be_uninstalled(args: &OperatorArgs) -> Result<Exit, CliError> {
    let holding = uninstall::holding(&connect().await?, &watched_namespaces(args)).await?;
    let Some(first) = holding.iter().find(|of| !of.is_watched).or(holding.first()) else {
        print::status_line("nothing is held: it may be uninstalled");
        return Ok(Exit::Done);
    };
    let names: Vec<String> = holding
        .iter()
        .map(|of| format!("{}/{}", of.namespace, of.name))
        .collect();
    // Its operator has to see that it is deleted.
    let before = if first.is_watched {
        String::new()
    } else {
        format!("have the operator watch namespace {} again; ", first.namespace)
    };
    Err(CliError::new(
        Exit::No,
        format!(
            "do not uninstall yet: budgets, noout and labels may be held for CephMaintenance {}, and only a running operator clears them",
            names.join(", ")
        ),
    )
    .hint(format!(
        "{before}`kubectl -n {} delete cephmaintenance {}` clears what is held; then uninstall it",
        first.namespace, first.name
    )))
}

/// What updates wait for beside Ceph itself. A volume of a ConfigMap that there is not is empty.
fn gates(file: Option<&Path>) -> Result<GateSettings, CliError> {
    let Some(file) = file else {
        return Ok(GateSettings::default());
    };
    let refused = |why: String| {
        CliError::usage(format!("the gates of {} are refused: {why}", file.display()))
            .hint("docs/guides/watching.md shows them; here they are without the section's name")
    };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(GateSettings::default()),
        Err(error) => return Err(refused(error.to_string())),
    };
    let settings: GateSettings = toml::from_str(&text).map_err(|error| refused(error.to_string()))?;
    settings.verify().map_err(refused)?;
    Ok(settings)
}

/// Where evictions are answered.
fn webhook(args: &OperatorArgs) -> Result<Option<Webhook>, CliError> {
    let Some(listen) = args.webhook.0 else {
        return Ok(None);
    };
    let reached = match (&args.webhook_host, args.pod_ip) {
        (Some(host), _) => Reached::Host(host.clone()),
        (None, Some(pod)) => Reached::Service { pod },
        (None, None) => {
            return Err(CliError::new(
                Exit::Usage,
                "--webhook needs to know how the API server gets there",
            )
            .hint(
                "--pod-ip, as in deploy/operator/deployment.yaml, or --webhook-host outside of the cluster",
            ));
        }
    };
    Ok(Some(Webhook { listen, reached }))
}

/// The API server, by KUBECONFIG or as a pod sees it.
pub(super) async fn connect() -> Result<kube::Client, CliError> {
    let config = kube::Config::infer().await;
    let config = config.map_err(|error| unreachable_by(&error))?;
    stagger_rook::client::with_timeouts(config).map_err(|error| unreachable_by(&error))
}

fn unreachable_by(error: &dyn std::error::Error) -> CliError {
    CliError::new(
        Exit::Unreachable,
        format!("Kubernetes cannot be reached: {error}"),
    )
    .hint("set KUBECONFIG, or run it in a pod with a service account")
}

fn split_command(command: &str) -> Vec<String> {
    command.split_whitespace().map(str::to_owned).collect()
}

/// Structured logs on stderr; `RUST_LOG` says how much.
pub(super) fn logs(plain: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    if plain {
        logs.init();
    } else {
        logs.json().init();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_that_are_not_there_are_none_and_wrong_ones_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gates.toml");
        assert!(gates(None).unwrap().is_empty());
        assert!(gates(Some(&file)).unwrap().is_empty());
        let good = "[prometheus]\nurl = \"http://p:9090\"\n[[metric]]\nname = \"a\"\nquery = \"up{namespace='$namespace'}\"\nmin = 1\n";
        std::fs::write(&file, good).unwrap();
        assert_eq!(gates(Some(&file)).unwrap().metric.len(), 1);
        for (text, part) in [
            (
                "[[metric]]\nname = \"a\"\nquery = \"up\"\n",
                "needs [gates.prometheus]",
            ),
            ("[[metrics]]\n", "unknown field `metrics`"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = gates(Some(&file)).unwrap_err().text();
            assert!(error.contains(part), "{error}");
        }
    }
}
