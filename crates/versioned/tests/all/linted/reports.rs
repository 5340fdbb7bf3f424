//! Findings for other programs, and rules explained.

use stagger_versioned::lint::{EXPLANATIONS, Linter, Releases, annotations, explain, sarif};

use super::{findings, judged, migration};

#[test]
fn each_rule_is_explained_by_a_migration_that_breaks_it_and_one_that_does_not() {
    for explanation in EXPLANATIONS {
        let rule = explanation.rule;
        assert_eq!(explain(rule), Some(&explanation));
        if rule.starts_with("release-") {
            continue;
        }
        let linter = Linter {
            releases: Releases::Undeclared { carried_out: 0 },
            dialect: None,
        };
        let broken = linter.judge(&[migration("1.sql", explanation.bad)]);
        let words: Vec<&str> = broken.findings.iter().map(|found| found.rule.as_str()).collect();
        assert!(words.contains(&rule), "{rule}: {words:?}");
        let kept = linter.judge(&[migration("1.sql", explanation.good)]);
        assert_eq!(findings(&kept), [""; 0], "{rule}");
    }
    assert_eq!(explain("everything"), None);
}

#[test]
fn a_report_is_told_in_sarif() {
    let report = judged(
        "ALTER TABLE nodes RENAME TO b;\n-- stagger: allow cascade: nobody reads it\nTRUNCATE nodes CASCADE;\nCREATE INDEX i ON t (a);",
    );
    let document = sarif(&report, "1.2.3");
    assert_eq!(document["version"], "2.1.0");
    let run = &document["runs"][0];
    assert_eq!(run["tool"]["driver"]["semanticVersion"], "1.2.3");
    let results = run["results"].as_array().unwrap();
    let ids: Vec<&str> = results
        .iter()
        .map(|one| one["ruleId"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["renamed", "data-changed", "cascade", "lock"]);
    assert_eq!(
        results[0]["locations"][0]["physicalLocation"],
        serde_json::json!({"artifactLocation": {"uri": "0007.sql"}, "region": {"startLine": 2}})
    );
    assert_eq!(
        results[2]["suppressions"],
        serde_json::json!([{"kind": "inSource", "justification": "nobody reads it"}])
    );
    assert_eq!(results[3]["level"], "note");
    // Each rule that a result names is declared.
    let declared = run["tool"]["driver"]["rules"].as_array().unwrap();
    for id in ids {
        assert!(declared.iter().any(|rule| rule["id"] == id), "{id}");
    }
    for finding in &report.findings {
        assert!(explain(finding.rule.as_str()).is_some());
    }
}

#[test]
fn a_report_is_told_in_annotations() {
    let report = judged("ALTER TABLE nodes RENAME TO b;\nCREATE INDEX i ON t (a);");
    let lines = annotations(&report);
    assert!(
        lines[0].starts_with("::error file=0007.sql,line=2,title=renamed::nodes gets another name, and"),
        "{lines:?}"
    );
    assert!(lines[1].starts_with("::notice file=0007.sql,line=3,title=lock::`t`: creating the index i"));
    assert_eq!(lines.len(), 2);
    let odd = migration("a,b:c%.sql", "DROP TABLE t");
    let linter = Linter {
        releases: Releases::Undeclared { carried_out: 0 },
        dialect: None,
    };
    let report = linter.judge(&[odd]);
    assert!(annotations(&report)[0].starts_with("::error file=a%2Cb%3Ac%25.sql,line=1,"));
    let uri = &sarif(&report, "1")["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(uri["artifactLocation"]["uri"], "a%2Cb%3Ac%25.sql");
}
