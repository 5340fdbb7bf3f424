//! Ceph's own oracle: `osd ok-to-stop`, `mon ok-to-stop`, `mds ok-to-stop`.

use serde_json::{Value, json};
use stagger_core::model::{UnitId, check_plain};
use stagger_core::run::Answer;
use stagger_engine::cluster::BackendError;

use crate::api::{CephApi, QueryTarget};
use crate::effects::{api_error, kind_and_id};

/// The answer about all kinds of daemons together: the worst of those about each. A kind of which Ceph says nothing leaves it to
/// the others.
pub(crate) fn together(answers: Vec<Answer>) -> Answer {
    let worse = |answer: &Answer| match answer {
        Answer::NoOracle => 0,
        Answer::Yes => 1,
        Answer::Overridden { .. } => 2,
        Answer::Unknown { .. } => 3,
        Answer::No { .. } => 4,
    };
    let worst = answers.into_iter().max_by_key(worse);
    worst.unwrap_or(Answer::Yes)
}

/// Whether all of `units`, which are of one kind, may stop together now. Of a kind that Ceph
/// says nothing about there is [`Answer::NoOracle`].
///
/// # Errors
/// Ceph gives no answer.
pub async fn ok_to_stop(api: &dyn CephApi, units: &[UnitId]) -> Result<Answer, BackendError> {
    let Some((kind, _)) = units.first().map(kind_and_id) else {
        return Ok(Answer::Yes);
    };
    let ids: Vec<&str> = units.iter().map(|unit| kind_and_id(unit).1).collect();
    // They become words of a program.
    if let Some((id, why)) = ids.iter().find_map(|id| Some((id, check_plain(id).err()?))) {
        let why = format!("{kind}.{id} cannot be asked about: {why}");
        return Ok(Answer::Unknown { why });
    }
    let (whom, prefix) = match kind {
        "osd" => (QueryTarget::Mgr, "osd ok-to-stop"),
        "mon" => (QueryTarget::Mon, "mon ok-to-stop"),
        "mds" => (QueryTarget::Mon, "mds ok-to-stop"),
        _ => return Ok(Answer::NoOracle),
    };
    let answer = api
        .command(whom, json!({ "prefix": prefix, "ids": ids, "format": "json" }))
        .await
        .map_err(|e| api_error(prefix, &e))?;
    let said = answer.err.trim().lines().next().unwrap_or("").to_owned();
    let body: Value = serde_json::from_slice(&answer.out).unwrap_or(Value::Null);
    // Some releases wrap the answer once more.
    let body = if body["ok_to_stop"].is_object() {
        body["ok_to_stop"].clone()
    } else {
        body
    };
    Ok(match answer.rc {
        0 if kind != "osd" || body["ok_to_stop"] == Value::Bool(true) => Answer::Yes,
        0 => Answer::Unknown {
            why: "the answer does not say yes".to_owned(),
        },
        16 => {
            let bad: Vec<_> = ["bad_become_inactive", "bad_already_inactive", "bad_no_pool_pgs"]
                .iter()
                .filter_map(|list| Some((list, body[list].as_array()?)))
                .map(|(list, pgs)| {
                    let names: Vec<_> = pgs.iter().filter_map(Value::as_str).take(5).collect();
                    format!("{} {}: {}", pgs.len(), list.replace('_', " "), names.join(" "))
                })
                .collect();
            let unknown = body["unknown_pgs"].as_array().map_or(0, Vec::len);
            if bad.is_empty() && unknown > 0 {
                Answer::Unknown {
                    why: format!("{unknown} placement groups are unknown to the manager"),
                }
            } else {
                Answer::No {
                    why: if bad.is_empty() {
                        said
                    } else {
                        format!("{said} ({})", bad.join("; "))
                    },
                }
            }
        }
        rc => Answer::Unknown {
            why: format!("code {rc}: {said}"),
        },
    })
}
