//! Metadata servers beside a Rook that runs: they are Rook's to update, and OSDs wait until it has.
//!
//! No label keeps Rook from them. Once all monitors run the new release it sets `max_mds` of a file system to 1, stops the standbys,
//! updates the active server, then the others, and sets `max_mds` again; and for the label it looks at the letter of a server, where the
//! Deployment has its whole name (`Start` and `upgradeMDS` in `pkg/operator/ceph/file/mds/mds.go`, `GetDaemonsToSkipReconcile`; the same from
//! 1.16.9 to 1.20.6). A run that changed them too would do so beside Rook, and one that went on with OSDs would have two things away at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use stagger_ceph::facts::mds::FsMap;
use stagger_core::model::UnitId;

use super::{Changes, Daemons};
use crate::api::daemons::{is_wanted, kind_of, serves};
use crate::api::objects::Deployment;
use crate::executor::managed_fields::template_image;
use crate::executor::rollout::is_rolled_out;

/// What kind of daemon they are.
pub(crate) const KIND: &str = "mds";

/// How many ranks each file system is to have, by its name.
pub type Ranks = BTreeMap<String, u32>;

/// How many the file systems have now.
pub(crate) fn ranks(filesystems: &FsMap) -> Ranks {
    let all = filesystems.filesystems.iter();
    all.map(|fs| (fs.name.clone(), fs.max_mds)).collect()
}

/// Why Rook is not done with them: the first that is missing; `None`: all are of the new image and serve as before the run. What Rook or a
/// person took away meanwhile is not waited for. `before`: the ranks when the run began.
pub(crate) fn not_done(
    run: Changes<'_>,
    before: &Ranks,
    daemons: &Daemons,
    filesystems: &FsMap,
) -> Option<String> {
    let servers = daemons.iter().filter(|(unit, _)| kind_of(unit) == KIND);
    let of_servers = servers.filter_map(|(unit, one)| server_not_done(run, unit, one, filesystems));
    let of_ranks = filesystems.filesystems.iter().filter_map(|fs| {
        let wanted = fs.max_mds.max(before.get(&fs.name).copied().unwrap_or(0));
        let active = fs.servers.iter().filter(|server| server.active()).count();
        let has_all = fs.lost_ranks == 0 && u32::try_from(active).is_ok_and(|active| active >= wanted);
        (!has_all).then(|| format!("file system {} has {active} of {wanted} ranks active", fs.name))
    });
    let first = of_servers.chain(of_ranks).next()?;
    Some(format!(
        "Rook updates metadata servers by itself, and {first}; the log of Rook's operator says what it is at"
    ))
}

fn server_not_done(
    run: Changes<'_>,
    unit: &UnitId,
    deployment: &Arc<Deployment>,
    filesystems: &FsMap,
) -> Option<String> {
    if !is_wanted(deployment) {
        // Whether by a person before the run, or by Rook in its midst.
        let served = run.baseline.daemons.contains_key(unit);
        return served.then(|| format!("has stopped {unit} for that time"));
    }
    let image = template_image(deployment, KIND).unwrap_or("no image");
    if image != run.wish.image {
        return Some(format!("{unit} is still made of {image}"));
    }
    let name = unit.as_str().split_once('.').map_or("", |(_, name)| name);
    let with_a_rank = filesystems.filesystems.iter().flat_map(|fs| &fs.servers);
    let mut known = with_a_rank
        .map(|server| &server.name)
        .chain(&filesystems.standbys);
    if !is_rolled_out(deployment) || !serves(deployment) || !known.any(|known| known == name) {
        return Some(format!("{unit} is starting"));
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use stagger_ceph::facts::mds::{Filesystem, Server};
    use stagger_ceph::translate::Baseline;

    use super::*;
    use crate::api::maintenance::desired;
    use crate::executor::goal::Goal;

    const OLD: &str = "ceph:20.2.4";
    const NEW: &str = "ceph:20.2.5";

    fn wish() -> Goal {
        let wanted = desired(json!({}), json!({ "manage": ["updates"], "image": NEW }));
        Goal::of(&wanted, false).unwrap()
    }

    /// Of a run that began with both serving.
    fn baseline() -> Baseline {
        let daemon = json!({ "kind": "mds" });
        let baseline = json!({
            "kind": "ceph-baseline", "version": 1, "at": "2026-11-29T00:00:00Z", "fsid": "f", "health": {},
            "mgr_standbys": 1, "osds_in": [], "crashes": [], "daemons": { "mds.fs-a": daemon, "mds.fs-b": daemon },
        });
        serde_json::from_value(baseline).unwrap()
    }

    fn server(letter: &str, image: &str, replicas: u32, status: &Value) -> (UnitId, Arc<Deployment>) {
        let deployment = json!({
            "metadata": { "name": format!("rook-ceph-mds-fs-{letter}"), "generation": 2 },
            "spec": {
                "replicas": replicas, "selector": {},
                "template": { "spec": { "containers": [{ "name": "mds", "image": image }] } },
            },
            "status": status,
        });
        let deployment = serde_json::from_value(deployment).unwrap();
        (
            UnitId::new(format!("mds.fs-{letter}")).unwrap(),
            Arc::new(deployment),
        )
    }

    fn up() -> Value {
        json!({ "observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1 })
    }

    fn map(max_mds: u32, active: &[&str], standbys: &[&str]) -> FsMap {
        let server = |name: &&str| Server {
            name: (*name).to_owned(),
            state: "up:active".to_owned(),
            laggy: false,
        };
        FsMap {
            filesystems: vec![Filesystem {
                name: "fs".to_owned(),
                max_mds,
                lost_ranks: 0,
                standby_replay: false,
                servers: active.iter().map(server).collect(),
            }],
            standbys: standbys.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn said(daemons: [(UnitId, Arc<Deployment>); 2], filesystems: &FsMap, before: u32) -> Option<String> {
        let (wish, baseline) = (wish(), baseline());
        let run = Changes {
            wish: &wish,
            baseline: &baseline,
            mds_by_rook: true,
        };
        let before = Ranks::from([("fs".to_owned(), before)]);
        not_done(run, &before, &Daemons::from(daemons), filesystems)
    }

    /// As Rook goes about it: two ranks, `a` and `b` serve them.
    #[test]
    fn all_that_rook_does_is_waited_for_in_the_order_in_which_it_does_it() {
        let down = json!({ "observedGeneration": 2 });
        let expect = |found: Option<String>, words: &str| {
            let found = found.unwrap_or_else(|| panic!("done before {words}"));
            assert!(found.contains(words), "{found}");
        };
        let both = map(2, &["fs-a", "fs-b"], &[]);
        let before = [server("a", OLD, 1, &up()), server("b", OLD, 1, &up())];
        expect(said(before, &both, 2), "mds.fs-a is still made of ceph:20.2.4");
        let alone = map(1, &["fs-a"], &[]);
        let stopped = [server("a", NEW, 1, &up()), server("b", OLD, 0, &down)];
        expect(said(stopped, &alone, 2), "has stopped mds.fs-b");
        let starts = [server("a", NEW, 1, &up()), server("b", NEW, 1, &down)];
        expect(said(starts, &alone, 2), "mds.fs-b is starting");
        // Kubernetes finds it ready, and Ceph has not heard of it.
        let done = || [server("a", NEW, 1, &up()), server("b", NEW, 1, &up())];
        expect(said(done(), &alone, 2), "mds.fs-b is starting");
        // The last thing that Rook does is to have as many ranks as before.
        let one_rank = map(1, &["fs-a"], &["fs-b"]);
        expect(
            said(done(), &one_rank, 2),
            "file system fs has 1 of 2 ranks active",
        );
        assert_eq!(said(done(), &both, 2), None);
        assert_eq!(said(done(), &one_rank, 1), None);
    }

    #[test]
    fn who_was_stopped_before_the_run_and_what_is_gone_are_not_waited_for() {
        let (wish, mut baseline) = (wish(), baseline());
        baseline.daemons.remove(&UnitId::new("mds.fs-b").unwrap());
        let run = Changes {
            wish: &wish,
            baseline: &baseline,
            mds_by_rook: true,
        };
        let stopped = Daemons::from([
            server("a", NEW, 1, &up()),
            server("b", OLD, 0, &json!({ "observedGeneration": 2 })),
        ]);
        let before = Ranks::from([("fs".to_owned(), 1), ("gone".to_owned(), 2)]);
        assert_eq!(not_done(run, &before, &stopped, &map(1, &["fs-a"], &[])), None);
        assert_eq!(not_done(run, &before, &Daemons::new(), &FsMap::default()), None);
    }
}
