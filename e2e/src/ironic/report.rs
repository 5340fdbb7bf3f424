//! What the clients of an Ironic told, and whose fault it was.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::failure::Failure;
use super::signatures::{SIGNATURES, Signature};

/// How many kinds of clients there are: each tells its figures.
pub(super) const CLIENTS: usize = 5;

/// A line of the clients.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Event {
    /// Each client has succeeded once.
    Ready {},
    /// A request failed.
    Failure(Failure),
    /// A client's figures.
    End(Figures),
}

/// What one client did.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Figures {
    /// The client.
    pub client: String,
    /// How long it ran.
    pub seconds: f64,
    /// Its requests, also those that were repeated and those of the verification.
    pub requests: u64,
    /// Those that failed.
    pub failures: u64,
    /// Those that met a locked node and were repeated.
    pub busy: u64,
    /// The time of the median request, in seconds.
    pub median: f64,
    /// So long, in seconds, a request took of which one in a hundred took longer.
    pub p99: f64,
    /// The longest, in seconds.
    pub worst: f64,
    /// When that began, in seconds of Unix time.
    pub worst_at: f64,
    /// Things that were as acknowledged when all was read back at the end.
    pub verified: u64,
    /// Things that were not: writes that were lost.
    pub wrong: u64,
}

/// What all clients did.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Each client's figures.
    pub clients: Vec<Figures>,
    failures: Vec<Failure>,
}

impl Report {
    pub(super) fn new(events: &[Event]) -> Self {
        let mut clients: Vec<Figures> = events
            .iter()
            .filter_map(|event| match event {
                Event::End(figures) => Some(figures.clone()),
                Event::Ready {} | Event::Failure(_) => None,
            })
            .collect();
        clients.sort_by(|one, other| one.client.cmp(&other.client));
        Self {
            clients,
            failures: failures(events),
        }
    }

    /// Every request that failed, in the order in which they were told.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// All requests of all clients.
    pub fn requests(&self) -> u64 {
        self.clients.iter().map(|client| client.requests).sum()
    }

    /// The longest request of all clients, in seconds.
    pub fn worst(&self) -> f64 {
        self.clients.iter().map(|client| client.worst).fold(0.0, f64::max)
    }

    /// Whether everything that was acknowledged is there, and each client has something to show.
    ///
    /// # Errors
    /// Something is not as it was acknowledged, or a client did nothing.
    pub fn ensure_nothing_lost(&self) -> Result<()> {
        ensure!(
            self.clients.len() == CLIENTS,
            "not all clients told figures: {self}"
        );
        for client in &self.clients {
            ensure!(
                client.wrong == 0 && client.verified > 0,
                "what {} was told is not so at the end: {client:?}",
                client.client
            );
        }
        Ok(())
    }

    /// Tells failures that are Ironic's own, by the signatures and its logs, from those that are ours.
    pub fn judge(&self, log: &[String]) -> Judged<'_> {
        judge(&self.failures, &SIGNATURES, log)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "client     seconds  requests  failures  locked   median      99 %  longest  right at the end  wrong"
        )?;
        for figures in &self.clients {
            let Figures {
                client,
                seconds,
                requests,
                failures,
                busy,
                median,
                p99,
                worst,
                worst_at: _,
                verified,
                wrong,
            } = figures;
            writeln!(
                f,
                "{client:<10} {seconds:>7.1} {requests:>9} {failures:>9} {busy:>7} {median:>6.2} s {p99:>7.2} s \
                 {worst:>6.2} s {verified:>17} {wrong:>6}"
            )?;
        }
        // Equal ones once.
        let mut kinds: BTreeMap<String, (usize, &Failure)> = BTreeMap::new();
        for failure in &self.failures {
            let kind = format!("{} {} {:?}", failure.client, failure.method, failure.status);
            kinds.entry(kind).or_insert((0, failure)).0 += 1;
        }
        for (count, first) in kinds.values() {
            writeln!(f, "{count} times, first {first}")?;
        }
        Ok(())
    }
}

/// Failures, and whose they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged<'a> {
    /// Known defects of Ironic: the signature, and a line of its log, agree.
    pub of_ironic: Vec<(&'a Failure, &'static str)>,
    /// Everything else.
    pub ours: Vec<&'a Failure>,
}

impl Judged<'_> {
    /// Fails unless every failure is one of these defects of Ironic's own.
    ///
    /// # Errors
    /// One is ours, or a defect is not known there.
    pub fn ensure_only(&self, defects: &[&str]) -> Result<()> {
        let ours: Vec<String> = self.ours.iter().map(ToString::to_string).collect();
        ensure!(ours.is_empty(), "ours: {ours:#?}");
        let found = self.defects();
        ensure!(
            found.keys().all(|defect| defects.contains(defect)),
            "of Ironic's own only {defects:?} are known there, and not all of {found:?}"
        );
        Ok(())
    }

    /// How many failures of Ironic's own there are of each defect.
    pub fn defects(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for (_, defect) in &self.of_ironic {
            *counts.entry(*defect).or_default() += 1;
        }
        counts
    }
}

fn judge<'a>(failures: &'a [Failure], signatures: &'static [Signature], log: &[String]) -> Judged<'a> {
    let mut judged = Judged {
        of_ironic: Vec::new(),
        ours: Vec::new(),
    };
    for failure in failures {
        let found = signatures.iter().find(|signature| {
            // A write that was not done is lost, whoever says so.
            let done = failure.applied != Some(false);
            done && signature.fits(failure) && log.iter().any(|line| signature.is_told(failure, line))
        });
        match found {
            Some(signature) => judged.of_ironic.push((failure, signature.defect)),
            None => judged.ours.push(failure),
        }
    }
    judged
}

pub(super) fn failures(events: &[Event]) -> Vec<Failure> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Failure(failure) => Some(failure.clone()),
            Event::Ready {} | Event::End(_) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> Failure {
        // As it came, but for the length.
        let text = r#"{"event": "failure", "client": "nodes", "method": "PATCH", "path": "/v1/nodes/n3", "status": 500,
            "body": "{\"error_message\": \"{\\\"faultcode\\\": \\\"Server\\\", \\\"faultstring\\\": \\\"Version 1.2 of TraitList is not supported, supported version is 1.0\\\", \\\"debuginfo\\\": null}\"}",
            "request_id": "req-b8a3a702-7fd7-42e8-928d-f2d7eb83be9a", "at": 1795352720.6, "took": 0.4, "error": null,
            "applied": true}"#;
        match serde_json::from_str(text).unwrap() {
            Event::Failure(failure) => failure,
            other => panic!("{other:?}"),
        }
    }

    fn log() -> Vec<String> {
        [
            "2026-11-22 13:05:20.900 915 INFO eventlet.wsgi.server [None req-b8a3a702-7fd7-42e8-928d-f2d7eb83be9a - - - - - -] 127.0.0.1",
            "2026-11-22 13:05:21.013 915 ERROR ironic.api.method [None req-b8a3a702-7fd7-42e8-928d-f2d7eb83be9a - - - - - -] \
             Server-side error: \"Version 1.2 of TraitList is not supported, supported version is 1.0\". Detail: ",
            "Traceback (most recent call last):",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    #[test]
    fn a_failure_is_ironic_s_own_if_body_and_log_say_so() {
        let all = [failure()];
        let judged = judge(&all, &SIGNATURES, &log());
        assert_eq!(judged.defects(), [("D1", 1)].into());
        assert!(judged.ours.is_empty());
    }

    #[test]
    fn everything_else_is_ours() {
        let mut changes: Vec<(&str, Failure)> = Vec::new();
        let mut add = |what, change: fn(&mut Failure)| {
            let mut failure = failure();
            change(&mut failure);
            changes.push((what, failure));
        };
        add("another status", |failure| failure.status = Some(503));
        add("no answer", |failure| failure.status = None);
        add("another body", |failure| {
            failure.body = "Can not schedule new futures".to_owned();
        });
        add("another method", |failure| failure.method = "DELETE".to_owned());
        add("another request", |failure| {
            failure.request_id = Some("req-6dfcbc2e-f7a1-4853-9b6b-298d5f7cd3bf".to_owned());
        });
        add("not applied", |failure| failure.applied = Some(false));
        add("no request", |failure| failure.request_id = None);
        add("accepted and not done", |failure| {
            failure.error = Some("was accepted and not done".to_owned());
        });
        for (what, failure) in changes {
            let failures = [failure];
            let judged = judge(&failures, &SIGNATURES, &log());
            assert!(judged.of_ironic.is_empty() && judged.ours.len() == 1, "{what}");
        }
        let failures = [failure()];
        assert_eq!(
            judge(&failures, &SIGNATURES, &[]).ours.len(),
            1,
            "no line of a log"
        );
    }

    #[test]
    fn lost_writes_and_silent_clients_are_noticed() {
        let end = |client: &str, wrong: u64| {
            let text = format!(
                r#"{{"event": "end", "client": "{client}", "seconds": 20.0, "requests": 90, "failures": 0, "busy": 0,
                    "median": 0.1, "p99": 0.5, "worst": 1.0, "worst_at": 0.0, "verified": 6, "wrong": {wrong}}}"#
            );
            serde_json::from_str::<Event>(&text).unwrap()
        };
        let names = ["lists", "nodes", "ports", "power", "provision"];
        let good: Vec<_> = names.iter().map(|name| end(name, 0)).collect();
        Report::new(&good).ensure_nothing_lost().unwrap();
        assert_eq!(Report::new(&good).requests(), 450);
        assert!(Report::new(&good[1..]).ensure_nothing_lost().is_err());
        let lost: Vec<_> = names
            .iter()
            .map(|name| end(name, u64::from(*name == "ports")))
            .collect();
        assert!(Report::new(&lost).ensure_nothing_lost().is_err());
    }
}
