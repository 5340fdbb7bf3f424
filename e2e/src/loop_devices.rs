//! Block devices of a sandbox: loop devices over sparse files.
//!
//! Loop devices belong to the kernel, not to a namespace. Here each is held open by a process of the sandbox and
//! detached at once, which the kernel puts off until the last who holds it is gone: so they are free when the
//! sandbox has ended, however it ended.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::command::run;
use crate::sandbox::Sandbox;

/// Attaches each file and holds its device. Arguments: the files; prints the devices in their order.
const ATTACH: &str = r#"
set -eu
for file; do
    device=$(losetup --find --show "$file")
    exec 9<>"$device"
    losetup --detach "$device"
    sleep infinity >/dev/null 2>&1 </dev/null &
    exec 9>&-
    echo "$device"
done
"#;

/// Makes a device of so many bytes for each of these files, which are made, inside `sandbox`.
///
/// # Errors
/// A file cannot be made, or the machine has no loop devices.
pub fn make(sandbox: &Sandbox, files: &[PathBuf], bytes: u64) -> Result<Vec<PathBuf>> {
    for file in files {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        File::create(file)
            .and_then(|made| made.set_len(bytes))
            .with_context(|| format!("making {}", file.display()))?;
    }
    attach(sandbox, files)
}

/// Makes devices of files that are there, inside `sandbox`.
///
/// # Errors
/// The machine has no loop devices.
pub fn attach(sandbox: &Sandbox, files: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut attach = sandbox.command("sh");
    attach.args(["-c", ATTACH, "attach"]).args(files);
    let said = run(&mut attach).context("attaching loop devices")?;
    let devices: Vec<PathBuf> = said.lines().map(PathBuf::from).collect();
    ensure!(
        devices.len() == files.len(),
        "{} files, and the devices {devices:?}",
        files.len()
    );
    Ok(devices)
}

/// The files below `folder` that a loop device of the machine still stands on.
///
/// # Errors
/// The kernel does not tell its devices.
pub fn left(folder: &Path) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for entry in fs::read_dir("/sys/block").context("reading /sys/block")? {
        let file = entry?.path().join("loop/backing_file");
        // Most are no loop devices, or are free.
        let file = fs::read_to_string(file).unwrap_or_default();
        if Path::new(file.trim()).starts_with(folder) {
            left.push(file.trim().to_owned());
        }
    }
    Ok(left)
}
