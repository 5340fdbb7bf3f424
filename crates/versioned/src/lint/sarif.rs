//! Findings for other programs: SARIF 2.1.0, and annotations of GitHub Actions.

use serde_json::{Value, json};

use super::explain::{EXPLANATIONS, Explanation};
use super::{Finding, Report, Waived};

/// The document of a report in SARIF 2.1.0: findings are errors, what is accepted is suppressed, and locks are notes.
/// By the standard, <https://docs.oasis-open.org/sarif/sarif/v2.1.0/>.
///
/// `version` is that of the program.
pub fn sarif(report: &Report, version: &str) -> Value {
    let rules: Vec<Value> = EXPLANATIONS.iter().map(rule).chain([lock_rule()]).collect();
    let findings = report.findings.iter().map(|finding| result(finding, None));
    let waived = report
        .waived
        .iter()
        .map(|Waived { finding, reason, .. }| result(finding, Some(reason)));
    let locks = report.locks.iter().map(|taken| {
        json!({
            "ruleId": LOCK,
            "level": "note",
            "message": {"text": taken.lock.to_string()},
            "locations": [location(&taken.file, taken.line)],
        })
    });
    let results: Vec<Value> = findings.chain(waived).chain(locks).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "stagger lint migrations", "semanticVersion": version, "rules": rules}},
            "results": results,
            "columnKind": "unicodeCodePoints",
        }],
    })
}

/// The word of what is no rule, and announced.
const LOCK: &str = "lock";

fn rule(explanation: &Explanation) -> Value {
    json!({
        "id": explanation.rule,
        "shortDescription": {"text": explanation.finds},
        "fullDescription": {"text": format!("{}: {}", explanation.finds, explanation.why)},
        "help": {"text": explanation.instead},
        "defaultConfiguration": {"level": "error"},
    })
}

fn lock_rule() -> Value {
    json!({
        "id": LOCK,
        "shortDescription": {"text": "a lock on a table that keeps services waiting on PostgreSQL"},
        "defaultConfiguration": {"level": "note"},
    })
}

fn result(finding: &Finding, reason: Option<&String>) -> Value {
    let Finding { file, line, rule } = finding;
    let mut result = json!({
        "ruleId": rule.as_str(),
        "level": "error",
        "message": {"text": format!("{rule}; {}", rule.instead())},
        "locations": [location(file, *line)],
    });
    if let Some(reason) = reason {
        result["suppressions"] = json!([{"kind": "inSource", "justification": reason}]);
    }
    result
}

fn location(file: &str, line: u64) -> Value {
    json!({
        "physicalLocation": {
            "artifactLocation": {"uri": uri(file)},
            "region": {"startLine": line},
        }
    })
}

/// A path as a relative reference, in which only letters, digits and a few marks stand for themselves.
fn uri(path: &str) -> String {
    let mut uri = String::new();
    for byte in path.replace('\\', "/").bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.extend(format!("%{byte:02X}").chars());
        }
    }
    uri
}

/// Lines that GitHub Actions shows beside the code: an error for each finding, a notice for each lock and each waiver.
/// By its documentation of workflow commands.
pub fn annotations(report: &Report) -> Vec<String> {
    let findings = report.findings.iter().map(|finding| {
        let Finding { file, line, rule } = finding;
        let text = format!("{rule}; {}", rule.instead());
        annotation("error", file, *line, rule.as_str(), &text)
    });
    let waived = report.waived.iter().map(|waived| {
        let Waived { finding, reason, .. } = waived;
        let Finding { file, line, rule } = finding;
        let text = format!("{rule}; accepted: {reason}");
        annotation("notice", file, *line, rule.as_str(), &text)
    });
    let locks = report
        .locks
        .iter()
        .map(|taken| annotation("notice", &taken.file, taken.line, LOCK, &taken.lock.to_string()));
    findings.chain(waived).chain(locks).collect()
}

fn annotation(kind: &str, file: &str, line: u64, title: &str, text: &str) -> String {
    let text = escaped(text);
    let file = escaped(file).replace(':', "%3A").replace(',', "%2C");
    format!("::{kind} file={file},line={line},title={title}::{text}")
}

fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}
