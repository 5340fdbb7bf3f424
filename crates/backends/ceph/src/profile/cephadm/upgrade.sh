# The image that a daemon of cephadm's is to be started from is pulled, and nothing is changed. Asked for by each daemon of a host: the
# first does it.
set -eu
image='{image}'
engine=$(command -v podman || command -v docker) || { echo "there is neither podman nor docker here" >&2; exit 1; }
mkdir -p /var/lib/stagger
exec 9>/var/lib/stagger/pull.lock
flock 9
if ! "$engine" image inspect "$image" >/dev/null 2>&1; then
    # Where cephadm has logged in to a registry.
    auth=/etc/ceph/podman-auth.json
    if [ -e "$auth" ] && [ "${engine##*/}" = podman ]; then set -- --authfile="$auth"; else set --; fi
    said=$("$engine" pull "$@" "$image" 2>&1 9>&-) || { echo "$said" | tail -n 5 >&2; exit 1; }
fi
echo "$image is here"
