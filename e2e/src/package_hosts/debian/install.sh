#!/bin/sh
# Installs what was prepared, no more and no less. The service manager is told nothing: no daemon is restarted, and none that is
# stopped is started.
#
#   install.sh VERSION
#
# May be repeated, also after one that was interrupted. Fails if a daemon of Ceph was restarted all the same.
set -eu
version=$1
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
record=/var/lib/stagger/software/$version
[ -s "$record/changes" ] || { echo "an installation of $version was not prepared" >&2; exit 1; }
running() { systemctl show -p Id,MainPID 'ceph-*@*.service' 'radosgw@*.service'; }

before=$(running)
# Else the scripts of the packages start targets, and with them each daemon that somebody has stopped; a newer libc restarts
# sshd; and needrestart, where it restarts by itself, restarts all daemons of the host at once.
export SYSTEMD_OFFLINE=1 NEEDRESTART_SUSPEND=1
# What was interrupted. It fails where half of the packages are new, which apt then completes.
dpkg --configure -a >"$record/install.log" 2>&1 || true
# What is named below counts as wanted by a person from then on, and is never removed by itself.
by_itself=$(apt-mark showauto)
# shellcheck disable=SC2046 # words
apt-get -q -y -o DPkg::Lock::Timeout=120 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold \
    install --no-remove $(awk '{ print $1 "=" $3 }' "$record/changes") >>"$record/install.log" 2>&1 || {
    grep -E '^(E:|dpkg: error|N:)' "$record/install.log" >&2 || tail -n 5 "$record/install.log" >&2
    exit 1
}
echo "$by_itself" | awk 'NR == FNR { auto[$1]; next } $1 in auto || $2 == "-" { print $1 }' - "$record/changes" |
    xargs -r apt-mark auto >/dev/null
unset SYSTEMD_OFFLINE
systemctl daemon-reload
[ "$(running)" = "$before" ] || { echo "daemons were restarted by the installation" >&2; exit 1; }
