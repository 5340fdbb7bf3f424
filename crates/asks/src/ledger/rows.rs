//! Rows, as they are written and read.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stagger_core::model::ClusterId;

use super::{LedgerError, Rows, Statement, Value, statements as sql};
use crate::ask::{Ask, AskEnd, AskGrant, AskState, NewAsk};
use crate::claim::{Claim, ClaimHolder, ClaimRecord};

/// The parts of an ask that never change, as they are stored.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
struct AskBody {
    version: u32,
    #[serde(flatten)]
    wanted: NewAsk,
}

/// A claim as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct ClaimBody {
    version: u32,
    #[serde(flatten)]
    claim: Claim,
}

const VERSION: u32 = 1;

pub(super) fn ask_body(wanted: &NewAsk) -> Result<String, LedgerError> {
    serde_json::to_string(&AskBody {
        version: VERSION,
        wanted: wanted.clone(),
    })
    .map_err(|error| LedgerError::Unreadable {
        what: "an ask".to_owned(),
        why: error.to_string(),
    })
}

pub(super) fn claim_body(claim: &Claim) -> Result<String, LedgerError> {
    serde_json::to_string(&ClaimBody {
        version: VERSION,
        claim: claim.clone(),
    })
    .map_err(|error| LedgerError::Unreadable {
        what: "a claim".to_owned(),
        why: error.to_string(),
    })
}

pub(super) fn write_claim(
    cluster: &ClusterId,
    holder: &ClaimHolder,
    claim: &Claim,
    lasts: Duration,
) -> Result<Statement, LedgerError> {
    Ok(Statement::new(
        sql::WRITE_CLAIM,
        vec![
            cluster.as_str().into(),
            Value::Text(holder.to_string()),
            Value::Text(claim_body(claim)?),
            Value::Real(lasts.as_secs_f64()),
        ],
    ))
}

/// The fence in the first row of the first statement.
pub(super) fn fence_of(rows: &[Rows]) -> Result<u64, LedgerError> {
    let first = rows.first().and_then(|rows| rows.first()).cloned();
    Row::of("a fence", first.unwrap_or_default()).whole()
}

/// The columns of a row, from left to right.
pub(super) struct Row {
    what: &'static str,
    columns: std::vec::IntoIter<Option<String>>,
}

impl Row {
    pub(super) fn of(what: &'static str, columns: Vec<Option<String>>) -> Self {
        Self {
            what,
            columns: columns.into_iter(),
        }
    }

    fn unreadable(&self, why: impl fmt::Display) -> LedgerError {
        LedgerError::Unreadable {
            what: self.what.to_owned(),
            why: why.to_string(),
        }
    }

    pub(super) fn maybe(&mut self) -> Option<String> {
        self.columns.next().flatten()
    }

    fn text(&mut self) -> Result<String, LedgerError> {
        self.maybe().ok_or_else(|| self.unreadable("a column is empty"))
    }

    pub(super) fn parsed<T: std::str::FromStr<Err: fmt::Display>>(&mut self) -> Result<T, LedgerError> {
        let text = self.text()?;
        text.parse().map_err(|error| self.unreadable(error))
    }

    pub(super) fn whole(&mut self) -> Result<u64, LedgerError> {
        self.parsed()
    }

    fn maybe_time(&mut self) -> Result<Option<Timestamp>, LedgerError> {
        let Some(text) = self.maybe() else { return Ok(None) };
        let seconds: f64 = text.parse().map_err(|error| self.unreadable(error))?;
        #[expect(clippy::cast_possible_truncation, reason = "a time of this era fits")]
        let micros = (seconds * 1e6).round() as i64;
        Timestamp::from_microsecond(micros)
            .map(Some)
            .map_err(|error| self.unreadable(error))
    }

    pub(super) fn time(&mut self) -> Result<Timestamp, LedgerError> {
        self.maybe_time()?
            .ok_or_else(|| self.unreadable("a time is missing"))
    }
}

pub(super) fn claimed(columns: Vec<Option<String>>) -> Result<ClaimRecord, LedgerError> {
    let mut row = Row::of("a claim", columns);
    let fence = row.whole()?;
    let holder = row.text()?;
    let holder = ClaimHolder::of(&holder).ok_or_else(|| row.unreadable(format!("holder {holder:?}")))?;
    let body: ClaimBody = serde_json::from_str(&row.text()?).map_err(|error| row.unreadable(error))?;
    Ok(ClaimRecord {
        fence,
        holder,
        claim: body.claim,
        expires: row.time()?,
    })
}

pub(super) fn ask(columns: Vec<Option<String>>) -> Result<Ask, LedgerError> {
    let mut row = Row::of("an ask", columns);
    let id = row.parsed()?;
    let body: AskBody = serde_json::from_str(&row.text()?).map_err(|error| row.unreadable(error))?;
    let asked = row.time()?;
    let state = row.text()?;
    let fence = row.maybe();
    let expires = row.maybe_time()?;
    let seen_down = row.text()? != "0";
    let answer = row.maybe();
    let ended = row.maybe_time()?;
    let state = match state.as_str() {
        "waiting" => {
            let answer = answer.as_deref().map(serde_json::from_str).transpose();
            AskState::Waiting(answer.map_err(|error| row.unreadable(error))?.unwrap_or_default())
        }
        "granted" => AskState::Granted(AskGrant {
            fence: fence
                .and_then(|fence| fence.parse().ok())
                .ok_or_else(|| row.unreadable("a grant without a fence"))?,
            expires: expires.ok_or_else(|| row.unreadable("a grant without an end"))?,
            seen_down,
        }),
        word => AskState::Ended {
            how: AskEnd::of(word).ok_or_else(|| row.unreadable(format!("state {word:?}")))?,
            at: ended.ok_or_else(|| row.unreadable("an end without a time"))?,
            why: answer.unwrap_or_default(),
        },
    };
    Ok(Ask {
        id,
        wanted: body.wanted,
        asked,
        state,
    })
}
