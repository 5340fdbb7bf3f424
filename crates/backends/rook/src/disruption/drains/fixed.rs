//! Budgets over daemons without failure domains: monitors, managers, metadata servers, gateways, mirrors.
//! They depend only on the number of daemons.

use std::collections::{BTreeMap, BTreeSet};

/// What a budget permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permits {
    /// At most so many unavailable.
    MaxUnavailable(u32),
    /// At least so many available.
    MinAvailable(u32),
}

/// Over `count` monitors, of which `out` are not in the quorum: one may go, two where there are five or
/// more, less those that are out already. `None`: two or fewer, of which none can be spared anyway, and a
/// budget would only hang drains.
pub fn monitors(count: u32, out: u32) -> Option<Permits> {
    let spare = match count {
        0..=2 => return None,
        3..=4 => 1,
        5.. => 2,
    };
    Some(Permits::MaxUnavailable(u32::saturating_sub(spare, out)))
}

/// Over managers or mirrors: one may go where there are two or more.
pub fn one_may_go(count: u32) -> Option<Permits> {
    (count >= 2).then_some(Permits::MaxUnavailable(1))
}

/// Over gateways of a store, or the metadata servers of a file system (its active ones, and as many again
/// where each has a standby): all but one must stay.
pub fn all_but_one(count: u32) -> Option<Permits> {
    (count >= 2).then_some(Permits::MinAvailable(count.saturating_sub(1)))
}

/// The daemons of a Deployment, as far as their budget goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// Their `app`: `rook-ceph-mds`.
    pub app: String,
    /// The file system or store that they serve, as the label of it and its name.
    pub group: Option<(String, String)>,
    /// How many there should be.
    pub count: u32,
    /// How many of their pods are ready.
    pub ready: u32,
    /// Its id, if it is a monitor that is known to be out of the quorum: it does nothing that anybody would miss.
    pub out: Option<String>,
}

/// A budget that there should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    /// Its name.
    pub name: String,
    /// The `app` of the pods that it is over.
    pub app: String,
    /// Their file system or store, if it is over those of one.
    pub group: Option<(String, String)>,
    /// Those of them that it is not over, by their ids: a pod that is not ready would be refused while no other may go.
    pub without: BTreeSet<String>,
    /// What it permits.
    pub permits: Permits,
}

/// The budgets for these daemons, with Rook's names.
pub fn fixed_budgets(daemons: &[Daemon]) -> Vec<Fixed> {
    let mut groups: BTreeMap<_, (u32, u32, BTreeSet<String>)> = BTreeMap::new();
    for daemon in daemons {
        let (count, out, without) = groups
            .entry((daemon.app.as_str(), daemon.group.as_ref()))
            .or_default();
        *count += daemon.count;
        *out += daemon.count.saturating_sub(daemon.ready);
        without.extend(daemon.out.clone());
    }
    let mut budgets = Vec::new();
    for ((app, group), (count, out, without)) in groups {
        let of = group.map_or("", |(_, name)| name.as_str());
        let (name, permits) = match app {
            "rook-ceph-mon" => ("rook-ceph-mon-pdb".to_owned(), monitors(count, out)),
            "rook-ceph-mgr" => ("rook-ceph-mgr-pdb".to_owned(), one_may_go(count)),
            "rook-ceph-rbd-mirror" => ("rook-ceph-rbd-mirror".to_owned(), one_may_go(count)),
            "rook-ceph-mds" | "rook-ceph-rgw" if !of.is_empty() => {
                (format!("{app}-{of}"), all_but_one(count))
            }
            _ => continue,
        };
        if let Some(permits) = permits {
            budgets.push(Fixed {
                name,
                app: app.to_owned(),
                group: group.cloned(),
                without,
                permits,
            });
        }
    }
    budgets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_follow_the_number_of_daemons() {
        let may_go = |count, out| match monitors(count, out) {
            Some(Permits::MaxUnavailable(n)) => Some(n),
            Some(Permits::MinAvailable(_)) | None => None,
        };
        let table = [
            (1, 0),
            (2, 0),
            (3, 0),
            (3, 1),
            (4, 0),
            (5, 0),
            (5, 1),
            (5, 2),
            (7, 3),
        ];
        let told: Vec<_> = table.iter().map(|&(count, out)| may_go(count, out)).collect();
        assert_eq!(
            told,
            [
                None,
                None,
                Some(1),
                Some(0),
                Some(1),
                Some(2),
                Some(1),
                Some(0),
                Some(0)
            ]
        );
        assert_eq!(
            (one_may_go(1), one_may_go(2)),
            (None, Some(Permits::MaxUnavailable(1)))
        );
        assert_eq!(
            (all_but_one(1), all_but_one(3)),
            (None, Some(Permits::MinAvailable(2)))
        );
    }

    #[test]
    fn each_file_system_and_each_store_has_its_own() {
        let daemon = |app: &str, group: Option<(&str, &str)>, ready| Daemon {
            app: format!("rook-ceph-{app}"),
            group: group.map(|(label, name)| (label.to_owned(), name.to_owned())),
            count: 1,
            ready: u32::from(ready),
            out: None,
        };
        let fs = |name| Some(("rook_file_system", name));
        let mut daemons = vec![
            daemon("mds", fs("a"), true),
            daemon("mds", fs("a"), true),
            daemon("mds", fs("a"), false),
            daemon("mds", fs("b"), true),
            daemon("rgw", Some(("rook_object_store", "s")), true),
            daemon("rgw", Some(("rook_object_store", "s")), true),
            daemon("mgr", None, true),
            daemon("osd", None, true),
            daemon("crashcollector", None, true),
        ];
        daemons.extend((0..5).map(|nth| daemon("mon", None, nth > 0)));
        let told: Vec<_> = fixed_budgets(&daemons)
            .into_iter()
            .map(|budget| (budget.name, budget.permits))
            .collect();
        let of = |name: &str, permits| (name.to_owned(), permits);
        assert_eq!(
            told,
            [
                of("rook-ceph-mds-a", Permits::MinAvailable(2)),
                of("rook-ceph-mon-pdb", Permits::MaxUnavailable(1)),
                of("rook-ceph-rgw-s", Permits::MinAvailable(1)),
            ]
        );
    }

    /// It crashes again and again on a node that is to be drained.
    #[test]
    fn a_monitor_out_of_the_quorum_may_go_and_no_other_beside_it() {
        let mon = |id: &str, out: bool| Daemon {
            app: "rook-ceph-mon".to_owned(),
            group: None,
            count: 1,
            ready: u32::from(!out),
            out: out.then(|| id.to_owned()),
        };
        let told = fixed_budgets(&[mon("a", false), mon("b", true), mon("c", false)]);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].permits, Permits::MaxUnavailable(0));
        assert_eq!(told[0].without, BTreeSet::from(["b".to_owned()]));
    }
}
