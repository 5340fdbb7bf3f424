//! The images of a cluster that Rook lays out: Ceph's, a second build of the same, and Rook's own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::files::script;
use crate::node::Image;
use crate::rook_program::{self, Rook};
use crate::roots::Root;
use crate::second_build::SecondBuild;

/// Of the device mapper there is only the version: no volume here is made by it.
const DMSETUP: &str = r#"#!/bin/sh
case "$1" in
version) printf 'Library version:   1.02.205 (2025-02-27)\nDriver version:    4.50.0\n' ;;
*) exit 1 ;;
esac
"#;

/// No daemon of udev runs: what it would have recorded of a disk is asked of the disk.
const UDEVADM: &str = r#"#!/bin/sh
for device; do :; done
case "$1" in
info)
    printf 'DEVNAME=/dev/%s\nDEVTYPE=disk\nSUBSYSTEM=block\n' "${device##*/}"
    blkid -p -o udev "$device" 2>/dev/null
    ;;
esac
exit 0
"#;

/// What the probes of gateways ask with: the code of the answer.
const CURL: &str = r#"#!/usr/bin/python3
import sys
import urllib.error
import urllib.request

try:
    code = urllib.request.urlopen(sys.argv[-1], timeout=5).status
except urllib.error.HTTPError as error:
    code = error.code
except OSError:
    sys.exit(7)
print(code, end="")
"#;

/// What probes ask of a daemon, twenty times as fast: Ceph's own program takes half a second of a processor to begin, which a dozen
/// daemons on one machine have not got. All else is asked of that program.
const CEPH: &str = r#"#!/usr/bin/python3 -SE
import os
import sys

if len(sys.argv) != 4 or sys.argv[1] != "--admin-daemon" or sys.argv[3] not in ("status", "mon_status"):
    os.execv("/usr/bin/ceph", ["ceph", *sys.argv[1:]])

import _socket


def read(connection, length):
    text = b""
    while len(text) < length:
        more = connection.recv(length - len(text))
        if not more:
            sys.exit("the daemon has ended")
        text += more
    return text


try:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect(sys.argv[2])
    question = '{"prefix": "%s", "format": "json-pretty"}\0' % sys.argv[3]
    connection.sendall(question.encode())
    print(read(connection, int.from_bytes(read(connection, 4), "big")).decode())
except OSError as error:
    sys.exit(f"admin_socket: {error}")
"#;

/// The name of the image with that version of Ceph.
pub(super) fn name(version: &str) -> String {
    format!("quay.io/ceph/ceph:v{version}")
}

/// All of them by name. `folder` is the cluster's, where the stand-ins are written.
pub(super) fn all(
    folder: &Path,
    root: &Root,
    second: &SecondBuild,
    rooks: &[Rook],
) -> Result<BTreeMap<String, Image>> {
    let stand_ins = stand_ins(folder)?;
    let ceph = Image {
        root: Some(root.path.clone()),
        layers: vec![stand_ins.clone()],
        env: BTreeMap::from([("PYTHONPATH".to_owned(), "/opt/stagger".to_owned())]),
        ..Image::default()
    };
    let with_rook = |rook: &Rook| Image {
        layers: vec![rook.layer.clone(), stand_ins.clone()],
        entrypoint: vec![rook_program::PROGRAM.to_owned()],
        ..ceph.clone()
    };
    let of_rook = rooks.iter().map(|rook| (rook.release.image(), with_rook(rook)));
    let mut all: BTreeMap<String, Image> = of_rook.collect();
    let again = Image {
        layers: vec![stand_ins, second.layer.clone()],
        ..ceph.clone()
    };
    all.insert(name(&second.version), again);
    // The same once more, by another name.
    let first = name(root.ceph_version());
    all.insert(format!("{first}-again"), ceph.clone());
    all.insert(first, ceph);
    Ok(all)
}

fn stand_ins(folder: &Path) -> Result<PathBuf> {
    let layer = folder.join("stand-ins");
    for (path, text) in [
        ("usr/sbin/dmsetup", DMSETUP),
        ("usr/bin/udevadm", UDEVADM),
        ("usr/bin/curl", CURL),
        ("usr/local/bin/ceph", CEPH),
    ] {
        let path = layer.join(path);
        let parent = path.parent().context("a program has a folder")?;
        fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        script(&path, text)?;
    }
    Ok(layer)
}
