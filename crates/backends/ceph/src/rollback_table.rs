//! What a rollback from one release to an older one takes, per kind of daemon.
//!
//! Each row was tested on a real cluster; what was not tested is impossible until it is.

use stagger_core::model::GoingBack;

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollbackRule {
    /// `mon`, `osd` …
    pub kind: &'static str,
    /// The release it runs.
    pub from: u32,
    /// The release it should run again.
    pub to: u32,
    /// What that takes.
    pub takes: RollbackCost,
    /// What was seen.
    pub seen: &'static str,
}

/// What going back takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RollbackCost {
    /// Starting the old release on the data as it is.
    Restart,
    /// The daemon's data put into the old release's form by the new one's tools, while the daemon is
    /// stopped; then starting the old release on it.
    Convert(&'static str),
    /// Making the data anew on the old release, in this way.
    Rebuild(&'static str),
}

/// The table, all with `require_osd_release` still on the older release.
pub const TABLE: &[RollbackRule] = &[
    RollbackRule {
        kind: "mon",
        from: 18,
        to: 16,
        takes: RollbackCost::Rebuild(
            "its store is made anew on the old release from the quorum's map, which the others must still admit: \
             not once the last monitor has moved on",
        ),
        seen: "16.2.15 does not open a store that 18.2.7 has opened (unknown checksum type 4); made anew it joined",
    },
    RollbackRule {
        kind: "mon",
        from: 20,
        to: 18,
        takes: RollbackCost::Restart,
        seen: "18.2.7 opened the store that 20.2.4 had opened, and joined the others on 18.2.7",
    },
    RollbackRule {
        kind: "osd",
        from: 18,
        to: 16,
        takes: RollbackCost::Rebuild(
            "it is made anew on the old release and filled from the other copies of its data",
        ),
        seen: "16.2.15 does not mount a store that 18.2.7 has opened; one that 18.2.7 never opened it does",
    },
    RollbackRule {
        kind: "osd",
        from: 20,
        to: 18,
        takes: RollbackCost::Convert(
            "`ceph-bluestore-tool revert-wal-to-plain` of the new release, on the stopped OSD",
        ),
        seen: "20.2.4 writes RocksDB's log in a form that 18.2.7 reads as empty: without the conversion 18.2.7 \
               started on older data and lost acknowledged writes; with it nothing was lost",
    },
];

/// What it takes to bring a daemon of that kind back from release `from` to the older release `to`. The
/// same release is a restart; what the table does not have is impossible. `converts`: whether the
/// configuration says how the data of that kind is converted.
pub fn rollback_support(kind: &str, from: u32, to: u32, converts: bool) -> GoingBack {
    if from == to {
        return GoingBack::Restart;
    }
    let line = TABLE
        .iter()
        .find(|line| line.kind == kind && line.from == from && line.to == to);
    match line.map(|line| line.takes) {
        Some(RollbackCost::Restart) => GoingBack::Restart,
        Some(RollbackCost::Convert(_)) if converts => GoingBack::Restart,
        Some(RollbackCost::Convert(by)) => GoingBack::Impossible {
            why: format!(
                "release {to} does not read all that {from} has written: it takes {by}; set `before_rollback` in \
                 [software.{kind}]"
            ),
        },
        Some(RollbackCost::Rebuild(cost)) => GoingBack::Rebuild {
            cost: cost.to_owned(),
        },
        None => GoingBack::Impossible {
            why: format!("untested: from release {from} to {to} no rollback of a {kind} is offered"),
        },
    }
}

/// Whether a daemon of that kind needs its data converted before it starts on release `to`, in a cluster
/// where `newest` is the newest release that runs. An OSD is never changed before the monitors are.
pub(crate) fn is_converted(kind: &str, newest: u32, to: u32) -> bool {
    TABLE.iter().any(|line| {
        line.kind == kind
            && line.to == to
            && line.from <= newest
            && matches!(line.takes, RollbackCost::Convert(_))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_tried_is_impossible() {
        assert_eq!(rollback_support("osd", 18, 18, false), GoingBack::Restart);
        assert!(matches!(
            rollback_support("osd", 18, 16, true),
            GoingBack::Rebuild { .. }
        ));
        assert!(matches!(
            rollback_support("mgr", 18, 16, true),
            GoingBack::Impossible { .. }
        ));
        assert!(matches!(
            rollback_support("osd", 20, 16, true),
            GoingBack::Impossible { .. }
        ));
    }

    #[test]
    fn an_osd_goes_from_20_to_18_only_where_its_log_is_converted() {
        assert_eq!(rollback_support("osd", 20, 18, true), GoingBack::Restart);
        let GoingBack::Impossible { why } = rollback_support("osd", 20, 18, false) else {
            panic!("it lost writes on a real cluster");
        };
        assert!(
            why.contains("revert-wal-to-plain") && why.contains("before_rollback"),
            "{why}"
        );
        assert!(is_converted("osd", 20, 18) && !is_converted("mon", 20, 18));
        // From 18.2.8 to 18.2.7, and from 18 to 16: there is nothing that 20 has written.
        assert!(!is_converted("osd", 18, 18) && !is_converted("osd", 18, 16));
    }
}
