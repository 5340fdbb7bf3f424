//! Which cluster on Kubernetes, and by which account.

use std::path::PathBuf;

use clap::Args;

/// A cluster that Rook laid out, of which nothing is in any configuration.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "To look at a cluster of Rook")]
pub(crate) struct OnKubernetes {
    /// The API server and the account [default: KUBECONFIG, ~/.kube/config, or those of the pod].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// One of its contexts [default: the current one].
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace of the CephCluster [default: that of the context]. Monitors are asked from here, with the key in Rook's
    /// Secret.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Where monitors cannot be reached from here: ask them in Rook's toolbox, by `kubectl exec` [the Deployment
    /// rook-ceph-tools, or a pod or Deployment of another name]
    #[arg(long, value_name = "POD", num_args = 0..=1, require_equals = true, default_missing_value = TOOLBOX)]
    pub(crate) toolbox: Option<String>,
}

/// As Rook's own examples call it.
const TOOLBOX: &str = "deploy/rook-ceph-tools";

impl OnKubernetes {
    /// Whether one is meant.
    pub(crate) fn is_meant(&self) -> bool {
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
#[command(next_help_heading = "To ask an operator on Kubernetes")]
pub(crate) struct Kube {
    /// The API server and the account [default: KUBECONFIG, ~/.kube/config, or those of the pod].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// One of its contexts [default: the current one].
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace of the CephMaintenance [default: that of the context].
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Which CephMaintenance; needed where there are several.
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) name: Option<String>,
    /// The namespace of the operator [default: that of the CephMaintenance].
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) operator_namespace: Option<String>,
}

impl Kube {
    /// Whether an operator is meant.
    pub(crate) fn is_meant(&self) -> bool {
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
#[command(next_help_heading = "To ask an operator on Kubernetes")]
pub(crate) struct Heard {
    #[command(flatten)]
    /// Which.
    pub(crate) kube: Kube,
    /// Do not wait until it has heard.
    #[arg(long, requires = "Kube")]
    pub(crate) no_wait: bool,
    /// Wait for it so many seconds at most [default: 60].
    #[arg(long, value_name = "SECONDS", requires = "Kube", conflicts_with = "no_wait")]
    pub(crate) timeout: Option<u64>,
}
