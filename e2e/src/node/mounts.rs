//! What a container sees of the files: a root of its own over its image's, with the volumes in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Container;

use super::place::{Access, Places};
use super::variables::expand;

/// Makes the root in the mount namespace that it is started in, and becomes the command in it. Arguments:
/// the image's root with the layers over it, the `/dev` of its node, the container's folder, the folder of the
/// cluster, `ro` or `rw` for the root, what `chroot` is told of the user; then for each mount its source, its place in the root, and `ro` or `rw`;
/// then `--` and the command.
///
/// One volume may lie in another that is read-only, and its place has to be made first: so what is to be
/// read-only becomes so when everything is mounted. A place is looked up from inside, as links of the image lead elsewhere outside. Whatever fails ends it
/// with 128, as with a runtime that cannot make a container.
const MAKE: &str = r#"
set -eu
trap 'exit 128' EXIT
image=$1 devices=$2 own=$3 cluster=$4 access=$5 user=$6 closed=; shift 6
root=$own/root
rm -rf "$own/upper" "$own/scratch"
mkdir -p "$own/upper" "$own/scratch" "$root"
mount -t overlay -o "lowerdir=$image,upperdir=$own/upper,workdir=$own/scratch" overlay "$root"
mkdir -p "$root/proc" "$root/sys" "$root/dev"
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind "$devices" "$root/dev"
mkdir -p "$root/run" "$root$cluster"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount --bind "$cluster" "$root$cluster"
while [ "$1" != -- ]; do
    source=$1 mode=$3
    place=$root$(chroot "$root" readlink -m -- "$2")
    shift 3
    [ -e "$source" ] || mkdir -p "$source"
    if [ -d "$source" ]; then
        mkdir -p "$place"
    else
        mkdir -p "${place%/*}"
        [ -e "$place" ] || : >"$place"
    fi
    mount --rbind "$source" "$place"
    [ "$mode" = rw ] || closed="$closed$place
"
done
shift
IFS='
'
for place in $closed; do mount -o remount,bind,ro "$place"; done
unset IFS
[ "$access" = rw ] || mount -o remount,bind,ro "$root"
exec chroot $user "$root" "$@"
"#;

/// A file or folder that is seen at a path of the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) source: PathBuf,
    pub(super) target: String,
    pub(super) access: Access,
}

/// The root of its own that a container has, in a mount namespace of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnRoot {
    pub(super) image: PathBuf,
    /// What lies over that, the topmost first.
    pub(super) layers: Vec<PathBuf>,
    /// The `/dev` of its node.
    pub(super) devices: PathBuf,
    /// The container's folder.
    pub(super) own: PathBuf,
    /// The folder of the whole cluster, which is seen everywhere at its own path.
    pub(super) cluster: PathBuf,
    pub(super) access: Access,
    pub(super) mounts: Vec<Mount>,
}

impl OwnRoot {
    /// Where it is, in that mount namespace.
    pub(super) fn path(&self) -> PathBuf {
        self.own.join("root")
    }

    /// The command line that makes it and then becomes `words` in it.
    /// `user` is what `chroot` is told of it.
    pub(super) fn command(&self, user: &[String], words: &[String]) -> Vec<String> {
        let shown = |path: &Path| path.display().to_string();
        let mut line = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            MAKE,
            "mounts",
        ]
        .map(str::to_owned)
        .to_vec();
        let layers = self.layers.iter().chain([&self.image]);
        line.push(layers.map(|path| shown(path)).collect::<Vec<_>>().join(":"));
        line.extend([&self.devices, &self.own, &self.cluster].map(|path| shown(path)));
        line.push(self.access.word());
        line.push(user.join(" "));
        for mount in &self.mounts {
            line.extend([shown(&mount.source), mount.target.clone(), mount.access.word()]);
        }
        line.push("--".to_owned());
        line.extend_from_slice(words);
        line
    }
}

/// Whether a container needs a root of its own: one without volumes shares its image's with all others,
/// unless it asks for one that it may write to.
pub(super) fn needs_own_root(spec: &Container) -> bool {
    let volumes = spec.volume_mounts.iter().flatten().count();
    let devices = spec.volume_devices.iter().flatten().count();
    volumes + devices > 0 || read_only_root(spec) == Some(false)
}

/// Whether it may only read its root, if it says.
pub(super) fn read_only_root(spec: &Container) -> Option<bool> {
    spec.security_context.as_ref()?.read_only_root_filesystem
}

/// What is mounted in a container and where, those that others lie in first.
pub(super) fn mounts(
    spec: &Container,
    places: &Places,
    env: &BTreeMap<String, String>,
) -> Result<Vec<Mount>, String> {
    let mut mounts = Vec::new();
    for mount in spec.volume_mounts.iter().flatten() {
        let place = places
            .get(&mount.name)
            .ok_or_else(|| format!("the pod has no volume {}", mount.name))?;
        let part = match (&mount.sub_path_expr, &mount.sub_path) {
            (Some(expression), _) => expand(expression, env),
            (None, part) => part.clone().unwrap_or_default(),
        };
        if part.starts_with('/') || part.split('/').any(|step| step == "..") {
            return Err(format!(
                "the part {part:?} of the volume {} leads out of it",
                mount.name
            ));
        }
        let source = match part.as_str() {
            "" => place.path.clone(),
            part => place.path.join(part),
        };
        let access = match mount.read_only {
            Some(true) => Access::Read,
            Some(false) | None => place.access,
        };
        mounts.push(Mount {
            source,
            target: mount.mount_path.clone(),
            access,
        });
    }
    for device in spec.volume_devices.iter().flatten() {
        let place = places
            .get(&device.name)
            .ok_or_else(|| format!("the pod has no volume {}", device.name))?;
        mounts.push(Mount {
            source: place.path.clone(),
            target: device.device_path.clone(),
            access: place.access,
        });
    }
    mounts.sort_by_key(|mount| Path::new(&mount.target).components().count());
    Ok(mounts)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::node::place::Place;

    fn of(volume_mounts: &Value) -> Result<Vec<Mount>, String> {
        let spec: Container =
            serde_json::from_value(json!({ "name": "c", "volumeMounts": volume_mounts })).unwrap();
        let place = |path: &str, access| Place {
            path: path.into(),
            access,
        };
        let places = Places::from([
            ("data".to_owned(), place("/v/data", Access::Write)),
            ("token".to_owned(), place("/v/token", Access::Read)),
        ]);
        let env = BTreeMap::from([("POD".to_owned(), "p0".to_owned())]);
        mounts(&spec, &places, &env)
    }

    #[test]
    fn volumes_are_mounted_from_the_outside_in() {
        let found = of(&json!([
            { "name": "token", "mountPath": "/data/in/it" },
            { "name": "data", "mountPath": "/data", "subPathExpr": "of/$(POD)" },
            { "name": "data", "mountPath": "/a/", "subPath": "a", "readOnly": true },
        ]));
        let mount = |source: &str, target: &str, access| Mount {
            source: source.into(),
            target: target.to_owned(),
            access,
        };
        let expected = vec![
            mount("/v/data/of/p0", "/data", Access::Write),
            mount("/v/data/a", "/a/", Access::Read),
            mount("/v/token", "/data/in/it", Access::Read),
        ];
        assert_eq!(found, Ok(expected));
    }

    #[test]
    fn a_block_volume_is_seen_at_the_path_of_the_device() {
        let devices = json!([{ "name": "disk", "devicePath": "/mnt/c" }]);
        let spec: Container =
            serde_json::from_value(json!({ "name": "c", "volumeDevices": devices })).unwrap();
        let place = Place {
            path: "/hosts/n0/disk".into(),
            access: Access::Write,
        };
        let places = Places::from([("disk".to_owned(), place)]);
        let expected = Mount {
            source: "/hosts/n0/disk".into(),
            target: "/mnt/c".to_owned(),
            access: Access::Write,
        };
        assert_eq!(mounts(&spec, &places, &BTreeMap::new()), Ok(vec![expected]));
        assert!(needs_own_root(&spec));
        assert!(
            mounts(&spec, &Places::new(), &BTreeMap::new()).is_err_and(|why| why.contains("no volume disk"))
        );
    }

    #[test]
    fn a_mount_of_nothing_or_of_what_is_outside_is_refused() {
        let refused = |mounts: Value, why: &str| {
            let said = of(&mounts);
            assert!(said.as_ref().is_err_and(|said| said.contains(why)), "{said:?}");
        };
        refused(json!([{ "name": "none", "mountPath": "/x" }]), "no volume none");
        refused(
            json!([{ "name": "data", "mountPath": "/x", "subPath": "../y" }]),
            "leads out",
        );
    }

    #[test]
    fn only_volumes_or_the_wish_to_write_need_a_root() {
        let needs = |spec: Value| {
            let spec: Container = serde_json::from_value(spec).unwrap();
            needs_own_root(&spec)
        };
        assert!(!needs(json!({ "name": "c" })));
        assert!(!needs(
            json!({ "name": "c", "securityContext": { "readOnlyRootFilesystem": true } })
        ));
        assert!(needs(
            json!({ "name": "c", "securityContext": { "readOnlyRootFilesystem": false } })
        ));
        assert!(needs(
            json!({ "name": "c", "volumeMounts": [{ "name": "v", "mountPath": "/v" }] })
        ));
    }

    #[test]
    fn the_command_line_ends_with_the_words() {
        let root = OwnRoot {
            image: "/".into(),
            layers: vec!["/above".into()],
            devices: "/dev".into(),
            own: "/own".into(),
            cluster: "/cluster".into(),
            access: Access::Read,
            mounts: of(&json!([{ "name": "data", "mountPath": "/d" }])).unwrap(),
        };
        let line = root.command(
            &["--userspec=5:6".to_owned()],
            &["echo".to_owned(), "--".to_owned()],
        );
        let expected = "mounts /above:/ /dev /own /cluster ro --userspec=5:6 /v/data /d rw -- echo --";
        assert_eq!(line[7..].join(" "), expected);
    }
}
