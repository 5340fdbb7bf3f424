//! The command line's client of an operator: through the API server, by the CephMaintenance. It reads the
//! status, and leaves commands in an annotation; it never writes a spec.

pub mod status;
pub mod unmanaged;
pub mod versions;

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, Patch, PatchParams};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tower::timeout::TimeoutLayer;

use crate::agent::daemon_set;
use crate::api::cluster::CephCluster;
use crate::api::maintenance::CephMaintenance;
use crate::api::names::{COMMAND, LEASE, OPERATOR};
use crate::api::objects::{DaemonSet, Deployment};
use crate::client::status::{Leader, MaintenanceStatus, unique_command};
use crate::client::unmanaged::Unmanaged;
use crate::client::versions::ClusterVersions;

/// Who writes the annotation, as Kubernetes notes it.
const MANAGER: &str = "stagger-cli";
/// How long the API server may take to be there.
const CONNECT: Duration = Duration::from_secs(10);
/// How long it may take to begin an answer. It gives up by itself after a minute.
const ANSWER: Duration = Duration::from_secs(75);
/// A connection on which nothing comes for so long is dead: the API server ends a watch within 295 s.
const SILENCE: Duration = Duration::from_secs(330);
/// Between two looks whether a command was heard.
const LOOK: Duration = Duration::from_millis(500);
/// How often a command is written anew because the CephMaintenance was changed meanwhile.
const TRIES: u32 = 10;

/// Why an operator cannot be spoken to.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig.
    #[error("the kubeconfig cannot be used: {0}")]
    Config(String),
    /// There is no such CephCluster, or it is not clear which is meant.
    #[error("{0}")]
    Which(String),
    /// Nobody maintains anything there.
    #[error("there is no CephMaintenance in namespace {namespace}")]
    NoneThere {
        /// The namespace.
        namespace: String,
        /// What to do.
        hint: &'static str,
    },
    /// The API server says no.
    #[error("{tried}: {why}")]
    Refused {
        /// What was tried, on what.
        tried: String,
        /// The API server's word.
        why: String,
        /// What to do.
        hint: String,
    },
    /// The API server does not answer.
    #[error("{tried}: the API server cannot be asked: {why}")]
    Unreachable {
        /// What was tried, on what.
        tried: String,
        /// Why.
        why: String,
    },
    /// No operator leads, so nobody would hear.
    #[error("no operator would process it: {0}")]
    NoOperator(String),
    /// A command was written, and not heard in time.
    #[error("{said:?} was not processed within {} s; it is in the annotation {COMMAND} and may still be processed", limit.as_secs())]
    NotHeard {
        /// The command.
        said: String,
        /// How long was waited.
        limit: Duration,
    },
    /// Another command took the place of one that was not heard yet.
    #[error("{said:?} was not processed: {by:?} replaced it")]
    Overwritten {
        /// The command.
        said: String,
        /// What stands there now.
        by: String,
    },
}

impl ClientError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Config(_) => Some("--kubeconfig names a file, --context one of its contexts"),
            Self::Which(_) => Some("-n names the namespace, --name the CephMaintenance"),
            Self::NoneThere { hint, .. } => Some(hint),
            Self::Refused { hint, .. } => Some(hint),
            Self::Unreachable { .. } => {
                Some("`kubectl get nodes` with the same kubeconfig and context shows whether it answers")
            }
            Self::NoOperator(_) => Some(
                "start the operator (docs/guides/kubernetes.md), or name its namespace with \
                 --operator-namespace; --no-wait leaves the command for one that is to come",
            ),
            Self::NotHeard { .. } => {
                Some("`stagger status` shows what keeps the operator; its log says more")
            }
            Self::Overwritten { .. } => {
                Some("another user sends commands too: coordinate with them, and try again")
            }
        }
    }
}

/// Where the operator and its clusters are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperatorLocation {
    /// The namespace of the CephMaintenance; that of the context, if not given.
    pub namespace: Option<String>,
    /// Its name; the only one, if not given.
    pub name: Option<String>,
    /// The namespace of the operator; that of the CephMaintenance, if not given.
    pub operator: Option<String>,
}

impl OperatorLocation {
    fn namespace(&self, client: &Client) -> String {
        let given = self.namespace.clone();
        given.unwrap_or_else(|| client.default_namespace().to_owned())
    }
}

/// A CephMaintenance as the command line sees it.
pub struct Remote {
    client: Client,
    namespace: String,
    operator: String,
    name: String,
}

/// The API server that a kubeconfig names, or the usual one.
///
/// # Errors
/// The kubeconfig cannot be read, or has no such context.
pub async fn connect(file: Option<&Path>, context: Option<&str>) -> Result<Client, ClientError> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let config = match (file, context) {
        (Some(file), _) => {
            let read = Kubeconfig::read_from(file).map_err(unusable)?;
            Config::from_custom_kubeconfig(read, &options)
                .await
                .map_err(unusable)?
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await.map_err(unusable)?,
        (None, None) => Config::infer().await.map_err(unusable)?,
    };
    with_timeouts(config).map_err(unusable)
}

/// A client that waits for the API server, but not for ever: kube's own has no limit on an answer, and one that was
/// lost on its way would hold up who asked until the end of the process.
///
/// # Errors
/// The settings cannot be used.
pub fn with_timeouts(mut config: Config) -> kube::Result<Client> {
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    let builder = ClientBuilder::try_from(config)?;
    Ok(builder.with_layer(&TimeoutLayer::new(ANSWER)).build())
}

/// The name of the CephCluster in a namespace, for who only looks.
///
/// # Errors
/// There is none, there are several, or the API server does not say.
pub async fn cluster_name(client: &Client, namespace: &str) -> Result<String, ClientError> {
    let api: Api<CephCluster> = Api::namespaced(client.clone(), namespace);
    let tried = format!("list the CephClusters of namespace {namespace}");
    let listed = match api.list(&ListParams::default()).await {
        Err(kube::Error::Api(answer)) if answer.code == 404 => {
            return Err(ClientError::Which(format!(
                "{tried}: the API server knows no CephClusters, so Rook is not installed"
            )));
        }
        listed => listed.map_err(|error| api_error_hint(tried, error))?,
    };
    let mut names: Vec<String> = listed.iter().map(ResourceExt::name_any).collect();
    match (names.pop(), names.len()) {
        (Some(only), 0) => Ok(only),
        (None, _) => Err(ClientError::Which(format!(
            "there is no CephCluster in namespace {namespace}"
        ))),
        // Their monitors' addresses would be in one and the same ConfigMap.
        (Some(_), _) => Err(ClientError::Which(format!(
            "there are several CephClusters in namespace {namespace}"
        ))),
    }
}

fn unusable(error: impl std::error::Error) -> ClientError {
    ClientError::Config(error.to_string())
}

impl Remote {
    /// The CephMaintenance of that name, or the only one there is.
    ///
    /// # Errors
    /// There is none, there are several, or the API server does not say.
    pub async fn find(client: Client, place: &OperatorLocation) -> Result<Self, ClientError> {
        let namespace = place.namespace(&client);
        let api: Api<CephMaintenance> = Api::namespaced(client.clone(), &namespace);
        let tried = format!("list the CephMaintenances of namespace {namespace}");
        let none_there = |hint| ClientError::NoneThere {
            namespace: namespace.clone(),
            hint,
        };
        let listed = match api.list(&ListParams::default()).await {
            Err(kube::Error::Api(answer)) if answer.code == 404 => {
                return Err(none_there(
                    "the API server has no such resource: `kubectl apply --server-side -f deploy/crds.yaml`",
                ));
            }
            listed => listed.map_err(|error| api_error_hint(tried, error))?,
        };
        let names: Vec<String> = listed.iter().map(ResourceExt::name_any).collect();
        if names.is_empty() {
            return Err(none_there(
                "-n names the namespace; docs/guides/kubernetes.md starts with one",
            ));
        }
        let name = choose(&namespace, &names, place.name.as_deref()).map_err(ClientError::Which)?;
        Ok(Self {
            client,
            operator: place.operator.clone().unwrap_or_else(|| namespace.clone()),
            namespace,
            name,
        })
    }

    /// What is told of it now.
    ///
    /// # Errors
    /// The API server does not say.
    pub async fn status(&self) -> Result<MaintenanceStatus, ClientError> {
        Ok(MaintenanceStatus::of(
            &self.maintenance().await?,
            leader(&self.client, &self.operator).await,
        ))
    }

    /// Leaves a command for the operator, and gives it as it was written.
    ///
    /// # Errors
    /// The API server refuses it, or does not answer.
    pub async fn send_command(&self, command: &str) -> Result<String, ClientError> {
        let api = self.api();
        let tried = format!("annotate CephMaintenance {}/{}", self.namespace, self.name);
        let mut left = TRIES;
        loop {
            let found = self.maintenance().await?;
            let told = MaintenanceStatus::of(&found, Leader::Nobody);
            let said = unique_command(command, told.command.as_deref(), told.heard.as_deref());
            // Under the condition that it is still as it was read: two commands at once are two.
            let patch = json!({ "metadata": {
                "resourceVersion": found.resource_version(),
                "annotations": { COMMAND: said },
            } });
            let params = PatchParams {
                field_manager: Some(MANAGER.to_owned()),
                ..PatchParams::default()
            };
            left -= 1;
            match api
                .patch_metadata(&self.name, &params, &Patch::Merge(&patch))
                .await
            {
                Ok(_) => return Ok(said),
                Err(kube::Error::Api(answer)) if answer.code == 409 && left > 0 => {}
                Err(error) => return Err(api_error_hint(tried, error)),
            }
        }
    }

    /// Waits until a command was heard.
    ///
    /// # Errors
    /// It was not in time, or another took its place.
    pub async fn wait_for_command(&self, said: &str, limit: Duration) -> Result<(), ClientError> {
        let waited = tokio::time::timeout(limit, async {
            loop {
                let told = MaintenanceStatus::of(&self.maintenance().await?, Leader::Nobody);
                if told.heard.as_deref() == Some(said) {
                    return Ok(());
                }
                if let Some(by) = told.command.filter(|now| now != said) {
                    return Err(ClientError::Overwritten {
                        said: said.to_owned(),
                        by,
                    });
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        waited.await.unwrap_or_else(|_| {
            Err(ClientError::NotHeard {
                said: said.to_owned(),
                limit,
            })
        })
    }

    /// What the journals of its runs are kept in, for who only reads them.
    pub fn client(&self) -> (&Client, &str) {
        (&self.client, &self.namespace)
    }

    fn api(&self) -> Api<CephMaintenance> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn maintenance(&self) -> Result<CephMaintenance, ClientError> {
        let tried = format!("read CephMaintenance {}/{}", self.namespace, self.name);
        let found = self.api().get(&self.name).await;
        found.map_err(|error| api_error_hint(tried, error))
    }
}

/// Who runs what; nobody has to maintain anything there.
///
/// # Errors
/// There is no CephCluster, or the API server does not say.
pub async fn versions(client: &Client, place: &OperatorLocation) -> Result<ClusterVersions, ClientError> {
    let namespace = place.namespace(client);
    let operator = place.operator.as_ref().unwrap_or(&namespace);
    let daemons: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    let label = format!("rook_cluster={namespace}");
    let tried = format!("list the Deployments of namespace {namespace}");
    let daemons = daemons.list(&ListParams::default().labels(&label)).await;
    let daemons = daemons.map_err(|error| api_error_hint(tried, error))?;
    if daemons.items.is_empty() {
        cluster_name(client, &namespace).await?;
    }
    Ok(ClusterVersions::of(
        of_operator::<Deployment>(client, operator, "Deployment", OPERATOR)
            .await?
            .as_ref(),
        of_operator::<DaemonSet>(client, operator, "DaemonSet", daemon_set::NAME)
            .await?
            .as_ref(),
        leader(client, operator).await,
        &daemons.items,
    ))
}

/// A cluster that nobody maintains.
///
/// # Errors
/// There is no CephCluster, there are several, or the API server does not say.
pub async fn unmanaged(client: &Client, place: &OperatorLocation) -> Result<Unmanaged, ClientError> {
    Unmanaged::observe(client, &place.namespace(client)).await
}

/// An object beside an operator; `None`: there is none.
async fn of_operator<K>(
    client: &Client,
    namespace: &str,
    kind: &str,
    name: &str,
) -> Result<Option<K>, ClientError>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let tried = format!("read {kind} {namespace}/{name}");
    api.get_opt(name)
        .await
        .map_err(|error| api_error_hint(tried, error))
}

/// Who may not read the Lease can still do all else.
async fn leader(client: &Client, namespace: &str) -> Leader {
    match of_operator::<Lease>(client, namespace, "Lease", LEASE).await {
        Ok(lease) => Leader::of(lease.as_ref(), Timestamp::now()),
        Err(error) => Leader::Unknown {
            why: error.to_string(),
        },
    }
}

/// Which CephMaintenance is meant; otherwise why that is not clear.
fn choose(namespace: &str, names: &[String], wanted: Option<&str>) -> Result<String, String> {
    match (wanted, names) {
        (Some(wanted), _) if names.iter().any(|name| name == wanted) => Ok(wanted.to_owned()),
        (None, [only]) => Ok(only.clone()),
        (Some(wanted), _) => Err(format!(
            "there is no CephMaintenance {wanted} in namespace {namespace}; there is {}",
            names.join(", ")
        )),
        (None, _) => Err(format!(
            "there are {} CephMaintenances in namespace {namespace}: {}",
            names.len(),
            names.join(", ")
        )),
    }
}

/// What an error of the API server means for a person.
fn api_error_hint(tried: String, error: kube::Error) -> ClientError {
    let answer = match error {
        kube::Error::Api(answer) if (400..500).contains(&answer.code) && answer.code != 429 => answer,
        other => {
            return ClientError::Unreachable {
                tried,
                why: innermost(&other),
            };
        }
    };
    let hint = match answer.code {
        401 => "the API server does not know you: log in anew, or take another --context",
        403 => "your account needs these rights: docs/guides/kubernetes.md lists those of each command",
        404 => "the API server has no such resource: `kubectl apply --server-side -f deploy/crds.yaml`",
        409 => "others keep changing it; try again",
        _ => "nothing was changed",
    };
    ClientError::Refused {
        tried,
        why: answer.message.clone(),
        hint: hint.to_owned(),
    }
}

/// What is behind an error at last: the layers between say the same.
fn innermost(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(inner) => innermost(inner),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// It takes connections, and says nothing.
    #[tokio::test]
    async fn an_api_server_that_says_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let client = with_timeouts(Config::new(address.parse().unwrap())).unwrap();
        let asked = tokio::spawn(async move { client.apiserver_version().await });
        let (_connection, _) = listener.accept().await.unwrap();
        // From here on time goes by as fast as nothing happens.
        tokio::time::pause();
        let error = asked.await.unwrap().expect_err("nobody answered");
        assert!(innermost(&error).contains("timed out"), "{error:?}");
    }

    #[test]
    fn the_only_cluster_need_not_be_named() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(choose("n", &names(&["a"]), None), Ok("a".to_owned()));
        assert_eq!(choose("n", &names(&["a", "b"]), Some("b")), Ok("b".to_owned()));
        for (there, wanted, why) in [
            (
                &["a"][..],
                Some("c"),
                "there is no CephMaintenance c in namespace n; there is a",
            ),
            (
                &["a", "b"][..],
                None,
                "there are 2 CephMaintenances in namespace n: a, b",
            ),
        ] {
            assert_eq!(choose("n", &names(there), wanted), Err(why.to_owned()));
        }
    }

    #[test]
    fn an_answer_of_the_api_server_says_what_to_do() {
        let answer = |code: u16| {
            let status = kube::core::Status {
                code,
                message: "no".to_owned(),
                ..kube::core::Status::default()
            };
            api_error_hint("read it".to_owned(), kube::Error::Api(Box::new(status)))
        };
        for (code, word) in [(401, "log in"), (403, "rights"), (404, "deploy/crds.yaml")] {
            let error = answer(code);
            assert!(error.hint().is_some_and(|hint| hint.contains(word)), "{error:?}");
        }
        assert!(matches!(answer(503), ClientError::Unreachable { .. }));
        assert!(matches!(answer(429), ClientError::Unreachable { .. }));
    }
}
