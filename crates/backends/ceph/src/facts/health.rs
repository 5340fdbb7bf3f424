//! Ceph's health checks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ParseError, from_json};

/// The cluster's health, as `health detail` tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// The overall word: `HEALTH_OK`, `HEALTH_WARN`, `HEALTH_ERR`.
    pub status: String,
    /// The complaints by code.
    pub checks: BTreeMap<String, HealthCheck>,
}

/// A complaint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HealthCheck {
    /// An error rather than a warning.
    pub error: bool,
    /// It is muted.
    pub muted: bool,
    /// Ceph's words.
    pub message: String,
}

#[derive(Deserialize)]
struct Raw {
    status: String,
    #[serde(default)]
    checks: BTreeMap<String, RawCheck>,
}

#[derive(Deserialize)]
struct RawCheck {
    severity: String,
    #[serde(default)]
    muted: bool,
    summary: RawSummary,
}

#[derive(Deserialize)]
struct RawSummary {
    message: String,
}

impl Health {
    /// Reads `health detail`.
    ///
    /// # Errors
    /// No JSON, or not that shape.
    pub fn read(bytes: &[u8], origin: &str) -> Result<Self, ParseError> {
        let raw: Raw = from_json(bytes, origin)?;
        let checks = raw.checks.into_iter().map(|(code, check)| {
            let complaint = HealthCheck {
                // A severity other than warning counts as an error.
                error: check.severity != "HEALTH_WARN",
                muted: check.muted,
                message: check.summary.message,
            };
            (code, complaint)
        });
        Ok(Self {
            status: raw.status,
            checks: checks.collect(),
        })
    }
}

/// A crash report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// Its number, which is different for each.
    #[serde(rename = "crash_id")]
    pub id: String,
    /// Which daemon: `osd.3`.
    #[serde(rename = "entity_name")]
    pub daemon: String,
}

/// Reads `crash ls-new`.
///
/// # Errors
/// No JSON, or not that shape.
pub fn read_crashes(bytes: &[u8], origin: &str) -> Result<Vec<Crash>, ParseError> {
    let mut crashes: Vec<Crash> = from_json(bytes, origin)?;
    crashes.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(crashes)
}
