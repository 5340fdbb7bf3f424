//! Helm, built once from its sources as the servers are.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::servers::{Source, kept};

/// The release of Helm, as in `e2e/kubernetes/helm/go.mod`.
pub const HELM: &str = "v4.3.1";

/// The path of `helm` in the cache, built if it is not there yet.
///
/// # Errors
/// There is no Go and none can be fetched, or it does not build.
pub fn program() -> Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("kubernetes");
    let helm = Source {
        program: "helm",
        module: "helm",
        package: "helm.sh/helm/v4/cmd/helm".to_owned(),
        flags: "-s -w".to_owned(),
    };
    Ok(kept(&sources, "helm", HELM, &[helm])?.join("helm"))
}
