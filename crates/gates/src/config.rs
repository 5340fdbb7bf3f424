//! Queries, their services, and the accepted answers.

use std::collections::BTreeSet;
use std::path::PathBuf;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use stagger_core::model::{ConditionName, Gate, Policy};
use stagger_engine::secrets;

/// Whom to ask, and what: the keys `prometheus`, `alertmanager`, `metric` and `alert` of the section `gates`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GateSettings {
    /// Who answers queries.
    pub prometheus: Option<Endpoint>,
    /// Who knows which alerts fire.
    pub alertmanager: Option<Endpoint>,
    /// Gates on queries.
    pub metric: Vec<MetricGate>,
    /// Gates on alerts.
    pub alert: Vec<AlertGate>,
}

/// The address of a service, and the credentials for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// `https://prometheus.example:9090`, with the prefix under which it is served, if it has one.
    pub url: String,
    /// A file with a bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// A user, for basic authentication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A file with that user's password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// Certificates of the authorities that are believed, in PEM; without it those of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// A query of Prometheus, and the bounds of its values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricGate {
    /// What it is called: the condition is `metric-NAME`.
    pub name: String,
    /// In Prometheus' language, an instant query. Each series that it gives has to keep within the bounds.
    pub query: String,
    /// The least value that is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The greatest value that is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// For how long it must have been good without a break, in seconds; without it the policy's `gate_hold`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<u32>,
    /// For how long it is waited for before the run is held, in seconds; without it the policy's `gate_timeout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u32>,
}

/// Alerts that keep a gate shut while one of them fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertGate {
    /// What it is called: the condition is `alert-NAME`.
    pub name: String,
    /// The alerts, as Alertmanager's matchers: `severity="critical"`. All of them must match. A silenced or
    /// inhibited alert does not fire.
    pub matchers: Vec<String>,
    /// An alert that always fires, by its name. While it does not, Alertmanager knows nothing, and the gate is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<String>,
    /// As of [`MetricGate::hold`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<u32>,
    /// As of [`MetricGate::timeout`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u32>,
}

/// A gate that is not waited for longer than that, in seconds: a year. Longer is a slip of the pen.
const LONGEST: u32 = 31_536_000;

impl MetricGate {
    /// The condition that it waits for.
    pub fn condition(&self) -> Result<ConditionName, String> {
        condition_name("metric", &self.name)
    }

    /// The bounds in words: `at most 0.2`.
    pub(crate) fn bounds(&self) -> String {
        match (self.min, self.max) {
            (Some(min), Some(max)) => format!("between {min} and {max}"),
            (Some(min), None) => format!("at least {min}"),
            (None, Some(max)) => format!("at most {max}"),
            (None, None) => "anything".to_owned(),
        }
    }

    fn verify(&self) -> Result<(), String> {
        self.condition()?;
        let of = |why: &str| format!("[[gates.metric]] {}: {why}", self.name);
        if self.query.trim().is_empty() {
            return Err(of("`query` is empty"));
        }
        let bounds = [self.min, self.max];
        if bounds.iter().flatten().any(|bound| bound.is_nan()) {
            return Err(of("a bound is no number"));
        }
        match bounds {
            [None, None] => Err(of(
                "nothing says which values are good: give `min` or `max` or both",
            )),
            [Some(min), Some(max)] if min > max => {
                Err(of(&format!("no value is at least {min} and at most {max}")))
            }
            _ => in_time(self.hold, self.timeout).map_err(|why| of(&why)),
        }
    }
}

impl AlertGate {
    /// The condition that it waits for.
    pub fn condition(&self) -> Result<ConditionName, String> {
        condition_name("alert", &self.name)
    }

    fn verify(&self) -> Result<(), String> {
        self.condition()?;
        let of = |why: &str| format!("[[gates.alert]] {}: {why}", self.name);
        if self.matchers.is_empty() {
            return Err(of(
                "`matchers` is empty: `[\"severity=\\\"critical\\\"\"]` waits for critical alerts alone",
            ));
        }
        in_time(self.hold, self.timeout).map_err(|why| of(&why))
    }
}

fn condition_name(sort: &str, name: &str) -> Result<ConditionName, String> {
    let wrong = |why: String| format!("[[gates.{sort}]]: the name {name:?} cannot be used: {why}");
    if name.is_empty() {
        return Err(wrong("it is empty".to_owned()));
    }
    ConditionName::new(format!("{sort}-{name}")).map_err(|error| wrong(error.why.to_owned()))
}

fn in_time(hold: Option<u32>, timeout: Option<u32>) -> Result<(), String> {
    if timeout == Some(0) || hold.max(timeout) > Some(LONGEST) {
        return Err(format!(
            "`hold` is from 0 to {LONGEST} seconds, and `timeout` from 1"
        ));
    }
    Ok(())
}

impl Endpoint {
    fn verify(&self, key: &str) -> Result<(), String> {
        let of = |why: &str| Err(format!("[gates.{key}] {why}"));
        let uri: Result<hyper::Uri, _> = self.url.parse();
        let is_web = uri
            .as_ref()
            .is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some());
        if !is_web {
            return of(&format!(
                "url {:?} is none: `https://prometheus.example:9090`",
                self.url
            ));
        }
        if uri.is_ok_and(|uri| uri.query().is_some()) {
            return of("url has a query: give the address alone");
        }
        if self.url.contains('@') || secrets::in_url(&self.url) {
            return of("url holds a user: give `user` and `password_file`");
        }
        if self.user.is_some() != self.password_file.is_some() {
            return of("`user` and `password_file` belong together");
        }
        if self.user.is_some() && self.token_file.is_some() {
            return of("has a user and a token: give one of them");
        }
        Ok(())
    }
}

impl GateSettings {
    /// The same for the cluster of a namespace: `$namespace` in queries and matchers is its name.
    #[must_use]
    pub fn of_namespace(mut self, namespace: &str) -> Self {
        for metric in &mut self.metric {
            metric.query = metric.query.replace("$namespace", namespace);
        }
        let matchers = self.alert.iter_mut().flat_map(|alert| &mut alert.matchers);
        for matcher in matchers {
            *matcher = matcher.replace("$namespace", namespace);
        }
        self
    }

    /// Whether there are no queries.
    pub fn is_empty(&self) -> bool {
        self.metric.is_empty() && self.alert.is_empty()
    }

    /// What in it cannot be meant.
    ///
    /// # Errors
    /// The first of it, in words.
    pub fn verify(&self) -> Result<(), String> {
        for (key, endpoint, sort, gates) in [
            ("prometheus", &self.prometheus, "metric", self.metric.len()),
            ("alertmanager", &self.alertmanager, "alert", self.alert.len()),
        ] {
            match endpoint {
                None if gates > 0 => {
                    return Err(format!("[[gates.{sort}]] needs [gates.{key}] with its `url`"));
                }
                Some(endpoint) => endpoint.verify(key)?,
                None => {}
            }
        }
        self.metric.iter().try_for_each(MetricGate::verify)?;
        self.alert.iter().try_for_each(AlertGate::verify)?;
        let mut names = BTreeSet::new();
        for (name, sort) in self.names() {
            if !names.insert((sort, name)) {
                return Err(format!("[[gates.{sort}]]: two of them are called {name:?}"));
            }
        }
        Ok(())
    }

    fn names(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let metrics = self.metric.iter().map(|gate| (gate.name.as_str(), "metric"));
        metrics.chain(self.alert.iter().map(|gate| (gate.name.as_str(), "alert")))
    }

    /// The gates that every stage gets, for what they do not say as that policy has it.
    ///
    /// # Errors
    /// As of [`GateSettings::verify`].
    pub fn gates(&self, policy: &Policy) -> Result<Vec<Gate>, String> {
        let gate = |condition, hold: Option<u32>, timeout: Option<u32>| Gate {
            condition,
            hold: SignedDuration::from_secs(i64::from(hold.unwrap_or(policy.gate_hold))),
            timeout: SignedDuration::from_secs(i64::from(timeout.unwrap_or(policy.gate_timeout))),
        };
        let metrics = self
            .metric
            .iter()
            .map(|metric| Ok(gate(metric.condition()?, metric.hold, metric.timeout)));
        let alerts = self
            .alert
            .iter()
            .map(|alert| Ok(gate(alert.condition()?, alert.hold, alert.timeout)));
        metrics.chain(alerts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric() -> MetricGate {
        MetricGate {
            name: "latency".to_owned(),
            query: "up".to_owned(),
            min: None,
            max: Some(0.2),
            hold: None,
            timeout: Some(60),
        }
    }

    fn settings() -> GateSettings {
        GateSettings {
            prometheus: Some(Endpoint {
                url: "http://127.0.0.1:9090".to_owned(),
                token_file: None,
                user: None,
                password_file: None,
                ca_file: None,
            }),
            metric: vec![metric()],
            ..GateSettings::default()
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_its_key() {
        assert_eq!(settings().verify(), Ok(()));
        let refused = |change: fn(&mut GateSettings)| {
            let mut settings = settings();
            change(&mut settings);
            settings.verify().expect_err("it is refused")
        };
        for (part, why) in [
            (
                "needs [gates.prometheus] with its `url`",
                refused(|all| all.prometheus = None),
            ),
            (
                "latency: `query` is empty",
                refused(|all| all.metric[0].query.clear()),
            ),
            ("give `min` or `max`", refused(|all| all.metric[0].max = None)),
            (
                "no value is at least 3 and at most 0.2",
                refused(|all| all.metric[0].min = Some(3.0)),
            ),
            ("is no number", refused(|all| all.metric[0].max = Some(f64::NAN))),
            ("`timeout` from 1", refused(|all| all.metric[0].timeout = Some(0))),
            (
                "`hold` is from 0 to",
                refused(|all| all.metric[0].hold = Some(u32::MAX)),
            ),
            (
                "white space",
                refused(|all| all.metric[0].name = "a b".to_owned()),
            ),
            ("it is empty", refused(|all| all.metric[0].name.clear())),
            (
                "two of them are called \"latency\"",
                refused(|all| all.metric.push(metric())),
            ),
            (
                "`user` and `password_file` belong together",
                refused(|all| {
                    if let Some(one) = &mut all.prometheus {
                        one.user = Some("u".to_owned());
                    }
                }),
            ),
        ] {
            assert!(why.contains(part), "{part}: {why}");
        }
        for url in ["prometheus:9090", "ftp://a", "http://a?b=c", "http://u:p@a", ""] {
            let mut settings = settings();
            if let Some(one) = &mut settings.prometheus {
                url.clone_into(&mut one.url);
            }
            let why = settings.verify().expect_err(url);
            assert!(why.starts_with("[gates.prometheus] url"), "{why}");
        }
    }

    #[test]
    fn a_query_is_about_the_namespace_of_its_cluster() {
        let mut all = settings();
        all.metric[0].query = "errors{namespace=\"$namespace\"}".to_owned();
        assert_eq!(
            all.of_namespace("rook-ceph").metric[0].query,
            "errors{namespace=\"rook-ceph\"}"
        );
    }

    #[test]
    fn an_alert_needs_matchers_and_an_alertmanager() {
        let mut all = settings();
        all.alert.push(AlertGate {
            name: "latency".to_owned(),
            matchers: Vec::new(),
            watchdog: None,
            hold: Some(0),
            timeout: None,
        });
        assert!(
            all.verify()
                .expect_err("no one to ask")
                .contains("[gates.alertmanager]")
        );
        all.alertmanager.clone_from(&all.prometheus);
        assert!(
            all.verify()
                .expect_err("no matchers")
                .contains("`matchers` is empty")
        );
        all.alert[0].matchers.push("severity=\"critical\"".to_owned());
        // A metric may have the same name.
        assert_eq!(all.verify(), Ok(()));
        let policy = Policy::default();
        let gates = all.gates(&policy).expect("all are good");
        let told: Vec<_> = gates
            .iter()
            .map(|gate| {
                (
                    gate.condition.as_str(),
                    gate.hold.as_secs(),
                    gate.timeout.as_secs(),
                )
            })
            .collect();
        let (hold, timeout) = (i64::from(policy.gate_hold), i64::from(policy.gate_timeout));
        assert_eq!(
            told,
            [("metric-latency", hold, 60), ("alert-latency", 0, timeout)]
        );
    }
}
