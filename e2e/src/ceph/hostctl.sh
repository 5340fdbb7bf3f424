#!/bin/sh
# hostctl: what a host is beside its daemons, for one test cluster whose daemons stand on hosts of their own.
#
#   hostctl reboot HOST     answers at once; then the host goes away with all its daemons, is back after a while with another
#                           boot id, and starts them
#   hostctl boot-id HOST    its boot id (exit 0), or nothing while it is away (exit 1)
#
# It runs inside the cluster's namespaces. Each reboot is a line "HOST" in <cluster>/reboots. A host with a file
# <cluster>/hosts/HOST/stays-away is not back before that is gone.
set -eu

dir=$(cd "$(dirname "$0")" && pwd)
wrong() { echo "hostctl: $*" >&2; echo "hostctl: use: hostctl reboot|boot-id HOST" >&2; exit 2; }

[ $# -eq 2 ] || wrong "not two words"
verb=$1 host=$2
own=$dir/hosts/$host
[ -d "$own" ] || wrong "no host '$host'"

# Does a verb for each daemon of the host, at the same time.
each() {
    for file in $(grep -lxF -- "$host" "$dir"/host-of/*); do
        daemon=${file##*/}
        "$dir/daemonctl" "$1" "${daemon%%.*}" "${daemon#*.}" &
    done
    wait
}

case $verb in
    boot-id)
        [ -e "$own/boot-id" ] || { echo "hostctl: $host is away" >&2; exit 1; }
        cat "$own/boot-id"
        ;;
    reboot)
        [ -e "$own/boot-id" ] || { echo "hostctl: $host is away" >&2; exit 1; }
        echo "$host" >>"$dir/reboots"
        setsid "$0" away "$host" </dev/null >"$dir/log/reboot-$host" 2>&1 &
        ;;
    away)
        each stop
        rm -f "$own/boot-id"
        sleep 2
        while [ -e "$own/stays-away" ]; do sleep 0.2; done
        cat /proc/sys/kernel/random/uuid >"$own/boot-id.new"
        mv "$own/boot-id.new" "$own/boot-id"
        each start
        ;;
    *) wrong "no verb '$verb'" ;;
esac
