//! A query as a `ceph` command line.

use serde_json::Value;

/// Parameters that stand by their place, in their order; all others are given by name.
const BY_PLACE: &[(&str, &[&str])] = &[
    ("auth get-or-create", &["entity", "caps"]),
    ("config get", &["who", "key"]),
    ("config rm", &["who", "name"]),
    ("config set", &["who", "name", "value"]),
    // `--key` would be taken for the secret by which the program itself connects.
    ("config-key dump", &["key"]),
    ("config-key exists", &["key"]),
    ("config-key get", &["key"]),
    ("config-key rm", &["key"]),
    ("config-key set", &["key", "val"]),
    ("fs set", &["fs_name", "var", "val"]),
    ("health", &["detail"]),
    ("mds ok-to-stop", &["ids"]),
    ("mgr fail", &["who"]),
    ("mon ok-to-stop", &["ids"]),
    ("mon set-weight", &["name", "weight"]),
    ("osd in", &["ids"]),
    ("osd metadata", &["id"]),
    ("osd new", &["uuid", "id"]),
    ("osd ok-to-stop", &["ids"]),
    ("osd out", &["ids"]),
    ("osd pool ls", &["detail"]),
    ("osd require-osd-release", &["release"]),
    ("osd safe-to-destroy", &["ids"]),
    ("osd set", &["key"]),
    ("osd set-group", &["flags", "who"]),
    ("osd unset", &["key"]),
    ("osd unset-group", &["flags", "who"]),
    ("pg dump", &["dumpcontents"]),
    ("pg ls", &["pool", "states"]),
    ("pg ls-by-osd", &["osd", "pool", "states"]),
];

/// The command line that asks this question, without program, connection and format:
/// `osd ok-to-stop 0 1 --max 4`.
pub fn command_line(command: &Value) -> Vec<String> {
    let prefix = command["prefix"].as_str().unwrap_or_default();
    let by_place: &[&str] = BY_PLACE
        .iter()
        .find(|(known, _)| *known == prefix)
        .map_or(&[], |(_, names)| names);
    let mut line: Vec<String> = prefix.split_whitespace().map(str::to_owned).collect();
    for name in by_place {
        push(&mut line, &command[*name]);
    }
    for (name, value) in command.as_object().into_iter().flatten() {
        if ["prefix", "format"].contains(&name.as_str()) || by_place.contains(&name.as_str()) {
            continue;
        }
        if *value == Value::Bool(false) || value.is_null() {
            continue;
        }
        line.push(format!("--{}", name.replace('_', "-")));
        if *value != Value::Bool(true) {
            push(&mut line, value);
        }
    }
    line
}

fn push(line: &mut Vec<String>, value: &Value) {
    match value {
        Value::Null => {}
        Value::String(text) => line.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| push(line, value)),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => line.push(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::command_line;

    #[test]
    fn a_question_reads_as_one_would_type_it() {
        for (command, line) in [
            (json!({"prefix": "osd dump", "format": "json"}), "osd dump"),
            (json!({"prefix": "health", "detail": "detail"}), "health detail"),
            (
                json!({"prefix": "osd ok-to-stop", "ids": ["0", "2"], "max": 4}),
                "osd ok-to-stop 0 2 --max 4",
            ),
            (
                json!({"prefix": "pg dump", "dumpcontents": ["pgs_brief"]}),
                "pg dump pgs_brief",
            ),
            (
                json!({"prefix": "config-key dump", "key": "stagger/lock/"}),
                "config-key dump stagger/lock/",
            ),
            (
                json!({"prefix": "osd set-group", "flags": "noout", "who": ["osd.1", "osd.2"]}),
                "osd set-group noout osd.1 osd.2",
            ),
            (
                json!({"prefix": "osd require-osd-release", "release": "reef", "yes_i_really_mean_it": true}),
                "osd require-osd-release reef --yes-i-really-mean-it",
            ),
        ] {
            assert_eq!(command_line(&command).join(" "), line);
        }
    }
}
