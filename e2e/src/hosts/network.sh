#!/bin/sh
# network.sh NAME...: a bridge, and a network namespace on it for each name. The first has 10.88.0.11.
set -eu
# Names of namespaces are files there, and these are nobody else's.
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
ip link add hosts type bridge
ip addr add 10.88.0.254/24 dev hosts
ip link set hosts up
number=10
for name; do
    number=$((number + 1))
    ip netns add "$name"
    ip link add "$name" type veth peer name eth0 netns "$name"
    ip link set "$name" master hosts up
    ip -n "$name" link set lo up
    ip -n "$name" addr add "10.88.0.$number/24" dev eth0
done
