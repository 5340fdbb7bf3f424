#!/bin/sh
# nodectl: what a node's power button, its init and its wires are, for one virtual node of a test cluster.
#
#   nodectl NODE wire ADDRESS   its network namespace, with eth0 on the cluster's bridge
#   nodectl NODE start          it boots: sshd, and those of Ganeti's daemons that start on it
#   nodectl NODE crash          its power is cut: every process ends at once, what was in memory is gone
#   nodectl NODE reboot         both, with some seconds in between; while one goes on, another does nothing
#   nodectl NODE run COMMAND…   runs a command on it; exit 255, as ssh has it, while it is down
#   nodectl NODE status         "up BOOTID" (exit 0) or "down" (exit 1)
#
# It runs with the root's files, in the cluster's namespaces. A file <cluster>/fault/NODE makes the node stay down
# at its next reboots; `start` starts it all the same.
#
# Exit: 0 done, 1 failed (or down, for status), 2 wrong use.
set -eu

dir=$(cd "$(dirname "$0")" && pwd)
say() { echo "nodectl: $*" >&2; }
[ $# -ge 2 ] || { say "use: nodectl NODE wire|start|crash|reboot|run|status [WORD…]"; exit 2; }
node=$1 verb=$2
home=$dir/$node
case $node in *[!a-z0-9]* | '') say "no name of a node: '$node'"; exit 2 ;; esac
[ -d "$home/etc/ganeti" ] || { say "no node $node in this cluster"; exit 2; }

# A powercycle is asked for on the node itself, whose end must not be that of who does it.
if [ "$(readlink /proc/self/ns/net)" != "$(readlink /proc/1/ns/net)" ]; then
    exec nsenter --net=/proc/1/ns/net "$0" "$@"
fi
shift 2

# A command on the node. Ganeti's virtual nodes have folders of their own for all but files of instances, in /srv, and for
# `reboot`, which is the node's. Programs that are not Ganeti's look for its files where they are on a real node, and take the
# node's name from the kernel. The lock must not go on in a daemon.
on() {
    nsenter --net="/run/netns/$node" unshare --mount --uts \
        sh -c 'mount --bind "$0/srv" /srv && mount --bind "$0/var/lib/ganeti" /var/lib/ganeti && echo "${0##*/}" >/proc/sys/kernel/hostname && exec "$@"' "$home" \
        env GANETI_ROOTDIR="$home" GANETI_HOSTNAME="$node" PATH="$home/bin:$PATH" "$@" 9>&-
}

wire() {
    ip netns add "$node"
    ip link add "$node" type veth peer name eth0 netns "$node"
    ip link set "$node" master lan up
    ip -n "$node" link set lo up
    ip -n "$node" addr add "$1/24" dev eth0
    new_boot_id
}

new_boot_id() {
    cat /proc/sys/kernel/random/uuid >"$home/boot_id.new"
    mv "$home/boot_id.new" "$home/boot_id"
    cat "$home/boot_id" >>"$home/boots"
}

crash() {
    # Before anything ends: who looks in between sees a node that is down.
    : >"$home/down"
    ip -n "$node" link set eth0 down
    # The address of the cluster was only in memory, if it was here.
    for extra in $(ip -n "$node" -o -4 addr show dev eth0 | sed -n 's|.* inet \([0-9./]*/32\) .*|\1|p'); do
        ip -n "$node" addr del "$extra" dev eth0
    done
    # What is just being forked is not in the list yet.
    while pids=$(ip netns pids "$node") && [ -n "$pids" ]; do
        # They may have ended meanwhile.
        kill -KILL $pids 2>/dev/null || true
        sleep 0.05
    done
    rm -rf "$home/var/run/ganeti" "$home/var/lock" "$home/drbd"
    mkdir -p "$home/var/run/ganeti" "$home/var/lock" "$home/drbd"
    new_boot_id
}

start() {
    ip -n "$node" link set eth0 up
    on /usr/sbin/sshd -f "$home/etc/sshd_config"
    rm -f "$home/down"
    # It is no part of a cluster yet.
    [ -e "$home/var/lib/ganeti/server.pem" ] || return 0
    for daemon in noded confd wconfd luxid rapi; do
        # 11: it is for the master, and this is not the master.
        on /usr/lib/ganeti/daemon-util start "ganeti-$daemon" >>"$home/var/log/start.log" 2>&1 || {
            code=$?
            [ "$code" = 11 ] || say "ganeti-$daemon on $node ended with $code"
        }
    done
}

case $verb in
    run)
        if [ -e "$home/down" ]; then say "$node is down"; exit 255; fi
        on "$@"
        ;;
    status)
        if [ -e "$home/down" ]; then echo down; exit 1; fi
        echo "up $(cat "$home/boot_id")"
        ;;
    wire) wire "$1" ;;
    start | crash | reboot)
        exec 9>"$home/lock"
        if [ "$verb" = reboot ]; then
            flock --nonblock 9 || { say "$node is rebooting already"; exit 0; }
        else
            flock 9
        fi
        [ "$verb" = start ] || crash
        if [ "$verb" = reboot ]; then
            [ ! -e "$dir/fault/$node" ] || exit 0
            seconds=$dir/boot-seconds
            [ ! -e "$seconds-$node" ] || seconds=$seconds-$node
            sleep "$(cat "$seconds")"
        fi
        [ "$verb" = crash ] || start
        ;;
    *) say "no verb '$verb'"; exit 2 ;;
esac
