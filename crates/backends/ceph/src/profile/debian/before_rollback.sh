# An OSD is stopped, and its data made readable for the older release, by the tools of the newer one. Those are gone where another
# daemon of the host has gone back before: then the newer packages, which are still here, are installed once more.
set -eu
release='{release}'
osd='{id}'
software=/var/lib/stagger/software

of_release() {
    awk -v of="$release" '{ plain = $1; sub(/^[0-9]+:/, "", plain); after = substr(plain, length(of) + 1, 1)
        if (index(plain, of) == 1 && after !~ /[0-9.]/) { print $1; exit } }'
}
exec 9>"$software/lock"
flock 9
newer=
if [ -n "$(dpkg-query -W -f '${Version}\n' ceph-osd | of_release)" ]; then
    for changes in $(ls -t "$software"/*/changes 2>/dev/null); do
        if [ -n "$(awk '$1 == "ceph-common" { print $2 }' "$changes" | of_release)" ]; then
            # shellcheck disable=SC2046 # words
            SYSTEMD_OFFLINE=1 NEEDRESTART_SUSPEND=1 LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -q -y \
                -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold \
                install --no-remove $(awk '{ print $1 "=" $3 }' "$changes") 9>&- >"${changes%/changes}/again.log" 2>&1 || {
                tail -n 5 "${changes%/changes}/again.log" >&2
                exit 1
            }
            systemctl daemon-reload
            newer=yes
            break
        fi
    done
    # The OSD is not stopped for tools that are not there.
    [ -n "$newer" ] || {
        echo "ceph-osd is at $release, and no upgrade from it is recorded in $software: the newer tools are not there" >&2
        exit 1
    }
fi
systemctl stop "ceph-osd@$osd.service"
ceph-bluestore-tool revert-wal-to-plain --path "/var/lib/ceph/osd/ceph-$osd"
