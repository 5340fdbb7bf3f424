//! What it takes to go back from one release to an older one, per kind of daemon.
//!
//! Each line was tried on a real cluster; what was not tried is impossible until somebody does.

use stagger_core::model::GoingBack;

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// `mon`, `osd` …
    pub kind: &'static str,
    /// The release it runs.
    pub from: u32,
    /// The release it should run again.
    pub to: u32,
    /// What that takes.
    pub takes: Takes,
    /// What was seen.
    pub seen: &'static str,
}

/// What going back takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Starting the old release on the data as it is.
    Restart,
    /// Making the data anew on the old release, in this way.
    Rebuild(&'static str),
}

/// The table, all with `require_osd_release` still on the older release.
pub const TABLE: &[Line] = &[
    Line {
        kind: "mon",
        from: 18,
        to: 16,
        takes: Takes::Rebuild(
            "its store is made anew on the old release from the quorum's map, which the others must still admit: \
             not once the last monitor has moved on",
        ),
        seen: "16.2.15 does not open a store that 18.2.7 has opened (unknown checksum type 4); made anew it joined",
    },
    Line {
        kind: "mon",
        from: 20,
        to: 18,
        takes: Takes::Restart,
        seen: "18.2.7 opened the store that 20.2.4 had opened, and joined the others on 18.2.7",
    },
    Line {
        kind: "osd",
        from: 18,
        to: 16,
        takes: Takes::Rebuild(
            "it is made anew on the old release and filled from the other copies of its data",
        ),
        seen: "16.2.15 does not mount a store that 18.2.7 has opened; one that 18.2.7 never opened it does",
    },
    Line {
        kind: "osd",
        from: 20,
        to: 18,
        takes: Takes::Restart,
        seen: "18.2.7 mounted the store that 20.2.4 had opened, and its groups became clean",
    },
];

/// What it takes to bring a daemon of that kind back from release `from` to the older release `to`. The
/// same release is a restart; what the table does not have is impossible.
pub fn going_back(kind: &str, from: u32, to: u32) -> GoingBack {
    if from == to {
        return GoingBack::Restart;
    }
    let line = TABLE
        .iter()
        .find(|line| line.kind == kind && line.from == from && line.to == to);
    match line.map(|line| line.takes) {
        Some(Takes::Restart) => GoingBack::Restart,
        Some(Takes::Rebuild(cost)) => GoingBack::Rebuild {
            cost: cost.to_owned(),
        },
        None => GoingBack::Impossible {
            why: format!("nobody has tried to bring a {kind} back from release {from} to {to}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_tried_is_impossible() {
        assert_eq!(going_back("osd", 18, 18), GoingBack::Restart);
        assert_eq!(going_back("osd", 20, 18), GoingBack::Restart);
        assert!(matches!(going_back("osd", 18, 16), GoingBack::Rebuild { .. }));
        assert!(matches!(going_back("mgr", 18, 16), GoingBack::Impossible { .. }));
        assert!(matches!(going_back("osd", 20, 16), GoingBack::Impossible { .. }));
    }
}
