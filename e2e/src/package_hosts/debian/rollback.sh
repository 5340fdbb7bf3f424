#!/bin/sh
# Puts back the versions that were there before an installation, from the packages that were kept: no source is asked. No daemon
# is restarted.
#
#   rollback.sh VERSION     the version that goes
#
# Of what Ceph's packages do not need in their old version, such as libc, the new one stays, and so do packages that came with the
# installation.
set -eu
version=$1
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
record=/var/lib/stagger/software/$version
[ -s "$record/changes" ] || { echo "nothing was recorded before an installation of $version" >&2; exit 1; }
running() { systemctl show -p Id,MainPID 'ceph-*@*.service' 'radosgw@*.service'; }

before=$(running)
mkdir -p "$record/lists/partial"
echo "deb [trusted=yes] file:$record/kept ./" >"$record/kept.list"
# apt goes back to a version only where a pin says so, and then only if it must.
awk '$2 != "-" { printf "Package: %s\nPin: version %s\nPin-Priority: 1001\n\n", $1, $2 }' "$record/changes" >"$record/pins"
apt() {
    apt-get -q -y -o DPkg::Lock::Timeout=120 -o Dir::Etc::SourceList="$record/kept.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$record/lists" -o Dir::Etc::Preferences="$record/pins" -o Dir::Etc::PreferencesParts=/dev/null \
        -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@"
}
export SYSTEMD_OFFLINE=1 NEEDRESTART_SUSPEND=1
# What was interrupted: fails where half of the packages are new, which apt then completes.
dpkg --configure -a >"$record/rollback.log" 2>&1 || true
apt update >>"$record/rollback.log" 2>&1
by_itself=$(apt-mark showauto)
ceph=$(dpkg-query -W -f '${source:Package} ${db:Status-Status} ${binary:Package}\n' |
    awk '$1 == "ceph" && $2 != "config-files" && $2 != "not-installed" { print $3 }')
wanted=$(awk 'NR == FNR { ceph[$1]; sub(/:.*/, "", $1); ceph[$1]; next } $1 in ceph && $2 != "-" { print $1 "=" $2 }' - "$record/changes" <<END
$ceph
END
)
# An installation that was interrupted is first made consistent, also backwards.
for packages in '--fix-broken' "$wanted"; do
    # shellcheck disable=SC2086 # words
    apt install --allow-downgrades --no-remove $packages >>"$record/rollback.log" 2>&1 || {
        grep -E '^(E:|dpkg: error|N:)' "$record/rollback.log" >&2 || tail -n 5 "$record/rollback.log" >&2
        exit 1
    }
done
echo "$by_itself" | awk 'NR == FNR { auto[$1]; next } $1 in auto { print $1 }' - "$record/changes" |
    xargs -r apt-mark auto >/dev/null
unset SYSTEMD_OFFLINE
systemctl daemon-reload
[ "$(running)" = "$before" ] || { echo "daemons were restarted by the rollback" >&2; exit 1; }
