//! Which OSDs may be removed: those that are out and safe to destroy. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

/// An OSD that has a Deployment, as Ceph and Kubernetes have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovalCandidate {
    /// It is up.
    pub up: bool,
    /// It has no data any more, by the monitors' will or an administrator's.
    pub out: bool,
    /// Somebody has asked to leave it alone, or is about to replace it.
    pub left_alone: bool,
}

/// The OSDs about which Ceph is to be asked.
pub fn candidates(osds: &BTreeMap<u32, RemovalCandidate>) -> BTreeSet<u32> {
    osds.iter()
        .filter(|(_, osd)| osd.out && !osd.up && !osd.left_alone)
        .map(|(id, _)| *id)
        .collect()
}

/// `ceph osd safe-to-destroy … -f json`. Its exit code is 0 whatever it says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct SafeToDestroy {
    /// Those that hold nothing that is not elsewhere.
    pub safe_to_destroy: BTreeSet<u32>,
    /// Those that placement groups use.
    pub active: BTreeSet<u32>,
    /// Those of which it is not known.
    pub missing_stats: BTreeSet<u32>,
    /// Those that may hold the only copy of something.
    pub stored_pgs: BTreeSet<u32>,
}

impl SafeToDestroy {
    /// Those asked about that may be removed, and why not for each of the others.
    pub fn removable(&self, asked: &BTreeSet<u32>) -> (BTreeSet<u32>, BTreeMap<u32, &'static str>) {
        let mut why = BTreeMap::new();
        for osd in asked {
            let said_no = [
                (&self.active, "placement groups use it"),
                (&self.stored_pgs, "it may hold the only copy of something"),
                (&self.missing_stats, "it is not known what it holds"),
            ];
            let no = said_no.into_iter().find(|(set, _)| set.contains(osd));
            if let Some((_, no)) = no {
                why.insert(*osd, no);
            } else if !self.safe_to_destroy.contains(osd) {
                why.insert(*osd, "Ceph says nothing of it");
            }
        }
        let safe = asked
            .iter()
            .copied()
            .filter(|osd| !why.contains_key(osd))
            .collect();
        (safe, why)
    }
}

/// Which OSDs are up and in, from `osd dump`.
///
/// # Errors
/// It is no such answer.
pub fn states(dump: &Value) -> Result<BTreeMap<u32, (bool, bool)>, serde_json::Error> {
    #[derive(Deserialize)]
    struct One {
        osd: u32,
        up: u8,
        #[serde(rename = "in")]
        is_in: u8,
    }
    let all: Vec<One> = serde_json::from_value(dump["osds"].clone())?;
    Ok(all
        .into_iter()
        .map(|one| (one.osd, (one.up == 1, one.is_in == 1)))
        .collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_down_and_out_is_asked_about() {
        let mut osds = BTreeMap::new();
        for (id, (up, out, left_alone)) in [
            (true, true, false),
            (false, false, false),
            (false, true, true),
            (false, true, false),
        ]
        .into_iter()
        .enumerate()
        {
            let osd = RemovalCandidate { up, out, left_alone };
            osds.insert(u32::try_from(id).unwrap(), osd);
        }
        assert_eq!(candidates(&osds), BTreeSet::from([3]));
    }

    #[test]
    fn the_lists_count_and_silence_is_no_yes() {
        let answer: SafeToDestroy = serde_json::from_value(json!({
            "safe_to_destroy": [3, 5], "active": [4], "missing_stats": [6], "stored_pgs": [5],
        }))
        .unwrap();
        let (safe, why) = answer.removable(&BTreeSet::from([3, 4, 5, 6, 7]));
        assert_eq!(safe, BTreeSet::from([3]));
        assert_eq!(why.keys().copied().collect::<Vec<_>>(), [4, 5, 6, 7]);
        serde_json::from_value::<SafeToDestroy>(json!({ "safe_to_destroy": [3] })).unwrap_err();
    }

    #[test]
    fn a_dump_that_is_none_is_not_guessed_at() {
        let dump = json!({ "osds": [{ "osd": 1, "up": 1, "in": 0 }] });
        assert_eq!(states(&dump).unwrap(), BTreeMap::from([(1, (true, false))]));
        states(&json!({})).unwrap_err();
    }
}
