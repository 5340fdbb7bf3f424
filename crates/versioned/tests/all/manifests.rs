//! What a manifest must be, and which release may follow which.

use std::collections::BTreeMap;

use stagger_versioned::manifest::{Declared, Fault, Permitted, Step, Versions, Why};
use stagger_versioned::{Manifest, Version};

use crate::ironic::{MANIFEST, declared, manifest, registry};

fn faults(change: impl FnOnce(&mut Declared)) -> Vec<String> {
    let mut declared = declared();
    change(&mut declared);
    let faults = Manifest::new(declared).unwrap_err().0;
    faults.iter().map(ToString::to_string).collect()
}

fn one(text: &str) -> Versions {
    text.parse::<Version>().unwrap().into()
}

#[test]
fn a_good_manifest_is_read_and_written_again() {
    let manifest = manifest();
    assert_eq!(manifest.label(manifest.current()), "unreleased");
    let written = toml::to_string(&declared()).unwrap();
    assert_eq!(toml::from_str::<Declared>(&written).unwrap(), declared());
    registry().check(&manifest).unwrap();
}

#[test]
fn the_manifest_of_the_guide_is_one() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/versioned.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let written = guide
        .split("```toml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let manifest = Manifest::new(toml::from_str(written).unwrap()).unwrap();
    assert_eq!(
        step(&manifest, "newton", "6.3").map(|permitted| permitted.step),
        Ok(Step::Next)
    );
    let refused = step(&manifest, "newton", "master").unwrap_err();
    assert!(
        refused.ends_with("6.3 repairs what 6.2 wrote; first to 6.3"),
        "{refused}"
    );
}

#[test]
fn unknown_keys_are_refused() {
    let error = toml::from_str::<Declared>(&MANIFEST.replace("rpc =", "rcp =")).unwrap_err();
    assert!(error.to_string().contains("unknown field `rcp`"), "{error}");
}

#[test]
fn releases_are_found_by_number_name_and_patch() {
    let manifest = manifest();
    let label = |asked: &str| {
        let named = manifest.find(asked).unwrap();
        (manifest.label(named.place), named.patch)
    };
    assert_eq!(label("newton"), ("newton".to_owned(), None));
    assert_eq!(label("6.2"), ("newton".to_owned(), None));
    assert_eq!(label("6.2.3"), ("newton".to_owned(), Some(3)));
    assert_eq!(label("6.3"), ("6.3".to_owned(), None));
    assert_eq!(label("2017.1"), ("ocata".to_owned(), None));
    assert_eq!(label("master"), ("unreleased".to_owned(), None));
    for (asked, said) in [
        (
            "newtown",
            "there is no release \"newtown\"; the nearest is newton",
        ),
        ("6.2.x", "there is no release \"6.2.x\"; the nearest is 6.2"),
        ("", "there is no release \"\"; known are: mitaka, 5.1,"),
        ("6.2.3.4", "there is no release \"6.2.3.4\""),
        ("99.0.1", "there is no release \"99.0.1\""),
    ] {
        let error = manifest.find(asked).unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}");
        assert!(
            error.ends_with(
                "known are: mitaka, 5.1, newton, 6.2, 6.3, ocata, 2017.1, 7.0, master, unreleased"
            ),
            "{error}"
        );
    }
}

/// D11 of Ironic: the first of a list was taken as the highest, as long as a person had sorted it.
#[test]
fn the_highest_of_several_versions_is_written_whatever_their_order() {
    let manifest = manifest();
    let place = manifest.find("6.3").unwrap().place;
    assert_eq!(manifest.writes(place, "Node"), Some(Version::new(1, 15)));
    assert_eq!(manifest.writes(place, "Trait"), Some(Version::new(1, 1)));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list")]
fn each_fault_is_named() {
    for (change, said) in [
        (
            Box::new(|d: &mut Declared| d.current = "pike".to_owned()) as Box<dyn FnOnce(&mut Declared)>,
            "current names \"pike\", and there is no such release",
        ),
        (
            Box::new(|d| d.current = "ocata".to_owned()),
            "the current release is ocata, but unreleased is newer: code cannot know what comes after it",
        ),
        (
            Box::new(|d| d.releases[1].names.push("mitaka".to_owned())),
            "\"mitaka\" names two releases",
        ),
        (
            Box::new(|d| d.releases[1].names.push("9.1.1".to_owned())),
            "\"9.1.1\" cannot be a name: it reads like the number of a release",
        ),
        (
            Box::new(|d| d.releases[2].number = "6.1".parse().unwrap()),
            "6.1 stands after newton, but its number is not later",
        ),
        (
            Box::new(|d| d.releases[2].date = "2016-01-01".parse().unwrap()),
            "6.3 stands after newton, but its date is not later",
        ),
        (
            Box::new(|d| d.releases[2].api = Version::new(1, 9)),
            "the API is 1.9 in 6.3 and was 1.22 before: versions only grow",
        ),
        (
            Box::new(|d| d.releases[2].rpc = Version::new(1, 32)),
            "the RPC is 1.32 in 6.3 and was 1.33 before: versions only grow",
        ),
        (
            Box::new(|d| drop(d.releases[3].objects.insert("Node".to_owned(), one("1.14")))),
            "Node is 1.14 in ocata and was 1.15 before: versions only grow",
        ),
        (
            Box::new(|d| {
                drop(d.releases[3].objects.insert("Node".to_owned(), one("2.0")));
                drop(
                    d.unreleased
                        .as_mut()
                        .unwrap()
                        .objects
                        .insert("Node".to_owned(), one("2.1")),
                );
            }),
            "Node changes its major, 1.15 to 2.0 in ocata: no service reads both",
        ),
        (
            Box::new(|d| {
                drop(
                    d.unreleased
                        .as_mut()
                        .unwrap()
                        .objects
                        .insert("Node".to_owned(), one("1.18")),
                );
            }),
            "Node 1.16 stands in no release, though lower and higher ones do",
        ),
        (
            Box::new(|d| drop(d.releases[3].objects.remove("Trait"))),
            "Trait is missing in ocata, and it was not deprecated: list it, or deprecate it with the release that removes it",
        ),
        (
            Box::new(|d| {
                drop(
                    d.releases[3]
                        .objects
                        .insert("Port".to_owned(), serde_json::from_str("[]").unwrap()),
                );
            }),
            "Port has no version in ocata",
        ),
        (
            Box::new(|d| d.deprecations[0].object = "Chassis".to_owned()),
            "a deprecation names \"Chassis\", and there is no such object",
        ),
        (
            Box::new(|d| d.deprecations[0].release = "pike".to_owned()),
            "a deprecation names \"pike\", and there is no such release",
        ),
        (
            Box::new(|d| d.deprecations[0].release = "master".to_owned()),
            "Node.extra may not be gone in unreleased: no named release has come since it was deprecated in unreleased",
        ),
        (
            Box::new(|d| {
                d.deprecations[0].release = "newton".to_owned();
                d.deprecations[0].removed = Some("6.3".to_owned());
            }),
            "Node.extra may not be gone in 6.3: three months are not over before 2017-01-06",
        ),
        (
            Box::new(|d| {
                d.jumps =
                    toml::from_str::<BTreeMap<String, Vec<_>>>("j = [{ from = \"ocata\", to = \"mitaka\" }]")
                        .unwrap()
                        .remove("j")
                        .unwrap();
            }),
            "a jump does not lead forward: ocata to mitaka",
        ),
        (
            Box::new(|d| {
                d.stops = toml::from_str::<BTreeMap<String, Vec<_>>>(
                    "s = [{ from = \"ocata\", first = \"newton\", why = \"\" }]",
                )
                .unwrap()
                .remove("s")
                .unwrap();
            }),
            "a stop does not lead forward: ocata to newton",
        ),
    ] {
        let found = faults(change);
        assert!(
            found.iter().any(|fault| fault == said),
            "{said}\n  is not among\n{found:#?}"
        );
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let found = faults(|d| {
        d.current = "pike".to_owned();
        d.releases[2].rpc = Version::new(1, 32);
        d.deprecations[0].object = "Chassis".to_owned();
    });
    assert_eq!(found.len(), 3, "{found:#?}");
}

#[test]
fn an_empty_manifest_is_none() {
    let empty: Declared = toml::from_str("current = \"1.0\"").unwrap();
    assert_eq!(Manifest::new(empty).unwrap_err().0, [Fault::Empty]);
}

#[test]
fn an_object_may_go_when_its_time_has_come() {
    let mut declared = declared();
    let gone = "d = [{ object = \"Trait\", release = \"mitaka\", removed = \"ocata\" }]";
    let mut gone: BTreeMap<String, Vec<_>> = toml::from_str(gone).unwrap();
    declared.deprecations.append(gone.get_mut("d").unwrap());
    declared.releases[3].objects.remove("Trait");
    declared.unreleased.as_mut().unwrap().objects.remove("Trait");
    Manifest::new(declared).unwrap();
}

fn step(manifest: &Manifest, from: &str, to: &str) -> Result<Permitted, String> {
    let (from, to) = (manifest.find(from).unwrap(), manifest.find(to).unwrap());
    manifest.upgrade(from, to).map_err(|refused| refused.to_string())
}

#[test]
fn upgrades_reach_as_far_as_the_next_named_release() {
    let manifest = manifest();
    for (from, to, expected) in [
        ("mitaka", "mitaka", Step::Nothing),
        ("6.2.1", "6.2.4", Step::Patch),
        ("newton", "6.2.4", Step::Patch),
        ("mitaka", "newton", Step::Next),
        ("newton", "6.3", Step::Next),
        ("newton", "ocata", Step::Next),
        ("6.3", "7.0.2", Step::Next),
        ("ocata", "master", Step::Unreleased),
    ] {
        assert_eq!(
            step(&manifest, from, to).map(|p| p.step),
            Ok(expected),
            "{from} to {to}"
        );
    }
    for (from, to, said) in [
        (
            "mitaka",
            "ocata",
            "mitaka cannot be upgraded to ocata while services run: named releases lie between; first to newton",
        ),
        (
            "mitaka",
            "6.3",
            "mitaka cannot be upgraded to 6.3 while services run: named releases lie between; first to newton",
        ),
        (
            "newton",
            "master",
            "newton cannot be upgraded to unreleased while services run: named releases lie between; first to ocata",
        ),
        (
            "ocata",
            "newton",
            "ocata cannot be upgraded to newton while services run: newton is older, and data is not converted back",
        ),
        (
            "6.2.4",
            "6.2.3",
            "6.2.4 cannot be upgraded to 6.2.3 while services run: 6.2.3 is older, and data is not converted back",
        ),
    ] {
        assert_eq!(step(&manifest, from, to).unwrap_err(), said);
    }
}

#[test]
fn the_newest_patch_comes_first() {
    let manifest = manifest();
    assert_eq!(
        step(&manifest, "6.2.3", "ocata").unwrap().patch_first.as_deref(),
        Some("6.2.4")
    );
    assert_eq!(step(&manifest, "6.2.4", "ocata").unwrap().patch_first, None);
    assert_eq!(step(&manifest, "6.2.3", "6.2.4").unwrap().patch_first, None);
    assert_eq!(step(&manifest, "newton", "ocata").unwrap().patch_first, None);
}

#[test]
fn jumps_are_permitted_and_stops_are_made() {
    let more = "\n[[jump]]\nfrom = \"mitaka\"\nto = \"ocata\"\n";
    let jumps = Manifest::new(toml::from_str(&format!("{MANIFEST}{more}")).unwrap()).unwrap();
    assert_eq!(step(&jumps, "mitaka", "ocata").unwrap().step, Step::Jump);
    assert_eq!(
        step(&jumps, "mitaka", "master").unwrap_err(),
        "mitaka cannot be upgraded to unreleased while services run: named releases lie between; first to ocata"
    );

    // A feature came with 6.3 and is withdrawn in master; ocata knows how to get rid of it.
    let stop = "\n[[stop]]\nfrom = \"6.2\"\nuntil = \"6.3\"\nfirst = \"6.3\"\nwhy = \"6.3 repairs what 6.2 wrote\"\n";
    let error = Manifest::new(toml::from_str(&format!("{MANIFEST}{stop}")).unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the manifest of releases is wrong:\n  a stop does not lead forward: 6.3 to 6.3"
    );
    let stop = stop.replace("until = \"6.3\"\n", "");
    let stops = Manifest::new(toml::from_str(&format!("{MANIFEST}{stop}")).unwrap()).unwrap();
    let refused = stops
        .upgrade(stops.find("newton").unwrap(), stops.find("ocata").unwrap())
        .unwrap_err();
    assert_eq!(refused.why, Why::Stop("6.3 repairs what 6.2 wrote".to_owned()));
    assert_eq!(
        refused.to_string(),
        "newton cannot be upgraded to ocata while services run: 6.3 repairs what 6.2 wrote; first to 6.3"
    );
    assert_eq!(step(&stops, "newton", "6.3").unwrap().step, Step::Next);
    assert_eq!(step(&stops, "6.3", "ocata").unwrap().step, Step::Next);
}

#[test]
fn the_code_has_what_the_manifest_lists_and_no_more() {
    let check = |change: fn(&mut Declared)| {
        let mut declared = declared();
        change(&mut declared);
        registry()
            .check(&Manifest::new(declared).unwrap())
            .unwrap_err()
            .to_string()
    };
    let said = check(|d| {
        drop(d.releases[3].objects.remove("Port"));
        drop(d.unreleased.as_mut().unwrap().objects.remove("Port"));
    });
    assert!(
        said.contains("the code has Port, and unreleased, the current release, does not list it"),
        "{said}"
    );
}

#[test]
fn a_version_without_code_is_found() {
    let mut declared = declared();
    let both: Versions = serde_json::from_str(r#"["1.16", "1.17"]"#).unwrap();
    declared
        .unreleased
        .as_mut()
        .unwrap()
        .objects
        .insert("Node".to_owned(), both);
    let said = registry()
        .check(&Manifest::new(declared).unwrap())
        .unwrap_err()
        .to_string();
    assert_eq!(
        said,
        "the manifest of releases is wrong:\n  \
         the newest Node in the code is 1.16, and unreleased, the current release, lists 1.17\n  \
         unreleased lists Node 1.17, and the code has no such version"
    );
}

/// D1 of Ironic, as the manifest sees it: a release whose nodes carry traits that it does not know.
#[test]
fn an_object_may_only_carry_what_its_release_lists() {
    let mut declared = declared();
    declared.releases[2]
        .objects
        .insert("Trait".to_owned(), one("1.0"));
    declared.releases[3]
        .objects
        .insert("Trait".to_owned(), one("1.0"));
    let said = registry()
        .check(&Manifest::new(declared).unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("Node 1.15 of ocata carries Trait 1.1, which ocata does not list"),
        "{said}"
    );
}
