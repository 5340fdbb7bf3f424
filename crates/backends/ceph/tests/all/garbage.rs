//! Parsers on answers that were cut off or changed: an error that says of what, and never a panic.

use proptest::prelude::*;
use stagger_ceph::facts::health::{Health, read_crashes};
use stagger_ceph::facts::mds::FsMap;
use stagger_ceph::facts::mgr::MgrMap;
use stagger_ceph::facts::mon::Quorum;
use stagger_ceph::facts::osd::{self, OsdMap};
use stagger_ceph::facts::pg::PgMap;
use stagger_ceph::facts::rgw::CephStatus;
use stagger_ceph::facts::tree::CrushTree;
use stagger_ceph::facts::versions::DaemonVersions;
use stagger_ceph::facts::{ParseError, read_metadata};
use stagger_ceph::oktostop::OkToStopAnswer;

use crate::cluster::text;

type Parser = fn(&[u8]) -> Result<(), ParseError>;

const PARSERS: &[(&str, Parser)] = &[
    ("16.2.15/osd_dump.json", |b| OsdMap::read(b, "it").map(drop)),
    ("16.2.15/osd_tree.json", |b| CrushTree::read(b, "it").map(drop)),
    ("16.2.15/osd_metadata.json", |b| {
        osd::read_metadata(b, "it").map(drop)
    }),
    ("16.2.15/pg_dump.json", |b| PgMap::read(b, "it").map(drop)),
    ("16.2.15/pg_dump_pgs_brief.json", |b| {
        PgMap::read_slice(b, "it").map(drop)
    }),
    ("20.2.4/quorum_status.json", |b| Quorum::read(b, "it").map(drop)),
    ("16.2.15/mon_metadata.json", |b| read_metadata(b, "it").map(drop)),
    ("20.2.4/mgr_dump.json", |b| MgrMap::read(b, "it").map(drop)),
    ("16.2.15/fs_dump.json", |b| FsMap::read(b, "it").map(drop)),
    ("20.2.4/status.json", |b| CephStatus::read(b, "it").map(drop)),
    ("20.2.4/health_detail.json", |b| Health::read(b, "it").map(drop)),
    ("20.2.4/versions.json", |b| {
        DaemonVersions::read(b, "it").map(drop)
    }),
    ("18.2.7/osd_ok_to_stop_0_2_4.json", |b| {
        OkToStopAnswer::read(b, "it").map(drop)
    }),
    ("16.2.15/crash_ls_new.json", |b| read_crashes(b, "it").map(drop)),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn an_answer_cut_off_is_an_error(share in 0.0..0.999_f64) {
        for (name, parse) in PARSERS {
            let whole = text(name);
            let cut = whole.trim_end().len() as f64 * share;
            prop_assert!(parse(&whole.as_bytes()[..cut as usize]).is_err(), "{} at {}", name, share);
        }
    }

    #[test]
    fn changed_bytes_are_an_error_or_another_answer(at in 0.0..1.0_f64, bytes in proptest::collection::vec(any::<u8>(), 1..6)) {
        for (name, parse) in PARSERS {
            let mut changed = text(name).into_bytes();
            let start = (changed.len() as f64 * at) as usize;
            for (offset, byte) in bytes.iter().enumerate() {
                if let Some(place) = changed.get_mut(start + offset) {
                    *place = *byte;
                }
            }
            let _ = parse(&changed).is_ok();
        }
    }

    #[test]
    fn changed_numbers_are_an_error_or_another_answer(at in 0.0..1.0_f64, number in prop_oneof![Just("-1"),
        Just("0"), Just("2147483647"), Just("4294967296"), Just("18446744073709551616"), Just("1e400"), Just("null")]) {
        for (name, parse) in PARSERS {
            let whole = text(name);
            let start = (whole.len() as f64 * at) as usize;
            let Some(from) = whole[start..].find(|c: char| c.is_ascii_digit()).map(|n| n + start) else { continue };
            let end = whole[from..].find(|c: char| !c.is_ascii_digit()).map_or(whole.len(), |n| n + from);
            let _ = parse(format!("{}{number}{}", &whole[..from], &whole[end..]).as_bytes()).is_ok();
        }
    }
}

#[test]
fn errors_say_what_of_what_and_where() {
    let cases: [(&str, Parser); 8] = [
        (
            r#"{"pg_stats": [{"pgid": "2.xyz", "state": "active", "acting": []}]}"#,
            |b| PgMap::read(b, "pg dump").map(drop),
        ),
        (r#"{"pg_stats": [{"pgid": "2.1", "state": "active"}]}"#, |b| {
            PgMap::read(b, "pg dump").map(drop)
        }),
        (
            r#"{"pg_stats": [{"pgid": "2.1", "state": "active", "acting": [-1]}]}"#,
            |b| PgMap::read(b, "pg dump").map(drop),
        ),
        (r#"{"pg_ready": true}"#, |b| PgMap::read(b, "pg dump").map(drop)),
        (
            r#"[{"pgid": "2.1", "state": "active", "acting": []}, {"pgid": "2.1", "state": "active", "acting": []}]"#,
            |b| PgMap::read(b, "pg dump").map(drop),
        ),
        (
            r#"{"nodes": [{"id": -1, "name": "a", "type": "root", "children": [-1]}]}"#,
            |b| CrushTree::read(b, "osd tree").map(drop),
        ),
        (
            r#"{"epoch": 1, "fsid": "f", "pools": [], "osds": [{"osd": 2147483647, "up": 1, "in": 1}]}"#,
            |b| OsdMap::read(b, "osd dump").map(drop),
        ),
        ("[", |b| DaemonVersions::read(b, "versions").map(drop)),
    ];
    let mut seen = Vec::new();
    for (answer, parse) in cases {
        let error = parse(answer.as_bytes()).unwrap_err();
        let mut line = error.to_string();
        let mut source: Option<&dyn std::error::Error> = std::error::Error::source(&error);
        while let Some(cause) = source {
            line = format!("{line}\n  caused by: {cause}");
            source = cause.source();
        }
        seen.push(line);
    }
    insta::assert_snapshot!(seen.join("\n"));
}

/// Found by the fuzz target `saved`: asked what stands below it, such a tree never answered.
#[test]
fn a_bucket_below_itself_is_found_also_where_another_holds_it_too() {
    let tree = |children: &str| {
        let text = format!(
            r#"{{"nodes": [
                {{"id": -1, "name": "default", "type": "root", "children": [-2, -3]}},
                {{"id": -2, "name": "rack1", "type": "rack", "children": [{children}]}},
                {{"id": -3, "name": "host1", "type": "host", "children": [0]}},
                {{"id": 0, "name": "osd.0", "type": "osd", "status": "up"}}
            ]}}"#
        );
        CrushTree::read(text.as_bytes(), "osd tree")
    };
    for held in ["-2", "-1"] {
        let error = tree(held).unwrap_err();
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("bucket -2 is below itself"), "{why}");
    }
    // In two places and in no circle: it is below both.
    let two_places = tree("-3").unwrap();
    for bucket in [-1, -2, -3] {
        assert_eq!(two_places.descendants(bucket), [0].into(), "below {bucket}");
    }
}
