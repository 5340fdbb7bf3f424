//! The form of the files, and what conditions come to.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use stagger_risks::file::read;
use stagger_risks::{ClusterAnswer, Holds, RiskCondition, RiskFacts, merge};

const GOOD: &str = r#"
version = 1

[[risk]]
id = "site-1"
system = "ceph"
from = ["<18.0.0", "18.2.1"]
to = ">=18.2.5"
effect = "warn"
when = { all = [{ daemon = "mds" }, { not = { pool = { flag = "ec_overwrites" } } }] }
what = "a thing happens"
do = "do another"
source = ["https://example.org/1"]
"#;

#[test]
fn what_is_wrong_with_a_file_is_said() {
    read(GOOD).unwrap();
    for (good, bad, said) in [
        (
            "version = 1",
            "version = 2",
            "it is of version 2, and this program reads version 1",
        ),
        ("version = 1\n", "", "missing field `version`"),
        (
            "effect = \"warn\"",
            "effect = \"worry\"",
            "unknown variant `worry`",
        ),
        (
            "effect = \"warn\"",
            "effects = \"warn\"",
            "unknown field `effects`",
        ),
        ("\"ceph\"", "\"lustre\"", "unknown variant `lustre`"),
        ("\"site-1\"", "\"Site 1\"", "an id has small letters"),
        ("\">=18.2.5\"", "\"reef\"", "no range of releases"),
        ("to = \">=18.2.5\"\n", "", "missing field `to`"),
        ("\"a thing happens\"", "\"\"", "what is a sentence in one line"),
        (
            "\"a thing happens\"",
            "\"a\\u001bthing\"",
            "what is a sentence in one line",
        ),
        ("\"https://example.org/1\"", "", "source needs the address"),
        (
            "\"https://example.org/1\"",
            "\"somebody said\"",
            "source needs the address",
        ),
        (
            "{ daemon = \"mds\" }",
            "{ daemons = \"mds\" }",
            "unknown variant `daemons`",
        ),
        ("flag = \"ec_overwrites\"", "", "`pool` needs one of"),
        (
            "flag = \"ec_overwrites\"",
            "flag = \"x\", is = \"1\"",
            "needs the option",
        ),
        (
            "flag = \"ec_overwrites\"",
            "flags = \"x\"",
            "unknown field `flags`",
        ),
        (
            "{ daemon = \"mds\" }",
            "{ any = [] }",
            "need at least one condition",
        ),
        (
            "{ daemon = \"mds\" }",
            "{ metadata = { daemon = \"osd\", field = \"x\" } }",
            "either `is` or `release`",
        ),
        (
            "{ daemon = \"mds\" }",
            "{ setting = { daemon = \"osd\", option = \"x\" } }",
            "missing field `is`",
        ),
    ] {
        let text = GOOD.replace(good, bad);
        assert_ne!(text, GOOD, "{good}");
        let error = read(&text).unwrap_err().to_string();
        assert!(error.contains(said), "{bad}: {error}");
    }
}

#[test]
fn an_id_is_of_one_risk() {
    let site = || read(GOOD).unwrap();
    assert_eq!(merge(vec![("a".to_owned(), site())]).unwrap().len(), 1);
    let error = merge(vec![("a.toml".to_owned(), site()), ("b.toml".to_owned(), site())]).unwrap_err();
    let said = "two risks are called \"site-1\", in a.toml and in b.toml: each needs an id of its own";
    assert_eq!(error.to_string(), said);
    let text = format!("{GOOD}{}", GOOD.split_once("version = 1").unwrap().1);
    merge(vec![("a".to_owned(), read(&text).unwrap())]).unwrap_err();
}

/// What the condition comes to where each daemon of these is known to be there, or known not to be; others are unknown.
fn of(condition: &RiskCondition, there: &BTreeMap<String, bool>) -> Option<bool> {
    match condition {
        RiskCondition::Daemon(kind) => there.get(kind).copied(),
        RiskCondition::All(parts) => {
            let parts: Vec<_> = parts.iter().map(|part| of(part, there)).collect();
            match parts {
                parts if parts.contains(&Some(false)) => Some(false),
                parts if parts.contains(&None) => None,
                _ => Some(true),
            }
        }
        RiskCondition::Any(parts) => {
            let parts: Vec<_> = parts.iter().map(|part| of(part, there)).collect();
            match parts {
                parts if parts.contains(&Some(true)) => Some(true),
                parts if parts.contains(&None) => None,
                _ => Some(false),
            }
        }
        RiskCondition::Not(part) => of(part, there).map(|holds| !holds),
        RiskCondition::Health(code) => there.get(code).copied(),
        RiskCondition::Pool(_) | RiskCondition::Setting(_) | RiskCondition::Metadata(_) => None,
    }
}

fn conditions() -> impl Strategy<Value = RiskCondition> {
    let leaf = prop_oneof![
        "[a-c]".prop_map(RiskCondition::Daemon),
        // Of health nobody could tell.
        "[x-z]".prop_map(RiskCondition::Health),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let several = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            several().prop_map(RiskCondition::All),
            several().prop_map(RiskCondition::Any),
            inner
                .clone()
                .prop_map(|inner| RiskCondition::Not(Box::new(inner))),
        ]
    })
}

proptest! {
    /// What is unknown stays unknown unless the rest decides, whatever it will turn out to be.
    #[test]
    fn unknown_is_never_taken_for_a_no(condition in conditions(), a in any::<bool>(), b in any::<bool>(), c in any::<bool>()) {
        let there = BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b), ("c".to_owned(), c)]);
        let present = there.iter().filter(|(_, there)| **there).map(|(kind, _)| (kind.clone(), 1)).collect();
        let mut cluster = RiskFacts::unknown("nobody may look");
        cluster.daemons = ClusterAnswer::Yes(present);
        let expected = of(&condition, &there);
        let holds = |cluster: &RiskFacts| match condition.holds(cluster) {
            Holds::Yes(_) => Some(true),
            Holds::No(_) => Some(false),
            Holds::Unknown(why) => {
                assert_eq!(why, "nobody may look");
                None
            }
        };
        prop_assert_eq!(holds(&cluster), expected);
        // A yes or a no stands whatever the health is.
        if let Some(answer) = expected {
            for codes in [&[][..], &["x"], &["x", "y", "z"]] {
                cluster.health = ClusterAnswer::Yes(codes.iter().map(|code| (*code).to_owned()).collect::<BTreeSet<_>>());
                prop_assert_eq!(holds(&cluster), Some(answer));
            }
        }
    }

    /// Whatever stands in a file, reading it ends with risks or with a reason.
    #[test]
    fn no_text_is_too_odd_to_be_refused(text in "\\PC{0,200}") {
        let _read = read(&format!("version = 1\n{text}"));
    }
}
