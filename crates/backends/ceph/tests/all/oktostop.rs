//! Our `ok-to-stop` against answers recorded from real clusters.

use crate::cluster::{fixture, text};
use stagger_ceph::facts::pg::{PgId, PgMap};
use stagger_ceph::oktostop::{Agreement, Maps, NoSuchOsd, OkToStopAnswer, compare, load, report};

/// Recorded questions, with the file of the answer, on a map where all groups were active and clean.
const RECORDED: &[(&str, &[u32], &str)] = &[
    ("16.2.15", &[0], "osd_ok_to_stop_0"),
    ("16.2.15", &[0, 2, 4], "osd_ok_to_stop_0_2_unsafe"),
    ("16.2.15", &[0, 1, 2, 3, 4, 5], "osd_ok_to_stop_all"),
    ("18.2.7", &[0], "osd_ok_to_stop_0"),
    ("18.2.7", &[0, 2, 4], "osd_ok_to_stop_0_2_4"),
    ("18.2.7", &[0, 1], "osd_ok_to_stop_0___max_4"),
];

#[test]
fn answers_are_those_of_16_and_18() {
    for (version, set, file) in RECORDED {
        let maps = load(&fixture(version)).unwrap();
        let oracle = maps.oracle();
        let ours = oracle.ask(set).unwrap();
        let report: serde_json::Value = serde_json::to_value(report(&ours, None)).unwrap();
        let recorded: serde_json::Value =
            serde_json::from_str(&text(&format!("{version}/{file}.json"))).unwrap();
        assert_eq!(report, recorded, "{version} {file}");
        let theirs = OkToStopAnswer::read(recorded.to_string().as_bytes(), file).unwrap();
        assert_eq!(
            compare(&oracle, &ours, &theirs),
            Agreement::Same,
            "{version} {file}"
        );
    }
}

#[test]
fn the_order_of_the_fields_is_ceph_s() {
    let maps = load(&fixture("18.2.7")).unwrap();
    let ours = serde_json::to_string(&report(&maps.oracle().ask(&[0, 2, 4]).unwrap(), None)).unwrap();
    assert_eq!(ours, text("18.2.7/osd_ok_to_stop_0_2_4.json").trim());
}

#[test]
fn the_largest_set_is_at_least_ceph_s() {
    for (version, seed, max, file) in [
        ("16.2.15", 0, 4, "osd_ok_to_stop_0_max4"),
        ("16.2.15", 0, 20, "osd_ok_to_stop_0_max20"),
        ("18.2.7", 0, 4, "osd_ok_to_stop_0___max_4"),
    ] {
        let maps = load(&fixture(version)).unwrap();
        let oracle = maps.oracle();
        let theirs = OkToStopAnswer::read(text(&format!("{version}/{file}.json")).as_bytes(), file).unwrap();
        let ours = oracle.largest(&[seed], max).unwrap();
        assert_eq!(ours.by_ceph_walk as usize, theirs.osds.len(), "{version} {file}");
        assert!(ours.verdict.ok() && ours.verdict.osds.contains(&seed));
        let size = ours.verdict.osds.len() as u32;
        assert!(
            ours.by_ceph_walk <= size && size <= ours.upper_bound && size <= max,
            "{ours:?}"
        );
        nothing_can_be_added(&maps, &ours.verdict.osds, max);
    }
}

fn nothing_can_be_added(maps: &Maps, set: &[u32], max: u32) {
    if set.len() as u32 == max {
        return;
    }
    for osd in maps.osds.osds.keys().filter(|osd| !set.contains(osd)) {
        let more: Vec<u32> = set.iter().copied().chain([*osd]).collect();
        assert!(
            !maps.oracle().ask(&more).unwrap().ok(),
            "osd.{osd} could be added to {set:?}"
        );
    }
}

#[test]
fn what_20_2_4_approves_wrongly_is_refused_with_proof() {
    let folder = fixture("20.2.4/bug");
    let read = |name: &str| std::fs::File::open(folder.join(name)).unwrap();
    let mut maps = load(&fixture("20.2.4")).unwrap();
    maps.pgs = PgMap::read(read("pgs_brief_before.json"), "before").unwrap();
    let ours = maps.oracle().ask(&[1, 6]).unwrap();
    assert!(!ours.ok());
    let theirs =
        OkToStopAnswer::read(text("20.2.4/bug/ok_to_stop_1_6.json").as_bytes(), "ok-to-stop").unwrap();
    let Agreement::TheyApprove { proofs } = compare(&maps.oracle(), &ours, &theirs) else {
        panic!("the disagreement was not seen");
    };
    let proofs: Vec<String> = proofs.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(proofs.join("\n"));

    // What happened when the two were stopped: each group that we named had stopped serving.
    let after = PgMap::read(read("pgs_brief_after.json"), "after").unwrap();
    for id in ours.blocking_groups() {
        let pg = after.at(after.find(id).unwrap());
        assert!(!pg.state.to_string().contains("active"), "{id} was {}", pg.state);
    }
    let theirs = OkToStopAnswer::read(text("20.2.4/bug/ok_to_stop_0.json").as_bytes(), "ok-to-stop").unwrap();
    let ours = maps.oracle().ask(&[0]).unwrap();
    let Agreement::SameVerdict {
        they_passed_over,
        we_passed_over,
    } = compare(&maps.oracle(), &ours, &theirs)
    else {
        panic!("both approve, for different groups");
    };
    assert_eq!((they_passed_over.len(), we_passed_over.len()), (12, 0));
}

#[test]
fn an_osd_that_does_not_exist_is_refused_by_name() {
    let maps = load(&fixture("16.2.15")).unwrap();
    let error = maps.oracle().ask(&[0, 99]).unwrap_err();
    assert_eq!(
        error,
        NoSuchOsd {
            id: 99,
            nearest: vec![5, 4, 3]
        }
    );
    assert_eq!(
        error.to_string(),
        "there is no osd.99; the nearest are osd.5, osd.4, osd.3"
    );
}

#[test]
fn one_unknown_group_forbids_everything() {
    let mut maps = load(&fixture("18.2.7")).unwrap();
    let lost = r#"[{"pgid": "2.0", "state": "unknown", "acting": []}]"#;
    maps.pgs = maps
        .pgs
        .with(&PgMap::read_slice(lost.as_bytes(), "by hand").unwrap());
    let verdict = maps.oracle().ask(&[3]).unwrap();
    assert_eq!(verdict.unknown, [PgId { pool: 2, seed: 0 }]);
    assert!(!verdict.ok());
}

/// One pool of size 3 and `min_size` 2 with one group, and four OSDs.
fn small(state: &str, acting: &str, complete: &str, down: &[u32]) -> Maps {
    let osds: Vec<_> = (0..4)
        .map(|id| serde_json::json!({ "osd": id, "up": u8::from(!down.contains(&id)), "in": 1 }))
        .collect();
    let dump = serde_json::json!({
        "epoch": 1, "fsid": "f", "osds": osds,
        "pools": [{ "pool": 1, "pool_name": "p", "type": 1, "size": 3, "min_size": 2, "pg_num": 1 }],
    });
    let pg = format!(
        r#"[{{"pgid": "1.0", "state": "{state}", "acting": {acting}, "avail_no_missing": {complete}}}]"#
    );
    Maps {
        pgs: PgMap::read_slice(pg.as_bytes(), "by hand").unwrap(),
        osds: stagger_ceph::facts::osd::OsdMap::read(dump.to_string().as_bytes(), "by hand").unwrap(),
        tree: stagger_ceph::facts::tree::CrushTree::default(),
    }
}

#[test]
fn what_ceph_passes_over_is_refused_apart() {
    for (why, maps, set) in [
        (
            "only incomplete members are asked about, and too few would be left",
            small("active+recovery_wait+degraded", "[0, 1, 2]", r#"["0"]"#, &[]),
            vec![1, 2],
        ),
        (
            "no member is complete",
            small("active+recovery_wait+degraded", "[0, 1, 2]", "[]", &[]),
            vec![1],
        ),
        (
            "the report is older than the loss of osd.2",
            small("active+clean", "[0, 1, 2]", "[]", &[2]),
            vec![1],
        ),
        (
            "the report is stale",
            small("stale+active+clean", "[0, 1, 2]", "[]", &[]),
            vec![1],
        ),
    ] {
        let verdict = maps.oracle().ask(&set).unwrap();
        assert!(verdict.ok_by_ceph_rules() && !verdict.ok(), "{why}: {verdict:?}");
        assert_eq!(verdict.also_unsafe.len(), 1, "{why}");
    }
    let fine = small("active+recovery_wait+degraded", "[0, 1, 2]", r#"["0", "1"]"#, &[]);
    assert!(fine.oracle().ask(&[2]).unwrap().ok(), "osd.2 is not needed");
    assert!(!fine.oracle().ask(&[1]).unwrap().ok());
}
