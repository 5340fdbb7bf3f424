//! The decision about a device.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::device::{Content, Label};
use crate::provision::JobTarget;

/// An OSD that the cluster knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClusterOsd {
    pub(super) id: u32,
    /// It has never been up.
    pub(super) never_ran: bool,
}

/// The decision about a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DeviceVerdict {
    /// An OSD is to be made on it, or finished.
    Make,
    /// One of this cluster is on it.
    There {
        /// Its number.
        id: u32,
        /// Its UUID.
        uuid: String,
    },
    /// It is not to be touched: why, and what would free it.
    Refuse(String),
}

/// The decision about a device with that content; `uuid` is the one that an OSD made on it would have.
pub(super) fn verdict(
    content: Content,
    label: Option<&Label>,
    fsid: &str,
    uuid: &str,
    known: &BTreeMap<String, ClusterOsd>,
) -> DeviceVerdict {
    let refuse = |why: String| DeviceVerdict::Refuse(why);
    let own = known.get(uuid);
    match (content, label) {
        (Content::Other, _) => refuse(
            "it is not empty; nothing on it is touched. If it is to become an OSD, wipe it (`wipefs --all`, and its \
             first and last megabyte)"
                .to_owned(),
        ),
        (Content::BlueStore, None) => refuse("what BlueStore has written on it cannot be read".to_owned()),
        (Content::BlueStore, Some(label)) => {
            // A label without a cluster is of one that was being made.
            if !label.ceph_fsid.is_empty() && label.ceph_fsid != fsid {
                return refuse(format!(
                    "it holds an OSD of another cluster, {}; wipe it if that is gone for good",
                    label.ceph_fsid
                ));
            }
            let there = known.get(&label.osd_uuid);
            match there {
                Some(osd) if label.mkfs_done == "yes" => DeviceVerdict::There {
                    id: osd.id,
                    uuid: label.osd_uuid.clone(),
                },
                Some(osd) if label.osd_uuid == uuid && osd.never_ran => DeviceVerdict::Make,
                None if label.osd_uuid == uuid && label.mkfs_done != "yes" => DeviceVerdict::Make,
                _ => refuse(format!(
                    "it holds osd.{}, {}, which this cluster does not know (any more); wipe it, and it is prepared \
                     anew",
                    label.whoami, label.osd_uuid
                )),
            }
        }
        (Content::Empty, _) => match own {
            None => DeviceVerdict::Make,
            Some(osd) if osd.never_ran => DeviceVerdict::Make,
            Some(osd) => refuse(format!(
                "it is empty, and osd.{} was on it and is still known: a new disk in the place of an old one? Remove \
                 that OSD first (`ceph osd purge`)",
                osd.id
            )),
        },
    }
}

/// The UUID of the OSD on a device of a node, or on the volume of a claim, whatever node that is on (a UUID of
/// version 8, RFC 9562).
pub(super) fn uuid_of(fsid: &str, at: &JobTarget, device: &str) -> String {
    let parts = match at {
        JobTarget::Node(node) => [fsid, node, device],
        // No device of a node has such a path.
        JobTarget::Claim(claim) => [fsid, claim, "claim"],
    };
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_be_bytes());
        hasher.update(part);
    }
    let sum = hasher.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&sum[..16]);
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (nth, byte) in bytes.iter().enumerate() {
        if matches!(nth, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // A String takes everything.
        write!(text, "{byte:02x}").ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FSID: &str = "f";

    fn label(uuid: &str, fsid: &str, done: bool) -> Label {
        Label {
            osd_uuid: uuid.to_owned(),
            ceph_fsid: fsid.to_owned(),
            whoami: "3".to_owned(),
            mkfs_done: if done { "yes" } else { "" }.to_owned(),
        }
    }

    fn of(content: Content, label: Option<&Label>, known: &[(&str, bool)]) -> DeviceVerdict {
        let known = known
            .iter()
            .map(|(uuid, never_ran)| {
                let known = ClusterOsd {
                    id: 3,
                    never_ran: *never_ran,
                };
                ((*uuid).to_owned(), known)
            })
            .collect();
        verdict(content, label, FSID, "own", &known)
    }

    #[test]
    fn only_what_is_empty_or_begun_by_us_is_written_to() {
        let refused = |verdict: DeviceVerdict| matches!(verdict, DeviceVerdict::Refuse(_));
        assert_eq!(of(Content::Empty, None, &[]), DeviceVerdict::Make);
        assert_eq!(of(Content::Empty, None, &[("own", true)]), DeviceVerdict::Make);
        assert!(refused(of(Content::Empty, None, &[("own", false)])));
        assert!(refused(of(Content::Other, None, &[])));
        assert!(refused(of(Content::BlueStore, None, &[("own", true)])));
        let there = DeviceVerdict::There {
            id: 3,
            uuid: "u".to_owned(),
        };
        assert_eq!(
            of(Content::BlueStore, Some(&label("u", FSID, true)), &[("u", false)]),
            there
        );
        // Killed in the midst of it: before and after the cluster was written down.
        for fsid in ["", FSID] {
            let begun = Some(&label("own", fsid, false));
            assert_eq!(
                of(Content::BlueStore, begun, &[("own", true)]),
                DeviceVerdict::Make
            );
            assert_eq!(of(Content::BlueStore, begun, &[]), DeviceVerdict::Make);
        }
        // Another cluster's, a purged one's, somebody else's half.
        assert!(refused(of(
            Content::BlueStore,
            Some(&label("u", "g", true)),
            &[("u", false)]
        )));
        assert!(refused(of(
            Content::BlueStore,
            Some(&label("u", FSID, true)),
            &[]
        )));
        assert!(refused(of(
            Content::BlueStore,
            Some(&label("own", FSID, true)),
            &[]
        )));
        assert!(refused(of(
            Content::BlueStore,
            Some(&label("u", FSID, false)),
            &[("u", true)]
        )));
        assert!(refused(of(
            Content::BlueStore,
            Some(&label("own", FSID, false)),
            &[("own", false)]
        )));
    }

    #[test]
    fn a_device_always_gets_the_same_uuid_and_no_other_gets_it() {
        let node = |name: &str| JobTarget::Node(name.to_owned());
        let claim = |name: &str| JobTarget::Claim(name.to_owned());
        let one = uuid_of("f", &node("n1"), "/dev/sdb");
        assert_eq!(one, uuid_of("f", &node("n1"), "/dev/sdb"));
        assert_eq!(one.len(), 36);
        assert_eq!(&one[14..15], "8");
        let others = [
            ("f", node("n1/"), "dev/sdb"),
            ("f", node("n2"), "/dev/sdb"),
            ("g", node("n1"), "/dev/sdb"),
            ("f", claim("n1"), "/dev/sdb"),
        ];
        for (fsid, at, device) in others {
            assert_ne!(one, uuid_of(fsid, &at, device));
        }
        let volume = uuid_of("f", &claim("c"), "/mnt/c");
        assert_eq!(volume, uuid_of("f", &claim("c"), "/dev/elsewhere"));
        assert_ne!(volume, uuid_of("f", &claim("d"), "/mnt/c"));
    }
}
