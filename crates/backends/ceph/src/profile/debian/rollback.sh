# The software of a host becomes again what it was before an upgrade, from the packages that were kept: no source is asked, and
# no daemon is restarted. Of what Ceph's packages do not need in their old version, such as libc, the new one stays, and so do
# packages that came with the upgrade. May be repeated.
set -eu
release='{release}'
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
software=/var/lib/stagger/software
mkdir -p "$software"
exec 9>"$software/lock"
flock 9

fail() { echo "$*" >&2; exit 1; }
of_release() {
    awk -v of="$release" '{ plain = $1; sub(/^[0-9]+:/, "", plain); after = substr(plain, length(of) + 1, 1)
        if (index(plain, of) == 1 && after !~ /[0-9.]/) { print $1; exit } }'
}
installed() {
    dpkg-query -W -f '${source:Package} ${db:Status-Status} ${binary:Package} ${Version}\n' |
        awk '$1 == "ceph" && $2 != "config-files" && $2 != "not-installed" { print $3, $4 }'
}
running() { systemctl show -p Id,MainPID 'ceph-*@*.service' 'radosgw@*.service'; }

ceph=$(installed)
there=$(echo "$ceph" | cut -d' ' -f2 | of_release)
if [ -n "$there" ] && [ "$(echo "$ceph" | cut -d' ' -f2 | sort -u)" = "$there" ] && [ -z "$(dpkg --audit)" ]; then
    echo "Ceph's packages are at $there"
    exit 0
fi
# The newest record of an upgrade from that release.
record=
for changes in $(ls -t "$software"/*/changes 2>/dev/null); do
    if [ -n "$(awk '$1 == "ceph-common" { print $2 }' "$changes" | of_release)" ]; then
        record=${changes%/changes}
        break
    fi
done
[ -n "$record" ] || fail "no upgrade from $release is recorded in $software: install its packages by hand"

before=$(running)
mkdir -p "$record/lists/partial"
echo "deb [trusted=yes] file:$record/kept ./" >"$record/kept.list"
# apt goes back to a version only where a pin says so, and then only if it must.
awk '$2 != "-" { printf "Package: %s\nPin: version %s\nPin-Priority: 1001\n\n", $1, $2 }' "$record/changes" >"$record/pins"
apt() {
    apt-get -q -y -o DPkg::Lock::Timeout=600 -o Dir::Etc::SourceList="$record/kept.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$record/lists" -o Dir::Etc::Preferences="$record/pins" -o Dir::Etc::PreferencesParts=/dev/null \
        -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@" 9>&-
}
export SYSTEMD_OFFLINE=1 NEEDRESTART_SUSPEND=1
# What was interrupted: fails where half of the packages are new, which apt then completes.
dpkg --configure -a >"$record/rollback.log" 2>&1 9>&- || true
apt update >>"$record/rollback.log" 2>&1
by_itself=$(apt-mark showauto)
wanted=$(echo "$ceph" | cut -d' ' -f1 | awk 'NR == FNR { ceph[$1]; sub(/:.*/, "", $1); ceph[$1]; next }
    $1 in ceph && $2 != "-" { print $1 "=" $2 }' - "$record/changes")
# An upgrade that was interrupted is first made consistent, also backwards.
for packages in '--fix-broken' "$wanted"; do
    # shellcheck disable=SC2086 # words
    apt install --allow-downgrades --no-remove $packages >>"$record/rollback.log" 2>&1 || {
        grep -E '^(E:|N:|dpkg: error)' "$record/rollback.log" >&2 || tail -n 5 "$record/rollback.log" >&2
        exit 1
    }
done
echo "$by_itself" | awk 'NR == FNR { auto[$1]; next } $1 in auto { print $1 }' - "$record/changes" |
    xargs -r apt-mark auto >/dev/null
unset SYSTEMD_OFFLINE
systemctl daemon-reload
[ "$(running)" = "$before" ] || fail "daemons were restarted by the rollback"
echo "Ceph's packages are at those of $release again"
