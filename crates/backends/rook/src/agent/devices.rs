//! The block devices of a node, and what is on them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::provision::prepare::device::{Content, read_shared};

/// What is left out: it holds no OSD, or, as images of Ceph itself, does not answer while Ceph does not.
const NOT_FOR_OSDS: [&str; 7] = ["fd", "loop", "nbd", "ram", "rbd", "sr", "zram"];
/// The unit of sizes in `/sys`.
const SECTOR: u64 = 512;

/// A block device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Device {
    /// Its path, which may be another after the next start of the node.
    path: String,
    /// The paths that stay.
    ids: Vec<String>,
    bytes: u64,
    rotational: bool,
    read_only: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    model: String,
    holds: Holds,
    /// What says more of that.
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
}

/// What is on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Holds {
    /// Nothing: an OSD may be made on it.
    Nothing,
    /// An OSD.
    Bluestore,
    /// Partitions.
    Partitions,
    /// It is part of something else, as a volume group.
    PartOf,
    /// Something else.
    Other,
    /// Nobody can tell.
    Unknown,
}

/// All of them, by path. `sys` is `/sys/block`, `dev` is `/dev`.
pub(super) fn list(sys: &Path, dev: &Path) -> io::Result<Vec<Device>> {
    let ids = ids(&dev.join("disk/by-id"));
    let mut found = Vec::new();
    for name in entries(sys)? {
        let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let about = sys.join(&name);
        let bytes = number(&about.join("size")).saturating_mul(SECTOR);
        if NOT_FOR_OSDS.contains(&kind) || bytes == 0 {
            continue;
        }
        // The kernel writes a slash in a name so.
        let path = dev.join(name.replace('!', "/"));
        let (holds, note) = holds(&about, &path);
        let of_it = |(_, target): &&(String, PathBuf)| *target == path;
        found.push(Device {
            ids: ids.iter().filter(of_it).map(|(id, _)| id.clone()).collect(),
            path: path.display().to_string(),
            bytes,
            rotational: number(&about.join("queue/rotational")) == 1,
            read_only: number(&about.join("ro")) == 1,
            model: text(&about.join("device/model")),
            holds,
            note,
        });
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// What is on a device, and what says more of that.
fn holds(about: &Path, path: &Path) -> (Holds, String) {
    let partitions: Vec<String> = entries(about)
        .unwrap_or_default()
        .into_iter()
        .filter(|name| about.join(name).join("partition").exists())
        .collect();
    if !partitions.is_empty() {
        return (Holds::Partitions, partitions.join(", "));
    }
    let holders = entries(&about.join("holders")).unwrap_or_default();
    if !holders.is_empty() {
        return (Holds::PartOf, holders.join(", "));
    }
    match read_shared(path) {
        Ok(Content::Empty) => (Holds::Nothing, String::new()),
        Ok(Content::BlueStore) => (Holds::Bluestore, String::new()),
        Ok(Content::Other) => (Holds::Other, String::new()),
        Err(why) => (Holds::Unknown, why.to_string()),
    }
}

/// The names in a folder, sorted.
fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Links that do not change, with what they lead to.
fn ids(folder: &Path) -> Vec<(String, PathBuf)> {
    let names = entries(folder).unwrap_or_default();
    let links = names.into_iter().map(|name| folder.join(name));
    links
        .filter_map(|link| Some((link.display().to_string(), fs::canonicalize(&link).ok()?)))
        .collect()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn number(path: &Path) -> u64 {
    text(path).parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct World(tempfile::TempDir);

    impl World {
        fn new() -> Self {
            let world = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(world.dev().join("disk/by-id")).unwrap();
            fs::create_dir_all(world.sys()).unwrap();
            world
        }

        fn sys(&self) -> PathBuf {
            self.0.path().join("sys")
        }

        fn dev(&self) -> PathBuf {
            // As `/dev` is: without links.
            fs::canonicalize(self.0.path()).unwrap().join("dev")
        }

        /// A device of 4 MiB that begins so.
        fn device(&self, name: &str, begins: &[u8]) {
            let about = self.sys().join(name);
            fs::create_dir_all(about.join("holders")).unwrap();
            fs::create_dir_all(about.join("queue")).unwrap();
            fs::write(about.join("size"), "8192\n").unwrap();
            fs::write(about.join("queue/rotational"), "1\n").unwrap();
            let path = self.dev().join(name.replace('!', "/"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut content = begins.to_vec();
            content.resize(4 << 20, 0);
            fs::write(path, content).unwrap();
        }

        fn list(&self) -> Vec<Device> {
            list(&self.sys(), &self.dev()).unwrap()
        }
    }

    #[test]
    fn what_is_on_each_device_is_told() {
        let world = World::new();
        world.device("sda", b"");
        world.device("sdb", b"bluestore block device\nx");
        world.device("sdc", b"a file system");
        world.device("sdd", b"");
        fs::create_dir_all(world.sys().join("sdd/sdd1")).unwrap();
        fs::write(world.sys().join("sdd/sdd1/partition"), "1").unwrap();
        world.device("sde", b"");
        fs::create_dir_all(world.sys().join("sde/holders/dm-0")).unwrap();
        world.device("sdf", b"");
        fs::remove_file(world.dev().join("sdf")).unwrap();
        let told: Vec<_> = world
            .list()
            .into_iter()
            .map(|one| (one.holds, one.note))
            .collect();
        let no = String::new;
        assert_eq!(
            told[..5],
            [
                (Holds::Nothing, no()),
                (Holds::Bluestore, no()),
                (Holds::Other, no()),
                (Holds::Partitions, "sdd1".to_owned()),
                (Holds::PartOf, "dm-0".to_owned()),
            ]
        );
        assert_eq!(told[5].0, Holds::Unknown);
        assert!(told[5].1.contains("No such file"), "{told:?}");
    }

    #[test]
    fn a_device_is_named_as_people_name_it() {
        let world = World::new();
        world.device("cciss!c0d0", b"");
        fs::create_dir_all(world.sys().join("cciss!c0d0/device")).unwrap();
        fs::write(world.sys().join("cciss!c0d0/device/model"), "LOGICAL VOLUME  \n").unwrap();
        symlink("../../cciss/c0d0", world.dev().join("disk/by-id/wwn-1")).unwrap();
        symlink("../../gone", world.dev().join("disk/by-id/wwn-2")).unwrap();
        let told = serde_json::to_value(world.list()).unwrap();
        let dev = world.dev().display().to_string();
        let expected = serde_json::json!([{
            "path": format!("{dev}/cciss/c0d0"), "ids": [format!("{dev}/disk/by-id/wwn-1")],
            "bytes": 4 << 20, "rotational": true, "readOnly": false, "model": "LOGICAL VOLUME",
            "holds": "nothing",
        }]);
        assert_eq!(told, expected);
    }

    #[test]
    fn what_holds_no_osd_is_left_out() {
        let world = World::new();
        for name in ["loop0", "rbd12", "nbd3", "sr0", "nvme0n1", "dm-1", "vda"] {
            world.device(name, b"");
        }
        world.device("sdz", b"");
        fs::write(world.sys().join("sdz/size"), "0\n").unwrap();
        let dev = world.dev();
        let names: Vec<_> = world
            .list()
            .iter()
            .map(|one| Path::new(&one.path).strip_prefix(&dev).unwrap().to_owned())
            .collect();
        assert_eq!(names, ["dm-1", "nvme0n1", "vda"].map(PathBuf::from));
    }
}
