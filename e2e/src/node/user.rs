//! Whom the processes of a container run as.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::Image;

/// A user by number, with its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    uid: i64,
    gid: i64,
    /// That of its volumes, if the pod has one for them.
    groups: Vec<i64>,
}

impl User {
    /// By the container, else its pod, else the image; none of them says: root, as whom the agent runs.
    pub(super) fn of(pod: &Pod, container: &Container, image: &Image) -> Option<Self> {
        let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
        let of_container = container.security_context.as_ref();
        let user = of_container
            .and_then(|it| it.run_as_user)
            .or_else(|| of_pod?.run_as_user)
            .or(image.user.map(i64::from))?;
        let group = of_container
            .and_then(|it| it.run_as_group)
            .or_else(|| of_pod?.run_as_group);
        Some(Self {
            uid: user,
            gid: group.unwrap_or(0),
            groups: of_pod.and_then(|it| it.fs_group).into_iter().collect(),
        })
    }

    /// What `chroot` is told of it.
    pub(super) fn words(&self) -> Vec<String> {
        let groups: Vec<String> = self.groups.iter().map(i64::to_string).collect();
        vec![
            format!("--userspec={}:{}", self.uid, self.gid),
            format!("--groups={}", groups.join(",")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(pod: &Value, container: &Value, image: Option<u32>) -> Option<Vec<String>> {
        let container = json!({ "name": "c", "securityContext": container });
        let pod = json!({ "spec": { "containers": [container], "securityContext": pod } });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let image = Image {
            user: image,
            ..Image::default()
        };
        let container = pod.spec.as_ref()?.containers.first()?;
        User::of(&pod, container, &image).map(|user| user.words())
    }

    #[test]
    fn the_nearest_word_holds() {
        let words =
            |user: &str, groups: &str| Some(vec![format!("--userspec={user}"), format!("--groups={groups}")]);
        assert_eq!(of(&json!({}), &json!({}), None), None);
        assert_eq!(of(&json!({}), &json!({}), Some(65532)), words("65532:0", ""));
        assert_eq!(
            of(&json!({ "runAsUser": 5 }), &json!({}), Some(65532)),
            words("5:0", "")
        );
        let pod = json!({ "runAsUser": 5, "runAsGroup": 6, "fsGroup": 7 });
        assert_eq!(of(&pod, &json!({}), None), words("5:6", "7"));
        assert_eq!(
            of(&pod, &json!({ "runAsUser": 0, "runAsGroup": 0 }), None),
            words("0:0", "7")
        );
    }
}
