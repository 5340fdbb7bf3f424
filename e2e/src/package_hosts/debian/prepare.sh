#!/bin/sh
# Debian's packages, before an installation: everything that it and its rollback need, downloaded. Installs nothing.
#
#   prepare.sh VERSION      Debian's version of Ceph's packages
#
# Prints each package that the installation changes: its name, the version that is there (`-` for none), the version to come.
# May be repeated. What was there is recorded until any of the new is installed, and is kept from then on.
set -eu
version=$1
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
record=/var/lib/stagger/software/$version
mkdir -p "$record/kept"
apt() { apt-get -q -y -o DPkg::Lock::Timeout=120 "$@"; }
fail() { echo "$*" >&2; exit 1; }
# What matters of what apt said.
complain() {
    grep -E '^(E|W): | : (Pre-?)?(Depends|Breaks|Conflicts): ' "$1" >&2 || tail -n 5 "$1" >&2
    exit 1
}

# It succeeds also where a source does not answer: whether that matters is seen below.
apt update >"$record/update.log" 2>&1 || complain "$record/update.log"
ceph=$(dpkg-query -W -f '${source:Package} ${db:Status-Status} ${binary:Package} ${Version}\n' |
    awk '$1 == "ceph" && $2 != "config-files" && $2 != "not-installed" { print $3, $4 }')
[ -n "$ceph" ] || fail "no package of Ceph is installed here"
names=$(echo "$ceph" | cut -d' ' -f1)
held=$(echo "$names" | sed 's/:.*//' | grep -xF "$(apt-mark showhold | sed 's/:.*//; s/^$/-/')" || true)
[ -z "$held" ] || fail "held, see apt-mark(8):" $held
# shellcheck disable=SC2086 # words
apt-cache madison $names | sed 's/^ *//; s/ *| */ /g' >"$record/sources"
for name in $names; do
    if ! grep -qF "${name%:*} $version " "$record/sources"; then
        grep -E '^(E|W): ' "$record/update.log" >&2 || true
        fail "no source has ${name%:*} $version; there are:" \
            $(awk -v name="${name%:*}" '$1 == name { print $2 }' "$record/sources")
    fi
done
wanted=$(echo "$names" | sed "s/\$/=$version/")
if ! echo "$ceph" | grep -qF " $version"; then
    # shellcheck disable=SC2086 # words
    apt -s install --only-upgrade --no-remove $wanted >"$record/simulated" 2>&1 || complain "$record/simulated"
    # Inst NAME [OLD] (NEW ...: a package that was not there has no OLD.
    awk '$1 == "Inst" {
        old = $3 ~ /^\[/ ? substr($3, 2, length($3) - 2) : "-"
        new = substr(old == "-" ? $3 : $4, 2)
        print $2, old, new
    }' "$record/simulated" >"$record/changes.new"
    mv "$record/changes.new" "$record/changes"
fi
# Exactly what install.sh asks for.
# shellcheck disable=SC2046
apt install --no-remove --download-only $(awk '{ print $1 "=" $3 }' "$record/changes") >"$record/download.log" 2>&1 ||
    complain "$record/download.log"

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
cat "$record/changes"
