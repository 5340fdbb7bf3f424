//! Plans, and what is shown.

use std::collections::BTreeMap;

use stagger_core::check::check;
use stagger_core::model::{Policy, Snapshot};
use stagger_core::plan::{Plan, PlannedPart, PlanningInput, plan};
use stagger_ironic::target::Upgrade;

use crate::common::{Setup, policy, setup};

async fn planned(setup: &Setup, to: &str) -> (Snapshot, Upgrade, Plan) {
    planned_by(setup, to, &policy()).await
}

pub async fn planned_by(setup: &Setup, to: &str, policy: &Policy) -> (Snapshot, Upgrade, Plan) {
    let backend = setup.backend(None);
    let facts = backend.collect_facts().await;
    let upgrade = setup.upgrade(&facts, to, policy).unwrap();
    let snapshot = backend.snapshot(&facts, Some(&upgrade.goal)).unwrap();
    let aside = BTreeMap::new();
    let earned = BTreeMap::new();
    let ask = PlanningInput {
        snapshot: &snapshot,
        target: &upgrade.target,
        policy,
        aside: &aside,
        earned: &earned,
        parent: None,
    };
    let plan = plan(&ask);
    let found = check(&ask, &plan);
    assert!(found.is_empty(), "{found:?}");
    (snapshot, upgrade, plan)
}

fn names(plan: &Plan) -> Vec<String> {
    plan.parts
        .iter()
        .map(|part| match part {
            PlannedPart::Stage(stage) => {
                let units: Vec<_> = stage
                    .waves
                    .iter()
                    .flat_map(|wave| &wave.units)
                    .map(stagger_core::model::UnitId::as_str)
                    .collect();
                format!("{} to {}: {}", stage.name, stage.revision, units.join(", "))
            }
            PlannedPart::Step(step) => step.name.to_string(),
        })
        .collect()
}

#[tokio::test]
async fn the_whole_way_is_in_the_plan_with_its_doors() {
    let setup = setup("26.1.6");
    let (_, upgrade, plan) = planned(&setup, "29.0.6").await;
    assert_eq!(upgrade.target.title, "ironic 26.1.6 to 29.0.6");
    assert_eq!(upgrade.goal.pin, "26.1");
    assert_eq!(
        names(&plan),
        [
            "before",
            "ramdisk",
            "check",
            "backup",
            "schema",
            "pin",
            "conductors to 29.0.6-pinned-2024.2: conductor.c1, conductor.c2",
            "apis to 29.0.6-pinned-2024.2: api.a1, api.a2",
            "unpin",
            "unpin-conductors to 29.0.6: conductor.c1, conductor.c2",
            "verify-conductors",
            "unpin-apis to 29.0.6: api.a1, api.a2",
            "migrate",
            "clients",
            "after",
        ]
    );
    let doors: Vec<_> = plan.doors().iter().map(|door| door.name.to_string()).collect();
    assert_eq!(doors, ["schema", "unpin"]);
    assert_eq!(plan.waves(), 8, "one at a time");
}

#[tokio::test]
async fn without_a_hook_the_ramdisk_is_asked_for_by_a_door() {
    let mut setup = setup("26.1.6");
    setup.settings.cluster.hooks.ramdisk = None;
    let backend = setup.backend(None);
    let facts = backend.collect_facts().await;
    let policy = stagger_core::model::Policy::default();
    let upgrade = setup.upgrade(&facts, "29.0.6", &policy).unwrap();
    let ramdisk = upgrade.target.step(&"ramdisk".parse().unwrap()).unwrap();
    assert!(ramdisk.door.as_ref().unwrap().why.contains("by hand"));
}

#[tokio::test]
async fn a_patch_needs_neither_schema_nor_pin() {
    let setup = setup("26.1.6");
    let (_, _, plan) = planned(&setup, "26.1.7").await;
    assert_eq!(
        names(&plan),
        [
            "before",
            "conductors to 26.1.7: conductor.c1, conductor.c2",
            "apis to 26.1.7: api.a1, api.a2",
            "after",
        ]
    );
}

#[tokio::test]
async fn a_pin_that_renames_conductors_is_seen_in_the_plan() {
    let setup = setup("26.1.6");
    let mut config = setup.settings.cluster.clone();
    config.installed = "21.4.4".to_owned();
    let table = stagger_ironic::releases::Releases::built_in();
    let backend = setup.backend(None);
    let mut facts = backend.collect_facts().await;
    for says in facts.apis.values_mut() {
        *says = stagger_ironic::facts::ApiReport::Offers("1.82".parse().unwrap());
    }
    if let stagger_core::model::Fact::Yes(database) = &mut facts.database {
        for row in database.conductors.values_mut() {
            row.version = Some("1.3".to_owned());
        }
        database.rows.clear();
    }
    let wanted = stagger_ironic::goal::WantedRelease::new("23.0.1");
    let upgrade = stagger_ironic::target::upgrade(&facts, &config, &table, &wanted, &policy()).unwrap();
    let unpin = upgrade.target.step(&"unpin".parse().unwrap()).unwrap();
    assert!(unpin.why.contains("hash ring"), "{}", unpin.why);
}

#[tokio::test]
async fn versions_say_release_pin_cap_and_objects_of_each_service() {
    let setup = setup("26.1.6");
    {
        let mut inner = setup.lab.now();
        let a1 = inner.services.get_mut("a1").unwrap();
        a1.runs = None;
    }
    let backend = setup.backend(None);
    let facts = backend.collect_facts().await;
    let versions = stagger_ironic::versions::versions(
        &facts,
        &setup.settings.cluster,
        &stagger_ironic::releases::Releases::built_in(),
    );
    assert_eq!(versions.len(), 4);
    let c1 = &versions[0];
    let runs = c1.runs.as_ref().unwrap();
    assert_eq!(
        (c1.service.as_str(), runs.release.as_str(), &runs.pin),
        ("c1", "26.1.6", &None)
    );
    assert_eq!(
        (runs.api.to_string(), runs.rpc_cap.to_string()),
        ("1.93".to_owned(), "1.61".to_owned())
    );
    assert_eq!(runs.objects["Node"].to_string(), "1.40");
    assert_eq!(versions[2].why.as_deref(), Some("connection refused"));
}

#[tokio::test]
async fn the_forecast_is_that_of_services_of_ironic_or_of_the_configuration() {
    let mut setup = setup("26.1.6");
    let seconds = |snapshot: &Snapshot, kind: &str| {
        let took = snapshot.duration(&kind.parse().unwrap()).unwrap();
        took.as_secs()
    };
    let (snapshot, ..) = planned(&setup, "29.0.6").await;
    assert_eq!(
        (seconds(&snapshot, "conductor"), seconds(&snapshot, "api")),
        (30, 10)
    );
    let durations = &mut setup.settings.cluster.durations;
    durations.insert("conductor".parse().unwrap(), 300);
    let (snapshot, ..) = planned(&setup, "29.0.6").await;
    assert_eq!(
        (seconds(&snapshot, "conductor"), seconds(&snapshot, "api")),
        (300, 10)
    );
}
