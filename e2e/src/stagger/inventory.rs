//! What is saved of a cluster is planned as the cluster is.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::Machine;

impl Machine {
    /// Saves the cluster's inventory, and plans from it what is planned from the cluster.
    ///
    /// # Errors
    /// It cannot be saved or read, or the plan has other waves.
    pub fn plans_from_an_inventory(&self, goal: &[&str], stage: &str) -> Result<()> {
        let file = self.folder.join("inventory.json");
        let name = file.display().to_string();
        self.call(&["observe", "--save", &name])?.expect(0)?;
        let live = self.planned(goal, stage)?;
        let saved = self.planned(&[goal, &["--from", &name]].concat(), stage)?;
        ensure!(
            live == saved && !live.is_empty(),
            "the cluster is planned as {live:?}, and its inventory as {saved:?}"
        );
        let size = fs::metadata(&file).context("looking at the inventory")?.len();
        fs::remove_file(&file).context("taking the inventory away")?;
        ensure!(size > 1000, "an inventory of {size} bytes");
        Ok(())
    }
}
