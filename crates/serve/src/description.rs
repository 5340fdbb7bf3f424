//! The parts of the `OpenAPI` description that are not read from the code: path parameters, headers, and the
//! format of names.

use aide::openapi::OpenApi;
use aide::transform::TransformOperation;
use serde_json::{Value, json};

use crate::problem::ProblemDetails;

/// The types of the documents that are names: of no white space, and no longer than the code takes them.
const NAMES: [&str; 7] = [
    "ClusterName",
    "ConditionName",
    "GuardName",
    "Kind",
    "PartName",
    "RunId",
    "UnitId",
];

/// Headers that are heeded: at which address and of which method, its name, what it is, and its schema.
fn headers() -> [(&'static str, &'static str, &'static str, &'static str, Value); 6] {
    const KEY: &str = "Idempotency-Key";
    const KEY_IS: &str =
        "Of your own, new for each question: 1 to 200 characters. What comes again with it is done once.";
    let key = || json!({ "type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$" });
    let tag = || json!({ "type": "string" });
    [
        (
            "/v1/runs/{run}",
            "get",
            "If-None-Match",
            "The `ETag` of an answer that you have.",
            tag(),
        ),
        (
            "/v1/runs/{run}/stream",
            "get",
            "Last-Event-ID",
            "The place of the last event that you have. It takes precedence over `after`.",
            json!({ "type": "integer", "format": "uint64", "minimum": 0 }),
        ),
        (
            "/v1/runs/{run}/commands",
            "post",
            "If-Match",
            "The `ETag` of the run that you looked at.",
            tag(),
        ),
        ("/v1/runs/{run}/commands", "post", KEY, KEY_IS, key()),
        ("/v1/runs", "post", KEY, KEY_IS, key()),
        ("/v1/asks", "post", KEY, KEY_IS, key()),
    ]
}

/// What a name may be. Its length is that of its UTF-8.
fn name() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 200, "pattern": r"^[^\s\u0000-\u001f\u007f-\u009f]+$" })
}

/// A host as it is reached: a plain word, before which a user and `@` may stand.
fn host() -> Value {
    let word = "[A-Za-z0-9_][A-Za-z0-9_.+~:";
    json!({ "type": "string", "maxLength": 255, "pattern": format!("^({word}@-]*@)?{word}-]*$") })
}

/// No number is larger than its type, which JSON does not say.
fn limit_numbers(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(limit_numbers),
        Value::Object(all) => {
            let most = match all.get("format").and_then(Value::as_str) {
                // What is counted is counted in 64 bits.
                Some("uint64" | "uint") => Some(u64::MAX),
                Some("uint32") => Some(u32::MAX.into()),
                Some(_) | None => None,
            };
            if let Some(most) = most {
                all.insert("maximum".to_owned(), most.into());
            }
            all.values_mut().for_each(limit_numbers);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// One event of a stream.
fn server_sent() -> Value {
    json!({
        "type": "object",
        "required": ["event", "data"],
        "properties": {
            "id": { "type": "string", "description": "The place of an `entry` in the journal." },
            "event": { "enum": ["entry", "run", "unread"] },
            "data": {
                "type": "string",
                "description": "Of an `entry` the event of the journal, as JSON; of a `run` its verdict; of an `unread` why it cannot be read now.",
            },
        },
    })
}

/// The whole description.
pub(crate) fn finished(api: &OpenApi) -> Value {
    let mut all = serde_json::to_value(api).unwrap_or_default();
    for named in NAMES {
        if let Some(schema) = all["components"]["schemas"].get_mut(named) {
            extend(schema, &name());
        }
    }
    if let Some(schema) = all["components"]["schemas"].get_mut("HostName") {
        extend(schema, &host());
    }
    let paths = all["paths"].as_object_mut().into_iter().flatten();
    for (path, methods) in paths {
        for (method, operation) in methods.as_object_mut().into_iter().flatten() {
            let mut parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            for parameter in &mut parameters {
                if parameter["name"] == "cluster" {
                    parameter["schema"] = name();
                }
            }
            if path.contains("{run}") {
                parameters.push(json!({
                    "in": "path", "name": "run", "required": true, "description": "The name of the run.", "schema": name(),
                }));
            }
            if path.contains("{id}") {
                parameters.push(json!({
                    "in": "path", "name": "id", "required": true, "description": "The name of the ask.",
                    "schema": { "type": "string", "pattern": "^a-[0-9a-f]{16}$" },
                }));
            }
            for (of, with, header, description, schema) in headers() {
                if (of, with) == (path.as_str(), method.as_str()) {
                    parameters.push(json!({
                        "in": "header", "name": header, "description": description, "schema": schema,
                    }));
                }
            }
            if path.ends_with("/stream") {
                operation["responses"]["200"]["content"] =
                    json!({ "text/event-stream": { "schema": server_sent() } });
            }
            if !parameters.is_empty() {
                operation["parameters"] = parameters.into();
            }
        }
    }
    limit_numbers(&mut all);
    all
}

fn extend(schema: &mut Value, with: &Value) {
    for (key, value) in with.as_object().into_iter().flatten() {
        schema[key] = value.clone();
    }
}

/// The description of a question, with the answers that every one may get.
pub(crate) fn described_as<'a>(
    mut of: TransformOperation<'a>,
    text: &str,
    more: &[u16],
) -> TransformOperation<'a> {
    of = of.summary(text);
    for code in [401, 403, 408, 422, 503].iter().chain(more) {
        of = match code {
            401 => of.response::<401, ProblemDetails>(),
            403 => of.response::<403, ProblemDetails>(),
            404 => of.response::<404, ProblemDetails>(),
            408 => of.response::<408, ProblemDetails>(),
            409 => of.response::<409, ProblemDetails>(),
            412 => of.response::<412, ProblemDetails>(),
            413 => of.response::<413, ProblemDetails>(),
            415 => of.response::<415, ProblemDetails>(),
            422 => of.response::<422, ProblemDetails>(),
            _ => of.response::<503, ProblemDetails>(),
        };
    }
    of
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_their_types_do() {
        let all = crate::openapi();
        let stream = all["paths"]["/v1/runs/{run}/stream"]["get"]["parameters"]
            .as_array()
            .unwrap();
        for parameter in stream.iter().filter(|one| one["name"] != "run") {
            assert_eq!(parameter["schema"]["maximum"], u64::MAX, "{parameter}");
        }
        assert_eq!(all["components"]["schemas"]["HostName"]["maxLength"], 255);
    }

    #[test]
    fn every_name_and_header_stands_in_the_description() {
        let all = crate::openapi();
        for named in NAMES {
            assert_eq!(all["components"]["schemas"][named]["minLength"], 1, "{named}");
        }
        for (path, method, header, _, _) in headers() {
            let parameters = all["paths"][path][method]["parameters"].as_array().unwrap();
            let names: Vec<&str> = parameters
                .iter()
                .map(|one| one["name"].as_str().unwrap())
                .collect();
            assert!(
                names.contains(&header) && names.contains(&"run") == path.contains("{run}"),
                "{path}: {names:?}"
            );
        }
    }
}
