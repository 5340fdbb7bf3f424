//! Metadata servers beside a running Rook: Rook updates them, and OSDs wait until it has.
//!
//! No label makes Rook skip them. Once all monitors run the new release, Rook sets `max_mds` of a file system
//! to 1, stops the standbys, updates the active server, then the others, and sets `max_mds` again; for an
//! image of the same release it updates them one by one, at once. For the label it looks at the letter of a
//! server, where the Deployment has its whole name (`Start` and `upgradeMDS` in
//! `pkg/operator/ceph/file/mds/mds.go`, `GetDaemonsToSkipReconcile`; the same from 1.16.9 to 1.20.6). A run
//! that changed them too would do so at the same time as Rook, and a run that continued with OSDs would have
//! two daemons down at once.

use std::sync::Arc;

use stagger_ceph::facts::mds::FsMap;
use stagger_core::model::UnitId;

use super::{Changes, Daemons};
use crate::api::daemons::{kind_of, serves, wants_replicas};
use crate::api::objects::Deployment;
use crate::executor::managed_fields::template_image;
use crate::executor::rollout::is_rolled_out;

/// What kind of daemon they are.
pub(crate) const KIND: &str = "mds";

/// Why Rook is not done with them: one that is starting, or else the first that is missing; `None`: all are of the new image, and those that
/// served before the run do again. Ranks beyond the first come back after that, and nothing stops for them.
pub(crate) fn pending_reason(run: Changes<'_>, daemons: &Daemons, filesystems: &FsMap) -> Option<String> {
    let servers = || daemons.iter().filter(|(unit, _)| kind_of(unit) == KIND);
    let is_new = |deployment: &Deployment| template_image(deployment, KIND) == Some(run.wish.image.as_str());
    let of_new = servers().filter(|(unit, one)| is_new(one) && run.baseline.daemons.contains_key(*unit));
    let starting = of_new.filter(|(unit, one)| is_starting(unit, one, filesystems));
    // Rook stops at one that does not start, and the others keep the old image: that one is named.
    let starting = starting.map(|(unit, _)| format!("{unit} is starting"));
    let of_old = servers().filter(|(_, one)| !is_new(one)).map(|(unit, one)| {
        if wants_replicas(one) {
            let image = template_image(one, KIND).unwrap_or("no image");
            format!("{unit} is still made of {image}")
        } else {
            format!("{unit} is stopped for that time")
        }
    });
    let changing = filesystems.filesystems.iter().filter_map(|fs| {
        let mut servers = fs.servers.iter();
        let server = servers.find(|server| !server.active() && !server.follows())?;
        let laggy = if server.laggy { " and silent" } else { "" };
        Some(format!(
            "file system {} has {} {}{laggy}",
            fs.name, server.name, server.state
        ))
    });
    starting.chain(of_old).chain(changing).next()
}

/// Whether it is not ready yet, or Ceph has not heard of it. One that a person has scaled to nothing does not start.
fn is_starting(unit: &UnitId, deployment: &Arc<Deployment>, filesystems: &FsMap) -> bool {
    if !wants_replicas(deployment) {
        return false;
    }
    let name = unit.as_str().split_once('.').map_or("", |(_, name)| name);
    let with_a_rank = filesystems.filesystems.iter().flat_map(|fs| &fs.servers);
    let mut known = with_a_rank
        .map(|server| &server.name)
        .chain(&filesystems.standbys);
    !is_rolled_out(deployment) || !serves(deployment) || !known.any(|known| known == name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use stagger_ceph::facts::mds::{Filesystem, MetadataServer};
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

    fn map(active: &[&str], standbys: &[&str]) -> FsMap {
        let server = |name: &&str| MetadataServer {
            name: (*name).to_owned(),
            state: "up:active".to_owned(),
            laggy: false,
        };
        FsMap {
            filesystems: vec![Filesystem {
                name: "fs".to_owned(),
                max_mds: 2,
                lost_ranks: 0,
                standby_replay: false,
                servers: active.iter().map(server).collect(),
            }],
            standbys: standbys.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn said(daemons: [(UnitId, Arc<Deployment>); 2], filesystems: &FsMap) -> Option<String> {
        let (wish, baseline) = (wish(), baseline());
        let run = Changes {
            wish: &wish,
            baseline: &baseline,
            mds_by_rook: true,
        };
        pending_reason(run, &Daemons::from(daemons), filesystems)
    }

    fn down() -> Value {
        json!({ "observedGeneration": 2 })
    }

    /// As Rook goes about it: two ranks, `a` and `b` serve them.
    #[test]
    fn all_that_rook_stops_is_waited_for_in_the_order_in_which_it_does_it() {
        let expect = |found: Option<String>, words: &str| {
            let found = found.unwrap_or_else(|| panic!("done before {words}"));
            assert!(found.contains(words), "{found}");
        };
        let both = map(&["fs-a", "fs-b"], &[]);
        let before = [server("a", OLD, 1, &up()), server("b", OLD, 1, &up())];
        expect(said(before, &both), "mds.fs-a is still made of ceph:20.2.4");
        let alone = map(&["fs-a"], &[]);
        let stopped = [server("a", NEW, 1, &up()), server("b", OLD, 0, &down())];
        expect(said(stopped, &alone), "mds.fs-b is stopped for that time");
        let starts = [server("a", NEW, 1, &up()), server("b", NEW, 1, &down())];
        expect(said(starts, &alone), "mds.fs-b is starting");
        // Kubernetes finds it ready, and Ceph has not heard of it.
        let done = || [server("a", NEW, 1, &up()), server("b", NEW, 1, &up())];
        expect(said(done(), &alone), "mds.fs-b is starting");
        assert_eq!(said(done(), &map(&["fs-a"], &["fs-b"])), None);
        assert_eq!(said(done(), &both), None);
        // A rank has just changed hands.
        let mut replays = both;
        replays.filesystems[0].servers[1].state = "up:replay".to_owned();
        expect(said(done(), &replays), "fs has fs-b up:replay");
        let mut silent = map(&["fs-a", "fs-b"], &[]);
        silent.filesystems[0].servers[1].laggy = true;
        expect(said(done(), &silent), "fs has fs-b up:active and silent");
    }

    /// Rook stops there, and leaves the next one as it was.
    #[test]
    fn one_that_does_not_start_is_named_before_those_that_wait_for_it() {
        let broken = [server("a", OLD, 1, &up()), server("b", NEW, 1, &down())];
        assert_eq!(
            said(broken, &map(&["fs-a"], &[])).unwrap(),
            "mds.fs-b is starting"
        );
    }

    #[test]
    fn who_did_not_serve_before_the_run_is_not_waited_for_once_it_is_of_the_new_image() {
        let (wish, mut baseline) = (wish(), baseline());
        baseline.daemons.remove(&UnitId::new("mds.fs-b").unwrap());
        let run = Changes {
            wish: &wish,
            baseline: &baseline,
            mds_by_rook: true,
        };
        let alone = map(&["fs-a"], &[]);
        let with = |other| Daemons::from([server("a", NEW, 1, &up()), other]);
        // It may be one that Rook has stopped: a run began in the midst of that.
        let stopped = with(server("b", OLD, 0, &down()));
        assert!(pending_reason(run, &stopped, &alone).is_some());
        for other in [server("b", NEW, 1, &down()), server("b", NEW, 0, &down())] {
            assert_eq!(pending_reason(run, &with(other), &alone), None);
        }
        // A file system that was failed by a person has no server with a rank.
        let failed = map(&[], &["fs-a"]);
        assert_eq!(
            pending_reason(run, &with(server("b", NEW, 1, &down())), &failed),
            None
        );
        assert_eq!(pending_reason(run, &Daemons::new(), &FsMap::default()), None);
    }
}
