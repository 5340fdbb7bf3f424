//! The content of a device.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use serde::Deserialize;
use tokio::process::Command;

/// What BlueStore writes at the very start.
const MAGIC: &[u8] = b"bluestore block device\n";
/// So much at either end has to be empty: partition tables, file systems and volume managers all leave
/// something there.
const ENDS: u64 = 1 << 20;
/// `open` fails on a block device that somebody has mounted or built something on.
const O_EXCL: i32 = 0o200;

/// What BlueStore has written at the start of a device, as `ceph-bluestore-tool show-label` tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(super) struct Label {
    pub(super) osd_uuid: String,
    pub(super) ceph_fsid: String,
    pub(super) whoami: String,
    pub(super) mkfs_done: String,
}

/// The content of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing.
    Empty,
    /// An OSD's BlueStore.
    BlueStore,
    /// Something else.
    Other,
}

/// Looks at a device that is to be written to, or at a file that stands for one: at none that is in use.
pub(super) fn read_exclusive(path: &Path) -> io::Result<Content> {
    content(path, O_EXCL)
}

/// Looks at a device, in use or not, and keeps nobody from it meanwhile.
pub(crate) fn read_shared(path: &Path) -> io::Result<Content> {
    content(path, 0)
}

fn content(path: &Path, flags: i32) -> io::Result<Content> {
    let kind = std::fs::metadata(path)?.file_type();
    let mut options = OpenOptions::new();
    options.read(true);
    if kind.is_block_device() {
        options.custom_flags(flags);
    } else if !kind.is_file() {
        return Err(io::Error::other("it is neither a block device nor a file"));
    }
    let mut device = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            return Err(io::Error::other(
                "it is in use: mounted, or part of something else",
            ));
        }
        opened => opened?,
    };
    let size = device.seek(SeekFrom::End(0))?;
    if size < 2 * ENDS {
        return Err(io::Error::other(format!("it has only {size} bytes")));
    }
    let mut start = Vec::new();
    device.seek(SeekFrom::Start(0))?;
    device.by_ref().take(ENDS).read_to_end(&mut start)?;
    if start.starts_with(MAGIC) {
        return Ok(Content::BlueStore);
    }
    let mut end = Vec::new();
    device.seek(SeekFrom::Start(size - ENDS))?;
    device.take(ENDS).read_to_end(&mut end)?;
    let zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    Ok(if zero(&start) && zero(&end) {
        Content::Empty
    } else {
        Content::Other
    })
}

/// What BlueStore says of itself on a device; in words, why that cannot be read.
pub(super) async fn label(path: &Path) -> Result<Label, String> {
    let mut ask = Command::new("ceph-bluestore-tool");
    ask.args(["show-label", "--dev"]).arg(path);
    let said = super::run(&mut ask).await.map_err(|error| error.to_string())?;
    let labels: BTreeMap<String, Label> =
        serde_json::from_str(&said).map_err(|error| format!("its label is not understood: {error}"))?;
    let first = labels.into_values().next();
    first.ok_or_else(|| "it has no label".to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn empty_is_only_what_is_empty_at_both_ends() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(16 << 20).unwrap();
        assert_eq!(read_exclusive(file.path()).unwrap(), Content::Empty);
        file.as_file_mut().seek(SeekFrom::End(-512)).unwrap();
        file.write_all(b"EFI PART").unwrap();
        assert_eq!(read_exclusive(file.path()).unwrap(), Content::Other);
        file.as_file_mut().seek(SeekFrom::Start(0)).unwrap();
        file.write_all(b"bluestore block device\nuuid").unwrap();
        assert_eq!(read_exclusive(file.path()).unwrap(), Content::BlueStore);
    }

    #[test]
    fn what_is_no_device_says_so() {
        let small = tempfile::NamedTempFile::new().unwrap();
        assert!(
            read_exclusive(small.path())
                .unwrap_err()
                .to_string()
                .contains("bytes")
        );
        assert!(
            read_exclusive(Path::new("/"))
                .unwrap_err()
                .to_string()
                .contains("neither")
        );
        read_exclusive(Path::new("/nowhere/at/all")).unwrap_err();
    }
}
