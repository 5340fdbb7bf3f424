//! Where things that are dear to make are kept between runs: outside the checkout.

use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// The cache folder: `$STAGGER_CACHE`, else `$XDG_CACHE_HOME/stagger`, else `~/.cache/stagger`.
///
/// It is made if absent.
pub fn dir() -> Result<PathBuf> {
    let set = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let path = set("STAGGER_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|base| base.join("stagger")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/stagger")))
        .context(
            "no cache folder: none of STAGGER_CACHE, XDG_CACHE_HOME and HOME is set; set STAGGER_CACHE",
        )?;
    fs::create_dir_all(&path).with_context(|| format!("making the cache folder {}", path.display()))?;
    // The same path is used inside other roots, so it must not lead over links.
    fs::canonicalize(&path).with_context(|| format!("resolving the cache folder {}", path.display()))
}
