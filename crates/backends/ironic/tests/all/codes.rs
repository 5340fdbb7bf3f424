//! A release of which this program knows nothing: its own code says what it is.

use stagger_core::model::Fact;
use stagger_core::plan::PlannedPart;
use stagger_ironic::observe::release_code;

use crate::common::{Setup, setup};
use crate::double::code_of_39;
use crate::lives::{Lives, all_is_well};
use crate::plans::planned_by;

fn asked(from: &str) -> Setup {
    let mut setup = setup(from);
    setup.settings.cluster.tools.python = Some("python-{release}".to_owned());
    setup.code = Some(Fact::Yes(code_of_39()));
    setup
}

#[tokio::test]
async fn a_release_newer_than_this_program_is_carried_out_by_what_its_code_lists() {
    let setup = asked("35.0.1");
    let mut lives = Lives::new(&setup);
    lives.to = "39.0.0";
    lives.until_done("35.0.1 to 39.0.0").await;
    all_is_well(&setup.lab.now(), "39.0.0", 2);
    // What runs it now is known by its code as well, which is asked once.
    let backend = setup.backend(None);
    for _ in 0..2 {
        let facts = backend.collect_facts().await;
        assert!(matches!(facts.code, Some(Fact::Yes(_))), "{:?}", facts.code);
        let snapshot = backend.snapshot(&facts, None).unwrap();
        assert!(snapshot.units().iter().all(|unit| unit.revision.is_some()));
    }
    assert_eq!(setup.lab.now().codes_asked, 2, "for the pins, and for what runs");
}

#[tokio::test]
async fn a_run_remembers_what_it_goes_by() {
    let setup = asked("35.0.1");
    let (_, upgrade, plan) = planned_by(&setup, "39.0.0", &crate::common::policy()).await;
    let stages = plan
        .parts
        .iter()
        .filter(|part| matches!(part, PlannedPart::Stage(_)));
    assert_eq!(stages.count(), 4);
    let code = upgrade.goal.code.unwrap();
    assert_eq!(code.releases.first().unwrap().names, ["35.0", "2026.1"]);
    assert_eq!(upgrade.goal.pin, "35.0");
}

#[tokio::test]
async fn without_its_code_it_is_refused_with_how_it_may_be_asked() {
    let mut setup = setup("35.0.1");
    let told = async |setup: &Setup| {
        let facts = setup.backend(None).collect_facts().await;
        let refusal = setup
            .upgrade(&facts, "39.0.0", &crate::common::policy())
            .unwrap_err();
        let unknown = refusal
            .0
            .iter()
            .find(|reason| reason.code.to_string() == "unknown-release");
        unknown.unwrap().detail.clone()
    };
    assert!(
        told(&setup).await.contains("`tools.python`"),
        "{}",
        told(&setup).await
    );
    setup.code = Some(Fact::No("the code of 39.0.0 on t: not there".to_owned()));
    assert!(
        told(&setup).await.contains("not there: install it"),
        "{}",
        told(&setup).await
    );
}

#[tokio::test]
async fn a_python_of_another_release_is_not_believed() {
    let mut setup = setup("29.0.6");
    assert_eq!(
        release_code(&*setup.lab, &setup.settings.cluster.tools, "32.0.1").await,
        None
    );
    setup.settings.cluster.tools.python = Some("python-39.0.0".to_owned());
    let said = release_code(&*setup.lab, &setup.settings.cluster.tools, "35.0.1").await;
    let Some(Fact::No(why)) = said else {
        panic!("{said:?}")
    };
    assert!(why.contains("`python-39.0.0` has Ironic 39.0.0"), "{why}");
}
