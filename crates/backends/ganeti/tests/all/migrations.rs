//! How instances are migrated that cannot be migrated as the others are.

use stagger_core::model::{MoveKind, Phase, UnitId};
use stagger_core::plan::Move;
use stagger_core::run::{Action, Ending, Event, Outcome};
use stagger_engine::cluster::Executor as _;
use stagger_ganeti::config::{MigrationMode, MigrationRule};
use stagger_ganeti::downtime::downtimes;
use stagger_ganeti::goal::EvacuationGoal;

use crate::common::{call, rebooted, setup};
use crate::double::World;
use crate::lives::{End, Lives, all_is_well, mixed};

fn rule(matching: &str) -> MigrationRule {
    MigrationRule {
        matching: matching.to_owned(),
        mode: MigrationMode::Live,
        allow_failover: false,
        ignore_hvversions: false,
    }
}

#[tokio::test]
async fn an_instance_goes_as_the_first_rule_that_matches_says() {
    let mut setup = setup(mixed()).await;
    setup.settings.cluster.visits.migrate = vec![
        MigrationRule {
            allow_failover: true,
            ignore_hvversions: true,
            ..rule("^c$")
        },
        MigrationRule {
            mode: MigrationMode::NonLive,
            ..rule("^[cd]$")
        },
    ];
    setup.world().never_live.insert("c".to_owned());
    let end = Lives::new(&setup).live().await;
    assert!(matches!(end, End::Over(Ending::Incomplete { .. })), "{end:?}");
    let world = setup.world();
    all_is_well(&world, &mixed(), &["n2", "n3", "n4", "n5"]);
    for (name, body) in &world.migrations {
        let of = (body["mode"].as_str().unwrap(), body["allow_failover"].as_bool());
        let wanted = match name.as_str() {
            "c" => ("live", Some(true)),
            "d" => ("non-live", Some(false)),
            _ => ("live", None),
        };
        assert_eq!(of, wanted, "{name}: {body}");
    }
}

#[tokio::test]
async fn one_that_cannot_go_live_is_named_with_what_would_let_it_go() {
    let setup = setup(mixed()).await;
    setup.world().never_live.insert("c".to_owned());
    let mut lives = Lives::new(&setup);
    let end = lives.live().await;
    assert!(!matches!(end, End::Over(Ending::Done)), "{end:?}");
    let said: Vec<String> = lives
        .processes
        .events()
        .await
        .into_iter()
        .filter_map(|event| match event {
            Event::Settled {
                outcome: Outcome::Failed { why },
                ..
            } => Some(why),
            _ => None,
        })
        .collect();
    assert!(said.iter().any(|why| why.contains("migrate-c-to-n4")), "{said:?}");
    // With what a person can do about it.
    let lets = "a rule under [[cluster.visits.migrate]]";
    assert!(said.iter().any(|why| why.contains(lets)), "{said:?}");
}

pub fn enter_n2() -> Action {
    let unit = |name: &str| UnitId::new(name).unwrap();
    Action::Visit {
        unit: unit("n2"),
        phase: Phase::Enter,
        revision: rebooted(),
        moves: vec![Move {
            guest: "web".to_owned(),
            how: MoveKind::Migrate,
            from: unit("n2"),
            to: unit("n3"),
        }],
    }
}

pub fn with_web() -> World {
    let mut world = World::with_nodes(3);
    world.add("web", "drbd", "n2", Some("n3"));
    world
}

/// Also where a rule matches: what it does not permit yet is named, and nothing else.
#[tokio::test]
async fn what_a_rule_does_not_permit_yet_is_named() {
    let mut setup = setup(with_web()).await;
    setup.settings.cluster.visits.migrate = vec![MigrationRule {
        ignore_hvversions: true,
        ..rule("^web$")
    }];
    setup.world().never_live.insert("web".to_owned());
    let backend = setup.backend(Some(setup.memory().await));
    let error = backend.perform(&call(5), &enter_n2()).await.unwrap_err();
    let hint = error.hint.unwrap();
    assert!(hint.contains("`matching = \"^web$\"`"), "{hint}");
    assert!(
        hint.contains("allow_failover") && hint.contains("non-live"),
        "{hint}"
    );
    assert!(!hint.contains("ignore_hvversions"), "{hint}");
}

/// Seen: Ganeti made a failover of the migration, and the plan had said that the instance moves while it runs.
#[tokio::test]
async fn an_instance_that_always_fails_over_keeps_its_node_until_a_rule_permits_it() {
    let mut world = with_web();
    world.always_failover.insert("web".to_owned());
    let mut setup = setup(world).await;
    let memory = setup.memory().await;
    let goal = EvacuationGoal::default();
    let untouchable = async |setup: &crate::common::Setup| {
        let backend = setup.backend(Some(memory.clone()));
        let (facts, cluster) = backend.observe_cluster().await.unwrap();
        let snapshot = backend.snapshot(&facts, &cluster, &goal).unwrap();
        let of = |name: &str| {
            let unit = snapshot.unit(snapshot.find(&UnitId::new(name).unwrap()).unwrap());
            unit.untouchable.as_ref().map(|why| why.code.code().to_owned())
        };
        assert_eq!(of("n3"), None, "only its second copy is there");
        (of("n2"), downtimes(&facts, &setup.settings.cluster.visits))
    };
    let (why, told) = untouchable(&setup).await;
    assert_eq!(why.as_deref(), Some("instance-always-fails-over"));
    assert_eq!(told, [""; 0], "it is not moved");
    let backend = setup.backend(Some(memory.clone()));
    let error = backend.perform(&call(5), &enter_n2()).await.unwrap_err();
    assert!(error.why.contains("allow_failover = true"), "{error}");
    assert!(
        setup
            .world()
            .jobs
            .iter()
            .all(|job| !format!("{:?}", job.op).contains("Role")),
        "nothing was begun"
    );

    setup.settings.cluster.visits.migrate = vec![MigrationRule {
        allow_failover: true,
        ..rule("^web$")
    }];
    let (why, told) = untouchable(&setup).await;
    assert_eq!(why, None);
    assert!(
        matches!(told.as_slice(), [one] if one.contains("web: shut down here")),
        "{told:?}"
    );
    let backend = setup.backend(Some(memory.clone()));
    backend.perform(&call(5), &enter_n2()).await.unwrap();
    assert_eq!(setup.world().now.instances["web"].pnode, "n3");
}

/// What does not run live is told before, by its rule.
#[tokio::test]
async fn downtime_that_a_rule_permits_is_told() {
    let mut setup = setup(mixed()).await;
    setup.settings.cluster.visits.migrate = vec![
        MigrationRule {
            allow_failover: true,
            ..rule("^c$")
        },
        MigrationRule {
            mode: MigrationMode::NonLive,
            ..rule("^[cd]$")
        },
    ];
    let (facts, _) = setup.backend(None).observe_cluster().await.unwrap();
    let told = downtimes(&facts, &setup.settings.cluster.visits);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].contains(": d: stopped while they are migrated"),
        "{told:?}"
    );
    assert!(told[1].contains(": c: shut down here"), "{told:?}");
}

#[test]
fn a_rule_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let visits = stagger_ganeti::config::Visits {
        migrate: vec![rule("(")],
        ..crate::common::by_powercycle()
    };
    let settings = crate::common::settings(&["gnt.example.org"], folder.path(), visits);
    assert!(settings.verify().unwrap_err().contains("`migrate`"));
}
