//! What cephadm is about, beside its daemons.

use std::collections::BTreeSet;

use stagger_core::model::{Condition, Fact, IdError, Verdict};

use super::{NO_OTHER_UPGRADE, VerdictReason, condition, short_list, verdict_if};
use crate::facts::CephFacts;
use crate::facts::cephadm::{CephadmFacts, container_image, running_images};

/// The conditions of a cluster that cephadm manages.
pub(super) fn add(facts: &CephFacts, all: &mut Vec<Condition>) -> Result<(), IdError> {
    let managed = facts.orchestrator.get().and_then(Option::as_deref) == Some("cephadm");
    match &facts.cephadm {
        Fact::Yes(cephadm) => {
            all.push(condition(NO_OTHER_UPGRADE, other_upgrade(cephadm))?);
            for (version, running) in running_images(facts) {
                let name = container_image(&version);
                all.push(condition(&name, one_image(cephadm, &running))?);
            }
        }
        Fact::No(why) if managed => {
            all.push(condition(NO_OTHER_UPGRADE, (Verdict::Unknown, why.clone()))?);
        }
        Fact::No(_) => {}
    }
    Ok(())
}

fn other_upgrade(cephadm: &CephadmFacts) -> VerdictReason {
    match &cephadm.upgrade {
        None => (Verdict::Yes, "cephadm upgrades nothing".to_owned()),
        Some(upgrade) => (
            Verdict::No,
            format!("cephadm upgrades by itself, {upgrade}; `ceph orch upgrade stop` ends that"),
        ),
    }
}

/// `running`: the images that daemons of the version run.
fn one_image(cephadm: &CephadmFacts, running: &BTreeSet<String>) -> VerdictReason {
    let Some(image) = cephadm.image() else {
        return (
            Verdict::No,
            "cephadm starts daemons from several images".to_owned(),
        );
    };
    if !running.contains(image) {
        return (Verdict::No, format!("cephadm starts daemons from {image}"));
    }
    let behind = cephadm.others.iter().filter(|daemon| !daemon.runs(image));
    let behind = short_list(behind.map(|daemon| &daemon.name));
    let why = if behind.is_empty() {
        format!("all run {image}")
    } else {
        format!("not from {image} yet: {behind}")
    };
    (verdict_if(behind.is_empty()), why)
}
