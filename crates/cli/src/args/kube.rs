//! The Kubernetes cluster, and the account for it.

use std::path::PathBuf;

use clap::Args;

/// A cluster that Rook laid out, of which nothing is in any configuration.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Rook-managed cluster")]
pub(crate) struct RookCluster {
    /// The kubeconfig [default: KUBECONFIG, ~/.kube/config, or the pod's service account].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context in it [default: the current one].
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace of the CephCluster [default: the context's]. Monitors are queried from here, with the key in Rook's
    /// Secret.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Ask Ceph in Rook's toolbox by `kubectl exec`, where monitors cannot be reached from here [the Deployment
    /// rook-ceph-tools, or a pod or Deployment of another name]
    #[arg(long, value_name = "POD", num_args = 0..=1, require_equals = true, default_missing_value = TOOLBOX)]
    pub(crate) toolbox: Option<String>,
}

/// As Rook's own examples call it.
const TOOLBOX: &str = "deploy/rook-ceph-tools";

impl RookCluster {
    /// Whether one is meant.
    pub(crate) fn is_given(&self) -> bool {
        let Self {
            kubeconfig,
            context,
            namespace,
            toolbox,
        } = self;
        kubeconfig.is_some() || context.is_some() || namespace.is_some() || toolbox.is_some()
    }

    /// What stands before a program that runs in the toolbox, if that is to be asked. `kubectl exec` hands its words on as they are.
    pub(crate) fn in_toolbox(&self, namespace: &str) -> Option<Vec<String>> {
        let toolbox = self.toolbox.as_deref()?;
        let mut words = vec!["kubectl".to_owned(), format!("--namespace={namespace}")];
        words.extend(
            self.kubeconfig
                .iter()
                .map(|file| format!("--kubeconfig={}", file.display())),
        );
        words.extend(self.context.iter().map(|context| format!("--context={context}")));
        words.extend(["exec", "--stdin", toolbox, "--"].map(str::to_owned));
        Some(words)
    }
}

/// A cluster that an operator sees to, instead of a run in the folder of journals.
#[derive(Debug, Args)]
#[command(next_help_heading = "Kubernetes operator")]
pub(crate) struct OperatorCluster {
    /// The kubeconfig [default: KUBECONFIG, ~/.kube/config, or the pod's service account].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context in it [default: the current one].
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace of the CephMaintenance [default: the context's].
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// The CephMaintenance; needed if there are several.
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) name: Option<String>,
    /// The namespace of the operator [default: the CephMaintenance's].
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) operator_namespace: Option<String>,
}

impl OperatorCluster {
    /// Whether an operator is meant.
    pub(crate) fn is_given(&self) -> bool {
        let Self {
            kubeconfig,
            context,
            namespace,
            name,
            operator_namespace,
        } = self;
        kubeconfig.is_some()
            || [context, namespace, name, operator_namespace]
                .iter()
                .any(|given| given.is_some())
    }
}

/// An operator that is asked for something.
#[derive(Debug, Args)]
#[command(next_help_heading = "Kubernetes operator")]
pub(crate) struct OperatorRequest {
    #[command(flatten)]
    /// Which.
    pub(crate) kube: OperatorCluster,
    /// Do not wait for the operator to acknowledge.
    #[arg(long, requires = "OperatorCluster")]
    pub(crate) no_wait: bool,
    /// Seconds to wait for the acknowledgement [default: 60].
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "OperatorCluster",
        conflicts_with = "no_wait"
    )]
    pub(crate) timeout: Option<u64>,
}
