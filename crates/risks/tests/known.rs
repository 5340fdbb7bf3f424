//! The risks that come with the program, each on answers that real clusters gave, varied where a cluster is to have what these
//! had not.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use stagger_risks::{
    Applies, ClusterAnswer, Questions, RiskEffect, RiskFacts, RiskFinding, System, UpgradePath, ceph, judge,
    shipped,
};

/// A recorded answer.
fn answer(version: &str, file: &str) -> Value {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backends/ceph/tests/fixtures");
    serde_json::from_slice(&std::fs::read(fixtures.join(version).join(file)).unwrap()).unwrap()
}

/// What a recorded cluster answers.
struct Recorded {
    running: &'static str,
    osd_dump: Value,
    osd_metadata: Value,
    /// No cluster was recorded with its configuration: what `config dump` answers has this shape.
    config: Value,
    daemons: BTreeMap<String, usize>,
}

impl Recorded {
    /// One that was recorded as 18.2.7, with BlueStore, as if it ran that release.
    fn running(running: &'static str) -> Self {
        Self {
            running,
            osd_dump: answer("18.2.7", "osd_dump.json"),
            osd_metadata: answer("18.2.7", "osd_metadata.json"),
            config: json!([]),
            daemons: BTreeMap::from([("mon".to_owned(), 3), ("osd".to_owned(), 12)]),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn cluster(&self) -> RiskFacts {
        let bytes = |answer: &Value| serde_json::to_vec(answer).unwrap();
        RiskFacts {
            daemons: ClusterAnswer::Yes(self.daemons.clone()),
            health: ClusterAnswer::Yes(BTreeSet::new()),
            pools: ceph::pools(&bytes(&self.osd_dump)),
            settings: ceph::settings(&bytes(&self.config)),
            metadata: BTreeMap::from([(
                "osd".to_owned(),
                ceph::metadata("osd", &bytes(&self.osd_metadata)),
            )]),
        }
    }

    fn way(&self, to: &str) -> UpgradePath {
        UpgradePath {
            system: System::Ceph,
            running: BTreeSet::from([Some(self.running.to_owned())]),
            to: Some(to.to_owned()),
        }
    }

    fn met(&self, to: &str) -> Vec<RiskFinding> {
        judge(
            &shipped().unwrap(),
            &self.way(to),
            &self.cluster(),
            &BTreeSet::new(),
        )
    }

    /// What is found of that risk; `None`: it is not on the way.
    fn of(&self, id: &str, to: &str) -> Option<(Applies, RiskEffect)> {
        let found = self.met(to).into_iter().find(|finding| finding.id == id)?;
        Some((found.applies, found.effect))
    }
}

const REFUSED: Option<(Applies, RiskEffect)> = Some((Applies::Yes, RiskEffect::Refuse));
const WARNED: Option<(Applies, RiskEffect)> = Some((Applies::Yes, RiskEffect::Warn));

#[test]
fn each_risk_has_a_test_and_a_source() {
    let here = include_str!("known.rs");
    for risk in shipped().unwrap() {
        assert!(
            here.contains(&format!("\"{}\"", risk.id)),
            "{} has no test",
            risk.id
        );
        assert!(!risk.source.is_empty(), "{}", risk.id);
    }
}

#[test]
fn omap_is_converted_by_a_setting() {
    const ID: &str = "ceph-16.2-omap-conversion";
    let set = |section: &str, value: &str| {
        let setting = json!({ "section": section, "name": "bluestore_fsck_quick_fix_on_mount", "value": value, "mask": "" });
        Recorded::running("15.2.17").with(|recorded| recorded.config = json!([setting]))
    };
    for section in ["global", "osd", "osd.3"] {
        assert_eq!(set(section, "true").of(ID, "16.2.6"), REFUSED, "{section}");
    }
    let no = Some((Applies::No, RiskEffect::Refuse));
    assert_eq!(set("osd", "false").of(ID, "16.2.6"), no);
    assert_eq!(set("mon", "true").of(ID, "16.2.6"), no);
    assert_eq!(Recorded::running("15.2.17").of(ID, "16.2.6"), no);
    assert_eq!(set("osd", "true").of(ID, "16.2.7"), None);
    // Nobody may look at the configuration.
    let hidden = Recorded::running("15.2.17").with(|recorded| recorded.config = json!("EACCES"));
    assert_eq!(
        hidden.of(ID, "16.2.6"),
        Some((Applies::Unknown, RiskEffect::Refuse))
    );
}

#[test]
fn bluestore_of_17_2_8_and_18_2_5() {
    for (id, from, bad, good) in [
        ("ceph-17.2.8-bluefs", "16.2.15", "17.2.8", "17.2.9"),
        ("ceph-18.2.5-bluefs", "16.2.15", "18.2.5", "18.2.7"),
        ("ceph-18.2.5-bluefs", "17.2.7", "18.2.6-1.el9cp", "18.2.4"),
    ] {
        let recorded = Recorded::running(from);
        assert_eq!(recorded.of(id, bad), REFUSED, "{bad}");
        assert_eq!(recorded.of(id, good), None, "{good}");
        // This cluster was recorded with OSDs in memory.
        let other =
            Recorded::running(from).with(|it| it.osd_metadata = answer("16.2.15", "osd_metadata.json"));
        assert_eq!(other.of(id, bad), Some((Applies::No, RiskEffect::Refuse)));
    }
    // Who is there already is asked nothing.
    assert_eq!(
        Recorded::running("18.2.6").of("ceph-18.2.5-bluefs", "18.2.6"),
        None
    );
}

#[test]
fn osds_that_are_created_on_early_19_2() {
    const ID: &str = "ceph-19.2-elastic-shared-blobs";
    let recorded = Recorded::running("18.2.7");
    assert_eq!(recorded.of(ID, "19.2.3"), WARNED, "it is on where nobody sets it");
    assert_eq!(recorded.of(ID, "19.2.4"), None);
    let off = json!([{ "section": "osd", "name": "bluestore_elastic_shared_blobs", "value": "0" }]);
    let off = Recorded::running("18.2.7").with(|recorded| recorded.config = off);
    assert_eq!(off.of(ID, "19.2.3"), Some((Applies::No, RiskEffect::Warn)));
    // Off on some hosts only.
    let some = json!([{ "section": "osd", "name": "bluestore_elastic_shared_blobs", "value": "0", "mask": "host:vm1" }]);
    let some = Recorded::running("18.2.7").with(|recorded| recorded.config = some);
    assert_eq!(some.of(ID, "19.2.3"), WARNED);
}

#[test]
fn osds_that_were_created_on_early_19_2() {
    const ID: &str = "ceph-19.2-osds-created";
    // Recorded OSDs were created on 16.2.15.
    let old = Recorded::running("19.2.3");
    assert_eq!(old.of(ID, "20.2.4"), Some((Applies::No, RiskEffect::Warn)));
    let created = |text: &'static str| {
        Recorded::running("19.2.3").with(|recorded| {
            recorded.osd_metadata[4]["ceph_version_when_created"] = text.into();
        })
    };
    let one = created("ceph version 19.2.1 (58a7fab8be0a062d730ad7da874972fd3fba59fb) squid (stable)");
    assert_eq!(one.of(ID, "20.2.4"), WARNED);
    assert_eq!(one.of(ID, "19.2.4"), WARNED);
    let because = one
        .met("20.2.4")
        .into_iter()
        .find(|finding| finding.id == ID)
        .unwrap()
        .because;
    assert!(because.ends_with("of osd.4"), "{because}");
    assert_eq!(
        created("").of(ID, "20.2.4"),
        Some((Applies::Unknown, RiskEffect::Warn))
    );
}

#[test]
fn the_balancer_of_19_2_0() {
    let recorded = Recorded::running("18.2.7");
    assert_eq!(recorded.of("ceph-19.2.0-balancer", "19.2.0"), WARNED);
    assert_eq!(recorded.of("ceph-19.2.0-balancer", "19.2.2"), None);
}

#[test]
fn iscsi_on_the_way_to_19_2_0() {
    const ID: &str = "ceph-19.2.0-iscsi";
    let with = |kind: &str| {
        let kind = kind.to_owned();
        Recorded::running("18.2.7").with(|recorded| {
            recorded.daemons.insert(kind, 2);
        })
    };
    assert_eq!(with("tcmu-runner").of(ID, "19.2.0"), WARNED);
    assert_eq!(
        with("rbd-mirror").of(ID, "19.2.0"),
        Some((Applies::No, RiskEffect::Warn))
    );
}

#[test]
fn a_gateway_of_19_2_1_loses_what_is_copied_onto_itself() {
    const ID: &str = "ceph-19.2.1-copy-object";
    let gateways = Recorded::running("18.2.7").with(|recorded| {
        recorded.daemons.insert("rgw".to_owned(), 2);
    });
    assert_eq!(gateways.of(ID, "19.2.1"), REFUSED);
    assert_eq!(gateways.of(ID, "19.2.2"), None);
    let none = Recorded::running("18.2.7");
    assert_eq!(none.of(ID, "19.2.1"), Some((Applies::No, RiskEffect::Refuse)));
}

#[test]
fn from_19_2_6_to_an_early_20_2() {
    const ID: &str = "ceph-20.2-from-19.2.6";
    assert_eq!(Recorded::running("19.2.6").of(ID, "20.2.3"), REFUSED);
    assert_eq!(Recorded::running("19.2.6").of(ID, "20.2.4"), None);
    assert_eq!(Recorded::running("19.2.4").of(ID, "20.2.3"), None);
    // Half-way, some run the one and some the other.
    let mut way = Recorded::running("19.2.6").way("20.2.3");
    way.running.insert(Some("20.2.3".to_owned()));
    let cluster = Recorded::running("19.2.6").cluster();
    let found = judge(&shipped().unwrap(), &way, &cluster, &BTreeSet::new());
    assert!(
        found
            .iter()
            .any(|finding| finding.id == ID && finding.blocks_run())
    );
    let accepted = BTreeSet::from([ID.to_owned()]);
    let found = judge(&shipped().unwrap(), &way, &cluster, &accepted);
    assert!(
        found
            .iter()
            .any(|finding| finding.id == ID && finding.accepted && !finding.blocks_run())
    );
    // What nobody knows may be it, and that is told.
    way.running = BTreeSet::from([None]);
    let found = judge(&shipped().unwrap(), &way, &cluster, &BTreeSet::new());
    let found = found.iter().find(|finding| finding.id == ID).unwrap();
    assert_eq!((found.applies, found.blocks_run()), (Applies::Unknown, false));
}

#[test]
fn optimizations_of_erasure_coded_pools_on_20_2_0() {
    const ID: &str = "ceph-20.2.0-ec-optimizations";
    // The recorded cluster has a pool that is.
    let recorded = Recorded::running("19.2.3");
    assert_eq!(recorded.of(ID, "20.2.0"), WARNED);
    assert_eq!(recorded.of(ID, "20.2.1"), None);
    let replicated = Recorded::running("19.2.3").with(|recorded| {
        recorded.osd_dump["pools"]
            .as_array_mut()
            .unwrap()
            .retain(|pool| pool["type"] == 1);
    });
    assert_eq!(replicated.of(ID, "20.2.0"), Some((Applies::No, RiskEffect::Warn)));
    let odd = Recorded::running("19.2.3").with(|recorded| recorded.osd_dump["pools"] = json!({}));
    assert_eq!(odd.of(ID, "20.2.0"), Some((Applies::Unknown, RiskEffect::Warn)));
}

#[test]
fn keys_of_a_new_type() {
    const ID: &str = "ceph-cephx-aes256k";
    assert_eq!(Recorded::running("18.2.7").of(ID, "20.2.4"), WARNED);
    assert_eq!(Recorded::running("18.2.7").of(ID, "19.2.6"), WARNED);
    assert_eq!(Recorded::running("20.2.3").of(ID, "20.2.4"), WARNED);
    assert_eq!(Recorded::running("18.2.7").of(ID, "19.2.3"), None);
    assert_eq!(Recorded::running("19.2.6").of(ID, "20.2.4"), None);
}

#[test]
fn only_what_is_on_the_way_is_asked_for() {
    let risks = shipped().unwrap();
    let asked = |running: &'static str, to: &str| Questions::of(&risks, &Recorded::running(running).way(to));
    assert_eq!(asked("16.2.15", "18.2.7"), Questions::default());
    assert_eq!(asked("18.2.7", "20.2.4"), Questions::default());
    assert!(asked("19.2.3", "20.2.0").pools);
    assert_eq!(
        asked("16.2.15", "18.2.6").metadata,
        BTreeSet::from(["osd".to_owned()])
    );
    let options = asked("15.2.17", "16.2.6").options;
    assert_eq!(
        options,
        BTreeSet::from(["bluestore_fsck_quick_fix_on_mount".to_owned()])
    );
}

#[test]
fn without_a_goal_every_risk_further_up_counts() {
    let mut way = Recorded::running("18.2.7").way("");
    way.to = None;
    let found = judge(
        &shipped().unwrap(),
        &way,
        &Recorded::running("18.2.7").cluster(),
        &BTreeSet::new(),
    );
    let ids: Vec<&str> = found.iter().map(|finding| finding.id.as_str()).collect();
    assert!(ids.contains(&"ceph-cephx-aes256k"), "{ids:?}");
    assert!(!ids.contains(&"ceph-18.2.5-bluefs"), "{ids:?}");
    assert!(!ids.contains(&"ceph-17.2.8-bluefs"), "{ids:?}");
    // First what applies.
    let applies: Vec<Applies> = found.iter().map(|finding| finding.applies).collect();
    assert!(applies.is_sorted(), "{applies:?}");
}

#[test]
fn of_a_configuration_only_the_options_are_kept() {
    let dump = json!([
        { "section": "mgr", "name": "mgr/dashboard/secret", "value": "hush", "level": "unknown", "mask": "" },
        { "section": "osd", "name": "bluestore_elastic_shared_blobs", "value": "false", "level": "advanced", "mask": "" },
    ]);
    let risks = shipped().unwrap();
    let kept = ceph::settings_kept(
        &serde_json::to_vec(&dump).unwrap(),
        &Questions::options_of(&risks, System::Ceph),
    );
    let kept = kept.unwrap();
    assert!(!kept.to_string().contains("hush"), "{kept}");
    let ClusterAnswer::Yes(settings) = ceph::settings(kept.to_string().as_bytes()) else {
        panic!("{kept}")
    };
    assert_eq!(settings.len(), 1);
    assert_eq!(settings[0].value, "false");
}
