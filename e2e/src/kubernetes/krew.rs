//! krew, kubectl's installer of plugins, built once from its sources as the servers are.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::servers::{Source, kept};

/// The release of krew, as in `e2e/kubernetes/krew/go.mod`.
pub const KREW: &str = "v0.4.4";

/// The path of `krew` in the cache, built if it is not there yet.
///
/// # Errors
/// There is no Go and none can be fetched, or it does not build.
pub fn program() -> Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("kubernetes");
    let krew = Source {
        program: "krew",
        module: "krew",
        package: "sigs.k8s.io/krew/cmd/krew".to_owned(),
        flags: "-s -w".to_owned(),
    };
    Ok(kept(&sources, "krew", KREW, &[krew])?.join("krew"))
}
