//! A query of Prometheus, and what its answer says.
//!
//! The answer is that of `POST /api/v1/query` (Prometheus' HTTP API, "Instant queries"), which Thanos, Mimir and others
//! answer too.

use std::collections::BTreeMap;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use stagger_core::model::Verdict;

use crate::config::MetricGate;
use crate::http::HttpService;

/// So many series are named that are out of bounds.
const NAMED: usize = 3;

/// The envelope of all answers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status: String,
    #[serde(default)]
    data: Option<Data>,
    #[serde(default)]
    error: String,
    /// Warnings of the answer: a part of it is missing.
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
    Vector(Vec<Series>),
    Scalar((f64, String)),
    Matrix(IgnoredAny),
    String(IgnoredAny),
}

#[derive(Debug, Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    /// When, and how much.
    value: (f64, String),
}

/// Asks, and says whether all of it is within the bounds, and why.
pub(crate) async fn ask(service: &HttpService, gate: &MetricGate) -> (Verdict, String) {
    let query = utf8_percent_encode(&gate.query, NON_ALPHANUMERIC);
    match service.ask("/api/v1/query", Some(format!("query={query}"))).await {
        Ok((code, body)) => evaluate_answer(gate, code, body),
        Err(why) => (Verdict::Unknown, why),
    }
}

fn evaluate_answer(gate: &MetricGate, code: u16, body: Value) -> (Verdict, String) {
    let unknown = |why: String| (Verdict::Unknown, why);
    let answer = match serde_json::from_value::<Answer>(body) {
        Ok(answer) => answer,
        Err(error) => return unknown(format!("Prometheus answers {code}, and no result: {error}")),
    };
    if code != 200 || answer.status != "success" {
        return unknown(format!("Prometheus answers {code}: {}", answer.error));
    }
    if !answer.warnings.is_empty() {
        return unknown(format!(
            "Prometheus warns of its answer: {}",
            answer.warnings.join("; ")
        ));
    }
    let series = match answer.data {
        Some(Data::Vector(series)) => series,
        Some(Data::Scalar(value)) => vec![Series {
            metric: BTreeMap::new(),
            value,
        }],
        Some(Data::Matrix(_)) => {
            return unknown("the query gives ranges, not values: take the range out of it".to_owned());
        }
        Some(Data::String(_)) => return unknown("the query returns a string, not values".to_owned()),
        None => return unknown("Prometheus answers without a result".to_owned()),
    };
    evaluate(gate, &series)
}

fn evaluate(gate: &MetricGate, series: &[Series]) -> (Verdict, String) {
    let bounds = gate.bounds();
    if series.is_empty() {
        let why = "the query gives nothing; where that is good, add `or vector(0)`";
        return (Verdict::Unknown, why.to_owned());
    }
    let (mut good, mut bad, mut no_numbers) = (Vec::new(), Vec::new(), Vec::new());
    for one in series {
        match one.value.1.parse::<f64>() {
            Ok(value) if value.is_nan() => no_numbers.push(one),
            Err(_) => no_numbers.push(one),
            Ok(value) => {
                let is_good =
                    gate.min.is_none_or(|min| value >= min) && gate.max.is_none_or(|max| value <= max);
                if is_good {
                    good.push(value);
                } else {
                    bad.push(one);
                }
            }
        }
    }
    let of = |count: usize| match series.len() {
        1 => String::new(),
        all => format!("{count} of {all} series: "),
    };
    if !bad.is_empty() {
        let why = format!("{}{}, {bounds} is good", of(bad.len()), listed(&bad));
        return (Verdict::No, why);
    }
    if !no_numbers.is_empty() {
        let why = format!("{}{}, no number", of(no_numbers.len()), listed(&no_numbers));
        return (Verdict::Unknown, why);
    }
    let least = good.iter().copied().fold(f64::INFINITY, f64::min);
    let most = good.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let values = if good.len() == 1 {
        least.to_string()
    } else {
        format!("{least} to {most} of {} series", good.len())
    };
    (Verdict::Yes, format!("{values}, {bounds} is good"))
}

/// The first of them, with what tells them from the others: `0.31 of {instance="a"}`.
fn listed(series: &[&Series]) -> String {
    let mut words: Vec<String> = series.iter().take(NAMED).map(|one| described(one)).collect();
    if series.len() > NAMED {
        words.push(format!("and {} more", series.len() - NAMED));
    }
    words.join("; ")
}

fn described(series: &Series) -> String {
    let labels = series.metric.iter().filter(|(label, _)| *label != "__name__");
    let labels: Vec<String> = labels
        .map(|(label, value)| format!("{label}={value:?}"))
        .collect();
    let value = &series.value.1;
    if labels.is_empty() {
        return value.clone();
    }
    format!("{value} of {{{}}}", labels.join(", "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn gate(min: Option<f64>, max: Option<f64>) -> MetricGate {
        MetricGate {
            name: "latency".to_owned(),
            query: "q".to_owned(),
            min,
            max,
            hold: None,
            timeout: None,
        }
    }

    fn vector(values: &[(&str, &str)]) -> Value {
        let series: Vec<_> = values
            .iter()
            .map(|(instance, value)| json!({ "metric": { "instance": instance }, "value": [1.5, value] }))
            .collect();
        json!({ "status": "success", "data": { "resultType": "vector", "result": series } })
    }

    #[test]
    fn every_series_keeps_within_the_bounds() {
        let at_most = gate(None, Some(0.2));
        let (verdict, why) = evaluate_answer(&at_most, 200, vector(&[("a", "0.1"), ("b", "0.2")]));
        assert_eq!(
            (verdict, why.as_str()),
            (Verdict::Yes, "0.1 to 0.2 of 2 series, at most 0.2 is good")
        );
        let (verdict, why) = evaluate_answer(&at_most, 200, vector(&[("a", "0.1"), ("b", "0.31")]));
        assert_eq!(
            (verdict, why.as_str()),
            (
                Verdict::No,
                "1 of 2 series: 0.31 of {instance=\"b\"}, at most 0.2 is good"
            )
        );
        let (verdict, why) = evaluate_answer(&at_most, 200, vector(&[("a", "+Inf")]));
        assert_eq!(
            (verdict, why.as_str()),
            (Verdict::No, "+Inf of {instance=\"a\"}, at most 0.2 is good")
        );
        let scalar = json!({ "status": "success", "data": { "resultType": "scalar", "result": [1, "3"] } });
        let (verdict, why) = evaluate_answer(&gate(Some(1.0), Some(2.0)), 200, scalar);
        assert_eq!(
            (verdict, why.as_str()),
            (Verdict::No, "3, between 1 and 2 is good")
        );
    }

    #[test]
    fn what_tells_nothing_is_unknown() {
        let unknown = |code: u16, body: Value| {
            let (verdict, why) = evaluate_answer(&gate(None, Some(1.0)), code, body);
            assert_eq!(verdict, Verdict::Unknown, "{why}");
            why
        };
        assert!(unknown(200, vector(&[])).contains("`or vector(0)`"));
        assert_eq!(
            unknown(200, vector(&[("a", "0"), ("b", "NaN")])),
            "1 of 2 series: NaN of {instance=\"b\"}, no number"
        );
        let mut partial = vector(&[("a", "0")]);
        partial["warnings"] = json!(["store 2 did not answer"]);
        assert_eq!(
            unknown(200, partial),
            "Prometheus warns of its answer: store 2 did not answer"
        );
        let refused = json!({ "status": "error", "errorType": "bad_data", "error": "parse error at 3" });
        assert_eq!(unknown(400, refused), "Prometheus answers 400: parse error at 3");
        let ranges = json!({ "status": "success", "data": { "resultType": "matrix", "result": [] } });
        assert!(unknown(200, ranges).contains("take the range out"));
        assert!(unknown(200, json!({ "status": "success" })).contains("without a result"));
        assert!(unknown(200, json!([1, 2])).contains("no result"));
    }

    proptest! {
        #[test]
        fn it_holds_if_and_only_if_every_value_is_a_number_within_the_bounds(
            values in prop::collection::vec(prop_oneof![(-5_i32..5).prop_map(f64::from), Just(f64::NAN)], 0..6),
            min in prop::option::of(-3_i32..3),
            width in prop::option::of(0_i32..4),
        ) {
            let min = min.map(f64::from);
            let max = width.map(|width| min.unwrap_or_default() + f64::from(width));
            let texts: Vec<String> = values.iter().map(f64::to_string).collect();
            let pairs: Vec<(&str, &str)> = texts.iter().map(|text| ("i", text.as_str())).collect();
            let (verdict, _) = evaluate_answer(&gate(min, max), 200, vector(&pairs));
            let is_good = |value: &f64| min.is_none_or(|min| *value >= min) && max.is_none_or(|max| *value <= max);
            let all_good = !values.is_empty() && values.iter().all(|value| !value.is_nan() && is_good(value));
            prop_assert_eq!(verdict == Verdict::Yes, all_good);
            let one_is_bad = values.iter().any(|value| !value.is_nan() && !is_good(value));
            prop_assert_eq!(verdict == Verdict::No, one_is_bad);
        }
    }
}
