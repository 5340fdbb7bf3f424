//! All queries, as conditions.

use std::pin::Pin;

use stagger_core::model::{Condition, ConditionName, Part, Policy, Snapshot, Target, Verdict};
use stagger_engine::preflight::Check;

use crate::config::{AlertGate, Endpoint, GateSettings, MetricGate};
use crate::http::HttpService;
use crate::{alertmanager, prometheus};

/// The services and their queries.
#[derive(Debug)]
pub struct Measures {
    metrics: Vec<GateQuery<MetricGate>>,
    alerts: Vec<GateQuery<AlertGate>>,
    prometheus: Option<HttpService>,
    alertmanager: Option<HttpService>,
    settings: GateSettings,
}

#[derive(Debug)]
struct GateQuery<G> {
    condition: ConditionName,
    gate: G,
}

impl Measures {
    /// Reads secrets and certificates; no query is sent yet.
    ///
    /// # Errors
    /// Why the settings cannot be used.
    pub fn new(settings: &GateSettings) -> Result<Self, String> {
        settings.verify()?;
        let metrics = settings.metric.iter().map(|gate| {
            Ok(GateQuery {
                condition: gate.condition()?,
                gate: gate.clone(),
            })
        });
        let alerts = settings.alert.iter().map(|gate| {
            Ok(GateQuery {
                condition: gate.condition()?,
                gate: gate.clone(),
            })
        });
        let service = |key: &str, endpoint: Option<&Endpoint>| {
            let service = endpoint.map(HttpService::new).transpose();
            service.map_err(|why| format!("[gates.{key}] cannot be used: {why}"))
        };
        Ok(Self {
            metrics: metrics.collect::<Result<_, String>>()?,
            alerts: alerts.collect::<Result<_, String>>()?,
            prometheus: service("prometheus", settings.prometheus.as_ref())?,
            alertmanager: service("alertmanager", settings.alertmanager.as_ref())?,
            settings: settings.clone(),
        })
    }

    /// Sends all queries at once. An answer is yes, no, or unknown.
    pub async fn conditions(&self) -> Vec<Condition> {
        type Answer<'a> = Pin<Box<dyn Future<Output = (Verdict, String)> + Send + 'a>>;
        let mut names = Vec::new();
        let mut answers: Vec<Answer<'_>> = Vec::new();
        if let Some(service) = &self.prometheus {
            for asked in &self.metrics {
                names.push(&asked.condition);
                answers.push(Box::pin(prometheus::ask(service, &asked.gate)));
            }
        }
        if let Some(service) = &self.alertmanager {
            for asked in &self.alerts {
                names.push(&asked.condition);
                answers.push(Box::pin(alertmanager::ask(service, &asked.gate)));
            }
        }
        let answers = futures::future::join_all(answers).await;
        names
            .into_iter()
            .zip(answers)
            .map(|(name, (verdict, why))| Condition::new(name.clone(), verdict, why))
            .collect()
    }

    /// Adds the gates to every stage of a target, and to what has to be so before a step.
    ///
    /// # Errors
    /// As of [`GateSettings::gates`].
    pub fn guard(&self, target: &mut Target, policy: &Policy) -> Result<(), String> {
        let all = self.settings.gates(policy)?;
        for part in &mut target.parts {
            let gates = match part {
                Part::Stage(stage) => &mut stage.gates,
                Part::Step(step) => &mut step.before,
            };
            gates.extend(all.iter().cloned());
        }
        Ok(())
    }

    /// Those that a snapshot with them says are shut.
    pub fn closed(&self, snapshot: &Snapshot) -> Vec<Condition> {
        let metrics = self.metrics.iter().map(|asked| &asked.condition);
        let names = metrics.chain(self.alerts.iter().map(|asked| &asked.condition));
        names
            .map(|name| snapshot.condition(name))
            .filter(|condition| condition.verdict != Verdict::Yes)
            .collect()
    }

    /// What `config check` says of each: whether it answers, and what.
    pub async fn preflight(&self) -> Vec<Check> {
        let conditions = self.conditions().await;
        conditions.into_iter().map(check).collect()
    }
}

fn check(condition: Condition) -> Check {
    let subject = format!("gate {}", condition.name);
    match condition.verdict {
        Verdict::Yes => Check::passed(subject, condition.why),
        Verdict::No => {
            Check::warning(subject, format!("shut now: {}", condition.why)).hint("a run waits until it opens")
        }
        Verdict::Unknown => Check::failed(subject, condition.why)
            .hint("unknown counts as shut: a run would wait for an answer"),
    }
}
