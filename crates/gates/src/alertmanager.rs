//! Which alerts fire, by Alertmanager's API of version 2 (`GET /api/v2/alerts`).

use std::collections::BTreeMap;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use stagger_core::model::Verdict;

use crate::config::AlertGate;
use crate::http::HttpService;

/// So many alerts are named.
const NAMED: usize = 3;

#[derive(Debug, Deserialize)]
struct Alert {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// Asks, and says whether none of them fires, and why.
pub(crate) async fn ask(service: &HttpService, gate: &AlertGate) -> (Verdict, String) {
    if let Some(watchdog) = &gate.watchdog {
        let matcher = format!("alertname={watchdog:?}");
        match firing(service, std::slice::from_ref(&matcher)).await {
            Ok(alerts) if alerts.is_empty() => {
                let why = format!(
                    "{watchdog} does not fire, but always should: Alertmanager hears nothing from Prometheus"
                );
                return (Verdict::Unknown, why);
            }
            Ok(_) => {}
            Err(why) => return (Verdict::Unknown, why),
        }
    }
    match firing(service, &gate.matchers).await {
        Ok(alerts) => evaluate(&alerts),
        Err(why) => (Verdict::Unknown, why),
    }
}

fn evaluate(alerts: &[Alert]) -> (Verdict, String) {
    if alerts.is_empty() {
        return (Verdict::Yes, "none fires".to_owned());
    }
    let mut words: Vec<String> = alerts.iter().take(NAMED).map(described).collect();
    if alerts.len() > NAMED {
        words.push(format!("and {} more", alerts.len() - NAMED));
    }
    (Verdict::No, words.join("; "))
}

/// `CephOSDDown (osd.3 is down)`.
fn described(alert: &Alert) -> String {
    let name = alert
        .labels
        .get("alertname")
        .map_or("an alert without a name", String::as_str);
    let summary = alert
        .annotations
        .get("summary")
        .or_else(|| alert.annotations.get("description"));
    match summary {
        Some(summary) => format!("{name} fires ({summary})"),
        None => format!("{name} fires"),
    }
}

/// The alerts that match all of it, and are neither silenced nor inhibited.
async fn firing(service: &HttpService, matchers: &[String]) -> Result<Vec<Alert>, String> {
    let mut path = "/api/v2/alerts?active=true&silenced=false&inhibited=false&unprocessed=true".to_owned();
    for matcher in matchers {
        path.push_str("&filter=");
        path.extend(utf8_percent_encode(matcher, NON_ALPHANUMERIC));
    }
    let (code, body) = service.ask(&path, None).await?;
    alerts(code, body)
}

fn alerts(code: u16, body: Value) -> Result<Vec<Alert>, String> {
    if code != 200 {
        let said = body
            .as_str()
            .map(str::to_owned)
            .or_else(|| body["message"].as_str().map(str::to_owned));
        return Err(format!(
            "Alertmanager answers {code}: {}",
            said.unwrap_or_else(|| body.to_string())
        ));
    }
    serde_json::from_value(body).map_err(|error| format!("Alertmanager answers no list of alerts: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_that_fires_is_named_with_what_it_says() {
        let told = json!([
            { "labels": { "alertname": "CephOSDDown" }, "annotations": { "summary": "osd.3 is down" }, "status": {} },
            { "labels": { "alertname": "Slow" }, "annotations": {} },
            { "labels": {}, "annotations": {} },
            { "labels": { "alertname": "More" } },
        ]);
        let (verdict, why) = evaluate(&alerts(200, told).expect("a list"));
        assert_eq!(verdict, Verdict::No);
        assert_eq!(
            why,
            "CephOSDDown fires (osd.3 is down); Slow fires; an alert without a name fires; and 1 more"
        );
        let (verdict, _) = evaluate(&alerts(200, json!([])).expect("a list"));
        assert_eq!(verdict, Verdict::Yes);
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        assert_eq!(
            alerts(400, json!("bad matcher format: a")).err().as_deref(),
            Some("Alertmanager answers 400: bad matcher format: a")
        );
        assert!(
            alerts(200, json!({ "status": "ok" }))
                .err()
                .is_some_and(|why| why.contains("no list"))
        );
    }
}
