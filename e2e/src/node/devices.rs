//! The address of a node, and its own block devices: as nodes of one machine would share all of them, each gets
//! a `/dev` of its own.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::Node;
use crate::command::run;

/// Makes the `/dev` of a node. Arguments: its folder, the folder of udev's records, then the devices.
///
/// In memory, as the file system below may not know devices, and gone with the sandbox. What is usual in a
/// container is there; of block devices only those given, and what udev would have recorded of them.
const MAKE: &str = r#"
set -eu
dev=$1 records=$2; shift 2
mkdir -p "$dev" "$records"
mount -t tmpfs -o mode=755 tmpfs "$dev"
for usual in full null random tty urandom zero; do cp -a "/dev/$usual" "$dev/"; done
mkdir "$dev/mqueue" "$dev/pts"
mkdir -m 1777 "$dev/shm"
mount --rbind /dev/pts "$dev/pts"
ln -s pts/ptmx "$dev/ptmx"
ln -s /proc/self/fd "$dev/fd"
for at in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${at%:*}" "$dev/${at#*:}"; done
for device; do
    cp -a "$device" "$dev/"
    read -r number <"/sys/class/block/${device##*/}/dev"
    printf 'I:1\nE:DEVTYPE=disk\nG:systemd\n' >"$records/b$number"
done
"#;

/// Gives a node its address, and its devices in `folder`, which holds all its files.
pub(super) fn make(folder: &Path, node: &Node) -> Result<()> {
    if let Some(address) = node.address {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let words = ["addr", "replace", &format!("{address}/{bits}"), "dev", "lo"];
        run(Command::new("ip").args(words)).with_context(|| format!("taking the address {address}"))?;
    }
    if let Some(devices) = &node.devices {
        let mut sh = Command::new("sh");
        sh.args(["-c", MAKE, "devices"]);
        sh.args([folder.join("dev"), folder.join("run/udev/data")]);
        run(sh.args(devices)).with_context(|| format!("making the devices of {}", folder.display()))?;
    }
    Ok(())
}
