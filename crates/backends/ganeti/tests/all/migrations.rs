//! How instances are migrated that cannot be migrated as the others are.

use stagger_core::run::{Ending, Event, Outcome};
use stagger_ganeti::config::{MigrationMode, MigrationRule};

use crate::common::setup;
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
