//! Tokens of a pod's service account, bound to the pod.

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection, VolumeProjection};
use kube::api::PostParams;
use kube::{Api, Client};

use super::content::{Content, Files};

/// The tokens that a volume is to hold.
pub(super) async fn files(client: &Client, pod: &Pod, sources: &[VolumeProjection]) -> Result<Files, String> {
    let mut files = Files::new();
    for wish in sources
        .iter()
        .filter_map(|source| source.service_account_token.as_ref())
    {
        let token = token(client, pod, wish).await?;
        files.insert(wish.path.clone(), Content::of(token.into_bytes()));
    }
    Ok(files)
}

async fn token(client: &Client, pod: &Pod, wish: &ServiceAccountTokenProjection) -> Result<String, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let account = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.service_account_name.as_deref())
        .unwrap_or("default");
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            // None given: the API server's own.
            audiences: wish.audience.clone().map(|one| vec![one]),
            expiration_seconds: wish.expiration_seconds,
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let failed = |why: &str| format!("no token of the ServiceAccount {account}: {why}");
    let answer = api
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .map_err(|error| failed(&error.to_string()))?;
    let token = answer.status.and_then(|status| status.token);
    token.ok_or_else(|| failed("the API server gave none"))
}
