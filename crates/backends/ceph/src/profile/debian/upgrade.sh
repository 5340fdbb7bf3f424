# The software of a host becomes that of a release, by Debian's packages, and no daemon is restarted. One package of Ceph means all
# of them, and what they depend on.
#
# First all that the installation and a rollback need is downloaded, with nothing changed; then exactly that is installed. May be
# repeated, also after one that was interrupted, and is asked for by each daemon of the host: the first does it.
set -eu
release='{release}'
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
software=/var/lib/stagger/software
mkdir -p "$software"
exec 9>"$software/lock"
flock 9

fail() { echo "$*" >&2; exit 1; }
# What matters of what apt said.
complain() {
    grep -E '^(E:|W:|N:|dpkg: error)| : (Pre-?)?(Depends|Breaks|Conflicts): ' "$1" >&2 || tail -n 5 "$1" >&2
    exit 1
}
# Of versions, one a line, the first that is of the release: 20.2.4+ds-2 is of 20.2.4, and 20.2.41 is not.
of_release() {
    awk -v of="$release" '{ plain = $1; sub(/^[0-9]+:/, "", plain); after = substr(plain, length(of) + 1, 1)
        if (index(plain, of) == 1 && after !~ /[0-9.]/) { print $1; exit } }'
}
installed() {
    dpkg-query -W -f '${source:Package} ${db:Status-Status} ${binary:Package} ${Version}\n' |
        awk '$1 == "ceph" && $2 != "config-files" && $2 != "not-installed" { print $3, $4 }'
}
running() { systemctl show -p Id,MainPID 'ceph-*@*.service' 'radosgw@*.service'; }
apt() {
    apt-get -q -y -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@" 9>&-
}

ceph=$(installed)
[ -n "$ceph" ] || fail "no package of Ceph is installed here"
there=$(echo "$ceph" | cut -d' ' -f2 | of_release)
if [ "$(echo "$ceph" | cut -d' ' -f2 | sort -u)" = "$there" ] && [ -z "$(dpkg --audit)" ]; then
    echo "Ceph's packages are at $there"
    exit 0
fi
names=$(echo "$ceph" | cut -d' ' -f1)
held=$(echo "$names" | sed 's/:.*//' | grep -xF "$(apt-mark showhold | sed 's/:.*//; s/^$/-/')" || true)
[ -z "$held" ] || fail "held, see apt-mark(8):" $held

# It succeeds also where a source does not answer: whether that matters is seen below.
apt update >"$software/update.log" 2>&1 || complain "$software/update.log"
# shellcheck disable=SC2086 # words
apt-cache madison $names | sed 's/^ *//; s/ *| */ /g' >"$software/sources"
version=$(awk '$1 == "ceph-common" { print $2 }' "$software/sources" | of_release)
[ -n "$version" ] || {
    grep -E '^(E|W): ' "$software/update.log" >&2 || true
    fail "no source has ceph-common $release; there are:" $(awk '$1 == "ceph-common" { print $2 }' "$software/sources")
}
for name in $names; do
    grep -qF "${name%:*} $version " "$software/sources" ||
        fail "no source has ${name%:*} $version; there are:" \
            $(awk -v name="${name%:*}" '$1 == name { print $2 }' "$software/sources")
done

record=$software/$version
mkdir -p "$record/kept"
# What was there is recorded until any of the new is installed, and is kept from then on.
if ! echo "$ceph" | grep -qF " $version"; then
    # shellcheck disable=SC2046 # words
    apt -s install --only-upgrade --no-remove $(echo "$names" | sed "s/\$/=$version/") >"$record/simulated" 2>&1 ||
        complain "$record/simulated"
    # Inst NAME [OLD] (NEW ...: a package that was not there has no OLD.
    awk '$1 == "Inst" {
        old = $3 ~ /^\[/ ? substr($3, 2, length($3) - 2) : "-"
        new = substr(old == "-" ? $3 : $4, 2)
        print $2, old, new
    }' "$record/simulated" >"$record/changes.new"
    mv "$record/changes.new" "$record/changes"
fi
[ -s "$record/changes" ] || fail "Ceph's packages are at several versions, and what was there before $version is not recorded"
changes() { awk '{ print $1 "=" $3 }' "$record/changes"; }
# shellcheck disable=SC2046
apt install --no-remove --download-only $(changes) >"$record/download.log" 2>&1 || complain "$record/download.log"

cd "$record/kept"
while read -r name old _; do
    file="${name%:*}_$(echo "$old" | sed 's/:/%3a/g')"
    if [ "$old" = - ] || ls "${file}_"*.deb >/dev/null 2>&1; then continue; fi
    if ! apt-get -q -o APT::Sandbox::User=root download "$name=$old" >"$record/keep.log" 2>&1; then
        cp "/var/cache/apt/archives/${file}_"*.deb . 2>/dev/null ||
            fail "a rollback needs $name $old, which no source has: $(tail -n 1 "$record/keep.log")"
    fi
done <"$record/changes"
for file in *.deb; do
    dpkg-deb -f "$file"
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$file" "$(stat -c %s "$file")" "$(sha256sum "$file" | cut -d' ' -f1)"
done >Packages
cd /

before=$(running)
# Else the scripts of the packages start targets, and with them each daemon that somebody has stopped; a newer libc restarts
# sshd; and needrestart, where it restarts by itself, restarts all daemons of the host at once.
export SYSTEMD_OFFLINE=1 NEEDRESTART_SUSPEND=1
# What was interrupted. It fails where half of the packages are new, which apt then completes.
dpkg --configure -a >"$record/install.log" 2>&1 9>&- || true
# What is named below counts as wanted by a person from then on, and is never removed by itself.
by_itself=$(apt-mark showauto)
# shellcheck disable=SC2046
apt install --no-remove $(changes) >>"$record/install.log" 2>&1 || complain "$record/install.log"
echo "$by_itself" | awk 'NR == FNR { auto[$1]; next } $1 in auto || $2 == "-" { print $1 }' - "$record/changes" |
    xargs -r apt-mark auto >/dev/null
unset SYSTEMD_OFFLINE
systemctl daemon-reload
[ "$(running)" = "$before" ] || fail "daemons were restarted by the installation"
echo "Ceph's packages are at $version, $(wc -l <"$record/changes") packages changed; a restart of any daemon of this host starts $release"
