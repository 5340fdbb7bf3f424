//! The volumes of a pod: made on this machine before its first container.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, DownwardAPIProjection, HostPathVolumeSource, KeyToPath, PersistentVolume,
    PersistentVolumeClaim, Pod, SecretProjection, Volume, VolumeProjection,
};
use kube::Api;
use tokio::sync::OnceCell;

use super::Shared;
use super::content::{Content, Files, write};
use super::fields::field;
use super::keys::{Found, Holder, Values};
use super::place::{Access, Place, Places};
use super::tokens;

/// Their folder in that of the pod. No container has such a name.
pub(super) const VOLUMES: &str = ".volumes";

/// What the files of a volume have if it does not say, as the kubelet has it.
const MODE: u32 = 0o644;

/// The volumes of one pod. All its containers wait for them, and one of them makes them.
#[derive(Debug, Default)]
pub(super) struct Volumes(OnceCell<Places>);

impl Volumes {
    /// Where they are; made, if they are not yet. The error says what the pod waits for.
    pub(super) async fn places(&self, shared: &Shared, pod: &Pod) -> Result<&Places, String> {
        self.0.get_or_try_init(|| make(shared, pod)).await
    }
}

async fn make(shared: &Shared, pod: &Pod) -> Result<Places, String> {
    let mut places = Places::new();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    for volume in volumes.into_iter().flatten() {
        let place = place(shared, pod, volume)
            .await
            .map_err(|why| format!("the volume {}: {why}", volume.name))?;
        places.insert(volume.name.clone(), place);
    }
    Ok(places)
}

async fn place(shared: &Shared, pod: &Pod, volume: &Volume) -> Result<Place, String> {
    let own = shared.folder(pod).join(VOLUMES).join(&volume.name);
    if volume.empty_dir.is_some() {
        let open = Permissions::from_mode(0o777);
        fs::create_dir_all(&own)
            .and_then(|()| fs::set_permissions(&own, open))
            .map_err(|error| format!("making {}: {error}", own.display()))?;
        return Ok(Place {
            path: own,
            access: Access::Write,
        });
    }
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let of_node = shared.hosts().join(node.unwrap_or_default());
    let devices = shared.devices(pod);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(claim) = &volume.persistent_volume_claim {
        let path = on_node(
            &of_node,
            &devices,
            &of_claim(shared, namespace, &claim.claim_name).await?,
        );
        if !path.exists() {
            return Err(format!(
                "the node has no {}; the pod waits for it",
                path.display()
            ));
        }
        return Ok(Place {
            path,
            access: Access::Write,
        });
    }
    if let Some(host) = &volume.host_path {
        let path = on_node(&of_node, &devices, &host.path);
        look_after(host, &path)?;
        return Ok(Place {
            path,
            access: Access::Write,
        });
    }
    let sources = sources(volume).ok_or("the node agent has no volumes of this kind")?;
    let found = Found::ask(&shared.client, namespace, wanted(&sources)).await?;
    let mut files = files(&sources, pod, &found)?;
    files.extend(tokens::files(&shared.client, pod, &sources).await?);
    write(&own, &files, mode(volume)).map_err(|error| format!("writing into {}: {error}", own.display()))?;
    Ok(Place {
        path: own,
        access: Access::Read,
    })
}

/// The path on its node of the local block volume that a claim is bound to.
async fn of_claim(shared: &Shared, namespace: &str, name: &str) -> Result<String, String> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(shared.client.clone(), namespace);
    let claim = claims
        .get(name)
        .await
        .map_err(|error| format!("the claim {name}: {error}"))?;
    let bound = claim.spec.and_then(|spec| spec.volume_name);
    let bound = bound.ok_or_else(|| format!("the claim {name} is not bound; the pod waits for that"))?;
    let volumes: Api<PersistentVolume> = Api::all(shared.client.clone());
    let volume = volumes
        .get(&bound)
        .await
        .map_err(|error| format!("the volume {bound}: {error}"))?;
    let spec = volume.spec.unwrap_or_default();
    match (spec.volume_mode.as_deref(), spec.local) {
        (Some("Block"), Some(local)) => Ok(local.path),
        _ => Err(format!(
            "the node agent has only local block volumes, and {bound} is none"
        )),
    }
}

/// Where a path of a node is on this machine: in the node's own folder, but for what only the machine has.
fn on_node(folder: &Path, devices: &Path, path: &str) -> PathBuf {
    let path = Path::new(path);
    if let Ok(device) = path.strip_prefix("/dev") {
        // Joined with nothing, it would end with a slash.
        return if device.as_os_str().is_empty() {
            devices.to_owned()
        } else {
            devices.join(device)
        };
    }
    if ["/sys", "/proc"]
        .iter()
        .any(|of_machine| path.starts_with(of_machine))
    {
        return path.to_owned();
    }
    folder.join(path.strip_prefix("/").unwrap_or(path))
}

/// Makes what a path of a node should be if it may be made; else it has to be there.
fn look_after(host: &HostPathVolumeSource, path: &Path) -> Result<(), String> {
    let kind = host.type_.as_deref().unwrap_or_default();
    if !path.exists() {
        let folder = match kind {
            "" | "DirectoryOrCreate" => Some(path),
            "FileOrCreate" => path.parent(),
            _ => None,
        };
        let made = folder.map_or(Ok(()), fs::create_dir_all);
        let made = made.and_then(|()| match kind {
            "FileOrCreate" => fs::write(path, ""),
            _ => Ok(()),
        });
        made.map_err(|error| format!("making {}: {error}", path.display()))?;
    }
    let found = fs::metadata(path).map(|found| found.file_type()).ok();
    let fits = found.is_some_and(|found| match kind {
        "" => true,
        "Directory" | "DirectoryOrCreate" => found.is_dir(),
        "File" | "FileOrCreate" => found.is_file(),
        "Socket" => found.is_socket(),
        "CharDevice" => found.is_char_device(),
        "BlockDevice" => found.is_block_device(),
        _ => false,
    });
    if fits {
        Ok(())
    } else {
        Err(format!(
            "{} of the node, here {}, is no {kind}; the pod waits for one",
            host.path,
            path.display()
        ))
    }
}

/// What a volume with files is made of; `None`: it is another kind of volume.
fn sources(volume: &Volume) -> Option<Vec<VolumeProjection>> {
    let mut one = VolumeProjection::default();
    if let Some(projected) = &volume.projected {
        return Some(projected.sources.clone().unwrap_or_default());
    } else if let Some(map) = &volume.config_map {
        one.config_map = Some(ConfigMapProjection {
            items: map.items.clone(),
            name: map.name.clone(),
            optional: map.optional,
        });
    } else if let Some(secret) = &volume.secret {
        one.secret = Some(SecretProjection {
            items: secret.items.clone(),
            name: secret.secret_name.clone().unwrap_or_default(),
            optional: secret.optional,
        });
    } else if let Some(downward) = &volume.downward_api {
        one.downward_api = Some(DownwardAPIProjection {
            items: downward.items.clone(),
        });
    } else {
        return None;
    }
    Some(vec![one])
}

fn wanted(sources: &[VolumeProjection]) -> BTreeSet<Holder> {
    let of_one = |source: &VolumeProjection| {
        let map = source.config_map.as_ref();
        let secret = source.secret.as_ref();
        [
            map.map(|map| Holder::ConfigMap(map.name.clone())),
            secret.map(|secret| Holder::Secret(secret.name.clone())),
        ]
    };
    sources.iter().flat_map(of_one).flatten().collect()
}

/// The files of a volume, without its tokens; a later source wins.
fn files(sources: &[VolumeProjection], pod: &Pod, found: &Found) -> Result<Files, String> {
    let mut files = Files::new();
    for source in sources {
        if let Some(map) = &source.config_map {
            let holder = Holder::ConfigMap(map.name.clone());
            let values = found.all(&holder, map.optional)?;
            files.extend(chosen(&holder, values, map.items.as_deref(), map.optional)?);
        } else if let Some(secret) = &source.secret {
            let holder = Holder::Secret(secret.name.clone());
            let values = found.all(&holder, secret.optional)?;
            files.extend(chosen(&holder, values, secret.items.as_deref(), secret.optional)?);
        } else if let Some(downward) = &source.downward_api {
            for item in downward.items.iter().flatten() {
                let of = item
                    .field_ref
                    .as_ref()
                    .ok_or_else(|| format!("the node agent has no source for the file {}", item.path))?;
                let content = Content {
                    bytes: field(pod, &of.field_path)?.into_bytes(),
                    mode: item.mode,
                };
                files.insert(item.path.clone(), content);
            }
        } else if source.service_account_token.is_none() {
            return Err("the node agent has no projections of this kind".to_owned());
        }
    }
    Ok(files)
}

/// The values as files: all under their keys, or those that were chosen under their paths.
fn chosen(
    holder: &Holder,
    mut values: Values,
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
) -> Result<Files, String> {
    let Some(items) = items else {
        return Ok(values
            .into_iter()
            .map(|(key, bytes)| (key, Content::of(bytes)))
            .collect());
    };
    let mut files = Files::new();
    for item in items {
        match values.remove(&item.key) {
            Some(bytes) => {
                let mode = item.mode;
                files.insert(item.path.clone(), Content { bytes, mode });
            }
            None if optional == Some(true) => {}
            None => {
                return Err(format!(
                    "the {holder} has no key {}; the pod waits for it",
                    item.key
                ));
            }
        }
    }
    Ok(files)
}

/// The mode of the files of a volume that have none of their own.
fn mode(volume: &Volume) -> u32 {
    let given = if let Some(projected) = &volume.projected {
        projected.default_mode
    } else if let Some(map) = &volume.config_map {
        map.default_mode
    } else if let Some(secret) = &volume.secret {
        secret.default_mode
    } else {
        volume
            .downward_api
            .as_ref()
            .and_then(|downward| downward.default_mode)
    };
    given.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(MODE)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    fn of(volume: Value) -> Result<Files, String> {
        let volume: Volume = serde_json::from_value(volume).unwrap();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "ns" }, "spec": { "containers": [] },
        }))
        .unwrap();
        let values = |pairs: &[(&str, &str)]| -> Values {
            pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
                .collect()
        };
        let found = Found(BTreeMap::from([
            (
                Holder::ConfigMap("m".to_owned()),
                values(&[("a", "1"), ("b", "2")]),
            ),
            (Holder::Secret("s".to_owned()), values(&[("a", "secret")])),
        ]));
        let sources = sources(&volume).ok_or("another kind")?;
        files(&sources, &pod, &found)
    }

    fn shown(files: Result<Files, String>) -> String {
        let files = files.unwrap();
        let pairs = files
            .iter()
            .map(|(path, content)| format!("{path}={}", String::from_utf8_lossy(&content.bytes)));
        pairs.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn files_are_the_keys_or_those_chosen() {
        let whole = json!({ "name": "v", "configMap": { "name": "m" } });
        assert_eq!(shown(of(whole)), "a=1 b=2");
        let items = json!([{ "key": "b", "path": "deep/er" }]);
        let part = json!({ "name": "v", "configMap": { "name": "m", "items": items } });
        assert_eq!(shown(of(part)), "deep/er=2");
        let projected = json!({ "name": "v", "projected": { "sources": [
            { "configMap": { "name": "m" } },
            { "secret": { "name": "s" } },
            { "secret": { "name": "none", "optional": true } },
            { "serviceAccountToken": { "path": "token" } },
            { "downwardAPI": { "items": [
                { "path": "ns", "fieldRef": { "fieldPath": "metadata.namespace" } },
            ] } },
        ] } });
        assert_eq!(shown(of(projected)), "a=secret b=2 ns=ns");
    }

    #[test]
    fn what_is_missing_is_named_unless_it_is_optional() {
        let items = json!([{ "key": "c", "path": "c" }]);
        for (volume, why) in [
            (
                json!({ "name": "v", "secret": { "secretName": "none" } }),
                "Secret none",
            ),
            (
                json!({ "name": "v", "configMap": { "name": "m", "items": items } }),
                "no key c",
            ),
            (
                json!({ "name": "v", "nfs": { "server": "s", "path": "/" } }),
                "another kind",
            ),
        ] {
            let said = of(volume);
            assert!(said.as_ref().is_err_and(|said| said.contains(why)), "{said:?}");
        }
        for volume in [
            json!({ "name": "v", "secret": { "secretName": "none", "optional": true } }),
            json!({ "name": "v", "configMap": { "name": "m", "items": items, "optional": true } }),
        ] {
            assert_eq!(shown(of(volume)), "");
        }
    }

    #[test]
    fn a_node_has_files_of_its_own_but_for_devices() {
        let folder = Path::new("/hosts/n0");
        for (path, expected) in [("/dev", "/hosts/n0/dev"), ("/dev/sda", "/hosts/n0/dev/sda")] {
            let found = on_node(folder, Path::new("/hosts/n0/dev"), path);
            assert_eq!(found, Path::new(expected), "{path}");
        }
        for (path, expected) in [
            ("/var/lib/rook", "/hosts/n0/var/lib/rook"),
            ("/", "/hosts/n0/"),
            ("/devices", "/hosts/n0/devices"),
            ("/dev/sda", "/dev/sda"),
            ("/sys", "/sys"),
        ] {
            assert_eq!(
                on_node(folder, Path::new("/dev"), path),
                Path::new(expected),
                "{path}"
            );
        }
    }

    #[test]
    fn files_have_the_mode_of_their_volume_or_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let items = json!([{ "key": "a", "path": "a" }, { "key": "b", "path": "in/b", "mode": 256 }]);
        let volume = json!({ "name": "v", "configMap": { "name": "m", "items": items, "defaultMode": 288 } });
        let files = of(volume.clone()).unwrap();
        let volume: Volume = serde_json::from_value(volume).unwrap();
        write(folder.path(), &files, super::mode(&volume)).unwrap();
        let mode = |path: &str| {
            fs::metadata(folder.path().join(path))
                .unwrap()
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!((mode("a"), mode("in"), mode("in/b")), (0o440, 0o755, 0o400));
        assert_eq!(super::mode(&Volume::default()), 0o644);
    }

    #[test]
    fn a_path_of_a_node_is_made_only_where_it_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let look = |path: &str, kind: &str| {
            let host = HostPathVolumeSource {
                path: format!("/{path}"),
                type_: Some(kind.to_owned()),
            };
            look_after(&host, &folder.path().join(path))
        };
        assert!(look("none", "Directory").is_err_and(|why| why.contains("/none")));
        assert!(look("none", "File").is_err());
        assert!(!folder.path().join("none").exists());
        for (path, kind) in [("a", ""), ("b/c", "DirectoryOrCreate"), ("d/e", "FileOrCreate")] {
            assert_eq!(look(path, kind), Ok(()), "{path}");
        }
        assert_eq!((look("b/c", "Directory"), look("d/e", "File")), (Ok(()), Ok(())));
        assert!(look("d/e", "DirectoryOrCreate").is_err(), "a file is no folder");
    }
}
