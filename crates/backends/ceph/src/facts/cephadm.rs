//! What cephadm says of the daemons that it manages.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};
use stagger_core::model::Fact;

use super::CephFacts;
use super::parse::ParseError;
use crate::api::{CephApi, CephApiError, QueryTarget};

/// Kinds of daemons that run Ceph's own image and are no units, in the order of cephadm's upgrade
/// (`CEPH_IMAGE_TYPES` of its `utils.py`).
pub(crate) const OTHER_KINDS: [&str; 6] = [
    "crash",
    "rbd-mirror",
    "cephfs-mirror",
    "ceph-exporter",
    "nfs",
    "iscsi",
];

/// The sections of the configuration whose image cephadm starts daemons from, those of [`OTHER_KINDS`] included.
pub(crate) const SECTIONS: [&str; 6] = ["mon", "mgr", "osd", "mds", "client.rgw", "client.crash"];

/// What cephadm is about, and which image it would start daemons from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CephadmFacts {
    /// Its background work is paused: it deploys, removes and reconfigures nothing.
    pub paused: bool,
    /// An upgrade of its own that is not over, in its words.
    pub upgrade: Option<String>,
    /// The image of each of [`SECTIONS`].
    pub images: BTreeMap<String, String>,
    /// Daemons that are no units: those of [`OTHER_KINDS`].
    pub others: Vec<CephadmDaemon>,
}

/// A daemon as `orch ps` lists it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CephadmDaemon {
    /// `crash.h1`
    #[serde(rename = "daemon_name")]
    pub name: String,
    /// What its container was started from; not there while cephadm has not looked at it.
    #[serde(default, rename = "container_image_name")]
    pub image: Option<String>,
    /// The same by its digests.
    #[serde(default, rename = "container_image_digests")]
    pub digests: Option<Vec<String>>,
}

impl CephadmDaemon {
    /// Whether it was started from that image.
    pub fn runs(&self, image: &str) -> bool {
        let digests = self.digests.iter().flatten();
        digests.chain(&self.image).any(|own| own == image)
    }
}

impl CephadmFacts {
    /// The image that cephadm starts all daemons of Ceph from; `None`: several.
    pub fn image(&self) -> Option<&str> {
        let all: BTreeSet<&str> = self.images.values().map(String::as_str).collect();
        match (all.len(), all.first()) {
            (1, Some(one)) => Some(one),
            _ => None,
        }
    }
}

/// How the names begin of the condition that cephadm starts every daemon from the image of a release, and of the step that makes it
/// so.
pub(crate) const CONTAINER_IMAGE: &str = "container-image-";

/// That name for a release.
pub(crate) fn container_image(release: &str) -> String {
    format!("{CONTAINER_IMAGE}{release}")
}

/// The images that daemons of a release run, `20.2.4`, as they say themselves.
pub(crate) fn running_images(facts: &CephFacts) -> BTreeMap<String, BTreeSet<String>> {
    let named = [&facts.mon_metadata, &facts.mgr_metadata, &facts.mds_metadata];
    let named = named
        .into_iter()
        .flatten()
        .map(|daemon| (&daemon.version, &daemon.image));
    let osds = facts.osd_metadata.iter().map(|osd| (&osd.version, &osd.image));
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (version, image) in named.chain(osds) {
        if let (Some(version), Some(image)) = (version, image) {
            found.entry(version.clone()).or_default().insert(image.clone());
        }
    }
    found
}

/// What `orch upgrade status` tells of an upgrade that is not over. Where there is none it answers in words also to those who ask
/// for JSON.
fn upgrade(answer: &[u8]) -> Fact<Option<String>> {
    let text = String::from_utf8_lossy(answer);
    if text.contains("no upgrades in progress") {
        return Fact::Yes(None);
    }
    let Ok(status) = serde_json::from_str::<Value>(&text) else {
        return Fact::No(format!("cephadm says of its upgrade {text:.200}"));
    };
    if status["in_progress"] == Value::Bool(false) {
        return Fact::Yes(None);
    }
    let word = |key: &str| status[key].as_str().filter(|word| !word.is_empty());
    let to = word("target_image").unwrap_or("an image that it does not name");
    let paused = if status["is_paused"] == Value::Bool(true) {
        ", paused"
    } else {
        ""
    };
    let told = word("message")
        .map(|told| format!(": {told}"))
        .unwrap_or_default();
    Fact::Yes(Some(format!("to {to}{paused}{told}")))
}

/// Asks for the rest, where `orch status` has said that it is cephadm, `status`. Managers come and go: an answer that does not come
/// is a fact too.
///
/// # Errors
/// The cluster is not reached.
pub(crate) async fn ask(api: &dyn CephApi, status: &Value) -> Result<Fact<CephadmFacts>, CephApiError> {
    match asked(api, status).await {
        Ok(fact) => Ok(fact),
        Err(error @ (CephApiError::TimedOut { .. } | CephApiError::Refused { .. })) => {
            Ok(Fact::No(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

async fn asked(api: &dyn CephApi, status: &Value) -> Result<Fact<CephadmFacts>, CephApiError> {
    let found = api
        .ask(QueryTarget::Mgr, json!({ "prefix": "orch upgrade status" }))
        .await?;
    let upgrade = match upgrade(&found) {
        Fact::Yes(upgrade) => upgrade,
        Fact::No(why) => return Ok(Fact::No(why)),
    };
    let mut images = BTreeMap::new();
    for who in SECTIONS {
        let question = json!({ "prefix": "config get", "who": who, "key": "container_image" });
        let image = api.ask(QueryTarget::Mon, question).await?;
        let image = String::from_utf8_lossy(&image);
        images.insert(who.to_owned(), image.trim().trim_matches('"').to_owned());
    }
    let mut others = Vec::new();
    for kind in OTHER_KINDS {
        let question = json!({ "prefix": "orch ps", "daemon_type": kind });
        let answer = api.ask(QueryTarget::Mgr, question).await?;
        match listed(&answer) {
            Ok(listed) => others.extend(listed),
            Err(error) => return Ok(Fact::No(error.to_string())),
        }
    }
    Ok(Fact::Yes(CephadmFacts {
        paused: status["paused"] == Value::Bool(true),
        upgrade,
        images,
        others,
    }))
}

/// A list of daemons; cephadm says in words that there are none.
fn listed(answer: &[u8]) -> Result<Vec<CephadmDaemon>, ParseError> {
    if answer.trim_ascii().starts_with(b"No daemons") || answer.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    super::from_json(answer, "orch ps")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cephadm_says_of_its_upgrade_is_read() {
        let none = b"There are no upgrades in progress currently.";
        assert_eq!(upgrade(none), Fact::Yes(None));
        let over = br#"{"in_progress": false, "target_image": null, "message": ""}"#;
        assert_eq!(upgrade(over), Fact::Yes(None));
        let paused = br#"{"in_progress": true, "target_image": "q/ceph:v20", "is_paused": true, "message": "Error: UPGRADE_FAILED_PULL"}"#;
        assert_eq!(
            upgrade(paused),
            Fact::Yes(Some(
                "to q/ceph:v20, paused: Error: UPGRADE_FAILED_PULL".to_owned()
            ))
        );
        assert!(matches!(upgrade(b"what"), Fact::No(_)));
    }

    #[test]
    fn a_daemon_is_known_by_its_image_or_a_digest() {
        let daemons = listed(
            br#"[{"daemon_name": "crash.h1", "container_image_name": "q/ceph:v20", "container_image_digests": ["q/ceph@sha256:1"]},
                 {"daemon_name": "crash.h2"}]"#,
        )
        .unwrap();
        assert!(daemons[0].runs("q/ceph@sha256:1") && daemons[0].runs("q/ceph:v20"));
        assert!(!daemons[0].runs("q/ceph@sha256:2") && !daemons[1].runs("q/ceph:v20"));
        assert_eq!(listed(b"No daemons reported\n").unwrap(), []);
    }

    #[test]
    fn one_image_or_several() {
        let of = |images: &[(&str, &str)]| CephadmFacts {
            images: images
                .iter()
                .map(|(who, image)| ((*who).to_owned(), (*image).to_owned()))
                .collect(),
            ..CephadmFacts::default()
        };
        assert_eq!(of(&[("mon", "a"), ("osd", "a")]).image(), Some("a"));
        assert_eq!(of(&[("mon", "a"), ("osd", "b")]).image(), None);
        assert_eq!(of(&[]).image(), None);
    }
}
