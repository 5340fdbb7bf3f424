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

apt update >"$record/update.log" 2>&1 || { tail -n 5 "$record/update.log" >&2; exit 1; }
ceph=$(dpkg-query -W -f '${source:Package} ${db:Status-Status} ${binary:Package} ${Version}\n' |
    awk '$1 == "ceph" && $2 != "config-files" && $2 != "not-installed" { print $3, $4 }')
[ -n "$ceph" ] || { echo "no package of Ceph is installed here" >&2; exit 1; }
wanted=$(echo "$ceph" | awk -v version="$version" '{ print $1 "=" version }')
if ! echo "$ceph" | grep -q " $version\$"; then
    # shellcheck disable=SC2086 # words
    if ! apt -s install --only-upgrade --no-remove $wanted >"$record/simulated" 2>&1; then
        grep -v '^\(Inst\|Conf\) ' "$record/simulated" >&2
        exit 1
    fi
    # Inst NAME [OLD] (NEW ...: a package that was not there has no OLD.
    awk '$1 == "Inst" {
        old = $3 ~ /^\[/ ? substr($3, 2, length($3) - 2) : "-"
        new = substr(old == "-" ? $3 : $4, 2)
        print $2, old, new
    }' "$record/simulated" >"$record/changes.new"
    mv "$record/changes.new" "$record/changes"
fi
# shellcheck disable=SC2086
apt install --only-upgrade --no-remove --download-only $wanted >"$record/download.log" 2>&1 || {
    tail -n 5 "$record/download.log" >&2
    exit 1
}

cd "$record/kept"
while read -r name old _; do
    if [ "$old" = - ] || ls "${name%:*}_$(echo "$old" | sed 's/:/%3a/g')_"*.deb >/dev/null 2>&1; then continue; fi
    if ! apt-get -q -o APT::Sandbox::User=root download "$name=$old" >"$record/keep.log" 2>&1; then
        file=$(ls "/var/cache/apt/archives/${name%:*}_$(echo "$old" | sed 's/:/%3a/g')_"*.deb 2>/dev/null || true)
        [ -n "$file" ] || { echo "a rollback needs $name $old, which no source has: $(tail -n 1 "$record/keep.log")" >&2; exit 1; }
        ln -f "$file" . 2>/dev/null || cp "$file" .
    fi
done <"$record/changes"
for file in *.deb; do
    dpkg-deb -f "$file"
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$file" "$(stat -c %s "$file")" "$(sha256sum "$file" | cut -d' ' -f1)"
done >Packages
cat "$record/changes"
