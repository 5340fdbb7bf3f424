//! Images of Ceph under cephadm: which one a release is.
//!
//! A tag may be moved. So the image of a release is found once for a run, as cephadm itself would for its upgrade, by the digest, and
//! noted in the cluster; and with it those of the releases that run, to which a daemon may go back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stagger_core::model::{Revision, UnitId};
use stagger_engine::cluster::{BackendError, Call};
use stagger_engine::template::filled;

use crate::api::{CephApi, CephApiError, QueryTarget};
use crate::effects::{api_error, kind_and_id};
use crate::facts::CephFacts;
use crate::facts::cephadm::running_images;

/// Where the image of each release is noted.
const KEY: &str = "stagger/images";

/// An image is pulled to one host to be looked at, and a slow registry takes minutes.
const PULLED: Duration = Duration::from_mins(15);

/// The name of the option of Ceph's configuration by which cephadm knows what to start a daemon from.
const OPTION: &str = "container_image";

/// The images that a run goes by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct ImageRecord {
    /// The run.
    run: String,
    /// The image of each release, `20.2.4`.
    images: BTreeMap<String, String>,
}

/// The image of a release that a run has noted.
///
/// # Errors
/// The cluster cannot be asked.
pub(crate) async fn noted(
    api: &dyn CephApi,
    to: &Revision,
    call: &Call,
) -> Result<Option<String>, BackendError> {
    let record = read(api, &tried(to)).await?;
    let of_run = record.filter(|record| record.run == call.run.as_str());
    Ok(of_run.and_then(|mut record| record.images.remove(to.as_str())))
}

fn tried(to: &Revision) -> String {
    format!("find the image of Ceph {to}")
}

/// Finds the image of a release and notes it for a run: the one that daemons run already, or else the one behind `name`, in which
/// `{release}` is replaced.
///
/// # Errors
/// cephadm cannot get it, or it has another release in it.
pub(crate) async fn find(
    api: &dyn CephApi,
    facts: &CephFacts,
    name: &str,
    to: &Revision,
    call: &Call,
) -> Result<String, BackendError> {
    let tried = tried(to);
    let release = to.as_str();
    let run = call.run.to_string();
    let record = read(api, &tried).await?;
    let mut record = record.filter(|record| record.run == run).unwrap_or_default();
    record.run = run;
    for (version, images) in running_images(facts) {
        // By a digest, where there is one: only that stays what it is.
        let image = images.iter().find(|image| image.contains('@')).or(images.first());
        if let Some(image) = image {
            record.images.entry(version).or_insert_with(|| image.clone());
        }
    }
    let image = match record.images.get(release) {
        Some(image) => image.clone(),
        None => resolved(api, &filled(name, &[("release", release)])?, release, &tried).await?,
    };
    if !is_image(&image) {
        let why = format!("{image:?} is no name of an image that a command may hold");
        return Err(BackendError::permanent(tried, why));
    }
    record.images.insert(release.to_owned(), image.clone());
    let text = serde_json::to_string(&record).map_err(|e| BackendError::permanent(&tried, e.to_string()))?;
    let note = json!({ "prefix": "config-key set", "key": KEY, "val": text });
    api.ask(QueryTarget::Mon, note)
        .await
        .map_err(|e| api_error(&tried, &e))?;
    Ok(image)
}

async fn read(api: &dyn CephApi, tried: &str) -> Result<Option<ImageRecord>, BackendError> {
    match api
        .ask(
            QueryTarget::Mon,
            json!({ "prefix": "config-key get", "key": KEY }),
        )
        .await
    {
        // One that another release has written otherwise is found anew.
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(CephApiError::Refused { rc: 2, .. }) => Ok(None),
        Err(error) => Err(api_error(tried, &error)),
    }
}

/// Whether that is a reference of an image: no shell reads anything else in it.
fn is_image(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_plain)
}

/// The image behind a name, as cephadm finds it: by its digest.
async fn resolved(api: &dyn CephApi, name: &str, release: &str, tried: &str) -> Result<String, BackendError> {
    let question = json!({ "prefix": "orch upgrade check", "image": name });
    let begun = Instant::now();
    let answer = loop {
        match api.ask(QueryTarget::Mgr, question.clone()).await {
            Ok(answer) => break answer,
            // It goes on pulling, and the next question finds what has come.
            Err(CephApiError::TimedOut { .. }) if begun.elapsed() < PULLED => {}
            Err(error) => {
                return Err(
                    api_error(tried, &error).hint(format!("try it: ceph orch upgrade check --image {name}"))
                );
            }
        }
    };
    let found: Value = serde_json::from_slice(&answer)
        .map_err(|e| BackendError::transient(tried, format!("cephadm's answer: {e}")))?;
    judged(&found, name, release).map_err(|why| {
        BackendError::permanent(tried, why)
            .hint("[software] image names the image of a release, with {release} in it")
    })
}

/// What `orch upgrade check` has found, if it is that release.
fn judged(found: &Value, name: &str, release: &str) -> Result<String, String> {
    // ceph version 20.2.4 (7f79…) tentacle (stable)
    let version = found["target_version"].as_str().unwrap_or_default();
    let in_it = version.split(' ').nth(2).unwrap_or_default();
    if in_it != release {
        return Err(format!("{name} has Ceph {in_it:?} in it, not {release}"));
    }
    let image = found["target_digest"]
        .as_str()
        .filter(|digest| !digest.is_empty());
    Ok(image.unwrap_or(name).to_owned())
}

/// The section of the configuration that is a daemon's own.
fn section(unit: &UnitId) -> String {
    match kind_and_id(unit) {
        ("mon" | "mgr" | "osd" | "mds", _) => unit.to_string(),
        (kind, id) => format!("client.{kind}.{id}"),
    }
}

/// Tells cephadm what a daemon is started from: whatever makes cephadm deploy it anew does not take it back.
///
/// # Errors
/// The cluster cannot be asked.
pub(crate) async fn assign(api: &dyn CephApi, unit: &UnitId, image: &str) -> Result<(), BackendError> {
    set(api, &section(unit), image).await
}

async fn set(api: &dyn CephApi, who: &str, image: &str) -> Result<(), BackendError> {
    let command = json!({ "prefix": "config set", "who": who, "name": OPTION, "value": image });
    let tried = format!("set the image of {who}");
    api.ask(QueryTarget::Mon, command)
        .await
        .map_err(|e| api_error(&tried, &e))?;
    Ok(())
}

/// Leaves cephadm as its own upgrade does: one image for all, no settings for single daemons; the daemons that are no units are
/// deployed from it; and it looks at all of them anew.
///
/// # Errors
/// The cluster cannot be asked, or several images are that release.
pub(crate) async fn hand_over(
    api: &dyn CephApi,
    facts: &CephFacts,
    release: &str,
) -> Result<String, BackendError> {
    let tried = format!("give cephadm the image of Ceph {release}");
    let images = running_images(facts).remove(release).unwrap_or_default();
    let noted = read(api, &tried)
        .await?
        .and_then(|mut record| record.images.remove(release));
    let image = noted.filter(|image| images.contains(image)).or_else(|| {
        let by_digest = images.iter().find(|image| image.contains('@'));
        by_digest.or(images.first()).cloned()
    });
    let Some(image) = image else {
        return Err(BackendError::transient(
            tried,
            format!("no daemon says from which image it runs {release}"),
        ));
    };
    set(api, "global", &image).await?;
    let dump = api
        .ask(QueryTarget::Mon, json!({ "prefix": "config dump" }))
        .await
        .map_err(|e| api_error(&tried, &e))?;
    let dump: Vec<Value> = serde_json::from_slice(&dump)
        .map_err(|e| BackendError::transient(&tried, format!("config dump: {e}")))?;
    for option in dump.iter().filter(|option| option["name"] == OPTION) {
        let Some(who) = option["section"].as_str().filter(|who| *who != "global") else {
            continue;
        };
        let command = json!({ "prefix": "config rm", "who": who, "name": OPTION });
        api.ask(QueryTarget::Mon, command)
            .await
            .map_err(|e| api_error(&tried, &e))?;
    }
    let mut deployed = 0;
    if let Some(cephadm) = facts.cephadm.get() {
        for daemon in cephadm.others.iter().filter(|daemon| !daemon.runs(&image)) {
            let command = json!({ "prefix": "orch daemon redeploy", "name": daemon.name });
            api.ask(QueryTarget::Mgr, command)
                .await
                .map_err(|e| api_error(&tried, &e))?;
            deployed += 1;
        }
    }
    look_anew(api).await?;
    Ok(format!(
        "{image} for all; {deployed} daemons that are no units are deployed from it"
    ))
}

/// Has cephadm look at all daemons: what it knows of them is up to ten minutes old.
///
/// # Errors
/// The cluster cannot be asked.
pub(crate) async fn look_anew(api: &dyn CephApi) -> Result<(), BackendError> {
    let question = json!({ "prefix": "orch ps", "refresh": true });
    api.ask(QueryTarget::Mgr, question)
        .await
        .map_err(|e| api_error("have cephadm look at its daemons", &e))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_taken_by_its_digest_and_only_if_it_is_the_release() {
        let found = json!({
            "target_version": "ceph version 20.2.4 (7f793731) tentacle (stable)",
            "target_digest": "q/ceph@sha256:1",
        });
        assert_eq!(
            judged(&found, "q/ceph:v20.2.4", "20.2.4"),
            Ok("q/ceph@sha256:1".to_owned())
        );
        assert_eq!(
            judged(&found, "q/ceph:latest", "20.2.5"),
            Err("q/ceph:latest has Ceph \"20.2.4\" in it, not 20.2.5".to_owned())
        );
        let local = json!({ "target_version": "ceph version 20.2.4 (7f793731) tentacle (stable)", "target_digest": null });
        assert_eq!(
            judged(&local, "q/ceph:v20.2.4", "20.2.4"),
            Ok("q/ceph:v20.2.4".to_owned())
        );
    }

    #[test]
    fn what_a_shell_would_read_is_no_image() {
        assert!(is_image("10.88.0.254:5000/ceph@sha256:0f") && is_image("quay.io/ceph/ceph:v20.2.4"));
        assert!(!is_image("") && !is_image("-x") && !is_image("a b") && !is_image("a'b") && !is_image("a;b"));
    }

    #[test]
    fn sections_are_those_of_ceph() {
        let of = |unit: &str| section(&UnitId::new(unit).unwrap());
        assert_eq!(of("mgr.h1.abc"), "mgr.h1.abc");
        assert_eq!(of("rgw.web.h1.abc"), "client.rgw.web.h1.abc");
    }
}
