//! ConfigMaps and Secrets: what they hold under their keys.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};

/// Values by key.
pub(super) type Values = BTreeMap<String, Vec<u8>>;

/// An object that holds values, in the namespace of the pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    ConfigMap(String),
    Secret(String),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConfigMap(name) => write!(f, "ConfigMap {name}"),
            Self::Secret(name) => write!(f, "Secret {name}"),
        }
    }
}

/// What was found of the objects that were asked for.
#[derive(Debug)]
pub(super) struct Found(pub(super) BTreeMap<Holder, Values>);

impl Found {
    /// Asks the API server for them. One that is not there is no error yet: it may be optional.
    pub(super) async fn ask(
        client: &Client,
        namespace: &str,
        wanted: BTreeSet<Holder>,
    ) -> Result<Self, String> {
        let mut found = BTreeMap::new();
        for holder in wanted {
            let values = match &holder {
                Holder::ConfigMap(name) => config_map(client, namespace, name).await,
                Holder::Secret(name) => secret(client, namespace, name).await,
            };
            match values {
                Ok(Some(values)) => {
                    found.insert(holder, values);
                }
                Ok(None) => {}
                Err(error) => return Err(format!("the {holder} cannot be read: {error}")),
            }
        }
        Ok(Self(found))
    }

    /// All that one holds; nothing, if it is optional and not there.
    pub(super) fn all(&self, holder: &Holder, optional: Option<bool>) -> Result<Values, String> {
        match self.0.get(holder) {
            Some(values) => Ok(values.clone()),
            None if optional == Some(true) => Ok(Values::new()),
            None => Err(format!(
                "there is no {holder} in the pod's namespace; the pod waits for it"
            )),
        }
    }

    /// What one holds under a key; `None`, if that is optional and not there.
    pub(super) fn one(
        &self,
        holder: &Holder,
        key: &str,
        optional: Option<bool>,
    ) -> Result<Option<Vec<u8>>, String> {
        match self.all(holder, optional)?.remove(key) {
            Some(value) => Ok(Some(value)),
            None if optional == Some(true) => Ok(None),
            None => Err(format!("the {holder} has no key {key}; the pod waits for it")),
        }
    }
}

async fn config_map(client: &Client, namespace: &str, name: &str) -> kube::Result<Option<Values>> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    Ok(api.get_opt(name).await?.map(|found| {
        let text = found.data.into_iter().flatten();
        let bytes = found.binary_data.into_iter().flatten();
        text.map(|(key, value)| (key, value.into_bytes()))
            .chain(bytes.map(|(key, value)| (key, value.0)))
            .collect()
    }))
}

async fn secret(client: &Client, namespace: &str, name: &str) -> kube::Result<Option<Values>> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    Ok(api.get_opt(name).await?.map(|found| {
        let data = found.data.into_iter().flatten();
        data.map(|(key, value)| (key, value.0)).collect()
    }))
}
