#!/bin/sh
# Makes a daemon of Ceph on this host and starts it by its unit, from what is in /etc/ceph/begin.
#
#   begin.sh mon ID | mgr ID | osd ID UUID
set -eu
kind=$1 id=$2
from=/etc/ceph/begin
data=/var/lib/ceph/$kind/ceph-$id
chown -R ceph:ceph "$from"
install -d -o ceph -g ceph "$data"
case $kind in
    mon) ceph-mon --mkfs -i "$id" --monmap "$from/monmap" --keyring "$from/mons" --setuser ceph --setgroup ceph ;;
    mgr | osd) install -o ceph -g ceph -m 600 "$from/$kind.$id" "$data/keyring" ;;
esac
if [ "$kind" = osd ]; then
    ceph-osd --mkfs -i "$id" --osd-uuid "$3" --setuser ceph --setgroup ceph
fi
systemctl enable --now "ceph-$kind@$id"
