//! Laws of what is made of facts, on random ones.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use stagger_core::model::{Fact, UnitState, Verdict};
use stagger_ironic::balancer::{BalancerStatus, ServerReport, ServerState};
use stagger_ironic::conditions;
use stagger_ironic::config::IronicConfig;
use stagger_ironic::facts::{ApiReport, ConductorReport, ConductorRow, DatabaseFacts, IronicFacts, Rows};
use stagger_ironic::goal::WantedRelease;
use stagger_ironic::records::{IronicRecords, Record, RecordState};
use stagger_ironic::releases::Releases;
use stagger_ironic::translate::translate;

use crate::common::{CONFIG, goal, policy};
use crate::double::registered;

fn known<T: std::fmt::Debug + Clone>(fact: impl Strategy<Value = T>) -> impl Strategy<Value = Fact<T>> {
    prop_oneof![
        6 => fact.prop_map(Fact::Yes),
        1 => Just(Fact::No("no answer".to_owned())),
    ]
}

fn version() -> impl Strategy<Value = String> {
    prop_oneof![Just("1.40"), Just("1.41"), Just("1.42"), Just("odd")].prop_map(str::to_owned)
}

fn record() -> impl Strategy<Value = Record> {
    let release = prop_oneof![Just("26.1.6"), Just("29.0.6"), Just("32.0.1"), Just("bogus")];
    let pin = proptest::option::of(prop_oneof![Just("26.1"), Just("2024.2"), Just("bogus")]);
    let state = prop_oneof![4 => Just(RecordState::Runs), 1 => Just(RecordState::Changing)];
    (release, pin, state).prop_map(|(release, pin, state)| Record {
        release: release.to_owned(),
        pin: pin.map(str::to_owned),
        state,
        run: "run-1".to_owned(),
    })
}

fn shown() -> impl Strategy<Value = BalancerStatus> {
    let state = prop_oneof![
        6 => Just(ServerState::Up),
        1 => Just(ServerState::Down),
        1 => Just(ServerState::Drained),
        1 => Just(ServerState::Unclear),
    ];
    proptest::collection::vec(state, 6).prop_map(|states| {
        let names = ["b/a1", "b/a2", "rpc1/c1", "rpc1/c2", "rpc2/c1", "rpc2/c2"];
        let servers = names.iter().zip(states).map(|(name, state)| {
            let says = ServerReport {
                state,
                sessions: 0,
                total: 60,
                status: format!("{state:?}"),
            };
            ((*name).to_owned().try_into().unwrap(), says)
        });
        BalancerStatus {
            servers: servers.collect(),
        }
    })
}

fn facts() -> impl Strategy<Value = IronicFacts> {
    let api = prop_oneof![
        3 => Just(ApiReport::Offers("1.93".parse().unwrap())),
        1 => Just(ApiReport::Offers("1.96".parse().unwrap())),
        1 => Just(ApiReport::Away("refused".to_owned())),
        1 => Just(ApiReport::Unclear("slow".to_owned())),
    ];
    let apis = proptest::collection::vec(api, 2);
    let alive = proptest::collection::vec(prop_oneof![4 => Just(true), 1 => Just(false)], 2);
    let conductors = alive.prop_map(|alive| {
        let listed = alive.into_iter().enumerate().map(|(at, alive)| {
            let says = ConductorReport {
                alive,
                group: String::new(),
            };
            (registered(&format!("c{}", at + 1)), says)
        });
        listed.collect::<BTreeMap<_, _>>()
    });
    let rows = (
        proptest::collection::btree_map(version(), 1..9_u64, 0..3),
        0..2_u64,
    );
    let row = proptest::option::of(prop_oneof![Just("1.4"), Just("1.6")]);
    let database = (rows, row).prop_map(|((versions, null), row)| DatabaseFacts {
        revision: "66bd9c5604d5".to_owned(),
        rows: BTreeMap::from([("nodes".to_owned(), Rows { versions, null })]),
        conductors: BTreeMap::from([(
            registered("c1"),
            ConductorRow {
                version: row.map(str::to_owned),
                online: true,
            },
        )]),
        ..DatabaseFacts::default()
    });
    let records = proptest::collection::btree_map("c1|c2|a1|a2", record(), 0..4);
    let marks = proptest::collection::btree_set("schema|unpin|migrate|check", 0..3);
    let records = (records, marks).prop_map(|(services, marks)| {
        let marks = marks.into_iter().map(|mark| (mark, String::new())).collect();
        IronicRecords {
            services,
            marks: BTreeMap::from([("29.0.6".to_owned(), marks)]),
        }
    });
    let pin = known(proptest::option::of(prop_oneof![Just("26.1"), Just("bogus")]));
    let pins = proptest::collection::vec(pin, 4);
    (
        apis,
        known(conductors),
        known(database),
        known(shown()),
        pins,
        known(records),
    )
        .prop_map(|(apis, conductors, database, balancer, pins, records)| {
            let pins = ["a1", "a2", "c1", "c2"].into_iter().zip(pins).map(|(name, pin)| {
                let pin = match pin {
                    Fact::Yes(pin) => Fact::Yes(pin.map(str::to_owned)),
                    Fact::No(why) => Fact::No(why),
                };
                (name.to_owned(), pin)
            });
            IronicFacts {
                code: None,
                at: jiff::Timestamp::UNIX_EPOCH,
                apis: ["a1", "a2"].into_iter().map(str::to_owned).zip(apis).collect(),
                conductors,
                database,
                balancer,
                pins: pins.collect(),
                records,
            }
        })
}

/// An Ironic of 26.1.6 that may be upgraded.
fn well() -> IronicFacts {
    let up = |name: &str| {
        let says = ServerReport {
            state: ServerState::Up,
            sessions: 0,
            total: 60,
            status: "UP".to_owned(),
        };
        (name.to_owned().try_into().unwrap(), says)
    };
    let conductor = |name: &str| {
        let says = ConductorReport {
            alive: true,
            group: String::new(),
        };
        (registered(name), says)
    };
    let row = |name: &str| {
        let row = ConductorRow {
            version: Some("1.4".to_owned()),
            online: true,
        };
        (registered(name), row)
    };
    let rows = Rows {
        versions: BTreeMap::from([("1.40".to_owned(), 5)]),
        null: 0,
    };
    let servers = ["b/a1", "b/a2", "rpc1/c1", "rpc1/c2", "rpc2/c1", "rpc2/c2"];
    let offers = |name: &str| (name.to_owned(), ApiReport::Offers("1.93".parse().unwrap()));
    let no_pin = |name: &str| (name.to_owned(), Fact::Yes(None));
    IronicFacts {
        code: None,
        at: jiff::Timestamp::UNIX_EPOCH,
        apis: ["a1", "a2"].map(offers).into(),
        conductors: Fact::Yes(["c1", "c2"].map(conductor).into()),
        database: Fact::Yes(DatabaseFacts {
            revision: "66bd9c5604d5".to_owned(),
            rows: BTreeMap::from([("nodes".to_owned(), rows)]),
            conductors: ["c1", "c2"].map(row).into(),
            ..DatabaseFacts::default()
        }),
        balancer: Fact::Yes(BalancerStatus {
            servers: servers.map(up).into(),
        }),
        pins: ["a1", "a2", "c1", "c2"].map(no_pin).into(),
        records: Fact::Yes(IronicRecords::default()),
    }
}

fn config() -> IronicConfig {
    toml::from_str(&CONFIG.replace("OURS", "sqlite://x")).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The same facts give the same snapshot, and what is unknown is never yes.
    #[test]
    fn unknown_is_never_yes(facts in facts()) {
        let (config, table) = (config(), Releases::built_in());
        let make = || translate(&facts, &config, &table, Some(&goal()), &BTreeSet::new()).unwrap();
        let snapshot = make();
        prop_assert_eq!(snapshot.digest(), make().digest());
        let verdict = |name: &str| snapshot.condition(&name.parse().unwrap()).verdict;
        if facts.database.get().is_none() {
            for name in [conditions::DATABASE_ANSWERS, conditions::ROWS_HAVE_VERSIONS, conditions::ROWS_READABLE,
                conditions::SCHEMA_UPGRADED, conditions::ROWS_CURRENT] {
                prop_assert_ne!(verdict(name), Verdict::Yes, "{}", name);
            }
        }
        if facts.conductors.get().is_none() {
            for name in [conditions::CONDUCTORS_SERVE, conditions::NO_OLD_SERVICE] {
                prop_assert_ne!(verdict(name), Verdict::Yes, "{}", name);
            }
        }
        if facts.balancer.get().is_none() {
            prop_assert_ne!(verdict(conditions::PREPARED), Verdict::Yes);
            prop_assert!(snapshot.units().iter().all(|unit| unit.state != UnitState::Serving));
        }
        if facts.records.get().is_none() {
            prop_assert!(snapshot.units().iter().all(|unit| unit.revision.is_none()));
            prop_assert_ne!(verdict(conditions::UNPIN_BEGUN), Verdict::Yes);
        }
        if snapshot.units().iter().any(|unit| unit.revision.is_none()) {
            for name in [conditions::SERVICES_KNOWN, conditions::NO_OLD_SERVICE, conditions::UNPINNED] {
                prop_assert_ne!(verdict(name), Verdict::Yes, "{}", name);
            }
        }
    }

    /// Nothing is begun that any fact speaks against: of well facts with some from another cluster, few are still well.
    #[test]
    fn an_upgrade_begins_only_where_everything_is_known_and_well(
        odd in facts(),
        spoilt in proptest::collection::vec(proptest::bool::weighted(0.15), 6),
    ) {
        let (config, table) = (config(), Releases::built_in());
        let mut facts = well();
        for (at, _) in spoilt.iter().enumerate().filter(|(_, spoilt)| **spoilt) {
            match at {
                0 => facts.apis.clone_from(&odd.apis),
                1 => facts.conductors = odd.conductors.clone(),
                2 => facts.database = odd.database.clone(),
                3 => facts.balancer = odd.balancer.clone(),
                4 => facts.pins.clone_from(&odd.pins),
                _ => facts.records = odd.records.clone(),
            }
        }
        let judged = stagger_ironic::target::upgrade(&facts, &config, &table, &WantedRelease::new("29.0.6"), &policy());
        let upgrade = match judged {
            Ok(upgrade) => upgrade,
            Err(refusal) => {
                prop_assert!(spoilt.contains(&true), "{:?}", refusal.0);
                return Ok(());
            }
        };
        let snapshot = translate(&facts, &config, &table, Some(&upgrade.goal), &BTreeSet::new()).unwrap();
        for name in [conditions::APIS_SERVE, conditions::CONDUCTORS_SERVE, conditions::SERVICES_KNOWN,
            conditions::DATABASE_ANSWERS, conditions::ROWS_HAVE_VERSIONS] {
            let condition = snapshot.condition(&name.parse().unwrap());
            prop_assert_eq!(condition.verdict, Verdict::Yes, "{}: {}", name, condition.why);
        }
        prop_assert!(snapshot.units().iter().all(|unit| unit.state == UnitState::Serving && unit.revision.is_some()));
    }

    /// Two services of a kind never go together.
    #[test]
    fn one_of_each_kind_stays(facts in facts()) {
        let (config, table) = (config(), Releases::built_in());
        let snapshot = translate(&facts, &config, &table, None, &BTreeSet::new()).unwrap();
        for (one, other) in [("conductor.c1", "conductor.c2"), ("api.a1", "api.a2")] {
            let ix = |unit: &str| snapshot.find(&unit.parse().unwrap()).unwrap();
            let down = |unit: &str| snapshot.unit(ix(unit)).state != UnitState::Serving;
            let may = stagger_core::check::may_stop(&snapshot, &[ix(one), ix(other)]).is_ok();
            prop_assert!(!may || (down(one) && down(other)));
        }
    }
}
