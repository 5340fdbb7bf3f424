//! All objects of a program, by name: for comparison with its manifest, and for objects whose type is not
//! known statically.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Version;
use crate::boundary::{NotBackported, Sent, Unreceived};
use crate::chain::Chain;
use crate::envelope;
use crate::manifest::{Fault, Faults, Manifest};
use crate::object::{Child, Versioned};

/// The chains of a program.
#[derive(Default, Clone)]
pub struct Registry {
    chains: BTreeMap<&'static str, Arc<dyn AnyChain>>,
}

/// A chain whose type is not named.
trait AnyChain: Send + Sync {
    fn versions(&self) -> Vec<(Version, &'static [Child])>;
    fn backport(&self, text: &str, to: Version) -> Result<Sent, NotBackported>;
}

impl<T: Versioned> AnyChain for Chain<T> {
    fn versions(&self) -> Vec<(Version, &'static [Child])> {
        Chain::versions(self)
    }
    fn backport(&self, text: &str, to: Version) -> Result<Sent, NotBackported> {
        Chain::backport(self, text, to)
    }
}

impl Registry {
    /// No objects yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an object. One that was there before by that name is replaced.
    #[must_use]
    pub fn with<T: Versioned>(mut self, chain: Arc<Chain<T>>) -> Self {
        self.chains.insert(T::NAME, chain);
        self
    }

    /// The newest version of each object, which is what this code reads: other processes want to know.
    pub fn newest_versions(&self) -> BTreeMap<&'static str, Version> {
        let newest = |chain: &Arc<dyn AnyChain>| chain.versions().last().map(|(version, _)| *version);
        self.chains
            .iter()
            .filter_map(|(name, chain)| Some((*name, newest(chain)?)))
            .collect()
    }

    /// All versions of all objects, by name, lowest first.
    pub fn versions(&self) -> Vec<(&'static str, Version, &'static [Child])> {
        let each = self.chains.iter().flat_map(|(name, chain)| {
            let versions = chain.versions().into_iter();
            versions.map(|(version, children)| (*name, version, children))
        });
        each.collect()
    }

    /// An envelope of any object of ours in an older version.
    pub fn backport(&self, text: &str, to: Version) -> Result<Sent, NotBackported> {
        let no_envelope = |error: serde_json::Error| Unreceived::NoEnvelope {
            why: error.to_string(),
        };
        let (kind, _) = envelope::label(text).map_err(no_envelope)?;
        let Some(chain) = self.chains.get(kind.as_str()) else {
            let ours: Vec<&str> = self.chains.keys().copied().collect();
            return Err(NotBackported::Unreceived(Unreceived::OtherKind {
                expected: format!("one of {}", ours.join(", ")),
                kind,
            }));
        };
        chain.backport(text, to)
    }

    /// Compares the code with its manifest: every object listed, every version listed has code, the newest are the same,
    /// and no object carries another in a version that its release does not have.
    ///
    /// Call it in a test, and again when the process starts.
    pub fn check(&self, manifest: &Manifest) -> Result<(), Faults> {
        let mut faults = Vec::new();
        let current = manifest.current();
        for (name, chain) in &self.chains {
            let newest = chain.versions().last().map(|(version, _)| *version);
            match (newest, manifest.writes(current, name)) {
                (_, None) => faults.push(Fault::NotListed {
                    object: (*name).to_owned(),
                    release: manifest.label(current),
                }),
                (Some(code), Some(listed)) if code != listed => faults.push(Fault::NewestDiffers {
                    object: (*name).to_owned(),
                    code,
                    listed,
                    release: manifest.label(current),
                }),
                (_, Some(_)) => {}
            }
        }
        for place in manifest.places() {
            let release = manifest.label(place);
            for (object, versions) in manifest.objects(place) {
                let known = self
                    .chains
                    .get(object.as_str())
                    .map(|chain| chain.versions())
                    .unwrap_or_default();
                for version in versions.iter() {
                    let Some((_, children)) = known.iter().find(|(known, _)| *known == version) else {
                        faults.push(Fault::NoCode {
                            object: object.clone(),
                            version,
                            release: release.clone(),
                        });
                        continue;
                    };
                    for child in *children {
                        let listed = manifest.objects(place).get(child.name());
                        if !listed.is_some_and(|versions| versions.contains(child.version())) {
                            faults.push(Fault::Child {
                                object: object.clone(),
                                version,
                                child: child.name().to_owned(),
                                carried: child.version(),
                                release: release.clone(),
                            });
                        }
                    }
                }
            }
        }
        if faults.is_empty() {
            Ok(())
        } else {
            Err(Faults(faults))
        }
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.newest_versions()).finish()
    }
}
