#!/bin/sh
# Makes an image of a root and pushes it to the registry, through a host. Runs in the sandbox.
#
#   images.sh SSH ROOT LAYER NAME      LAYER is laid over ROOT; `-`: nothing is
set -eu
ssh=$1 root=$2 layer=$3 name=$4
if [ "$layer" != - ]; then
    # The mount is seen here alone.
    mount -t overlay -o "lowerdir=$layer:$root" overlay "$root"
fi
tar -C "$root" --exclude=./usr/share/doc --exclude=./var/lib/apt/lists --exclude=./var/cache --exclude='./proc/*' \
    --exclude='./sys/*' --exclude='./dev/*' --exclude='./tmp/*' --exclude='./run/*' --exclude=./root/.cache -cf - . |
    "$ssh" h1 "podman import -q --change 'ENV CEPH_VOLUME_ALLOW_LOOP_DEVICES=1' \
        --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - $name"
"$ssh" h1 "podman push -q $name && podman rmi $name"
