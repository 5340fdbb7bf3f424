//! Hosts as units: what holds for daemons holds for the hosts that carry them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;
use stagger_ceph::config::{CephSettings, Reboot, SoftwareByKind};
use stagger_ceph::facts::mds::{Filesystem, MetadataServer};
use stagger_ceph::facts::{CephFacts, DaemonMetadata};
use stagger_ceph::memory::hosts_of;
use stagger_ceph::oktostop::Oracle;
use stagger_ceph::planner::{CephGoal, CephPlanner};
use stagger_ceph::reboot::{self, CephRebootGoal, HostTask, host_named};
use stagger_ceph::software_remarks::remarks;
use stagger_ceph::target::PgGate;
use stagger_ceph::translate::hosts::{Booted, Carried, bounds, host_name, host_unit, hosts};
use stagger_ceph::translate::{HealthPolicy, Permitted, translate};
use stagger_core::check::check;
use stagger_core::model::{
    ClusterName, Down, Fact, Growth, IdError, Ix, Limit, Policy, Revision, Snapshot, UnitId, UnitState,
};
use stagger_core::plan::{Plan, PlanningInput, Selection, plan};
use stagger_engine::cluster::{Planned, Planner as _, PlannerError};

use crate::cluster::recorded;
use crate::laws::{OSDS, World, facts as facts_of, maps, world};

fn daemons(facts: &CephFacts) -> Snapshot {
    let cluster = ClusterName::new("c").unwrap();
    let (health, none) = (HealthPolicy::default(), Permitted::default());
    translate(&cluster, facts, &health, None, BTreeMap::new(), &none).unwrap()
}

fn as_hosts(daemons: &Snapshot, places: &BTreeMap<UnitId, String>) -> Snapshot {
    let booted = |_: &str| -> Result<Booted, IdError> {
        Ok(Booted {
            revision: Some(Revision::new("before")?),
            untouchable: None,
        })
    };
    let carried = Carried {
        places,
        booted: &booted,
        bounds: &[],
        last: None,
    };
    hosts(daemons, &carried).unwrap()
}

/// How many hosts the daemons of a random map stand on.
const HOSTS: usize = 5;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Every set of hosts, by brute force: it is permitted exactly when all daemons of it are, beside every daemon of a host
    /// that does not wholly serve. Monitors and managers are among the daemons.
    #[test]
    fn a_set_of_hosts_is_safe_exactly_when_all_its_daemons_are(
        world in world(), seats in proptest::collection::vec(0..HOSTS, OSDS as usize + 5),
    ) {
        thread_local!(static BASE: CephFacts = recorded("18.2.7"));
        let maps = maps(&world);
        let facts = BASE.with(|base| CephFacts {
            osds: maps.osds.clone(),
            tree: maps.tree.clone(),
            pgs: Fact::Yes(maps.pgs.clone()),
            ..base.clone()
        });
        let daemons = daemons(&facts);
        prop_assert_eq!(daemons.units().len(), seats.len());
        let names = daemons.units().iter().map(|unit| unit.id.clone());
        let places: BTreeMap<UnitId, String> = names.zip(seats.iter().map(|seat| format!("h{seat}"))).collect();
        let hosts = as_hosts(&daemons, &places);
        let on = |host: &UnitId| -> Vec<Ix> {
            let name = host_name(host).unwrap();
            let of_it = places.iter().filter(|(_, place)| *place == name);
            of_it.map(|(daemon, _)| daemons.find(daemon).unwrap()).collect()
        };
        let ill: BTreeSet<&str> = daemons
            .units()
            .iter()
            .filter(|daemon| daemon.state != UnitState::Serving)
            .map(|daemon| places[&daemon.id].as_str())
            .collect();
        let down = Down::of(daemons.units().iter().map(|daemon| ill.contains(places[&daemon.id].as_str())));
        let count = hosts.units().len();
        for set in 0..1_u32 << count {
            let set: Vec<Ix> = (0..count as u32).filter(|at| set & (1 << at) != 0).map(Ix).collect();
            let carried: Vec<Ix> = set.iter().flat_map(|at| on(&hosts.unit(*at).id)).collect();
            for (of_hosts, of_daemons) in [
                (hosts.budgets(), daemons.budgets()),
                (hosts.budgets_once_recovered(), daemons.budgets_once_recovered()),
            ] {
                let (by_hosts, by_daemons) =
                    (of_hosts.permit(&hosts.down(), &set), of_daemons.permit(&down, &carried));
                prop_assert_eq!(by_hosts.is_ok(), by_daemons.is_ok(), "{:?} {:?} {:?}", set, by_hosts, by_daemons);
                // And never what their daemons may not as they are.
                if by_hosts.is_ok() && set.iter().all(|at| hosts.unit(*at).state == UnitState::Serving) {
                    prop_assert!(of_daemons.permit(&daemons.down(), &carried).is_ok());
                }
            }
        }
    }
}

/// The recorded cluster, each of whose OSDs tells the host under which the tree has it; of the other daemons the first is
/// on the first host, the second on the second.
pub(crate) fn on_hosts(version: &str) -> CephFacts {
    let mut facts = recorded(version);
    let of_osd = |facts: &CephFacts, osd: u32| facts.tree.domains(osd).get("host").cloned();
    let mut names: Vec<String> = Vec::new();
    for at in 0..facts.osd_metadata.len() {
        let host = of_osd(&facts, facts.osd_metadata[at].id);
        names.extend(host.clone().filter(|host| !names.contains(host)));
        facts.osd_metadata[at].host = host;
    }
    for list in [
        &mut facts.mon_metadata,
        &mut facts.mgr_metadata,
        &mut facts.mds_metadata,
    ] {
        for (daemon, host) in list.iter_mut().zip(&names) {
            daemon.host = Some(host.clone());
        }
    }
    facts
}

pub(crate) fn settings(reboot: Reboot) -> CephSettings {
    CephSettings {
        cluster: serde_json::from_value(json!({ "name": "c" })).unwrap(),
        hosts: stagger_engine::hosts::Hosts::default(),
        software: SoftwareByKind::default(),
        health: HealthPolicy {
            // Of a recorded cluster that was made in a minute.
            accept: recorded("18.2.7").health.checks.into_keys().collect(),
            ..HealthPolicy::default()
        },
        reboot,
    }
}

fn wide() -> Policy {
    Policy {
        max_in_parallel: Limit::Percent(100),
        growth: Growth::None,
        ..Policy::default()
    }
}

fn planned_by(
    facts: &CephFacts,
    goal: CephRebootGoal,
    reboot: Reboot,
) -> Result<(Planned<stagger_ceph::memory::CephMemory>, Plan), PlannerError> {
    let planner = CephPlanner::new(settings(reboot), PgGate::Clean);
    let policy = wide();
    let planned = planner.plan(facts, &CephGoal::Reboot(goal), &policy)?;
    let (none, earned) = (BTreeMap::new(), BTreeMap::new());
    let ask = PlanningInput {
        snapshot: &planned.snapshot,
        target: &planned.target,
        policy: &policy,
        aside: &none,
        earned: &earned,
        parent: None,
    };
    let made = plan(&ask);
    assert_eq!(check(&ask, &made), []);
    Ok((planned, made))
}

fn waves(made: &Plan) -> Vec<Vec<String>> {
    let waves = made.stages().flat_map(|stage| &stage.waves);
    waves
        .map(|wave| wave.units.iter().map(ToString::to_string).collect())
        .collect()
}

fn refused(facts: &CephFacts) -> Vec<String> {
    match planned_by(facts, CephRebootGoal::default(), Reboot::default()) {
        Ok(_) => Vec::new(),
        Err(PlannerError::Refused(refusal)) => {
            let reasons = refusal.0.iter();
            reasons.map(|reason| reason.code.code().to_owned()).collect()
        }
        Err(other) => panic!("{other}"),
    }
}

/// Each host once, and every wave is what our oracle approves for all OSDs of it at once.
#[test]
fn hosts_of_a_recorded_cluster_are_planned_in_waves() {
    let mut facts = on_hosts("18.2.7");
    for pool in facts.osds.pools.values_mut() {
        // Of six hosts each two have a group in common: two of its three may go.
        pool.min_size = 1;
    }
    let (planned, made) = planned_by(&facts, CephRebootGoal::default(), Reboot::default()).unwrap();
    let all: BTreeSet<String> = hosts_of(&facts).into_values().collect();
    let waves = waves(&made);
    let visited: Vec<&String> = waves.iter().flatten().collect();
    assert_eq!(visited.len(), all.len(), "{waves:?} {:?}", made.left_alone);
    assert!(waves.len() < all.len(), "some go together: {waves:?}");
    let Fact::Yes(pgs) = &facts.pgs else {
        panic!("the groups are known")
    };
    let oracle = Oracle::new(pgs, &facts.osds, &facts.tree);
    let places = hosts_of(&facts);
    for wave in &waves {
        let osds: Vec<u32> = places
            .iter()
            .filter(|(_, host)| wave.contains(&format!("host.{host}")))
            .filter_map(|(unit, _)| unit.as_str().strip_prefix("osd.")?.parse().ok())
            .collect();
        assert!(oracle.ask(&osds).unwrap().ok(), "{wave:?}");
        let mons = wave.iter().filter(|host| {
            let mons = facts.mon_metadata.iter();
            mons.filter_map(|mon| mon.host.as_ref())
                .any(|on| **host == format!("host.{on}"))
        });
        assert!(mons.count() < 2, "two of three monitors: {wave:?}");
    }
    assert!(
        planned.memory.reboot.unwrap().boots.is_empty(),
        "nobody was asked"
    );
}

#[test]
fn the_own_host_is_last_and_alone_and_the_title_says_so() {
    let facts = on_hosts("18.2.7");
    let own = facts.mon_metadata[0].host.clone().unwrap();
    let reboot = Reboot {
        own: Some(format!("{own}.example.org")),
        ..Reboot::default()
    };
    let (planned, made) = planned_by(&facts, CephRebootGoal::default(), reboot).unwrap();
    assert_eq!(waves(&made).last().unwrap(), &[format!("host.{own}")]);
    let title = &planned.target.title;
    assert!(
        title.ends_with(&format!("{own} last: stagger runs there")),
        "{title}"
    );
}

#[test]
fn a_name_means_a_host_with_or_without_its_domain_and_none_in_doubt() {
    let all = ["a.x", "b", "c.x", "c.y", "a.x", "b"].map(str::to_owned);
    let named = |name: &str| host_named(&all, name);
    assert_eq!(named("a"), Some("a.x"));
    assert_eq!(named("b.x"), Some("b"));
    assert_eq!(named("c.y"), Some("c.y"));
    assert_eq!(named("c"), None, "two are called so");
    assert_eq!(named("a.y"), None, "another domain");
    assert_eq!(named("d"), None);
}

#[test]
fn hosts_are_selected_by_name_and_what_needs_none_is_left_out() {
    let facts = on_hosts("18.2.7");
    let all: Vec<String> = reboot::names(&facts, &daemons(&facts)).into_iter().collect();
    let goal = CephRebootGoal {
        only: Some(all[..2].iter().cloned().collect()),
        ..CephRebootGoal::default()
    };
    let (planned, made) = planned_by(&facts, goal, Reboot::default()).unwrap();
    let visited: BTreeSet<String> = waves(&made).into_iter().flatten().collect();
    assert_eq!(
        visited,
        all[..2].iter().map(|host| format!("host.{host}")).collect()
    );
    assert!(planned.target.title.starts_with("reboot 2 hosts"));
    let (none, earned, policy) = (BTreeMap::new(), BTreeMap::new(), wide());
    let ask = PlanningInput {
        snapshot: &planned.snapshot,
        target: &planned.target,
        policy: &policy,
        aside: &none,
        earned: &earned,
        parent: None,
    };
    let select = |host: &str| {
        let selection = Selection {
            domains: vec![("host".to_owned(), host.to_owned())],
            ..Selection::default()
        };
        selection.of(&ask)
    };
    assert_eq!(
        select(&all[1]).unwrap().only,
        Some(vec![host_unit(&all[1]).unwrap()])
    );
    let unknown = select("nowhere").unwrap_err().to_string();
    assert!(unknown.contains(&all[0]), "it names those there are: {unknown}");
}

/// What a run would not do, or could not.
#[test]
fn nothing_is_begun_where_an_orchestrator_is_or_a_daemon_has_no_known_host() {
    let mut managed = on_hosts("18.2.7");
    managed.orchestrator = Fact::Yes(Some("cephadm".to_owned()));
    assert_eq!(refused(&managed), ["managed-by-orchestrator"]);
    let mut nowhere = on_hosts("18.2.7");
    nowhere.mgr_metadata[0].host = None;
    assert_eq!(refused(&nowhere), ["host-unknown"]);
    assert_eq!(refused(&on_hosts("18.2.7")), [""; 0]);
}

/// A host with a daemon that is down is left alone, and told with the daemon; so is one that does not tell its boot.
#[test]
fn hosts_that_do_not_wholly_serve_or_do_not_answer_are_left_alone_and_named() {
    let mut facts = on_hosts("18.2.7");
    facts.osds.osds.get_mut(&0).unwrap().up = false;
    let down = facts.tree.domains(0)["host"].clone();
    let silent = facts.tree.domains(11)["host"].clone();
    let boots = reboot::names(&facts, &daemons(&facts)).into_iter().map(|host| {
        let boot = if host == silent {
            Fact::No("ssh: no route".to_owned())
        } else {
            Fact::Yes("b1".to_owned())
        };
        (host, boot)
    });
    let goal = CephRebootGoal {
        only: None,
        boots: Some(boots.collect()),
        task: HostTask::Reboot,
    };
    let (planned, made) = planned_by(&facts, goal, Reboot::default()).unwrap();
    let left: BTreeMap<&str, String> = made
        .left_alone
        .iter()
        .map(|left| {
            (
                left.unit.as_str(),
                format!("{}: {}", left.reason.code, left.reason.detail),
            )
        })
        .collect();
    let of_down = &left[format!("host.{down}").as_str()];
    assert!(
        of_down.contains("daemon-down") && of_down.contains("osd.0"),
        "{of_down}"
    );
    let of_silent = &left[format!("host.{silent}").as_str()];
    assert!(
        of_silent.contains("host-silent") && of_silent.contains("no route"),
        "{of_silent}"
    );
    let before = planned.memory.reboot.unwrap();
    assert!(!before.boots.contains_key(&silent) && before.boots[&down] == "b1");
}

fn server(name: &str, state: &str) -> MetadataServer {
    MetadataServer {
        name: name.to_owned(),
        state: state.to_owned(),
        laggy: false,
    }
}

fn filesystem(name: &str, servers: &[&str]) -> Filesystem {
    Filesystem {
        name: name.to_owned(),
        max_mds: servers.len() as u32,
        lost_ranks: 0,
        standby_replay: false,
        servers: servers.iter().map(|name| server(name, "up:active")).collect(),
    }
}

/// An upgrade takes ranks away first; while hosts are rebooted each rank needs a standby of its own.
#[test]
fn ranks_need_standbys_while_hosts_are_rebooted() {
    let mut facts = on_hosts("18.2.7");
    facts.fs.filesystems = vec![filesystem("home", &["x", "y"])];
    facts.fs.standbys.clear();
    let several = bounds(&facts).unwrap();
    assert_eq!(
        (several.len(), several[0].limit, several[0].members.len()),
        (1, 0, 2)
    );
    facts.fs.filesystems = vec![filesystem("home", &["x"]), filesystem("work", &["y"])];
    facts.fs.standbys = vec!["z".to_owned()];
    let shared = bounds(&facts).unwrap();
    assert_eq!(
        (shared.len(), shared[0].limit, shared[0].members.len()),
        (1, 1, 3)
    );

    // The two servers of two file systems, with one standby for both, do not go together.
    let names: Vec<String> = reboot::names(&facts, &daemons(&facts)).into_iter().collect();
    for (name, host) in ["x", "y", "z"].iter().zip(&names) {
        facts.mds_metadata.push(DaemonMetadata {
            name: (*name).to_owned(),
            version: Some("18.2.7".to_owned()),
            host: Some(host.clone()),
            kv_backend: None,
            image: None,
        });
    }
    let (_, made) = planned_by(&facts, CephRebootGoal::default(), Reboot::default()).unwrap();
    for wave in waves(&made) {
        let of_servers = names[..3]
            .iter()
            .filter(|host| wave.contains(&format!("host.{host}")));
        assert!(of_servers.count() < 2, "{wave:?}");
    }
}

/// A daemon of which nobody knows the host stays a unit of its own, and counts.
#[test]
fn a_daemon_without_a_host_counts_for_itself() {
    let world = World::empty();
    let facts = facts_of(&maps(&world));
    let daemons = daemons(&facts);
    let mut places: BTreeMap<UnitId, String> = daemons
        .units()
        .iter()
        .map(|unit| (unit.id.clone(), "h".to_owned()))
        .collect();
    let stray = UnitId::new("mgr.x1").unwrap();
    places.remove(&stray).unwrap();
    let hosts = as_hosts(&daemons, &places);
    let names: Vec<&str> = hosts.units().iter().map(|unit| unit.id.as_str()).collect();
    assert_eq!(names, ["host.h", "mgr.x1"]);
    let all = [Ix(0), Ix(1)];
    assert!(
        hosts.budgets().permit(&hosts.down(), &all).is_err(),
        "no manager would stay"
    );
}

#[test]
fn a_plan_says_which_daemons_have_the_new_software_before_their_turn() {
    let facts = on_hosts("18.2.7");
    let software: SoftwareByKind = serde_json::from_value(json!({ "profile": "debian" })).unwrap();
    let lines = remarks(&software, &facts, "20.2.4");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(
        line.contains("software belongs to a host")
            && line.contains("one that crashes meanwhile starts on 20.2.4"),
        "{line}"
    );
    // A monitor is the first of its host; its manager and OSDs are ahead of their turn.
    let hosts = hosts_of(&facts);
    let (mon, first_host) = hosts
        .iter()
        .find(|(unit, _)| unit.as_str().starts_with("mon."))
        .unwrap();
    let carried: Vec<&str> = hosts
        .iter()
        .filter(|(unit, host)| *host == first_host && !unit.as_str().starts_with("mon."))
        .map(|(unit, _)| unit.as_str())
        .collect();
    assert!(!carried.is_empty());
    for unit in carried {
        assert!(line.contains(unit), "{unit} in {line}");
    }
    assert!(!line.contains(mon.as_str()), "{line}");
    assert_eq!(remarks(&SoftwareByKind::default(), &facts, "20.2.4"), [""; 0]);
}
