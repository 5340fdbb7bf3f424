#!/bin/sh
# One host: its machine, from power on to power off, again and again. Runs in the network namespace of the host.
#
#   host.sh FOLDER LOWER CGROUP
#
# FOLDER is the host's own: `upper` is what differs from the root LOWER, `boot-id` the id of this boot, `pid` that of its
# systemd as the sandbox knows it, `console` what systemd said. CGROUP is the host's in the tree of version 2.
#
# A reboot inside ends systemd by SIGHUP, and it is started again with another boot id. Everything else is a host
# without power, until a file `power-on` appears. With a file `stays-away` there it does not come back before that
# file is gone.
set -eu
own=$1 lower=$2 cgroup=$3

mkdir -p "$own/upper" "$own/work" "$own/root"
while :; do
    cat /proc/sys/kernel/random/uuid >"$own/boot-id"
    ip link set eth0 up
    status=0
    # Its clocks begin with it, so that it tells since when it is up.
    up=$(cut -d. -f1 /proc/uptime)
    unshare --time --boottime "-$up" --monotonic "-$up" --mount --propagation private --pid --fork --uts --ipc sh "${0%/*}/boot.sh" "$own" "$lower" "$cgroup" \
        </dev/null >>"$own/console" 2>&1 || status=$?
    rm -f "$own/pid"
    ip link set eth0 down
    find "$cgroup" -mindepth 1 -depth -type d -exec rmdir {} +
    echo "ended with $status" >>"$own/console"
    if [ $status -ne 129 ]; then
        until [ -e "$own/power-on" ]; do sleep 0.1; done
        rm "$own/power-on"
    fi
    while [ -e "$own/stays-away" ]; do sleep 0.1; done
done
