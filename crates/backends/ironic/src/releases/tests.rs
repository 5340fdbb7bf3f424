use super::*;

fn place(text: &str) -> Place {
    Releases::built_in().find(text).unwrap().place
}

#[test]
fn the_table_is_read_and_answers_as_ironic_was_seen_to() {
    let table = Releases::built_in();
    let (old, new) = (place("26.1.6"), place("2025.1"));
    assert_eq!(
        (table.name(old), table.number(old)),
        ("2024.2".to_owned(), "26.1".to_owned())
    );
    // A pinned new API cannot be told from an old one.
    assert_eq!(table.api(new, Some(old)), table.api(old, None));
    assert_eq!(table.api(new, None).to_string(), "1.96");
    assert_eq!(table.rpc(place("35.0"), None).to_string(), "1.62");
    let rows = |release, pin| table.writes(place(release), pin)["nodes"].to_string();
    assert_eq!(rows("29.0", Some(old)), "1.40");
    assert_eq!(rows("29.0", None), "1.41");
    assert_eq!(
        table.conductor_row(place("32.0"), Some(new)).unwrap().to_string(),
        "1.4"
    );
    assert_eq!(
        table.conductor_row(place("32.0"), None).unwrap().to_string(),
        "1.6"
    );
    assert_eq!(table.head(new).as_deref(), Some("21c48150dea9"));
    assert_eq!(table.head(place("24.1")), None);
    // A table that the old release did not have is written as the new one has it.
    assert_eq!(
        table.writes(new, Some(old))["inspection_rules"].to_string(),
        "1.0"
    );
}

#[test]
fn d11_the_highest_version_that_a_release_lists_is_the_one_that_it_writes() {
    let declared: Declared = toml::from_str(TABLE).unwrap();
    let (table, mut several) = (Releases::built_in(), 0);
    for release in declared.releases {
        let written = table.objects(place(&release.number.to_string()), None);
        for (object, versions) in release.objects {
            assert_eq!(Some(written[&object]), versions.iter().max(), "{object}");
            several += usize::from(versions.iter().count() > 1);
        }
    }
    assert!(several > 10, "only {several} have several versions");
}

#[test]
fn which_release_may_follow_which() {
    let table = Releases::built_in();
    let upgrade = |from: &str, to: &str| table.upgrade(table.find(from).unwrap(), table.find(to).unwrap());
    for (from, to) in [
        ("26.1.6", "29.0.6"),
        ("29.0", "32.0.1"),
        ("2024.1", "2025.1"),
        ("29.0.1", "29.0.6"),
    ] {
        assert!(upgrade(from, to).is_ok(), "{from} to {to}");
    }
    for (from, to, first) in [
        ("26.1", "32.0", Some("2025.1")),
        ("2023.1", "2025.1", Some("2024.1")),
        ("29.0", "26.1", None),
    ] {
        let refused = upgrade(from, to).unwrap_err();
        assert_eq!(refused.first.as_deref(), first, "{refused}");
    }
}

#[test]
fn pins_are_those_that_the_code_lists() {
    let table = Releases::built_in();
    let old = place("2025.2");
    assert_eq!(table.pin(place("35.0"), "2025.2"), Some(old));
    assert_eq!(table.pin(place("32.0"), "2025.2"), None, "forgotten in 32.0");
    assert_eq!(table.pin(place("32.0"), "32.0"), Some(old));
    for not in ["35.0", "29.0.6", "bogus", ""] {
        assert_eq!(table.pin(place("32.0"), not), None, "{not:?}");
    }
    assert!(table.renames(place("21.4"), place("23.0")));
    assert!(!table.renames(place("26.1"), place("29.0")));
}

/// As its own code said.
fn code(said: &str) -> ReleaseCode {
    serde_json::from_str(said).unwrap()
}

const OF_39: &str = include_str!("../code/39.0.0.json");
const OF_32: &str = include_str!("../code/32.0.1.json");

#[test]
fn the_code_of_39_lists_what_this_program_does_not_know() {
    let table = Releases::built_in();
    assert!(table.find("39.0.0").is_err());
    let table = table.with(&code(OF_39)).unwrap();
    let find = |text: &str| table.find(text).unwrap();
    let newest = find("39.0.0").place;
    assert_eq!(
        (table.name(newest), table.number(newest)),
        ("2026.2".to_owned(), "39.0".to_owned())
    );
    assert_eq!(table.api(newest, None).to_string(), "1.115");
    assert_eq!(table.head(newest).as_deref(), Some("9fb44677ef15"));
    // Another's head is not its own.
    assert_eq!(table.head(find("36.0").place), None);
    let writes = table.writes(newest, Some(find("35.0").place));
    assert_eq!(writes["node_history"].to_string(), "1.1");
    // A table of which this program has never heard.
    assert_eq!(writes["runbook_traits"].to_string(), "1.0");
    let place = |text: &str| find(text).place;
    assert_eq!(table.pin(newest, "2025.2"), Some(place("32.0")));
    assert_eq!(table.pin(newest, "36.0"), Some(place("36.0")));
    // By that name stagger knows it, and the code does not.
    assert_eq!(table.pin(newest, "flamingo"), None);
}

#[test]
fn named_and_intermediate_releases_follow_each_other_by_the_rules_of_openstack() {
    let table = Releases::built_in().with(&code(OF_39)).unwrap();
    let upgrade = |from: &str, to: &str| table.upgrade(table.find(from).unwrap(), table.find(to).unwrap());
    for (from, to) in [
        ("35.0.1", "39.0.0"),
        ("29.0.6", "35.0.1"),
        // Named to intermediate, and intermediate to named.
        ("35.0.1", "36.0.0"),
        ("33.0.0", "35.0.1"),
        ("36.0.0", "39.0.0"),
    ] {
        assert!(upgrade(from, to).is_ok(), "{from} to {to}");
    }
    for (from, to, first) in [
        ("29.0.6", "39.0.0", "2026.1"),
        ("32.0.1", "39.0.0", "2026.1"),
        ("34.0.0", "36.0.0", "2026.1"),
    ] {
        let refused = upgrade(from, to).unwrap_err();
        assert_eq!(refused.first.as_deref(), Some(first), "{refused}");
    }
}

#[test]
fn what_a_code_lists_of_itself_goes_before_what_this_program_has_written_down() {
    let table = Releases::built_in().with(&code(OF_32)).unwrap();
    let own = table.find("32.0.1").unwrap().place;
    // Its name was added later.
    assert_eq!(table.name(own), "2025.2");
    assert_eq!(table.pin(own, "2025.2"), None);
    assert_eq!(table.pin(own, "32.0"), Some(own));
    assert_eq!(table.head(own).as_deref(), Some("3ef27505c9fb"));
    // What comes after it is known by ourselves.
    assert!(table.has("35.0.1"));
}

#[test]
fn this_program_has_written_down_what_the_codes_list() {
    let known = Releases::built_in();
    for said in [OF_39, OF_32] {
        let table = known.with(&code(said)).unwrap();
        for place in known.manifest.places() {
            let number = known.number(place);
            let of_code = table.find(&number).unwrap().place;
            let all = |table: &Releases, place| {
                (
                    table.api(place, None),
                    table.rpc(place, None),
                    table.objects(place, None),
                )
            };
            assert_eq!(all(&table, of_code), all(&known, place), "{number}");
        }
    }
}

#[test]
fn what_is_known_to_fail_is_known_by_versions() {
    let table = Releases::built_in().with(&code(OF_39)).unwrap();
    let place = |text: &str| table.find(text).unwrap().place;
    for (from, to, fails) in [
        ("29.0", "32.0", true),
        ("29.0", "35.0", true),
        ("26.1", "29.0", false),
        ("35.0", "39.0", false),
    ] {
        assert_eq!(
            table.fails(place(from), place(to)).is_some(),
            fails,
            "{from} to {to}"
        );
    }
    assert!(!table.check_crashes(place("26.1"), place("29.0")).is_empty());
    assert!(table.check_crashes(place("35.0"), place("39.0")).is_empty());
}

#[test]
fn an_object_that_a_later_code_has_no_more_is_forgotten() {
    let mut code = code(OF_39);
    let own = code
        .releases
        .iter_mut()
        .find(|listed| listed.names[0] == "39.0")
        .unwrap();
    own.objects.remove("VolumeTarget");
    let table = Releases::built_in().with(&code).unwrap();
    let old = table.find("35.0").unwrap().place;
    assert!(!table.writes(old, None).contains_key("volume_targets"));
}

#[test]
fn a_stable_branch_grows_in_its_second_number_and_stays_its_release() {
    let table = Releases::built_in();
    let named = |text: &str| table.find(text).unwrap();
    assert_eq!(named("29.1.0").place, named("29.0").place);
    for (from, to) in [("29.0.6", "29.1.0"), ("29.1.0", "29.1.2"), ("29.1.0", "32.1.0")] {
        assert!(table.upgrade(named(from), named(to)).is_ok(), "{from} to {to}");
    }
    let refused = table.upgrade(named("29.1.0"), named("29.0.6")).unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("29.1.0 cannot be upgraded to 29.0.6"),
        "{refused}"
    );
    for not in ["29.1", "30.1.0", "29.1.0.1", "29.x.0"] {
        assert!(table.find(not).is_err(), "{not}");
    }
    // 39.1.0 has not been made; its code would list what 39.0.0 lists.
    let mut code = code(OF_39);
    code.version = "39.1.0".to_owned();
    let table = Releases::built_in().with(&code).unwrap();
    let own = table.find("39.1.0").unwrap().place;
    assert_eq!(
        (table.number(own), table.head(own)),
        ("39.0".to_owned(), Some("9fb44677ef15".to_owned()))
    );
}

#[test]
fn a_code_that_has_forgotten_itself_is_what_comes_after_all_that_it_lists() {
    // As 36.0.0 was.
    let mut code = code(OF_39);
    code.version = "39.0.0".to_owned();
    code.releases.retain(|listed| listed.names[0] != "39.0");
    let table = Releases::built_in().with(&code).unwrap();
    let own = table.find("39.0.0").unwrap().place;
    assert_eq!(
        (table.name(own), table.api(own, None).to_string()),
        ("39.0".to_owned(), "1.115".to_owned())
    );
    assert_eq!(table.pin(own, "39.0"), None);
}
