# A daemon of cephadm's is restarted, from `image` if that is given: what its unit runs is written anew, as cephadm would have it, and
# cephadm's own record of who deployed it. May be repeated, also after it was interrupted: the record of its image is written last.
set -eu
fsid='{fsid}'
daemon='{kind}.{id}'
image='{image}'
folder=/var/lib/ceph/$fsid/$daemon
unit=ceph-$fsid@$daemon.service

[ -d "$folder" ] || { echo "there is no $folder: cephadm has no $daemon here" >&2; exit 1; }
old=$(cat "$folder/unit.image")
if [ -n "$image" ] && [ "$old" != "$image" ]; then
    engine=$(command -v podman || command -v docker)
    digests=$("$engine" image inspect --format '{{json .RepoDigests}}' "$image") || { echo "$image is not here" >&2; exit 1; }
    # Nothing of cephadm's is under way on this host meanwhile.
    mkdir -p /run/cephadm
    exec 9>>"/run/cephadm/$fsid.lock"
    flock -w 300 9 || { echo "cephadm has been at work here for five minutes" >&2; exit 1; }
    python3 - "$folder" "$old" "$image" "$digests" <<'PYTHON'
import json, os, sys

folder, old, new, digests = sys.argv[1:]


with open(os.path.join(folder, "unit.run")) as file:
    text = file.read()
# Else it would be restarted as it is. What was rewritten before this was interrupted names the new one.
if old not in text and new not in text:
    sys.exit(f"{folder}/unit.run names neither {old} nor {new}: cephadm writes it otherwise here")


def rewrite(name, change):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return
    with open(path) as file:
        text = change(file.read())
    stat = os.stat(path)
    with open(path + ".new", "w") as file:
        os.fchmod(file.fileno(), stat.st_mode & 0o7777)
        os.fchown(file.fileno(), stat.st_uid, stat.st_gid)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)


def deployed(text):
    meta = json.loads(text)
    meta["deployed_by"] = json.loads(digests)
    return json.dumps(meta, indent=4)


for name in ["unit.run", "unit.stop", "unit.poststop"]:
    rewrite(name, lambda text: text.replace(old, new))
rewrite("unit.meta", deployed)
rewrite("unit.image", lambda text: new + "\n")
PYTHON
    exec 9>&-
fi
# The units may be started only so often in half an hour, which counts what an operator does too: it begins anew.
systemctl reset-failed "$unit" 2>/dev/null || true
systemctl restart "$unit"
