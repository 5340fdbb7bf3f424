//! Files of nodes, and new disks, which are files too.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{CephInPods, node_folder};

/// Where they are, as the node sees it.
const FOLDER: &str = "var/lib/disks";
/// As large as those of the other OSDs.
const SIZE: u64 = 1 << 30;

impl CephInPods {
    /// Puts a new, empty disk into a node, and gives its path there.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn new_disk(&self, node: &str, name: &str) -> Result<String> {
        let file = self.disk(node, name);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        let made = File::create(&file).with_context(|| format!("making {}", file.display()))?;
        made.set_len(SIZE)
            .with_context(|| format!("making {} large", file.display()))?;
        Ok(format!("/{FOLDER}/{name}"))
    }

    /// The file that is the disk of that name.
    pub fn disk(&self, node: &str, name: &str) -> PathBuf {
        self.on_node(node, FOLDER).join(name)
    }

    /// Where a path of a node is; without the slash before it.
    pub fn on_node(&self, node: &str, path: &str) -> PathBuf {
        node_folder(&self.ceph).join("hosts").join(node).join(path)
    }
}
