//! Releases of Ganeti: the tested ones, and a cluster in the middle of an upgrade.

use std::io::ErrorKind;
use std::path::Path;

/// The releases that are run in the tests, on real clusters: `3.0.2` is of `3.0`.
pub const TESTED: [&str; 2] = ["3.0", "3.1"];

/// Where `gnt-cluster upgrade` says on the master what it is about to do (`pathutils.INTENT_TO_UPGRADE`).
pub const INTENT_TO_UPGRADE: &str = "/var/lib/ganeti/intent-to-upgrade";

/// Why a release is none of [`TESTED`], if it is not.
pub fn untested(release: &str) -> Option<String> {
    let of = |tested: &str| {
        let rest = release.strip_prefix(tested);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
    };
    (!TESTED.into_iter().any(of)).then(|| {
        format!(
            "Ganeti {release} is not tested: tests run on {}; its answers may mean something else",
            TESTED.join(" and ")
        )
    })
}

/// What `gnt-cluster upgrade` on this machine is about to do, if it is.
///
/// # Errors
/// The file is there and cannot be read: nobody knows.
pub fn upgrade_under_way(intent: &Path) -> Result<Option<String>, String> {
    let text = match std::fs::read_to_string(intent) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("read {}: {error}", intent.display())),
    };
    // The release before, that after, and the number of a process.
    let way = match text.trim().split(',').collect::<Vec<_>>().as_slice() {
        [from, to, ..] => format!("from Ganeti {from} to {to}"),
        _ => "to another release of Ganeti".to_owned(),
    };
    Ok(Some(format!(
        "the cluster itself is being upgraded {way}: {} is there",
        intent.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_tested_or_named() {
        for tested in ["3.0.2", "3.0", "3.0.3~rc1", "3.1.0~rc2"] {
            assert_eq!(untested(tested), None, "{tested}");
        }
        for other in ["3.2.0", "2.16.2", "3.10.0", "3.00.0", ""] {
            let why = untested(other).unwrap();
            assert!(
                why.contains(other) && why.contains("tests run on 3.0 and 3.1;"),
                "{why}"
            );
        }
    }

    #[test]
    fn an_upgrade_under_way_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let intent = folder.path().join("intent-to-upgrade");
        assert_eq!(upgrade_under_way(&intent), Ok(None));
        std::fs::write(&intent, "3.0.2,3.1,4711").unwrap();
        let why = upgrade_under_way(&intent).unwrap().unwrap();
        assert!(why.contains("from Ganeti 3.0.2 to 3.1"), "{why}");
        std::fs::write(&intent, "").unwrap();
        assert!(upgrade_under_way(&intent).unwrap().is_some());
        assert!(upgrade_under_way(folder.path()).is_err());
    }
}
